//! `wharf login` and `wharf logout`, with a browser that is a script, and a keyring that is real.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::runtime::Runtime;
use wharf_testkit::HttpPuppet;
use wharf_testkit::http::honest_modern;
use wharf_testkit::oauth::{self, Authority, Rules};

use super::desk::{Desk, Ran};

/// A guarded server in the user's config, and an opener that writes down what it is to open.
struct Scene {
    desk: Desk,
    runtime: Runtime,
    authority: Authority,
    _server: HttpPuppet,
}

impl Scene {
    fn new(rules: Rules) -> Self {
        let runtime = Runtime::new().unwrap();
        let inside = runtime.enter();
        let authority = Authority::with(rules);
        let tools = vec![json!({ "name": "echo", "inputSchema": { "type": "object" } })];
        let handler = authority.guard().before(honest_modern(tools));
        let server = HttpPuppet::start(move |request| handler(request));
        drop(inside);
        let desk = Desk::new();
        desk.user(&format!("[mcp.srv]\nurl = \"{}\"\n", server.url()));
        let opener = desk.home().join("bin/xdg-open");
        let log = desk.home().join("opened");
        let log = log.display();
        desk.write(
            &opener,
            &format!("#!/bin/sh\nprintf '%s\\n' \"$#\" \"$@\" > {log}.new && mv {log}.new {log}\n"),
        );
        fs::set_permissions(&opener, fs::Permissions::from_mode(0o700)).unwrap();
        Self { desk, runtime, authority, _server: server }
    }

    /// A command at a desktop.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.desk.command(args);
        command.env("DISPLAY", ":9").env("PATH", format!("{}/bin:/usr/bin:/bin", self.desk.home().display()));
        command
    }

    fn opened(&self) -> PathBuf {
        self.desk.home().join("opened")
    }

    /// Waits for the page, and goes through it as a browser does.
    fn browse(&self) {
        let began = Instant::now();
        while !self.opened().exists() {
            assert!(began.elapsed() < Duration::from_secs(60), "no page was opened");
            std::thread::sleep(Duration::from_millis(5));
        }
        let opened = fs::read_to_string(self.opened()).unwrap();
        let (count, page) = opened.trim_end().split_once('\n').unwrap();
        assert_eq!(count, "1", "the page is one argument: {opened}");
        fs::remove_file(self.opened()).unwrap();
        self.runtime.block_on(async {
            let back = oauth::consent(page).await.unwrap();
            let thanks = oauth::fetch(&back).await;
            assert!(thanks.contains("200 OK"), "{thanks}");
        });
    }

    fn log_in(&self, mut command: Command) -> Ran {
        let child = command.spawn().unwrap();
        self.browse();
        Ran::from(child.wait_with_output().unwrap())
    }

    /// No token stands in any of these texts, or in any file of the home.
    fn keeps_secrets(&self, texts: &[&Ran]) {
        let secrets = self.authority.secrets();
        assert!(secrets.len() >= 2);
        let mut all: Vec<String> = texts.iter().map(|ran| format!("{}{}", ran.out, ran.err)).collect();
        let mut folders = vec![self.desk.home()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().filter_map(Result::ok) {
                match entry.file_type().unwrap() {
                    kind if kind.is_dir() => folders.push(entry.path()),
                    kind if kind.is_file() => {
                        all.push(String::from_utf8_lossy(&fs::read(entry.path()).unwrap()).into_owned());
                    }
                    _ => {}
                }
            }
        }
        for secret in &secrets {
            assert!(all.iter().all(|text| !text.contains(secret.as_str())), "{secret} is in the open");
        }
    }
}

fn sealed(desk: &Desk) -> usize {
    let folder = desk.home().join(".local/state/wharf/logins");
    let files = fs::read_dir(folder).map(|entries| entries.filter_map(Result::ok).collect::<Vec<_>>());
    let is_sealed = |path: &Path| path.extension().is_some_and(|kind| kind == "sealed");
    files.unwrap_or_default().iter().filter(|entry| is_sealed(&entry.path())).count()
}

#[test]
fn l81_log_in_with_a_browser_call_and_log_out() {
    let scene = Scene::new(Rules::default());
    let refused = scene.desk.run(&["call", "srv", "echo", "n=7"]);
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("wharf login srv"), "{}", refused.err);
    let before = scene.desk.run(&["servers", "--json"]);
    assert!(before.out.contains(r#""login":{"state":"out"}"#), "{}", before.out);

    let login = scene.log_in(scene.command(&["login", "srv", "--json"]));
    assert_eq!(login.code, 0, "{}", login.err);
    let document: serde_json::Value = serde_json::from_str(&login.out).unwrap();
    assert_eq!(document["login"]["issuer"], scene.authority.issuer());
    assert_eq!(document["login"]["state"], "in");
    // Another process, and one after its token has ended.
    let called = scene.desk.run(&["-vv", "call", "srv", "echo", "n=7"]);
    assert_eq!(called.code, 0, "{}", called.err);
    scene.authority.end_access();
    let again = scene.desk.run(&["call", "srv", "echo", "n=7"]);
    assert_eq!(again.code, 0, "{}", again.err);
    assert_eq!(scene.authority.renewals(), 1);

    let requests = scene.authority.requests().len();
    let servers = scene.desk.run(&["servers"]);
    assert!(servers.out.contains("enabled, logged in"), "{}", servers.out);
    let check = scene.desk.run(&["check", "--json"]);
    assert!(check.out.contains(r#""state":"in""#), "{}", check.out);
    assert_eq!(scene.authority.requests().len(), requests, "somebody was contacted");
    scene.keeps_secrets(&[&login, &called, &again, &servers, &check]);
    assert_eq!(sealed(&scene.desk), 1);

    let logout = scene.desk.run(&["logout", "srv"]);
    assert_eq!(logout.code, 0, "{}", logout.err);
    assert!(logout.err.contains("handed back"), "{}", logout.err);
    assert_eq!(scene.authority.revoked().len(), 1);
    assert_eq!(sealed(&scene.desk), 0);
    assert_ne!(scene.desk.run(&["call", "srv", "echo", "n=7"]).code, 0);
    let twice = scene.desk.run(&["logout", "srv", "--json"]);
    assert!(twice.out.contains("was-not"), "{}", twice.out);
}

#[test]
fn l81_without_a_browser_the_address_is_shown_and_the_answer_pasted() {
    let scene = Scene::new(Rules::default());
    let mut child = scene.command(&["login", "srv", "--no-browser"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let page = said.by_ref().map(Result::unwrap).find(|line| line.trim().starts_with("http://")).unwrap();
    let back = scene.runtime.block_on(oauth::consent(page.trim())).unwrap();
    child.stdin.take().unwrap().write_all(format!("\n{back}\n").as_bytes()).unwrap();
    let rest: Vec<String> = said.map(Result::unwrap).collect();
    assert!(child.wait().unwrap().success(), "{rest:?}");
    assert!(!scene.opened().exists());
    assert_eq!(scene.desk.run(&["call", "srv", "echo", "n=7"]).code, 0);
}

#[test]
fn ssrf_11_what_is_no_page_is_never_opened() {
    for page in ["javascript:alert(1)", "https://x.example/$(touch pwned)", "--help"] {
        let metadata = std::sync::Arc::new(move |metadata: &mut serde_json::Value| {
            metadata["authorization_endpoint"] = json!(page);
        });
        let scene = Scene::new(Rules { metadata, ..Rules::default() });
        let ran = Ran::from(scene.command(&["login", "srv"]).output().unwrap());
        assert_ne!(ran.code, 0);
        assert!(!scene.opened().exists(), "{page} was opened");
        assert!(scene.authority.registrations().is_empty());
    }
}

/// A session with a bus and an unlocked keyring, until it is dropped.
struct Session {
    bus: String,
    child: Child,
}

impl Session {
    fn start(desk: &Desk) -> Self {
        let script = "printf secret | gnome-keyring-daemon --daemonize --unlock --components=secrets >/dev/null 2>&1; \
                      echo \"$DBUS_SESSION_BUS_ADDRESS\"; cat >/dev/null";
        let runtime = desk.home().join("runtime");
        fs::create_dir_all(&runtime).unwrap();
        fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700)).unwrap();
        let mut child = Command::new("dbus-run-session")
            .args(["--", "sh", "-c", script])
            .env_clear()
            .env("HOME", desk.home())
            .env("PATH", "/usr/bin:/bin")
            .env("XDG_RUNTIME_DIR", &runtime)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("dbus-run-session is installed: proof/install");
        let mut bus = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut bus).unwrap();
        assert!(bus.starts_with("unix:"), "no session bus: {bus}");
        Self { bus: bus.trim().to_owned(), child }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The end of its input is the end of the session.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

#[test]
fn l81_in_a_session_the_login_is_in_the_keyring() {
    let scene = Scene::new(Rules::default());
    let session = Session::start(&scene.desk);
    let at_desktop = |args: &[&str]| {
        let mut command = scene.command(args);
        command.env("DBUS_SESSION_BUS_ADDRESS", &session.bus);
        command
    };
    let run = |args: &[&str]| Ran::from(at_desktop(args).output().unwrap());
    let login = scene.log_in(at_desktop(&["login", "srv"]));
    assert_eq!(login.code, 0, "{}", login.err);
    assert_eq!(sealed(&scene.desk), 0, "the login is in a file");
    let called = run(&["call", "srv", "echo", "n=7"]);
    assert_eq!(called.code, 0, "{}", called.err);
    scene.authority.end_access();
    let renewed = run(&["call", "srv", "echo", "n=7"]);
    assert_eq!(renewed.code, 0, "{}", renewed.err);
    assert_eq!(scene.authority.renewals(), 1);
    assert_eq!(sealed(&scene.desk), 0);
    scene.keeps_secrets(&[&login, &called, &renewed]);

    // Outside the session it is known that there is a login, and that it cannot be had.
    let outside = scene.desk.run(&["call", "srv", "echo", "n=7"]);
    assert!(outside.err.contains("keyring"), "{}", outside.err);
    assert!(scene.desk.run(&["servers"]).out.contains("logged in"));

    let logout = run(&["logout", "srv"]);
    assert_eq!(logout.code, 0, "{}", logout.err);
    assert_eq!(scene.authority.revoked().len(), 1);
    assert_ne!(run(&["call", "srv", "echo", "n=7"]).code, 0);

    // Without a session, it is a file; and back in one, the keyring has it again.
    let login = scene.log_in(scene.command(&["login", "srv"]));
    assert_eq!((login.code, sealed(&scene.desk)), (0, 1), "{}", login.err);
    assert_eq!(run(&["call", "srv", "echo", "n=7"]).code, 0);
    scene.authority.end_access();
    assert_eq!(run(&["call", "srv", "echo", "n=7"]).code, 0);
    assert_eq!(sealed(&scene.desk), 0);
}
