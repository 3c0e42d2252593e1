//! `wharf serve` while its configuration is edited, and what it knows of servers before it starts them.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wharf::catalog::{CATALOGUE_MAX, Catalogue};

use crate::desk::{Desk, WHARF};

/// A gateway over a pipe, spoken with as a legacy caller does.
pub(crate) struct Pipe {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<Value>,
    said: Arc<Mutex<String>>,
    next: u64,
}

/// How long anything may take before the test is lost.
const LONG: Duration = Duration::from_secs(60);

impl Pipe {
    pub(crate) fn open(desk: &Desk) -> Self {
        Self::open_as(desk.command(&["serve", "--stdio"]))
    }

    /// The same, started by this command.
    pub(crate) fn open_as(mut command: Command) -> Self {
        let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let (out, mut err) = (BufReader::new(child.stdout.take().unwrap()), child.stderr.take().unwrap());
        let (tell, answers) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = tell.send(serde_json::from_str(&line).unwrap());
            }
        });
        let said: Arc<Mutex<String>> = Arc::default();
        let heard = Arc::clone(&said);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = err.read(&mut bytes) {
                heard.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        });
        let input = child.stdin.take();
        let mut pipe = Self { child, input, answers, said, next: 0 };
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        pipe.ask("initialize", params);
        pipe
    }

    pub(crate) fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        writeln!(self.input.as_ref().unwrap(), "{request}").unwrap();
        self.next
    }

    pub(crate) fn answer(&mut self, id: u64) -> Value {
        loop {
            let answer = self.answers.recv_timeout(LONG).unwrap_or_else(|e| panic!("{e}: {}", self.said()));
            if answer["id"] == id {
                return answer;
            }
        }
    }

    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    pub(crate) fn tools(&mut self) -> Vec<String> {
        let listed = self.ask("tools/list", json!({}));
        let tools = listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listed}"));
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// The servers whose tool `echo` is listed, in order.
    fn servers(&mut self) -> Vec<String> {
        self.tools().iter().filter_map(|tool| tool.strip_suffix("_echo").map(str::to_owned)).collect()
    }

    pub(crate) fn echo(&mut self, server: &str) -> Value {
        let params = json!({"name": format!("{server}_echo"), "arguments": {"message": "hi"}});
        self.ask("tools/call", params)
    }

    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Waits until it says something, to the end of the line, and forgets what it said.
    pub(crate) fn says(&self, what: &str) -> String {
        until(&format!("it says `{what}`"), || {
            let said = self.said();
            said.contains(what) && said.ends_with('\n')
        });
        std::mem::take(&mut *self.said.lock().unwrap())
    }

    /// The number of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Closes its input, and waits until it is gone.
    pub(crate) fn close(mut self) -> String {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
        self.said()
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !so() {
        assert!(since.elapsed() < LONG, "it never came to this: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A server that writes down each of its starts.
fn server(desk: &Desk, name: &str) -> String {
    let path = desk.home().join(name);
    let text =
        format!("#!/bin/sh\necho $$ >> '{}'\nexec '{WHARF}' test-server\n", starts(desk, name).display());
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn starts(desk: &Desk, name: &str) -> PathBuf {
    desk.home().join(format!("{name}.pids"))
}

/// The numbers of the processes that were started of a server.
fn pids(desk: &Desk, name: &str) -> Vec<String> {
    fs::read_to_string(starts(desk, name)).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// The user's file with these servers, each with lines of its own.
fn configure(desk: &Desk, servers: &[(&str, &str)]) {
    let commands: Vec<String> = ["a", "b", "c"].map(|name| format!("{:?}", server(desk, name))).into();
    let mut text = format!("[policy]\ncommands = [{}]\n", commands.join(", "));
    for (name, more) in servers {
        text.push_str(&format!("\n[mcp.{name}]\ncommand = {:?}\n{more}\n", server(desk, name)));
    }
    desk.user(&text);
}

fn files(desk: &Desk) -> Vec<PathBuf> {
    let folder = desk.home().join(".cache/wharf/catalogue");
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).map(|all| all.flatten().map(|e| e.path()).collect()).unwrap_or_default();
    files.sort();
    files
}

#[test]
fn l40_what_was_seen_once_is_listed_at_once_and_a_call_starts_one_server() {
    let desk = Desk::new();
    configure(&desk, &[("b", ""), ("a", "")]);
    let mut first = Pipe::open(&desk);
    let tools = first.tools();
    assert_eq!(first.servers(), ["b", "a"]);
    first.close();
    assert_eq!(files(&desk).len(), 2);
    for file in files(&desk) {
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        Catalogue::parse(&fs::read(&file).unwrap()).unwrap();
    }
    ["a", "b"].iter().for_each(|name| fs::remove_file(starts(&desk, name)).unwrap());

    let mut again = Pipe::open(&desk);
    assert_eq!(again.tools(), tools);
    assert!(pids(&desk, "a").is_empty() && pids(&desk, "b").is_empty(), "nothing was started");
    assert_eq!(again.echo("a")["result"]["content"][0]["text"], "hi");
    assert_eq!((pids(&desk, "a").len(), pids(&desk, "b").len()), (1, 0));
    again.close();
}

#[test]
fn l40_a_broken_or_enormous_file_is_told_of_and_made_anew() {
    let desk = Desk::new();
    configure(&desk, &[("a", "")]);
    let mut first = Pipe::open(&desk);
    first.tools();
    first.close();
    let file = files(&desk).remove(0);
    let good = fs::read(&file).unwrap();
    let open = || fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let breaks: [&dyn Fn(); 4] = [
        &open,
        &|| fs::write(&file, "{\"wharf_catalogue\": 1, \"servers\": {\"a\"").unwrap(),
        &|| fs::write(&file, String::from_utf8_lossy(&good).replace("\"string\"", "\"number\"")).unwrap(),
        &|| fs::File::create(&file).unwrap().set_len(CATALOGUE_MAX as u64 + 1).unwrap(),
    ];
    for broken in breaks {
        broken();
        fs::remove_file(starts(&desk, "a")).unwrap();
        let mut pipe = Pipe::open(&desk);
        assert_eq!(pipe.servers(), ["a"]);
        assert_eq!(pids(&desk, "a").len(), 1, "it was asked");
        let said = pipe.close();
        assert!(said.contains("warning") && said.contains("is not used"), "{said}");
        assert_eq!(fs::read(&file).unwrap(), good, "and it was written anew");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn l41_a_file_of_ones_own_that_is_taken_away_changes_nothing() {
    let desk = Desk::new();
    configure(&desk, &[("a", "")]);
    let text = fs::read_to_string(desk.config()).unwrap();
    let named = desk.home().join("named.toml");
    desk.write(&named, &text);
    let named = named.display().to_string();
    for (args, file) in [
        (vec!["serve", "--stdio"], desk.config()),
        (vec!["--config", &named, "serve", "--stdio"], PathBuf::from(&named)),
    ] {
        let mut pipe = Pipe::open_as(desk.command(&args));
        assert_eq!(pipe.servers(), ["a"]);
        fs::remove_file(&file).unwrap();
        let said = pipe.says("the configuration stays as it was");
        assert!(said.contains("there is no such file"), "{said}");
        assert_eq!(pipe.servers(), ["a"], "and not the built-in one");
        assert_eq!(pipe.echo("a")["result"]["content"][0]["text"], "hi");
        // The twin: one that is put back counts as ever, and one that is emptied is meant.
        desk.write(&file, &format!("{text}\n[mcp.b]\ncommand = {:?}\n", server(&desk, "b")));
        pipe.says("added b");
        assert_eq!(pipe.servers(), ["a", "b"]);
        desk.write(&file, &text.replace("[mcp.a]", "[mcp.c]"));
        pipe.says("removed a");
        pipe.close();
        desk.write(&file, &text);
    }
}

#[test]
fn l40_many_that_write_at_once_leave_whole_files() {
    let desk = Desk::new();
    configure(&desk, &[("a", ""), ("b", "")]);
    let mut pipes: Vec<Pipe> = (0..6).map(|_| Pipe::open(&desk)).collect();
    let asked: Vec<u64> = pipes.iter_mut().map(|pipe| pipe.send("tools/list", json!({}))).collect();
    for (pipe, id) in pipes.iter_mut().zip(asked) {
        assert!(pipe.answer(id)["result"]["tools"].as_array().unwrap().len() > 2);
    }
    pipes.into_iter().for_each(|pipe| drop(pipe.close()));
    let files = files(&desk);
    assert_eq!(files.len(), 2, "and nothing half written beside them: {files:?}");
    for file in files {
        assert_eq!(Catalogue::parse(&fs::read(&file).unwrap()).unwrap().servers.len(), 1);
    }
}

#[test]
fn l07_an_edit_adds_removes_and_restarts_only_what_changed() {
    let desk = Desk::new();
    configure(&desk, &[("a", ""), ("b", "")]);
    let mut pipe = Pipe::open(&desk);
    assert_eq!(pipe.servers(), ["a", "b"]);
    let id = pipe.send("tools/call", json!({"name": "b_sleep", "arguments": {"ms": 3000}}));
    configure(&desk, &[("c", ""), ("a", "timeout = \"20s\"")]);
    let said = pipe.says("reloaded:");
    assert!(said.contains("reloaded: added c; removed b; changed a"), "{said}");
    assert_eq!(pipe.echo("b")["error"]["code"], -32602, "it is gone for new calls");
    let slept = pipe.answer(id);
    assert!(!slept["result"]["isError"].as_bool().unwrap_or(false), "{slept}");
    assert!(slept["error"].is_null(), "the call under way ended by itself: {slept}");
    let gone = pids(&desk, "b").remove(0);
    until("b is gone", || !desk.is_alive(&gone));
    assert_eq!(pipe.servers(), ["c", "a"]);
    assert_eq!(pids(&desk, "a").len(), 1, "never started again");

    configure(&desk, &[("c", ""), ("a", "timeout = \"20s\"\nargs = [\"\"]")]);
    let said = pipe.says("reloaded:");
    assert!(said.contains("reloaded: restarted a\n"), "{said}");
    assert_eq!(pids(&desk, "c").len(), 1);
    pipe.close();
}

#[test]
fn l07_a_bad_edit_is_reported_with_its_line_and_changes_nothing() {
    let desk = Desk::new();
    configure(&desk, &[("a", "")]);
    let mut pipe = Pipe::open(&desk);
    assert!(pipe.echo("a")["error"].is_null());
    let good = fs::read_to_string(desk.config()).unwrap();
    desk.user(&format!("{good}\n[mcp.b\n"));
    let said = pipe.says("stays as it was");
    let line = good.lines().count() + 2;
    assert!(said.contains(&format!("wharf.toml:{line}")), "{said}");
    assert!(pipe.echo("a")["error"].is_null());

    desk.user(&good.replace("command = ", "timeout = \"soon\"\ncommand = "));
    let said = pipe.says("nothing changed");
    assert!(said.contains("wharf.toml:") && said.contains("server `a` stays as it was"), "{said}");
    assert!(pipe.echo("a")["error"].is_null());
    assert_eq!(pids(&desk, "a").len(), 1, "the same process all the while");

    configure(&desk, &[("a", ""), ("b", "")]);
    pipe.says("reloaded: added b");
    assert_eq!(pipe.servers(), ["a", "b"]);
    pipe.close();
}

#[test]
fn l07_an_edited_project_file_is_pending_again_and_its_servers_are_taken_away() {
    let desk = Desk::new();
    configure(&desk, &[("a", "")]);
    let project = |more: &str| {
        desk.mcp_json(&format!(
            "{{\"mcpServers\": {{\"b\": {{\"command\": {:?}{more}}}}}}}\n",
            server(&desk, "b")
        ));
    };
    project("");
    desk.run(&["trust", "--yes"]).ok();
    let mut pipe = Pipe::open(&desk);
    assert_eq!(pipe.servers(), ["a", "b"]);
    let trusted = pids(&desk, "b");
    project(", \"env\": {\"X\": \"1\"}");
    let said = pipe.says("reloaded: removed b");
    assert!(said.contains("has changed since you trusted it"), "{said}");
    assert_eq!(pipe.servers(), ["a"]);
    until("its process is gone", || !desk.is_alive(&trusted[0]));
    assert_eq!(pids(&desk, "b"), trusted, "what is not trusted was not started");

    desk.run(&["trust", "--yes"]).ok();
    pipe.says("reloaded: added b");
    assert_eq!(pipe.servers(), ["a", "b"]);
    pipe.close();
}

#[test]
fn l07_a_hangup_is_a_wish_to_read_the_files_again() {
    let desk = Desk::new();
    configure(&desk, &[("a", "")]);
    let pipe = Pipe::open(&desk);
    let sent = Command::new("kill").args(["-HUP", &pipe.child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    pipe.says("reloaded: nothing changed");
    pipe.close();
}

#[test]
fn l07_other_rules_end_what_they_forbid() {
    let desk = Desk::new();
    configure(&desk, &[("a", "")]);
    let mut pipe = Pipe::open(&desk);
    assert!(pipe.echo("a")["error"].is_null());
    let first = pids(&desk, "a").remove(0);
    let text = fs::read_to_string(desk.config()).unwrap();
    let narrowed: Vec<&str> = text.lines().filter(|line| !line.starts_with("commands")).collect();
    desk.user(&narrowed.join("\n"));
    let said = pipe.says("reloaded:");
    assert!(said.contains("other rules; restarted a"), "{said}");
    until("it is ended", || !desk.is_alive(&first));
    assert!(pipe.echo("a")["error"].is_object(), "and not started again");
    assert_eq!(pids(&desk, "a").len(), 1);
    pipe.close();
}

#[test]
fn l07_other_rules_leave_everybody_else_as_they_are() {
    let desk = Desk::new();
    configure(&desk, &[("a", ""), ("b", "")]);
    let mut pipe = Pipe::open(&desk);
    assert_eq!(pipe.servers(), ["a", "b"]);
    let before = (pids(&desk, "a"), pids(&desk, "b"));
    let text = fs::read_to_string(desk.config()).unwrap();
    let under_way = pipe.send("tools/call", json!({"name": "a_sleep", "arguments": {"ms": 3000}}));
    desk.user(&text.replace("commands = [", "commands = [\"one-more\", "));
    pipe.says("reloaded: other rules\n");
    desk.user(&text.replace("[policy]", "[policy]\nask = [\"b/echo\"]"));
    pipe.says("reloaded: other rules\n");
    assert_eq!((pids(&desk, "a"), pids(&desk, "b")), before, "nothing was started again");
    let taken = format!(", {:?}", server(&desk, "b"));
    desk.user(&text.replacen(&taken, "", 1));
    let said = pipe.says("reloaded:");
    assert!(said.contains("other rules; restarted b\n"), "{said}");
    until("it is ended", || !desk.is_alive(&before.1[0]));
    let slept = pipe.answer(under_way);
    assert!(slept["error"].is_null(), "the call at its neighbour ended by itself: {slept}");
    assert!(pipe.echo("a")["error"].is_null() && pipe.echo("b")["error"].is_object());
    assert_eq!(pids(&desk, "a"), before.0);
    pipe.close();
}

#[test]
fn l07_rules_limits_and_approvals_are_edited_without_a_restart_and_the_rest_is_said_to_need_one() {
    let desk = Desk::new();
    configure(&desk, &[("a", ""), ("b", "")]);
    let plain = fs::read_to_string(desk.config()).unwrap();
    let edit = |more: &str| fs::write(desk.config(), format!("{plain}\n{more}")).unwrap();
    let mut pipe = Pipe::open(&desk);
    assert_eq!(pipe.servers(), ["a", "b"]);
    assert!(pipe.echo("a")["error"].is_null() && pipe.echo("b")["error"].is_null());
    let lost = pipe.send("tools/call", json!({"name": "b_sleep", "arguments": {"ms": 600_000}}));
    let kept = pipe.send("tools/call", json!({"name": "a_sleep", "arguments": {"ms": 3000}}));

    edit("[callers.\"*\"]\nservers = [\"a\"]\n");
    pipe.says("reloaded: other rules of callers\n");
    let ended = pipe.answer(lost);
    assert!(
        ended["error"]["message"].as_str().unwrap().contains("not given to the caller any more"),
        "{ended}"
    );
    assert!(pipe.answer(kept)["error"].is_null(), "what is still given goes on");
    assert_eq!(pipe.servers(), ["a"]);
    assert_eq!((pids(&desk, "a").len(), pids(&desk, "b").len()), (1, 1), "nothing was started again");

    edit("[gateway.limits]\ncalls_per_caller = 7\n[approvals]\nwait = \"1s\"\n[audit]\nkeep = \"9d\"\n");
    let said = pipe.says("reloaded:");
    for what in ["other rules of callers", "other limits of callers", "other approvals", "keep the audit log"]
    {
        assert!(said.contains(what), "{what}: {said}");
    }
    assert_eq!(pipe.servers(), ["a", "b"], "without rules everything is given again");

    edit("[gateway.limits]\ncalls_per_caller = -1\n");
    let said = pipe.says("stays as it was");
    assert!(said.contains("calls_per_caller"), "{said}");

    edit("[gateway]\nurl = \"https://tools.example.org/mcp\"\n[telemetry]\notlp = \"http://127.0.0.1:9\"\n");
    let said = pipe.says("needs a restart");
    assert!(said.contains("needs a restart: `url` in `[gateway]`, `[telemetry]`"), "{said}");
    pipe.close();
}
