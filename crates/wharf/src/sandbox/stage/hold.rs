//! The second hold on files: Landlock, under which only what was meant to be changed can be, whatever is mounted how.
//!
//! In: what may be changed. Out: a restriction of this process and everything it starts, which also keeps its signals and
//! its nameless sockets to itself where the kernel can do that.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, LandlockStatus, RestrictionStatus, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

/// What is asked for at most; an older kernel holds what it knows of it.
const WANTED: ABI = ABI::V6;

/// Restricts this process. `required`: an old kernel that holds nothing at all is an error.
pub(super) fn hold(writable: &[PathBuf], required: bool) -> Result<(), String> {
    let held = restrict(writable).map_err(|e| format!("files cannot be held by Landlock: {e}"))?;
    if held.ruleset == RulesetStatus::NotEnforced && required {
        return Err("this kernel has no Landlock".into());
    }
    Ok(())
}

/// Prints the version of Landlock's interface, from the inside of a sandbox.
pub(super) fn tell_version() -> Result<ExitCode, String> {
    let status = restrict(&[]).map_err(|e| format!("files cannot be held by Landlock: {e}"))?;
    if let LandlockStatus::Available { effective_abi, .. } = status.landlock {
        // Whoever does not listen does not want to know.
        let _ = writeln!(std::io::stdout(), "{}", effective_abi as i32);
    }
    Ok(ExitCode::SUCCESS)
}

fn restrict(writable: &[PathBuf]) -> Result<RestrictionStatus, RulesetError> {
    let everything: BitFlags<AccessFs> = AccessFs::from_all(WANTED);
    let devices = [Path::new("/dev")];
    Ruleset::default()
        .handle_access(everything)?
        .scope(Scope::AbstractUnixSocket | Scope::Signal)?
        .create()?
        .add_rules(path_beneath_rules(["/"], AccessFs::from_read(WANTED)))?
        .add_rules(path_beneath_rules(writable, everything))?
        .add_rules(path_beneath_rules(devices, everything))?
        .restrict_self()
}
