//! What a puppet does: the script as data, written by a test and read by the puppet. How it is played is in `stage`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A whole script. Everything has a default: an empty script is an honest server of both eras with one tool, `echo`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// Which wire it speaks.
    pub era: Era,
    /// The revision it answers `initialize` with. Defaults to the one asked for, if it is a legacy one.
    pub version: Option<String>,
    /// Its capabilities. Defaults to `{"tools":{"listChanged":true}}`.
    pub capabilities: Option<Value>,
    /// Who it says it is. Defaults to `{"name":"puppet","version":"1"}`.
    pub server_info: Option<Value>,
    /// Its tools as they stand on the wire. Defaults to one tool, `echo`.
    pub tools: Vec<Value>,
    /// Further tools that it shows only to legacy clients with a capability, by its name.
    pub tools_for: BTreeMap<String, Vec<Value>>,
    /// That many more tools, `t0`, `t1`, …
    pub many_tools: usize,
    /// Tools per page. Defaults to all on one.
    pub pages: Option<usize>,
    /// What it wants a model to know.
    pub instructions: Option<String>,
    /// Lines on standard output before anything else.
    pub banner: Vec<String>,
    /// Lines on standard error before anything else.
    pub stderr: Vec<String>,
    /// That many bytes on standard error before anything else, in lines of 100.
    pub stderr_bytes: Option<usize>,
    /// Waits so long before it does anything.
    pub start_delay_ms: u64,
    /// Steps before the first line is read. There is no request yet, so replies have the id `null`.
    pub start: Vec<Step>,
    /// Stays when standard input ends.
    pub ignore_eof: bool,
    /// Stays when it is sent SIGTERM.
    pub ignore_term: bool,
    /// Reads no more than that many lines.
    pub deaf_after: Option<usize>,
    /// Closes standard input when it reads no more.
    pub closes_input: bool,
    /// Starts a process of its own that sleeps for 1000 s.
    pub spawn_grandchild: Option<Grandchild>,
    /// Exits at once on its first starts.
    pub crash: Option<Crash>,
    /// Its process id goes here.
    pub pid_file: Option<PathBuf>,
    /// What it was started with goes here: `{"pid","args","cwd","env":{},"fds":[]}`.
    pub describe_file: Option<PathBuf>,
    /// Every line that it receives goes here.
    pub log_file: Option<PathBuf>,
    /// What it does for a request: the key is `tool:NAME` (first choice), or a method. What is not here is done
    /// honestly.
    pub on: BTreeMap<String, Vec<Step>>,
}

/// Which wire a puppet speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Era {
    /// `initialize`; `server/discover` gets -32601.
    Legacy,
    /// `server/discover`; `initialize` gets -32022.
    Modern,
    /// Either.
    #[default]
    Both,
    /// Answers nothing at all.
    Silent,
    /// Legacy, and exits without a word on `server/discover`.
    DiesOnDiscover,
}

/// A process that the puppet starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grandchild {
    /// Its process id goes here.
    pub pid_file: PathBuf,
    /// It leaves the puppet's session and process group.
    #[serde(default)]
    pub setsid: bool,
}

/// Exits at once on the first starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crash {
    /// Gets one byte for each start.
    pub file: PathBuf,
    /// How many starts end at once.
    pub times: u64,
    /// With which status.
    #[serde(default)]
    pub code: i32,
}

/// One thing that a puppet does. The steps of a request are played on a thread of its own; in [`Step::Raw`] and
/// [`Step::Flood`] `$ID` is the request's id, `$TOKEN` its progress token and `$SEQ` a number that grows.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// Answers with this result. On the modern wire `resultType` is added where it is missing.
    Reply(Value),
    /// Answers with an error.
    ReplyError {
        /// The code.
        code: i64,
        /// The message.
        message: String,
        /// Whatever else.
        #[serde(default)]
        data: Option<Value>,
    },
    /// An honest tool result whose text is the call's arguments, as they were spelt.
    Echo,
    /// What the puppet would have done without a script for this request.
    Honest,
    /// An honest tool result whose text is the answer to the last [`Step::Ask`] or [`Step::InputRequired`].
    ReplyWithAnswer,
    /// These bytes and a line break.
    Raw(String),
    /// These bytes.
    RawNoNewline(String),
    /// These bytes, written as hexadecimal digits.
    Bytes {
        /// The digits.
        hex: String,
    },
    /// These bytes and a line break, one byte per write.
    SplitBytes(String),
    /// Waits that many milliseconds.
    Sleep(u64),
    /// Ends with that status.
    Exit(i32),
    /// Ends by SIGKILL.
    Kill,
    /// Stops itself with SIGSTOP.
    Freeze,
    /// Sends the line again and again; without a count, for ever.
    Flood {
        /// The line.
        line: String,
        /// How often.
        #[serde(default)]
        count: Option<u64>,
    },
    /// A tool result of exactly that many bytes, line break not counted.
    LongLine {
        /// How many.
        bytes: usize,
        /// Whether it carries the request's id; otherwise it has none.
        #[serde(default = "yes")]
        id: bool,
        /// Whether a line break follows.
        #[serde(default = "yes")]
        newline: bool,
    },
    /// An answer whose result holds an array nested so deep; the frame itself adds two levels.
    Nested {
        /// How deep.
        depth: usize,
    },
    /// A line on standard error.
    Stderr(String),
    /// That many bytes on standard error; without `lines`, all on one line.
    StderrBytes {
        /// How many.
        bytes: usize,
        /// Whether in lines of 100.
        #[serde(default)]
        lines: bool,
    },
    /// Sends a request to the client and waits for its answer, which is kept for [`Step::ReplyWithAnswer`].
    Ask {
        /// The method.
        method: String,
        /// The params.
        #[serde(default)]
        params: Value,
    },
    /// Progress notifications that grow by one, if the request has a token; without a count, for ever.
    Progress {
        /// How many.
        #[serde(default)]
        count: Option<u64>,
        /// How far apart.
        #[serde(default)]
        interval_ms: u64,
    },
    /// Sends a notification.
    Notify {
        /// The method.
        method: String,
        /// The params.
        #[serde(default)]
        params: Option<Value>,
    },
    /// Asks for input as the modern wire does, and ends the steps. When the request comes again with the answers, they
    /// are kept for [`Step::ReplyWithAnswer`] and the next step is played.
    InputRequired {
        /// The requests by key.
        #[serde(default)]
        requests: Option<Value>,
        /// The state to be echoed.
        #[serde(default)]
        state: Option<String>,
        /// Asks again however often it is answered.
        #[serde(default)]
        forever: bool,
    },
    /// Closes standard output.
    CloseStdout,
    /// Never goes on.
    Hang,
    /// Waits until a file exists.
    WaitFor(PathBuf),
    /// Appends one byte to a file: counts side effects.
    Count(PathBuf),
    /// Appends the arguments of the call to a file, as they were spelt, on a line: tells side effects apart.
    Note(PathBuf),
    /// The tools are these from now on.
    SetTools(Vec<Value>),
    /// Plays another list each time it is reached; the last one stays. Counted per process, for each method or tool.
    Turns(Vec<Vec<Self>>),
    /// Like [`Step::Turns`], counted in a file, so that a restart does not begin anew.
    TurnsIn {
        /// Gets one byte each time.
        file: PathBuf,
        /// The lists.
        turns: Vec<Vec<Self>>,
    },
}

fn yes() -> bool {
    true
}
