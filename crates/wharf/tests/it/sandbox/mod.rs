//! The sandbox: what a server cannot do in it, and what it still can.
//!
//! The hosts of these tests run in a process of their own (`examples/cell.rs`), so that each case is tried by every engine,
//! and as root and as a user without privileges where the tests themselves run as root. The server is
//! `tests/it/sandbox/prisoner.py`, which does what it is told. A case that cannot be tried fails.

mod apart;
mod calls;
mod engine;
mod files;
mod life;
mod limits;
mod network;
mod profile;

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};
use tempfile::TempDir;
use wharf_testkit::example_path;

/// A place with a home, a project and a script, for one user.
pub(crate) struct Prison {
    folder: TempDir,
    /// What carries out the plan; none is what is found.
    engine: Option<&'static str>,
    /// The user to be, if not who runs the tests.
    user: Option<u32>,
    /// What the host is started by, if not by itself.
    starter: Vec<&'static str>,
}

/// What a host in its own process told.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) steps: Vec<String>,
    pub(crate) warnings: Vec<String>,
    pub(crate) unstarted: Vec<String>,
}

const NOBODY: u32 = 65534;

/// Tries something with every engine, as every user.
pub(crate) fn everywhere(attempt: impl Fn(&Prison)) {
    for engine in [None, Some("own")] {
        for user in users() {
            let prison = Prison::new(engine, user);
            attempt(&prison);
        }
    }
}

fn users() -> Vec<Option<u32>> {
    if rustix::process::geteuid().is_root() { vec![None, Some(NOBODY)] } else { vec![None] }
}

// === impl Prison ===

impl Prison {
    pub(crate) fn new(engine: Option<&'static str>, user: Option<u32>) -> Self {
        if engine.is_none() {
            assert!(Path::new("/usr/bin/bwrap").exists(), "bubblewrap is missing: run ./check");
        }
        let prison = Self { folder: tempfile::tempdir().unwrap(), engine, user, starter: Vec::new() };
        for folder in ["home/.ssh", "home/.aws", "home/.config/wharf", "project", "data/inner", "other"] {
            std::fs::create_dir_all(prison.at(folder)).unwrap();
        }
        let files = [
            ("home/.ssh/id", "a private key"),
            ("home/.aws/credentials", "a cloud key"),
            ("home/.config/wharf/wharf.toml", "# rules\n"),
            ("data/note", "the tide is high"),
            ("other/note", "not for you"),
            ("project/prisoner.py", include_str!("prisoner.py")),
        ];
        for (file, text) in files {
            std::fs::write(prison.at(file), text).unwrap();
        }
        prison.give(prison.folder.path());
        std::fs::set_permissions(prison.folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        prison
    }

    /// Makes everything in a folder the user's own.
    fn give(&self, folder: &Path) {
        let Some(user) = self.user else { return };
        std::os::unix::fs::chown(folder, Some(user), Some(user)).unwrap();
        for entry in folder.read_dir().unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                self.give(&entry.path());
            } else {
                std::os::unix::fs::lchown(entry.path(), Some(user), Some(user)).unwrap();
            }
        }
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(path)
    }

    pub(crate) fn path(&self, path: &str) -> String {
        self.at(path).display().to_string()
    }

    /// The prisoner with this profile.
    pub(crate) fn server(&self, sandbox: Value) -> Value {
        json!({ "name": "cell", "command": "python3", "args": [self.at("project/prisoner.py")], "sandbox": sandbox })
    }

    /// Lets the prisoner, with this profile, do each of these.
    pub(crate) fn run(&self, sandbox: Value, codes: &[&str]) -> Told {
        let steps: Vec<Value> = codes.iter().map(|code| json!({ "server": "cell", "code": code })).collect();
        self.order(&json!({ "servers": [self.server(sandbox)], "steps": steps }))
    }

    /// The same without a sandbox: what is refused must be refused by it, and by nothing else.
    pub(crate) fn free(&self, codes: &[&str]) -> Told {
        self.run(json!(false), codes)
    }

    pub(crate) fn order(&self, order: &Value) -> Told {
        let mut order = order.clone();
        order["home"] = json!(self.at("home"));
        let protect = [self.at("home/.config/wharf"), self.at("home/.local/state/wharf")];
        order["protect"] = json!(protect);
        if order["engine"].is_null() {
            order["engine"] = json!(self.engine);
        }
        let mut command = self.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(order.to_string().as_bytes()).unwrap();
        let ended = child.wait_with_output().unwrap();
        let out = String::from_utf8_lossy(&ended.stdout);
        let told: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {ended:?}"));
        let texts = |key: &str| -> Vec<String> { serde_json::from_value(told[key].clone()).unwrap() };
        Told { steps: texts("steps"), warnings: texts("warnings"), unstarted: texts("unstarted") }
    }

    /// The host's own process, as the user that it is to be.
    pub(crate) fn command(&self) -> Command {
        let mut command = match (self.user, &self.starter[..]) {
            (Some(user), _) => {
                let mut command = Command::new("setpriv");
                command.args([format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".into()]);
                command.arg(cell());
                command
            }
            (None, [starter, args @ ..]) => {
                let mut command = Command::new(starter);
                command.args(args).arg(cell());
                command
            }
            (None, []) => Command::new(cell()),
        };
        command.env_clear().env("PATH", "/usr/bin:/bin").env("TMPDIR", self.at("home")).current_dir("/");
        command
    }
}

/// The host program, where every user can get at it: as it was built, or a copy.
fn cell() -> &'static Path {
    static CELL: OnceLock<PathBuf> = OnceLock::new();
    CELL.get_or_init(|| {
        let built = example_path("cell");
        let is_open = |above: &Path| above.metadata().unwrap().permissions().mode() & 0o1 != 0;
        if built.ancestors().skip(1).all(is_open) {
            return built;
        }
        // One for each build, so that it is copied once.
        let made = built.metadata().unwrap().modified().unwrap();
        let made = made.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
        let copy = std::env::temp_dir().join(format!("wharf-test-cell-{made}"));
        let fresh = copy.with_extension(std::process::id().to_string());
        if !copy.exists() {
            std::fs::copy(&built, &fresh).unwrap();
            std::fs::rename(&fresh, &copy).unwrap();
        }
        copy
    })
}

// === impl Told ===

impl Told {
    /// All of them worked.
    #[track_caller]
    pub(crate) fn works(&self) -> &Self {
        assert!(self.unstarted.is_empty(), "{self:#?}");
        assert!(self.steps.iter().all(|step| step.starts_with("ok: ")), "{self:#?}");
        self
    }

    /// None of them worked, and each with one of these words.
    #[track_caller]
    pub(crate) fn fails(&self, words: &[&str]) -> &Self {
        assert!(self.unstarted.is_empty(), "{self:#?}");
        for step in &self.steps {
            assert!(
                step.starts_with("error: ") && words.iter().any(|w| step.contains(w)),
                "{step}\n{self:#?}"
            );
        }
        self
    }
}
