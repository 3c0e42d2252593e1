//! `wharf serve`: the built-in server behind the gateway, for a caller over a pipe and one over HTTP.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::json;
use wharf_testkit::rmcp_client::{Wire, list_and_call};
use wharf_testkit::{Puppet, Step, puppet_path};

use crate::desk::{Desk, Lines, WHARF};
use crate::reload::{Pipe, until};

/// A gateway that listens, ended when the test is.
pub(crate) struct Serving {
    child: Child,
    pub(crate) url: String,
}

impl Serving {
    pub(crate) fn start(desk: &Desk) -> Self {
        Self::start_with(desk, &[])
    }

    pub(crate) fn start_with(desk: &Desk, more: &[&str]) -> Self {
        let args = [&["serve", "--port", "0", "--json"], more].concat();
        let mut child = desk.command(&args).spawn().unwrap();
        let line = Lines::of(child.stdout.take().unwrap()).next("where the gateway listens");
        let said: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let url = said["url"].as_str().unwrap().to_owned();
        Self { child, url }
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) fn stop(mut self) -> i32 {
        #[expect(clippy::disallowed_methods, reason = "a person who presses Ctrl-C")]
        let sent = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        self.child.wait().unwrap().code().unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn l31_an_independent_client_of_either_era_is_served_over_a_pipe() {
    let desk = Desk::new();
    let home = desk.home().display().to_string();
    for wire in [Wire::Legacy, Wire::Modern] {
        // Through `env`, so that the caller's own home is not read.
        let args = ["-i", &format!("HOME={home}"), "PATH=/usr/bin:/bin", WHARF, "serve", "--stdio"];
        let seen =
            list_and_call(wire, Path::new("/usr/bin/env"), &args, "demo_add", json!({"a": 2, "b": 3})).await;
        assert!(seen.tools.iter().all(|tool| tool.starts_with("demo_")), "{:?}", seen.tools);
        assert_eq!(seen.result["structuredContent"], json!({"sum": 5}));
    }
}

/// Every caller takes one, and systems give few to a program that does not ask.
#[test]
fn l90_a_gateway_takes_as_many_descriptors_as_it_may_have() {
    for (soft, hard, taken) in [("256", "4000", "4000"), ("4000", "4000", "4000")] {
        let desk = Desk::new();
        let limited = format!("ulimit -Sn {soft}; ulimit -Hn {hard}; exec \"$0\" serve --port 0 --json");
        let mut child = desk.program("/bin/sh", &["-c", &limited, WHARF]).spawn().unwrap();
        Lines::of(child.stdout.take().unwrap()).next("where the gateway listens");
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
        let open = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        assert_eq!(open.split_whitespace().nth(3), Some(taken), "{open}");
        let url = String::new();
        assert_eq!(Serving { child, url }.stop(), 0);
    }
}

#[test]
fn l31_a_gateway_is_a_server_like_any_other() {
    let desk = Desk::new();
    let serving = Serving::start(&desk);
    let file = desk.home().join("gateway.json");
    let config = json!({"mcpServers": {"all": {"type": "http", "url": serving.url}}});
    std::fs::write(&file, config.to_string()).unwrap();
    let file = file.display().to_string();
    let listed = desk.run(&["--config", &file, "tools", "all"]);
    assert!(listed.out.contains("demo_echo"), "{listed:?}");
    let said = desk.run(&["--config", &file, "call", "all", "demo_echo", "message=through"]);
    assert_eq!((said.code, said.out.trim()), (0, "through"), "{said:?}");
    let wrong = desk.run(&["--config", &file, "call", "all", "demo_add", "a=1"]);
    assert_ne!(wrong.code, 0, "{wrong:?}");
    assert_eq!(serving.stop(), 0, "being asked to stop is no failure");
}

#[test]
fn l30_a_gateway_at_a_unix_socket_is_a_server_and_survives_its_own_death() {
    let desk = Desk::new();
    let path = desk.home().join("run").join("wharf.sock");
    let url = format!("unix://{}", path.display());
    let start = || {
        let mut child = desk.command(&["serve", "--unix", path.to_str().unwrap(), "--json"]).spawn().unwrap();
        let line = Lines::of(child.stdout.take().unwrap()).next("where the gateway listens");
        let said: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert_eq!(said["path"], path.to_str().unwrap());
        Serving { child, url: url.clone() }
    };
    // Its own file: a gateway that is its own server would wait for itself.
    let file = desk.home().join("gateway.json");
    std::fs::write(&file, json!({"mcpServers": {"all": {"type": "unix", "url": url}}}).to_string()).unwrap();
    let file = file.display().to_string();
    let mut serving = start();
    let twice =
        desk.command(&["serve", "--unix", path.to_str().unwrap()]).stdin(Stdio::null()).output().unwrap();
    assert!(String::from_utf8_lossy(&twice.stderr).contains("somebody listens there already"), "{twice:?}");
    let said = desk.run(&["--config", &file, "call", "all", "demo_echo", "message=through"]);
    assert_eq!((said.code, said.out.trim()), (0, "through"), "{said:?}");

    serving.child.kill().unwrap();
    serving.child.wait().unwrap();
    assert!(path.exists(), "one that is killed leaves its socket behind");
    let serving = start();
    let said = desk.run(&["--config", &file, "call", "all", "demo_echo", "message=again"]);
    assert_eq!((said.code, said.out.trim()), (0, "again"), "{said:?}");
    assert_eq!(serving.stop(), 0);
    assert!(!path.exists());
}

#[test]
fn l30_a_gateway_is_reached_over_a_websocket() {
    let desk = Desk::new();
    let serving = Serving::start(&desk);
    desk.run(&["add", "all", &serving.url.replace("http:", "ws:")]).ok();
    let said = desk.run(&["call", "all", "demo_echo", "message=through"]);
    assert_eq!((said.code, said.out.trim()), (0, "through"), "{said:?}");
    let listed = desk.run(&["servers"]);
    assert!(listed.out.contains("ws://127.0.0.1"), "{listed:?}");
    assert_eq!(serving.stop(), 0);
}

#[test]
fn gwy_04_an_address_that_others_reach_is_refused_without_keys() {
    let desk = Desk::new();
    let refused = desk.run(&["serve", "--bind", "0.0.0.0", "--port", "0"]);
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("keys"), "{refused:?}");
    let mut taken = Serving::start(&desk);
    let port = taken.url.rsplit(':').next().unwrap().trim_end_matches("/mcp").to_owned();
    let twice = desk.command(&["serve", "--port", &port]).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&twice.stderr).into_owned();
    assert!(!twice.status.success() && said.contains("--port"), "{said}");
    assert!(taken.child.try_wait().unwrap().is_none(), "the first goes on");
}

#[test]
fn p6_a_call_over_a_pipe_may_end_after_a_sigterm_and_then_it_is_over() {
    let (desk, files) = (Desk::new(), tempfile::tempdir().unwrap());
    let (begun, go) = (files.path().join("begun"), files.path().join("go"));
    let steps = [Step::Count(begun.clone()), Step::WaitFor(go.clone()), Step::Honest];
    let (puppet, args) = (puppet_path(), Puppet::new().on("tool:echo", steps).args());
    desk.user(&format!(
        "[policy]\ncommands = [{puppet:?}]\n\n[mcp.pup]\ncommand = {puppet:?}\nargs = {args:?}\n"
    ));
    let mut pipe = Pipe::open(&desk);
    let id = pipe.send("tools/call", json!({"name": "pup_echo", "arguments": {}}));
    until("the call is at the server", || begun.exists());
    let sent = Command::new("kill").args(["-TERM", &pipe.pid().to_string()]).status().unwrap();
    assert!(sent.success());
    pipe.says("stopping");
    std::fs::write(&go, "").unwrap();
    let answer = pipe.answer(id);
    assert!(answer["result"]["content"].is_array(), "{answer}");
    pipe.close();
}

/// What it says of where it is, to people and to programs.
fn announced(desk: &Desk, args: &[&str]) -> (String, serde_json::Value) {
    let mut child = desk.command(&[&["serve", "--port", "0"], args].concat()).spawn().unwrap();
    let lines = Lines::of(child.stderr.take().unwrap());
    let all = std::iter::repeat_with(|| lines.next("what is said of a gateway"));
    let text: Vec<String> = all.take_while(|line| !line.contains("Ctrl-C stops")).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    let mut child = desk.command(&[&["serve", "--port", "0", "--json"], args].concat()).spawn().unwrap();
    let json = Lines::of(child.stdout.take().unwrap()).next("where the gateway listens");
    child.kill().unwrap();
    child.wait().unwrap();
    (text.join("\n"), serde_json::from_str(&json).unwrap_or_else(|e| panic!("{e}: {json}")))
}

#[test]
fn l31_the_lines_to_paste_have_the_name_that_callers_reach_it_by() {
    let desk = Desk::new();
    let (text, said) = announced(&desk, &[]);
    let at = said["listening"].as_str().unwrap();
    assert!(at.starts_with("127.0.0.1:") && said["url"] == format!("http://{at}/mcp"), "{said}");
    assert!(text.contains("wharf http://127.0.0.1:") && !text.contains("listening"), "{text}");

    assert_eq!(desk.run(&["keys", "add", "alice"]).code, 0);
    let shared = ["--bind", "0.0.0.0", "--host", "tools.example.org", "--host", "other.example.org"];
    let (text, said) = announced(&desk, &shared);
    let port = said["listening"].as_str().unwrap().strip_prefix("0.0.0.0:").unwrap().to_owned();
    assert_eq!(said["url"], format!("http://tools.example.org:{port}/mcp"));
    assert_eq!(text.matches("http://tools.example.org:").count(), 5, "{text}");
    assert!(!text.contains("http://0.0.0.0") && text.contains("listening at 0.0.0.0:"), "{text}");
    for (host, url) in
        [("::1", "http://[::1]:"), ("tools.example.org:8443", "http://tools.example.org:8443/mcp")]
    {
        let (_, said) = announced(&desk, &["--host", host]);
        assert!(said["url"].as_str().unwrap().starts_with(url), "{said}");
    }

    desk.user("[gateway]\nurl = \"https://tools.example.org/mcp\"\n");
    let (text, said) = announced(&desk, &shared);
    assert_eq!(said["url"], "https://tools.example.org/mcp");
    assert_eq!(text.matches("https://tools.example.org/mcp").count(), 5, "{text}");
}
