//! Our own engine, outside: the namespaces.
//!
//! In: nothing. Out: a process that is alone in new namespaces and waits for the one inside, the first of its process
//! namespace, which builds the room. When either goes, everything inside goes.

use std::process::ExitCode;

use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CapabilitySet, UnshareFlags};

use super::{BUILD, next, wait_for};

pub(super) fn enter() -> Result<ExitCode, String> {
    // Before the namespaces, where these are still what everybody calls them.
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    unshare().map_err(|e| {
        format!("namespaces cannot be made: {e}; where the system forbids them to users, install bubblewrap")
    })?;
    die_with_parent()?;
    // One user, one group, the same as outside: nobody else exists in here.
    write("setgroups", "deny")?;
    write("uid_map", &format!("{user} {user} 1"))?;
    write("gid_map", &format!("{group} {group} 1"))?;
    keep_for_next().map_err(|e| format!("capabilities cannot be handed on: {e}"))?;
    let first = next("/proc/self/exe", BUILD)?;
    Ok(wait_for(first))
}

/// What the next stage builds with. Only root would keep it without being told to; it counts in the namespaces alone, and
/// is given up before the server is started.
fn keep_for_next() -> rustix::io::Result<()> {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN | CapabilitySet::SETPCAP;
    let mut held = rustix::thread::capabilities(None)?;
    held.inheritable = needed;
    rustix::thread::set_capabilities(None, held)?;
    needed.iter().try_for_each(|one| rustix::thread::configure_capability_in_ambient_set(one, true))
}

/// Must be asked for again by every process of the chain: it is not inherited.
pub(super) fn die_with_parent() -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| format!("it cannot be tied to its parent: {e}"))
}

#[expect(deprecated, reason = "its successor is unsafe for the sake of a flag that is not used here")]
fn unshare() -> rustix::io::Result<()> {
    rustix::thread::unshare(
        UnshareFlags::NEWUSER
            | UnshareFlags::NEWNS
            | UnshareFlags::NEWPID
            | UnshareFlags::NEWNET
            | UnshareFlags::NEWIPC
            | UnshareFlags::NEWUTS
            | UnshareFlags::NEWCGROUP,
    )
}

fn write(name: &str, text: &str) -> Result<(), String> {
    std::fs::write(format!("/proc/self/{name}"), text).map_err(|e| format!("`{name}` cannot be written: {e}"))
}
