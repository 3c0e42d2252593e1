//! Scripts, played line by line.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use wharf_testkit::{Crash, Era, Puppet, Step, puppet_path};

struct Played {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Played {
    fn start(puppet: &Puppet) -> Self {
        let mut child = Command::new(puppet_path())
            .args(puppet.args())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    fn call(&mut self, tool: &str) {
        let meta = json!({"progressToken": "tok"});
        self.send(&json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": {"name": tool, "arguments": {"n": 1}, "_meta": meta}}));
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end_matches('\n').to_owned()
    }

    fn json(&mut self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    fn end(mut self) -> Option<i32> {
        self.input = None;
        self.child.wait().unwrap().code()
    }
}

#[test]
fn steps_are_played_in_order() {
    let steps = [
        Step::Progress { count: Some(2), interval_ms: 0 },
        Step::Raw(r#"{"id":$ID,"token":$TOKEN,"seq":$SEQ}"#.to_owned()),
        Step::Notify { method: "notifications/x".to_owned(), params: None },
        Step::SplitBytes("slow".to_owned()),
        Step::LongLine { bytes: 200, id: true, newline: true },
        Step::Nested { depth: 3 },
        Step::ReplyError { code: -1, message: "no".to_owned(), data: Some(json!(1)) },
        Step::Echo,
        Step::Exit(3),
    ];
    let mut puppet = Played::start(&Puppet::new().plain_tool("t").on("tool:t", steps));
    puppet.call("t");
    assert_eq!(puppet.json()["params"]["progress"], 1);
    assert_eq!(puppet.json()["params"], json!({"progressToken": "tok", "progress": 2}));
    assert_eq!(puppet.line(), r#"{"id":7,"token":"tok","seq":0}"#);
    assert_eq!(puppet.line(), r#"{"jsonrpc":"2.0","method":"notifications/x"}"#);
    assert_eq!(puppet.line(), "slow");
    let long = puppet.line();
    assert_eq!((long.len(), &long[..22]), (200, r#"{"jsonrpc":"2.0","id":"#));
    assert_eq!(puppet.json()["result"]["deep"], json!([[[]]]));
    assert_eq!(puppet.json()["error"], json!({"code": -1, "message": "no", "data": 1}));
    assert_eq!(puppet.json()["result"]["content"][0]["text"], r#"{"n":1}"#);
    assert_eq!(puppet.child.wait().unwrap().code(), Some(3));
}

#[test]
fn a_puppet_asks_and_tells_the_answer() {
    let ask = Step::Ask { method: "roots/list".to_owned(), params: json!({}) };
    let mut puppet = Played::start(&Puppet::new().on("tools/call", [ask, Step::ReplyWithAnswer]));
    puppet.call("echo");
    let asked = puppet.json();
    assert_eq!(asked["method"], "roots/list");
    puppet.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}}));
    assert_eq!(puppet.json()["result"]["content"][0]["text"], r#"{"roots":[]}"#);
    assert_eq!(puppet.end(), Some(0));
}

#[test]
fn each_era_has_its_greeting() {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let discover = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}});
    let initialize = json!({"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}});
    for (era, discovered, initialized) in
        [(Era::Legacy, Some(-32601), None), (Era::Modern, None, Some(-32022)), (Era::Both, None, None)]
    {
        let mut puppet = Played::start(&Puppet::of(era));
        puppet.send(&discover);
        assert_eq!(puppet.json()["error"]["code"].as_i64(), discovered, "{era:?}");
        puppet.send(&initialize);
        assert_eq!(puppet.json()["error"]["code"].as_i64(), initialized, "{era:?}");
        assert_eq!(puppet.end(), Some(0));
    }
    let mut puppet = Played::start(&Puppet::of(Era::DiesOnDiscover));
    puppet.send(&discover);
    assert_eq!(puppet.line(), "");
    assert_eq!(puppet.end(), Some(1));
}

#[test]
fn a_puppet_crashes_as_often_as_it_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let crash = Crash { file: folder.path().join("starts"), times: 2, code: 9 };
    let puppet = Puppet::new().with(|s| s.crash = Some(crash));
    let ends: Vec<_> = (0..3).map(|_| Played::start(&puppet).end()).collect();
    assert_eq!(ends, [Some(9), Some(9), Some(0)]);
}

#[test]
fn a_long_script_goes_through_a_file_and_the_log_holds_what_came() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let puppet = Puppet::new().with(|s| s.instructions = Some("x".repeat(200_000))).log(&log);
    assert_eq!(puppet.args()[0], "--file");
    let mut played = Played::start(&puppet);
    played.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}));
    assert_eq!(played.line(), r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert_eq!(std::fs::read_to_string(log).unwrap(), "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n");
    assert_eq!(played.end(), Some(0));
}

#[test]
fn standard_output_can_be_closed_while_the_puppet_lives() {
    let script = Puppet::new().with(|s| s.start = vec![Step::Raw("last".to_owned()), Step::CloseStdout]);
    let mut puppet = Played::start(&script);
    let mut all = String::new();
    puppet.output.read_to_string(&mut all).unwrap();
    assert_eq!(all, "last\n");
    assert!(puppet.child.try_wait().unwrap().is_none());
    assert_eq!(puppet.end(), Some(0));
}
