//! One agent's scope: what it may see, what it remembers, what its tools can reach.
//!
//! In: nothing from outside. Out: the values that a scope is made of. Who may call is `policy`, who is asked is `ask`;
//! the scope itself, with its connections, is `host`'s.

mod extensions;
mod state;
mod taint;

pub use extensions::Extensions;
pub use state::{Conflict, Memory, Slice, State, Transaction};
pub use taint::Taint;

/// Who sees a connection and its tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Visibility {
    /// Only the agent that connected it: in listing, finding and calling.
    #[default]
    Private,
    /// Every agent of the host.
    Shared,
}
