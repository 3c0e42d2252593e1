//! A project's file has no say before it is trusted.

use std::fs;

use crate::desk::{Desk, Ran};

/// A desk at which a project defines a server that leaves a mark. The user's policy would let it start.
fn hostile() -> Desk {
    let desk = Desk::new();
    let server = desk.good_server();
    desk.user(&format!("[policy]\ncommands = [{server:?}]\n"));
    desk.mcp_json(&format!("{{\"mcpServers\": {{\"theirs\": {{\"command\": {server:?}}}}}}}\n"));
    desk
}

fn complete(desk: &Desk) -> Ran {
    let mut command = desk.command(&["--", "wharf", "call", ""]);
    command.env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", "2").env("_CLAP_IFS", "\n");
    Ran::from(command.output().unwrap())
}

#[test]
fn cfg_08_looking_never_starts_anything() {
    let desk = hostile();
    let pending = desk.run(&["servers"]).ok();
    assert!(pending.out.starts_with("theirs\t-\tpending: run `wharf trust`\t"), "{pending:?}");
    desk.run(&["servers", "--json"]).ok();
    desk.run(&["check"]).ok();
    assert!(complete(&desk).ok().out.contains("theirs"));
    assert!(!desk.was_started(), "an untrusted server was started");

    // Trusted or not, looking is only looking.
    desk.run(&["trust", "--yes"]).ok();
    desk.run(&["servers"]).ok();
    desk.run(&["check"]).ok();
    assert!(complete(&desk).ok().out.contains("theirs"));
    assert!(!desk.was_started(), "looking started a server");

    // The same server, asked for: the mark works.
    assert_eq!(desk.run(&["call", "theirs", "echo", "message=hi"]).ok().out, "hi\n");
    assert!(desk.was_started());
}

#[test]
fn cfg_07_a_projects_server_waits_for_trust() {
    let desk = hostile();
    for args in [&["call", "theirs", "echo", "message=hi"][..], &["tools"], &["tools", "theirs"]] {
        let ran = desk.run(args);
        assert_eq!(ran.code, 6, "{ran:?}");
        assert!(
            ran.err.contains("hint: look at it and trust it: wharf trust ~/project/.mcp.json"),
            "{ran:?}"
        );
    }
    let ran = desk.run(&["call", "theirs", "echo", "--json"]);
    assert_eq!(ran.error()["kind"], "pending");
    assert!(!desk.was_started());

    // Others work as before.
    desk.run(&["call", "demo", "echo", "message=x"]).ok();

    let shown = desk.run(&["trust", "--yes", ".mcp.json"]).ok();
    assert!(shown.err.contains(&desk.good_server()), "what is trusted is shown whole: {shown:?}");
    desk.run(&["tools"]).ok();
    assert!(desk.was_started());
}

#[test]
fn cfg_07_a_broken_project_file_fails_the_check_and_nothing_else() {
    let desk = Desk::new();
    desk.mcp_json("{\"mcpServers\": {\"theirs\": {\"command\": \"node\"\n");
    let ran = desk.run(&["check"]);
    assert_eq!(ran.code, 7, "{ran:?}");
    assert!(ran.err.contains("cannot be trusted: this is not valid JSON"), "{ran:?}");
    let ran = desk.run(&["check", "--json"]);
    assert!(ran.code == 7 && ran.out.contains("\"ok\":false"), "{ran:?}");
    desk.run(&["call", "demo", "echo", "message=x"]).ok();

    // One that only waits for trust is in order.
    desk.mcp_json("{\"mcpServers\": {\"theirs\": {\"command\": \"node\", \"args\": [\"a.js\"]}}}\n");
    desk.run(&["check"]).ok();
}

#[test]
fn cfg_07_an_untrusted_file_cannot_take_a_name_over() {
    let desk = hostile();
    let server = desk.good_server();
    desk.mcp_json(&format!("{{\"mcpServers\": {{\"demo\": {{\"command\": {server:?}}}}}}}\n"));
    // The built-in server is no stand-in for one that the project means.
    assert_eq!(desk.run(&["call", "demo", "echo", "message=x"]).code, 6);
    assert!(!desk.was_started());
}

#[test]
fn cfg_04_one_changed_byte_needs_trust_again() {
    let desk = hostile();
    desk.run(&["trust", "--yes"]).ok();
    desk.run(&["call", "theirs", "echo", "message=hi"]).ok();
    fs::remove_file(desk.mark()).unwrap();

    let path = desk.project().join(".mcp.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text} ")).unwrap();
    let ran = desk.run(&["call", "theirs", "echo", "message=hi"]);
    assert_eq!(ran.code, 6, "{ran:?}");
    assert!(ran.err.contains("has changed since you trusted it"), "{ran:?}");
    assert!(!desk.was_started());

    desk.run(&["trust", "--yes"]).ok();
    desk.run(&["call", "theirs", "echo", "message=hi"]).ok();
    assert!(desk.was_started());
}

#[test]
fn cfg_07_trust_needs_a_person_or_a_yes() {
    let desk = hostile();
    let ran = desk.run(&["trust"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("wharf trust --yes ~/project/.mcp.json"), "{ran:?}");
    let ran = desk.run_with_input(&["trust"], "y\n");
    assert_eq!(ran.code, 1, "a pipe is no person: {ran:?}");
    assert_eq!(desk.run(&["call", "theirs", "echo", "message=hi"]).code, 6);

    desk.run(&["trust", "--yes"]).ok();
    desk.run(&["call", "theirs", "echo", "message=hi"]).ok();
    desk.run(&["trust", "--revoke", ".mcp.json"]).ok();
    assert_eq!(desk.run(&["call", "theirs", "echo", "message=hi"]).code, 6);
}

#[test]
fn cfg_07_a_file_on_the_command_line_needs_no_trust() {
    let desk = hostile();
    let ran = desk.run(&["--config", ".mcp.json", "call", "theirs", "echo", "message=hi"]).ok();
    assert_eq!(ran.out, "hi\n");
}

#[test]
fn cfg_07_a_trusted_project_cannot_widen_policy() {
    let desk = hostile();
    let server = desk.good_server();
    fs::remove_file(desk.config()).unwrap();
    desk.run(&["trust", "--yes"]).ok();
    let ran = desk.run(&["call", "theirs", "echo", "message=hi"]);
    assert_eq!(ran.code, 6, "trust is not permission: {ran:?}");
    let toml = format!("[policy]\ncommands = [{server:?}]\n");
    desk.write(&desk.project().join("wharf.toml"), &toml);
    desk.run(&["trust", "--yes"]).ok();
    let ran = desk.run(&["call", "theirs", "echo", "message=hi"]);
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(!desk.was_started());

    // The user may.
    fs::remove_file(desk.project().join("wharf.toml")).unwrap();
    desk.user(&toml);
    desk.run(&["call", "theirs", "echo", "message=hi"]).ok();
}
