//! What holds on this machine, found out by trying.
//!
//! In: a sandbox. Out: its [`Abilities`], for a person who wants to know before a server fails. The trial is a whole
//! confined start, with every step that a server's has.

use std::fmt;
use std::io::Write as _;
use std::process::{Command, Stdio};

use super::plan::Plan;
use super::{Engine, Sandbox};
use crate::text::Escaped;

/// What holds on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// What carries out the plan: `bubblewrap 0.8.0`, `own`, or `none`.
    pub engine: String,
    /// Why no program can be confined; `None` if one was.
    pub obstacle: Option<String>,
    /// The version of Landlock's interface that this kernel has.
    pub landlock: Option<i32>,
    /// What bounds memory and processes.
    pub limits: String,
}

impl Sandbox {
    /// Tries to confine something, and tells what holds.
    pub fn abilities(&self) -> Abilities {
        let tried = self.attempt();
        Abilities {
            engine: self.engine.to_string(),
            landlock: tried.as_ref().ok().and_then(|told| told.trim().parse().ok()),
            obstacle: tried.err(),
            limits: self.hierarchies.describe(),
        }
    }

    /// Gives what the stage said of Landlock, from inside.
    #[expect(clippy::disallowed_methods, reason = "the stage in its sandbox, and nothing of a server's")]
    fn attempt(&self) -> Result<String, String> {
        if let Engine::None(why) = &self.engine {
            return Err(why.clone());
        }
        let plan = Plan::trial(self)?;
        let confined = self.confine(&plan).map_err(|e| e.to_string())?;
        let mut command = Command::new(&confined.program);
        command.args(&confined.args).env_clear().current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().map_err(|e| format!("{} cannot be started: {e}", confined.program.display()))?;
        drop(confined.files);
        let _group = confined.group;
        if let Some(mut stdin) = child.stdin.take() {
            // What it says when it ends tells more than a broken pipe.
            let _ = stdin.write_all(&confined.preamble);
        }
        let ended = child.wait_with_output().map_err(|e| e.to_string())?;
        if ended.status.success() {
            return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&ended.stderr);
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it ended without a word");
        Err(Escaped(last).to_string())
    }
}

// === impl Engine ===

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bubblewrap(path) => write!(f, "bubblewrap ({})", path.display()),
            Self::Own => f.write_str("own namespaces"),
            Self::None(_) => f.write_str("none"),
        }
    }
}
