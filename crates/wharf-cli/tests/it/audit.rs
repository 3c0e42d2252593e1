//! `wharf audit`: what commands did is on record, can be searched, checked, exported and judged again.

use serde_json::{Value, json};

use crate::desk::Desk;

/// A desk at which something was done.
fn busy() -> Desk {
    let desk = Desk::new();
    for (args, code) in [
        (&["call", "demo", "echo", "message=hello", "--quiet"][..], 0),
        (&["call", "demo", "echo", "message=again", "--quiet"], 0),
        (&["call", "demo", "fail"], 5),
    ] {
        let ran = desk.run(args);
        assert_eq!(ran.code, code, "{ran:?}");
    }
    desk
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn l95_commands_are_on_record_and_can_be_searched() {
    let desk = busy();
    let ran = desk.run(&["audit", "--json", "--kind", "call"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let calls = lines(&ran.out);
    let told: Vec<_> = calls
        .iter()
        .map(|call| (call["tool"].as_str().unwrap(), call["outcome"].as_str().unwrap()))
        .collect();
    assert_eq!(told, [("echo", "ok"), ("echo", "ok"), ("fail", "tool_failed")]);
    assert_eq!(calls[0]["arguments"]["shown"], json!({"message": "hello"}));
    assert!(
        calls[0]["time"].as_str().unwrap().ends_with('Z') && calls[0]["hash"].as_str().unwrap().len() == 64
    );
    for (filter, found) in [
        (&["--outcome", "ok"][..], 2),
        (&["--tool", "echo", "-n", "1"], 1),
        (&["--decision", "deny"], 0),
        (&["--since", "1h"], 3),
        (&["--until", "1h"], 0),
        (&["--caller", "nobody"], 0),
    ] {
        let ran = desk.run(&[&["audit", "--json", "--kind", "call"], filter].concat());
        assert_eq!((ran.code, lines(&ran.out).len()), (0, found), "{filter:?}: {ran:?}");
    }
    let table = desk.run(&["audit", "--server", "demo"]);
    let kinds: Vec<&str> = table.out.lines().map(|line| line.split('\t').nth(2).unwrap()).collect();
    for kind in ["launch", "connect", "call", "stop"] {
        assert!(kinds.contains(&kind), "{kind}: {kinds:?}");
    }
    assert!(!kinds.contains(&"begin"), "{kinds:?}");
}

#[test]
fn l95_verify_tells_a_whole_log_from_one_that_was_changed() {
    let desk = busy();
    let ran = desk.run(&["audit", "verify"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("whole"), "{ran:?}");
    let file = desk.home().join(".local/state/wharf/wharf.db");
    let database = rusqlite::Connection::open(&file).unwrap();
    database.execute("UPDATE audit SET record = replace(record, 'hello', 'hullo')", []).unwrap();
    drop(database);
    let ran = desk.run(&["audit", "verify"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains("is not what was written"), "{ran:?}");
    let ran = desk.run(&["audit", "verify", "--json"]);
    assert_eq!((ran.code, ran.json()["whole"].clone()), (1, json!(false)));
}

#[test]
fn l95_an_export_can_be_checked_by_anybody() {
    let desk = busy();
    let ran = desk.run(&["audit", "export"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let mut before = [0_u8; 32];
    for line in ran.out.lines() {
        let (hash, record) = line.split_once("\",\"record\":").unwrap();
        let (hash, record) = (hash.strip_prefix("{\"hash\":\"").unwrap(), record.strip_suffix('}').unwrap());
        before = sha256(&[&before, record.as_bytes()].concat());
        let hex: String = before.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, hash);
    }
    assert!(ran.out.lines().count() > 5);
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes).into()
}

#[test]
fn l95_replay_says_what_other_rules_would_have_decided() {
    let desk = busy();
    let file = desk.project().join("stricter.toml");
    let same = desk.project().join("same.toml");
    desk.write(&same, "");
    desk.write(&file, "[mcp.demo]\ncommand = \"wharf\"\ndisabled_tools = [\"echo\"]\n");
    let ran = desk.run(&["audit", "replay", "--policy", "same.toml", "--json"]);
    assert_eq!((ran.code, ran.json()["differences"].clone()), (0, json!(0)), "{ran:?}");
    let ran = desk.run(&["audit", "replay", "--policy", "stricter.toml", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let first = &ran.json()["decisions"][0];
    assert_eq!((&first["was"], &first["now"], &first["calls"]), (&json!("allow"), &json!("deny"), &json!(2)));
    assert!(first["why"].as_str().unwrap().contains("disabled_tools"), "{first}");
    let ran = desk.run(&["audit", "replay", "--policy", "missing.toml"]);
    assert_eq!(ran.code, 7, "{ran:?}");
}

#[test]
fn l95_the_log_is_where_the_settings_say_and_a_project_has_no_say() {
    let desk = Desk::new();
    let call = ["call", "demo", "echo", "message=hello"];
    desk.user("[audit]\noff = true\n");
    assert_eq!(desk.run(&call).code, 0);
    assert!(!desk.home().join(".local/state/wharf/wharf.db").exists());
    desk.user(
        "[audit]\npath = \"log/here.db\"\narguments = \"digest\"\nkeep = \"90d\"\nkeep_size = \"1GB\"\n",
    );
    assert_eq!(desk.run(&call).code, 0);
    assert!(desk.home().join(".config/wharf/log/here.db").exists());
    let ran = desk.run(&["audit", "--json", "--kind", "call"]);
    let call_record = &lines(&ran.out)[0];
    assert!(
        call_record["arguments"].get("shown").is_none() && call_record["arguments"]["size"] == 19,
        "{ran:?}"
    );
    for wrong in ["keep = 90", "arguments = \"all\"", "of = true", "keep_size = \"1KB\"", "path = \"\""] {
        desk.user(&format!("[audit]\n{wrong}\n"));
        let ran = desk.run(&call);
        assert_eq!(ran.code, 7, "{wrong}: {ran:?}");
        assert!(ran.err.contains("wharf.toml:2"), "{wrong}: {ran:?}");
    }
}

/// The disk is full: files may not grow any more.
#[test]
fn exh_05_a_full_disk_stops_calls_with_a_clear_error() {
    let desk = Desk::new();
    let call = ["call", "demo", "echo", "message=hello"];
    assert_eq!(desk.run(&call).code, 0);
    let full = |blocks: u32| {
        let line = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
        let command = desk.command(&[]);
        let mut limited = std::process::Command::new("/bin/sh");
        limited
            .args(["-c", &line, "sh", crate::desk::WHARF])
            .args(call)
            .current_dir(desk.project())
            .env_clear();
        limited.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
        crate::desk::Ran::from(limited.stdin(std::process::Stdio::null()).output().unwrap())
    };
    let ran = full(0);
    assert!(ran.code == 7 || ran.code == 1, "{ran:?}");
    assert!(ran.err.contains("audit log") && !ran.err.contains("panicked"), "{ran:?}");
    assert!(!ran.out.contains("hello"), "{ran:?}");
    // With room it works again, and the log is whole.
    assert_eq!(full(1_000_000).code, 0);
    assert_eq!(desk.run(&["audit", "verify"]).code, 0);
}

/// Killed at any moment: what was answered more than a moment before is on record, and the log is whole.
#[test]
fn l95_a_gateway_that_is_killed_leaves_a_whole_log() {
    use std::io::{BufRead as _, Write as _};
    let desk = Desk::new();
    let mut gateway =
        desk.command(&["serve", "--stdio"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut input = gateway.stdin.take().unwrap();
    let mut output = std::io::BufReader::new(gateway.stdout.take().unwrap()).lines();
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"}, "io.modelcontextprotocol/clientCapabilities": {}});
    for id in 1..=20 {
        let params = json!({"name": "demo_echo", "arguments": {"message": format!("m{id}")}, "_meta": meta});
        let request = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        writeln!(input, "{request}").unwrap();
        let answer: Value = serde_json::from_str(&output.next().unwrap().unwrap()).unwrap();
        assert!(answer.get("result").is_some(), "{answer}");
    }
    let on_record = || lines(&desk.run(&["audit", "--json", "--kind", "call"]).out).len();
    let start = std::time::Instant::now();
    while on_record() < 20 && start.elapsed().as_secs() < 30 {}
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    assert_eq!(on_record(), 20);
    assert_eq!(desk.run(&["audit", "verify"]).code, 0);
}
