//! `wharf serve --log-format json`: one object a line, for whoever collects logs.

use std::process::{Child, Command};

use serde_json::{Value, json};

use crate::desk::{Desk, Lines};

/// A gateway that keeps a log, ended when the test is.
pub(crate) struct Logging {
    child: Child,
    lines: Lines,
    pub(crate) url: String,
}

impl Logging {
    pub(crate) fn start(desk: &Desk) -> Self {
        let mut child = desk.command(&["serve", "--port", "0", "--log-format", "json"]).spawn().unwrap();
        let lines = Lines::of(child.stderr.take().unwrap());
        let mut logging = Self { child, lines, url: String::new() };
        logging.url = logging.until("serving")["url"].as_str().unwrap().to_owned();
        logging
    }

    /// The next line about this. Every line on the way is one of a log.
    pub(crate) fn until(&mut self, event: &str) -> Value {
        loop {
            let line = self.next();
            if line["event"] == event {
                return line;
            }
        }
    }

    /// The first line about each of these, in whichever order they come.
    pub(crate) fn until_all(&mut self, events: &[&str]) -> Vec<Value> {
        let mut told = vec![Value::Null; events.len()];
        while told.iter().any(Value::is_null) {
            let line = self.next();
            if let Some(place) = events.iter().position(|event| line["event"] == *event)
                && told[place].is_null()
            {
                told[place] = line;
            }
        }
        told
    }

    pub(crate) fn next(&mut self) -> Value {
        let line = self.lines.next("more of the log");
        let line: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
        assert!(["debug", "info", "warn", "error"].contains(&line["level"].as_str().unwrap()), "{line}");
        line
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn call(desk: &Desk, url: &str, words: &[&str]) -> i32 {
    let file = desk.home().join("caller.json");
    desk.write(&file, &json!({"mcpServers": {"all": {"type": "http", "url": url}}}).to_string());
    let file = file.display().to_string();
    desk.run(&[&["--config", &file, "call", "all"], words].concat()).code
}

#[test]
fn l96_what_happens_in_a_gateway_is_one_json_object_a_line() {
    let desk = Desk::new();
    let (good, dying) = (desk.good_server(), desk.dying_server());
    let text = format!(
        "[policy]\ncommands = [{good:?}, {dying:?}]\nask = [\"good/add\"]\n[mcp.good]\ncommand = {good:?}\n"
    );
    desk.user(&text);
    let mut log = Logging::start(&desk);
    assert_eq!(call(&desk, &log.url, &["good_echo", "message=hello"]), 0);
    let state = loop {
        let line = log.until("state");
        if line["state"] == "connected" {
            break line;
        }
    };
    assert_eq!((&state["server"], &state["level"]), (&json!("good"), &json!("info")));
    assert_ne!(call(&desk, &log.url, &["good_add", "a=1", "b=2"]), 0);
    let refused = log.until("refused");
    assert_eq!((&refused["server"], &refused["tool"]), (&json!("good"), &json!("add")), "{refused}");
    assert_eq!((&refused["kind"], &refused["level"]), (&json!("unapproved"), &json!("warn")), "{refused}");

    desk.user(&format!("{text}[mcp.dying]\ncommand = {dying:?}\n"));
    log.signal("-HUP");
    assert_eq!(log.until("reload")["added"], json!(["dying"]));
    call(&desk, &log.url, &["good_echo", "message=hello"]);
    let lost = loop {
        let line = log.until("state");
        if line["server"] == "dying" && line["level"] == "warn" {
            break line;
        }
    };
    assert!(lost["reason"].as_str().unwrap().contains("no token was given"), "{lost}");
    log.signal("-INT");
    assert!(log.until("message")["message"].as_str().unwrap().contains("stopping"));
    assert!(log.child.wait().unwrap().success());
    let odd = desk.run(&["serve", "--log-format", "xml"]);
    assert_eq!(odd.code, 2, "{odd:?}");
}

#[test]
fn l96_a_reload_that_changed_no_server_is_no_reload_and_other_terms_are_told() {
    let desk = Desk::new();
    let good = desk.good_server();
    let text = format!("[policy]\ncommands = [{good:?}]\n[mcp.good]\ncommand = {good:?}\n");
    desk.user(&text);
    let mut log = Logging::start(&desk);
    let told = |log: &mut Logging, what: &str| loop {
        let line = log.next();
        assert_ne!(line["event"], "reload", "no server is another: {line}");
        if line["message"].as_str().is_some_and(|message| message.contains(what)) {
            return line;
        }
    };
    log.signal("-HUP");
    told(&mut log, "reloaded: nothing changed");
    desk.user(&format!("{text}[gateway]\nrequired = [\"good\"]\n"));
    log.signal("-HUP");
    assert_eq!(told(&mut log, "reloaded: other required servers")["level"], "info");
    desk.user(&format!("{text}[gateway]\nrequired = [\"absent\"]\n"));
    log.signal("-HUP");
    assert_eq!(told(&mut log, "names a server `absent` that is not configured")["level"], "warn");
    desk.user(&format!("{text}debug = true\n"));
    log.signal("-HUP");
    let reload = log.until("reload");
    assert!(reload["restarted"] == json!(["good"]) || reload["changed"] == json!(["good"]), "{reload}");
}
