//! R-08 and P5: the real gateway, killed at any moment while callers call. Nothing is left of it, what it keeps is whole,
//! and the next one knows what was allowed and nothing more.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wharf_testkit::{Grandchild, Puppet, Step, puppet_path};

use crate::desk::{Desk, Lines, WHARF};

const LONG: Duration = Duration::from_secs(60);
/// The folder of a server that has one of its own.
const OWN: &str = "own";
const SERVE: [&str; 4] = ["serve", "--port", "0", "--json"];

fn until(what: &str, mut so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !so() {
        assert!(since.elapsed() < LONG, "it never came to this: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A desk with a server that has a grandchild outside its group, one in a sandbox, and rules: `pup/guarded` and `pup/kept`
/// need somebody's yes.
struct Place {
    desk: Desk,
}

/// What was called of all gateways, one after the other. Every call of `pup_echo` has a number that no other has.
#[derive(Default)]
struct Asked {
    next: AtomicU64,
    /// Calls of `pup_echo` that were answered with their own result.
    done: Mutex<BTreeSet<u64>>,
    /// Calls of anything that were answered, and those that were not.
    answered: AtomicU64,
    lost: AtomicU64,
}

/// A gateway of that desk.
struct Running {
    child: Child,
    address: String,
}

impl Place {
    fn new() -> Self {
        Self::with(|_| String::new())
    }

    /// The same, where `pup` has a folder of its own, so that Wharf makes none for it.
    fn with_cwd() -> Self {
        Self::with(|home| format!("cwd = {:?}\n", home.join(OWN)))
    }

    /// With further settings of `pup`.
    fn with(more: impl FnOnce(&Path) -> String) -> Self {
        let desk = Desk::new();
        fs::create_dir(desk.home().join("scratch")).unwrap();
        fs::create_dir(desk.home().join(OWN)).unwrap();
        let more = more(&desk.home());
        let script = Puppet::new()
            .plain_tool("echo")
            .plain_tool("guarded")
            .plain_tool("kept")
            .on("tool:echo", [Step::Note(desk.home().join("effects")), Step::Echo])
            .with(|s| {
                let pid_file = desk.home().join("below");
                s.spawn_grandchild = Some(Grandchild { pid_file, setsid: true });
                (s.ignore_eof, s.ignore_term) = (true, true);
            });
        let (puppet, args) = (puppet_path(), script.args());
        desk.user(&format!(
            "[policy]\nsandbox = true\ncommands = [{puppet:?}, {WHARF:?}]\nask = [\"pup/guarded\", \"pup/kept\"]\n\n\
             [approvals]\nwait = 0\n\n\
             [mcp.pup]\ncommand = {puppet:?}\nargs = {args:?}\nsandbox = false\n{more}\n\
             [mcp.cell]\ncommand = {WHARF:?}\nargs = [\"test-server\"]\n"
        ));
        Self { desk }
    }

    fn start(&self) -> Running {
        self.start_as(self.desk.command(&SERVE))
    }

    /// A gateway in which a system call takes long.
    fn start_slow(&self, call: &str, seconds: u32) -> Running {
        let notes = self.desk.home().join("notes").display().to_string();
        let (trace, slow) =
            (format!("trace={call}"), format!("inject={call}:delay_enter={}", seconds * 1_000_000));
        let strace = ["-D", "-f", "-qq", "-o", &notes, "-e", &trace, "-e", &slow, WHARF];
        self.start_as(self.desk.program("strace", &[&strace[..], &SERVE].concat()))
    }

    fn start_as(&self, mut command: Command) -> Running {
        let mut child = command.env("TMPDIR", self.scratch()).spawn().unwrap();
        let lines = Lines::of(child.stdout.take().unwrap());
        // Ended with the test, also where it says nothing.
        let mut running = Running { child, address: String::new() };
        let line = lines.next("where the gateway listens");
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let url = said["url"].as_str().unwrap();
        running.address = url.trim_start_matches("http://").split('/').next().unwrap().to_owned();
        running
    }

    fn scratch(&self) -> PathBuf {
        self.desk.home().join("scratch")
    }

    /// Processes that know this desk: by their command line or their environment.
    fn processes(&self) -> BTreeSet<u32> {
        let home = self.desk.home().display().to_string();
        let knows = |pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let lives =
                stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']));
            let read = |name| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let words = [read("cmdline"), read("environ")].concat();
            lives && String::from_utf8_lossy(&words).contains(&home)
        };
        numbers().filter(knows).collect()
    }

    /// Processes that stand in the folder of a server, its own or one that Wharf has made for it.
    fn standing(&self) -> BTreeSet<u32> {
        let (own, made) = (self.desk.home().join(OWN), self.scratch());
        let stands = |pid: &u32| {
            let cwd = fs::read_link(format!("/proc/{pid}/cwd"));
            cwd.is_ok_and(|cwd| cwd.starts_with(&own) || cwd.starts_with(&made))
        };
        numbers().filter(stands).collect()
    }

    /// The files that are kept, without those that a database has beside it while it is open, and without the temporary
    /// ones that the next writer removes (`r_08_what_a_killed_writer_…` in the library's tests).
    fn kept(&self) -> BTreeSet<PathBuf> {
        let mut kept = BTreeSet::new();
        for folder in [".config/wharf", ".local/state/wharf", ".cache/wharf", ".local/share/wharf"] {
            files(&self.desk.home().join(folder), &mut kept);
        }
        kept.retain(|file| {
            let name = file.to_string_lossy();
            !["-wal", "-shm", "-journal", ".tmp"].iter().any(|end| name.ends_with(end))
                && ![".head.", ".key."].iter().any(|part| name.contains(part))
        });
        kept
    }
}

fn numbers() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn files(folder: &Path, into: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => files(&path, into),
            path => drop(into.insert(path)),
        }
    }
}

/// Control groups that a gateway of this number made.
fn groups(of: u32) -> usize {
    fn walk(folder: &Path, name: &str, depth: usize) -> usize {
        let below = fs::read_dir(folder).into_iter().flatten().flatten();
        let folders = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders
            .map(|entry| match entry.file_name().to_string_lossy().starts_with(name) {
                true => 1,
                false if depth > 0 => walk(&entry.path(), name, depth - 1),
                false => 0,
            })
            .sum()
    }
    walk(Path::new("/sys/fs/cgroup"), &format!("wharf-{of}-"), 4)
}

/// Everything below a process.
fn descendants(root: u32) -> BTreeSet<u32> {
    let above: Vec<(u32, u32)> = numbers()
        .filter_map(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect();
    let mut found = BTreeSet::from([root]);
    loop {
        let more = above.iter().filter(|(_, parent)| found.contains(parent)).map(|(pid, _)| *pid);
        let all: BTreeSet<u32> = found.iter().copied().chain(more).collect();
        if all.len() == found.len() {
            return found;
        }
        found = all;
    }
}

/// Whether one of these processes still is what it was: a number may be somebody else's by now.
fn is_there(pid: u32, born: &str) -> bool {
    birth(pid).is_some_and(|now| now == born)
}

/// When a process was started, if it lives.
fn birth(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let rest = stat.rsplit_once(')')?.1;
    let mut words = rest.split_whitespace();
    (!matches!(words.next()?, "Z" | "X")).then(|| words.nth(18).unwrap_or_default().to_owned())
}

impl Running {
    /// Calls a tool as a modern caller. `None` if the gateway went before it answered.
    fn call(&self, tool: &str) -> Option<Value> {
        let arguments = if tool == "cell_echo" { json!({"message": "m"}) } else { json!({}) };
        call_at(&self.address, tool, &arguments)
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Asked {
    /// Calls a tool again and again until it is over.
    fn keep_calling(&self, running: &Running, tool: &str, over: &AtomicBool) {
        while !over.load(Ordering::SeqCst) {
            let answer = if tool == "pup_echo" { self.echo(running) } else { running.call(tool) };
            let end = if answer.is_some() { &self.answered } else { &self.lost };
            end.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn echo(&self, running: &Running) -> Option<Value> {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let arguments = json!({ "number": number });
        let answer = call_at(&running.address, "pup_echo", &arguments)?;
        if answer["result"].is_object() {
            assert_eq!(text(&answer), arguments.to_string(), "its own answer");
            self.done.lock().unwrap().insert(number);
        }
        Some(answer)
    }

    /// Looks at each call of `pup_echo`, by what the server did and by what is on record. `began` has the first number of
    /// every gateway. Gives how often the tool ran.
    fn judge(&self, place: &Place, began: &[u64]) -> usize {
        let (next, done) = (self.next.load(Ordering::SeqCst), self.done.lock().unwrap());
        let number = |arguments: &Value| arguments["number"].as_u64();
        let noted = fs::read_to_string(place.desk.home().join("effects")).unwrap();
        // The very first call has no number.
        let noted = noted.lines().filter_map(|line| number(&serde_json::from_str(line).unwrap()));
        let mut ran = BTreeSet::new();
        for number in noted {
            assert!(ran.insert(number), "call {number} ran twice");
            assert!(number < next, "nobody asked for call {number}");
        }
        let missing: Vec<_> = done.difference(&ran).collect();
        assert!(missing.is_empty(), "answered, and did not run: {missing:?}");
        let calls =
            ["audit", "--json", "--kind", "call", "--server", "pup", "--tool", "echo", "-n", "10000000"];
        let calls = place.desk.run(&calls).ok();
        let mut on_record = BTreeSet::new();
        for call in calls.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            let Some(number) = number(&call["arguments"]["shown"]) else { continue };
            assert!(number < next && on_record.insert(number), "on record twice, or made up: {call}");
        }
        // The last ones of each gateway may have been on their way to the record, and only those: what was written later
        // was written after all that came before it.
        for (at, first) in began.iter().enumerate() {
            let end = began.get(at + 1).copied().unwrap_or(next);
            let last = on_record.range(first..&end).next_back().copied().unwrap_or(*first);
            let missing: Vec<_> = done.range(first..&last).filter(|n| !on_record.contains(n)).collect();
            assert!(missing.is_empty(), "answered, and not on record: {missing:?} before {last}");
        }
        assert!(!done.is_empty() && !on_record.is_empty(), "callers were served meanwhile");
        ran.len()
    }
}

fn call_at(address: &str, tool: &str, arguments: &Value) -> Option<Value> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    let mut stream = TcpStream::connect(address).ok()?;
    write!(
        stream,
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
         mcp-method: tools/call\r\nmcp-name: {tool}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let body = answer.split_once("\r\n\r\n")?.1;
    serde_json::from_str(&body[body.find('{')?..=body.rfind('}')?]).ok()
}

fn text(answer: &Value) -> String {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn r_08_a_gateway_killed_at_any_moment_leaves_nothing_and_whole_stores() {
    let runs = if std::env::var_os("WHARF_ALL").is_some_and(|all| all == "1") { 100 } else { 5 };
    let place = Place::new();
    // One that ends in peace says which files there are to be.
    let first = place.start();
    assert!(first.call("pup_echo").unwrap()["result"].is_object());
    assert!(first.call("cell_echo").unwrap()["result"].is_object());
    assert!(text(&first.call("pup_kept").unwrap()).contains("wharf approve 1"));
    // Where groups can be made they are: none that is left means something only then.
    let bounds = wharf::sandbox::Sandbox::new(WHARF).abilities().limits;
    let has_groups = bounds.contains("control group");
    assert_eq!(groups(first.child.id()) > 0, has_groups, "{bounds}");
    first.kill();
    place.desk.run(&["approve", "1", "--for", "tool", "--expires", "8h"]).ok();
    place.desk.run(&["lock"]).ok();
    let locked = fs::read(place.desk.home().join(".config/wharf/wharf.lock")).unwrap();
    let kept = place.kept();
    let (asked, mut began, mut killed) = (Asked::default(), Vec::new(), Vec::new());
    let mut dice = 20_261_116_u64;
    for run in 0..runs {
        // A small generator of our own, so that every run has the same moments.
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let moment = Duration::from_micros((dice >> 33) % 500_000);
        let running = place.start();
        began.push(asked.next.load(Ordering::SeqCst));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for tool in ["pup_echo", "cell_echo", "pup_guarded", "pup_kept"] {
                let (asked, running, over) = (&asked, &running, &over);
                scope.spawn(move || asked.keep_calling(running, tool, over));
            }
            // Every other one is killed while it serves, the rest at any moment, while servers are being started too.
            let done = || asked.done.lock().unwrap().len();
            let before = done();
            if run % 2 == 1 {
                until("somebody is served", || done() > before);
            }
            std::thread::sleep(moment);
            let pid = running.child.id();
            let below: Vec<(u32, String)> =
                descendants(pid).into_iter().filter_map(|pid| Some((pid, birth(pid)?))).collect();
            rustix::process::kill_process(
                rustix::process::Pid::from_raw(pid.cast_signed()).unwrap(),
                rustix::process::Signal::KILL,
            )
            .unwrap();
            over.store(true, Ordering::SeqCst);
            until("no process of it is left", || {
                // The gateway itself is ours to reap.
                !below.iter().any(|(one, born)| *one != pid && is_there(*one, born))
            });
            killed.push(pid);
        });
        drop(running);
        until("nobody knows the desk any more", || place.processes().is_empty());
        until("no folder is left", || fs::read_dir(place.scratch()).unwrap().count() == 0);
        let verified = place.desk.run(&["audit", "verify"]);
        assert_eq!(verified.code, 0, "{verified:?}");
        assert_eq!(place.kept(), kept, "nothing half written, nothing gone");
    }
    let ran = asked.judge(&place, &began);
    // What was allowed still is, what was not is not, and what was pinned still holds.
    std::thread::sleep(Duration::from_millis(2100));
    let last = place.start();
    assert!(last.call("cell_echo").unwrap()["result"]["content"].is_array());
    assert!(last.call("pup_kept").unwrap()["result"]["isError"] != true, "the yes outlived all of it");
    assert!(text(&last.call("pup_guarded").unwrap()).contains("wharf approve"), "nobody said yes to this");
    let left: usize = killed.iter().map(|pid| groups(*pid)).sum();
    assert_eq!(left, 0, "the next gateway swept up the groups");
    last.kill();
    place.desk.run(&["audit", "verify"]).ok();
    place.desk.run(&["diff"]).ok();
    assert_eq!(fs::read(place.desk.home().join(".config/wharf/wharf.lock")).unwrap(), locked);
    let groups_left = if has_groups { "0 groups" } else { "no groups looked for: none can be made here" };
    #[expect(clippy::print_stdout, reason = "the figures of a proof are for whoever runs it")]
    {
        println!(
            "R-08 {runs} kills: {} calls answered, {} lost; of {} calls of one tool {} were answered and {ran} ran; left: 0 processes, \
             0 folders, {groups_left}",
            asked.answered.into_inner(),
            asked.lost.into_inner(),
            asked.next.into_inner(),
            asked.done.into_inner().unwrap().len(),
        );
    }
}

/// The two times in which nobody is served: before it listens, when stores are made and what a dead one left is swept up, and
/// while it stops. The first ones find no store, and the others what those have left.
#[test]
fn r_08_a_gateway_killed_before_it_listens_or_while_it_stops_leaves_nothing_and_whole_stores() {
    let runs = if std::env::var_os("WHARF_ALL").is_some_and(|all| all == "1") { 200 } else { 16 };
    let place = Place::new();
    let (mut listening, mut dice) = (0, 20_261_119_u64);
    for run in 0..runs {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if run % 2 == 0 {
            let mut command = place.desk.command(&SERVE);
            let mut child = command.env("TMPDIR", place.scratch()).spawn().unwrap();
            std::thread::sleep(Duration::from_micros((dice >> 33) % 150_000));
            child.kill().unwrap();
            child.wait().unwrap();
            let mut said = String::new();
            child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
            listening += usize::from(!said.is_empty());
        } else {
            let running = place.start();
            assert!(running.call("pup_echo").unwrap()["result"].is_object());
            let pid = rustix::process::Pid::from_raw(running.child.id().cast_signed()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            std::thread::sleep(Duration::from_micros((dice >> 33) % 30_000));
            running.kill();
        }
        until("nobody knows the desk any more", || place.processes().is_empty());
        until("no folder is left", || fs::read_dir(place.scratch()).unwrap().count() == 0);
        if run > 0 {
            place.desk.run(&["audit", "verify"]).ok();
        }
    }
    assert!(listening < runs / 2, "some were killed before they listened");
    let last = place.start();
    assert!(last.call("pup_echo").unwrap()["result"].is_object());
    last.kill();
    place.desk.run(&["audit", "verify"]).ok();
}

#[test]
fn r_08_a_gateway_killed_while_it_starts_a_server_leaves_no_server() {
    kill_while_it_starts(Place::new, 1);
}

/// Where the server has a folder of its own it stands in none that Wharf has made, and only its pipe tells which it is.
#[test]
fn r_08_a_gateway_killed_while_it_starts_a_server_with_a_cwd_leaves_no_server() {
    kill_while_it_starts(Place::with_cwd, 0);
}

/// Kills it at both moments, when so many folders of Wharf's are there and something stands in a server's.
fn kill_while_it_starts(place: impl Fn() -> Place, folders: usize) {
    let made = |place: &Place| fs::read_dir(place.scratch()).unwrap().count();
    // After the server was started, and before anything is done with that.
    let started = place();
    let running = started.start_slow("pidfd_open", 3);
    std::thread::scope(|scope| {
        scope.spawn(|| running.call("pup_echo"));
        until("the server runs", || started.desk.home().join("below").exists());
        assert_eq!((started.standing().len(), made(&started)), (2, folders), "it and what it has started");
        kill_and_look(&started, &running);
    });
    // Before the process that was started has become the server: the gateway, its watchdog, and that one.
    let begun = place();
    let running = begun.start_slow("execve", 1);
    std::thread::scope(|scope| {
        scope.spawn(|| running.call("pup_echo"));
        until("the process is there", || descendants(running.child.id()).len() == 3);
        until("it stands where the server will", || begun.standing().len() == 1);
        assert!(!begun.desk.home().join("below").exists(), "it is not the server yet");
        assert_eq!(made(&begun), folders);
        kill_and_look(&begun, &running);
    });
}

fn kill_and_look(place: &Place, running: &Running) {
    let pid = rustix::process::Pid::from_raw(running.child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    until("nobody stands in a server's folder", || place.standing().is_empty());
    until("nobody knows the desk any more", || place.processes().is_empty());
    until("no folder is left", || fs::read_dir(place.scratch()).unwrap().count() == 0);
}

#[test]
fn p5_a_killed_gateway_forgets_no_yes_keeps_its_pins_and_trusts_nothing_new() {
    let place = Place::new();
    let desk = &place.desk;
    // A project's file that nobody trusted.
    let theirs = desk.good_server();
    desk.mcp_json(&format!("{{\"mcpServers\": {{\"theirs\": {{\"command\": {theirs:?}}}}}}}\n"));
    desk.run(&["lock"]).ok();
    let running = place.start();
    assert!(text(&running.call("pup_kept").unwrap()).contains("wharf approve 1"));
    desk.run(&["approve", "1"]).ok();
    assert!(text(&running.call("pup_guarded").unwrap()).contains("wharf approve 2"));
    running.kill();
    let waiting = desk.run(&["approve"]).ok();
    assert!(waiting.out.starts_with("2\t"), "what waited still waits: {waiting:?}");
    let running = place.start();
    assert!(running.call("pup_kept").unwrap()["result"]["isError"] != true, "the yes is still one");
    assert!(
        text(&running.call("pup_kept").unwrap()).contains("wharf approve 3"),
        "and was good for one call"
    );
    assert!(text(&running.call("pup_guarded").unwrap()).contains("wharf approve 2"), "this still waits");
    let unknown = running.call("theirs_echo").unwrap();
    assert!(unknown["error"].is_object(), "{unknown}");
    running.kill();
    assert!(!desk.was_started(), "what nobody trusted was never started");
    desk.run(&["diff"]).ok();
    desk.run(&["audit", "verify"]).ok();
}
