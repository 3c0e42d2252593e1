//! The puppet at work: reads lines, plays the steps of the script, writes lines.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::hands::{
    append, close_stdin, close_stdout, count, describe, exit, from_hex, ignore_term, long_line, park, say,
    signal_self, spawn, stderr_bytes, write, write_line, write_whole,
};
use super::honest::{self, Answer};
use super::script::{Crash, Script, Step};

/// A request as it came, ids and arguments in their sender's spelling.
pub(super) struct Request {
    pub(super) id: String,
    pub(super) method: String,
    /// Whether it carries the modern `_meta`.
    pub(super) modern: bool,
    /// The revision in its `_meta`.
    pub(super) version: Option<String>,
    params: Value,
    raw_arguments: Option<String>,
}

/// What the threads share.
struct Stage {
    script: Script,
    tools: Mutex<Vec<Value>>,
    asked: Mutex<HashMap<u64, mpsc::Sender<Value>>>,
    turns: Mutex<HashMap<String, usize>>,
    sequence: AtomicU64,
}

#[derive(Deserialize)]
struct Envelope {
    id: Option<Box<RawValue>>,
    method: Option<String>,
    params: Option<Box<RawValue>>,
    result: Option<Value>,
    error: Option<Value>,
}

/// Whether the steps of a request go on.
#[derive(PartialEq)]
enum Next {
    GoOn,
    End,
}

/// Plays a script until its end.
pub(super) fn play(script: Script) {
    prepare(&script);
    let tools = Mutex::new(honest::tools(&script));
    let stage = Arc::new(Stage {
        script,
        tools,
        asked: Mutex::default(),
        turns: Mutex::default(),
        sequence: AtomicU64::new(0),
    });
    stage.play_steps(&stage.script.start, &Request::none());
    stage.read();
    if stage.script.ignore_eof {
        park();
    }
}

/// The grandchild: sleeps.
pub(super) fn sleep(own_session: bool) {
    if own_session {
        rustix::process::setsid().expect("a fresh process can have a session of its own");
    }
    std::thread::sleep(Duration::from_secs(1000));
}

/// Everything that happens before the first step.
fn prepare(script: &Script) {
    if let Some(file) = &script.pid_file {
        write_whole(file, &std::process::id().to_string());
    }
    if let Some(Crash { file, times, code }) = &script.crash
        && count(file) <= *times
    {
        exit(*code);
    }
    if script.ignore_term {
        ignore_term();
    }
    if let Some(file) = &script.describe_file {
        write_whole(file, &describe().to_string());
    }
    if let Some(grandchild) = &script.spawn_grandchild {
        spawn(grandchild);
    }
    std::thread::sleep(Duration::from_millis(script.start_delay_ms));
    for line in &script.stderr {
        say(line);
    }
    if let Some(bytes) = script.stderr_bytes {
        stderr_bytes(bytes, true);
    }
    for line in &script.banner {
        write_line(line.as_bytes());
    }
}

// === impl Stage ===

impl Stage {
    fn read(self: &Arc<Self>) {
        let log = self.script.log_file.as_ref().map(|f| append(f));
        let mut input = std::io::stdin().lock();
        for number in 0.. {
            if self.script.deaf_after.is_some_and(|n| number >= n) {
                if self.script.closes_input {
                    close_stdin();
                }
                park();
            }
            let mut line = Vec::new();
            if input.read_until(b'\n', &mut line).unwrap_or(0) == 0 {
                return;
            }
            if let Some(mut log) = log.as_ref() {
                let _ = log.write_all(&line);
            }
            self.take(&line);
        }
    }

    fn take(self: &Arc<Self>, line: &[u8]) {
        let envelope: Envelope = match serde_json::from_slice(line) {
            Ok(envelope) => envelope,
            Err(e) => {
                let error = json!({"code": -32700, "message": e.to_string()});
                return write_line(format!(r#"{{"jsonrpc":"2.0","id":null,"error":{error}}}"#).as_bytes());
            }
        };
        let Some(method) = envelope.method else {
            let id: Option<u64> = envelope.id.and_then(|id| id.get().parse().ok());
            let answer = envelope.result.or(envelope.error).unwrap_or(Value::Null);
            if let Some(waiting) = id.and_then(|id| self.asked.lock().unwrap().remove(&id)) {
                let _ = waiting.send(answer);
            }
            return;
        };
        let is_request = envelope.id.is_some();
        let request = Request::new(envelope.id, method, envelope.params.as_deref());
        if request.method == "initialize" {
            let able =
                |(capability, _): &(&String, _)| request.params["capabilities"].get(*capability).is_some();
            let further = self.script.tools_for.iter().filter(able).flat_map(|(_, tools)| tools.clone());
            self.tools.lock().unwrap().extend(further);
        }
        if let Some((key, steps)) = self.scripted(&request) {
            let (stage, steps, key) = (Arc::clone(self), steps.clone(), key.to_owned());
            let request = Request { method: key, ..request };
            std::thread::spawn(move || stage.play_steps(&steps, &request));
        } else if is_request {
            self.answer_honestly(&request);
        }
    }

    fn scripted(&self, request: &Request) -> Option<(&str, &Vec<Step>)> {
        let by_tool = request.tool().filter(|_| request.method == "tools/call").map(|t| format!("tool:{t}"));
        let key = by_tool.filter(|k| self.script.on.contains_key(k));
        let key = key.as_deref().unwrap_or(&request.method);
        self.script.on.get_key_value(key).map(|(k, steps)| (k.as_str(), steps))
    }

    fn answer_honestly(&self, request: &Request) {
        let tools = self.tools.lock().unwrap().clone();
        match honest::answer(&self.script, &tools, request) {
            Answer::Result(result) => reply(request, result),
            Answer::Error(error) => reply_error(request, &error),
            Answer::Nothing => {}
            Answer::Exit => exit(1),
        }
    }

    fn play_steps(&self, steps: &[Step], request: &Request) -> Next {
        let mut answer = Value::Null;
        for step in steps {
            if self.play_step(step, request, &mut answer) == Next::End {
                return Next::End;
            }
        }
        Next::GoOn
    }

    fn play_step(&self, step: &Step, request: &Request, answer: &mut Value) -> Next {
        match step {
            Step::Reply(result) => reply(request, result.clone()),
            Step::ReplyError { code, message, data } => {
                let mut error = json!({"code": code, "message": message});
                if let Some(data) = data {
                    error["data"] = data.clone();
                }
                reply_error(request, &error);
            }
            Step::Echo => reply(request, honest::echo(request)),
            Step::Honest => self.answer_honestly(&request.unscripted()),
            Step::ReplyWithAnswer => reply(request, honest::text_result(&answer.to_string())),
            Step::Ask { method, params } => *answer = self.ask(method, params),
            Step::InputRequired { requests, state, forever } => {
                let answered =
                    request.params.get("inputResponses").or_else(|| request.params.get("requestState"));
                match answered {
                    Some(given) if !forever => *answer = given.clone(),
                    _ => {
                        reply(request, input_required(requests.as_ref(), state.as_deref()));
                        return Next::End;
                    }
                }
            }
            Step::Turns(turns) => {
                let mut counts = self.turns.lock().unwrap();
                let turn = counts.entry(request.method.clone()).or_default();
                *turn += 1;
                let nth = *turn;
                drop(counts);
                return self.play_turn(turns, nth, request);
            }
            Step::TurnsIn { file, turns } => {
                let nth = usize::try_from(count(file)).unwrap_or(usize::MAX);
                return self.play_turn(turns, nth, request);
            }
            Step::SetTools(tools) => *self.tools.lock().unwrap() = tools.clone(),
            Step::Raw(_) | Step::RawNoNewline(_) | Step::SplitBytes(_) | Step::Flood { .. } => {
                self.play_text(step, request);
            }
            other => play_alone(other, request),
        }
        Next::GoOn
    }

    fn play_turn(&self, turns: &[Vec<Step>], nth: usize, request: &Request) -> Next {
        turns.get(nth - 1).or(turns.last()).map_or(Next::GoOn, |steps| self.play_steps(steps, request))
    }

    fn play_text(&self, step: &Step, request: &Request) {
        match step {
            Step::Raw(text) => write_line(self.fill(text, request).as_bytes()),
            Step::RawNoNewline(text) => write(self.fill(text, request).as_bytes()),
            Step::SplitBytes(text) => {
                let text = self.fill(text, request) + "\n";
                for byte in text.as_bytes() {
                    write(&[*byte]);
                }
            }
            Step::Flood { line, count } => {
                for _ in 0..count.unwrap_or(u64::MAX) {
                    write_line(self.fill(line, request).as_bytes());
                }
            }
            _ => {}
        }
    }

    fn fill(&self, text: &str, request: &Request) -> String {
        let mut text = text.replace("$ID", &request.id);
        if let Some(token) = request.token() {
            text = text.replace("$TOKEN", &token.to_string());
        }
        if text.contains("$SEQ") {
            text = text.replace("$SEQ", &self.sequence.fetch_add(1, Ordering::Relaxed).to_string());
        }
        text
    }

    fn ask(&self, method: &str, params: &Value) -> Value {
        // Far from the ids that clients count up from.
        let id = 900_000 + self.sequence.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = mpsc::channel();
        self.asked.lock().unwrap().insert(id, sender);
        write_line(
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string().as_bytes(),
        );
        receiver.recv().unwrap_or(Value::Null)
    }
}

/// Steps that need nothing but the request.
fn play_alone(step: &Step, request: &Request) {
    match step {
        Step::Bytes { hex } => write(&from_hex(hex)),
        Step::Sleep(ms) => std::thread::sleep(Duration::from_millis(*ms)),
        Step::Exit(code) => exit(*code),
        Step::Kill => signal_self(rustix::process::Signal::KILL),
        Step::Freeze => signal_self(rustix::process::Signal::STOP),
        Step::LongLine { bytes, id, newline } => long_line(*bytes, id.then_some(&request.id), *newline),
        Step::Nested { depth } => {
            let nest = "[".repeat(*depth) + &"]".repeat(*depth);
            write_line(
                format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"deep":{nest}}}}}"#, request.id).as_bytes(),
            );
        }
        Step::Stderr(line) => say(line),
        Step::StderrBytes { bytes, lines } => stderr_bytes(*bytes, *lines),
        Step::Progress { count, interval_ms } => {
            let Some(token) = request.token() else { return };
            for n in 1..=count.unwrap_or(u64::MAX) {
                notify("notifications/progress", Some(&json!({"progressToken": token, "progress": n})));
                std::thread::sleep(Duration::from_millis(*interval_ms));
            }
        }
        Step::Notify { method, params } => notify(method, params.as_ref()),
        Step::CloseStdout => close_stdout(),
        Step::Hang => park(),
        Step::WaitFor(file) => {
            while !file.exists() {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        Step::Count(file) => {
            count(file);
        }
        Step::Note(file) => {
            // In one piece: others write to the file, and whoever writes may be killed.
            append(file)
                .write_all(format!("{}\n", request.arguments()).as_bytes())
                .expect("the file can be written");
        }
        _ => {}
    }
}

// === impl Request ===

impl Request {
    fn new(id: Option<Box<RawValue>>, method: String, params: Option<&RawValue>) -> Self {
        #[derive(Deserialize)]
        struct Arguments {
            arguments: Option<Box<RawValue>>,
        }
        let text = params.map_or("{}", RawValue::get);
        let raw: Option<Arguments> = serde_json::from_str(text).ok();
        let params: Value = serde_json::from_str(text).unwrap_or_default();
        let version = params.pointer("/_meta/io.modelcontextprotocol~1protocolVersion");
        Self {
            id: id.map_or_else(|| "null".to_owned(), |id| id.get().to_owned()),
            method,
            modern: version.is_some(),
            version: version.and_then(Value::as_str).map(str::to_owned),
            raw_arguments: raw.and_then(|r| r.arguments).map(|a| a.get().to_owned()),
            params,
        }
    }

    fn none() -> Self {
        Self::new(None, String::new(), None)
    }

    /// The same request under its wire name: a scripted tool call goes by `tool:NAME` here.
    fn unscripted(&self) -> Self {
        let method =
            if self.method.starts_with("tool:") { "tools/call".to_owned() } else { self.method.clone() };
        Self {
            id: self.id.clone(),
            method,
            modern: self.modern,
            version: self.version.clone(),
            params: self.params.clone(),
            raw_arguments: self.raw_arguments.clone(),
        }
    }

    pub(super) fn params(&self) -> &Value {
        &self.params
    }

    pub(super) fn tool(&self) -> Option<String> {
        self.params["name"].as_str().map(str::to_owned)
    }

    pub(super) fn arguments(&self) -> String {
        self.raw_arguments.clone().unwrap_or_else(|| "{}".to_owned())
    }

    pub(super) fn asked_version(&self) -> Option<String> {
        self.params["protocolVersion"].as_str().map(str::to_owned)
    }

    fn token(&self) -> Option<&Value> {
        self.params.pointer("/_meta/progressToken")
    }
}

fn reply(request: &Request, mut result: Value) {
    if let (true, Some(members)) = (request.modern, result.as_object_mut()) {
        members.entry("resultType").or_insert_with(|| json!("complete"));
    }
    write_line(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, request.id).as_bytes());
}

fn reply_error(request: &Request, error: &Value) {
    write_line(format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, request.id).as_bytes());
}

fn notify(method: &str, params: Option<&Value>) {
    let mut message = json!({"jsonrpc": "2.0", "method": method});
    if let Some(params) = params {
        message["params"] = params.clone();
    }
    write_line(message.to_string().as_bytes());
}

fn input_required(requests: Option<&Value>, state: Option<&str>) -> Value {
    let mut result = json!({"resultType": "input_required"});
    if let Some(requests) = requests {
        result["inputRequests"] = requests.clone();
    }
    if let Some(state) = state {
        result["requestState"] = json!(state);
    }
    result
}
