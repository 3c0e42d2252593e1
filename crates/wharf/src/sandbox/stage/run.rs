//! The last step: bounds, no privileges, no dangerous calls; then this process becomes the server.
//!
//! In: the job. Out: nothing; the process is another program. Every step that fails ends it: a server that is only half
//! confined is not started.

use std::convert::Infallible;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::{calls, hold, limits, receive};
use crate::sandbox::plan::Job;

pub(super) fn run() -> Result<Infallible, String> {
    let job: Job = receive()?;
    limits::apply(&job.limits)?;
    refuse_privileges()?;
    hold::hold(&job.writable, job.needs_landlock)?;
    calls::refuse(job.unix_sockets)?;
    Err(become_server(&job))
}

/// Nothing that the process has, and nothing that a program it starts could bring along.
fn refuse_privileges() -> Result<(), String> {
    rustix::thread::set_no_new_privs(true).map_err(|e| format!("privileges cannot be given up: {e}"))?;
    let held = rustix::thread::capabilities(None).map_err(|e| format!("capabilities cannot be read: {e}"))?;
    if held.effective.is_empty() && held.permitted.is_empty() && held.inheritable.is_empty() {
        return Ok(());
    }
    Err("it still holds capabilities, so the sandbox did not close".into())
}

#[expect(
    clippy::disallowed_methods,
    reason = "this process itself becomes the server that a permit was given for"
)]
fn become_server(job: &Job) -> String {
    let env = job.env.iter().map(|(name, value)| (name, value));
    let error = Command::new(&job.program).args(&job.args).env_clear().envs(env).current_dir(&job.cwd).exec();
    if !job.cwd.is_dir() {
        return format!("the folder {} is not in the sandbox", job.cwd.display());
    }
    format!("`{}` cannot be started: {error}", job.program.display())
}
