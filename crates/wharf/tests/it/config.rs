//! Configuration: formats, fields, expansion, layers (l01 to l05), and that secrets stay out of sight (l16).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use wharf::config::{
    self, Config, Connect, Origin, Problem, SandboxSetting, ServerConfig, Share, Sources, Transport,
    TrustStore, find_folders, load,
};
use wharf::names::ServerName;

/// A folder with files, each for its owner alone.
pub(crate) fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        config::edit::write_atomically(&path, text).unwrap();
    }
    folder
}

pub(crate) fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Loads files as if they were named on the command line.
pub(crate) fn explicit(files: &[(&str, &str)], variables: &[(&str, &str)]) -> wharf::Result<Config> {
    let folder = folder(files);
    let explicit = files.iter().map(|(name, _)| folder.path().join(name)).collect();
    load(&Sources { explicit, env: env(variables), ..Sources::default() })
}

fn toml(text: &str) -> Config {
    explicit(&[("wharf.toml", text)], &[]).unwrap()
}

fn json(text: &str) -> Config {
    explicit(&[(".mcp.json", text)], &[]).unwrap()
}

pub(crate) fn server<'a>(config: &'a Config, name: &str) -> &'a ServerConfig {
    let problems: Vec<String> = config.problems.iter().map(ToString::to_string).collect();
    config.servers.get(name).unwrap_or_else(|| panic!("no server {name}: {}", problems.join("\n")))
}

fn only_problem(config: &Config) -> &Problem {
    assert_eq!(config.problems.len(), 1, "{:#?}", config.problems);
    &config.problems[0]
}

/// Everything a server is, but where it was written.
fn essence(server: &ServerConfig) -> String {
    let mut server = server.clone();
    server.origin = Origin::Given;
    let secrets: Vec<String> = match &mut server.transport {
        Transport::Stdio(stdio) => {
            stdio.base = None;
            stdio.env.values().map(|v| v.expose().to_owned()).collect()
        }
        Transport::Http(remote) | Transport::Sse(remote) => {
            remote.headers.values().map(|v| v.expose().to_owned()).collect()
        }
        _ => unreachable!("there is no other transport"),
    };
    format!("{server:?} {secrets:?}")
}

#[test]
fn l01_the_same_server_in_each_form_is_the_same() {
    let variables = [("WEATHER_KEY", "w-123456")];
    let forms = [
        (
            ".mcp.json",
            r#"{"mcpServers": {"weather": {
                "command": "python3", "args": ["-m", "weather"], "cwd": "/srv/weather",
                "env": {"KEY": "${WEATHER_KEY}"}, "timeout": 45000, "enabled_tools": ["now"]}}}"#,
        ),
        (
            "nexus.json",
            r#"{ // comments and trailing commas are fine
                "servers": {"weather": {
                "command": ["python3", "-m", "weather"], "cwd": "/srv/weather", "type": "stdio",
                "environment": {"KEY": "env:WEATHER_KEY",}, "timeout": "45s", /* units too */
                "enabled_tools": ["now"],}}}"#,
        ),
        (
            "wharf.toml",
            "[mcp.weather]\ntransport = \"stdio\"\ncommand = [\"python3\", \"-m\", \"weather\"]\n\
             cwd = \"/srv/weather\"\nenvironment = { KEY = \"env:WEATHER_KEY\" }\ntimeout = 45\n\
             enabled_tools = [\"now\"]\n",
        ),
        (
            "args.toml",
            "[mcp.Weather]\ncommand = \"python3\"\nargs = [\"-m\", \"weather\"]\ncwd = \"/srv/weather\"\n\
             enabled_tools = [\"now\"]\ntimeout = \"45s\"\n[mcp.Weather.env]\nKEY = \"${WEATHER_KEY}\"\n",
        ),
    ];
    let read = forms.map(|form| essence(server(&explicit(&[form], &variables).unwrap(), "weather")));
    assert!(read[0].contains("w-123456") && read[0].contains("45s"), "{}", read[0]);
    for other in &read[1..] {
        assert_eq!(&read[0], other);
    }
    let remote = [
        (
            ".mcp.json",
            r#"{"mcpServers": {"db": {"type": "http", "url": "http://localhost:8080/mcp", "headers": {"Authorization": "${T}"}}}}"#,
        ),
        (
            "b.json",
            r#"{"servers": {"db": {"url": "http://localhost:8080/mcp", "headers": {"Authorization": "${env:T}"}}}}"#,
        ),
        (
            "wharf.toml",
            "[mcp.db]\ntransport = \"http\"\nurl = \"http://localhost:8080/mcp\"\nheaders = {Authorization = \"env:T\"}\n",
        ),
    ];
    let read = remote.map(|form| essence(server(&explicit(&[form], &[("T", "t-987654")]).unwrap(), "db")));
    assert!(read[0].contains("t-987654"));
    assert!(read[1..].iter().all(|other| *other == read[0]), "{read:#?}");
}

#[test]
fn l02_every_field_is_read() {
    let config = toml(
        r#"
        [mcp.one]
        command = "node"
        args = ["dist/index.js"]
        env = { PORT = 8080, DEBUG = true }
        env_passthrough = ["HOME", "USER"]
        cwd = "server"
        enabled = false
        debug = true
        timeout = 1.5
        start_timeout = "2m"
        tool_prefix = ""
        enabled_tools = []
        disabled_tools = ["drop"]
        share = "per-caller"
        sandbox = { read = ["/srv/data", "local"], memory = "1GB", processes = 9 }
        connect = "eager"

        [mcp.two]
        transport = "streamable-http"
        url = "https://example.com/mcp?x=1"
        headers = { X-One = "1" }
        "#,
    );
    assert!(config.problems.is_empty() && config.warnings.is_empty(), "{config:#?}");
    let one = server(&config, "one");
    let Transport::Stdio(stdio) = &one.transport else { panic!("{one:?}") };
    assert_eq!((stdio.command.as_str(), stdio.args.as_slice()), ("node", &["dist/index.js".to_owned()][..]));
    assert_eq!((stdio.env["PORT"].expose(), stdio.env["DEBUG"].expose()), ("8080", "true"));
    assert_eq!(stdio.env_passthrough, ["HOME", "USER"]);
    assert_eq!(stdio.cwd.as_deref(), Some(Path::new("server")));
    assert!(stdio.base.as_ref().unwrap().is_absolute());
    assert!(!one.enabled && one.debug);
    assert_eq!((one.timeout, one.start_timeout), (Duration::from_millis(1500), Duration::from_secs(120)));
    assert_eq!(one.tool_prefix.as_deref(), Some(""));
    assert_eq!(one.enabled_tools.as_deref(), Some(&[][..]), "an empty allowlist means none (cfg_11)");
    assert_eq!(one.disabled_tools, ["drop"]);
    assert_eq!((one.share, one.connect), (Some(Share::PerCaller), Connect::Eager));
    let Some(SandboxSetting::On(profile)) = &one.sandbox else { panic!("{one:?}") };
    assert_eq!(profile.read, [PathBuf::from("/srv/data"), stdio.base.as_ref().unwrap().join("local")]);
    assert_eq!((profile.memory, profile.processes), (1024 * 1024 * 1024, 9));
    assert!(profile.write.is_empty() && profile.domains.is_empty());
    assert!(
        matches!(&one.origin, Origin::File { line: 2, path } if path.ends_with("wharf.toml")),
        "{:?}",
        one.origin
    );
    assert_eq!(server(&config, "two").transport_name(), "http");

    let guessed = json(
        r#"{"servers": {"a": {"url": "https://h/sse"}, "b": {"url": "https://h/mcp"}, "c": {"url": "https://h/sse", "type": "http"},
        "d": {"type": "sse", "url": "https://h/x"}, "e": {"command": "node", "disabled": true}, "f": {"command": "node", "includeTools": ["x"], "env": {"GONE": null}}}}"#,
    );
    let names: Vec<_> = guessed.servers.values().map(ServerConfig::transport_name).collect();
    assert_eq!(names, ["sse", "http", "http", "sse", "stdio", "stdio"]);
    assert!(!server(&guessed, "e").enabled);
    assert_eq!(server(&guessed, "f").enabled_tools.as_deref(), Some(&["x".to_owned()][..]));
}

#[test]
fn l02_unknown_fields_are_named_with_the_nearest_known_one() {
    let text = "[mcp.good]\ncommand = \"node\"\n\n[mcp.bad]\ncommand = \"node\"\nenabled_tool = [\"x\"]\n";
    let config = toml(text);
    let problem = only_problem(&config);
    assert_eq!((problem.line(), problem.server.as_deref()), (Some(6), Some("bad")));
    assert_eq!(problem.hint.as_deref(), Some("did you mean `enabled_tools`?"));
    let shown = problem.to_string();
    assert!(
        shown.contains("wharf.toml:6:1\n")
            && shown.contains("6 | enabled_tool = [\"x\"]\n  | ^^^^^^^^^^^^\n"),
        "{shown}"
    );
    assert!(server(&config, "good").enabled && config.servers.len() == 1);

    let config = json(
        r#"{"mcpServers": {"a": {"command": "node", "comand": 1, "alwaysLoad": true, "autoApprove": ["x"],
        "envFile": ".env", "headersHelper": "./x.sh", "oauth": {"clientId": "x"}}}, "inputs": []}"#,
    );
    assert!(config.problems.is_empty() && config.servers.len() == 1, "{config:#?}");
    let said: Vec<&str> = config.warnings.iter().map(|w| w.message.as_str()).collect();
    for word in ["comand", "envFile", "headersHelper", "oauth", "inputs"] {
        assert!(said.iter().any(|message| message.contains(word)), "{word}: {said:?}");
    }
    assert_eq!(said.len(), 5, "alwaysLoad and autoApprove change nothing here: {said:?}");
}

#[test]
fn l02_wrong_types_and_words_are_placed() {
    let cases = [
        ("command = \"node\"\nargs = \"x\"", "`args` must be a list of strings, not a string"),
        ("command = \"node\"\nargs = [1]", "an entry of `args` must be a string, not a number"),
        ("command = \"node\"\nenv = [\"A\"]", "`env` must be a table, not a list"),
        ("command = \"node\"\nenv = { A = [] }", "`A` must be a string, not a list"),
        ("command = \"node\"\nenabled = \"no\"", "`enabled` must be true or false, not a string"),
        ("command = 3", "`command` must be a string or a list of strings, not a number"),
        ("command = []", "`command` is empty"),
        ("command = \"npx -y pkg\"", "`command` names one program, without its arguments"),
        ("command = \"${SHELL}\"", "variables are not expanded in `command`"),
        ("command = \"node\"\ncwd = \"${HOME}\"", "variables are not expanded in `cwd`"),
        (
            "command = \"node\"\nheaders = { A = \"b\" }",
            "`headers` means nothing for a server that is started",
        ),
        ("command = \"node\"\ntransport = \"http\"", "`command` does not go with this transport"),
        ("url = \"https://h\"\ntransport = \"stdio\"", "`url` does not go with \"stdio\""),
        ("url = \"https://h\"\ntransport = \"ws\"", "`url` must start with `wss://` or `ws://`"),
        ("url = \"ws://h\"\ntransport = \"http\"", "`url` must start with `https://` or `http://`"),
        ("url = \"unix://run/x.sock\"", "`url` does not name a Unix socket"),
        ("url = \"unix:///run/x.sock#/mcp\"", "HTTP is not spoken over a Unix socket"),
        ("path = \"run/x.sock\"", "the path of a Unix socket must be absolute"),
        ("path = \"/run/${A}.sock\"", "variables are not expanded in `path`"),
        ("path = \"/run/x.sock\"\ntransport = \"ws\"", "`path` is the path of a Unix socket"),
        ("path = \"/run/x.sock\"\nurl = \"https://h\"", "`url` and `path` exclude each other"),
        ("path = \"/run/x.sock\"\nheaders = {}", "`headers` means nothing for a server at a Unix socket"),
        ("transport = \"pipe\"\nurl = \"pipe:///x\"", "the transport `pipe` is not supported yet"),
        ("url = \"file:///etc/passwd\"", "`url` must start with `https://` or `http://`"),
        ("url = \"nowhere\"", "`url` is not an address: relative URL without a base"),
        ("url = \"https://h\"\nmethod = \"GET\"", "`method` is not taken: MCP over HTTP posts every message"),
        ("url = \"https://h\"\nheaders = { \"a b\" = \"c\" }", "`a b` is not the name of a header"),
        ("url = \"https://h\"\nheaders = { A = \"x\\ny\" }", "the value of header `A` has characters"),
        ("url = \"https://h\"\nheaders = { A = \"x\", a = \"y\" }", "header `a` stands twice"),
        ("command = \"node\"\nenv = {}\nenvironment = {}", "`env` and `environment` say the same thing"),
        ("command = \"node\"\ntool_prefix = \"a b\"", "`tool_prefix` takes letters"),
        ("command = \"node\"\nshare = \"some\"", "`share` cannot be `some`"),
    ];
    for (body, message) in cases {
        let config = toml(&format!("[mcp.good]\ncommand = \"node\"\n[mcp.bad]\n{body}\n"));
        let problem = only_problem(&config);
        assert!(problem.message.starts_with(message), "{body}: {}", problem.message);
        assert!(problem.line().is_some_and(|line| line >= 3), "{body}: {problem}");
        assert!(config.servers.contains_key("good") && !config.servers.contains_key("bad"), "{body}");
    }
}

#[test]
fn l03_variables_expand_where_they_may() {
    let variables = [
        ("HOST", "example.org"),
        ("TOKEN", "t0ken-value"),
        ("DIR", "/data"),
        ("EMPTY", ""),
        ("NESTED", "${TOKEN}"),
    ];
    let text = r#"{"mcpServers": {
        "run": {"command": "node", "args": ["--dir", "${DIR}", "env:DIR", "${UNSET:-x}y", "$DIR", "$${DIR}", "a$$b", "${EMPTY:-full}", "${EMPTY}"],
                "env": {"A": "Bearer ${TOKEN}", "B": "${env:TOKEN}", "C": "${NESTED}"}},
        "reach": {"url": "https://${HOST}/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}}}"#;
    let config = explicit(&[(".mcp.json", text)], &variables).unwrap();
    let Transport::Stdio(stdio) = &server(&config, "run").transport else { panic!() };
    assert_eq!(stdio.args, ["--dir", "/data", "/data", "xy", "$DIR", "${DIR}", "a$$b", "full", ""]);
    let values: Vec<&str> = stdio.env.values().map(|value| value.expose()).collect();
    assert_eq!(values, ["Bearer t0ken-value", "t0ken-value", "${TOKEN}"], "a value is never looked at again");
    let Transport::Http(remote) = &server(&config, "reach").transport else { panic!() };
    assert_eq!(remote.url.expose().as_str(), "https://example.org/mcp");
    assert_eq!(remote.headers["Authorization"].expose(), "Bearer t0ken-value");
}

#[test]
fn l03_a_missing_variable_names_itself_and_stops_only_its_server() {
    let text =
        "[mcp.good]\ncommand = \"node\"\n[mcp.bad]\ncommand = \"node\"\nenv = { A = \"${NOT_SET}\" }\n";
    let config = toml(text);
    let problem = only_problem(&config);
    assert_eq!(problem.message, "the environment variable `NOT_SET` is not set");
    assert_eq!((problem.line(), problem.place.as_ref().unwrap().column), (Some(5), 16));
    assert!(problem.to_string().contains("\"${NOT_SET}\""), "the reference is shown: {problem}");
    assert!(config.servers.contains_key("good"));

    let off = toml("[mcp.off]\ncommand = \"node\"\nenabled = false\nenv = { A = \"${NOT_SET}\" }\n");
    assert!(
        off.problems.is_empty() && off.warnings.len() == 1,
        "a server that is off misses nothing: {off:#?}"
    );
    for (written, reason) in [
        ("${}", "not the name"),
        ("${A", "never closed"),
        ("${1}", "not the name"),
        ("${input:x}", "asks a person"),
        ("${A:-${B}}", "another variable"),
        ("${env:A}", "another client's spelling"),
    ] {
        let config = toml(&format!("[mcp.a]\ncommand = \"node\"\nenv = {{ A = \"{written}\" }}\n"));
        assert!(only_problem(&config).message.contains(reason), "{written}: {}", config.problems[0]);
    }
}

#[test]
fn l04_layers_replace_whole_add_up_and_switch() {
    let home = folder(&[(
        "wharf.toml",
        "[mcp.github]\ncommand = \"node\"\nargs = [\"far.js\"]\ntimeout = 9\n[mcp.notes]\ncommand = \"node\"\n\
         [mcp.asleep]\ncommand = \"node\"\nenabled = false\n[mcp.same]\ncommand = \"node\"\n",
    )]);
    let project = folder(&[
        (
            ".mcp.json",
            r#"{"mcpServers": {"notes": {"enabled": false}, "db": {"url": "https://db/mcp"}, "same": {"command": "python3"}}}"#,
        ),
        ("wharf.toml", "[mcp.same]\ncommand = \"deno\"\n"),
        (
            "inner/.mcp.json",
            r#"{"servers": {"GitHub": {"command": ["node", "near.js"]}, "asleep": {"enabled": true}, "nobody": {"enabled": false}}}"#,
        ),
    ]);
    let mut trust = TrustStore::default();
    for file in [".mcp.json", "wharf.toml", "inner/.mcp.json"] {
        let path = project.path().join(file);
        trust.trust(&path, &std::fs::read(&path).unwrap()).unwrap();
    }
    let sources = Sources {
        user: Some(home.path().join("wharf.toml")),
        folders: vec![project.path().to_owned(), project.path().join("inner")],
        trust,
        ..Sources::default()
    };
    let config = load(&sources).unwrap();
    assert!(config.problems.is_empty() && config.pending.is_empty(), "{config:#?}");
    let github = server(&config, "github");
    let Transport::Stdio(stdio) = &github.transport else { panic!() };
    assert_eq!(
        (stdio.args[0].as_str(), github.timeout),
        ("near.js", Duration::from_secs(30)),
        "replaced whole"
    );
    assert!(!server(&config, "notes").enabled && server(&config, "asleep").enabled);
    assert_eq!(server(&config, "db").transport_name(), "http");
    let Transport::Stdio(same) = &server(&config, "same").transport else { panic!() };
    assert_eq!(same.command, "deno", "in one folder wharf.toml wins");
    assert!(config.warnings.iter().any(|w| w.message.contains("`nobody`")), "{:?}", config.warnings);
}

#[test]
fn l04_a_broken_nearer_server_does_not_bring_the_farther_one_back() {
    let far = ("far.toml", "[mcp.a]\ncommand = \"node\"\n[mcp.b]\ncommand = \"node\"\n");
    let near = ("near.toml", "[mcp.a]\ncommand = \"node\"\nurl = \"https://h\"\n");
    let config = explicit(&[far, near], &[]).unwrap();
    assert!(only_problem(&config).message.contains("exclude each other"));
    assert_eq!(config.servers.keys().map(ServerName::as_str).collect::<Vec<_>>(), ["b"]);
}

#[test]
fn l04_given_servers_are_nearest_and_built_in_ones_farthest() {
    let name = |text| ServerName::parse(text).unwrap();
    let mut demo = ServerConfig::stdio(name("demo"), "wharf", ["test-server"]);
    demo.origin = Origin::BuiltIn;
    let mut other = ServerConfig::stdio(name("other"), "wharf", ["test-server"]);
    other.origin = Origin::BuiltIn;
    let given = ServerConfig::stdio(name("mine"), "node", ["given.js"]);
    let folder = folder(&[(
        "wharf.toml",
        "[mcp.demo]\ncommand = \"python3\"\n[mcp.mine]\ncommand = \"python3\"\n[mcp.other]\nenabled = false\n",
    )]);
    let sources = Sources {
        user: Some(folder.path().join("wharf.toml")),
        given: vec![given, demo, other],
        ..Sources::default()
    };
    let config = load(&sources).unwrap();
    assert!(matches!(server(&config, "demo").origin, Origin::File { .. }));
    assert_eq!(server(&config, "mine").origin, Origin::Given);
    assert!(!server(&config, "other").enabled, "the user can turn a built-in server off");
    let nothing = Sources { user: Some(PathBuf::from("/nonexistent/wharf.toml")), ..Sources::default() };
    assert!(load(&nothing).unwrap().servers.is_empty(), "the user's file may be missing");
}

#[test]
fn l05_each_mistake_is_its_servers_alone() {
    let config = toml(
        "[mcp.both]\ncommand = \"node\"\nurl = \"https://h\"\n[mcp.neither]\ntimeout = 5\n[mcp.\"9lives\"]\n\
         command = \"node\"\n[mcp.leak]\ncommand = \"node\"\nargs = [\"--api-key\", \"abc123\"]\n[mcp.good]\ncommand = \"node\"\n",
    );
    assert_eq!(config.servers.keys().map(ServerName::as_str).collect::<Vec<_>>(), ["good"]);
    let mut seen: Vec<(usize, &str)> =
        config.problems.iter().map(|p| (p.line().unwrap(), p.server.as_deref().unwrap())).collect();
    seen.sort_unstable();
    assert_eq!(seen, [(3, "both"), (4, "neither"), (6, "9lives"), (10, "leak")]);
    assert!(config.problems.iter().all(|p| p.to_error().kind() == "config"));
}

#[test]
fn l05_credentials_in_args_are_refused_and_their_innocent_twins_are_not() {
    let load = |args: &str| {
        let text = format!("[mcp.a]\ncommand = \"node\"\nargs = {args}\n");
        let variables = [("GITHUB_TOKEN", "harmless"), ("PLAIN", "ghp_0123456789abcdefghij"), ("DIR", "/d")];
        explicit(&[("wharf.toml", &text)], &variables).unwrap()
    };
    let refused = [
        r#"["${GITHUB_TOKEN}"]"#,
        r#"["--x=${GITHUB_TOKEN}"]"#,
        r#"["env:GITHUB_TOKEN"]"#,
        r#"["${PLAIN}"]"#,
        r#"["ghp_0123456789abcdefghij"]"#,
        r#"["--token=hunter2hunter2"]"#,
        r#"["--api-key", "hunter2hunter2"]"#,
        r#"["--accessToken", "hunter2hunter2"]"#,
        r#"["-e", "API_KEY=hunter2hunter2"]"#,
        r#"["--header", "Authorization: Bearer hunter2hunter2"]"#,
        r#"["postgresql://me:hunter2hunter2@localhost/db"]"#,
        r#"["--url=https://h/mcp?api_key=hunter2hunter2"]"#,
    ];
    for args in refused {
        let config = load(args);
        let problem = only_problem(&config);
        assert!(problem.message.contains("credential"), "{args}: {problem}");
        let shown = format!("{problem} {:?} {:?}", problem.to_error(), config);
        assert!(!shown.contains("hunter2") && !shown.contains("ghp_0123456789"), "{args}: {shown}");
    }
    let taken = [
        r#"["${DIR}", "--root=${DIR}"]"#,
        r#"["--private-key", "/run/secrets/key.pem"]"#,
        r#"["--token-file", "token.txt"]"#,
        r#"["--token-env", "GITHUB_TOKEN"]"#,
        r#"["run", "-e", "GITHUB_TOKEN", "image"]"#,
        r#"["--max-tokens", "4096"]"#,
        r#"["--token", "--verbose"]"#,
        r#"["--header", "Authorization:$${AUTH_HEADER}"]"#,
        r#"["postgresql://localhost/db"]"#,
        r#"["https://h/mcp?page=2"]"#,
    ];
    for args in taken {
        let config = load(args);
        assert!(config.problems.is_empty() && config.servers.len() == 1, "{args}: {:#?}", config.problems);
    }
}

#[test]
fn l05_names_are_normalised_and_two_alike_are_refused() {
    let config = json(
        r#"{"mcpServers": {"My Server": {"command": "node"}, "ok": {"command": "node"}, "my_server": {"command": "deno"}}}"#,
    );
    let problem = only_problem(&config);
    assert!(problem.message.contains("`My Server` (line 1) and `my_server`"), "{problem}");
    assert_eq!(config.servers.keys().map(ServerName::as_str).collect::<Vec<_>>(), ["ok"]);
    let config = json(r#"{"mcpServers": {"My Server": {"command": "node"}}}"#);
    assert!(config.servers.contains_key("my_server"));
    let across = json(r#"{"mcpServers": {"a": {"command": "node"}}, "servers": {"A": {"command": "deno"}}}"#);
    assert!(only_problem(&across).message.contains("same name `a`"));
}

#[test]
fn l16_no_value_of_env_or_headers_is_ever_shown() {
    let secret = "s3cr3t-value-0000";
    let good = explicit(
        &[("wharf.toml", "[mcp.a]\ncommand = \"node\"\nenv = { A = \"${S}\", B = \"s3cr3t-value-0000\" }\n[mcp.b]\nurl = \"https://h/${S}/mcp?k=${S}\"\nheaders = { X = \"env:S\" }\n")],
        &[("S", secret)],
    )
    .unwrap();
    assert_eq!(good.servers.len(), 2);
    assert!(!format!("{good:?}").contains(secret));
    assert_eq!(server(&good, "b").redactor().redact(&format!("x {secret} y")), "x *** y");
    let sources = Sources { env: env(&[("S", secret)]), ..Sources::default() };
    assert!(!format!("{sources:?}").contains(secret));

    let broken = [
        ("wharf.toml", "[mcp.a]\ncommand = \"node\"\nenv = { TOKEN = \"s3cr3t-value-0000\", A = [] }\n"),
        ("wharf.toml", "[mcp.a]\nurl = \"https://h\"\nheaders = { X = \"s3cr3t-value-0000 ${GONE}\" }\n"),
        (
            "wharf.toml",
            "[mcp.a]\nurl = \"https://h\"\nheaders = { X = \"${GONE} ${GONE:-s3cr3t-value-0000}\" }\n",
        ),
        ("wharf.toml", "[mcp.a]\nurl = \"https://h\"\nheaders = { X = \"s3cr3t-value-0000\\u0007\" }\n"),
        ("wharf.toml", "[mcp.a]\nenv = { TOKEN = s3cr3t-value-0000 }\n"),
        ("wharf.toml", "[mcp.a]\nTOKEN = \"s3cr3t-value-0000\n"),
        (".mcp.json", "{\"mcpServers\": {\"a\": {\"env\": {\"A\": \"s3cr3t-value-0000\" \"B\": 1}}}}"),
        (".mcp.json", "{\"mcpServers\": {\"a\": {\"env\": {\"A\": s3cr3t-value-0000}}}}"),
        (
            ".mcp.json",
            "{\"mcpServers\": {\"a\": {\"command\": \"node\", \"env\": {\"A\": \"s3cr3t-value-0000\", \"A\": 1}}}}",
        ),
        (
            ".mcp.json",
            "{\"mcpServers\": {\"a\": {\"command\": 1, \"args\": [\"--token\", \"s3cr3t-value-0000\"]}}}",
        ),
    ];
    for file in broken {
        let shown = match explicit(&[file], &[]) {
            Ok(config) => {
                assert!(!config.problems.is_empty(), "{file:?}");
                config.problems.iter().map(|p| format!("{p} {p:?}")).collect::<String>()
            }
            Err(error) => format!("{error} {error:?} {:?}", error.hint()),
        };
        assert!(shown.contains(" | ") && !shown.contains("s3cr3t"), "{file:?}: {shown}");
    }
}

#[test]
fn timeouts_are_held_to_their_files_unit() {
    let seconds = |text: &str| toml(&format!("[mcp.a]\ncommand = \"node\"\ntimeout = {text}\n"));
    let millis =
        |text: &str| json(&format!(r#"{{"servers": {{"a": {{"command": "node", "timeout": {text}}}}}}}"#));
    for (config, expected) in [
        (seconds("30"), 30_000),
        (seconds("0.5"), 500),
        (seconds("\"500ms\""), 500),
        (seconds("\"2m\""), 120_000),
        (seconds("3600"), 3_600_000),
        (seconds("\"2h\""), 7_200_000),
        (millis("60000"), 60_000),
        (millis("1000"), 1000),
        (millis("\"30s\""), 30_000),
    ] {
        assert_eq!(server(&config, "a").timeout, Duration::from_millis(expected));
    }
    for (config, word) in [
        (seconds("60000"), "seconds is more than an hour"),
        (seconds("3601"), "seconds is more than an hour"),
        (seconds("0"), "no time to wait"),
        (seconds("-1"), "no time to wait"),
        (seconds("nan"), "no time to wait"),
        (seconds("\"30\""), "needs a number and a unit"),
        (seconds("\"25h\""), "more than a day"),
        (seconds("true"), "a duration is a number"),
        (millis("30"), "milliseconds is less than a second"),
        (millis("999"), "milliseconds is less than a second"),
        (millis("1e999"), "no time to wait"),
        (millis("0"), "no time to wait"),
    ] {
        assert!(only_problem(&config).message.contains(word), "{word}: {}", config.problems[0]);
    }
}

#[test]
fn folders_run_from_the_farthest_ancestor_to_the_start() {
    let find = |start: &str, stop: Option<&str>| -> Vec<String> {
        let found = find_folders(Path::new(start), stop.map(Path::new));
        found.into_iter().map(|folder| folder.to_string_lossy().into_owned()).collect()
    };
    assert_eq!(find("/home/me/a/b", Some("/home/me")), ["/home/me/a", "/home/me/a/b"]);
    assert_eq!(find("/home/me", Some("/home/me")), ["/home/me"]);
    assert_eq!(find("/srv/x", Some("/home/me")), ["/srv", "/srv/x"]);
    assert_eq!(find("/", None), ["/"]);
}
