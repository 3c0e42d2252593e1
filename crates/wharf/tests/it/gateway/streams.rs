//! Streams of legacy callers: the one that belongs to no request, those that broke, and the oldest transport.

use http::{Method, StatusCode};
use serde_json::{Value, json};
use wharf::gateway::{Callers, Key};
use wharf::names::CallerName;
use wharf_testkit::{Era, Puppet, Step};

use super::{Door, Stream, open, open_with};
use crate::support::{at, count, folder, host, puppet, received, soon, until};

const EVENTS: (&str, &str) = ("accept", "text/event-stream");
const BOTH: (&str, &str) = ("accept", "application/json, text/event-stream");

fn call(id: u64, arguments: Value) -> String {
    let params = json!({"name": "pup_echo", "arguments": arguments, "_meta": {"progressToken": "t"}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

async fn post(door: &Door, session: &str, body: String) -> Stream {
    door.stream(Method::POST, "/mcp", &[BOTH, ("mcp-session-id", session)], body).await
}

async fn get(door: &Door, session: &str, more: &[(&str, &str)]) -> Stream {
    let mut headers = vec![EVENTS, ("mcp-session-id", session)];
    headers.extend(more);
    door.stream(Method::GET, "/mcp", &headers, "").await
}

#[tokio::test]
async fn l31_a_stream_that_breaks_goes_on_and_is_read_on_where_it_was() {
    for era in [Era::Legacy, Era::Modern] {
        let files = folder();
        let (go, log) = (at(&files, "go"), at(&files, "log"));
        let progress = Step::Progress { count: Some(2), interval_ms: 0 };
        let more = Step::Raw(
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$TOKEN,"progress":9}}"#.into(),
        );
        let steps = [progress, Step::WaitFor(go.clone()), more, Step::Echo];
        let script = Puppet::of(era).on("tool:echo", steps).log(&log);
        let door = open(host([puppet("pup", &script)]).await).await;
        let session = door.greet().await;
        let mut stream = post(&door, &session, call(5, json!({"message": "m"}))).await;
        let first = stream.event().await.unwrap();
        assert_eq!((first.id.as_deref(), first.data.as_str()), (Some("1-0"), ""), "where to come back to");
        let (one, progress) = stream.message().await;
        assert_eq!(progress["params"]["progressToken"], "t");
        drop(stream);
        std::fs::write(&go, "").unwrap();
        // Two readers, one after another: what is kept is not used up.
        for _ in 0..2 {
            let mut again = get(&door, &session, &[("last-event-id", &one)]).await;
            assert_eq!(again.status, StatusCode::OK);
            let mut told = Vec::new();
            while let Some(event) = again.event().await {
                told.push(serde_json::from_str::<Value>(&event.data).unwrap());
            }
            assert_eq!(told.len(), 3, "{told:?}");
            assert_eq!(told[1]["params"]["progress"], 9);
            assert_eq!(told[2]["id"], 5);
            assert!(told[2]["result"]["content"].is_array(), "{told:?}");
        }
        assert_eq!(count(&received(&log), "notifications/cancelled"), 0, "to hang up is not to cancel");
        door.host.close().await;
    }
}

#[tokio::test]
async fn l31_one_stream_of_a_session_is_always_open_and_a_second_takes_its_place() {
    let files = folder();
    let go = at(&files, "go");
    let changed = Step::Notify { method: "notifications/tools/list_changed".into(), params: None };
    let script = Puppet::of(Era::Legacy).on("tool:echo", [Step::WaitFor(go.clone()), changed, Step::Echo]);
    let door = open(host([puppet("pup", &script)]).await).await;
    let session = door.greet().await;
    let mut first = get(&door, &session, &[]).await;
    let begun = first.event().await.unwrap();
    assert_eq!((begun.id.as_deref(), begun.data.as_str()), (Some("0-0"), ""));
    let mut second = get(&door, &session, &[]).await;
    assert_eq!(second.event().await.unwrap().id.as_deref(), Some("0-0"));
    assert_eq!(first.event().await, None, "the first ends");
    std::fs::write(&go, "").unwrap();
    let mut answer = post(&door, &session, call(1, json!({}))).await;
    while answer.event().await.is_some() {}
    let (id, told) = second.message().await;
    assert_eq!(told["method"], "notifications/tools/list_changed");
    drop(second);
    let mut again = get(&door, &session, &[("last-event-id", "0-0")]).await;
    assert_eq!(again.message().await, (id, told), "whoever comes back misses nothing");
    for (headers, status) in [
        (vec![EVENTS], StatusCode::BAD_REQUEST),
        (vec![EVENTS, ("mcp-session-id", "no-such")], StatusCode::NOT_FOUND),
        (
            vec![("accept", "application/json"), ("mcp-session-id", session.as_str())],
            StatusCode::NOT_ACCEPTABLE,
        ),
        (vec![EVENTS, ("mcp-protocol-version", "2026-07-28")], StatusCode::METHOD_NOT_ALLOWED),
    ] {
        let refused = door.stream(Method::GET, "/mcp", &headers, "").await;
        assert_eq!(refused.status, status, "{headers:?}");
    }
    let ended = [("host", &*door.name()), ("mcp-session-id", &session)];
    assert_eq!(door.send(Method::DELETE, "/mcp", &ended, "").await.status, StatusCode::NO_CONTENT);
    assert_eq!(again.event().await, None, "the stream ends with its session");
    door.host.close().await;
}

/// A caller of the oldest transport.
struct Old<'a> {
    door: &'a Door,
    stream: Stream,
    place: String,
    key: Option<&'a str>,
}

impl<'a> Old<'a> {
    async fn open(door: &'a Door, key: Option<&'a str>) -> Self {
        let bearer = key.map(|key| format!("Bearer {key}"));
        let mut headers = vec![EVENTS];
        headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        let mut stream = door.stream(Method::GET, "/sse", &headers, "").await;
        let endpoint = stream.event().await.unwrap();
        assert_eq!(endpoint.name.as_deref(), Some("endpoint"));
        Self { door, stream, place: endpoint.data, key }
    }

    async fn post(&self, message: Value) -> StatusCode {
        let bearer = self.key.map(|key| format!("Bearer {key}"));
        let host = self.door.name();
        let mut headers = vec![("host", host.as_str()), ("content-type", "application/json")];
        headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        self.door.send(Method::POST, &self.place, &headers, message.to_string()).await.status
    }

    async fn greet(&mut self) {
        let params = json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        assert_eq!(self.post(hello).await, StatusCode::ACCEPTED);
        assert_eq!(self.stream.message().await.1["result"]["protocolVersion"], "2024-11-05");
        let done = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(self.post(done).await, StatusCode::ACCEPTED);
    }
}

#[tokio::test]
async fn l31_the_oldest_callers_hear_everything_on_one_stream() {
    for era in [Era::Legacy, Era::Modern] {
        let files = folder();
        let log = at(&files, "log");
        let progress = Step::Progress { count: Some(2), interval_ms: 0 };
        let turns = vec![vec![progress, Step::Echo], vec![Step::Hang]];
        let script = Puppet::of(era).on("tool:echo", [Step::Turns(turns)]).log(&log);
        let door = open(host([puppet("pup", &script)]).await).await;
        let mut old = Old::open(&door, None).await;
        old.greet().await;
        let called: Value = serde_json::from_str(&call(3, json!({"message": "m"}))).unwrap();
        assert_eq!(old.post(called.clone()).await, StatusCode::ACCEPTED);
        for _ in 0..2 {
            assert_eq!(old.stream.message().await.1["method"], "notifications/progress");
        }
        let answer = old.stream.message().await.1;
        assert_eq!(answer["id"], 3);
        assert!(answer["result"]["content"].is_array(), "{answer}");
        assert_eq!(old.post(called).await, StatusCode::ACCEPTED);
        until("the call is under way", || count(&received(&log), "tools/call") == 2).await;
        let Old { stream, place, .. } = old;
        drop(stream);
        until("it ends with the stream", || count(&received(&log), "notifications/cancelled") == 1).await;
        let host = door.name();
        let headers = [("host", host.as_str()), ("content-type", "application/json")];
        let late = async {
            while door.send(Method::POST, &place, &headers, "{}").await.status != StatusCode::NOT_FOUND {
                tokio::task::yield_now().await;
            }
        };
        soon("the place to post to is gone", late).await;
        door.host.close().await;
    }
}

#[tokio::test]
async fn l31_a_stream_of_the_oldest_transport_is_its_callers_own() {
    let key = |name: &str| Key::new(CallerName::parse(name).unwrap(), Key::hash(name));
    let script = Puppet::of(Era::Legacy);
    let callers = Callers::default().keys([key("ada"), key("bob")]);
    let door = open_with(host([puppet("pup", &script)]).await, |b| b.callers(callers)).await;
    let mut ada = Old::open(&door, Some("ada")).await;
    let thief = Old { key: Some("bob"), place: ada.place.clone(), ..Old::open(&door, Some("bob")).await };
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(thief.post(ping.clone()).await, StatusCode::NOT_FOUND);
    let nobody = Old { key: None, place: ada.place.clone(), ..Old::open(&door, Some("bob")).await };
    assert_eq!(nobody.post(ping.clone()).await, StatusCode::UNAUTHORIZED);
    assert_eq!(ada.post(ping).await, StatusCode::ACCEPTED);
    assert_eq!(ada.stream.message().await.1["id"], 1);
    let host = door.name();
    let page = [("host", host.as_str()), ("authorization", "Bearer ada"), ("origin", "http://evil.example")];
    for path in ["/sse", ada.place.as_str()] {
        let method = if path == "/sse" { Method::GET } else { Method::POST };
        assert_eq!(door.send(method, path, &page, "").await.status, StatusCode::FORBIDDEN, "{path}");
    }
    let plain = [("host", host.as_str()), ("authorization", "Bearer ada")];
    assert_eq!(door.send(Method::POST, "/sse", &plain, "").await.status, StatusCode::METHOD_NOT_ALLOWED);
    door.host.close().await;
}

#[tokio::test]
async fn l31_streams_on_which_nothing_is_under_way_end_at_the_stop() {
    let mut door = open(host([puppet("pup", &Puppet::of(Era::Legacy))]).await).await;
    let session = door.greet().await;
    let mut always = get(&door, &session, &[]).await;
    always.event().await.unwrap();
    let mut old = Old::open(&door, None).await;
    old.greet().await;
    let Old { mut stream, .. } = old;
    door.stop();
    assert_eq!(soon("the end", always.event()).await, None);
    assert_eq!(soon("the end", stream.event()).await, None);
    door.host.close().await;
}
