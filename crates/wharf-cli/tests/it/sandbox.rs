//! The sandbox as a person meets it.

use std::path::Path;

use serde_json::Value;

use crate::desk::{Desk, Ran};

const SERVER: &str = include_str!("../../../wharf/tests/it/sandbox/prisoner.py");

/// A desk with a server in its own folder, whose entry ends with these lines.
fn desk(more: &str) -> Desk {
    let desk = Desk::new();
    desk.write(&desk.home().join("app/server.py"), SERVER);
    desk.write(&desk.home().join(".ssh/id"), "a private key");
    let script = desk.home().join("app/server.py");
    // The word keeps the desk from turning the sandbox off.
    desk.user(&format!("# sandbox\n[mcp.cell]\ncommand = \"python3\"\nargs = [{script:?}]\n{more}\n"));
    desk
}

fn run(desk: &Desk, code: &str) -> Ran {
    desk.run(&["call", "cell", "run", &format!("code={code}")])
}

fn read(path: &Path) -> String {
    format!("out = open({:?}).read()", path.display().to_string())
}

#[test]
fn l17_servers_of_a_configuration_are_confined_by_default() {
    let open = desk("sandbox = false");
    let told = run(&open, &read(&open.home().join(".ssh/id"))).ok();
    assert_eq!(told.out.trim(), "ok: a private key");
    let closed = desk("");
    let told = run(&closed, &read(&closed.home().join(".ssh/id"))).ok();
    assert!(told.out.contains("FileNotFoundError"), "{told:?}");
    let given = desk("sandbox = { read = [\"~/.ssh\"] }");
    let told = run(&given, &read(&given.home().join(".ssh/id"))).ok();
    assert_eq!(told.out.trim(), "ok: a private key");
}

#[test]
fn cfg_10_no_profile_opens_what_wharf_keeps() {
    let desk = desk("sandbox = { write = [\"~/.config\"] }");
    let told = run(&desk, "out = 1");
    assert_eq!(told.code, 6, "{told:?}");
    assert!(told.err.contains("holds files of Wharf itself"), "{told:?}");
    let desk = self::desk("sandbox = { read = [\"~/.config\"] }");
    let told = run(&desk, &read(&desk.config())).ok();
    assert!(told.out.contains("FileNotFoundError"), "{told:?}");
}

#[test]
fn l17_what_a_locked_server_may_do_is_shown_and_it_runs() {
    let desk = desk("");
    let before = desk.run(&["sandbox", "show", "cell"]).ok();
    desk.run(&["lock"]).ok();
    assert_eq!(desk.run(&["sandbox", "show", "cell"]).ok().out, before.out);
    assert_eq!(run(&desk, "out = 1").ok().out.trim(), "ok: 1");
}

#[test]
fn l17_a_profile_is_learnt_from_a_watched_run() {
    let desk = desk("");
    for (file, text) in [("notes/one", "1"), ("notes/two", "2"), ("out/log", "")] {
        desk.write(&desk.home().join(file), text);
    }
    let home = desk.home().display().to_string();
    let call = |code: &str| format!("run {}", serde_json::json!({ "code": code }));
    let calls = [
        call(&format!("try: open('{home}/notes/one')\nexcept OSError: pass\nopen('{home}/notes/two')")),
        call(&format!("open('{home}/out/new', 'w')")),
        call(&format!("open('{home}/.config/wharf/wharf.toml', 'a')")),
        call("import os; os.listdir(os.environ['HOME']); open('/nonexistent/file')"),
    ];
    let flags = calls.iter().flat_map(|call| ["--call", call]);
    let args: Vec<&str> = ["sandbox", "learn", "cell"].into_iter().chain(flags).collect();
    let told = desk.run(&args).ok();
    let line = format!(
        "sandbox = {{ read = [\"{home}/notes/one\",\"{home}/notes/two\"], write = [\"{home}/out\"] }}\n"
    );
    assert_eq!(told.out, line, "{told:?}");
    assert!(!desk.home().join("out/new").exists(), "what is learnt is not given");
    // With the profile it works, and nothing more is to be learnt.
    let learnt = self::desk("sandbox = { write = [\"~/out\"] }");
    desk.write(&learnt.home().join("out/log"), "");
    let call = call(&format!("open('{}/out/new', 'w')", learnt.home().display()));
    let told = learnt.run(&["sandbox", "learn", "cell", "--call", &call]).ok();
    assert!(told.out.is_empty() && learnt.home().join("out/new").exists(), "{told:?}");
    // Nothing is left of the watching.
    let left =
        std::fs::read_dir(learnt.home()).unwrap().flatten().map(|e| e.file_name().into_string().unwrap());
    assert!(!left.into_iter().any(|name| name.starts_with("wharf-")));
}

#[test]
fn l17_hosts_are_learnt_and_not_reached_and_secrets_are_not_proposed() {
    let page = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    page.set_nonblocking(true).unwrap();
    let port = page.local_addr().unwrap().port();
    let desk = desk("");
    let call = |code: &str| format!("run {}", serde_json::json!({ "code": code }));
    let get = |url: &str| {
        call(&format!(
            "import urllib.request\ntry: urllib.request.urlopen('{url}', timeout=20)\nexcept OSError as e: out = e"
        ))
    };
    let through = format!(
        "import http.client, os; c = http.client.HTTPConnection(os.environ['HTTP_PROXY'].split('//')[1]); \
         c.request('GET', 'http://localhost:{port}/', headers={{'Host': 'localhost:{port}'}}); c.getresponse()"
    );
    let calls = [
        get("http://api.example.com/x"),
        get("https://tiles.example.org:8443/"),
        get("http://10.0.0.1/"),
        get(&format!("http://127.0.0.1:{port}/")),
        call(&through),
        call(
            "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname())",
        ),
        call(&format!("open('{}/.ssh/id')", desk.home().display())),
    ];
    for allow in [false, true] {
        let flags = calls.iter().flat_map(|call| ["--call", call]);
        let mut args: Vec<&str> = ["sandbox", "learn", "cell"].into_iter().chain(flags).collect();
        args.extend(allow.then_some("--allow-network"));
        let told = desk.run(&args).ok();
        let line = format!(
            "sandbox = {{ domains = [\"127.0.0.1:{port}\",\"api.example.com\",\"localhost:{port}\",\"tiles.example.org:8443\"] }}\n"
        );
        assert_eq!(told.out, line, "{told:?}");
        assert!(told.err.contains(".ssh/id, where secrets are kept: that is not proposed"), "{told:?}");
        assert_eq!(told.err.contains("can leave this machine"), allow, "{told:?}");
    }
    assert!(page.accept().is_err(), "this machine is not reached, whatever is allowed");
    // With what was learnt it works.
    let serving = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        page.set_nonblocking(false).unwrap();
        let (mut caller, _) = page.accept().unwrap();
        let _ = caller.read(&mut [0; 4096]).unwrap();
        caller.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\ntide").unwrap();
    });
    let learnt = self::desk(&format!("sandbox = {{ domains = [\"127.0.0.1:{port}\"] }}"));
    let code = |url: &str| {
        format!("import urllib.request; out = urllib.request.urlopen('{url}', timeout=20).read()")
    };
    assert_eq!(run(&learnt, &code(&format!("http://127.0.0.1:{port}/"))).ok().out.trim(), "ok: b'tide'");
    serving.join().unwrap();
    let told = run(&learnt, &code("http://api.example.com/")).ok();
    assert!(told.out.contains("403"), "{told:?}");
    assert!(told.err.contains("sandbox.domains = [\"api.example.com\"]"), "{told:?}");
}

#[test]
fn l17_check_and_show_tell_what_holds() {
    let desk = desk("sandbox = { write = [\"~/app\"] }");
    let told = desk.run(&["check", "--json"]).ok().json();
    assert_eq!(told["sandbox"]["obstacle"], Value::Null, "{told}");
    assert!(told["sandbox"]["engine"].as_str().unwrap().contains("bubblewrap"), "{told}");
    assert!(desk.run(&["check"]).ok().err.contains("sandbox: bubblewrap"));
    let told = desk.run(&["sandbox", "show", "cell", "--json"]).ok().json();
    let app = desk.home().join("app").display().to_string();
    assert_eq!(told["write"], serde_json::json!([app]));
    assert!(told["read"].as_array().unwrap().contains(&"/usr".into()), "{told}");
    assert!(desk.run(&["sandbox", "show", "cell"]).ok().out.contains("~/app"));
    assert_eq!(desk.run(&["sandbox", "show", "demo", "--json"]).ok().json()["confined"], false);
    assert_eq!(desk.run(&["sandbox", "show", "nobody"]).code, 5);
}
