//! `wharf tools`, `wharf servers`, `wharf check`, `wharf completions`.

use serde_json::json;

use crate::desk::Desk;

fn two_servers(desk: &Desk) {
    let (good, bad) = (desk.good_server(), desk.dying_server());
    desk.user(&format!(
        "[policy]\ncommands = [{good:?}, {bad:?}]\n[mcp.bad]\ncommand = {bad:?}\n[mcp.good]\ncommand = {good:?}\n"
    ));
}

#[test]
fn l65_a_server_that_fails_is_reported_and_the_rest_works() {
    let desk = Desk::new();
    two_servers(&desk);
    let ran = desk.run(&["tools"]).ok();
    assert!(ran.out.contains("good\techo\t"), "{ran:?}");
    assert!(ran.err.contains("server `bad`") && ran.err.contains("no token was given"), "{ran:?}");

    let ran = desk.run(&["tools", "--json"]).ok();
    let document = ran.json();
    assert_eq!(document["tools"].as_array().unwrap().len(), 8, "{ran:?}");
    assert_eq!(document["failed"][0]["server"], "bad", "{ran:?}");
    assert_eq!(document["failed"][0]["error"]["kind"], "connection", "{ran:?}");
}

#[test]
fn l65_if_all_fail_the_command_fails() {
    let desk = Desk::new();
    let bad = desk.dying_server();
    desk.user(&format!(
        "[policy]\ncommands = [{bad:?}]\n[mcp.a]\ncommand = {bad:?}\n[mcp.b]\ncommand = {bad:?}\n"
    ));
    let ran = desk.run(&["tools"]);
    assert_eq!((ran.code, ran.out.as_str()), (4, ""), "{ran:?}");
    assert!(ran.err.contains("server `a`") && ran.err.contains("server `b`"), "{ran:?}");
}

#[test]
fn l100_a_pipe_gets_tab_separated_lines_without_head_or_colour() {
    let ran = Desk::new().run(&["tools"]).ok();
    let lines: Vec<Vec<&str>> = ran.out.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines.len(), 8, "{ran:?}");
    assert_eq!(lines[0][..2], ["demo", "echo"]);
    assert!(lines.iter().all(|cells| cells.len() == 3), "{ran:?}");
    assert!(!ran.out.contains('\x1b'), "{ran:?}");
}

#[test]
fn l100_tools_in_json_are_as_the_server_wrote_them() {
    let document = Desk::new().run(&["tools", "demo", "--json"]).ok().json();
    let tool = &document["tools"][0];
    assert_eq!(tool["server"], "demo");
    assert_eq!(tool["publicName"], "demo_echo");
    assert_eq!(tool["tool"]["inputSchema"]["required"], json!(["message"]));
    assert_eq!(document["failed"], json!([]));
}

#[test]
fn l100_the_built_in_server_stands_in_and_steps_back() {
    let desk = Desk::new();
    assert!(desk.run(&["servers"]).ok().out.starts_with("demo\tstdio\tenabled\tbuilt-in\t"));
    desk.user("[mcp.far]\nurl = \"https://example.com/mcp\"\n");
    let ran = desk.run(&["servers"]).ok();
    assert_eq!(ran.out.lines().count(), 1, "{ran:?}");
    assert!(ran.out.starts_with("far\thttp\tenabled\t"), "{ran:?}");
    // It can still be named.
    desk.run(&["call", "demo", "echo", "message=x"]).ok();
}

#[test]
fn l100_servers_hide_secrets_and_say_where_they_are_written() {
    let desk = Desk::new();
    desk.user(
        "[mcp.far]\nurl = \"https://example.com/mcp?key=hidden-in-query\"\nheaders = { Authorization = \"Bearer hidden-in-header\" }\n\
         [mcp.near]\ncommand = \"npx\"\nargs = [\"-y\", \"pkg@1.0.0\"]\nenv = { API_KEY = \"hidden-in-env\" }\nenabled = false\n",
    );
    for args in [&["servers"][..], &["servers", "--json"], &["check"], &["check", "--json"]] {
        let ran = desk.run(args);
        assert!(!format!("{ran:?}").contains("hidden-in"), "{ran:?}");
        assert!(ran.out.contains("near") && ran.out.contains("example.com/mcp"), "{ran:?}");
    }
    let document = desk.run(&["servers", "--json"]).ok().json();
    let [far, near] = &document["servers"].as_array().unwrap()[..] else { panic!("{document}") };
    assert_eq!(far["headers"], json!(["Authorization"]));
    assert_eq!(far["origin"]["line"], 1);
    assert_eq!((&near["enabled"], &near["env"]), (&json!(false), &json!(["API_KEY"])));
}

#[test]
fn l100_check_tells_the_program_and_the_verdict() {
    let desk = Desk::new();
    let good = desk.good_server();
    desk.user(&format!("[policy]\ncommands = [{good:?}]\n[mcp.good]\ncommand = {good:?}\n"));
    let ran = desk.run(&["check"]).ok();
    assert!(ran.out.starts_with(&format!("good\tallowed\t{good}\t")), "{ran:?}");
    assert!(!desk.was_started());

    desk.user(&format!("[mcp.good]\ncommand = {good:?}\n"));
    let ran = desk.run(&["check"]);
    assert_eq!(ran.code, 6, "{ran:?}");
    assert!(ran.out.starts_with("good\tdenied\t"), "{ran:?}");
    let document = desk.run(&["check", "--json"]).json();
    assert_eq!(document["ok"], false);
    assert_eq!(document["servers"][0]["error"]["kind"], "command_not_allowed");
}

#[test]
fn l39_check_judges_every_replica_as_the_first_address() {
    let desk = Desk::new();
    desk.user("[mcp.a]\nurl = \"https://a.example/mcp\"\nreplicas = [\"https://b.example/mcp\"]\n");
    let ran = desk.run(&["check"]).ok();
    let rows = "a\tallowed\t-\thttps://a.example/mcp\ninstance 2 of a\tallowed\t-\thttps://b.example/mcp\n";
    assert_eq!(ran.out, rows);

    let metadata = "http://169.254.169.254/mcp";
    desk.user(&format!("[mcp.a]\nurl = {metadata:?}\n"));
    let alone = desk.run(&["check"]);
    desk.user(&format!("[mcp.a]\nurl = \"https://a.example/mcp\"\nreplicas = [{metadata:?}]\n"));
    let ran = desk.run(&["check"]);
    assert_eq!((alone.code, ran.code), (6, 6), "{ran:?}");
    assert!(ran.out.contains(&format!("\ninstance 2 of a\tdenied\t-\t{metadata}\n")), "{ran:?}");
    assert!(ran.out.starts_with("a\tallowed\t"), "{ran:?}");
    assert_eq!(ran.err, alone.err, "it is refused in the same words");
    let document = desk.run(&["check", "--json"]).json();
    assert_eq!((&document["ok"], &document["servers"][0]["verdict"]), (&json!(false), &json!("allowed")));
    let replica = &document["servers"][0]["replicas"][0];
    assert_eq!((&replica["verdict"], &replica["what"]), (&json!("denied"), &json!(metadata)), "{replica}");
    assert!(replica["error"]["kind"].is_string(), "{replica}");

    desk.user(&format!(
        "[mcp.a]\nurl = \"https://a.example/mcp\"\nreplicas = [{metadata:?}]\nenabled = false\n"
    ));
    assert!(desk.run(&["check"]).ok().out.contains("instance 2 of a\tdisabled"));
}

#[test]
fn l96_check_says_that_a_required_server_is_not_there() {
    let desk = Desk::new();
    let servers = "[mcp.search]\nurl = \"https://a.example/mcp\"\n[mcp.off]\nurl = \"https://b.example/mcp\"\nenabled = false\n";
    let with = |required: &str| {
        desk.user(&format!("{servers}[gateway]\nrequired = [{required:?}]\n"));
        desk.run(&["check"])
    };
    with("search").ok();
    for (required, why, hint) in [
        ("serch", "`serch` that is not configured", "did you mean `search`?"),
        ("zzz", "`zzz` that is not configured", "there are `search`, `off`"),
        ("off", "`off` that is not enabled", "enable it"),
    ] {
        let ran = with(required);
        assert_eq!(ran.code, 7, "{ran:?}");
        assert!(ran.err.contains(why) && ran.err.contains(hint), "{ran:?}");
        let document = desk.run(&["check", "--json"]).json();
        assert_eq!(document["ok"], false);
        assert!(document["problems"][0]["message"].as_str().unwrap().contains(why), "{document}");
    }
}

#[test]
fn l104_check_shows_the_line_with_a_caret() {
    let desk = Desk::new();
    desk.user("[mcp.odd]\ncommand = \"npx\"\nargz = []\n");
    let ran = desk.run(&["check"]);
    assert_eq!(ran.code, 7, "{ran:?}");
    assert!(
        ran.err.contains("wharf.toml:3:1") && ran.err.contains("argz = []") && ran.err.contains("^^^^"),
        "{ran:?}"
    );
    assert!(ran.err.contains("args"), "a suggestion: {ran:?}");
    let document = desk.run(&["check", "--json"]).json();
    assert_eq!(document["problems"][0]["line"], 3);
}

#[test]
fn l100_completions_for_every_shell() {
    let desk = Desk::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ran = desk.run(&["completions", shell]).ok();
        assert!(ran.out.contains("wharf") && ran.out.contains("COMPLETE"), "{ran:?}");
    }
    assert_eq!(desk.run(&["completions", "cmd"]).code, 2);
}
