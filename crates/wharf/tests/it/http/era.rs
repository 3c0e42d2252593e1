//! Which era a server speaks, and what counts as evidence.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use serde_json::json;
use wharf::connect::{EraMemory, EraStore, Verdict};
use wharf::mcp::{Era, Revision};

use super::server::{self, Ears, Server};
use super::{call, discovered, done, initialized, kind};

/// Remembers what was put, under any key.
#[derive(Default)]
struct Notes(std::sync::Mutex<Vec<Verdict>>);

impl EraStore for Notes {
    fn get(&self, _key: &str) -> Option<Verdict> {
        self.0.lock().unwrap().last().copied()
    }
    fn put(&self, _key: &str, verdict: Verdict) {
        self.0.lock().unwrap().push(verdict);
    }
}

impl Notes {
    fn eras(&self) -> Vec<Era> {
        self.0.lock().unwrap().iter().map(|v| v.era).collect()
    }
}

/// A server that answers `server/discover` so and is an honest legacy server otherwise.
async fn old(status: u16, headers: &'static str, body: &'static str) -> Server {
    Server::start(move |x| async move {
        match x.seen.line().as_str() {
            "POST server/discover" => x.reply(status, headers, body).await,
            "POST initialize" => x.result(initialized()).await,
            "POST notifications/initialized" => x.accepted().await,
            "GET" | "DELETE" => x.reply(405, "", "").await,
            _ => x.result(done()).await,
        }
    })
    .await
}

#[tokio::test]
async fn l31_every_known_way_to_refuse_the_probe_means_legacy() {
    const JSON: &str = "content-type: application/json\r\n";
    let ways = [
        (
            400,
            JSON,
            r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":null}"#,
        ),
        (
            400,
            JSON,
            r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"Missing session ID"},"id":"server-error"}"#,
        ),
        (422, "content-type: text/plain\r\n", "Unexpected message, expect initialize request"),
        (404, "content-type: text/html\r\n", "<html>"),
        (405, "", ""),
        (200, JSON, r#"{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"},"id":1}"#),
        (
            200,
            JSON,
            r#"{"jsonrpc":"2.0","result":{"supportedVersions":["2025-11-25"],"capabilities":{}},"id":1}"#,
        ),
        (200, JSON, r#"{"jsonrpc":"2.0","result":{},"id":1}"#),
    ];
    for (status, headers, body) in ways {
        let server = old(status, headers, body).await;
        let notes = Arc::new(Notes::default());
        let mut dock = server::dock(Arc::new(Ears::default()));
        dock.eras = Arc::clone(&notes) as Arc<dyn EraStore>;
        let connection = dock.open(&server::http(&server.url())).await.unwrap();
        assert_eq!(connection.info().revision, Revision::V2025_11_25, "{status} {body}");
        assert_eq!(kind(&call(&connection).await), "ok");
        assert_eq!(notes.eras(), [Era::Legacy]);
        // The second time it is known.
        dock.open(&server::http(&server.url())).await.unwrap();
        assert_eq!(server.count("POST server/discover"), 1, "{status} {body}");
    }
}

#[tokio::test]
async fn l31_an_outage_and_a_locked_door_are_no_evidence() {
    for (status, expected) in
        [(401, "auth"), (403, "auth"), (429, "connection"), (500, "connection"), (503, "connection")]
    {
        let server = old(
            status,
            "content-type: application/json\r\n",
            r#"{"jsonrpc":"2.0","error":{"code":-32603,"message":"x"},"id":null}"#,
        )
        .await;
        let notes = Arc::new(Notes::default());
        let mut dock = server::dock(Arc::new(Ears::default()));
        dock.eras = Arc::clone(&notes) as Arc<dyn EraStore>;
        let error = dock.open(&server::http(&server.url())).await.unwrap_err();
        assert_eq!((error.kind(), status), (expected, status));
        assert_eq!(server.asked(), ["POST server/discover"], "{status}");
        assert_eq!(notes.eras(), []);
    }
}

#[tokio::test]
async fn l31_a_server_that_does_not_answer_the_probe_is_down_not_old() {
    let server = Server::start(|x| async move {
        let mut events = x.events("").await;
        events.closed().await;
    })
    .await;
    let notes = Arc::new(Notes::default());
    let mut dock = server::dock(Arc::new(Ears::default()));
    dock.eras = Arc::clone(&notes) as Arc<dyn EraStore>;
    let mut config = server::http(&server.url());
    config.start_timeout = Duration::from_millis(300);
    assert_eq!(dock.open(&config).await.unwrap_err().kind(), "timeout");
    assert_eq!(server.asked(), ["POST server/discover"]);
    assert_eq!(notes.eras(), []);
}

#[tokio::test]
async fn l31_a_session_that_came_with_a_refused_probe_is_ended() {
    let server = old(400, "mcp-session-id: leaked\r\n", "Missing session ID").await;
    let dock = server::dock(Arc::new(Ears::default()));
    let _connection = dock.open(&server::http(&server.url())).await.unwrap();
    let goodbye = server.until_asked("DELETE").await;
    assert_eq!(goodbye.header("mcp-session-id"), Some("leaked"));
    let log = server.log();
    let initialize = log.iter().find(|s| s.method() == "initialize").unwrap();
    assert_eq!(initialize.header("mcp-session-id"), None);
}

#[tokio::test]
async fn l31_a_modern_refusal_is_never_answered_with_an_older_handshake() {
    let body = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32020, "message": "header mismatch"}});
    let body: &'static str = Box::leak(body.to_string().into_boxed_str());
    let server = old(400, "", body).await;
    let dock = server::dock(Arc::new(Ears::default()));
    let error = dock.open(&server::http(&server.url())).await.unwrap_err();
    assert_eq!(error.kind(), "protocol");
    assert_eq!(server.asked(), ["POST server/discover"]);
}

#[tokio::test]
async fn l31_an_old_verdict_is_not_relied_on() {
    let server = Server::start(|x| async move { x.result(discovered()).await }).await;
    for (age, era) in [(1, Era::Legacy), (25, Era::Modern)] {
        let notes = Notes::default();
        notes.put("", Verdict { era: Era::Legacy, at: SystemTime::now() - Duration::from_secs(age * 3600) });
        let mut dock = server::dock(Arc::new(Ears::default()));
        dock.eras = Arc::new(notes);
        let opened = dock.open(&server::http(&server.url())).await;
        let found = opened.map(|c| c.info().revision.era());
        // It is not a legacy server at all, which shows when it is taken for one.
        assert_eq!(found.ok() == Some(Era::Modern), era == Era::Modern);
    }
    let mut dock = server::dock(Arc::new(Ears::default()));
    dock.eras = Arc::new(EraMemory::default());
    assert!(dock.open(&server::http(&server.url())).await.is_ok());
}

#[tokio::test]
async fn l31_a_server_that_names_a_modern_revision_is_asked_again_in_it() {
    let refused = Arc::new(AtomicBool::new(false));
    let server = Server::start(move |x| {
        let refused = Arc::clone(&refused);
        async move {
            if refused.swap(true, Ordering::SeqCst) {
                return x.result(discovered()).await;
            }
            let data = json!({"supported": ["2025-11-25", "2026-07-28"], "requested": "2026-07-28"});
            let error = json!({"code": -32022, "message": "Unsupported protocol version", "data": data});
            let body = json!({"jsonrpc": "2.0", "id": x.seen.body["id"], "error": error}).to_string();
            x.reply(400, "content-type: application/json\r\n", &body).await;
        }
    })
    .await;
    let dock = server::dock(Arc::new(Ears::default()));
    let connection = dock.open(&server::http(&server.url())).await.unwrap();
    assert_eq!(connection.info().revision, Revision::V2026_07_28);
    assert_eq!(server.asked(), ["POST server/discover", "POST server/discover"]);
}
