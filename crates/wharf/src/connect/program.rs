//! Finding the program behind a command's name, once, as an absolute path.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::digest::{Context, SHA256};

use crate::config::{Profile, ServerConfig, Stdio, Transport};
use crate::error::{Error, Result};
use crate::policy::{Confinement, LaunchPermit, LaunchRequest, Policy};
use crate::sandbox::Sandbox;
use crate::wire::canonical::hex;

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
    policy.permit_source(config)?;
    match &config.transport {
        Transport::Stdio(stdio) => {
            let permit = permit(config, stdio, policy, environment)?;
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

/// Whether a policy lets the same be started or reached in the same way as another, or refuses it as that does. Nothing is
/// started. What a lock accepts is no part of it: that is looked at whenever something is started, listed or called.
pub(crate) fn is_judged_alike(
    config: &ServerConfig,
    [one, other]: [&Policy; 2],
    environment: &BTreeMap<String, String>,
) -> bool {
    let Transport::Stdio(stdio) = &config.transport else { return one.reaches_like(other, config) };
    let found = find(&stdio.command, environment.get("PATH").map(String::as_str));
    one.launches_like(other, &request((config, stdio), (found.as_deref(), None), environment))
}

/// What a confined program is let into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetIn {
    /// The program.
    pub program: PathBuf,
    /// What it may read, the system's own folders included.
    pub read: Vec<PathBuf>,
    /// What it may change.
    pub write: Vec<PathBuf>,
    /// The profile that says so, with its limits and domains.
    pub profile: Profile,
    /// What a person should know.
    pub warnings: Vec<String>,
}

/// Tells what a server's program would be let into. `None`: it is not confined, or is no program. Nothing is started.
///
/// # Errors
/// If it may not be started, or cannot be confined as its profile says.
pub fn let_in(
    config: &ServerConfig,
    policy: &Policy,
    environment: &BTreeMap<String, String>,
    sandbox: &Sandbox,
) -> Result<Option<LetIn>> {
    let Transport::Stdio(stdio) = &config.transport else { return Ok(None) };
    let permit = permit(config, stdio, policy, environment)?;
    let Confinement::Within(profile) = permit.confinement() else { return Ok(None) };
    // Where it would be let out to is no question of files.
    let files = Profile { domains: Vec::new(), ..Profile::clone(profile) };
    let plan = sandbox.plan(&permit, &files, None);
    let plan = plan.map_err(|(reason, hint)| Error::Sandbox { server: config.name.clone(), reason, hint })?;
    let (read, write) = plan.places();
    let program = permit.program().to_path_buf();
    Ok(Some(LetIn { program, read, write, profile: Profile::clone(profile), warnings: plan.warnings }))
}

/// The program that a configuration would start, and its SHA-256 in hexadecimal. `None` for a server that is no program,
/// and where the program is not found or cannot be read.
pub async fn program_of(
    config: &ServerConfig,
    environment: &BTreeMap<String, String>,
) -> Option<(PathBuf, String)> {
    let Transport::Stdio(stdio) = &config.transport else { return None };
    let found = find(&stdio.command, environment.get("PATH").map(String::as_str))?;
    let hash = hash(&found).await?;
    Some((found, hash))
}

/// The SHA-256 of a program, on a thread that may wait for a disk.
pub(super) async fn hash(program: &Path) -> Option<String> {
    let program = program.to_owned();
    tokio::task::spawn_blocking(move || sha256(&program).ok()).await.ok().flatten()
}

/// A program is hashed again only if something about its file changed.
fn sha256(program: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut file = std::fs::File::open(program)?;
    let facts = file.metadata()?;
    let stamp = (facts.dev(), facts.ino(), facts.len(), facts.mtime(), facts.mtime_nsec());
    let key = (stamp, facts.ctime(), facts.ctime_nsec());
    let mut known = HASHES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(hash) = known.get(&key) {
        return Ok(hash.clone());
    }
    let (mut hash, mut piece) = (Context::new(&SHA256), vec![0; 256 * 1024]);
    loop {
        match file.read(&mut piece)? {
            0 => break,
            read => hash.update(&piece[..read]),
        }
    }
    let hash = hex(hash.finish().as_ref());
    known.insert(key, hash.clone());
    Ok(hash)
}

/// What tells a file from its successor: device and number, length, and both times.
type Stamp = ((u64, u64, u64, i64, i64), i64, i64);
/// What was hashed before.
static HASHES: Mutex<BTreeMap<Stamp, String>> = Mutex::new(BTreeMap::new());

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

/// What policy says of a program that is only looked at.
fn permit(
    config: &ServerConfig,
    stdio: &Stdio,
    policy: &Policy,
    environment: &BTreeMap<String, String>,
) -> Result<LaunchPermit> {
    let found = find(&stdio.command, environment.get("PATH").map(String::as_str));
    let locked = policy.is_locked(&config.name);
    let hash = found.as_deref().filter(|_| locked).and_then(|program| sha256(program).ok());
    policy.permit_launch(&request((config, stdio), (found.as_deref(), hash.as_deref()), environment))
}

/// What policy is asked before a program is started: what was found, with its SHA-256 where that matters.
pub(super) fn request<'a>(
    (config, stdio): (&'a ServerConfig, &'a Stdio),
    (program, program_hash): (Option<&'a Path>, Option<&'a str>),
    host_env: &'a BTreeMap<String, String>,
) -> LaunchRequest<'a> {
    let (server, origin, sandbox) = (&config.name, &config.origin, config.sandbox.as_ref());
    LaunchRequest { server, stdio, origin, program, sandbox, program_hash, host_env }
}
