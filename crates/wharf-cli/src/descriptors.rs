//! How many files and sockets this program may have open at a time.
//!
//! Every caller and every server takes some. Systems let a program have 1,024 by default and many more if it asks, so a
//! gateway asks.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than all limits of callers and servers together.
const ENOUGH: u64 = 65_536;

/// Takes as many as there may be. Where the system says no, what there was does.
pub(crate) fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(ENOUGH, |most| most.min(ENOUGH));
    if current.is_some_and(|current| current < wanted) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}
