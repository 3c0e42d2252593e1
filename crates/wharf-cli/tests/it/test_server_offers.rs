//! What `wharf test-server` has beside tools, used through the library, over each of its transports and in both eras.
#![expect(clippy::disallowed_methods, reason = "these tests start the server they talk to")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::json;
use wharf::ask::{AcceptDefaults, Asker, Decline};
use wharf::config::{Origin, Remote, ServerConfig, Transport};
use wharf::connect::{EraStore, Verdict};
use wharf::event::Event;
use wharf::mcp::{Content, Era, LogLevel, Reference};
use wharf::names::ServerName;
use wharf::policy::Policy;
use wharf::secret::SecretUrl;
use wharf::{CallOptions, Host};

const WHARF: &str = env!("CARGO_BIN_EXE_wharf");

/// Believes that every server speaks this era.
struct Known(Era);

impl EraStore for Known {
    fn get(&self, _: &str) -> Option<Verdict> {
        Some(Verdict { era: self.0, at: SystemTime::now() })
    }

    fn put(&self, _: &str, _: Verdict) {}
}

/// The server over HTTP.
struct Listening {
    child: Child,
    address: String,
}

impl Listening {
    fn start() -> Self {
        let mut child = Command::new(WHARF)
            .args(["test-server", "--http", "127.0.0.1:0"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let address =
            line.trim().strip_prefix("listening on ").unwrap().strip_suffix("/mcp").unwrap().to_owned();
        Self { child, address }
    }

    fn at(&self, make: fn(Remote) -> Transport, path: &str) -> ServerConfig {
        let url = format!("{}{path}", self.address).parse().unwrap();
        let remote = Remote { url: SecretUrl::new(url), headers: Default::default() };
        ServerConfig::new(ServerName::parse("demo").unwrap(), make(remote))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn piped() -> ServerConfig {
    let mut config = ServerConfig::stdio(ServerName::parse("demo").unwrap(), WHARF, ["test-server"]);
    config.origin = Origin::Given;
    config
}

async fn host(server: ServerConfig, era: Era, asker: impl Asker) -> Host {
    let host = Host::builder()
        .server(server)
        .policy(Policy::strict().with_sandbox(false).with_commands([WHARF]))
        .environment(std::env::vars())
        .eras(Arc::new(Known(era)))
        .asker(asker)
        .start()
        .await
        .unwrap();
    let spoken = host.berth("demo").unwrap().connection().await.unwrap().info().revision.era();
    assert_eq!(spoken, era);
    host
}

async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("this did not end")
}

fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

async fn call(host: &Host, tool: &str, arguments: serde_json::Value) -> String {
    let outcome = soon(host.call_tool("demo", tool, arguments, CallOptions::default())).await;
    assert!(outcome.error.is_none(), "{outcome:?}");
    outcome.to_text()
}

async fn resources(host: &Host) {
    let offered = host.resources("demo").await.unwrap();
    assert!(offered.rejected.is_empty(), "{:?}", offered.rejected);
    let uris: Vec<&str> = offered.items.iter().map(|r| r.uri.raw()).collect();
    assert_eq!(uris, ["demo://greeting", "demo://dot.png", "demo://note"]);
    let template = host.resource_templates("demo").await.unwrap().items.remove(0);
    assert_eq!(template.uri_template.raw(), "demo://harbours/{name}");
    let greeting = host.read_resource("demo", "demo://greeting").await.unwrap();
    assert!(greeting.contents[0].text().unwrap().raw().starts_with("Ahoy!"));
    let dot = host.read_resource("demo", "demo://dot.png").await.unwrap();
    assert!(dot.contents[0].text().is_none() && dot.contents[0].bytes().starts_with(b"\x89PNG\r\n\x1a\n"));
    let kiel = host.read_resource("demo", "demo://harbours/kiel").await.unwrap();
    assert!(kiel.contents[0].text().unwrap().raw().contains("Baltic"));
    let error = host.read_resource("demo", "demo://harbours/atlantis").await.unwrap_err();
    assert_eq!(error.kind(), "rpc", "{error}");
}

async fn watch(host: &Host) {
    let mut note = soon(host.subscribe("demo", "demo://note")).await.unwrap();
    assert_eq!(call(host, "note", json!({"text": "high tide"})).await, "It is written.");
    assert_eq!(soon(note.next()).await.unwrap().uri.raw(), "demo://note");
    let read = host.read_resource("demo", "demo://note").await.unwrap();
    assert_eq!(read.contents[0].text().unwrap().raw(), "high tide");
    assert!(host.subscribe("demo", "demo://nothing").await.is_err());
}

async fn prompts(host: &Host) {
    let offered = host.prompts("demo").await.unwrap();
    let names: Vec<&str> = offered.items.iter().map(|p| p.name.raw()).collect();
    assert_eq!(names, ["greet", "describe_harbour"]);
    let filled = host.prompt("demo", "greet", &given(&[("name", "Ada"), ("tone", "formal")])).await.unwrap();
    assert!(
        matches!(&filled.messages[0].content, Content::Text { text, .. } if text.raw() == "Greet Ada in a formal tone.")
    );
    let filled = host.prompt("demo", "describe_harbour", &given(&[("name", "brest")])).await.unwrap();
    assert!(
        matches!(&filled.messages[0].content, Content::Resource { uri, .. } if uri.raw() == "demo://harbours/brest")
    );
    assert_eq!(host.prompt("demo", "greet", &given(&[])).await.unwrap_err().kind(), "prompt_arguments");
    for (reference, argument, begun, expected) in [
        (Reference::Prompt("greet".into()), "tone", "f", vec!["formal", "friendly"]),
        (Reference::Prompt("describe_harbour".into()), "name", "bre", vec!["bremen", "brest"]),
        (Reference::Template("demo://harbours/{name}".into()), "name", "K", vec!["kiel"]),
    ] {
        let found = host.complete("demo", &reference, (argument, begun), &given(&[])).await.unwrap();
        let values: Vec<&str> = found.values.iter().map(|v| v.raw()).collect();
        assert_eq!(values, expected);
    }
}

async fn logs(host: &Host) {
    let mut events = host.events().subscribe();
    call(host, "note", json!({"text": "quiet"})).await;
    host.set_log_level("demo", LogLevel::Error).await.unwrap();
    call(host, "note", json!({"text": "still quiet"})).await;
    host.set_log_level("demo", LogLevel::Info).await.unwrap();
    call(host, "note", json!({"text": "loud"})).await;
    let mut logged = Vec::new();
    while let Ok(event) = events.try_recv() {
        if let Event::Log { level, data, .. } = event {
            logged.push(format!("{level}: {data}"));
        }
    }
    assert_eq!(logged, ["info: 4 characters are on the note"]);
}

/// Everything, over one transport in one era.
async fn walk(server: ServerConfig, era: Era) {
    let asking = host(server.clone(), era, AcceptDefaults).await;
    resources(&asking).await;
    watch(&asking).await;
    prompts(&asking).await;
    logs(&asking).await;
    assert_eq!(call(&asking, "ask", json!({})).await, "Ahoy, sailor!");
    asking.close().await;
    let silent = host(server, era, Decline).await;
    let outcome = silent.call_tool("demo", "ask", json!({}), CallOptions::default()).await;
    assert!(!outcome.success, "nobody there fills in forms: {outcome:?}");
    silent.close().await;
}

#[tokio::test]
async fn l102_everything_over_stdio_in_both_eras() {
    walk(piped(), Era::Legacy).await;
    walk(piped(), Era::Modern).await;
}

#[tokio::test]
async fn l102_everything_over_http_in_both_eras() {
    let server = Listening::start();
    walk(server.at(Transport::Http, "/mcp"), Era::Legacy).await;
    walk(server.at(Transport::Http, "/mcp"), Era::Modern).await;
}

#[tokio::test]
async fn l102_everything_over_sse() {
    let server = Listening::start();
    walk(server.at(Transport::Sse, "/sse"), Era::Legacy).await;
}
