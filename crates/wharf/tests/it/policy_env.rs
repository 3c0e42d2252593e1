//! The environment of a child (l13, l14, l16 and the hostile cases ENV).

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::collections::BTreeMap;
use std::path::Path;

use wharf::Result;
use wharf::config::{Origin, Stdio};
use wharf::names::ServerName;
use wharf::policy::{EnvRules, LaunchPermit, LaunchRequest, Policy, filter_environment};
use wharf::secret::Secret;

fn host_env() -> BTreeMap<String, String> {
    let pairs = [
        ("PATH", "/usr/bin:.::bin:/opt/bin"),
        ("HOME", "/home/ada"),
        ("LANG", "C.UTF-8"),
        ("LC_ALL", "C"),
        ("MCP_DEBUG", "1"),
        ("MCP_API_TOKEN", "t0ken-t0ken"),
        ("FASTMCP_LOG", "ghp_0123456789abcdef0123"),
        ("AWS_ACCESS_KEY_ID", "AKIA0123456789ABCDEF"),
        ("GITHUB_TOKEN", "x"),
        ("SSH_AUTH_SOCK", "/tmp/agent"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x"),
        ("CUSTOM_SECRET", "x"),
        ("PYTHONPATH", "/evil"),
        ("NODE_PATH", "/evil"),
        ("NPM_CONFIG_PREFIX", "/evil"),
        ("LD_PRELOAD", "/evil.so"),
        ("HTTP_PROXY", "http://evil"),
        ("SSL_CERT_FILE", "/evil.pem"),
        ("BASH_FUNC_ls%%", "() { evil; }"),
        ("EDITOR", "vi"),
    ];
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn launch(policy: &Policy, env: &[(&str, &str)], passthrough: &[&str]) -> Result<LaunchPermit> {
    let stdio = Stdio {
        command: "node".into(),
        args: vec!["/a.js".into()],
        env: env.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect(),
        env_passthrough: passthrough.iter().map(|name| (*name).to_owned()).collect(),
        ..Stdio::default()
    };
    policy.permit_launch(&LaunchRequest {
        server: &ServerName::parse("srv").unwrap(),
        stdio: &stdio,
        origin: &Origin::Given,
        program: Some(Path::new("/usr/bin/node")),
        sandbox: None,
        host_env: &host_env(),
    })
}

fn pairs(permit: &LaunchPermit) -> Vec<(&str, &str)> {
    permit.env().iter().map(|(name, value)| (name.as_str(), value.expose())).collect()
}

const INHERITED: [(&str, &str); 5] = [
    ("HOME", "/home/ada"),
    ("LANG", "C.UTF-8"),
    ("LC_ALL", "C"),
    ("MCP_DEBUG", "1"),
    ("PATH", "/usr/bin:/opt/bin"),
];

#[test]
fn env_01_the_child_gets_the_safe_names_and_nothing_else() {
    assert_eq!(pairs(&launch(&Policy::strict(), &[], &[]).unwrap()), INHERITED);
}

#[test]
fn l13_env_and_passthrough_add_what_they_name() {
    let permit =
        launch(&Policy::strict(), &[("API_KEY", "s3cret"), ("LANG", "de")], &["GITHUB_TOKEN", "GONE"])
            .unwrap();
    let names: Vec<&str> = pairs(&permit).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["API_KEY", "GITHUB_TOKEN", "HOME", "LANG", "LC_ALL", "MCP_DEBUG", "PATH"]);
    assert!(pairs(&permit).contains(&("LANG", "de")));
    assert_eq!(permit.warnings().len(), 1);
    assert!(permit.warnings()[0].contains("`GONE`"), "{:?}", permit.warnings());
}

#[test]
fn env_02_loader_variables_are_refused_even_when_named() {
    for name in [
        "LD_PRELOAD",
        "LD_AUDIT",
        "LD_LIBRARY_PATH",
        "DYLD_INSERT_LIBRARIES",
        "NODE_OPTIONS",
        "NODE_PATH",
        "BASH_ENV",
        "ENV",
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONSTARTUP",
        "PYTHONUSERBASE",
        "PYTHONWARNINGS",
        "GIT_SSH_COMMAND",
        "GIT_CONFIG_COUNT",
        "GIT_EXTERNAL_DIFF",
        "OPENSSL_CONF",
        "GCONV_PATH",
        "PERL5OPT",
        "RUBYOPT",
        "JAVA_TOOL_OPTIONS",
        "NODE_REPL_EXTERNAL_MODULE",
    ] {
        let error = launch(&Policy::strict(), &[(name, "x")], &[]).unwrap_err();
        assert!(error.to_string().contains(&format!("`{name}`")), "{error}");
        assert!(error.hint().unwrap().contains(&format!("env_allow = [\"{name}\"]")));
        launch(&Policy::strict(), &[], &[name]).unwrap_err();
        let policy = Policy::strict().with_env_allowed([name]);
        assert!(pairs(&launch(&policy, &[(name, "x")], &[]).unwrap()).contains(&(name, "x")));
    }
    launch(&Policy::strict(), &[("GITHUB_TOKEN", "x"), ("NODE_ENV", "test"), ("GIT_TOKEN", "x")], &[])
        .unwrap();
}

#[test]
fn env_03_a_name_that_hides_another_is_refused_even_where_that_is_allowed() {
    let policy = Policy::strict().with_env_allowed(["LD_PRELOAD=/x.so:", "", "A B", "LD_PRELOAD"]);
    for name in ["LD_PRELOAD=/x.so:", "", "A B", "1A", "A-B", "BASH_FUNC_ls%%", "A\0B", "Ä", "A\n"] {
        launch(&policy, &[(name, "x")], &[]).unwrap_err();
        launch(&policy, &[], &[name]).unwrap_err();
    }
    launch(&policy, &[("a_B1", "x"), ("_X", "x")], &[]).unwrap();
    launch(&policy, &[("A", "x\0y")], &[]).unwrap_err();
    launch(&policy, &[("A", "x\ny")], &[]).unwrap();
}

#[test]
fn env_04_the_settings_of_launchers_are_refused() {
    for name in ["npm_config_call", "NPM_CONFIG_SCRIPT_SHELL", "UV_INDEX_URL", "PIP_INDEX_URL", "UV_PYTHON"] {
        launch(&Policy::strict(), &[(name, "x")], &[]).unwrap_err();
        launch(&Policy::strict().with_env_allowed([name]), &[(name, "x")], &[]).unwrap();
    }
}

#[test]
fn env_05_a_config_does_not_say_where_things_are() {
    for name in ["PATH", "HOME", "TMPDIR", "XDG_CONFIG_HOME"] {
        launch(&Policy::strict(), &[(name, "/evil")], &[]).unwrap_err();
        launch(&Policy::strict().with_env_allowed([name]), &[(name, "/mine")], &[]).unwrap();
    }
    let permit = launch(&Policy::strict(), &[], &["PATH", "HOME"]).unwrap();
    assert_eq!(pairs(&permit), INHERITED, "passing on what is inherited anyway changes nothing");
}

#[test]
fn env_08_a_secret_is_not_in_what_is_printed() {
    let permit = launch(&Policy::strict(), &[("API_KEY", "hunter2-hunter2")], &["GITHUB_TOKEN"]).unwrap();
    assert!(!format!("{permit:?}").contains("hunter2"));
    let error = launch(&Policy::strict(), &[("LD_PRELOAD", "hunter2-hunter2")], &[]).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hunter2"));
    let filtered =
        filter_environment(&host_env(), &EnvRules::new(["GITHUB_TOKEN", "CUSTOM_SECRET"], [""; 0]));
    assert!(!format!("{filtered:?}").contains("\"x\""));
}

#[test]
fn env_09_proxies_and_certificates_are_not_passed_on_by_accident() {
    for name in [
        "HTTP_PROXY",
        "https_proxy",
        "NO_PROXY",
        "ALL_PROXY",
        "SSL_CERT_FILE",
        "NODE_TLS_REJECT_UNAUTHORIZED",
    ] {
        launch(&Policy::strict(), &[(name, "x")], &[]).unwrap_err();
    }
    launch(&Policy::strict(), &[], &["HTTP_PROXY"]).unwrap_err();
    let policy = Policy::strict().with_env_allowed(["HTTP_PROXY"]);
    assert!(pairs(&launch(&policy, &[], &["HTTP_PROXY"]).unwrap()).contains(&("HTTP_PROXY", "http://evil")));
}

#[test]
fn l14_the_filter_is_public_with_its_own_rules_and_says_what_it_dropped() {
    let filtered = filter_environment(
        &host_env(),
        &EnvRules::new(["EDITOR", "PYTHONPATH"], ["AWS_*", "*_SECRET", "LD_*", "OTEL_*"]),
    );
    let kept: Vec<&str> = filtered.kept.keys().map(String::as_str).collect();
    assert_eq!(kept, ["EDITOR", "OTEL_EXPORTER_OTLP_HEADERS", "PYTHONPATH"]);
    assert_eq!(filtered.dropped.len(), host_env().len() - 3);
    assert!(filtered.dropped.contains(&"LD_PRELOAD".to_owned()));
    let none = filter_environment(&host_env(), &EnvRules::new([""; 0], [""; 0]));
    assert!(none.kept.is_empty(), "an empty allowlist means none");
}

#[test]
fn l14_the_default_filter_keeps_the_path_as_it_is() {
    let filtered = filter_environment(&host_env(), &EnvRules::default());
    assert_eq!(filtered.kept["PATH"], host_env()["PATH"]);
    assert_eq!(filtered.kept.len(), INHERITED.len());
}
