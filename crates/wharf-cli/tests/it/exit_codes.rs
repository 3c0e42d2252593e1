//! The numbers that scripts depend on, and the one line of JSON beside them.

use crate::desk::Desk;

#[test]
fn l100_exit_codes_mean_something() {
    let desk = Desk::new();
    let (good, bad) = (desk.good_server(), desk.dying_server());
    desk.user(&format!(
        "[policy]\ncommands = [{bad:?}]\n[mcp.dying]\ncommand = {bad:?}\n[mcp.denied]\ncommand = {good:?}\n\
         [mcp.off]\nenabled = false\ncommand = \"npx\"\nargs = [\"-y\", \"x@1.0.0\"]\n[mcp.broken]\ncommand = 3\n"
    ));
    let cases: [(&[&str], i32, &str); 11] = [
        (&["call", "demo", "echo", "message=x"], 0, ""),
        (&["call", "demo", "echo", "oops"], 2, "usage"),
        (&["call", "demo", "echo"], 2, "arguments"),
        (&["call", "demo", "sleep", "ms=60000", "--timeout", "300ms"], 4, "timeout"),
        (&["call", "dying", "x"], 4, "connection"),
        (&["call", "demo", "fail"], 5, "tool_failed"),
        (&["call", "demo", "nothing"], 5, "unknown_tool"),
        (&["call", "nobody", "nothing"], 5, "unknown_server"),
        (&["call", "denied", "echo"], 6, "command_not_allowed"),
        (&["call", "off", "echo"], 6, "denied"),
        (&["call", "broken", "echo"], 7, "config"),
    ];
    for (args, code, kind) in cases {
        let ran = desk.run(&[args, &["--json", "--quiet"]].concat());
        assert_eq!(ran.code, code, "{args:?}: {ran:?}");
        if code != 0 {
            let error = ran.error();
            assert_eq!(error["kind"], kind, "{args:?}: {ran:?}");
            assert!(error["message"].is_string() && error["side"].is_string(), "{ran:?}");
            assert!(error["retryable"].is_boolean() && error.get("hint").is_some(), "{ran:?}");
            assert_eq!(error["mayHaveRun"], matches!(kind, "timeout" | "tool_failed"), "{ran:?}");
        }
    }
}

#[test]
fn l100_an_invalid_policy_stops_everything() {
    let desk = Desk::new();
    desk.user("[policy]\nstrickt = true\n");
    for args in [&["call", "demo", "echo", "message=x"][..], &["tools"], &["servers"], &["check"]] {
        let ran = desk.run(args);
        assert_eq!(ran.code, 7, "{ran:?}");
        assert!(ran.err.contains("strickt") && ran.err.contains("did you mean `strict`?"), "{ran:?}");
    }
    desk.user("[policy]\nstrict = true\n");
    desk.run(&["call", "demo", "echo", "message=x"]).ok();
}

#[test]
fn l100_help_is_for_everyone_and_usage_errors_are_two() {
    let desk = Desk::new();
    let help = desk.run(&["--help"]).ok();
    for command in [
        "call",
        "tools",
        "codegen",
        "servers",
        "check",
        "sandbox",
        "init",
        "add",
        "remove",
        "trust",
        "test-server",
        "completions",
    ] {
        assert!(help.out.contains(&format!("  {command}")), "{command}: {help:?}");
        desk.run(&[command, "--help"]).ok();
    }
    assert_eq!(desk.run(&["nonsense"]).code, 2);
    assert_eq!(desk.run(&["call", "demo"]).code, 2);
    assert_eq!(desk.run(&["tools", "--timeout", "soon"]).code, 2);
}

#[test]
fn l100_a_program_is_told_of_a_wrong_command_line_in_json() {
    let desk = Desk::new();
    for args in [&["call", "demo", "--json"][..], &["tools", "--format", "nonsense", "--json"], &["--json"]] {
        let ran = desk.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran:?}");
        assert_eq!(ran.error()["kind"], "usage", "{ran:?}");
    }
    let ran = desk.run(&["call", "demo"]);
    assert!(ran.code == 2 && ran.err.starts_with("error: ") && ran.err.contains("Usage:"), "{ran:?}");
}

#[test]
fn l100_what_is_done_to_files_is_one_document() {
    let desk = Desk::new();
    let one = |args: &[&str]| desk.run(&[args, &["--json"]].concat()).ok().json();
    assert!(one(&["init"])["file"].as_str().unwrap().ends_with("wharf.toml"));
    assert_eq!(one(&["add", "x", "https://example.com/mcp"])["added"], "x");
    assert_eq!(one(&["remove", "x"])["removed"], "x");
    assert_eq!(one(&["codegen", "demo", "-o", "demo.rs"])["changed"], true);
    assert_eq!(one(&["codegen", "demo", "-o", "demo.rs", "--check"])["changed"], false);
    assert_eq!(one(&["resources", "read", "demo", "demo://dot.png", "-o", "dot.png"])["bytes"], 70);
    assert_eq!(one(&["trust"])["trusted"], serde_json::json!([]));
    std::fs::write(desk.project().join(".mcp.json"), r#"{"mcpServers": {"a": {"command": "npx"}}}"#).unwrap();
    assert_eq!(one(&["trust", "--yes"])["trusted"].as_array().unwrap().len(), 1);
    assert_eq!(one(&["trust", "--revoke", "."])["revoked"].as_array().unwrap().len(), 1);
}
