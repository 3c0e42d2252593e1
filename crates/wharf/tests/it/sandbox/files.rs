//! What a confined server can read and change.

use serde_json::json;

use super::everywhere;

const GONE: [&str; 3] = ["FileNotFoundError", "NotADirectoryError", "PermissionError"];
const FIXED: [&str; 4] =
    ["FileNotFoundError", "PermissionError", "Read-only file system", "Invalid cross-device link"];

#[test]
fn sbx_01_what_is_the_users_or_ours_cannot_be_read() {
    everywhere(|prison| {
        let read = |file: &str| format!("out = open({:?}).read()", prison.path(file));
        let hidden = [
            read("home/.ssh/id"),
            read("home/.aws/credentials"),
            read("home/.config/wharf/wharf.toml"),
            read("other/note"),
            read("data/note"),
            "out = open('/etc/shadow').read()".into(),
            "out = open('/etc/hostname').read()".into(),
            "import os; out = os.listdir('/root')".into(),
        ];
        let hidden: Vec<&str> = hidden.iter().map(String::as_str).collect();
        prison.run(json!(true), &hidden).fails(&GONE);
        prison.free(&hidden[..5]).works();
        let given = json!({ "read": [prison.path("data")] });
        prison.run(given, &[hidden[4]]).works();
        // What lies beside what was given is not given.
        prison.run(json!({ "read": [prison.path("data")] }), &[hidden[3]]).fails(&GONE);
    });
}

#[test]
fn sbx_01_other_processes_cannot_be_seen() {
    everywhere(|prison| {
        let count = "import os; out = sorted(p for p in os.listdir('/proc') if p.isdigit())";
        let told = prison.run(json!(true), &[count]);
        let seen = told.works().steps[0].matches('\'').count() / 2;
        assert!(seen <= 3, "{told:?}");
        let environ = "import os\nout = [open('/proc/%s/environ' % p).read() for p in os.listdir('/proc') if p.isdigit()]";
        let told = prison.run(json!(true), &[environ]);
        assert!(!told.steps[0].contains("XDG_") && !told.steps[0].contains("CARGO"), "{told:?}");
    });
}

#[test]
fn sbx_02_nothing_can_be_changed_but_what_was_given() {
    everywhere(|prison| {
        let (data, other, home) = (prison.path("data"), prison.path("other"), prison.path("home"));
        std::os::unix::fs::symlink(prison.at("other"), prison.at("data/link")).unwrap();
        let profile = json!({ "write": [&data], "read": [&other] });
        let refused = [
            format!("open('{other}/new', 'w')"),
            format!("open('{data}/link/new', 'w')"),
            format!("open('{data}/../other/new', 'w')"),
            format!("import os; os.link('{other}/note', '{data}/hard'); open('{data}/hard', 'w')"),
            format!("import os; os.rename('{other}/note', '{data}/moved')"),
            format!("import os; os.rename('{data}/note', '{other}/moved/')"),
            format!("import os; os.unlink('{other}/note')"),
            format!("import os; os.chmod('{other}/note', 0o777)"),
            "open('/usr/new', 'w')".into(),
            "open('/etc/new', 'w')".into(),
            "open('/new', 'w')".into(),
            "open('/run/wharf/stage', 'r+')".into(),
            "open('/proc/sys/kernel/core_pattern', 'r+')".into(),
            "open('/proc/self/oom_score_adj', 'w').write('0')".into(),
        ];
        let refused: Vec<&str> = refused.iter().map(String::as_str).collect();
        prison.run(profile.clone(), &refused).fails(&FIXED);
        assert_eq!(std::fs::read_to_string(prison.at("other/note")).unwrap(), "not for you");
        let allowed = [
            format!("open('{data}/new', 'w').write('x')"),
            format!("import os; os.rename('{data}/new', '{data}/inner/newer')"),
            format!("out = open('{other}/note').read()"),
            format!("open('{home}/private', 'w').write('x'); out = open('{home}/private').read()"),
            "import tempfile; tempfile.NamedTemporaryFile().write(b'x')".into(),
            "open('/dev/null', 'w').write('x'); open('/dev/shm/x', 'w')".into(),
        ];
        let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
        prison.run(profile, &allowed).works();
        assert_eq!(std::fs::read_to_string(prison.at("data/inner/newer")).unwrap(), "x");
        assert!(!prison.at("home/private").exists(), "its home is its own");
        prison.free(&refused[..2]).works();
    });
}

#[test]
fn cfg_10_a_server_cannot_change_our_files_even_if_it_was_given_their_parents() {
    everywhere(|prison| {
        let config = prison.path("home/.config");
        let rules = format!("{config}/wharf/wharf.toml");
        // To be read, the parent may be given: ours is empty in it.
        let told = prison
            .run(json!({ "read": [&config] }), &[&format!("import os; out = os.listdir('{config}/wharf')")]);
        assert_eq!(told.works().steps, ["ok: []"]);
        let told = prison.run(json!({ "read": [&config] }), &[&format!("open('{rules}', 'w')")]);
        told.fails(&FIXED);
        // To be changed it may not, and the server does not start; nor where the folder is still to be made.
        for parent in [config, prison.path("home/.local"), prison.path("home/.config/wharf")] {
            std::fs::create_dir_all(&parent).unwrap();
            let told = prison.run(json!({ "write": [&parent] }), &[]);
            assert!(told.unstarted[0].contains("Wharf itself"), "{told:?}");
        }
        prison.run(json!({ "write": [prison.path("data")] }), &["out = 1"]).works();
        assert_eq!(std::fs::read_to_string(prison.at("home/.config/wharf/wharf.toml")).unwrap(), "# rules\n");
    });
}

#[test]
fn l17_the_home_folder_is_never_given_away() {
    everywhere(|prison| {
        for (path, words) in [
            (prison.path("home"), "your home folder"),
            (prison.path(""), "holds your home folder"),
            ("/".into(), "is everything"),
            ("/proc".into(), "is the kernel's"),
            (prison.path("missing"), "No such file"),
        ] {
            for key in ["read", "write"] {
                let told = prison.run(json!({ key: [&path] }), &[]);
                assert!(told.unstarted[0].contains(words), "{path}: {told:?}");
            }
        }
        // Named by an argument, it is not given either, and that is told.
        let mut server = prison.server(json!(true));
        server["args"].as_array_mut().unwrap().push(json!(prison.path("home")));
        server["args"].as_array_mut().unwrap().push(json!(prison.path("data")));
        let look = |file: &str| json!({ "server": "cell", "code": format!("open('{}')", prison.path(file)) });
        let told =
            prison.order(&json!({ "servers": [server], "steps": [look("home/.ssh/id"), look("data/note")] }));
        assert!(told.steps[0].contains("FileNotFoundError") && told.steps[1] == "ok: ", "{told:?}");
        assert!(told.warnings.iter().any(|w| w.contains("your home folder")), "{told:?}");
    });
}
