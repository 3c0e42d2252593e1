//! A server's program runs where it can do little harm: its own file system with what it needs of ours, its own
//! processes, no network but through us, no privileges, and bounds on what it may use.
//!
//! In: a permit with its profile. Out: the command line that starts the program confined, and what is told to the first
//! program inside, the *stage*. Two engines carry out the same plan: bubblewrap where it is found in a trusted place,
//! otherwise our own. Nothing is started here but by the stage, which runs inside.

mod bwrap;
mod cgroup;
mod clue;
pub mod egress;
mod grants;
mod install;
mod learn;
pub mod packages;
mod plan;
mod secrets;
mod stage;
mod system;
mod trial;

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

pub use crate::config::Profile;
use crate::names::ServerName;
use crate::policy::LaunchPermit;
pub(crate) use cgroup::Cgroup;
use cgroup::Hierarchies;
pub(crate) use clue::Clue;
pub use learn::Learnt;
pub(crate) use plan::Plan;
pub use stage::stage;
pub use trial::Abilities;

/// The first argument of a program that is to be the stage: see [`stage`].
pub const STAGE: &str = "__sandbox-stage";

/// How programs are confined on this machine.
#[derive(Clone, Debug)]
pub struct Sandbox {
    /// The program whose `main` calls [`stage`].
    stage: PathBuf,
    home: Option<PathBuf>,
    protected: Vec<PathBuf>,
    engine: Engine,
    hierarchies: Hierarchies,
    /// How programs are watched, if they are.
    watch: Option<learn::Watch>,
}

/// What carries out the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Engine {
    /// Bubblewrap, at this path.
    Bubblewrap(PathBuf),
    /// Our own: namespaces and Landlock.
    Own,
    /// None: no program can be confined, and so none starts that has to be.
    None(String),
}

/// The way out that a confined program is given: the socket of a proxy that listens for it alone, and as long as this lives.
#[derive(Clone, Debug)]
pub(crate) struct WayOut {
    pub(crate) socket: PathBuf,
    /// Whoever listens there.
    pub(crate) _keeper: std::sync::Arc<dyn std::fmt::Debug + Send + Sync>,
}

/// A confined start, ready to be made.
pub(crate) struct Confined {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
    /// What goes down its standard input before anything else.
    pub(crate) preamble: Vec<u8>,
    /// Open files that the command line speaks of; to be held until the program was started.
    pub(crate) files: Vec<OwnedFd>,
    /// What bounds it and everything it starts; to be held until all of that is gone.
    pub(crate) group: Option<Cgroup>,
}

// === impl Sandbox ===

impl Sandbox {
    /// A sandbox with this program as its stage: one whose `main` calls [`stage`] before anything else. The engine is what
    /// this machine has.
    pub fn new(stage: impl Into<PathBuf>) -> Self {
        Self {
            stage: stage.into(),
            home: None,
            protected: Vec::new(),
            engine: Engine::find(),
            hierarchies: Hierarchies::find(),
            watch: None,
        }
    }

    /// The user's home folder, which no program is let into. Defaults to `HOME` of the host's environment.
    #[must_use]
    pub fn home(mut self, home: impl Into<PathBuf>) -> Self {
        self.home = Some(home.into());
        self
    }

    /// Files and folders that hold the rules and secrets of Wharf itself: no program is let near them, whatever its
    /// profile says. Defaults to none.
    #[must_use]
    pub fn protect<P: Into<PathBuf>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        for path in paths {
            let path = path.into();
            self.protected.extend(grants::real(&path));
            self.protected.push(path);
        }
        self.protected.sort();
        self.protected.dedup();
        self
    }

    /// Uses this engine, whatever was found.
    #[must_use]
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = engine;
        self
    }

    /// Where it is noted which hosts programs ask for, if that is being learnt, and whether they are let through.
    pub(crate) fn watches_hosts(&self) -> Option<(std::sync::Arc<egress::Asked>, bool)> {
        self.watch.as_ref().map(learn::Watch::hosts)
    }

    pub(crate) fn has_home(&self) -> bool {
        self.home.is_some()
    }

    /// Plans the start of a program. The error says what of its profile cannot be done.
    pub(crate) fn plan(
        &self,
        permit: &LaunchPermit,
        profile: &Profile,
        way_out: Option<&WayOut>,
    ) -> Result<Plan, (String, String)> {
        if let Engine::None(why) = &self.engine {
            return Err((why.clone(), no_engine(permit.server())));
        }
        let hint = || format!("correct `sandbox` of server `{}`", permit.server());
        Plan::new(permit, profile, self, way_out.map(|way| way.socket.as_path())).map_err(|why| (why, hint()))
    }

    /// Makes a plan into a command line.
    pub(crate) fn confine(&self, plan: &Plan) -> io::Result<Confined> {
        let confined = match &self.engine {
            Engine::Bubblewrap(program) => bwrap::confine(program, plan)?,
            Engine::Own => self.enter(plan)?,
            Engine::None(why) => return Err(io::Error::other(why.clone())),
        };
        match self.hierarchies.make(&plan.job.limits)? {
            Some(group) => self.join(confined, group).map(|confined| self.watch(confined)),
            None => Ok(self.watch(confined)),
        }
    }

    /// The same, in a group that bounds it all.
    fn join(&self, confined: Confined, group: Cgroup) -> io::Result<Confined> {
        let mut args = [STAGE, stage::JOIN].map(OsString::from).to_vec();
        args.push(confined.program.into());
        args.extend(confined.args);
        let mut preamble = stage::message(&group.doors())?;
        preamble.extend(confined.preamble);
        Ok(Confined {
            program: self.stage.clone(),
            args,
            preamble,
            files: confined.files,
            group: Some(group),
        })
    }

    /// The command line of our own engine: the stage itself, outside.
    fn enter(&self, plan: &Plan) -> io::Result<Confined> {
        let role = plan.first_role().to_owned();
        let mut preamble = stage::message(&stage::Build { mounts: plan.mounts.clone(), role })?;
        preamble.extend(plan.messages(true)?);
        let args = [STAGE, stage::ENTER].map(OsString::from).to_vec();
        Ok(Confined { program: self.stage.clone(), args, preamble, files: Vec::new(), group: None })
    }

    /// The home folder by every name it has.
    fn homes(&self) -> impl Iterator<Item = PathBuf> {
        let home = self.home.clone();
        let real = home.as_deref().and_then(grants::real);
        home.into_iter().chain(real)
    }

    fn protected(&self) -> impl Iterator<Item = &Path> {
        self.protected.iter().map(PathBuf::as_path)
    }

    /// The private home folder is where the real one is: what a program was told about its paths stays true.
    fn inner_home(&self) -> PathBuf {
        const TAKEN: [&str; 8] = ["/usr", "/etc", "/bin", "/lib", "/proc", "/sys", "/dev", "/run"];
        let usual = |home: &&PathBuf| {
            home.is_absolute()
                && home.to_str().is_some()
                && home.components().count() > 1
                && !home.components().any(|part| matches!(part, std::path::Component::ParentDir))
                && !TAKEN.iter().any(|taken| home.starts_with(taken))
                && home.as_path() != Path::new("/tmp")
        };
        // By its real name: a link that leads to it may be among what is let in.
        let home = self.homes().last();
        home.as_ref().filter(usual).cloned().unwrap_or_else(|| "/home/server".into())
    }

    fn user(&self) -> (u32, u32) {
        (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
    }

    fn stage_program(&self) -> Result<PathBuf, String> {
        if self.stage.is_absolute() && self.stage.is_file() {
            return Ok(self.stage.clone());
        }
        Err(format!("the program that prepares the sandbox is not there: {}", self.stage.display()))
    }
}

/// Why nothing can be confined by a host that was given no sandbox, and what to do.
pub(crate) fn none_given() -> (String, String) {
    let hint = "give the host one with `Host::builder().sandbox(Sandbox::new(…))`, or let programs run unconfined with \
                `Policy::with_sandbox(false)`";
    ("this host has no sandbox".into(), hint.into())
}

fn no_engine(server: &ServerName) -> String {
    format!(
        "install bubblewrap (`apt install bubblewrap`, `dnf install bubblewrap`), or, if you trust the server with \
         everything that is yours, write `sandbox = false` for `{server}` in your own `wharf.toml`"
    )
}

// === impl Engine ===

impl Engine {
    /// What this machine has.
    pub fn find() -> Self {
        if !cfg!(target_os = "linux") {
            return Self::None("a sandbox is not available on this system, only on Linux".into());
        }
        bwrap::find().map_or(Self::Own, Self::Bubblewrap)
    }
}
