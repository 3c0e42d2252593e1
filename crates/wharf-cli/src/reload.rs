//! Edits of the configuration files, applied to a host that runs and to the gateway before it.
//!
//! In: the configuration as it was, and its files. Out: a host whose servers are those of the files as they are now, callers
//! who are received as the files say, and a line that says what changed, what is wrong, or what needs a restart. A bad edit changes nothing; a file that is not trusted any more has no
//! say any more. Files are looked at twice a second: that works on every file system.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{IsTerminal as _, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use url::Url;
use wharf::config::{Origin, PackageSettings, Problem, ServerConfig, TelemetrySettings};
use wharf::gateway::Gateway;
use wharf::host::Changes;
use wharf::names::ServerName;

use crate::app::{App, OpenHost, Setup};
use crate::commands::serve::warn_of_strangers;
use crate::failure::{Failure, Result};
use crate::reception::Reception;

/// What the files looked like.
#[derive(Debug)]
struct Watch {
    files: Vec<PathBuf>,
    /// At the last look.
    looked: Vec<Option<Stamp>>,
    /// When they were last read.
    read: Vec<Option<Stamp>>,
    /// What was in them then.
    contents: Vec<u64>,
}

/// A thread that looks at the files, until this is dropped. A file system that keeps it waiting keeps no call waiting, and
/// what does not change wakes nobody.
#[derive(Debug)]
struct Looks {
    /// Rung after an edit.
    edited: Arc<Notify>,
    /// Says that the files are being read, as they are.
    remember: mpsc::Sender<()>,
}

/// Wishes to read the files again, where there are signals.
pub(crate) type Hangups = Option<Signal>;

/// What changes when a file does: device and number, length, and both times.
type Stamp = (u64, u64, u64, i64, i64, i64, i64);

/// What a gateway that runs cannot change any more: where it is, where its record is, and what was made at its start.
#[derive(Debug, PartialEq)]
struct Fixed {
    url: Option<Url>,
    audit: (Option<PathBuf>, bool),
    telemetry: TelemetrySettings,
    packages: PackageSettings,
}

/// Why files are read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// To be sure; nobody wants to hear that nothing changed.
    Start,
    /// Somebody edited them, or said so.
    Asked,
}

/// How often files are looked at. An edit counts when two looks saw the same, so that none is read half written.
const LOOK: Duration = Duration::from_millis(500);
/// How much of a file tells whether it changed; longer ones are no configuration.
const READ: u64 = 16 * 1024 * 1024;

/// Hears such wishes from now on: before that, one ends the program.
pub(crate) fn hangups() -> Hangups {
    signal(SignalKind::hangup()).ok()
}

/// Applies every edit, until the terminal that this was started from is gone.
pub(crate) async fn follow(
    app: &App,
    open: &OpenHost,
    (gateway, mut reception): (&Gateway, Reception),
    mut setup: Setup,
    mut hangups: Hangups,
) {
    let files = app.files(&setup).into_iter().chain(reception.file()).collect();
    let running = Fixed::of(&setup);
    let looks = Looks::begin(Watch::new(files)).map_err(|error| {
        let hint = "tell it of an edit with SIGHUP";
        app.ui.warn(format_args!("edits of the configuration are not seen by themselves: {error}; {hint}"));
    });
    // Something may have been edited since the files were read.
    let mut why = Some(Why::Start);
    loop {
        if let Some(why) = why
            && let Err(failure) =
                reload(app, open, (gateway, &mut reception), (&running, &mut setup), why).await
        {
            app.ui.fail(&failure);
            app.ui.warn("the configuration stays as it was");
        }
        why = tokio::select! {
            () = edited(&looks) => Some(Why::Asked),
            () = next(&mut hangups) => {
                if has_lost_terminal(app) {
                    return;
                }
                looks.iter().for_each(Looks::remember);
                Some(Why::Asked)
            }
        };
    }
}

/// Waits for an edit, where somebody looks.
async fn edited(looks: &std::result::Result<Looks, ()>) {
    match looks {
        Ok(looks) => looks.edited.notified().await,
        Err(()) => std::future::pending().await,
    }
}

/// A signal, where there are any.
async fn next(signals: &mut Hangups) {
    let came = match signals {
        Some(signals) => signals.recv().await,
        None => None,
    };
    if came.is_none() {
        std::future::pending().await
    }
}

/// The same signal says that a terminal was closed, and that the configuration is to be read again.
fn has_lost_terminal(app: &App) -> bool {
    let were = app.world.terminals;
    (were.stdin && !std::io::stdin().is_terminal()) || (were.stderr && !std::io::stderr().is_terminal())
}

async fn reload(
    app: &App,
    open: &OpenHost,
    (gateway, reception): (&Gateway, &mut Reception),
    (running, setup): (&Fixed, &mut Setup),
    why: Why,
) -> Result<()> {
    let host = &open.host;
    let mut new = app.setup_again(setup)?;
    refuse_loss(setup, &new)?;
    let is_new = |problem: &&Problem| !setup.config.problems.iter().any(|known| is_alike(known, problem));
    let problems: Vec<Problem> = new.config.problems.iter().filter(is_new).cloned().collect();
    problems.iter().for_each(|problem| app.ui.trouble(problem));
    if problems.iter().any(|problem| problem.server.is_none()) {
        app.ui.warn("the configuration stays as it was");
        return Ok(());
    }
    keep_before(app, setup, &mut new);
    for file in new.config.pending.iter().filter(|file| !setup.config.pending.contains(file)) {
        let (message, hint) = crate::app::untrusted(app, file, None);
        app.ui.warn(format_args!("{message}; {hint}"));
    }
    let mut others = reception.follow(app, gateway, setup, &new)?;
    others.extend(keep(open, setup, &new));
    let servers: Vec<ServerConfig> =
        new.listed().filter(|s| s.enabled).map(|s| app.adjusted(s.clone())).collect();
    let same_rules = setup.config.policy == new.config.policy
        && setup.config.limits == new.config.limits
        && setup.config.flow == new.config.flow;
    let same_lock = setup.locks.lock == new.locks.lock;
    if !same_lock {
        open.accepted.replace(new.locks.entries.clone());
        host.relock(new.locks.lock.clone());
    }
    let changes = if same_rules {
        host.reconcile(servers).await?
    } else {
        host.reconcile_under(new.policy.clone(), new.config.limits.clone(), servers).await?
    };
    if !same_rules {
        others.insert(0, "other rules");
    }
    if !same_lock {
        others.push("another lockfile");
    }
    let fixed = Fixed::of(&new);
    let stays = if fixed == Fixed::of(setup) { Vec::new() } else { running.differs_in(&fixed) };
    if !stays.is_empty() {
        app.ui.warn(format_args!("needs a restart: {}", stays.join(", ")));
    }
    if (why == Why::Asked && stays.is_empty()) || !changes.is_empty() || !others.is_empty() {
        app.ui.note(told(&changes, &others));
    }
    let other_names = setup.config.callers != new.config.callers
        || setup.config.gateway.required != new.config.gateway.required;
    if other_names {
        warn_of_strangers(app, &new);
    }
    if new.locks.lock.is_none() && setup.locks.lock.is_some() {
        app.ui.warn("the lockfile is gone: servers are not held to anything any more");
    }
    *setup = new;
    Ok(())
}

/// Without the user's own file there would be other servers, and no rules for callers. Whoever takes it away may be about
/// to put another in its place; whoever means it can leave an empty one.
fn refuse_loss(before: &Setup, new: &Setup) -> Result<()> {
    match &before.config.user {
        Some(file) if new.config.user.is_none() => {
            let shown = wharf::text::Escaped(&file.display().to_string()).to_string();
            let hint = "put it back; to serve without it, leave an empty file there or start again";
            Err(Failure::general(format!("{shown}: there is no such file any more")).hint(hint))
        }
        _ => Ok(()),
    }
}

/// Keeps the record, and lets calls wait, as another configuration says. Gives what is other than before.
fn keep(open: &OpenHost, before: &Setup, new: &Setup) -> Vec<&'static str> {
    let mut others = Vec::new();
    if let Some(audit) = open.audit.as_ref().filter(|_| before.audit_options() != new.audit_options()) {
        audit.replace(new.audit_options());
        others.push("another way to keep the audit log");
    }
    let approvals = open.approvals.as_ref();
    if let Some(approvals) = approvals.filter(|_| before.approval_options() != new.approval_options()) {
        approvals.replace(new.approval_options());
        others.push("other approvals");
    }
    others
}

/// A server whose new description is wrong stays as it was, if the wrong one stands where the good one stood.
fn keep_before(app: &App, before: &Setup, new: &mut Setup) {
    for problem in &new.config.problems {
        let name = problem.server.as_deref().and_then(|name| ServerName::parse(name).ok());
        let Some(known) = name.and_then(|name| before.config.servers.get(&name)) else { continue };
        let is_there = matches!(&known.origin, Origin::File { path, .. } if *path == problem.file);
        if is_there && !new.config.servers.contains_key(&known.name) {
            app.ui.warn(format_args!("server `{}` stays as it was", known.name));
            new.config.servers.insert(known.name.clone(), known.clone());
        }
    }
}

/// Whether it is the same problem, wherever in the file it stands now.
fn is_alike(one: &Problem, other: &Problem) -> bool {
    (&one.message, &one.file, &one.server) == (&other.message, &other.file, &other.server)
}

/// What changed, on one line.
fn told(changes: &Changes, others: &[&str]) -> String {
    let names = |what: &str, names: &[ServerName]| {
        let names: Vec<&str> = names.iter().map(ServerName::as_str).collect();
        (!names.is_empty()).then(|| format!("{what} {}", names.join(", ")))
    };
    let parts = [
        names("added", &changes.added),
        names("removed", &changes.removed),
        names("restarted", &changes.restarted),
        names("changed", &changes.changed),
    ];
    let others = others.iter().map(|&other| other.to_owned());
    let parts: Vec<String> = others.chain(parts.into_iter().flatten()).collect();
    match parts.is_empty() {
        true => "reloaded: nothing changed".into(),
        false => format!("reloaded: {}", parts.join("; ")),
    }
}

// === impl Fixed ===

impl Fixed {
    fn of(setup: &Setup) -> Self {
        let config = &setup.config;
        Self {
            url: config.gateway.url.clone(),
            audit: (config.audit.path.clone(), config.audit.off),
            telemetry: config.telemetry.clone(),
            packages: config.packages.clone(),
        }
    }

    /// What another configuration has otherwise.
    fn differs_in(&self, other: &Self) -> Vec<&'static str> {
        let parts = [
            (self.url != other.url, "`url` in `[gateway]`"),
            (self.audit != other.audit, "`path` and `off` in `[audit]`"),
            (self.telemetry != other.telemetry, "`[telemetry]`"),
            (self.packages != other.packages, "`[packages]`"),
        ];
        parts.into_iter().filter(|(differs, _)| *differs).map(|(_, what)| what).collect()
    }
}

// === impl Looks ===

impl Looks {
    fn begin(mut watch: Watch) -> std::io::Result<Self> {
        let (remember, remembered) = mpsc::channel();
        let edited = Arc::<Notify>::default();
        let bell = Arc::clone(&edited);
        let looking = move || {
            loop {
                match remembered.recv_timeout(LOOK) {
                    Ok(()) => watch.remember(),
                    Err(RecvTimeoutError::Timeout) if watch.has_changed() => bell.notify_one(),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        std::thread::Builder::new().name("wharf-looks".into()).spawn(looking)?;
        Ok(Self { edited, remember })
    }

    fn remember(&self) {
        // It looks as long as this is there.
        let _ = self.remember.send(());
    }
}

// === impl Watch ===

impl Watch {
    fn new(files: Vec<PathBuf>) -> Self {
        let mut watch = Self { files, looked: Vec::new(), read: Vec::new(), contents: Vec::new() };
        watch.remember();
        watch
    }

    /// As they are now, they are known.
    fn remember(&mut self) {
        self.looked = self.stamps();
        self.read.clone_from(&self.looked);
        self.contents = self.files.iter().map(|file| content(file)).collect();
    }

    /// Whether something else stands in the files than was last read, and whoever writes it is done.
    fn has_changed(&mut self) -> bool {
        let now = self.stamps();
        let settled = now == self.looked;
        self.looked = now;
        if !settled || self.looked == self.read {
            return false;
        }
        let before = std::mem::take(&mut self.contents);
        self.remember();
        self.contents != before
    }

    fn stamps(&self) -> Vec<Option<Stamp>> {
        let stamp = |file: &PathBuf| {
            let facts = fs::metadata(file).ok()?;
            let times = (facts.mtime(), facts.mtime_nsec(), facts.ctime(), facts.ctime_nsec());
            Some((facts.dev(), facts.ino(), facts.len(), times.0, times.1, times.2, times.3))
        };
        self.files.iter().map(stamp).collect()
    }
}

/// A number for what is in a file, and whether it is there.
fn content(path: &Path) -> u64 {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(READ).read_to_end(&mut bytes));
    let mode = fs::metadata(path).map(|facts| facts.mode()).ok();
    let mut hasher = DefaultHasher::new();
    // Who may write a file decides whether it has a say.
    (read.is_ok(), mode, bytes).hash(&mut hasher);
    hasher.finish()
}
