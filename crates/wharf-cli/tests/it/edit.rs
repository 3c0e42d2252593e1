//! `wharf init`, `wharf add`, `wharf remove`.

use std::fs;

use crate::desk::Desk;

#[test]
fn l100_init_writes_a_file_that_is_valid_and_never_replaced() {
    let desk = Desk::new();
    desk.run(&["init"]).ok();
    let text = fs::read_to_string(desk.config()).unwrap();
    assert!(text.starts_with('#'));
    desk.run(&["check"]).ok();
    desk.user(&format!("{text}# mine\n"));
    assert_eq!(desk.run(&["init"]).code, 1);
    assert!(fs::read_to_string(desk.config()).unwrap().ends_with("# mine\n"));

    desk.run(&["init", "--project"]).ok();
    let servers = desk.run(&["servers"]).ok();
    assert!(!servers.out.contains("pending"), "what I wrote myself I trust: {servers:?}");
}

#[test]
fn l100_add_and_remove_keep_comments() {
    let desk = Desk::new();
    let before = "# my servers\n[mcp.first] # the first\ncommand = \"npx\" # from node\nargs = [\"-y\", \"a@1.0.0\"]\n";
    desk.user(before);
    desk.run(&[
        "add",
        "second",
        "-e",
        "LEVEL=debug",
        "-e",
        "TOKEN=${TOKEN}",
        "--",
        "uvx",
        "--from",
        "b==2.0",
        "b",
    ])
    .ok();
    let text = fs::read_to_string(desk.config()).unwrap();
    assert!(text.starts_with(before), "{text}");
    assert!(text.contains("\"--from\"") && text.contains("${TOKEN}") && text.contains("LEVEL"), "{text}");
    desk.run(&["add", "third", "https://example.com/mcp", "-H", "X-One: 1", "-H", "X-Two: a:b"]).ok();
    let document = desk.run(&["servers", "--json"]).json();
    let third = document["servers"].as_array().unwrap().iter().find(|s| s["name"] == "third").unwrap();
    assert_eq!(third["headers"], serde_json::json!(["X-One", "X-Two"]));

    let twice = desk.run(&["add", "first", "--", "npx", "x@1.0.0"]);
    assert_eq!(twice.code, 7, "{twice:?}");

    desk.run(&["remove", "second"]).ok();
    desk.run(&["remove", "third"]).ok();
    assert_eq!(fs::read_to_string(desk.config()).unwrap().trim_end(), before.trim_end());
}

#[test]
fn l100_removing_what_is_not_there_fails_with_a_suggestion() {
    let desk = Desk::new();
    desk.user("[mcp.github]\nurl = \"https://example.com/mcp\"\n");
    let ran = desk.run(&["remove", "githb"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("did you mean `github`?"), "{ran:?}");
}

#[test]
fn l100_a_credential_in_the_file_earns_a_warning() {
    let desk = Desk::new();
    let ran = desk
        .run(&["add", "gh", "https://example.com/mcp", "-H", "Authorization: Bearer abcdefghijklmnop"])
        .ok();
    assert!(ran.err.contains("warning:") && ran.err.contains("Bearer ${GH_TOKEN}"), "{ran:?}");
    assert!(!ran.err.contains("abcdefgh"), "{ran:?}");
    let ran =
        desk.run(&["add", "gh2", "https://example.com/mcp", "-H", "Authorization: Bearer ${GH_TOKEN}"]).ok();
    assert!(!ran.err.contains("looks like a credential"), "{ran:?}");
}

#[test]
fn l104_a_command_without_dashes_is_explained() {
    let ran = Desk::new().run(&["add", "files", "npx", "server-files"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("wharf add files -- npx server-files"), "{ran:?}");
}

#[test]
fn cfg_07_adding_to_a_file_that_others_wrote_does_not_trust_it() {
    let desk = Desk::new();
    desk.mcp_json(
        "{\"mcpServers\": {\"theirs\": {\"command\": \"npx\", \"args\": [\"-y\", \"x@1.0.0\"]}}}\n",
    );
    let ran = desk.run(&["add", "mine", "-s", "project", "--", "npx", "-y", "mine@1.0.0"]).ok();
    assert!(ran.err.contains("wharf trust ~/project/.mcp.json"), "{ran:?}");
    let servers = desk.run(&["servers"]).ok();
    assert_eq!(servers.out.matches("pending").count(), 2, "{servers:?}");

    // A file that I trusted stays trusted, and so does one that I began.
    desk.run(&["trust", "--yes"]).ok();
    desk.run(&["add", "more", "-s", "project", "--", "npx", "-y", "more@1.0.0"]).ok();
    assert!(!desk.run(&["servers"]).ok().out.contains("pending"));
    let fresh = Desk::new();
    fresh.run(&["add", "mine", "-s", "project", "--", "npx", "-y", "mine@1.0.0"]).ok();
    assert!(!fresh.run(&["servers"]).ok().out.contains("pending"));
}
