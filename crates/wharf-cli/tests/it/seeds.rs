//! The commands at a prompt that one of the designs has which Wharf grew out of, row by row. The rest of the designs is in
//! the library's tests.

use crate::desk::{Desk, Ran};

/// Two servers that work. Nobody has been asked for consent, and nobody sits at the prompt.
fn desk() -> Desk {
    let desk = Desk::new();
    let server = desk.good_server();
    let text = format!(
        "[policy]\ncommands = [{server:?}]\n[mcp.github]\ncommand = {server:?}\n[mcp.filesystem]\ncommand = {server:?}\n"
    );
    desk.user(&text);
    desk
}

fn repl(desk: &Desk, lines: &[&str]) -> Ran {
    desk.run_with_input(&["repl"], &(lines.join("\n") + "\n"))
}

/// State and visibility of a server, by the lines of `/mcp`.
fn states<'a>(ran: &'a Ran, server: &str) -> Vec<(&'a str, &'a str)> {
    let rows = ran.out.lines().filter_map(|line| line.split_once('\t').filter(|(name, _)| *name == server));
    rows.map(|(_, rest)| rest.split_once('\t').unwrap())
        .map(|(state, rest)| (state, rest.split('\t').next().unwrap()))
        .collect()
}

#[test]
fn nexus3_mcp_lists_configured_and_connected_servers() {
    let desk = desk();
    let ran = repl(&desk, &["/mcp", "/mcp connect github", "/mcp", "/mcp disconnect github", "/mcp"]).ok();
    let github = states(&ran, "github");
    assert_eq!(github, [("not connected", "-"), ("connected", "private"), ("not connected", "-")], "{ran:?}");
    assert_eq!(states(&ran, "filesystem"), [("not connected", "-"); 3], "{ran:?}");
    assert!(!desk.is_alive(&std::fs::read_to_string(desk.mark()).unwrap()), "disconnected is ended");
}

#[test]
fn nexus3_mcp_connect_asks_and_its_flags_say_how() {
    let call = "github.echo message=hello";
    // Consent is asked for at the first use, and nobody is here to give it.
    let asked = repl(&desk(), &["/mcp connect github", call]);
    assert_eq!((asked.code, asked.out.as_str()), (6, ""), "{asked:?}");
    let each = repl(&desk(), &["/mcp connect github --per-tool", call]);
    assert_eq!((each.code, each.out.as_str()), (6, ""), "{each:?}");
    assert!(each.err.contains("denied by consent"), "{each:?}");
    let all = repl(&desk(), &["/mcp connect github --allow-all", call, "github.add a=2 b=3"]).ok();
    assert_eq!(all.out, "hello\n5\n", "{all:?}");
}

#[test]
fn nexus3_mcp_connect_shared_or_private() {
    let lines = ["/mcp connect github --shared", "/mcp connect filesystem --private", "/mcp"];
    let ran = repl(&desk(), &lines).ok();
    assert_eq!(states(&ran, "github"), [("connected", "shared")], "{ran:?}");
    assert_eq!(states(&ran, "filesystem"), [("connected", "private")], "{ran:?}");
}

#[test]
fn nexus3_mcp_tools_of_all_and_of_one() {
    let desk = desk();
    let connect = ["/mcp connect github", "/mcp connect filesystem"];
    let all = repl(&desk, &[connect[0], connect[1], "/mcp tools"]).ok();
    let one = repl(&desk, &[connect[0], connect[1], "/mcp tools filesystem"]).ok();
    let of =
        |ran: &Ran, server: &str| ran.out.lines().filter(|l| l.starts_with(&format!("{server}\t"))).count();
    assert_eq!((of(&all, "github"), of(&all, "filesystem")), (8, 8), "{all:?}");
    assert_eq!((of(&one, "github"), of(&one, "filesystem")), (0, 8), "{one:?}");
    assert!(one.out.starts_with("filesystem\techo\t"), "{one:?}");
}
