//! `wharf repl` at a real terminal: consent, Tab, history, and what is said above the prompt.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;
use wharf_testkit::{Era, Puppet, Step, puppet_path};

use crate::desk::Desk;
use crate::screen::Screen;

/// How the question after a tool's arguments ends.
const ASKED: &str = "Allow it? [o]nce [t]ool [s]erver se[ss]ion [N]o:";

/// A desk with the good server, as `good`.
fn with_good_server() -> Desk {
    let desk = Desk::new();
    let server = desk.good_server();
    desk.user(&format!("[policy]\ncommands = [{server:?}]\n[mcp.good]\ncommand = {server:?}\n"));
    desk
}

/// A desk with a scripted server, as `pup`.
fn with_puppet(puppet: &Puppet) -> Desk {
    let desk = Desk::new();
    dock_puppet(&desk, puppet);
    desk
}

fn dock_puppet(desk: &Desk, puppet: &Puppet) {
    let script = desk.home().join("script.json");
    fs::write(&script, serde_json::to_string(&puppet.script).unwrap()).unwrap();
    let start = format!("exec '{}' --file '{}'", puppet_path().display(), script.display());
    let server = desk.server("pup", &start);
    desk.user(&format!("[policy]\ncommands = [{server:?}]\n[mcp.pup]\ncommand = {server:?}\n"));
}

#[test]
fn l101_connect_list_call_consent_and_disconnect() {
    let desk = Desk::new();
    let screen = Screen::open(&desk);
    screen.command("/mcp", "demo  not connected");
    screen.command("/mcp connect demo", "connected demo: 8 tools (private)");
    screen.command("/mcp", "demo  connected  private     8");
    screen.command("/mcp tools demo", "Says a message again.");
    screen.clear();

    screen.line("demo.echo message=one", ASKED);
    let refused = screen.command("n", "denied by consent");
    assert!(refused.contains("`echo` of `demo` is to be called with {\"message\":\"one\"}"), "{refused}");
    assert!(!refused.contains("\none\n"), "{refused}");
    screen.clear();

    screen.line("demo.echo message=two", ASKED);
    screen.command("", "denied by consent");
    screen.clear();

    screen.line("demo.echo message=three", ASKED);
    screen.command("o", "\nthree\n");
    screen.clear();
    screen.line("demo.echo message=four", ASKED);
    screen.command("s", "\nfour\n");
    screen.clear();
    let unasked = screen.command("demo.add a=20 b=22", "\n42\n");
    assert!(!unasked.contains("Allow it?"), "{unasked}");

    screen.command("/mcp disconnect demo", "disconnected demo");
    screen.command("demo.echo message=five", "server `demo` is not connected");
    screen.line("/quit", "ended with 0");
    screen.ends_with("icanon");
}

#[test]
fn l22_per_tool_offers_no_more_and_asks_for_each() {
    let desk = Desk::new();
    let screen = Screen::open(&desk);
    screen.command("/mcp connect demo --per-tool --shared", "(shared, every tool asked for by itself)");
    screen.line("demo.echo message=one", "Allow it? [o]nce [t]ool [N]o:");
    screen.command("s", "denied by consent");
    screen.clear();
    screen.line("demo.echo message=two", "[N]o:");
    screen.command("t", "\ntwo\n");
    screen.clear();
    let again = screen.command("demo.echo message=three", "\nthree\n");
    assert!(!again.contains("Allow it?"), "{again}");
    screen.line("demo.add a=1 b=2", "`add` of `demo` is to be called");
    screen.ends_with("Allow it? [o]nce [t]ool [N]o:");
    // Ctrl-C is a no, and ends the command.
    screen.key("C-c").shows("interrupted");
    screen.prompt();
}

#[test]
fn l22_a_yes_may_reach_as_far_as_the_session() {
    let desk = with_good_server();
    let screen = Screen::open(&desk);
    screen.command("/mcp connect demo", "connected demo");
    screen.command("/mcp connect good", "connected good");
    screen.line("demo.echo message=one", ASKED);
    screen.command("ss", "\none\n");
    screen.clear();
    let unasked = screen.command("good.echo message=two", "\ntwo\n");
    assert!(!unasked.contains("Allow it?"), "{unasked}");
}

#[test]
fn l101_tab_completes_commands_servers_tools_and_arguments() {
    let desk = Desk::new();
    let screen = Screen::open(&desk);
    screen.text("/mcp con").key("Tab").ends_with("wharf> /mcp connect");
    screen.text("de").key("Tab").text("--al").key("Tab").ends_with("wharf> /mcp connect demo --allow-all");
    screen.key("Enter").shows("everything allowed");
    screen.prompt();

    screen.text("demo.").key("Tab").key("Tab").shows("demo.get_time");
    screen.text("ec").key("Tab").ends_with("wharf> demo.echo");
    screen.text("me").key("Tab").ends_with("wharf> demo.echo message=");
    screen.text("done").key("Enter").shows("\ndone\n");
    screen.prompt();

    screen.text("demo_bl").key("Tab").text("by").key("Tab").text("3 ki").key("Tab").text("te").key("Tab");
    screen.ends_with("wharf> demo_blob bytes=3 kind=text");
    screen.key("Enter").shows("\nxxx\n");
}

#[test]
fn l101_history_is_kept_but_for_secrets() {
    let desk = Desk::new();
    let screen = Screen::open(&desk);
    screen.command("/mcp connect demo --allow-all", "everything allowed");
    screen.command("demo.echo message=remembered", "\nremembered\n");
    screen.command("demo.echo message=ghp_0123456789abcdef0123", "\nghp_0123456789abcdef0123\n");
    screen.command("demo.echo token=hunter2", "unknown field `token`");
    screen.key("Up").ends_with("wharf> demo.echo message=remembered");
    screen.key("C-u").key("C-d").shows("ended with 0");
    drop(screen);

    let history = desk.home().join(".local/state/wharf/history");
    let kept = fs::read_to_string(&history).unwrap();
    assert!(kept.contains("demo.echo message=remembered"), "{kept}");
    assert!(!kept.contains("ghp_") && !kept.contains("hunter2"), "{kept}");
    assert_eq!(fs::metadata(&history).unwrap().permissions().mode() & 0o777, 0o600);

    let screen = Screen::open(&desk);
    screen.key("Up").ends_with("wharf> demo.echo message=remembered");
    screen.key("Up").ends_with("wharf> /mcp connect demo --allow-all");
}

#[test]
fn l101_progress_and_news_stand_above_the_prompt() {
    let desk = with_good_server();
    let screen = Screen::open(&desk);
    screen.command("/mcp connect good --allow-all", "everything allowed");
    let slept = screen.command("good.sleep ms=1500", "Slept 1500 ms.");
    let at = |text: &str| slept.find(text).unwrap_or_else(|| panic!("{text} is not in\n{slept}"));
    assert!(at("sleep 10 %") < at("Slept 1500 ms."), "{slept}");

    screen.text("good.echo message=hal").ends_with("wharf> good.echo message=hal");
    let pid = fs::read_to_string(desk.mark()).unwrap();
    desk.kill(&pid);
    let told = screen.shows("good is reconnecting");
    assert!(told.find("good is reconnecting") < told.rfind("wharf> "), "{told}");
    screen.ends_with("wharf> good.echo message=hal");
    screen.text("ved").ends_with("wharf> good.echo message=halved");
    screen.key("Enter").shows("\nhalved\n");
}

#[test]
fn l101_ctrl_c_ends_a_call_and_not_the_prompt() {
    let desk = with_good_server();
    let screen = Screen::open(&desk);
    screen.key("C-c").shows("(`/quit` or Ctrl-D leaves)");
    screen.prompt();
    screen.command("/mcp connect good --allow-all", "everything allowed");
    screen.line("good.sleep ms=300000", "calling sleep");
    screen.key("C-c").shows("interrupted");
    screen.prompt();
    screen.command("good.echo message=still", "\nstill\n");
    let pid = fs::read_to_string(desk.mark()).unwrap();
    assert!(desk.is_alive(&pid), "the server has done nothing wrong");
    screen.key("C-d").shows("ended with 0");
    screen.ends_with("icanon");
    assert!(!desk.is_alive(&pid), "the server is still there");
}

#[test]
fn l101_a_prompt_that_is_ended_leaves_the_terminal_as_it_was() {
    let desk = with_good_server();
    let screen = Screen::open(&desk);
    screen.command("/mcp connect good", "connected good");
    screen.text("half a line").ends_with("wharf> half a line");
    let wharf = fs::read_to_string(desk.home().join("wharf-pid")).unwrap();
    desk.end(&wharf);
    let ended = screen.shows("ended with 130");
    assert!(ended.contains("wharf> half a line\ninterrupted\n"), "{ended}");
    screen.ends_with("icanon");
    let server = fs::read_to_string(desk.mark()).unwrap();
    assert!(!desk.is_alive(&server), "the server is still there");
}

#[test]
fn l101_a_question_waits_until_the_line_is_done() {
    let desk = Desk::new();
    let mark = desk.home().join("ask-now");
    let form = json!({
        "message": "Who are you?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    });
    let ask = Step::Ask { method: "elicitation/create".into(), params: form };
    let steps = [Step::Honest, Step::WaitFor(mark.clone()), ask];
    dock_puppet(&desk, &Puppet::of(Era::Legacy).on("tool:echo", steps));
    let screen = Screen::open(&desk);
    screen.command("/mcp connect pup --allow-all", "connected pup: 1 tool");
    screen.command("pup.echo", "wharf> pup.echo\n");
    screen.text("half a line").ends_with("wharf> half a line");
    fs::write(mark, "").unwrap();
    screen.shows("server `pup` asks: Who are you?");
    let asked = screen.ends_with("wharf> half a line");
    assert!(asked.contains("(press Enter to answer)"), "{asked}");
    screen.key("C-u").key("Enter").ends_with("  name []:");
    screen.text("Ada").key("Enter").prompt();
}

#[test]
fn l101_a_question_is_let_go_when_its_server_dies() {
    let form = json!({
        "message": "Who are you?",
        "requestedSchema": {"type": "object", "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer"},
        }},
    });
    let steps = [Step::Ask { method: "elicitation/create".into(), params: form }, Step::ReplyWithAnswer];
    let desk = with_puppet(&Puppet::of(Era::Legacy).on("tool:echo", steps));
    let screen = Screen::open(&desk);
    screen.command("/mcp connect pup --allow-all", "connected pup: 1 tool");
    screen.line("pup.echo", "  name []:");
    desk.kill(&fs::read_to_string(desk.mark()).unwrap());
    screen.shows("(nobody waits for the answer any more: press Enter)");
    screen.key("Enter");
    let after = screen.prompt();
    assert!(!after.contains("age"), "{after}");
    screen.command("/mcp", "NAME");
}

#[test]
fn l101_servers_ask_by_a_form_and_their_words_are_escaped() {
    let form = json!({
        "message": "Where to?\u{1b}[2J",
        "requestedSchema": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "minLength": 2},
            "days": {"type": "integer", "default": 3},
        }},
    });
    let log = json!({"level": "info", "data": "clear \u{1b}[2J the screen"});
    let steps = [
        Step::Notify { method: "notifications/message".into(), params: Some(log) },
        Step::Ask { method: "elicitation/create".into(), params: form },
        Step::ReplyWithAnswer,
    ];
    let desk = with_puppet(&Puppet::of(Era::Legacy).on("tool:echo", steps));
    let screen = Screen::open(&desk);
    screen.command("/mcp connect pup --allow-all", "connected pup: 1 tool");
    screen.line("pup.echo", "server `pup` asks: Where to?");
    screen.ends_with("  city:");
    screen.line("B", "too short");
    screen.ends_with("  city:");
    screen.line("Bergen", "  days [3]:");
    let answered = screen.command("", "\"accept\"");
    assert!(answered.contains("\"city\":\"Bergen\"") && answered.contains("\"days\":3"), "{answered}");
    assert!(answered.contains("pup info: clear \\u{1b}[2J the screen"), "{answered}");
    assert!(answered.contains("asks: Where to?\\u{1b}[2J"), "{answered}");

    screen.clear();
    screen.line("pup.echo", "  city:");
    screen.key("C-d").shows("\"decline\"");
    screen.prompt();
}
