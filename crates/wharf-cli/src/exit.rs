//! What the command says to the shell when it ends. Scripts depend on these numbers: they do not change.

use std::process::ExitCode;

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what was asked.
    Ok = 0,
    /// It failed, and no other number says how.
    General = 1,
    /// The command line, or the arguments for a tool, are wrong. Nothing was run.
    Usage = 2,
    /// A server wants to know who is calling.
    Auth = 3,
    /// A server could not be started or reached, did not answer in time, or broke off.
    Unreachable = 4,
    /// The tool says that it failed, or there is no such tool, resource, prompt or server.
    Tool = 5,
    /// Policy forbids it, or a project's file is not trusted yet.
    Denied = 6,
    /// A configuration file is wrong.
    Config = 7,
    /// Ctrl-C.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
