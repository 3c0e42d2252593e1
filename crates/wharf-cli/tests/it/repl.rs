//! `wharf repl` in a pipe: lines in, results out, and an exit status that scripts can rely on.

use std::fs;

use crate::desk::{Desk, Ran};

fn script(desk: &Desk, args: &[&str], lines: &[&str]) -> Ran {
    desk.run_with_input(&[&["repl"], args].concat(), &(lines.join("\n") + "\n"))
}

#[test]
fn l101_a_script_connects_lists_calls_and_disconnects() {
    let ran = script(
        &Desk::new(),
        &[],
        &[
            "# what is there",
            "/mcp",
            "/mcp connect demo --allow-all",
            "/mcp",
            "/mcp tools demo",
            "demo.echo message='hello there'",
            "demo_add {\"a\": 1} b=2",
            "/mcp disconnect demo",
            "/mcp",
            "/quit",
            "demo.echo message=never",
        ],
    )
    .ok();
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines[0], "demo\tnot connected\t-\t-\twharf test-server", "{ran:?}");
    assert_eq!(lines[1], "demo\tconnected\tprivate\t8\twharf test-server", "{ran:?}");
    assert_eq!(lines[2], "demo\techo\tSays a message again.", "{ran:?}");
    assert_eq!(lines[10..], ["hello there", "3", lines[0]], "{ran:?}");
    assert!(!ran.out.contains("wharf>"), "nobody needs a prompt: {ran:?}");
    assert!(ran.err.contains("connected demo: 8 tools (private, everything allowed)"), "{ran:?}");
}

#[test]
fn l101_nothing_is_started_until_it_is_connected() {
    let desk = Desk::new();
    let server = desk.good_server();
    desk.user(&format!("[policy]\ncommands = [{server:?}]\n[mcp.good]\ncommand = {server:?}\n"));
    let ran = script(&desk, &[], &["/mcp", "/mcp tools", "good.echo message=x"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("server `good` is not connected"), "{ran:?}");
    assert!(ran.err.contains("hint: connect it: /mcp connect good"), "{ran:?}");
    assert!(!desk.was_started());
    script(&desk, &[], &["/mcp connect good"]).ok();
    assert!(desk.was_started());
}

#[test]
fn l22_in_a_pipe_nobody_consents_but_flags_do() {
    let desk = Desk::new();
    let call = "demo.echo message=hello";
    let refused = script(&desk, &[], &["/mcp connect demo", call]);
    assert_eq!((refused.code, refused.out.as_str()), (6, ""), "{refused:?}");
    assert!(refused.err.contains("denied by consent"), "{refused:?}");
    assert!(refused.err.contains("--allow-all") && refused.err.contains("--permission yolo"), "{refused:?}");
    let per_tool = script(&desk, &[], &["/mcp connect demo --per-tool", call]);
    assert_eq!(per_tool.code, 6, "{per_tool:?}");
    let allowed = script(&desk, &[], &["/mcp connect demo --allow-all", call]).ok();
    let yolo = script(&desk, &["--permission", "yolo"], &["/mcp connect demo", call]).ok();
    assert_eq!((allowed.out.as_str(), yolo.out.as_str()), ("hello\n", "hello\n"));
}

#[test]
fn l21_a_sandboxed_session_has_no_servers() {
    let desk = Desk::new();
    let ran = script(&desk, &["--permission", "sandboxed"], &["/mcp connect demo --allow-all"]);
    assert_eq!(ran.code, 6, "{ran:?}");
    assert!(ran.err.contains("sandboxed, so no MCP server"), "{ran:?}");
    assert!(ran.err.contains("--permission trusted"), "{ran:?}");
}

#[test]
fn l101_a_failure_is_told_and_the_rest_goes_on() {
    let desk = Desk::new();
    let ran = script(
        &desk,
        &[],
        &[
            "/mcp connect demo --allow-all --shared",
            "demo.fail message=no",
            "demo.ehco message=x",
            "demo.add a=1 b=x",
            "/mcp conect demo",
            "/mcp connect dmeo",
            "elpmis",
            "/mcp",
            "demo.echo message=last",
        ],
    );
    assert_eq!(ran.code, 5, "that of the first failure: {ran:?}");
    assert_eq!(ran.out, "no\ndemo\tconnected\tshared\t8\twharf test-server\nlast\n", "{ran:?}");
    for said in [
        "the tool says that it failed (`fail` of `demo`)",
        "did you mean `echo`?",
        "usage: demo.add a=NUMBER b=NUMBER",
        "did you mean `connect`?",
        "did you mean `demo`?",
        "`/mcp tools` lists what there is",
    ] {
        assert!(ran.err.contains(said), "{said}: {ran:?}");
    }
}

#[test]
fn l101_json_is_one_document_a_command() {
    let ran = script(
        &Desk::new(),
        &["--json"],
        &[
            "/mcp connect demo --allow-all",
            "/mcp",
            "/mcp tools demo",
            "demo.add a=1 b=2",
            "/mcp disconnect demo",
        ],
    )
    .ok();
    let documents: Vec<serde_json::Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [connected, servers, tools, sum, gone] = &documents[..] else { panic!("{ran:?}") };
    assert_eq!((&connected["connected"], &connected["tools"][0]), (&"demo".into(), &"demo_echo".into()));
    assert_eq!(
        (&servers["servers"][0]["state"], &servers["servers"][0]["tools"]),
        (&"connected".into(), &8.into())
    );
    assert_eq!(tools["tools"][0]["tool"]["name"], "echo");
    assert_eq!(sum["structuredContent"]["sum"], 3);
    assert_eq!(gone["disconnected"], "demo");
}

#[test]
fn l17_a_project_that_is_not_trusted_offers_nothing() {
    let desk = Desk::new();
    let server = desk.good_server();
    desk.mcp_json(&format!("{{\"mcpServers\": {{\"theirs\": {{\"command\": {server:?}}}}}}}"));
    let ran = script(&desk, &[], &["/mcp", "/mcp connect theirs", "/mcp connect demo"]);
    assert_eq!(ran.code, 6, "{ran:?}");
    assert!(ran.out.contains("theirs\tnot trusted\t"), "{ran:?}");
    assert!(ran.err.contains("which is not trusted") && ran.err.contains("wharf trust"), "{ran:?}");
    assert!(ran.err.contains("connected demo"), "{ran:?}");
    assert!(!desk.was_started());
}

#[test]
fn l101_a_disabled_server_stays_off() {
    let desk = Desk::new();
    let server = desk.good_server();
    desk.user(&format!(
        "[policy]\ncommands = [{server:?}]\n[mcp.off]\nenabled = false\ncommand = {server:?}\n"
    ));
    let ran = script(&desk, &[], &["/mcp", "/mcp connect off"]);
    assert_eq!(ran.code, 6, "{ran:?}");
    assert!(ran.out.starts_with("off\tdisabled\t"), "{ran:?}");
    assert!(!desk.was_started());
}

#[test]
fn l101_a_script_leaves_no_history_and_no_process() {
    let desk = Desk::new();
    let server = desk.good_server();
    desk.user(&format!("[policy]\ncommands = [{server:?}]\n[mcp.good]\ncommand = {server:?}\n"));
    script(&desk, &[], &["/mcp connect good"]).ok();
    assert!(!desk.home().join(".local/state/wharf/history").exists());
    let pid = fs::read_to_string(desk.mark()).unwrap();
    assert!(!desk.is_alive(&pid), "the server is still there");
}
