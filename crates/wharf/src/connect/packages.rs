//! In: a permit for a launcher that would fetch a package and run it. Out: a permit for the package itself, in our cache;
//! it was fetched there first if it was not there. Fetching is bounded in time and size, ends whole or not at all, and
//! two that fetch the same do not get in each other's way. What is fetched and how is for `sandbox` to say.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use tokio::io::{copy, sink};

use super::berth::Dock;
use super::monitor::Monitor;
use super::stdio::{Started, Unstarted, Yard};
use super::{program, stdio};
use crate::error::{Error, Result, StderrTail};
use crate::event::Event;
use crate::names::ServerName;
use crate::policy::{Confinement, LaunchPermit};
use crate::sandbox::packages::{Fetched, PackageOptions, PackageSpec, Step, Tool};
use crate::secret::{Redactor, Secret, is_credential_name};
use crate::text::{Escaped, Foreign};

/// A package that is being fetched.
struct Fetching<'a> {
    dock: &'a Dock,
    permit: &'a LaunchPermit,
    spec: &'a PackageSpec,
    options: &'a PackageOptions,
    env: Vec<(String, Secret)>,
    folder: Unfinished,
}

/// A folder that goes, unless it is finished and moved to its place.
#[derive(Debug)]
struct Unfinished(PathBuf);

/// What the folders are called in which something is being fetched.
const UNFINISHED: &str = "wharf-fetch-";
/// One that is older was left by a program that was killed.
const STALE: Duration = Duration::from_secs(3600);
/// How often the size is looked at.
const GLANCE: Duration = Duration::from_secs(1);
/// A package has no more files.
const MAX_FILES: u64 = 500_000;

// === impl Dock ===

impl Dock {
    /// Makes of a launcher's permit one for the package, fetched if need be. Any other is given back, and so is one for a
    /// program that is not confined: it fetches by itself.
    pub(super) async fn provide(&self, permit: LaunchPermit) -> Result<LaunchPermit> {
        let (Some(options), Confinement::Within(_)) = (&self.packages, permit.confinement()) else {
            return Ok(permit);
        };
        let server = permit.server().clone();
        let spec = PackageSpec::read(permit.program(), permit.args()).map_err(|reason| Error::Config {
            message: format!("server `{server}`: its package cannot be fetched by itself: {reason}"),
            hint: Some(
                "write its command like `npx NAME@1.2.3` or `uvx NAME==1.2.3`; or install it, and run that"
                    .into(),
            ),
        })?;
        let Some(spec) = spec else { return Ok(permit) };
        let fetched = match spec.find(options) {
            Some(fetched) => fetched,
            None => self.fetch(&permit, &spec, options).await?,
        };
        self.policy.now().permit_packages(&server, || fetched.digest())?;
        let node = self.tool(permit.program(), "node");
        let (program, mut args) = fetched.command(node).ok_or_else(|| missing(&server, "node"))?;
        args.extend(spec.args.iter().map(Into::into));
        permit.into_fetched(&fetched.folder, program, args)
    }

    async fn fetch(
        &self,
        permit: &LaunchPermit,
        spec: &PackageSpec,
        options: &PackageOptions,
    ) -> Result<Fetched> {
        let (server, began) = (permit.server(), Instant::now());
        self.events.publish(|| Event::PackageWanted {
            server: server.clone(),
            package: Escaped(&spec.main().to_string()).to_string(),
        });
        let folder = Unfinished::new(options).map_err(|error| {
            Error::Internal(format!("packages cannot be kept in {}: {error}", options.cache.display()))
        })?;
        let env = PackageSpec::environment(&self.environment, &folder.0, options);
        let fetched = Fetching { dock: self, permit, spec, options, env, folder }.run().await?;
        let main = fetched.main();
        self.events.publish(|| Event::PackageFetched {
            server: server.clone(),
            package: Foreign::new(main.name.as_str()),
            version: Foreign::new(main.version.as_str()),
            integrity: main.integrity.iter().map(|hash| Foreign::new(hash.as_str())).collect(),
            others: fetched.resolved.len() - 1,
            took: began.elapsed(),
        });
        Ok(fetched)
    }

    /// A program that belongs to a launcher: beside it, or else where all are found.
    fn tool(&self, launcher: &Path, name: &str) -> Option<PathBuf> {
        let beside = launcher.parent().and_then(|folder| program::find(folder.join(name).to_str()?, None));
        beside.or_else(|| program::find(name, self.environment.get("PATH").map(String::as_str)))
    }
}

// === impl Fetching ===

impl Fetching<'_> {
    async fn run(self) -> Result<Fetched> {
        let package = Escaped(&self.spec.main().to_string()).to_string();
        let server = self.permit.server();
        let PackageOptions { time, size, .. } = *self.options;
        let steps = self.spec.steps(&self.folder.0, self.options);
        let steps =
            steps.map_err(|error| Error::Internal(format!("package `{package}` cannot be kept: {error}")))?;
        let fetching = async {
            for step in steps {
                self.step(step).await?;
            }
            Ok::<_, Error>(())
        };
        tokio::select! {
            fetched = fetching => fetched?,
            () = tokio::time::sleep(time) => {
                let reason = format!("fetching package `{package}` took longer than {} s", time.as_secs());
                return Err(Error::Connection {
                    server: server.clone(), transport: "stdio", reason, stderr: StderrTail::default(), retryable: true,
                });
            }
            () = outgrown(&self.folder.0, size) => return Err(self.too_large()),
        }
        if size_of(&self.folder.0).await > size {
            return Err(self.too_large());
        }
        let place = self.options.cache.join(self.spec.folder_name(self.options));
        let (spec, folder) = (self.spec.clone(), self.folder);
        let finished = tokio::task::spawn_blocking(move || folder.finish(&spec, &place)).await;
        let finished = finished.map_err(|error| Error::Internal(error.to_string()))?;
        let unusable = |reason: String| Error::Config {
            message: format!("server `{server}`: package `{package}` cannot be run: {reason}"),
            hint: Some("look at its name and version, and at the command that it is to run".into()),
        };
        finished.map_err(unusable)?;
        self.spec
            .find(self.options)
            .ok_or_else(|| Error::Internal(format!("package `{package}` is gone again")))
    }

    /// Runs one command to its end.
    async fn step(&self, step: Step) -> Result<()> {
        let server = self.permit.server();
        let tool = match step.tool {
            Tool::Named(name) => {
                self.dock.tool(self.permit.program(), &name).ok_or_else(|| missing(server, &name))?
            }
            Tool::At(path) => path,
        };
        let cwd = self.folder.0.clone();
        let permit = self.permit.to_fetch(tool, step.args, self.env.clone(), cwd)?;
        let yard = Yard {
            scratch: self.dock.scratch.clone(),
            grace: self.dock.grace,
            leaving: self.dock.leaving.clone(),
            trail: self.dock.trail.clone(),
            sandbox: None,
            way_out: None,
        };
        let monitor = Monitor { events: self.dock.events.clone(), debug: false, redactor: self.redactor() };
        let started = stdio::start(permit, yard, monitor).await;
        let Started { child, stdin, mut stdout, .. } = started.map_err(|unstarted| match unstarted {
            Unstarted::Unconfined { reason, .. } | Unstarted::Failed(reason) => Error::Internal(reason),
        })?;
        drop(stdin);
        let mut ending = child.ending();
        let drain = async {
            let _ = copy(&mut stdout, &mut sink()).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = drain => {}
            () = ending.exited() => {}
        }
        let status = ending.wait().await;
        child.stop().await;
        if status.contains("exit status 0)") {
            return Ok(());
        }
        Err(self.spec.failure(server, &status, child.stderr()))
    }

    fn too_large(&self) -> Error {
        let package = self.spec.main().to_string();
        Error::Config {
            message: format!(
                "server `{}`: package `{}` is larger than {} MiB",
                self.permit.server(),
                Escaped(&package),
                self.options.size >> 20
            ),
            hint: Some("install it yourself, and run that".into()),
        }
    }

    /// Erases what the package manager was told in confidence.
    fn redactor(&self) -> Redactor {
        let secret = |name: &str, value: &str| {
            is_credential_name(name) || (value.contains("://") && value.contains('@'))
        };
        let told = self.env.iter().filter(|(name, value)| secret(name, value.expose()));
        Redactor::new(told.map(|(_, value)| value.clone()))
    }
}

// === impl Unfinished ===

impl Unfinished {
    fn new(options: &PackageOptions) -> std::io::Result<Self> {
        let cache = &options.cache;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(cache)?;
        sweep(cache, STALE.max(options.time * 2));
        let folder = cache.canonicalize()?.join(format!("{UNFINISHED}{:016x}", fastrand::u64(..)));
        std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Self(folder))
    }

    /// Writes down what is in it and moves it to its place. Where another was faster, theirs stays.
    fn finish(self, spec: &PackageSpec, place: &Path) -> Result<(), String> {
        let failed = |error: std::io::Error| error.to_string();
        Fetched::settle(spec, &self.0)?;
        PackageSpec::tidy_up(&self.0).map_err(failed)?;
        if std::fs::rename(&self.0, place).is_ok() || Fetched::load(place).is_some() {
            return Ok(());
        }
        // What stands there is of no use any more.
        let aside = Self(self.0.with_extension("old"));
        std::fs::rename(place, &aside.0).map_err(failed)?;
        std::fs::rename(&self.0, place).map_err(failed)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Once it is in its place there is nothing here any more; what cannot be removed is swept up another day.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Removes what programs left that were killed while they fetched.
fn sweep(cache: &Path, patience: Duration) {
    let Ok(entries) = std::fs::read_dir(cache) else { return };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(UNFINISHED));
        let made = entry.metadata().and_then(|meta| meta.modified()).ok();
        let age = made.and_then(|made| SystemTime::now().duration_since(made).ok());
        if ours && age.is_some_and(|age| age > patience) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Waits until a folder has become larger than it may.
async fn outgrown(folder: &Path, most: u64) {
    loop {
        tokio::time::sleep(GLANCE).await;
        if size_of(folder).await > most {
            return;
        }
    }
}

/// The bytes in a folder. One with too many files is as large as can be.
async fn size_of(folder: &Path) -> u64 {
    let folder = folder.to_path_buf();
    let measured = tokio::task::spawn_blocking(move || {
        let (mut bytes, mut files) = (0, 0);
        measure(&folder, &mut bytes, &mut files);
        if files > MAX_FILES { u64::MAX } else { bytes }
    });
    measured.await.unwrap_or(u64::MAX)
}

/// How much is in a folder; links are not followed.
fn measure(folder: &Path, bytes: &mut u64, files: &mut u64) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let Ok(meta) = entry.metadata() else { continue };
        *files += 1;
        if meta.is_dir() {
            measure(&entry.path(), bytes, files);
        } else {
            *bytes += meta.len();
        }
    }
}

fn missing(server: &ServerName, tool: &str) -> Error {
    let from = match tool {
        "npm" | "node" => "it comes with Node.js (nodejs.org)",
        "uv" => "it comes with uv (docs.astral.sh/uv)",
        _ => "install Python (python.org)",
    };
    Error::Config {
        message: format!("server `{server}`: `{tool}` was not found, which its package needs"),
        hint: Some(from.into()),
    }
}
