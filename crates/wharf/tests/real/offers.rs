//! What `server-everything` has beside tools, over standard input and output and over Streamable HTTP: resources,
//! prompts, completion, logs, progress, and everything it asks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use wharf::ask::{Answer, Answered, Asker, Offers, Question};
use wharf::config::{ServerConfig, Transport};
use wharf::event::Event;
use wharf::mcp::{Content, LogLevel, Reference};
use wharf::names::ServerName;
use wharf::policy::Policy;
use wharf::wire::Json;
use wharf::{CallOptions, Host};

use crate::process::{Running, free_port, reference};
use crate::walk::{SERVER, call, endpoint, program};

/// Answers everything, and counts what it was asked.
#[derive(Clone, Default)]
struct Helpful {
    asked: Arc<Mutex<Vec<&'static str>>>,
    folders: Arc<AtomicUsize>,
}

impl Asker for Helpful {
    fn offers(&self) -> Offers {
        Offers { forms: true, urls: true, sampling: true, roots: true }
    }

    fn ask(&self, server: &ServerName, question: Question) -> Answered {
        assert_eq!(server.as_str(), SERVER);
        let (what, answer) = match question {
            Question::Form(_) => {
                ("form", Answer::Accept(Json::from(json!({"name": "Ada", "email": "ada@example.org"}))))
            }
            Question::Url { url, .. } => {
                assert!(
                    ["https://example.org/login", "https://modelcontextprotocol.io"].contains(&url.raw())
                );
                ("page", Answer::Accept(Json::empty_object()))
            }
            Question::Sample { .. } => {
                let content = json!({"type": "text", "text": "the tide is high"});
                (
                    "model",
                    Answer::Result(json!({"role": "assistant", "content": content, "model": "none"}).into()),
                )
            }
            _ => {
                let many = self.folders.load(Ordering::SeqCst);
                let roots: Vec<Value> =
                    (0..many).map(|n| json!({"uri": format!("file:///boat/{n}")})).collect();
                ("folders", Answer::Result(json!({"roots": roots}).into()))
            }
        };
        self.asked.lock().unwrap().push(what);
        Box::pin(std::future::ready(answer))
    }
}

fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| panic!("this did not end: {what}"))
}

/// Waits for a log message with these words; gives its level.
async fn logged(events: &mut Receiver<Event>, words: &str) -> String {
    soon(words, async {
        loop {
            match events.recv().await.unwrap() {
                Event::Log { server, level, data } if data.raw().contains(words) => {
                    assert_eq!(server.as_str(), SERVER);
                    return level.to_string();
                }
                _ => {}
            }
        }
    })
    .await
}

/// Some tools appear only when the server has thought about its client.
async fn has_tool(host: &Host, tool: &str) {
    soon(tool, async {
        while host.find(SERVER, tool).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

async fn resources(host: &Host) {
    let offered = host.resources(SERVER).await.unwrap();
    assert_eq!((offered.items.len(), offered.rejected.len()), (7, 0));
    let first = &offered.items[0];
    let read = host.read_resource(SERVER, first.uri.raw()).await.unwrap();
    assert!(!read.contents[0].text().unwrap().raw().is_empty());
    let templates = host.resource_templates(SERVER).await.unwrap();
    let patterns: Vec<&str> = templates.items.iter().map(|t| t.uri_template.raw()).collect();
    let expected = ["demo://resource/dynamic/text/{resourceId}", "demo://resource/dynamic/blob/{resourceId}"];
    assert_eq!(patterns, expected);
    let text = host.read_resource(SERVER, "demo://resource/dynamic/text/7").await.unwrap();
    assert!(text.contents[0].text().unwrap().raw().starts_with("Resource 7: This is a plaintext resource"));
    let blob = host.read_resource(SERVER, "demo://resource/dynamic/blob/7").await.unwrap();
    assert!(blob.contents[0].text().is_none());
    assert!(blob.contents[0].bytes().starts_with(b"Resource 7: This is a base64 blob"));
    let error = host.read_resource(SERVER, "demo://resource/dynamic/text/none").await.unwrap_err();
    assert_eq!(error.kind(), "rpc", "{error}");
}

async fn prompts(host: &Host) {
    let offered = host.prompts(SERVER).await.unwrap();
    let names: Vec<&str> = offered.items.iter().map(|p| p.name.raw()).collect();
    assert_eq!(names, ["simple-prompt", "args-prompt", "completable-prompt", "resource-prompt"]);
    let arguments = given(&[("city", "Kiel"), ("state", "Holstein")]);
    let filled = host.prompt(SERVER, "args-prompt", &arguments).await.unwrap();
    assert!(
        matches!(&filled.messages[0].content, Content::Text { text, .. } if text.raw() == "What's weather in Kiel, Holstein?")
    );
    let error = host.prompt(SERVER, "args-prompt", &given(&[("state", "Holstein")])).await.unwrap_err();
    assert!(error.to_string().contains("missing required argument `city`"), "{error}");
    let arguments = given(&[("resourceType", "Text"), ("resourceId", "3")]);
    let filled = host.prompt(SERVER, "resource-prompt", &arguments).await.unwrap();
    assert!(
        matches!(&filled.messages[1].content, Content::Resource { uri, .. } if uri.raw().ends_with("/text/3"))
    );

    let team = Reference::Prompt("completable-prompt".into());
    let context = given(&[("department", "Sales")]);
    let found = host.complete(SERVER, &team, ("name", "D"), &context).await.unwrap();
    assert_eq!(found.values.iter().map(|v| v.raw()).collect::<Vec<_>>(), ["David"]);
    let template = Reference::Template("demo://resource/dynamic/text/{resourceId}".into());
    let found = host.complete(SERVER, &template, ("resourceId", "12"), &given(&[])).await.unwrap();
    assert_eq!(found.values.iter().map(|v| v.raw()).collect::<Vec<_>>(), ["12"]);
}

async fn watching(host: &Host) {
    let uri = "demo://resource/dynamic/text/1";
    let mut events = host.events().subscribe();
    host.set_log_level(SERVER, LogLevel::Info).await.unwrap();
    let mut watched = soon("a subscription", host.subscribe(SERVER, uri)).await.unwrap();
    assert_eq!(logged(&mut events, "Received Subscribe").await, "info");
    let started = call(host, "toggle-subscriber-updates", &json!({})).await;
    assert!(started.success, "{started:?}");
    assert_eq!(soon("an update", watched.next()).await.unwrap().uri.raw(), uri);
    drop(watched);
    logged(&mut events, "Received Unsubscribe").await;
    assert!(call(host, "toggle-subscriber-updates", &json!({})).await.success);
}

async fn progress(host: &Host) {
    let mut steps = Vec::new();
    let mut heard = |step: wharf::connect::Progress| steps.push(step.progress);
    let options = CallOptions { on_progress: Some(&mut heard), ..CallOptions::default() };
    let arguments = json!({"duration": 0.2, "steps": 4});
    let mut events = host.events().subscribe();
    let outcome = host.call_tool(SERVER, "trigger-long-running-operation", arguments, options).await;
    assert!(outcome.success, "{outcome:?}");
    assert_eq!(steps, [1.0, 2.0, 3.0, 4.0]);
    let mut told = Vec::new();
    while let Ok(event) = events.try_recv() {
        if let Event::Progress { tool, progress, .. } = event {
            assert_eq!(tool.unwrap().as_str(), "trigger-long-running-operation");
            told.push(progress);
        }
    }
    assert_eq!(told, steps);
}

async fn questions(host: &Host, helpful: &Helpful) {
    has_tool(host, "trigger-elicitation-request").await;
    let outcome = call(host, "trigger-elicitation-request", &json!({})).await;
    let text = outcome.to_text();
    assert!(text.contains("Name: Ada") && text.contains("Favorite Integer: 42"), "{text}");
    has_tool(host, "trigger-sampling-request").await;
    let outcome = call(host, "trigger-sampling-request", &json!({"prompt": "p"})).await;
    assert!(outcome.to_text().contains("the tide is high"), "{}", outcome.to_text());
    has_tool(host, "trigger-url-elicitation").await;
    for error_path in [false, true] {
        let arguments = json!({"url": "https://example.org/login", "errorPath": error_path});
        let outcome = call(host, "trigger-url-elicitation", &arguments).await;
        assert!(outcome.to_text().contains("User completed the URL elicitation flow"), "{outcome:?}");
    }
    let asked = helpful.asked.lock().unwrap().clone();
    let count = |what: &str| asked.iter().filter(|asked| **asked == what).count();
    // A page is asked for by a request, then by the error that says what comes first, and by a request again.
    assert_eq!((count("form"), count("model"), count("page")), (1, 1, 3), "{asked:?}");
}

async fn folders(host: &Host, helpful: &Helpful) {
    let mut events = host.events().subscribe();
    helpful.folders.store(2, Ordering::SeqCst);
    host.roots_changed();
    assert_eq!(logged(&mut events, "Roots updated: 2 root(s)").await, "info");
}

async fn walk(server: ServerConfig) {
    let helpful = Helpful::default();
    let host = Host::builder()
        .server(server)
        .policy(Policy::strict())
        .sandbox(crate::process::sandbox())
        .environment(std::env::vars())
        .asker(helpful.clone())
        .start()
        .await
        .unwrap();
    resources(&host).await;
    prompts(&host).await;
    watching(&host).await;
    progress(&host).await;
    questions(&host, &helpful).await;
    folders(&host, &helpful).await;
    host.close().await;
}

#[tokio::test]
async fn everything_beside_tools_over_stdio() {
    walk(program("node", &[&reference("everything"), "stdio"], "everything-offers")).await;
}

#[tokio::test]
async fn everything_beside_tools_over_streamable_http() {
    let port = free_port();
    let running = Running::everything("streamableHttp", port).await;
    walk(endpoint(Transport::Http, &format!("http://127.0.0.1:{port}/mcp"))).await;
    running.end();
}

#[tokio::test]
async fn everything_beside_tools_over_sse() {
    let port = free_port();
    let running = Running::everything("sse", port).await;
    walk(endpoint(Transport::Sse, &format!("http://127.0.0.1:{port}/sse"))).await;
    running.end();
}
