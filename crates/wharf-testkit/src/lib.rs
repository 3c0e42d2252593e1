//! Servers that are honest, slow, lying, flooding or crashing, to test Wharf against.
//!
//! In: a script. Out: a process or a loopback listener that behaves as the script says. It knows nothing of `wharf`,
//! so that a mistake there cannot hide behind the same mistake here.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "only tests use this crate; it may fail loudly")]
#![allow(
    clippy::disallowed_methods,
    reason = "the rules on processes, sockets and the environment bind the product"
)]

use std::path::PathBuf;

pub mod fixture;
pub mod http;
pub mod model;
pub mod oauth;
pub mod puppet;
pub mod rmcp_client;
pub mod rmcp_peer;
pub mod shim;
pub mod socket;

pub use self::http::{HttpPuppet, Recorded, Reply, SseStep};
pub use fixture::{Fixture, Kind, Place};
pub use model::{Dialect, ScriptedModel};
pub use oauth::Authority;
pub use puppet::{Crash, Era, Grandchild, Puppet, Script, Step};
pub use socket::{UnixPuppet, WsPuppet};

/// Where the puppet's binary lies: among the examples of the package under test, or beside them.
///
/// # Panics
/// If it was not built.
pub fn puppet_path() -> PathBuf {
    built("puppet")
}

/// Where the binary of the server built on rmcp lies.
///
/// # Panics
/// If it was not built.
pub fn rmcp_peer_path() -> PathBuf {
    built("rmcp-peer")
}

/// Where the binary of the fixture for the conformance suite lies.
///
/// # Panics
/// If it was not built.
pub fn fixture_path() -> PathBuf {
    built("fixture")
}

/// Where the host that tests kill lies.
///
/// # Panics
/// If it was not built.
pub fn held_path() -> PathBuf {
    built("held")
}

/// Where an example of the package under test lies.
///
/// # Panics
/// If it was not built.
pub fn example_path(name: &str) -> PathBuf {
    built(name)
}

/// The newest binary of that name in the target folder that the running test comes from.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a path");
    let deps = test.parent().expect("a test lies in a folder");
    let profile = if deps.ends_with("deps") { deps.parent().unwrap_or(deps) } else { deps };
    let candidates = [format!("examples/{name}"), format!("examples/{name}-cli"), name.to_owned()];
    let newest = candidates
        .iter()
        .map(|c| profile.join(c))
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .max_by_key(|(time, _)| *time);
    let Some((_, path)) = newest else {
        panic!(
            "`{name}` is not built in {}: run `cargo build -p wharf-testkit --bin {name}`",
            profile.display()
        );
    };
    path
}
