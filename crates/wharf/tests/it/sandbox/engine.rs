//! What carries a plan out: the right one, or nothing.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;
use wharf::sandbox::{Engine, Sandbox};
use wharf_testkit::example_path;

use super::{Prison, everywhere, users};

#[test]
fn sbx_07_without_an_engine_nothing_starts() {
    for user in users() {
        let prison = Prison::new(Some("none"), user);
        let told = prison.run(json!(true), &[]);
        assert!(told.unstarted[0].contains("cannot be confined: there is no engine"), "{told:?}");
        assert!(told.unstarted[0].contains("apt install bubblewrap"), "{told:?}");
        assert!(told.unstarted[0].contains("sandbox = false"), "{told:?}");
        prison.free(&["out = 1"]).works();
        // One that is there but does not work.
        let broken = prison.at("data/bwrap");
        std::fs::write(
            &broken,
            "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n",
        )
        .unwrap();
        std::fs::set_permissions(&broken, std::fs::Permissions::from_mode(0o755)).unwrap();
        let order = json!({ "servers": [prison.server(json!(true))], "steps": [], "engine": broken });
        let told = prison.order(&order);
        assert!(told.unstarted[0].contains("No permissions to create new namespace"), "{told:?}");
        assert!(told.unstarted[0].contains("the sandbox itself failed"), "{told:?}");
        // One that confines nothing: the stage finds out, and the server is not started.
        std::fs::write(
            &broken,
            "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift 2\nexec \"$STAGE\" \"$@\"\n",
        )
        .unwrap();
        let told = prison.order(&order);
        assert!(!told.unstarted.is_empty(), "{told:?}");
    }
}

#[test]
fn sbx_07_a_step_that_fails_starts_nothing() {
    // The kernel says no to one step after the other.
    let strace = |trace, say| vec!["strace", "-f", "-qq", "-o", "/dev/null", "-e", trace, "-e", say];
    let denied = |call: &str| match call {
        "landlock" => strace("trace=landlock_create_ruleset", "inject=landlock_create_ruleset:error=ENOSYS"),
        "restrict" => strace("trace=landlock_restrict_self", "inject=landlock_restrict_self:error=EPERM"),
        "unshare" => strace("trace=unshare", "inject=unshare:error=EPERM"),
        "seccomp" => strace("trace=seccomp", "inject=seccomp:error=EINVAL"),
        _ => vec!["unshare", "-Ur", "sh", "-c", "echo 0 >/proc/sys/user/max_user_namespaces && exec \"$0\""],
    };
    for (engine, call, words) in [
        (Some("own"), "landlock", "this kernel has no Landlock"),
        (Some("own"), "restrict", "cannot be held by Landlock"),
        (Some("own"), "unshare", "namespaces cannot be made"),
        (Some("own"), "seccomp", "system calls cannot be refused"),
        (None, "seccomp", "system calls cannot be refused"),
        (Some("own"), "namespaces", "namespaces cannot be made"),
        (None, "namespaces", "Creating new namespace failed"),
    ] {
        let mut prison = Prison::new(engine, None);
        prison.starter = denied(call);
        let told = prison.run(json!(true), &[]);
        let why = told.unstarted.first().unwrap_or_else(|| panic!("it was started without {call}"));
        assert!(why.contains(words) && why.contains("the sandbox itself failed"), "{call}: {why}");
    }
    // Watched in the same way, with nothing denied, it starts.
    for engine in [None, Some("own")] {
        let mut prison = Prison::new(engine, None);
        prison.starter = strace("trace=seccomp", "signal=none");
        prison.run(json!(true), &["out = 1"]).works();
    }
}

#[test]
fn sbx_10_a_false_bubblewrap_on_the_path_is_not_used() {
    let prison = Prison::new(None, None);
    let mark = prison.at("data/was-here");
    for place in ["data/bwrap", "home/bwrap", "project/bwrap"] {
        std::fs::write(prison.at(place), format!("#!/bin/sh\ntouch {}\nexit 1\n", mark.display())).unwrap();
        std::fs::set_permissions(prison.at(place), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut server = prison.server(json!(true));
    server["command"] = json!("/usr/bin/python3");
    server["cwd"] = json!(prison.at("project"));
    let order = json!({
        "servers": [server], "steps": [{ "server": "cell", "code": "out = open('/proc/self/status').read()" }],
        "path": format!("{}:/usr/bin", prison.path("data")),
    });
    let told = prison.order(&order);
    assert!(told.works().steps[0].contains("NoNewPrivs:\t1"), "{told:?}");
    assert!(!mark.exists());
    assert_eq!(Engine::find(), Engine::Bubblewrap("/usr/bin/bwrap".into()));
}

#[test]
fn l17_a_machine_tells_what_holds() {
    let works = Sandbox::new(example_path("cell")).abilities();
    assert_eq!(works.obstacle, None);
    assert!(works.engine.contains("bubblewrap"), "{works:?}");
    assert!(works.landlock.is_some_and(|version| version >= 1), "{works:?}");
    let own = Sandbox::new(example_path("cell")).engine(Engine::Own).abilities();
    assert_eq!((own.obstacle, own.engine.as_str()), (None, "own namespaces"));
    let none = Sandbox::new("/nonexistent/stage").abilities();
    assert!(none.obstacle.unwrap().contains("/nonexistent/stage"));
}

#[test]
fn l17_a_call_that_fails_for_want_of_a_file_or_a_host_tells_the_line_to_add() {
    everywhere(|prison| {
        let (note, data, home) = (prison.path("other/note"), prison.path("data"), prison.path("home"));
        let open = |path: &str, how: &str| {
            format!("try: open('{path}', '{how}')\nexcept OSError as e: fail = 'it failed: %s' % e")
        };
        let says = |words: String| format!("fail = {words:?}");
        let (key, own) = (format!("{home}/.ssh/id"), format!("{home}/.config/wharf/wharf.toml"));
        let said = [
            open(&note, "r"),
            open(&note, "r"),
            open(&format!("{data}/note"), "a"),
            says("Error: getaddrinfo ENOTFOUND api.example.com".into()),
            says("socket.gaierror: [Errno -3] Temporary failure in name resolution".into()),
            says("dial tcp: lookup db.example.org on 127.0.0.53: no such host".into()),
            // What it only claims.
            says(format!("ENOENT: no such file or directory, open '{key}'")),
            says(format!("EACCES: permission denied, open '{own}'")),
            says(format!("EROFS: read-only file system, open '{home}'")),
            says("ENOENT: no such file or directory, open '/nonexistent'".into()),
            "out = 'all is well, but ENOENT and /etc/hostname were seen'".into(),
        ];
        let said: Vec<&str> = said.iter().map(String::as_str).collect();
        let told = prison.run(json!({ "read": [&data] }), &said);
        assert!(told.steps[0].starts_with("it failed: [Errno 2]") && !told.steps[0].contains("sandbox"));
        let expected = [
            format!(
                "its sandbox does not let it read {note}: if it should, add `sandbox.read = [\"{note}\"]` to `cell`"
            ),
            format!("add `sandbox.write = [\"{data}/note\"]` to `cell`"),
            "add `sandbox.domains = [\"api.example.com\"]` to `cell`".into(),
            "`wharf sandbox learn cell` tells which it asks for".into(),
            "add `sandbox.domains = [\"db.example.org\"]` to `cell`".into(),
            format!(
                "it says that it cannot read {key}; its sandbox keeps it from there, where secrets are kept"
            ),
            format!("it says that it cannot write {own}, which is let into no sandbox"),
            format!("it says that it cannot write {home}, which is let into no sandbox"),
        ];
        assert_eq!(told.warnings.len(), expected.len(), "{told:#?}");
        for (warning, words) in told.warnings.iter().zip(&expected) {
            assert!(warning.starts_with("a call of `cell` failed: ") && warning.contains(words), "{told:#?}");
        }
    });
}

#[test]
fn l17_a_server_that_lacks_a_file_is_told_which_line_to_add() {
    everywhere(|prison| {
        let script = prison.at("project/needy.py");
        let (note, data) = (prison.path("other/note"), prison.path("data"));
        for (code, line) in [
            (format!("open('{note}').read()"), format!("sandbox.read = [\"{note}\"]")),
            (format!("open('{data}/note', 'a')"), format!("sandbox.write = [\"{data}/note\"]")),
        ] {
            std::fs::write(&script, code).unwrap();
            let mut server = prison.server(json!({ "read": [&data] }));
            server["args"] = json!([script]);
            let told = prison.order(&json!({ "servers": [server], "steps": [] }));
            assert!(told.unstarted[0].contains(&line), "{told:?}");
        }
    });
}
