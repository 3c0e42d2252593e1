//! The `sandbox` key, and what is let in by itself.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;

use serde_json::json;
use wharf::config::{self, Config, SandboxSetting, Sources, TrustStore};
use wharf::policy::{Confinement, LaunchRequest, Policy};

use super::everywhere;

fn file(folder: &tempfile::TempDir, name: &str, text: &str) -> std::path::PathBuf {
    let path = folder.path().join(name);
    config::edit::write_atomically(&path, text).unwrap();
    path
}

fn load(text: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let explicit = vec![file(&folder, "wharf.toml", text)];
    let env = BTreeMap::from([("HOME".to_owned(), "/home/ada".to_owned())]);
    config::load(&Sources { explicit, env, ..Sources::default() }).unwrap()
}

#[test]
fn l17_the_key_is_read() {
    let text =
        |sandbox: &str| format!("[mcp.a]\ncommand = \"node\"\nargs = [\"x.js\"]\nsandbox = {sandbox}\n");
    let setting = |sandbox: &str| load(&text(sandbox)).servers.swap_remove("a").unwrap().sandbox;
    assert_eq!(setting("false"), Some(SandboxSetting::Off));
    assert_eq!(setting("true"), Some(SandboxSetting::On(Box::default())));
    let Some(SandboxSetting::On(profile)) = setting(
        "{ read = [\"~/data\", \"/srv\"], write = [\"/out/./x\"], domains = [\"api.example.com\", \"*.example.org\"], \
         memory = \"1.5GB\", processes = 64 }"
            .replace("1.5GB", "1536MB")
            .as_str(),
    ) else {
        panic!("no profile")
    };
    assert_eq!(profile.read, ["/home/ada/data", "/srv"].map(std::path::PathBuf::from));
    assert_eq!(profile.write, [std::path::PathBuf::from("/out/x")]);
    assert_eq!(profile.domains, ["api.example.com", "*.example.org"]);
    assert_eq!((profile.memory, profile.processes), (1536 * 1024 * 1024, 64));
    for (wrong, words) in [
        ("\"strict\"", "must be true, false or a table"),
        ("{ reed = [] }", "unknown member `reed`"),
        ("{ read = \"/x\" }", "a list of strings"),
        ("{ read = [\"${HOME}/x\"] }", "no variables"),
        ("{ memory = \"much\" }", "must be a size"),
        ("{ memory = 5 }", "must be a size"),
        ("{ processes = 0 }", "whole number"),
        ("{ domains = [\"http://x/\"] }", "only its host belongs here"),
        ("{ domains = [\"*\"] }", "stands only at the beginning"),
        ("{ domains = [\"10.0.0.1\"] }", "addresses are not allowed"),
        ("{ domains = [\"localhost\"] }", "one port at a time"),
        ("{ domains = [\"evil\\u0000.example.com\"] }", "NUL"),
    ] {
        let config = load(&text(wrong));
        let problem = config.problems.first().unwrap_or_else(|| panic!("{wrong}: {config:?}"));
        assert!(problem.to_string().contains(words), "{wrong}: {problem}");
        assert!(problem.to_string().contains(":4"), "with its line: {problem}");
        assert!(config.servers.is_empty());
    }
    let reed = load(&text("{ reed = [] }"));
    assert!(reed.problems[0].hint.as_ref().unwrap().contains("`read`"), "{reed:?}");
}

#[test]
fn l17_a_projects_file_cannot_let_a_server_out() {
    let folder = tempfile::tempdir().unwrap();
    let text = "{\"mcpServers\": {\"a\": {\"command\": \"node\", \"args\": [\"x.js\"], \"sandbox\": false},\n\
                \"b\": {\"command\": \"node\", \"args\": [\"x.js\"], \"sandbox\": {\"write\": [\".\"], \"domains\": [\"h.example\"]}}}}";
    let project = file(&folder, ".mcp.json", text);
    let load = |user: &str, trusted: bool| {
        let user = file(&folder, "user.toml", user);
        let mut trust = TrustStore::default();
        if trusted {
            trust.trust(&project, text.as_bytes()).unwrap();
        }
        let sources =
            Sources { user: Some(user), folders: vec![folder.path().into()], trust, ..Sources::default() };
        config::load(&sources)
    };
    // Not trusted: nothing counts, and what it would be given is told.
    let config = load("", false).unwrap();
    assert!(config.servers.is_empty());
    let told: Vec<&str> = config.pending[0].servers.iter().map(|server| server.does.as_str()).collect();
    assert_eq!(
        told,
        ["runs `node x.js` without a sandbox", "runs `node x.js`, may change ., may reach h.example"]
    );
    // Trusted: its grants count, but the sandbox stays.
    let config = load("", true).unwrap();
    assert!(config.problems[0].to_string().contains("may not turn the sandbox of `a` off"), "{config:?}");
    assert!(config.problems[0].hint.as_ref().unwrap().contains("unconfined = [\"a\"]"));
    let Some(SandboxSetting::On(profile)) = &config.servers["b"].sandbox else { panic!("{config:?}") };
    assert_eq!(profile.write, [folder.path().canonicalize().unwrap()]);
    // Nor may it open this machine's own services, in any spelling; the user's own file may.
    for rule in ["localhost:8080", "127.0.0.1:8080", "[::1]:8080", "0x7f.1:8080", "db.localhost:5432"] {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "[mcp.c]\ncommand = \"node\"\nargs = [\"x.js\"]\nsandbox = {{ domains = [\"h.example\", \"{rule}\"] }}\n"
        );
        let path = file(&folder, "wharf.toml", &text);
        let mut trust = TrustStore::default();
        trust.trust(&path, text.as_bytes()).unwrap();
        let sources = Sources { folders: vec![folder.path().into()], trust, ..Sources::default() };
        let config = config::load(&sources).unwrap();
        let problem = config.problems.first().unwrap_or_else(|| panic!("{rule}: {config:?}")).to_string();
        assert!(
            problem.contains("may not let `c` reach this machine itself") && problem.contains(":4"),
            "{problem}"
        );
        let sources = Sources { user: Some(path), ..Sources::default() };
        assert_eq!(config::load(&sources).unwrap().servers.len(), 1);
    }
    // Unless the user's own rules say so.
    for user in ["[policy]\nunconfined = [\"a\"]\n", "[policy]\nsandbox = false\n"] {
        assert!(load(user, true).unwrap().problems.is_empty());
    }
    // Which a project's rules cannot.
    for rules in ["[policy]\nsandbox = false\n", "[policy]\nunconfined = [\"a\"]\n"] {
        let path = file(&folder, "wharf.toml", rules);
        let mut trust = TrustStore::default();
        trust.trust(&path, rules.as_bytes()).unwrap();
        let sources = Sources { folders: vec![folder.path().into()], trust, ..Sources::default() };
        let config = config::load(&sources).unwrap();
        assert!(config.problems[0].to_string().contains("may narrow the policy, not widen it"), "{config:?}");
        assert!(config.policy.sandbox && config.policy.unconfined.is_empty());
    }
}

#[test]
fn l17_the_policy_decides_who_is_confined() {
    use wharf::config::{Origin, ServerConfig, Transport};
    let server = ServerConfig::stdio(wharf::ServerName::parse("a").unwrap(), "node", ["/srv/x.js"]);
    let Transport::Stdio(stdio) = &server.transport else { unreachable!() };
    let confinement = |policy: &Policy, sandbox: Option<&SandboxSetting>, origin: &Origin| {
        let request = LaunchRequest {
            server: &server.name,
            stdio,
            origin,
            program: Some(std::path::Path::new("/usr/bin/node")),
            program_hash: None,
            sandbox,
            host_env: &BTreeMap::new(),
        };
        policy.permit_launch(&request).unwrap().confinement().clone()
    };
    let strict = Policy::strict();
    let (on, off) = (SandboxSetting::On(Box::default()), SandboxSetting::Off);
    let within = Confinement::Within(Box::default());
    let given = Origin::Given;
    assert_eq!(confinement(&strict, None, &given), within, "confined is the default");
    assert_eq!(confinement(&strict, Some(&off), &given), Confinement::Off);
    assert_eq!(confinement(&strict, None, &Origin::BuiltIn), Confinement::Off);
    assert_eq!(confinement(&strict.with_unconfined(["a"]), Some(&on), &given), Confinement::Off);
    assert_eq!(confinement(&strict.with_unconfined(["b"]), None, &given), within);
    assert_eq!(confinement(&strict.with_sandbox(false), None, &given), Confinement::Off);
    assert_eq!(
        confinement(&strict.with_sandbox(false), Some(&on), &given),
        within,
        "who asks for it gets it"
    );
}

#[test]
fn l17_a_script_has_its_project_and_a_program_its_installation() {
    everywhere(|prison| {
        let home = prison.at("home");
        // A project in the home folder: its neighbours and packages, not what is beside the project.
        for folder in
            ["home/app/src", "home/app/lib", "home/node_modules/pkg", "home/venv/bin", "home/versions/py/bin"]
        {
            std::fs::create_dir_all(prison.at(folder)).unwrap();
        }
        std::fs::create_dir_all(prison.at("home/versions/py/lib/python3.99")).unwrap();
        for name in [
            "app/package.json",
            "app/lib/other.py",
            "node_modules/pkg/x.js",
            "versions/py/lib/python3.99/os.py",
            "beside",
        ] {
            std::fs::write(home.join(name), "x").unwrap();
        }
        std::fs::copy(prison.at("project/prisoner.py"), home.join("app/src/main.py")).unwrap();
        // A virtual environment whose Python is a link to another's.
        std::fs::write(
            home.join("venv/pyvenv.cfg"),
            format!("home = {}\n", prison.path("home/versions/py/bin")),
        )
        .unwrap();
        symlink("/usr/bin/python3", prison.at("home/versions/py/bin/python3")).unwrap();
        symlink(prison.at("home/versions/py/bin/python3"), prison.at("home/venv/bin/python")).unwrap();
        prison.give(&home);
        let read = |file: &str| json!({ "server": "cell", "code": format!("out = open({:?}).read()", prison.path(file)) });
        let steps = [
            "home/app/lib/other.py",
            "home/app/package.json",
            "home/node_modules/pkg/x.js",
            "home/venv/pyvenv.cfg",
            "home/versions/py/lib/python3.99/os.py",
            "home/beside",
            "home/.ssh/id",
        ];
        let mut server = prison.server(json!(true));
        server["command"] = json!(prison.at("home/venv/bin/python"));
        server["args"] = json!([prison.at("home/app/src/main.py")]);
        let told = prison.order(&json!({ "servers": [server], "steps": steps.map(read) }));
        assert!(told.unstarted.is_empty(), "{told:#?}");
        for (file, step) in steps.iter().zip(&told.steps) {
            let expected =
                if file.ends_with("beside") || file.ends_with("id") { "error: FileNotFound" } else { "ok: " };
            assert!(step.starts_with(expected), "{file}: {step}");
        }
    });
}

#[test]
fn l17_a_script_in_the_home_folder_does_not_open_it() {
    everywhere(|prison| {
        std::fs::copy(prison.at("project/prisoner.py"), prison.at("home/main.py")).unwrap();
        std::fs::write(prison.at("home/package.json"), "{}").unwrap();
        prison.give(&prison.at("home"));
        let mut server = prison.server(json!(true));
        server["args"] = json!([prison.at("home/main.py")]);
        let look = |code: String| json!({ "server": "cell", "code": code });
        let steps = [
            look(format!("out = len(open('{}').read()) > 9", prison.path("home/main.py"))),
            look(format!("open('{}')", prison.path("home/.ssh/id"))),
        ];
        let told = prison.order(&json!({ "servers": [server], "steps": steps }));
        assert!(told.steps[0] == "ok: True" && told.steps[1].contains("FileNotFound"), "{told:#?}");
    });
}

#[test]
fn l17_a_folder_to_start_in_is_let_in() {
    everywhere(|prison| {
        let mut server = prison.server(json!(true));
        server["cwd"] = json!(prison.at("data"));
        let steps = [json!({ "server": "cell", "code": "out = open('note').read()" })];
        let told = prison.order(&json!({ "servers": [server], "steps": steps }));
        assert_eq!(told.works().steps, ["ok: the tide is high"]);
        let told = prison
            .run(json!(true), &["import os; out = os.getcwd() == os.environ['HOME'] and os.listdir('.')"]);
        assert_eq!(told.works().steps, ["ok: []"]);
    });
}
