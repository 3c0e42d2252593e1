//! `wharf approve`: a call of the gateway waits, somebody at another terminal answers it, and all of it is on record.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::desk::Desk;

/// A gateway on a pipe, which is ended with it.
struct Gateway {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Gateway {
    fn at(desk: &Desk) -> Self {
        let mut child = desk.command(&["serve", "--stdio"]).stdin(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, input, output }
    }

    /// Echoes a message, as a modern caller that can be asked nothing.
    fn echo(&mut self, message: &str) -> String {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({"name": "demo_echo", "arguments": {"message": message}, "_meta": meta});
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        writeln!(self.input, "{request}").unwrap();
        let answer: Value = serde_json::from_str(&self.output.next().unwrap().unwrap()).unwrap();
        answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn l22_a_call_waits_until_somebody_approves_it_also_over_a_restart() {
    let desk = Desk::new();
    desk.user("[policy]\nask = [\"demo/echo\"]\n");
    assert_eq!(
        desk.run(&["call", "demo", "echo", "message=own"]).code,
        0,
        "the person is not asked about their own"
    );
    let mut gateway = Gateway::at(&desk);
    let told = gateway.echo("hello");
    assert!(told.contains("`wharf approve 1`"), "{told}");
    let listed = desk.run(&["approve"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    assert!(listed.out.starts_with("1\t") && listed.out.contains("\techo\t"), "{listed:?}");
    let shown = desk.run(&["approve", "--show", "1"]);
    assert!(shown.out.contains("\"message\": \"hello\""), "{shown:?}");
    assert!(gateway.echo("hello").contains("approve 1"), "to look is not to answer");

    drop(gateway);
    let ran = desk.run(&["approve", "1"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(desk.run(&["approve", "1"]).code, 1, "it is answered");
    let mut gateway = Gateway::at(&desk);
    assert_eq!(gateway.echo("hello"), "hello");
    assert!(gateway.echo("hello").contains("approve 2"), "once");
    assert_eq!(desk.run(&["approve", "2", "--deny"]).code, 0);
    assert!(gateway.echo("hello").contains("approval 2"), "no");
    assert!(gateway.echo("other").contains("approve 3"));
    let ran = desk.run(&["approve", "3", "--for", "tool", "--expires", "8h", "--json"]);
    assert_eq!(ran.json()["answered"], json!([{"id": 3, "decision": "allow", "for": "tool"}]), "{ran:?}");
    assert_eq!(gateway.echo("anything"), "anything");
    drop(gateway);

    let ran = desk.run(&["audit", "--json", "--kind", "answer"]);
    let answers: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> =
        answers.iter().map(|a| (a["rule"].as_str().unwrap(), a["decision"].as_str().unwrap())).collect();
    assert_eq!(told, [("approval 1", "allow"), ("approval 2", "deny"), ("approval 3", "allow")]);
    assert_eq!(desk.run(&["audit", "verify"]).code, 0);
}

#[test]
fn l22_what_cannot_be_answered_is_said() {
    let desk = Desk::new();
    let ran = desk.run(&["approve"]);
    assert_eq!((ran.code, &*ran.out), (0, ""), "{ran:?}");
    let ran = desk.run(&["approve", "7"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("wharf approve"), "{ran:?}");
    assert_eq!(desk.run(&["approve", "--deny"]).code, 2, "of what?");
    assert_eq!(desk.run(&["approve", "1", "--deny", "--for", "tool"]).code, 2);
    for (wrong, line) in [
        ("[policy]\nask = [\"echo\"]\n", 3),
        ("[policy]\nask = [\"!demo/echo\"]\n", 3),
        ("[approvals]\nwait = \"soon\"\n", 2),
        ("[approvals]\nwho = true\n", 2),
        ("[callers.ann]\nask = [\"a/b*c\"]\n", 2),
    ] {
        desk.user(wrong);
        let ran = desk.run(&["approve"]);
        assert_eq!(ran.code, 7, "{wrong}: {ran:?}");
        assert!(ran.err.contains(&format!("wharf.toml:{line}")), "{wrong}: {ran:?}");
    }
    desk.user("[approvals]\nwait = 0\nexpires = \"2h\"\ncallers = false\n[callers.ann]\nservers = [\"demo\"]\nask = [\"demo/*\"]\n");
    assert_eq!(desk.run(&["approve"]).code, 0);
}
