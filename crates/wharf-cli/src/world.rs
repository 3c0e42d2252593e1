//! The world outside: environment, folders, terminals.
//!
//! In: nothing. Out: a [`World`] that is handed to everything else. No other file of the command looks for itself, so
//! that what a command sees can be told from its call.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use etcetera::BaseStrategy as _;

/// What the command found when it started.
#[derive(Debug)]
pub(crate) struct World {
    /// The environment, as far as it is text.
    pub(crate) env: BTreeMap<String, String>,
    /// The folder the command was typed in.
    pub(crate) cwd: PathBuf,
    /// This program.
    pub(crate) exe: PathBuf,
    /// The user's own folders. `None` where there is no home.
    pub(crate) own: Option<OwnFiles>,
    /// Which of the three streams are a terminal.
    pub(crate) terminals: Terminals,
    /// How many characters fit on a line of the terminal.
    pub(crate) width: u16,
}

/// The user's own files. They need not exist.
#[derive(Clone, Debug)]
pub(crate) struct OwnFiles {
    /// The home folder.
    pub(crate) home: PathBuf,
    /// `wharf.toml`.
    pub(crate) config: PathBuf,
    /// The keys of callers.
    pub(crate) keys: PathBuf,
    /// Which project files are trusted.
    pub(crate) trust: PathBuf,
    /// What is known of servers' eras.
    pub(crate) eras: PathBuf,
    /// What servers were last seen to offer: a folder.
    pub(crate) catalogues: PathBuf,
    /// What was decided and done, and what waits for an answer.
    pub(crate) store: PathBuf,
    /// What was typed at the prompt of `wharf repl`.
    pub(crate) history: PathBuf,
}

/// Which streams are a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminals {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
}

/// A terminal that says it is narrower does not know: pseudo terminals start with no width at all.
const NARROWEST: u16 = 20;
/// Used where the terminal does not tell its width.
const USUAL_WIDTH: u16 = 100;

// === impl World ===

impl World {
    /// Looks around.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that looks")]
    pub(crate) fn look() -> std::io::Result<Self> {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Ok(Self {
            env: std::env::vars_os().filter_map(text).collect(),
            cwd: std::env::current_dir()?,
            exe: std::env::current_exe()?,
            own: OwnFiles::find(),
            terminals: Terminals {
                stdin: std::io::stdin().is_terminal(),
                stdout: std::io::stdout().is_terminal(),
                stderr: std::io::stderr().is_terminal(),
            },
            width: comfy_table::Table::new()
                .width()
                .filter(|width| *width >= NARROWEST)
                .unwrap_or(USUAL_WIDTH),
        })
    }

    /// Whether a person can be asked something.
    pub(crate) fn can_ask(&self) -> bool {
        self.terminals.stdin && self.terminals.stderr
    }

    /// A path as a person reads it: with `~` for the home folder, and safe to show.
    pub(crate) fn show(&self, path: &std::path::Path) -> String {
        let short = self.own.as_ref().and_then(|own| path.strip_prefix(&own.home).ok());
        let text = match short {
            Some(rest) => format!("~/{}", rest.display()),
            None => path.display().to_string(),
        };
        wharf::text::Escaped(&text).to_string()
    }

    /// A path as it can be typed at a shell: quoted where it must be.
    pub(crate) fn typed(&self, path: &std::path::Path) -> String {
        let shown = self.show(path);
        let is_plain = |c: char| c.is_alphanumeric() || "/._-~+".contains(c);
        if shown.chars().all(is_plain) {
            return shown;
        }
        let text = wharf::text::Escaped(&path.display().to_string()).to_string();
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

// === impl OwnFiles ===

impl OwnFiles {
    fn find() -> Option<Self> {
        let folders = etcetera::base_strategy::Xdg::new().ok()?;
        let state = folders.state_dir().unwrap_or_else(|| folders.data_dir());
        Some(Self {
            home: folders.home_dir().to_path_buf(),
            config: folders.config_dir().join("wharf/wharf.toml"),
            keys: folders.config_dir().join("wharf/keys.json"),
            trust: state.join("wharf/trusted.json"),
            eras: folders.cache_dir().join("wharf/eras.json"),
            catalogues: folders.cache_dir().join("wharf/catalogue"),
            store: state.join("wharf/wharf.db"),
            history: state.join("wharf/history"),
        })
    }
}
