//! What Wharf promises, proved at the boundary of the library.

mod names_secret;
mod wire;
