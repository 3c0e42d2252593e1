//! The bounds that hold for each process by itself.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::sandbox::plan::Limits;

/// Since this release of Linux, processes are counted for each user namespace by itself. Before, all the user's other
/// programs would count.
const COUNTED_APART: (u32, u32) = (5, 14);

pub(super) fn apply(limits: &Limits) -> Result<(), String> {
    // Not the address space: Node and Go reserve far more of it than they ever use.
    lower("memory", Resource::Data, limits.memory)?;
    lower("open files", Resource::Nofile, limits.open_files)?;
    lower("file size", Resource::Fsize, limits.file_size)?;
    lower("core files", Resource::Core, 0)?;
    if let Some(seconds) = limits.cpu_seconds {
        lower("computing time", Resource::Cpu, seconds)?;
    }
    if release() >= COUNTED_APART {
        lower("processes", Resource::Nproc, limits.processes)?;
    }
    Ok(())
}

/// Never raises: what was inherited may be tighter.
fn lower(what: &str, resource: Resource, to: u64) -> Result<(), String> {
    let held = getrlimit(resource);
    let to = held.maximum.map_or(to, |held| held.min(to));
    let limit = Rlimit { current: Some(to), maximum: Some(to) };
    setrlimit(resource, limit).map_err(|e| format!("the limit of {what} cannot be set: {e}"))
}

fn release() -> (u32, u32) {
    let uname = rustix::system::uname();
    let text = uname.release().to_string_lossy();
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
