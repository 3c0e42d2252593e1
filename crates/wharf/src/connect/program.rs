//! Finding the program behind a command's name, once, as an absolute path.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::config::{ServerConfig, Transport};
use crate::error::Result;
use crate::policy::{LaunchRequest, Policy};

use super::unix;

/// What connecting a server would start, and what a person should know about it.
#[derive(Clone, Debug, Default)]
pub struct Inspected {
    /// The program that would be started; `None` for a server that is reached over a network.
    pub program: Option<PathBuf>,
    /// What is allowed, and yet worth a look.
    pub warnings: Vec<String>,
}

/// Asks the policy what it thinks of a server. Nothing is started and nothing is contacted; the program is only looked
/// for, through the `PATH` of `environment`.
pub fn inspect(
    config: &ServerConfig,
    policy: &Policy,
    environment: &BTreeMap<String, String>,
) -> Result<Inspected> {
    match &config.transport {
        Transport::Stdio(stdio) => {
            let found = find(&stdio.command, environment.get("PATH").map(String::as_str));
            let permit = policy.permit_launch(&LaunchRequest {
                server: &config.name,
                stdio,
                origin: &config.origin,
                program: found.as_deref(),
                sandbox: config.sandbox.as_ref(),
                host_env: environment,
            })?;
            let program = Some(permit.program().to_path_buf());
            Ok(Inspected { program, warnings: permit.warnings().to_vec() })
        }
        Transport::Http(remote) | Transport::Sse(remote) => {
            let permit = policy.permit_connect(&config.name, remote, &config.origin)?;
            Ok(Inspected { program: None, warnings: permit.warnings().to_vec() })
        }
        Transport::WebSocket(remote) => {
            let permit = policy.permit_websocket(&config.name, remote, &config.origin)?;
            Ok(Inspected { program: None, warnings: permit.warnings().to_vec() })
        }
        Transport::Unix(socket) => {
            let warnings = match unix::permit(policy, &config.name, socket)? {
                Ok(_) => Vec::new(),
                Err(absent) => vec![format!("server `{}`: {absent}", config.name)],
            };
            Ok(Inspected { program: None, warnings })
        }
    }
}

/// Looks a bare name up in `PATH`, as given. Relative and empty entries of `PATH` are skipped: they would mean the
/// folder we happen to be in. A path is taken as it is, if it is absolute.
pub(crate) fn find(command: &str, path: Option<&str>) -> Option<PathBuf> {
    if command.contains('/') {
        let path = PathBuf::from(command);
        return (path.is_absolute() && is_program(&path)).then_some(path);
    }
    let folders = std::env::split_paths(path?).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(command)).find(|candidate| is_program(candidate))
}

/// A regular file that may be executed, and does not change who we are when it is.
fn is_program(path: &Path) -> bool {
    const SET_ID: u32 = 0o6000;
    path.metadata().is_ok_and(|meta| {
        let mode = meta.permissions().mode();
        meta.is_file() && mode & 0o111 != 0 && mode & SET_ID == 0
    })
}
