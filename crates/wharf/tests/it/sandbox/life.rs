//! Confined servers come and go, and nothing is left of them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;
use wharf::sandbox::Sandbox;
use wharf_testkit::example_path;

use super::{Prison, everywhere};

/// How many processes there are with this text in their command line.
fn running(text: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.windows(text.len()).any(|part| part == text.as_bytes())).count()
}

/// How many control groups a host has made that are still there.
fn groups(host: u32) -> usize {
    count(Path::new("/sys/fs/cgroup"), &format!("wharf-{host}-"), 5)
}

fn count(folder: &Path, name: &str, depth: usize) -> usize {
    let Ok(entries) = folder.read_dir() else { return 0 };
    let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders
        .map(|entry| {
            let ours = usize::from(entry.file_name().to_string_lossy().starts_with(name));
            ours + if depth > 0 { count(&entry.path(), name, depth - 1) } else { 0 }
        })
        .sum()
}

fn groups_can_be_made() -> bool {
    Sandbox::new(example_path("cell")).abilities().limits.contains("control group")
}

#[expect(clippy::print_stdout, reason = "what was not proved is for whoever runs it")]
fn say(text: &str) {
    println!("{text}");
}

#[track_caller]
fn until(what: &str, so: impl Fn() -> bool) {
    let since = Instant::now();
    while !so() {
        assert!(since.elapsed() < Duration::from_secs(30), "it never came to this: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn l18_killing_the_gateway_leaves_nothing_of_a_confined_server() {
    everywhere(|prison| {
        let script = prison.path("project/prisoner.py");
        // A child that has left the session, and one that has lost its parent.
        let code = "import os, subprocess, sys, time\n\
                    for _ in range(2):\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0: time.sleep(600)\n        time.sleep(600)\n\
                    time.sleep(600)";
        let before = folders(&prison.at("home"));
        let order = json!({
            "servers": [prison.server(json!({ "domains": ["example.com"] }))],
            "steps": [{ "server": "cell", "code": code }],
            "home": prison.at("home"), "engine": prison.engine, "protect": [],
        });
        let mut host = prison.command().stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        host.stdin.take().unwrap().write_all(order.to_string().as_bytes()).unwrap();
        until("the server has children", || running(&script) >= 5);
        assert!(folders(&prison.at("home")) > before, "the proxy listens in a folder");
        let made = groups(host.id());
        // Whoever runs the tests can find out whether groups can be made; another user may not be able to.
        assert!(prison.user.is_some() || (made > 0) == groups_can_be_made());
        if made == 0 {
            say(&format!("no control group was made for user {:?}: nothing is proved of them", prison.user));
        }
        host.kill().unwrap();
        host.wait().unwrap();
        until("nothing is left", || running(&script) == 0);
        until("the folder is gone", || folders(&prison.at("home")) == before);
        // What is left of its groups is swept by the next one, at once.
        prison.run(json!(true), &["out = 1"]).works();
        assert_eq!(groups(host.id()), 0);
    });
}

#[test]
fn l18_a_confined_server_is_asked_to_leave_before_it_is_made_to() {
    everywhere(|prison| {
        let mark = prison.path("data/left");
        let script = prison.at("project/polite.py");
        let text = format!(
            "import signal, sys, time\n\
             def leave(*_):\n    open({mark:?}, 'w').write('in order'); sys.exit(0)\n\
             signal.signal(signal.SIGTERM, leave)\n{}\nwhile True: time.sleep(1)\n",
            include_str!("prisoner.py")
        );
        std::fs::write(&script, text).unwrap();
        let mut server = prison.server(json!({ "write": [prison.path("data")] }));
        server["args"] = json!([script]);
        prison
            .order(&json!({ "servers": [server], "steps": [{ "server": "cell", "code": "out = 1" }] }))
            .works();
        assert_eq!(std::fs::read_to_string(&mark).unwrap(), "in order");
        assert_eq!(running(&script.display().to_string()), 0);
    });
}

#[test]
fn l18_the_end_of_a_confined_server_is_told() {
    everywhere(|prison| {
        let told = prison.run(json!(true), &["import os; os.kill(os.getpid(), 9)"]);
        assert!(told.steps[0].contains("killed by signal 9"), "{told:?}");
        let told = prison.run(
            json!(true),
            &["import os, sys; print('last words', file=sys.stderr, flush=True); os._exit(7)"],
        );
        assert!(told.steps[0].contains("exit status 7") && told.steps[0].contains("last words"), "{told:?}");
    });
}

#[test]
fn l17_many_starts_leave_nothing_behind() {
    let starts = if std::env::var_os("WHARF_ALL").is_some_and(|all| all == "1") { 1000 } else { 20 };
    everywhere(|prison| {
        let before = (mounts(), folders(&prison.at("home")));
        let order = json!({
            "servers": [prison.server(json!(true))], "steps": [], "home": prison.at("home"), "engine": prison.engine,
            "protect": [], "starts": starts / 4,
        });
        let mut host = prison.command().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        host.stdin.take().unwrap().write_all(order.to_string().as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(host.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(host.wait().unwrap().success());
        let told: serde_json::Value = serde_json::from_str(&line).unwrap();
        let files = |at: usize| told["files"][at].as_u64().unwrap();
        // What the last start had open may still be closing; a file for each start would be many more.
        assert!(files(1) <= files(0) + 3, "open files of the host after one start, and after all: {told}");
        until("the groups are gone", || groups(host.id()) == 0);
        if !groups_can_be_made() {
            say("no control group can be made here: nothing is proved of them");
        }
        assert_eq!((mounts(), folders(&prison.at("home"))), before);
        assert_eq!(running(&prison.path("project/prisoner.py")), 0);
    });
}

fn mounts() -> usize {
    std::fs::read_to_string("/proc/self/mounts").unwrap().lines().count()
}

fn folders(folder: &Path) -> usize {
    folder.read_dir().unwrap().count()
}

#[test]
fn prc_07_a_pause_does_not_kill_a_confined_server() {
    // What ties a server to its parent means the thread that started it: that one must not go.
    let prison = Prison::new(None, None);
    let told = prison.run(json!(true), &["import time; time.sleep(12)", "out = 'here'"]);
    assert_eq!(told.works().steps[1], "ok: here");
}
