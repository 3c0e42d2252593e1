//! One agent's scope: what it may see, what it remembers, what its tools can reach.
//!
//! In: nothing from outside. Out: the values that a scope is made of. Who may call is `policy`, who is asked is `ask`;
//! the scope itself, with its connections, is `host`'s.
