//! A secret is planted wherever one can stand, and the server does its best to tell it. No event and no error does.

use std::fmt::Write as _;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tokio::sync::broadcast::error::TryRecvError;
use wharf::config::{Remote, ServerConfig, Transport};
use wharf::event::Event;
use wharf::host::{Context, NoArguments, Reply};
use wharf::names::ServerName;
use wharf::outcome::Outcome;
use wharf::secret::{Secret, SecretUrl};
use wharf::{Host, LocalTool};
use wharf_testkit::http::honest_modern;
use wharf_testkit::{Era, HttpPuppet, Puppet, Step};

use crate::support::{puppet, quick, soon};

/// Everything that events have shown so far, in every way that they can be shown.
fn shown(events: &mut tokio::sync::broadcast::Receiver<Event>) -> String {
    let mut text = String::new();
    loop {
        match events.try_recv() {
            Ok(event) => {
                write!(text, "{event:?}\n{event:#?}\n").unwrap();
                match &event {
                    Event::ToolInvoked(call) => {
                        write!(text, "{}\n{}\n", call.arguments(), call.result()).unwrap();
                        write!(text, "{}{}", call.arguments().to_value(), call.result().to_value()).unwrap();
                    }
                    Event::Log { data, level, .. } => write!(text, "{data} {level} {}", data.raw()).unwrap(),
                    Event::Stderr { line, .. } => write!(text, "{line} {}", line.raw()).unwrap(),
                    Event::Traffic { message, .. } => write!(text, "{message} {}", message.raw()).unwrap(),
                    Event::Progress { message, .. } => {
                        write!(text, "{}", message.as_ref().map_or("", |m| m.raw())).unwrap();
                    }
                    Event::Warning { message, .. } => text.push_str(message),
                    _ => {}
                }
            }
            Err(TryRecvError::Lagged(_)) => panic!("the test must hear everything"),
            Err(_) => return text,
        }
    }
}

/// What an error says, in every way that it can.
fn words(outcome: &Outcome) -> String {
    let mut text = format!("{:?}", outcome.reason);
    if let Some(error) = &outcome.error {
        write!(text, "{error} {error:?} {:?}", error.hint()).unwrap();
    }
    if let Err(error) = outcome.clone().into_result() {
        write!(text, "{error} {error:?}").unwrap();
    }
    text
}

/// A server that was given a secret and tells it in every way there is.
fn traitor(secret: &str) -> Puppet {
    let text = |text: String| json!({"content": [{"type": "text", "text": text}]});
    let structured =
        json!({"content": [], "structuredContent": {"env": [secret], secret: 1, "deep": {"x": secret}}});
    let mut failed = text(format!("it failed with {secret}"));
    failed["isError"] = json!(true);
    let escaped: String = secret.chars().map(|c| format!("\\u{:04x}", c as u32)).collect();
    let raw = format!(
        r#"{{"jsonrpc":"2.0","id":$ID,"result":{{"content":[{{"type":"text","text":"{escaped}"}}]}}}}"#
    );
    // The cut of what is shown falls into the secret.
    let cut = format!("{}{secret}", "x".repeat(4000));
    let log = |data: Value| Step::Notify {
        method: "notifications/message".into(),
        params: Some(json!({"level": "info", "data": data})),
    };
    let progress = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":$TOKEN,"progress":1,"message":"at {escaped}"}}}}"#
    );
    let tools = ["says", "shows", "fails", "refuses", "escapes", "cuts", "logs", "gone"];
    let script = tools.iter().fold(Puppet::of(Era::Legacy), |script, tool| script.plain_tool(tool));
    script
        .on("tool:says", [Step::Reply(text(format!("my key is {secret}.")))])
        .on("tool:shows", [Step::Reply(structured)])
        .on("tool:fails", [Step::Reply(failed)])
        .on(
            "tool:refuses",
            [Step::ReplyError {
                code: -32000,
                message: format!("refused with {secret}"),
                data: Some(json!({"env": {"A": secret}, secret: []})),
            }],
        )
        .on("tool:escapes", [Step::Raw(raw)])
        .on("tool:cuts", [Step::Reply(text(cut))])
        .on(
            "tool:logs",
            [
                Step::Stderr(format!("starting with {secret}")),
                log(json!(secret)),
                log(json!({"env": {"B": format!("<{secret}>")}})),
                Step::Raw(progress),
                Step::Reply(text("logged".into())),
            ],
        )
        .on("tool:gone", [Step::Stderr(format!("dying of {secret}")), Step::Exit(1)])
}

/// A local function that passes on whatever a server says.
fn relay() -> LocalTool {
    LocalTool::new("relay", "Passes on", async |_: NoArguments, context: Context| {
        let said = context.host().call("traitor_says", json!({})).await;
        Ok::<_, String>(Reply::text(said.to_text()))
    })
}

async fn betrayed(host: &Host, secret: &str) -> String {
    let mut events = host.events().subscribe();
    let mut text = String::new();
    for tool in ["says", "shows", "fails", "refuses", "escapes", "cuts", "logs", "gone"] {
        // Progress is only reported to whoever listens.
        let mut listen = |step: wharf::connect::Progress| drop(step);
        let options = wharf::CallOptions { on_progress: Some(&mut listen), ..Default::default() };
        let arguments =
            json!({"note": "kept", "said": secret, "api_key": "sesame-open-42", "n": {"auth": 123_456_789}});
        let name = format!("traitor_{tool}");
        let outcome = soon("a call", host.call_with(&name, arguments.into(), options)).await;
        assert_eq!(outcome.success, !["fails", "refuses", "gone"].contains(&tool), "{tool}: {outcome:?}");
        text.push_str(&words(&outcome));
    }
    let outcome = host.call("relay", json!({})).await;
    assert!(outcome.to_text().contains(secret), "whoever calls gets the result as it is");
    text.push_str(&words(&outcome));
    text.push_str(&words(&host.call("relay", json!(secret)).await));
    text.push_str(&shown(&mut events));
    text
}

/// The secret in every spelling that a text may have it in.
fn is_told(text: &str, secret: &str) -> bool {
    let json = serde_json::to_string(secret).unwrap();
    let url: String = url_form(secret);
    text.contains(secret) || text.contains(json.trim_matches('"')) || text.contains(&url)
}

fn url_form(text: &str) -> String {
    text.bytes()
        .map(|b| {
            if b.is_ascii_alphanumeric() || b"*-._".contains(&b) {
                (b as char).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}

/// Every part of a secret that is long enough to be of use.
fn is_partly_told(text: &str, secret: &str) -> bool {
    let chars: Vec<char> = secret.chars().collect();
    is_told(text, secret) || chars.windows(12).any(|part| text.contains(&part.iter().collect::<String>()))
}

#[test]
fn l16_no_event_and_no_error_tells_what_a_server_was_given() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let secrets = "[A-Za-z0-9/+=!@#$%^&*()\"'\\\\é -]{14,40}"
        .prop_filter("it has ends that are seen", |s| s.trim() == s);
    let mut runner = TestRunner::new(Config { cases: 6, failure_persistence: None, ..Config::default() });
    let ran = runner.run(&(secrets, any::<bool>()), |(secret, passed)| {
        let text = runtime.block_on(async {
            let mut config = puppet("traitor", &traitor(&secret));
            config.debug = true;
            let Transport::Stdio(stdio) = &mut config.transport else { unreachable!() };
            let mut world: Vec<(String, String)> = std::env::vars().collect();
            if passed {
                stdio.env_passthrough.push("PLANTED".into());
                world.push(("PLANTED".into(), secret.clone()));
            } else {
                stdio.env.insert("PLANTED".into(), Secret::new(secret.clone()));
            }
            let host = quick().environment(world).server(config).start().await.unwrap();
            host.register(relay()).unwrap();
            let text = betrayed(&host, &secret).await;
            host.close().await;
            text
        });
        prop_assert!(
            text.contains("kept") && text.contains("refused with") && text.contains("dying of"),
            "{}",
            text
        );
        prop_assert!(
            text.contains("logged") && text.contains("starting with") && text.contains("Log {"),
            "{}",
            text
        );
        prop_assert!(text.contains("Progress {"), "{}", text);
        for planted in [secret.as_str(), "sesame-open-42", "123456789"] {
            prop_assert!(!is_partly_told(&text, planted), "{:?} is told: {}", planted, text);
        }
        Ok(())
    });
    ran.unwrap();
}

#[tokio::test]
async fn l16_a_secret_in_headers_and_in_the_address_is_not_told_either() {
    let (token, key) = ("tok-5up3r-s3cret-value", "key-in-the-address-77");
    let tools = vec![
        json!({"name": "echo", "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}}}),
    ];
    let server = HttpPuppet::start(honest_modern(tools));
    let url = format!("{}?key={key}", server.url());
    let headers =
        [("Authorization".to_owned(), Secret::new(format!("Bearer {token}")))].into_iter().collect();
    let remote = Remote { url: SecretUrl::new(url.parse().unwrap()), headers };
    let mut config = ServerConfig::new(ServerName::parse("web").unwrap(), Transport::Http(remote));
    config.debug = true;
    let host = quick().server(config).start().await.unwrap();
    let mut events = host.events().subscribe();
    let outcome = host.call("web_echo", json!({"a": format!("{token} {key} and more")})).await;
    assert!(outcome.to_text().contains(token), "{outcome:?}");
    assert!(server.requests()[0].header("authorization").unwrap().contains(token), "the server does get it");
    let mut text = words(&outcome);
    text.push_str(&words(&host.call("web_echo", json!({"a": [token, key]})).await));
    drop(server);
    let failed = soon("a call to nobody", host.call("web_echo", json!({}))).await;
    assert!(!failed.success);
    text.push_str(&words(&failed));
    text.push_str(&format!("{host:?} {:?}", host.servers()));
    text.push_str(&shown(&mut events));
    assert!(text.contains("and more"), "{text}");
    assert!(!text.contains(token) && !text.contains(key), "{text}");
    host.close().await;
}

#[tokio::test]
async fn l16_what_looks_like_a_credential_is_not_told_whoever_says_it() {
    let looks = [
        "ghp_0123456789abcdefghijABCDEFGHIJ",
        "sk-proj-0123456789abcdefghij",
        "xoxb-123456789012-abcdefghij",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    ];
    let host = quick().server(puppet("pup", &Puppet::new().plain_tool("echo"))).start().await.unwrap();
    host.tools().await;
    let mut events = host.events().subscribe();
    for look in looks {
        let arguments =
            json!({"plain": look, "text": format!("use {look}, or \"{look}\""), "list": [look], look: 1});
        assert!(host.call("pup_echo", arguments).await.to_text().contains(look));
    }
    host.call("pup_echo", json!({"header": "so send Authorization: Bearer abcdef123456 with it"})).await;
    let key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\n-----END PRIVATE KEY-----\nafter it";
    host.call("pup_echo", json!({"file": format!("before it\n{key}")})).await;
    let mut named = serde_json::Map::new();
    let names =
        ["password", "apiKey", "API-KEY", "github_token", "client_secret", "Cookie", "X_AUTH", "private_key"];
    for name in names {
        named.insert(name.into(), json!({"inner": [format!("value-of-{name}")]}));
    }
    host.call("pup_echo", Value::Object(named)).await;
    let text = shown(&mut events);
    for look in looks.into_iter().chain(["abcdef123456", "MIIEvQIBADANBg", "value-of-"]) {
        assert!(!text.contains(look), "{look} is told: {text}");
    }
    for kept in ["so send Authorization: Bearer ***", "before it", "after it", "github_token", "use ***"] {
        assert!(text.contains(kept), "{kept} is not: {text}");
    }
    host.close().await;
}

#[tokio::test]
async fn l16_an_error_about_arguments_does_not_repeat_a_password() {
    let tool = json!({"name": "login", "inputSchema": {"type": "object", "properties": {
        "user": {"type": "integer"}, "password": {"type": "integer"}, "note": {"enum": ["a"]}}}});
    let host = quick().server(puppet("pup", &Puppet::new().tool(tool))).start().await.unwrap();
    let arguments =
        json!({"user": "somebody", "password": "hunter2-hunter2", "note": "ghp_0123456789abcdefghij"});
    let outcome = host.call("pup_login", arguments).await;
    let text = words(&outcome);
    assert!(text.contains("somebody") && text.contains("`password`"), "{text}");
    assert!(!text.contains("hunter2") && !text.contains("ghp_0123456789"), "{text}");
    host.close().await;
}
