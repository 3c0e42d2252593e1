//! What is written about servers that fail, and what is wrong with it.

use std::time::Duration;

use wharf::config::{Balance, BreakerSettings, HealthCheck, Resilience};

use crate::config::{explicit, server};

fn read(text: &str) -> Resilience {
    let config = explicit(&[("wharf.toml", text)], &[("TOKEN", "t0p-secret")]).unwrap();
    assert!(config.problems.is_empty() && config.warnings.is_empty(), "{text}: {config:#?}");
    server(&config, "a").resilience.clone()
}

#[test]
fn l38_every_setting_is_read_and_has_a_default() {
    let none = read("[mcp.a]\ncommand = \"x\"\n");
    let default = BreakerSettings { failures: 5, cool_down: Duration::from_secs(2) };
    assert_eq!((none.breaker, none.retries, none.instances), (Some(default), 2, 1));
    assert_eq!((none.health_check, none.balance), (HealthCheck::ByTransport, Balance::RoundRobin));
    assert!(none.idempotent.is_empty() && none.replicas.is_empty());

    let all = read(
        "[mcp.a]\ncommand = \"x\"\nbreaker = { failures = 9, cool_down = \"500ms\" }\nretries = 0\n\
         idempotent = [\"get_*\", \"search\"]\nhealth_check = \"10s\"\ninstances = 3\n\
         balance = \"least-in-flight\"\n",
    );
    let breaker = BreakerSettings { failures: 9, cool_down: Duration::from_millis(500) };
    assert_eq!((all.breaker, all.retries, all.instances), (Some(breaker), 0, 3));
    assert_eq!(all.health_check, HealthCheck::Every(Duration::from_secs(10)));
    assert_eq!(all.balance, Balance::LeastInFlight);
    for (tool, marked) in
        [("get_", true), ("get_x", true), ("search", true), ("search2", false), ("get", false)]
    {
        assert_eq!(all.is_idempotent(tool), marked, "{tool}");
    }
    let off = read("[mcp.a]\ncommand = \"x\"\nbreaker = false\nhealth_check = false\n");
    assert_eq!((off.breaker, off.health_check), (None, HealthCheck::Off));
}

#[test]
fn l39_replicas_are_addresses_with_their_secrets() {
    let text = "[mcp.a]\nurl = \"https://a.example/mcp\"\n\
                replicas = [\"https://b.example/mcp?key=${TOKEN}\", \"http://127.0.0.1:9/mcp\"]\n";
    let config = explicit(&[("wharf.toml", text)], &[("TOKEN", "t0p-secret")]).unwrap();
    let server = server(&config, "a");
    let hosts: Vec<_> =
        server.resilience.replicas.iter().map(|url| url.expose().host_str().unwrap()).collect();
    assert_eq!(hosts, ["b.example", "127.0.0.1"]);
    assert!(!format!("{server:?}").contains("t0p-secret"));
    assert_eq!(server.redactor().redact("t0p-secret"), "***");
}

#[test]
fn l38_what_is_wrong_is_told_with_its_place() {
    let cases = [
        ("breaker = 5", "`breaker` must be true, false or a table, not a number"),
        ("breaker = { failures = 0 }", "`failures` of `breaker` must be a whole number from 1 to 1000"),
        ("breaker = { failure = 3 }", "unknown member `failure` of `breaker`"),
        ("breaker = { cool_down = \"soon\" }", "`cool_down`: this is not a duration"),
        ("idempotent = \"x\"", "`idempotent` must be a list of strings"),
        ("idempotent = [\"a*b\"]", "`a*b` is not the name of a tool"),
        ("idempotent = [\"\"]", "`` is not the name of a tool"),
        ("retries = 11", "`retries` must be a whole number from 0 to 10"),
        ("retries = -1", "`retries` must be a whole number from 0 to 10"),
        ("health_check = \"10ms\"", "`health_check`: more than once a second"),
        ("health_check = \"30\"", "`health_check`: this is not a duration"),
        ("instances = 0", "`instances` must be a whole number from 1 to 64"),
        ("instances = 65", "`instances` must be a whole number from 1 to 64"),
        ("instances = \"3\"", "`instances` must be a whole number from 1 to 64"),
        ("balance = \"random\"", "`balance` cannot be `random`"),
        ("replicas = [\"https://b/mcp\"]", "`replicas` means nothing for a server that is started"),
        ("urls = []", "unknown field `urls`"),
    ];
    for (line, expected) in cases {
        let text = format!("[mcp.a]\ncommand = \"x\"\n{line}\n");
        let config = explicit(&[("wharf.toml", &text)], &[]).unwrap();
        let [problem] = &config.problems[..] else { panic!("{line}: {:#?}", config.problems) };
        let shown = problem.to_string();
        assert!(shown.contains(expected), "{line}: {shown}");
        assert!(
            shown.contains("wharf.toml") && shown.contains('3') && shown.contains('^'),
            "{line}: {shown}"
        );
    }
    for (line, expected) in [
        ("replicas = [\"ws://b/mcp\"]", "`replicas` must start with `https://` or `http://`"),
        ("replicas = [\"no-address\"]", "`replicas` is not an address"),
        ("replicas = [\"no address\"]", "`replicas` can be read in more than one way"),
        ("instances = 2", "`instances` means nothing for a server that is reached by `url`"),
    ] {
        let text = format!("[mcp.a]\nurl = \"https://a/mcp\"\n{line}\n");
        let config = explicit(&[("wharf.toml", &text)], &[]).unwrap();
        let shown = config.problems[0].to_string();
        assert!(shown.contains(expected), "{line}: {shown}");
    }
}
