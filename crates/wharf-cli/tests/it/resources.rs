//! `wharf resources`: listed, read, kept, and refused where a terminal would suffer.

use std::process::{Command, Stdio};

use serde_json::json;

use crate::desk::{Desk, WHARF};

#[test]
fn l80_resources_are_listed_like_tools() {
    let desk = Desk::new();
    let ran = desk.run(&["resources"]).ok();
    let lines: Vec<Vec<&str>> = ran.out.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines[0], ["demo", "demo://greeting", "text/plain", "A text."]);
    assert_eq!(lines.len(), 3, "{ran:?}");
    assert_eq!(desk.run(&["resources", "demo"]).ok().out, ran.out);

    let ran = desk.run(&["resources", "--templates"]).ok();
    assert_eq!(ran.out, "demo\tdemo://harbours/{name}\ttext/plain\tA sentence about a harbour.\n");

    let document = desk.run(&["resources", "--json"]).ok().json();
    assert_eq!(document["resources"][1]["server"], "demo");
    assert_eq!(document["resources"][1]["resource"]["uri"], "demo://dot.png");
    assert_eq!((&document["failed"], &document["skipped"]), (&json!([]), &json!([])));
    let document = desk.run(&["resources", "demo", "--templates", "--json"]).ok().json();
    assert_eq!(document["templates"][0]["template"]["uriTemplate"], "demo://harbours/{name}");
}

#[test]
fn l65_a_server_that_fails_is_reported_and_the_other_lists_go_on() {
    let desk = Desk::new();
    let (good, bad) = (desk.good_server(), desk.dying_server());
    desk.user(&format!(
        "[policy]\ncommands = [{good:?}, {bad:?}]\n[mcp.bad]\ncommand = {bad:?}\n[mcp.good]\ncommand = {good:?}\n"
    ));
    for (what, line) in [("resources", "good\tdemo://greeting\t"), ("prompts", "good\tgreet\t")] {
        let ran = desk.run(&[what]).ok();
        assert!(ran.out.starts_with(line), "{ran:?}");
        assert!(ran.err.contains("server `bad`") && ran.err.contains("no token was given"), "{ran:?}");
        let document = desk.run(&[what, "--json"]).ok().json();
        assert_eq!(document["failed"][0]["error"]["kind"], "connection", "{document}");
        assert_eq!(desk.run(&[what, "bad"]).code, 4);
    }
}

#[test]
fn l80_text_and_bytes_go_to_a_pipe_as_they_are_and_to_a_file() {
    let desk = Desk::new();
    let ran = desk.run(&["resources", "read", "demo", "demo://greeting"]).ok();
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("Ahoy! This text is a resource.\n", ""));
    let output = desk.command(&["resources", "read", "demo", "demo://dot.png"]).output().unwrap();
    assert!(output.stdout.starts_with(b"\x89PNG\r\n\x1a\n") && output.stdout.len() == 70, "{output:?}");
    let ran = desk.run(&["resources", "read", "demo", "demo://dot.png", "--output", "dot.png"]).ok();
    assert!(ran.out.is_empty() && ran.err.contains("70 bytes"), "{ran:?}");
    assert_eq!(std::fs::read(desk.project().join("dot.png")).unwrap(), output.stdout);
    let document = desk.run(&["resources", "read", "demo", "demo://harbours/kiel", "--json"]).ok().json();
    assert_eq!(document["contents"][0]["text"], "Kiel is where the canal meets the Baltic.");
}

/// Runs a command at a terminal of its own.
fn at_a_terminal(desk: &Desk, command: &str) -> (i32, String) {
    let output = Command::new("script")
        .args(["-qec", &format!("{WHARF} {command}"), "/dev/null"])
        .current_dir(desk.project())
        .env_clear()
        .env("HOME", desk.home())
        .env("PATH", "/usr/bin:/bin")
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn l80_bytes_never_go_to_a_terminal() {
    let desk = Desk::new();
    let (code, shown) = at_a_terminal(&desk, "resources read demo demo://dot.png");
    assert_eq!(code, 1, "{shown}");
    assert!(shown.contains("70 bytes of image/png") && shown.contains("--output FILE"), "{shown}");
    assert!(!shown.contains("PNG\r"), "{shown}");
    let (code, shown) = at_a_terminal(&desk, "resources read demo demo://greeting");
    assert_eq!((code, shown.trim_end()), (0, "Ahoy! This text is a resource."));
    let (code, shown) = at_a_terminal(&desk, "resources");
    assert!(code == 0 && shown.contains("SERVER") && shown.contains("demo://note"), "{shown}");
}

#[test]
fn l80_what_is_not_there_is_said_with_an_exit_code() {
    let desk = Desk::new();
    let bare = r#"while read -r line; do
  case "$line" in
    *initialize\"*) echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"b","version":"1"}}}' | sed "s/\"id\":1/\"id\":$(echo "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')/" ;;
    *discover*) echo "$line" | sed 's/.*"id":\([0-9]*\).*/{"jsonrpc":"2.0","id":\1,"error":{"code":-32601,"message":"no"}}/' ;;
  esac
done"#;
    let bare = desk.server("bare", bare);
    desk.user(&format!(
        "[policy]\ncommands = [{bare:?}]\n[mcp.bare]\ncommand = {bare:?}\n[mcp.off]\nenabled = false\ncommand = {bare:?}\n"
    ));
    let cases: [(&[&str], i32, &str); 8] = [
        (&["resources", "read", "demo", "demo://nothing"], 5, "rpc"),
        (&["resources", "bare"], 5, "not_offered"),
        (&["resources", "read", "bare", "x://a"], 5, "not_offered"),
        (&["prompts", "bare"], 5, "not_offered"),
        (&["resources", "nobody"], 5, "unknown_server"),
        (&["resources", "off"], 6, "denied"),
        (&["prompts", "get", "demo", "nothing"], 5, "unknown_prompt"),
        (&["prompts", "get", "demo", "greet"], 2, "prompt_arguments"),
    ];
    for (args, code, kind) in cases {
        let ran = desk.run(&[args, &["--json", "--quiet"]].concat());
        assert_eq!((ran.code, &ran.error()["kind"]), (code, &json!(kind)), "{args:?}: {ran:?}");
    }
    let ran = desk.run(&["resources", "bare"]);
    assert!(
        ran.err.contains("server `bare` offers no resources") && ran.err.contains("declares tools"),
        "{ran:?}"
    );
    // A server without any is no failure where all are asked.
    let ran = desk.run(&["resources"]).ok();
    assert!(ran.out.is_empty() && ran.err.contains("no resources"), "{ran:?}");
}
