//! What a confined program will see: the plan that every engine carries out.
//!
//! In: a permit with its profile, and what the sandbox knows of this machine. Out: a [`Plan`]: what is mounted where, and
//! the job that is done inside. Nothing is started or mounted here.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::grants::{Access, Grants};
use super::{STAGE, Sandbox, install, stage, system};
use crate::config::Profile;
use crate::policy::LaunchPermit;

/// One thing that the program finds in its file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mount {
    /// A file or folder of the machine, read-only.
    Read { from: PathBuf, at: PathBuf },
    /// A file or folder of the machine that it may change.
    Write { from: PathBuf, at: PathBuf },
    /// A link, as the machine has it.
    Link { to: PathBuf, at: PathBuf },
    /// A private folder in memory, which goes with the program.
    Private { at: PathBuf, size: u64 },
    /// An empty folder in the place of one that is nobody's business.
    Nothing { at: PathBuf },
    /// A file that we wrote.
    Text { at: PathBuf, text: String },
}

/// What is done inside, by the stage and then by the program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cwd: PathBuf,
    pub(crate) limits: Limits,
    pub(crate) unix_sockets: bool,
    /// What it may change: everything else is held read-only a second time.
    pub(crate) writable: Vec<PathBuf>,
    /// Whether the second hold must be there: with our own engine it is not a luxury.
    pub(crate) needs_landlock: bool,
}

/// What the stage needs that keeps the way out open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Relay {
    /// The proxy's socket, as it is found inside.
    pub(crate) socket: PathBuf,
}

/// What one process may use.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Limits {
    pub(crate) memory: u64,
    pub(crate) processes: u64,
    pub(crate) open_files: u64,
    pub(crate) file_size: u64,
    pub(crate) cpu_seconds: Option<u64>,
}

/// Everything about one confined start.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) mounts: Vec<Mount>,
    pub(crate) job: Job,
    /// Only where there is somewhere to go.
    pub(crate) relay: Option<Relay>,
    /// What a person should know.
    pub(crate) warnings: Vec<String>,
}

/// Where the stage is found inside.
pub(crate) const STAGE_AT: &str = "/run/wharf/stage";
const PROXY_AT: &str = "/run/wharf/egress.sock";
/// The port of the sandbox's own loopback from which the way goes to the proxy. Nobody else is there to take it.
pub(crate) const PROXY_PORT: u16 = 3128;
const TEMP: &str = "/tmp";

// === impl Plan ===

impl Plan {
    /// A plan without a server: the stage tries whether everything holds.
    pub(super) fn trial(sandbox: &Sandbox) -> Result<Self, String> {
        let home = sandbox.inner_home();
        let profile = Profile::default();
        let mut grants = Grants::new(sandbox);
        system::grant(&mut grants);
        let mut mounts = vec![Mount::Private { at: home.clone(), size: profile.scratch }];
        mounts.extend(grants.settle()?.0);
        mounts.push(Mount::Read { from: sandbox.stage_program()?, at: STAGE_AT.into() });
        let job = Job {
            program: STAGE_AT.into(),
            args: vec![STAGE.into(), stage::TRIAL.into()],
            env: Vec::new(),
            cwd: home.clone(),
            limits: Limits::of(&profile),
            unix_sockets: false,
            writable: vec![home],
            needs_landlock: false,
        };
        Ok(Self { mounts, job, relay: None, warnings: Vec::new() })
    }

    /// Plans a start; `proxy` is the socket where the egress proxy listens for this server. The error is for the person
    /// who wrote the profile.
    pub(crate) fn new(
        permit: &LaunchPermit,
        profile: &Profile,
        sandbox: &Sandbox,
        proxy: Option<&Path>,
    ) -> Result<Self, String> {
        let home = sandbox.inner_home();
        let mut grants = Grants::new(sandbox);
        system::grant(&mut grants);
        let path = permit.env().iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.expose());
        install::grant(&mut grants, permit.program(), permit.args(), path);
        if let Some(cwd) = permit.cwd() {
            grants.offer(cwd, Access::Read, "the folder it starts in");
        }
        for path in &profile.read {
            grants.demand(path, Access::Read)?;
        }
        for path in &profile.write {
            grants.demand(path, Access::Write)?;
        }
        let mut mounts = vec![
            Mount::Private { at: TEMP.into(), size: profile.scratch },
            // Memory that processes share.
            Mount::Private { at: "/dev/shm".into(), size: profile.scratch },
            Mount::Private { at: home.clone(), size: profile.scratch },
        ];
        let (granted, warnings) = grants.settle()?;
        let writes = granted.iter().filter_map(|mount| match mount {
            Mount::Write { at, .. } => Some(at.clone()),
            _ => None,
        });
        let writable = [home.clone(), TEMP.into()].into_iter().chain(writes).collect();
        // Where a private folder is, there is no room for a link of the same name.
        let taken = |mount: &Mount| mounts.iter().any(|private| private.at() == mount.at());
        let granted: Vec<Mount> = granted
            .into_iter()
            .filter(|mount| !(matches!(mount, Mount::Link { .. }) && taken(mount)))
            .collect();
        mounts.extend(granted);
        mounts.extend(system::texts(&home, sandbox.user()));
        mounts.push(Mount::Read { from: sandbox.stage_program()?, at: STAGE_AT.into() });
        let relay = match proxy {
            Some(socket) => {
                mounts.push(Mount::Read { from: utf8(socket)?, at: PROXY_AT.into() });
                Some(Relay { socket: PROXY_AT.into() })
            }
            None if profile.domains.is_empty() => None,
            None => return Err("its profile names `domains`, and this host has no egress proxy".into()),
        };
        let cwd = permit.cwd().map_or_else(|| home.clone(), Path::to_path_buf);
        let job = Job {
            program: utf8(permit.program())?,
            args: permit.args().iter().map(|arg| arg.to_string_lossy().into_owned()).collect(),
            env: environment(permit, &home, relay.is_some().then_some(profile)),
            cwd: utf8(&cwd)?,
            limits: Limits::of(profile),
            unix_sockets: profile.unix_sockets,
            writable,
            needs_landlock: false,
        };
        Ok(Self { mounts, job, relay, warnings })
    }
}

impl Plan {
    /// What of the machine can be read inside, and what can be changed.
    pub(crate) fn places(&self) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let (mut read, mut write) = (Vec::new(), Vec::new());
        for mount in &self.mounts {
            match mount {
                Mount::Read { from, at } if from == at => read.push(at.clone()),
                Mount::Write { at, .. } => write.push(at.clone()),
                _ => {}
            }
        }
        (read, write)
    }

    /// Who is called first inside.
    pub(super) fn first_role(&self) -> &'static str {
        if self.relay.is_some() { stage::RELAY } else { stage::RUN }
    }

    /// What the stages inside are told, one after the other.
    pub(super) fn messages(&self, needs_landlock: bool) -> std::io::Result<Vec<u8>> {
        let mut messages = match &self.relay {
            Some(relay) => stage::message(relay)?,
            None => Vec::new(),
        };
        messages.extend(stage::message(&Job { needs_landlock, ..self.job.clone() })?);
        Ok(messages)
    }
}

/// A plan travels as text.
fn utf8(path: &Path) -> Result<PathBuf, String> {
    match path.to_str() {
        Some(_) => Ok(path.to_path_buf()),
        None => Err(format!("the path {} is not UTF-8", path.display())),
    }
}

/// The child's environment with the folders that are its own inside.
fn environment(permit: &LaunchPermit, home: &Path, way_out: Option<&Profile>) -> Vec<(String, String)> {
    const OWN: [&str; 4] = ["HOME", "TMPDIR", "TMP", "TEMP"];
    const PROXY: [&str; 6] =
        ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
    let kept = permit.env().iter().filter(|(name, _)| !OWN.contains(&name.as_str()));
    let mut env: Vec<_> = kept.map(|(name, value)| (name.clone(), value.expose().to_owned())).collect();
    env.push(("HOME".into(), home.display().to_string()));
    env.push(("TMPDIR".into(), TEMP.into()));
    if let Some(profile) = way_out {
        env.retain(|(name, _)| !PROXY.contains(&name.as_str()) && !name.eq_ignore_ascii_case("NO_PROXY"));
        let way = format!("http://127.0.0.1:{PROXY_PORT}");
        env.extend(PROXY.map(|name| (name.to_owned(), way.clone())));
        // Its own services are reached without us, except by a name that a rule has for those of the machine.
        let named =
            |own: &&str| profile.domains.iter().any(|rule| rule.trim_start_matches('[').starts_with(*own));
        let own: Vec<&str> =
            ["localhost", "127.0.0.1", "::1"].into_iter().filter(|own| !named(own)).collect();
        env.extend(["NO_PROXY", "no_proxy"].map(|name| (name.to_owned(), own.join(","))));
        // Node looks at the others only if it is told to.
        env.push(("NODE_USE_ENV_PROXY".into(), "1".into()));
    }
    env
}

// === impl Limits ===

impl Limits {
    fn of(profile: &Profile) -> Self {
        Self {
            memory: profile.memory,
            processes: profile.processes,
            open_files: profile.open_files,
            file_size: profile.file_size,
            cpu_seconds: profile.cpu_time.map(|time| time.as_secs().max(1)),
        }
    }
}

// === impl Mount ===

impl Mount {
    /// Where it is found inside.
    pub(crate) fn at(&self) -> &Path {
        match self {
            Self::Read { at, .. }
            | Self::Write { at, .. }
            | Self::Link { at, .. }
            | Self::Private { at, .. }
            | Self::Nothing { at }
            | Self::Text { at, .. } => at,
        }
    }
}
