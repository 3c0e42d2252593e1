//! `wharf status` and `wharf top`: a running gateway, seen from another terminal.

use serde_json::{Value, json};

use crate::desk::Desk;
use crate::screen::Screen;
use crate::serve::Serving;

/// A desk with a server that works and one that does not.
fn with_two() -> Desk {
    let desk = Desk::new();
    let (good, dying) = (desk.good_server(), desk.dying_server());
    desk.user(&format!(
        "[policy]\ncommands = [{good:?}, {dying:?}]\n[mcp.good]\ncommand = {good:?}\n[mcp.dying]\ncommand = {dying:?}\n"
    ));
    desk
}

/// Calls a tool through the gateway.
fn call(desk: &Desk, url: &str, words: &[&str]) -> i32 {
    let file = desk.home().join("caller.json");
    let config = json!({"mcpServers": {"all": {"type": "http", "url": url}}});
    desk.write(&file, &config.to_string());
    let file = file.display().to_string();
    desk.run(&[&["--config", &file, "call", "all"], words].concat()).code
}

fn server<'a>(status: &'a Value, name: &str) -> &'a Value {
    status["servers"].as_array().unwrap().iter().find(|server| server["name"] == name).unwrap()
}

#[test]
fn l96_status_tells_of_servers_calls_and_troubles() {
    let desk = with_two();
    let serving = Serving::start(&desk);
    for _ in 0..3 {
        assert_eq!(call(&desk, &serving.url, &["good_echo", "message=hello"]), 0);
    }
    assert_ne!(call(&desk, &serving.url, &["good_fail", "message=low tide"]), 0);
    let status = desk.run(&["status", &serving.url, "--json"]).ok().json();
    assert_eq!(status["ready"], true, "{status}");
    let good = server(&status, "good");
    assert_eq!((&good["calls"], &good["errors"], &good["inFlight"]), (&json!(4), &json!(1), &json!(0)));
    assert_eq!(good["outcomes"], json!({"ok": 3, "tool_failed": 1}));
    assert_eq!((&good["state"], &good["processes"]), (&json!("connected"), &json!(1)));
    assert!(good["p50Us"].as_u64() <= good["p99Us"].as_u64() && good["p50Us"].is_u64(), "{good}");
    let dying = server(&status, "dying");
    assert!(dying["trouble"].as_str().unwrap().contains("dying"), "{dying}");
    assert_eq!(dying["processes"], 0);

    let said = desk.run(&["status", &serving.url]).ok();
    let line = said.out.lines().find(|line| line.starts_with("good\t")).unwrap();
    assert!(line.starts_with("good\tconnected\t4\t1\t"), "{line}");
    assert!(said.err.contains("is ready"), "{said:?}");
    let url = serving.url.clone();
    assert_eq!(serving.stop(), 0);
    let gone = desk.run(&["status", &url, "--json"]);
    assert_eq!((gone.code, gone.error()["kind"].as_str()), (4, Some("connection")), "{gone:?}");
    let gone = desk.run(&["status", &url]);
    let at = url.trim_end_matches("/mcp");
    assert!(gone.err.contains(&format!("no gateway answers at {at}")), "{gone:?}");
    assert!(gone.err.contains("is `wharf serve` running?") && !gone.err.contains("the call"), "{gone:?}");
    assert_eq!(desk.run(&["status", "ftp://x"]).code, 7);
    assert_eq!(desk.run(&["status", "no address"]).code, 2);
}

#[test]
fn l96_status_says_with_its_exit_that_a_required_server_is_down() {
    let desk = with_two();
    let text = std::fs::read_to_string(desk.config()).unwrap();
    for (required, code) in [("dying", 1), ("good", 0)] {
        desk.user(&format!("{text}[gateway]\nrequired = [\"{required}\"]\n"));
        let serving = Serving::start(&desk);
        assert_eq!(call(&desk, &serving.url, &["good_echo", "message=hello"]), 0);
        let said = desk.run(&["status", &serving.url]);
        assert_eq!(said.code, code, "{said:?}");
        assert_eq!(said.err.contains("not ready") && said.err.contains("dying: "), code == 1, "{said:?}");
        assert_eq!(serving.stop(), 0);
    }
    desk.user(&format!("{text}[gateway]\nrequired = [\"absent\"]\noperators = [\"\"]\n"));
    let refused = desk.run(&["serve"]);
    assert_eq!(refused.code, 7, "{refused:?}");
}

#[test]
fn l96_status_needs_a_key_where_callers_do() {
    let desk = with_two();
    let key = desk.run(&["keys", "add", "ops"]).ok().out.trim().to_owned();
    let serving = Serving::start(&desk);
    let refused = desk.run(&["status", &serving.url]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.err.contains("WHARF_KEY"), "{refused:?}");
    let with_key = desk.command(&["status", &serving.url]).env("WHARF_KEY", &key).output().unwrap();
    assert!(with_key.status.success(), "{with_key:?}");
    let other = ["status", &serving.url, "--key-env", "OPS_KEY"];
    assert!(desk.command(&other).env("OPS_KEY", &key).output().unwrap().status.success());
    // A key is not sent where others can read it.
    let open = desk.command(&["status", "http://example.org"]).env("WHARF_KEY", &key).output().unwrap();
    assert_eq!(open.status.code(), Some(6), "{open:?}");
    assert_eq!(serving.stop(), 0);
}

#[test]
fn l96_top_without_a_terminal_measures_once() {
    let desk = with_two();
    let serving = Serving::start(&desk);
    assert_eq!(call(&desk, &serving.url, &["good_echo", "message=hello"]), 0);
    let said = desk.run(&["top", &serving.url, "--interval", "50ms"]).ok();
    let line = said.out.lines().find(|line| line.starts_with("good\t")).unwrap();
    assert!(line.starts_with("good\tconnected\t0.0\t0.0\t") && line.ends_with("\t1\t0"), "{line}");
    let document = desk.run(&["top", &serving.url, "--interval", "50ms", "--json"]).ok().json();
    assert_eq!(server(&document, "good")["callsPerSecond"], 0.0);
    assert_eq!(serving.stop(), 0);
}

#[test]
fn l96_top_redraws_until_q_and_leaves_the_terminal_as_it_was() {
    let desk = with_two();
    let serving = Serving::start(&desk);
    assert_eq!(call(&desk, &serving.url, &["good_echo", "message=one"]), 0);
    let screen = Screen::start(&desk, &format!("top --interval 100ms {}", serving.url));
    let first = screen.shows("CALLS/S");
    assert!(first.contains("is ready") && first.contains("good"), "{first}");
    assert_eq!(call(&desk, &serving.url, &["good_echo", "message=two"]), 0);
    let row = |screen: &str| screen.lines().find(|line| line.starts_with("good")).map(str::to_owned);
    screen.until("two calls", |screen| row(screen).is_some_and(|row| row.ends_with("2      0")));
    screen.key("x").key("q").shows("ended with 0");
    // A terminal that does not know its size has room for the words all the same.
    let sizeless = format!("top --interval 100ms {}", serving.url);
    let sizeless = Screen::start_after(&desk, "stty cols 0 rows 0", &sizeless);
    sizeless.shows("SERVER  STATE");
    sizeless.key("q").shows("ended with 0");
    let after = screen.ends_with("icanon");
    assert!(!after.contains("CALLS/S"), "the screen of before is back: {after}");
    // A gateway that goes ends it, with a word of it.
    let screen = Screen::start(&desk, &format!("top --interval 100ms {}", serving.url));
    screen.shows("CALLS/S");
    assert_eq!(serving.stop(), 0);
    let after = screen.ends_with("icanon");
    assert!(after.contains("ended with 4") && after.contains("error:"), "{after}");
}

/// Servers with names short and long, one of which cannot be reached.
fn with_long_names() -> Desk {
    let desk = Desk::new();
    let (good, dying) = (desk.good_server(), desk.dying_server());
    let long = "a-server-with-a-name-of-32-chars";
    desk.user(&format!(
        "[policy]\ncommands = [{good:?}, {dying:?}]\n[mcp.good]\ncommand = {good:?}\n\
         [mcp.dying]\ncommand = {dying:?}\n[mcp.{long}]\ncommand = {good:?}\n"
    ));
    desk
}

#[test]
fn l96_tables_keep_to_one_line_a_row_however_wide_the_terminal_is() {
    for desk in [with_two(), with_long_names()] {
        let is_long = std::fs::read_to_string(desk.config()).unwrap().contains("a-server");
        let serving = Serving::start(&desk);
        assert_eq!(call(&desk, &serving.url, &["good_echo", "message=hello"]), 0);
        for columns in [80, 100, 200] {
            let look = |command: &str, wanted: &str| {
                let screen = Screen::start_in(&desk, columns, "true", &format!("{command} {}", serving.url));
                let names = ["good", "dying", if is_long { "a-server" } else { "" }];
                let is_there =
                    |seen: &str| seen.contains(wanted) && names.iter().all(|name| seen.contains(name));
                let seen = screen.until(wanted, is_there);
                assert!(!seen.contains("IN FLIGHT"), "{seen}");
                seen
            };
            let row = |seen: &str, start: &str| {
                let found: Vec<&str> = seen.lines().filter(|line| line.starts_with(start)).collect();
                assert_eq!(found.len(), 1, "one line at {columns} columns: {seen}");
                found[0].to_owned()
            };
            let top = look("top --interval 100ms", "BUSY");
            let head = row(&top, "SERVER");
            assert!(head.contains("CALLS/S") && head.contains("P99") && head.contains("WAITING"), "{top}");
            assert_eq!(head.ends_with("ERRORS"), columns > 80 && !is_long || columns == 200, "{top}");
            let is_cut =
                |seen: &str| row(seen, "a-server").split_whitespace().any(|word| word.ends_with('…'));
            // Names are whole where anything else can give way.
            assert!(!is_long || is_cut(&top) == (columns == 80), "{top}");
            let status = look("status", "ended with 0");
            let (head, dying) = (row(&status, "SERVER"), row(&status, "dying"));
            assert!(head.contains("CALLS  ERRORS") && head.ends_with("TROUBLE"), "{status}");
            // Words are cut first, so there may be room for them again where columns are left out.
            assert!(columns < 200 || dying.ends_with("exit status 3"), "{status}");
            assert!(columns == 200 || !is_long || dying.ends_with('…'), "{status}");
            // At 100 it depends on how long the times are.
            assert!(!is_long || columns == 100 || is_cut(&status) == (columns == 80), "{status}");
        }
        assert_eq!(serving.stop(), 0);
    }
}
