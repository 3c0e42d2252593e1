//! `[callers]` and `[gateway]` in files: what they say, and whose files may say it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use wharf::config::{Config, Sources, TrustStore, load};
use wharf::names::{CallerName, ServerName, ToolName};

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        fs::create_dir(files.project()).unwrap();
        files
    }

    fn user(&self) -> PathBuf {
        self.0.path().join("user.toml")
    }

    fn project(&self) -> PathBuf {
        self.0.path().join("project")
    }

    fn load(&self, trusted: &[(&Path, &str)]) -> wharf::Result<Config> {
        let mut trust = TrustStore::default();
        for (path, text) in trusted {
            write(path, text);
            trust.trust(path, text.as_bytes()).unwrap();
        }
        let folders = vec![self.project()];
        load(&Sources { user: Some(self.user()), folders, trust, ..Sources::default() })
    }
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn user(text: &str) -> wharf::Result<Config> {
    let files = Files::new();
    write(&files.user(), text);
    files.load(&[])
}

fn given(config: &Config, caller: &str, server: &str, tool: &str) -> bool {
    let rules = config.callers.as_ref().unwrap().rules_of(&CallerName::parse(caller).unwrap());
    rules.gives_tool(&ServerName::parse(server).unwrap(), &ToolName::parse(tool).unwrap())
}

#[test]
fn l92_rules_give_servers_and_tools_and_take_away() {
    let config = user(
        r#"
        [callers.alice]
        servers = ["Git", "time"]
        tools = ["!git/git_push*", "db/read_*"]
        [callers.admin]
        servers = ["*", "!vault"]
        tools = ["vault/*"]
        [callers.nobody]
        servers = []
        [callers."*"]
        tools = ["*/ping"]
        "#,
    )
    .unwrap();
    let table = [
        ("alice", "git", "git_log", true),
        ("alice", "git", "git_push", false),
        ("alice", "git", "git_push_force", false),
        ("alice", "time", "anything", true),
        ("alice", "db", "read_row", true),
        ("alice", "db", "write_row", false),
        ("alice", "gitlab", "git_log", false),
        ("admin", "git", "git_push", true),
        ("admin", "vault", "open", false),
        ("nobody", "git", "git_log", false),
        ("nobody", "git", "ping", false),
        ("stranger", "git", "ping", true),
        ("stranger", "git", "pingpong", false),
        ("stranger", "git", "git_log", false),
        ("Alice", "git", "git_log", false),
    ];
    for (caller, server, tool, expected) in table {
        assert_eq!(given(&config, caller, server, tool), expected, "{caller} {server}/{tool}");
    }
    assert!(user("").unwrap().callers.is_none(), "no table: everyone has everything");
    let closed = user("[callers]").unwrap();
    assert!(!given(&closed, "alice", "git", "git_log"), "an empty table: nobody has anything");
}

#[test]
fn l92_a_rule_that_cannot_be_read_ends_the_load() {
    let wrong = [
        "[callers.a]\nserver = [\"git\"]",
        "[callers.a]\nservers = \"git\"",
        "[callers.a]\nservers = [\"git/log\"]",
        "[callers.a]\nservers = [\"g*t\"]",
        "[callers.a]\nservers = [\"\"]",
        "[callers.a]\nservers = [5]",
        "[callers.a]\ntools = [\"git\"]",
        "[callers.a]\ntools = [\"git/*_log\"]",
        "[callers.a]\ntools = [\"git/\"]",
        "[callers.a]\ntools = [\"/log\"]",
        "[callers.a]\ntools = [\"!!git/log\"]",
        "[callers]\na = 5",
        "[caller.a]",
        "[gateway]\nlimit = 1",
        "[gateway.limits]\ncalls_per_caller = 0",
        "[gateway.limits]\nburst = 1.5",
        "[gateway.limits]\nwaiting = \"many\"",
        "[gateway.jwt]\naudience = \"x\"",
        "[gateway.jwt]\nissuer = \"example.org\"",
        "[gateway.jwt]\nissuer = \"https://u:p@example.org\"",
        "[gateway.jwt]\nissuer = \"https://example.org\"\nalgorithms = [\"HS256\"]",
    ];
    for text in wrong {
        let error = user(text).expect_err(text);
        assert_eq!(error.kind(), "config", "{text}");
    }
    let typo = user("[callers.a]\nserver = [\"git\"]").unwrap_err();
    assert!(typo.hint().is_some_and(|hint| hint.contains("`servers`")), "{typo:?}");
    let right = user("[gateway]\nurl = \"https://t.example.org/mcp\"\n[gateway.limits]\nburst = 3").unwrap();
    assert_eq!(right.gateway.limits.burst, Some(3));
}

#[test]
fn l92_a_projects_file_may_not_say_who_calls() {
    let files = Files::new();
    write(&files.user(), "[callers.alice]\nservers = [\"git\"]\n[mcp.own]\ncommand = \"npx\"");
    let toml = files.project().join("wharf.toml");
    let json = files.project().join(".mcp.json");
    let server = "[mcp.evil]\ncommand = \"npx\"\n";
    for rules in
        ["[callers.eve]\nservers = [\"*\"]", "[gateway.jwt]\nissuer = \"https://evil.example\"", "[gateway]"]
    {
        let config = files.load(&[(&toml, &format!("{server}{rules}"))]).unwrap();
        assert!(!given(&config, "eve", "git", "x"), "{rules}");
        assert!(config.gateway.jwt.is_none());
        assert_eq!(config.servers.keys().map(ServerName::as_str).collect::<Vec<_>>(), ["own"], "{rules}");
        assert!(config.problems.iter().any(|p| p.message.contains("may not say who calls")), "{rules}");
    }
    fs::remove_file(&toml).unwrap();
    let text = r#"{"mcpServers": {"evil": {"command": "npx"}}, "callers": {"eve": {"servers": ["*"]}}}"#;
    let config = files.load(&[(&json, text)]).unwrap();
    assert_eq!(config.servers.len(), 1);
    assert!(config.problems.iter().any(|p| p.message.contains("callers")), "{:?}", config.problems);
    // Its twin, without the rules, is taken.
    let config = files.load(&[(&json, r#"{"mcpServers": {"good": {"command": "npx"}}}"#)]).unwrap();
    assert_eq!(config.servers.len(), 2);
}

#[test]
fn l96_who_watches_what_is_required_and_where_traces_go() {
    let text = r#"
        [gateway]
        operators = ["prometheus"]
        required = ["Git"]
        [telemetry]
        otlp = "http://127.0.0.1:4318"
        sample = 0.25
        service = "harbour"
        headers = { Authorization = "Bearer open-sesame" }
        "#;
    let config = user(text).unwrap();
    assert_eq!(config.gateway.operators, Some(vec![CallerName::parse("prometheus").unwrap()]));
    assert_eq!(config.gateway.required, [ServerName::parse("git").unwrap()]);
    assert_eq!(config.telemetry.otlp.as_ref().map(url::Url::as_str), Some("http://127.0.0.1:4318/"));
    assert_eq!((config.telemetry.sample, config.telemetry.service.as_str()), (0.25, "harbour"));
    assert_eq!(config.telemetry.headers["Authorization"].expose(), "Bearer open-sesame");
    assert!(!format!("{:?}", config.telemetry).contains("open-sesame"), "it is a secret");
    let nothing = user("").unwrap();
    assert_eq!((nothing.telemetry.otlp, nothing.telemetry.sample), (None, 1.0));
    assert_eq!((nothing.gateway.operators, nothing.gateway.required.len()), (None, 0));
    for bad in [
        "[telemetry]\notlp = \"127.0.0.1:4318\"",
        "[telemetry]\notlp = \"http://user:word@127.0.0.1\"",
        "[telemetry]\nsample = 2",
        "[telemetry]\nsample = \"all\"",
        "[telemetry]\nservice = \"\"",
        "[telemetry]\nheaders = \"Authorization\"",
        "[telemetry]\nheaders = { \"a b\" = \"x\" }",
        "[telemetry]\nheaders = { A = \"two\\nlines\" }",
        "[telemetry]\nheaders = { A = \"env:NOBODY_SETS_THIS\" }",
        "[telemetry]\notpl = \"http://127.0.0.1:4318\"",
        "[gateway]\noperators = [\"\"]",
        "[gateway]\nrequired = [\"7\"]",
        "telemetry = 1",
    ] {
        assert!(user(bad).is_err(), "{bad}");
    }
    // A project does not say where anything is sent.
    let files = Files::new();
    write(&files.user(), "");
    let path = files.project().join("wharf.toml");
    let config = files.load(&[(&path, "[telemetry]\notlp = \"http://127.0.0.1:4318\"\n")]).unwrap();
    assert_eq!(config.telemetry.otlp, None);
    assert!(config.problems.iter().any(|p| p.message.contains("may not say where traces go")));
}
