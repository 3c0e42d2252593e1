//! The other transports show and renew tokens, too; and a caller's own token goes nowhere.

use std::sync::Arc;

use serde_json::json;
use wharf::config::{ServerConfig, Transport};
use wharf::connect::TokenMemory;
use wharf::gateway::{Callers, Key};
use wharf::names::{CallerName, ServerName};
use wharf_testkit::http::{honest_legacy, honest_sse};
use wharf_testkit::oauth::Authority;
use wharf_testkit::{HttpPuppet, Puppet, WsPuppet};

use super::{call, config, honest, host, host_with, log_in};
use crate::gateway::open_with;

fn echo() -> Vec<serde_json::Value> {
    vec![json!({ "name": "echo", "inputSchema": { "type": "object" } })]
}

#[tokio::test]
async fn l81_a_legacy_session_goes_on_with_a_renewed_token() {
    let authority = Authority::start();
    let handler = authority.guard().before(honest_legacy(echo(), true));
    let server = HttpPuppet::start(move |request| handler(request));
    let host = host(&server).await;
    log_in(&host).await.unwrap();
    call(&host, "echo").await.unwrap();
    authority.end_access();
    call(&host, "echo").await.unwrap();
    assert_eq!(authority.renewals(), 1);
    let handshakes = server.requests().iter().filter(|r| r.rpc_method() == "initialize").count();
    assert_eq!(handshakes, 1);
    host.close().await;
    // The goodbye shows it as well.
    let last = server.requests().into_iter().find(|r| r.method == "DELETE").unwrap();
    assert!(last.header("authorization").unwrap().starts_with("Bearer access-"));
}

#[tokio::test]
async fn l81_sse_shows_the_token_on_its_stream_and_its_messages() {
    let authority = Authority::start();
    let handler = authority.guard().before(honest_sse(echo()));
    let server = HttpPuppet::start(move |request| handler(request));
    let mut sse = config(&server.url_of("/sse"));
    let Transport::Http(remote) = sse.transport else { panic!() };
    sse.transport = Transport::Sse(remote);
    let host = host_with(sse, Arc::new(TokenMemory::default())).await;
    let refused = call(&host, "echo").await.unwrap_err();
    assert!(refused.hint().unwrap().contains("wharf login srv"), "{refused:?}");
    log_in(&host).await.unwrap();
    call(&host, "echo").await.unwrap();
    authority.end_access();
    call(&host, "echo").await.unwrap();
    assert_eq!(authority.renewals(), 1);
    let good = server.requests().into_iter().filter(|r| r.path.starts_with("/message"));
    assert!(good.count() > 0);
}

#[tokio::test]
async fn l81_a_websocket_is_opened_with_the_token_and_again_with_a_renewed_one() {
    let authority = Authority::start();
    let server = WsPuppet::guarded(&Puppet::new(), authority.guard()).await;
    let config = ServerConfig::websocket(ServerName::parse("srv").unwrap(), &server.url()).unwrap();
    let store = Arc::new(TokenMemory::default());
    let host = host_with(config.clone(), store.clone()).await;
    let refused = host.tools_of("srv").await.unwrap_err();
    assert!(refused.hint().unwrap().contains("wharf login srv"), "{refused:?}");
    log_in(&host).await.unwrap();
    host.tools_of("srv").await.unwrap();
    host.close().await;
    authority.end_access();
    let again = host_with(config, store).await;
    again.tools_of("srv").await.unwrap();
    assert_eq!(authority.renewals(), 1);
}

#[tokio::test]
async fn ssrf_14_a_callers_token_never_travels_to_a_server() {
    const KEY: &str = "wharf_a-callers-own-key-0123456789";
    let (_authority, server) = honest();
    let host = host(&server).await;
    log_in(&host).await.unwrap();
    let key = Key::new(CallerName::parse("ann").unwrap(), Key::hash(KEY));
    let door = open_with(host, |gateway| gateway.callers(Callers::default().keys([key]))).await;
    let shown = format!("Bearer {KEY}");
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "srv_echo", "arguments": { "n": 7 }, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }},
    });
    let headers = [
        ("host", "127.0.0.1"),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "srv_echo"),
        ("cookie", "session=of-the-caller"),
        ("x-api-key", KEY),
    ];
    let mut with_key = headers.to_vec();
    with_key.push(("authorization", &shown));
    let answer = door.send(http::Method::POST, "/mcp", &with_key, body.to_string()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.body.contains("7"), "{answer:?}");
    // The control: without it the caller is not let in.
    let without = door.send(http::Method::POST, "/mcp", &headers, body.to_string()).await;
    assert_eq!(without.status, 401);
    let calls: Vec<_> = server.requests().into_iter().filter(|r| r.rpc_method() == "tools/call").collect();
    assert_eq!(calls.len(), 1);
    for request in server.requests() {
        let all = format!("{:?} {:?}", request.headers, request.body);
        assert!(!all.contains(KEY) && !all.contains("of-the-caller"), "{all}");
    }
    assert!(calls[0].header("authorization").unwrap().starts_with("Bearer access-"));
}
