//! Callers received on other terms while the gateway serves: what comes is judged by the new ones at once, and of what is
//! under way only that ends which they take away.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::{SinkExt as _, StreamExt as _};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use wharf::config::{CallLimits, CallerRules, CallerTable, KeyStore, ServerConfig, StoredKey};
use wharf::gateway::{Callers, Gateway, Key, Terms};
use wharf::names::CallerName;
use wharf_testkit::{Era, Puppet, Step};

use super::{Answer, Door, Stream, modern_body, open_with};
use crate::audit::{audited, log_in, of_kind, records};
use crate::support::{at, count, folder, puppet, quick, received, soon, until};

fn key(secret: &str) -> Key {
    let caller = secret.trim_end_matches(char::is_numeric);
    Key::new(CallerName::parse(caller).unwrap(), Key::hash(secret))
}

/// Terms by which these keys count; a caller is named like its keys, but for a number at their end.
pub(super) fn keys<const N: usize>(secrets: [&str; N]) -> Terms {
    Terms { callers: Callers::default().keys(secrets.map(key)), ..Terms::default() }
}

pub(super) fn given(entries: &[(&str, &[&str])]) -> Option<CallerTable> {
    let mut table = CallerTable::default();
    for (caller, servers) in entries {
        table.insert(*caller, CallerRules::new(servers.iter().copied(), []).unwrap());
    }
    Some(table)
}

pub(super) fn bearer(secret: &str) -> String {
    format!("Bearer {secret}")
}

/// A server whose tool waits for a file.
fn waits(era: Era, log: &Path, go: &Path) -> Puppet {
    Puppet::of(era).log(log).on("tool:echo", [Step::WaitFor(go.to_owned()), Step::Honest])
}

pub(super) type Socket = tokio_tungstenite::WebSocketStream<tokio::net::TcpStream>;

/// Two servers that wait, behind a gateway on these terms.
pub(super) struct Scene {
    pub(super) door: Arc<Door>,
    files: tempfile::TempDir,
}

impl Scene {
    pub(super) async fn new(era: Era, terms: Terms) -> Self {
        let files = folder();
        let [one, two] =
            ["one", "two"].map(|name| puppet(name, &waits(era, &at(&files, name), &at(&files, "go"))));
        // No call ends because it takes long, even where the clock is put forward.
        let [one, two] =
            [one, two].map(|config| ServerConfig { timeout: Duration::from_secs(600), ..config });
        let (host, _) = audited(&log_in(&files), quick().server(one).server(two)).await;
        host.tools().await;
        Self { door: Arc::new(open_with(host, |b| b.terms(terms)).await), files }
    }

    /// A call that is under way at its server when this returns.
    pub(super) async fn call(
        &self,
        who: &str,
        server: &str,
        legacy: Option<&str>,
    ) -> tokio::task::JoinHandle<Answer> {
        let before = self.heard(server, "tools/call");
        let (door, who, session) = (Arc::clone(&self.door), bearer(who), legacy.map(str::to_owned));
        let params = json!({"name": format!("{server}_echo"), "arguments": {}});
        let call = tokio::spawn(async move {
            match session {
                None => door.modern_with("tools/call", params, &[("authorization", &who)]).await,
                Some(session) => {
                    let call = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params});
                    legacy_with(&door, &who, Some(&session), call).await
                }
            }
        });
        until("the call is at its server", || self.heard(server, "tools/call") == before + 1).await;
        call
    }

    pub(super) fn heard(&self, server: &str, method: &str) -> usize {
        count(&received(&at(&self.files, server)), method)
    }

    pub(super) fn let_go(&self) {
        std::fs::write(at(&self.files, "go"), "").unwrap();
    }

    async fn tools(&self, who: &str) -> Vec<String> {
        let listed = self.door.modern_with("tools/list", json!({}), &[("authorization", &bearer(who))]).await;
        let listed = listed.json();
        let tools = listed["result"]["tools"].as_array().unwrap_or_else(|| panic!("{listed}")).clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    pub(super) async fn status(&self, who: &str) -> StatusCode {
        self.door.modern_with("tools/list", json!({}), &[("authorization", &bearer(who))]).await.status
    }

    pub(super) async fn listen(&self, who: &str) -> Stream {
        let wanted = json!({"notifications": {"toolsListChanged": true}});
        let who = bearer(who);
        let headers = [
            ("authorization", who.as_str()),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "subscriptions/listen"),
        ];
        let body = modern_body("subscriptions/listen", wanted).to_string();
        let mut stream = self.door.stream(Method::POST, "/mcp", &headers, body).await;
        assert_eq!(stream.message().await.1["method"], "notifications/subscriptions/acknowledged");
        stream
    }

    /// A WebSocket over which a call was sent.
    pub(super) async fn socket(&self, who: &str) -> Socket {
        let mut socket = websocket(&self.door, Some(who)).await;
        let call = modern_body("tools/call", json!({"name": "one_echo", "arguments": {}}));
        socket.send(Message::text(call.to_string())).await.unwrap();
        socket
    }

    /// Shakes hands in the legacy way; gives the session, and the stream that belongs to no request.
    pub(super) async fn greet(&self, who: &str) -> (String, Stream) {
        let who = bearer(who);
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let opened = legacy_with(&self.door, &who, None, hello).await;
        let session = opened.headers["mcp-session-id"].to_str().unwrap().to_owned();
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(legacy_with(&self.door, &who, Some(&session), ready).await.status, StatusCode::ACCEPTED);
        let headers =
            [("authorization", who.as_str()), ("accept", "text/event-stream"), ("mcp-session-id", &session)];
        let stream = self.door.stream(Method::GET, "/mcp", &headers, "").await;
        (session, stream)
    }
}

/// A WebSocket to a gateway.
pub(super) async fn websocket(door: &Door, who: Option<&str>) -> Socket {
    #[expect(clippy::disallowed_methods, reason = "a caller in a test")]
    let stream = tokio::net::TcpStream::connect(door.at).await.unwrap();
    let mut request = format!("ws://{}/mcp", door.at).into_client_request().unwrap();
    if let Some(who) = who {
        request.headers_mut().insert("authorization", bearer(who).parse().unwrap());
    }
    tokio_tungstenite::client_async(request, stream).await.unwrap().0
}

pub(super) async fn legacy_with(door: &Door, who: &str, session: Option<&str>, message: Value) -> Answer {
    let host = door.name();
    let mut headers = vec![
        ("host", host.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("authorization", who),
    ];
    headers.extend(session.map(|session| ("mcp-session-id", session)));
    door.send(Method::POST, "/mcp", &headers, message.to_string()).await
}

/// The message of an answer, whether it came alone or on a stream.
pub(super) fn only(answer: &Answer) -> Value {
    if answer.body.starts_with('{') { answer.json() } else { answer.events().pop().unwrap() }
}

pub(super) fn is_ended(answer: &Answer, why: &str) -> bool {
    let message = only(answer);
    let error = &message["error"];
    error["message"].as_str().is_some_and(|text| text.contains(why)) && error["data"]["retryable"] == false
}

/// The end of a stream, and the last message on it.
pub(super) async fn last(stream: &mut Stream) -> Option<Value> {
    let mut last = None;
    while let Some(event) = stream.event().await {
        last = serde_json::from_str(&event.data).ok().or(last);
    }
    last
}

#[tokio::test]
async fn l92_other_rules_count_at_once_and_end_only_the_calls_that_they_take_away() {
    for era in [Era::Legacy, Era::Modern] {
        let rules = given(&[("ann", &["one", "two"]), ("bob", &["one"])]);
        let scene = Scene::new(era, Terms { rules, ..keys(["ann1", "bob1"]) }).await;
        assert_eq!(scene.tools("ann1").await, ["one_echo", "two_echo"]);
        let (session, mut stream) = scene.greet("ann1").await;
        let mut heard = scene.listen("ann1").await;
        let lost = [scene.call("ann1", "one", None).await, scene.call("ann1", "one", Some(&session)).await];
        let kept = [
            scene.call("ann1", "two", None).await,
            scene.call("ann1", "two", Some(&session)).await,
            scene.call("bob1", "one", None).await,
        ];
        let rules = given(&[("ann", &["two"]), ("bob", &["one", "two"])]);
        scene.door.gateway.adopt(Terms { rules, ..keys(["ann1", "bob1"]) }).unwrap();
        for call in lost {
            let answer = soon("the call ends", call).await.unwrap();
            assert!(is_ended(&answer, "not given to the caller any more"), "{answer:?}");
        }
        assert_eq!(heard.message().await.1["method"], "notifications/tools/list_changed");
        assert_eq!(stream.message().await.1["method"], "notifications/tools/list_changed");
        assert_eq!(scene.tools("ann1").await, ["two_echo"]);
        assert_eq!(scene.tools("bob1").await, ["one_echo", "two_echo"]);
        let hidden = json!({"name": "one_echo", "arguments": {}});
        let who = bearer("ann1");
        let hidden = scene.door.modern_with("tools/call", hidden, &[("authorization", &who)]).await;
        assert_eq!(hidden.json()["error"]["message"], "unknown tool");
        until("the server hears of the end", || scene.heard("one", "notifications/cancelled") == 2).await;
        scene.let_go();
        for call in kept {
            let answer = soon("the call ends", call).await.unwrap();
            assert!(only(&answer)["result"]["content"].is_array(), "{answer:?}");
        }
        assert_eq!(scene.heard("two", "notifications/cancelled"), 0, "what is still given goes on");
        let log = log_in(&scene.files);
        until("it is on record", || !of_kind(&records(&log), "barred").is_empty()).await;
        let told = of_kind(&records(&log), "barred").remove(0).clone();
        assert_eq!((told["caller"].as_str(), told["server"].as_str()), (Some("ann"), Some("one")), "{told}");
        assert_eq!(told["rule"], "the caller's rules");
        scene.door.host.close().await;
    }
}

#[tokio::test]
async fn l92_a_key_that_is_taken_back_ends_everything_it_let_in_and_nothing_else() {
    let scene = Scene::new(Era::Modern, keys(["ann1", "ann2", "bob1"])).await;
    let (session, mut stream) = scene.greet("ann1").await;
    let (other_session, mut other_stream) = scene.greet("ann2").await;
    let mut listening = scene.listen("ann1").await;
    let who = bearer("ann1");
    let mut sse = scene.door.stream(Method::GET, "/sse", &[("authorization", &who)], "").await;
    assert_eq!(sse.event().await.unwrap().name.as_deref(), Some("endpoint"));
    let lost = [scene.call("ann1", "one", None).await, scene.call("ann1", "one", Some(&session)).await];
    let kept = [
        scene.call("ann2", "one", None).await,
        scene.call("ann2", "two", Some(&other_session)).await,
        scene.call("bob1", "one", None).await,
    ];
    scene.door.gateway.adopt(keys(["ann2", "bob1"])).unwrap();
    for call in lost {
        let answer = soon("the call ends", call).await.unwrap();
        assert!(is_ended(&answer, "key or token was taken back"), "{answer:?}");
    }
    let word = soon("the stream ends", last(&mut listening)).await.expect("with a word");
    assert!(word["error"]["message"].is_string(), "{word}");
    assert_eq!(soon("the session's stream ends", last(&mut stream)).await, None);
    assert_eq!(soon("the old stream ends", last(&mut sse)).await, None);
    assert_eq!(scene.status("ann1").await, StatusCode::UNAUTHORIZED);
    let ping = || json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let gone = legacy_with(&scene.door, &bearer("ann2"), Some(&session), ping()).await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND, "the session went with the key that opened it");
    let there = legacy_with(&scene.door, &bearer("ann2"), Some(&other_session), ping()).await;
    assert_eq!(there.status, StatusCode::OK);
    assert_eq!(scene.status("ann2").await, StatusCode::OK);
    scene.let_go();
    for call in kept {
        let answer = soon("the call ends", call).await.unwrap();
        assert!(only(&answer)["result"]["content"].is_array(), "{answer:?}");
    }
    // The twin's stream is still read.
    scene.door.gateway.adopt(Terms { rules: given(&[("*", &["one"])]), ..keys(["ann2", "bob1"]) }).unwrap();
    assert_eq!(other_stream.message().await.1["method"], "notifications/tools/list_changed");
    let log = log_in(&scene.files);
    until("it is on record", || !of_kind(&records(&log), "barred").is_empty()).await;
    assert_eq!(of_kind(&records(&log), "barred")[0]["rule"], "authentication");
    scene.door.host.close().await;
}

#[tokio::test]
async fn l92_a_websocket_ends_with_the_key_that_opened_it() {
    let scene = Scene::new(Era::Modern, keys(["ann1", "bob1"])).await;
    let (mut ann, mut bob) = (scene.socket("ann1").await, scene.socket("bob1").await);
    until("both calls are at the server", || scene.heard("one", "tools/call") == 2).await;
    scene.door.gateway.adopt(keys(["bob1"])).unwrap();
    let Some(Ok(Message::Text(word))) = soon("a word", ann.next()).await else { panic!("no word") };
    assert!(word.contains("key or token was taken back"), "{word}");
    let end = soon("the end", ann.next()).await;
    assert!(matches!(end, Some(Ok(Message::Close(_)))), "{end:?}");
    scene.let_go();
    let Some(Ok(Message::Text(word))) = soon("an answer", bob.next()).await else { panic!("no answer") };
    assert!(word.contains("\"result\""), "{word}");
    scene.door.host.close().await;
}

#[tokio::test]
async fn l92_a_key_that_leaves_its_file_ends_what_is_under_way_and_a_broken_file_does_not() {
    let files = folder();
    let path = at(&files, "keys.json");
    let mut store = KeyStore::open(&path).unwrap();
    for secret in ["ann1", "bob1"] {
        let caller = CallerName::parse(secret.trim_end_matches('1')).unwrap();
        let (hash, created) = (Key::hash(secret), SystemTime::now());
        store.add(StoredKey { caller, hash, created, expires: None }).unwrap();
    }
    let callers = Callers::default().key_file(&path).unwrap();
    let scene = Scene::new(Era::Modern, Terms { callers, ..Terms::default() }).await;
    let (lost, kept) = (scene.call("ann1", "one", None).await, scene.call("bob1", "one", None).await);
    let good = std::fs::read(&path).unwrap();
    std::fs::write(&path, "{").unwrap();
    let refused = async || scene.status("bob1").await == StatusCode::UNAUTHORIZED;
    while !refused().await {
        tokio::task::yield_now().await;
    }
    std::fs::write(&path, good).unwrap();
    while refused().await {
        tokio::task::yield_now().await;
    }
    assert!(!lost.is_finished() && !kept.is_finished(), "whoever breaks the file sends nobody away");
    KeyStore::open(&path).unwrap().remove("ann").unwrap();
    let answer = soon("the call ends by itself", lost).await.unwrap();
    assert!(is_ended(&answer, "key or token was taken back"), "{answer:?}");
    assert_eq!(scene.status("ann1").await, StatusCode::UNAUTHORIZED);
    scene.let_go();
    let answer = soon("the other's call ends", kept).await.unwrap();
    assert!(only(&answer)["result"]["content"].is_array(), "{answer:?}");
    scene.door.host.close().await;
}

#[tokio::test]
async fn l92_keys_for_a_gateway_that_was_open_close_it() {
    let scene = Scene::new(Era::Modern, Terms::default()).await;
    let mut listening = scene.listen("anybody").await;
    scene
        .door
        .gateway
        .adopt(Terms { limits: CallLimits { waiting: 9, ..CallLimits::default() }, ..Terms::default() })
        .unwrap();
    assert_eq!(scene.status("anybody").await, StatusCode::OK, "still open");
    scene.door.gateway.adopt(keys(["ann1"])).unwrap();
    let word = soon("the stream ends", last(&mut listening)).await.expect("with a word");
    assert!(word["error"]["message"].as_str().unwrap().contains("taken back"), "{word}");
    assert_eq!(scene.status("anybody").await, StatusCode::UNAUTHORIZED);
    assert_eq!(scene.status("ann1").await, StatusCode::OK);
    scene.door.host.close().await;
}

#[tokio::test]
async fn l92_terms_on_which_it_could_not_serve_change_nothing() {
    let gateway = Gateway::builder(quick().start().await.unwrap()).terms(keys(["ann1"])).build().unwrap();
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = gateway.clone();
    let serving = tokio::spawn(async move { served.serve_http(listener, std::future::pending()).await });
    let (stop, _) = tokio::sync::oneshot::channel();
    let door = Door {
        at: std::net::SocketAddr::from(([127, 0, 0, 1], port)),
        host: quick().start().await.unwrap(),
        gateway: gateway.clone(),
        stop: Some(stop),
    };
    let status = async |who: &str| {
        door.modern_with("server/discover", json!({}), &[("authorization", &bearer(who))]).await.status
    };
    assert_eq!(status("ann1").await, StatusCode::OK);
    let refused = gateway.adopt(Terms::default()).unwrap_err();
    assert_eq!(refused.kind(), "denied", "{refused}");
    assert_eq!((status("ann1").await, status("").await), (StatusCode::OK, StatusCode::UNAUTHORIZED));
    gateway.adopt(keys(["bob1"])).unwrap();
    assert_eq!((status("ann1").await, status("bob1").await), (StatusCode::UNAUTHORIZED, StatusCode::OK));
    serving.abort();
}

#[tokio::test]
async fn l94_other_limits_count_at_once_and_let_those_go_that_wait() {
    let limits = |calls_per_server| Terms {
        limits: CallLimits { calls_per_server, waiting: 8, ..CallLimits::default() },
        ..keys(["ann1"])
    };
    let scene = Scene::new(Era::Modern, limits(2)).await;
    let first = scene.call("ann1", "one", None).await;
    let (door, who) = (Arc::clone(&scene.door), bearer("ann1"));
    let call = || json!({"name": "one_echo", "arguments": {}});
    let waiting = tokio::spawn({
        let (door, who) = (Arc::clone(&door), who.clone());
        async move { door.modern_with("tools/call", call(), &[("authorization", &who)]).await }
    });
    until("one waits", || door.gateway.metrics().contains("wharf_gate_waiting{server=\"one\"} 1")).await;
    let refused = door.modern_with("tools/call", call(), &[("authorization", &who)]).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    door.gateway.adopt(limits(4)).unwrap();
    until("whoever waited goes", || scene.heard("one", "tools/call") == 2).await;
    assert!(!first.is_finished() && !waiting.is_finished());
    let often = CallLimits { requests_per_second: Some(0.001), burst: Some(1), ..CallLimits::default() };
    door.gateway.adopt(Terms { limits: often, ..keys(["ann1"]) }).unwrap();
    assert_eq!(scene.status("ann1").await, StatusCode::OK);
    assert_eq!(scene.status("ann1").await, StatusCode::TOO_MANY_REQUESTS);
    door.gateway.adopt(limits(4)).unwrap();
    assert_eq!(scene.status("ann1").await, StatusCode::OK);
    scene.let_go();
    for call in [first, waiting] {
        let answer = soon("the call ends", call).await.unwrap();
        assert!(only(&answer)["result"]["content"].is_array(), "{answer:?}");
    }
    scene.door.host.close().await;
}

#[tokio::test]
async fn l94_what_is_no_tool_takes_one_turn() {
    let files = folder();
    let offers = json!({"tools": {}, "prompts": {}});
    let script = Puppet::of(Era::Modern)
        .with(|script| script.capabilities = Some(offers))
        .log(at(&files, "log"))
        .on("prompts/list", [Step::Reply(json!({"prompts": [{"name": "p"}]}))])
        .on("prompts/get", [Step::Reply(json!({"messages": []}))]);
    let limits = CallLimits { calls_per_server: 1, ..CallLimits::default() };
    let host = quick().server(puppet("pup", &script)).start().await.unwrap();
    let door = open_with(host, |b| b.limits(limits)).await;
    let got = soon("an answer", door.modern("prompts/get", json!({"name": "pup_p"}))).await;
    assert!(only(&got)["result"]["messages"].is_array(), "{got:?}");
    door.host.close().await;
}

#[tokio::test]
async fn l92_a_call_that_waits_for_an_answer_ends_with_its_key() {
    let files = folder();
    let log = at(&files, "log");
    let form = json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}});
    let steps = [Step::Ask { method: "elicitation/create".into(), params: form }, Step::Honest];
    let script = Puppet::of(Era::Legacy).log(&log).on("tool:echo", steps);
    let host = quick().server(puppet("pup", &script)).start().await.unwrap();
    let door = open_with(host, |b| b.terms(keys(["ann1", "bob1"]))).await;
    let call = async |who: &str, more: Value| {
        let mut params = json!({"name": "pup_echo", "arguments": {}});
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {}});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        door.modern_with("tools/call", params, &[("authorization", &bearer(who))]).await.json()
    };
    let asked = [call("ann1", json!({})).await, call("bob1", json!({})).await];
    assert!(asked.iter().all(|asked| asked["result"]["requestState"].is_string()), "{asked:?}");
    assert_eq!(count(&received(&log), "notifications/cancelled"), 0);
    door.gateway.adopt(keys(["bob1"])).unwrap();
    until("the server hears of one end", || count(&received(&log), "notifications/cancelled") == 1).await;
    // With a new key of its own, the caller finds that nothing is left to go on with.
    door.gateway.adopt(keys(["ann2", "bob1"])).unwrap();
    let retry = |asked: &Value| {
        let accept = json!({"q1": {"action": "accept", "content": {}}});
        json!({"inputResponses": accept, "requestState": asked["result"]["requestState"]})
    };
    let late = call("ann2", retry(&asked[0])).await;
    assert_eq!(late["error"]["code"], -32602, "{late}");
    let done = call("bob1", retry(&asked[1])).await;
    assert_eq!(done["result"]["resultType"], "complete", "the other's went on: {done}");
    door.host.close().await;
}
