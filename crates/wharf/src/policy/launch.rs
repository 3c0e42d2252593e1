//! In: a server's command as written, where it was found, and our environment. Out: exactly what will be started, or
//! the rule that refuses it and how to allow it. Finding the program on disk is for `connect`, which then passes it in.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::shape::{self, Accepted, Place};
use super::{Confinement, LaunchPermit, Policy, environment};
use crate::config::{Origin, SandboxSetting, Stdio};
use crate::error::{Error, Result, StderrTail};
use crate::names::ServerName;
use crate::secret::is_credential_value;
use crate::text::{Escaped, is_unsafe_to_show};

/// The most arguments a command may have.
const MAX_ARGS: usize = 4096;
/// The most bytes all arguments may have together.
const MAX_ARG_BYTES: usize = 2 * 1024 * 1024;

/// A program that somebody wants to start.
#[derive(Clone, Copy)]
pub struct LaunchRequest<'a> {
    /// The server it is.
    pub server: &'a ServerName,
    /// The command as its config has it.
    pub stdio: &'a Stdio,
    /// Where that was written.
    pub origin: &'a Origin,
    /// The program as it was found: an absolute path. `None` if it was not found.
    pub program: Option<&'a Path>,
    /// What its config says of its sandbox.
    pub sandbox: Option<&'a SandboxSetting>,
    /// Our own environment, from which the child's is picked.
    pub host_env: &'a BTreeMap<String, String>,
}

impl Policy {
    /// May this program be started?
    ///
    /// A strict policy wants a command of its list, and for the launchers and interpreters it knows a command line that
    /// starts a script, a module or a package and nothing else. The built-in server is exempt from both.
    pub fn permit_launch(&self, request: &LaunchRequest<'_>) -> Result<LaunchPermit> {
        let stdio = request.stdio;
        check_sizes(request)?;
        check_odd_name(request)?;
        let built_in = *request.origin == Origin::BuiltIn;
        if self.rules.strict && !built_in {
            self.check_command(request)?;
        }
        let Accepted { args, mut warnings } =
            if built_in { as_written(stdio) } else { self.check_arguments(request)? };
        let (env, env_warnings) =
            environment::child_environment(request.server, stdio, request.host_env, &self.rules.env_allowed)?;
        warnings.extend(env_warnings);
        if args.iter().any(|arg| is_credential_value(arg.rsplit('=').next().unwrap_or(arg))) {
            warnings.push(format!(
                "an argument of server `{}` looks like a credential, and every program on this machine can read it; \
                 use `env` if the server takes it there",
                request.server
            ));
        }
        warnings.extend(relative_path(stdio, &args, request));
        Ok(LaunchPermit {
            server: request.server.clone(),
            program: program(request)?,
            args: args.into_iter().map(Into::into).collect(),
            env,
            cwd: working_folder(request)?,
            confinement: self.confinement(request),
            warnings,
        })
    }

    /// Confined, unless the user's own rules or the server's own entry say otherwise. Whose entry may say so was decided
    /// when the files were read.
    fn confinement(&self, request: &LaunchRequest<'_>) -> Confinement {
        let unconfined = self.rules.unconfined.contains(request.server.as_str());
        match request.sandbox {
            _ if unconfined || *request.origin == Origin::BuiltIn => Confinement::Off,
            Some(SandboxSetting::Off) => Confinement::Off,
            Some(SandboxSetting::On(profile)) => Confinement::Within(profile.clone()),
            None if self.rules.sandbox => Confinement::Within(Box::default()),
            None => Confinement::Off,
        }
    }

    fn check_command(&self, request: &LaunchRequest<'_>) -> Result<()> {
        let command = &request.stdio.command;
        if self.rules.commands.contains(command)
            && (!has_separator(command) || Path::new(command).is_absolute())
        {
            return Ok(());
        }
        let list: Vec<&str> = self.commands().collect();
        let list = if list.is_empty() { "nothing".to_owned() } else { list.join(", ") };
        let reason = if has_separator(command) {
            format!("it is a path, and the policy does not name exactly this one; allowed are {list}")
        } else {
            format!("allowed are {list}")
        };
        let hint = if has_separator(command) && !Path::new(command).is_absolute() {
            "write the absolute path, both for the server and under `commands` in `[policy]` of your `wharf.toml`".into()
        } else {
            let command = Escaped(command).to_string();
            format!("if you trust it, write in your `wharf.toml`:\n  [policy]\n  commands = [{command:?}]")
        };
        Err(not_allowed(request, reason, hint))
    }

    fn check_arguments(&self, request: &LaunchRequest<'_>) -> Result<Accepted> {
        let stdio = request.stdio;
        let argv: Vec<String> = std::iter::once(&stdio.command).chain(&stdio.args).cloned().collect();
        if self.rules.allowed_argv.contains(&argv) {
            return Ok(as_written(stdio));
        }
        let place = Place {
            base: stdio.base.as_deref(),
            has_cwd: stdio.cwd.is_some(),
            packages: &self.rules.packages,
        };
        match shape::judge(&stdio.command, &stdio.args, place) {
            Ok(accepted) => Ok(accepted),
            Err(_) if !self.rules.strict => Ok(as_written(stdio)),
            Err(reason) => {
                let hint = "if you mean exactly this command line, write it as a list (the command first) under \
                            `arguments_allow` in `[policy]` of your `wharf.toml`";
                Err(not_allowed(request, reason, hint.into()))
            }
        }
    }
}

/// A path that starts with a dot means the folder the server starts in, which is not the project's unless `cwd` says so.
fn relative_path(stdio: &Stdio, args: &[String], request: &LaunchRequest<'_>) -> Option<String> {
    let dotted =
        |arg: &&String| matches!(arg.as_str(), "." | "..") || arg.starts_with("./") || arg.starts_with("../");
    let arg = args.iter().find(dotted).filter(|_| stdio.cwd.is_none())?;
    Some(format!(
        "server `{}` starts in an empty folder, where its argument `{}` leads nowhere; give it a `cwd`, or write the \
         whole path",
        request.server,
        Escaped(arg)
    ))
}

// === impl LaunchRequest ===

impl fmt::Debug for LaunchRequest<'_> {
    /// Without our environment, which is full of secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaunchRequest")
            .field("server", self.server)
            .field("command", &self.stdio.command)
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

fn as_written(stdio: &Stdio) -> Accepted {
    Accepted { args: stdio.args.clone(), warnings: Vec::new() }
}

fn not_allowed(request: &LaunchRequest<'_>, reason: String, hint: String) -> Error {
    let command: String = request.stdio.command.chars().take(200).collect();
    Error::CommandNotAllowed {
        server: request.server.clone(),
        command: Escaped(&command).to_string(),
        reason,
        hint,
    }
}

fn has_separator(command: &str) -> bool {
    command.contains(['/', '\\'])
}

fn check_sizes(request: &LaunchRequest<'_>) -> Result<()> {
    let (server, args) = (request.server, &request.stdio.args);
    if args.len() > MAX_ARGS {
        let message =
            format!("server `{server}`: its command has {} arguments, more than {MAX_ARGS}", args.len());
        return Err(Error::config(message));
    }
    let bytes: usize = args.iter().map(String::len).sum();
    if bytes > MAX_ARG_BYTES {
        let message =
            format!("server `{server}`: its arguments have {bytes} bytes, more than {MAX_ARG_BYTES}");
        return Err(Error::config(message));
    }
    if let Some(at) = args.iter().position(|arg| arg.contains('\0')) {
        return Err(Error::config(format!("server `{server}`: argument {} has a NUL character", at + 1)));
    }
    Ok(())
}

/// Names that are easily mistaken for others are refused even where any command is allowed.
fn check_odd_name(request: &LaunchRequest<'_>) -> Result<()> {
    let command = request.stdio.command.as_str();
    let name = command.rsplit(['/', '\\']).next().unwrap_or(command);
    let odd = if name.is_empty() {
        "it is empty"
    } else if command.chars().any(is_unsafe_to_show) {
        "it has characters that cannot be seen"
    } else if command.trim() != command {
        "it begins or ends with a space; arguments belong in `args`"
    } else if name.ends_with('.') {
        "it ends with a dot"
    } else if name.starts_with('-') {
        "it begins with a dash"
    } else {
        return Ok(());
    };
    Err(not_allowed(request, odd.into(), format!("correct `command` of server `{}`", request.server)))
}

fn program(request: &LaunchRequest<'_>) -> Result<PathBuf> {
    let command = Escaped(&request.stdio.command);
    let Some(found) = request.program else {
        let place = if has_separator(&request.stdio.command) { "" } else { " on `PATH`" };
        return Err(Error::Connection {
            server: request.server.clone(),
            transport: "stdio",
            reason: format!("`{command}` was not found{place}{}", where_from(&request.stdio.command)),
            stderr: StderrTail::default(),
            retryable: false,
        });
    };
    if !found.is_absolute() {
        return Err(Error::Internal(format!("`{command}` was looked up, but not to an absolute path")));
    }
    Ok(found.to_path_buf())
}

fn where_from(command: &str) -> &'static str {
    match command {
        "node" | "npm" | "npx" => "; it comes with Node.js (nodejs.org)",
        "uv" | "uvx" => "; it comes with uv (docs.astral.sh/uv)",
        "python" => "; `python3` may be there, or install Python (python.org)",
        _ => "",
    }
}

fn working_folder(request: &LaunchRequest<'_>) -> Result<Option<PathBuf>> {
    let Some(cwd) = &request.stdio.cwd else {
        return Ok(None);
    };
    match &request.stdio.base {
        _ if cwd.is_absolute() => Ok(Some(cwd.clone())),
        Some(base) => Ok(Some(base.join(cwd))),
        None => Err(Error::Config {
            message: format!(
                "server `{}`: `cwd` is relative, and nothing says to which folder",
                request.server
            ),
            hint: Some("write `cwd` as an absolute path".into()),
        }),
    }
}
