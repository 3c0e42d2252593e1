//! The puppet: a scripted MCP server on standard input and output.
//!
//! In: a [`Script`] as one argument of JSON, or `--file PATH`. Out: a server that does what the script says, and is
//! honest about everything that the script does not mention. HTTP is in `http`.

mod hands;
mod honest;
mod script;
mod stage;

use std::cell::OnceCell;
use std::io::Write;
use std::path::PathBuf;

use serde_json::Value;

pub use script::{Crash, Era, Grandchild, Script, Step};

/// A script under construction, and the arguments that start a puppet with it.
///
/// ```
/// use wharf_testkit::{Puppet, Step};
/// let args = Puppet::new().on("tool:echo", [Step::Sleep(10), Step::Echo]).args();
/// assert!(args[0].contains(r#""tool:echo":[{"sleep":10},"echo"]"#));
/// ```
#[derive(Debug, Default)]
pub struct Puppet {
    /// The script so far. Rare fields are set here.
    pub script: Script,
    spilled: OnceCell<tempfile::NamedTempFile>,
}

/// Runs the puppet of this process's arguments until it ends.
pub fn main() {
    let mut args = std::env::args().skip(1);
    let text = match args.next().as_deref() {
        None => "{}".to_owned(),
        Some("--sleep") => return stage::sleep(args.next().as_deref() == Some("setsid")),
        Some("--file") => {
            std::fs::read_to_string(args.next().expect("--file PATH")).expect("the script can be read")
        }
        Some(text) => text.to_owned(),
    };
    match serde_json::from_str(&text) {
        Ok(script) => stage::play(script),
        Err(e) => panic!("the puppet's script is not understood: {e}"),
    }
}

// === impl Puppet ===

impl Puppet {
    /// An honest server of both eras with one tool, `echo`.
    pub fn new() -> Self {
        Self::default()
    }

    /// An honest server of that era.
    pub fn of(era: Era) -> Self {
        Self::new().with(|s| s.era = era)
    }

    /// Adds a tool as it stands on the wire.
    #[must_use]
    pub fn tool(self, tool: Value) -> Self {
        self.with(|s| s.tools.push(tool))
    }

    /// Adds a tool that takes any object.
    #[must_use]
    pub fn plain_tool(self, name: &str) -> Self {
        self.tool(honest::plain_tool(name))
    }

    /// Adds a tool that takes any object, for legacy clients with this capability.
    #[must_use]
    pub fn tool_for(self, capability: &str, name: &str) -> Self {
        self.with(|s| s.tools_for.entry(capability.to_owned()).or_default().push(honest::plain_tool(name)))
    }

    /// Scripts a request: `tool:NAME`, or a method.
    #[must_use]
    pub fn on(self, key: &str, steps: impl Into<Vec<Step>>) -> Self {
        self.with(|s| {
            s.on.insert(key.to_owned(), steps.into());
        })
    }

    /// Keeps every line that reaches the puppet in a file.
    #[must_use]
    pub fn log(self, file: impl Into<PathBuf>) -> Self {
        self.with(|s| s.log_file = Some(file.into()))
    }

    /// Keeps the puppet's process id in a file.
    #[must_use]
    pub fn pid(self, file: impl Into<PathBuf>) -> Self {
        self.with(|s| s.pid_file = Some(file.into()))
    }

    /// Sets anything else.
    #[must_use]
    pub fn with(mut self, set: impl FnOnce(&mut Script)) -> Self {
        set(&mut self.script);
        self
    }

    /// The arguments that start it. A script too long for one argument goes to a file that lives as long as `self`.
    pub fn args(&self) -> Vec<String> {
        let text = serde_json::to_string(&self.script).expect("a script is JSON");
        // Linux takes no argument longer than 128 KiB.
        if text.len() < 100_000 {
            return vec![text];
        }
        let file = self.spilled.get_or_init(|| tempfile::NamedTempFile::new().expect("a temporary file"));
        file.as_file().set_len(0).expect("a temporary file can be emptied");
        let mut writer = file.reopen().expect("a temporary file can be opened");
        writer.write_all(text.as_bytes()).expect("a temporary file can be written");
        vec!["--file".to_owned(), file.path().display().to_string()]
    }
}
