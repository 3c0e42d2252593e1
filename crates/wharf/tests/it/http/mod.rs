//! Streamable HTTP in both eras, against a server that each test plays by hand.
#![expect(clippy::unwrap_used, reason = "a test may fail loudly, in its scenery too")]

mod era;
mod failures;
mod legacy;
mod modern;
mod offers;
mod pooled;
pub(crate) mod server;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use server::{Ears, Exchange, Server};
use wharf::connect::{Connection, Request};
use wharf::mcp::method;
use wharf::names::ToolName;
use wharf::wire::{Json, Members};
use wharf::{Error, Result};

/// What a modern server says of itself.
pub(crate) fn discovered() -> Value {
    json!({
        "resultType": "complete",
        "supportedVersions": ["2024-11-05", "2025-11-25", "2026-07-28"],
        "capabilities": {"tools": {"listChanged": true}},
        "ttlMs": 0,
        "cacheScope": "public",
    })
}

/// What a legacy server says of itself.
pub(crate) fn initialized() -> Value {
    json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "old", "version": "1"},
    })
}

/// What a call gives.
pub(crate) fn done() -> Value {
    json!({"content": [{"type": "text", "text": "done"}]})
}

/// Plays a modern server up to the calls, which go to the test's own function.
pub(crate) async fn modern<F>(play: impl Fn(Exchange) -> F + Send + Sync + 'static) -> Server
where
    F: Future<Output = ()> + Send + 'static,
{
    let play = Arc::new(play);
    Server::start(move |x| {
        let play = Arc::clone(&play);
        async move {
            match x.seen.method() {
                "server/discover" => x.result(discovered()).await,
                _ => play(x).await,
            }
        }
    })
    .await
}

/// Plays a legacy server with the session `s1` up to the calls, which go to the test's own function.
pub(crate) async fn legacy<F>(play: impl Fn(Exchange) -> F + Send + Sync + 'static) -> Server
where
    F: Future<Output = ()> + Send + 'static,
{
    let play = Arc::new(play);
    Server::start(move |x| {
        let play = Arc::clone(&play);
        async move {
            match x.seen.line().as_str() {
                "POST server/discover" => x.reply(400, "", "no").await,
                "POST initialize" => {
                    let answer = x.seen.answer(initialized());
                    x.json("mcp-session-id: s1\r\n", answer).await;
                }
                "POST notifications/initialized" => x.accepted().await,
                "GET" if x.seen.header("last-event-id").is_none() => x.reply(405, "", "").await,
                "DELETE" => x.reply(200, "", "").await,
                _ => play(x).await,
            }
        }
    })
    .await
}

pub(crate) async fn connect(server: &Server) -> (Connection, Arc<Ears>) {
    let ears = Arc::new(Ears::default());
    let dock = server::dock(Arc::clone(&ears));
    (dock.open(&server::http(&server.url())).await.unwrap(), ears)
}

/// Calls the tool `t`.
pub(crate) async fn call(connection: &Connection) -> Result<Json> {
    let tool = ToolName::parse("t").unwrap();
    let mut params = Members::new();
    params.text("name", "t");
    let mut request = Request::new(method::TOOLS_CALL, params, Duration::from_secs(20));
    request.tool = Some(&tool);
    request.name = Some("t");
    connection.request(request).await
}

pub(crate) fn kind(result: &Result<Json>) -> &'static str {
    result.as_ref().map_or_else(Error::kind, |_| "ok")
}
