//! Web pages that call the gateway: those of allowed origins can, and no other gets a word of leave.

use http::{HeaderMap, Method, StatusCode};
use serde_json::json;
use wharf::Host;
use wharf::gateway::{Callers, Key};
use wharf::names::CallerName;
use wharf_testkit::{Era, Puppet};

use super::{Door, open_with};
use crate::support::{host, puppet};

const PAGE: &str = "https://app.example.org";
const KEY: &str = "wharf_0123456789abcdef0123456789abcdef";

async fn keyed(host: Host) -> Door {
    let key = Key::new(CallerName::parse("ann").unwrap(), Key::hash(KEY));
    let callers = Callers::default().keys([key]);
    open_with(host, |b| b.callers(callers).origins([PAGE.to_owned()])).await
}

/// What a browser asks before a page may.
async fn preflight(door: &Door, origin: &str, headers: &str) -> super::Answer {
    let name = door.name();
    let asked = [
        ("host", name.as_str()),
        ("origin", origin),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", headers),
    ];
    door.send(Method::OPTIONS, "/mcp", &asked, "").await
}

/// What is said to pages, as one text.
fn leave(headers: &HeaderMap) -> String {
    let own =
        headers.iter().filter(|(name, _)| name.as_str().starts_with("access-control-") || *name == "vary");
    own.map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap())).collect()
}

const READABLE: &str = "access-control-allow-origin: https://app.example.org\nvary: origin\n\
                        access-control-expose-headers: mcp-session-id, www-authenticate, retry-after\n";

#[tokio::test]
async fn gwy_03_a_browser_that_asks_for_an_allowed_page_is_told_what_it_may() {
    let door = keyed(Host::builder().start().await.unwrap()).await;
    let wanted = "authorization,content-type,Mcp-Param-Region,mcp-param-n,x-other,mcp-param-,cookie";
    let answer = preflight(&door, PAGE, wanted).await;
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::NO_CONTENT, ""), "before any key");
    let said = |name: &str| answer.headers[name].to_str().unwrap().to_owned();
    assert_eq!(said("access-control-allow-origin"), PAGE);
    assert_eq!(said("vary"), "origin");
    assert_eq!(said("access-control-allow-methods"), "GET, POST, DELETE");
    assert!(said("access-control-max-age").parse::<u32>().unwrap() > 0);
    assert!(!answer.headers.contains_key("access-control-allow-credentials"));
    let allowed = said("access-control-allow-headers");
    let allowed: Vec<&str> = allowed.split(", ").collect();
    for name in [
        "content-type",
        "authorization",
        "mcp-protocol-version",
        "mcp-session-id",
        "mcp-method",
        "mcp-name",
        "last-event-id",
        "traceparent",
        "tracestate",
        "baggage",
        "mcp-param-region",
        "mcp-param-n",
    ] {
        assert!(allowed.contains(&name), "{name}: {allowed:?}");
    }
    assert_eq!(allowed.len(), 12, "and nothing else: {allowed:?}");
    let many: Vec<String> = (0..200).map(|n| format!("mcp-param-{n}")).collect();
    let answer = preflight(&door, PAGE, &many.join(",")).await;
    let allowed = answer.headers["access-control-allow-headers"].to_str().unwrap();
    assert_eq!(allowed.matches("mcp-param-").count(), 64, "not without end");
}

#[tokio::test]
async fn gwy_03_pages_of_other_origins_get_no_leave_of_any_kind() {
    let door = keyed(Host::builder().start().await.unwrap()).await;
    let name = door.name();
    for evil in
        ["https://evil.com", "null", "https://app.example.org.evil.com", "http://app.example.org", "*", ""]
    {
        let answer = preflight(&door, evil, "authorization").await;
        assert_eq!((answer.status, leave(&answer.headers)), (StatusCode::FORBIDDEN, String::new()), "{evil}");
        let key = format!("Bearer {KEY}");
        let more = [("origin", evil), ("authorization", key.as_str())];
        let answer = door.modern_with("tools/list", json!({}), &more).await;
        assert_eq!((answer.status, leave(&answer.headers)), (StatusCode::FORBIDDEN, String::new()), "{evil}");
    }
    let twice = [
        ("host", name.as_str()),
        ("origin", PAGE),
        ("origin", PAGE),
        ("access-control-request-method", "POST"),
    ];
    let answer = door.send(Method::OPTIONS, "/mcp", &twice, "").await;
    assert_eq!((answer.status, leave(&answer.headers)), (StatusCode::FORBIDDEN, String::new()));
    // Nor does whoever is no page.
    let answer = door.send(Method::OPTIONS, "/mcp", &[("host", &name)], "").await;
    assert_eq!((answer.status, leave(&answer.headers)), (StatusCode::UNAUTHORIZED, String::new()));
    // A page of the gateway's own address needs none.
    let (own, key) = (format!("http://{name}"), format!("Bearer {KEY}"));
    let more = [("origin", own.as_str()), ("authorization", key.as_str())];
    let answer = door.modern_with("tools/list", json!({}), &more).await;
    assert_eq!((answer.status, leave(&answer.headers)), (StatusCode::OK, String::new()));
}

#[tokio::test]
async fn gwy_03_an_allowed_page_reads_every_answer_streams_and_errors_too() {
    let door = keyed(host([puppet("pup", &Puppet::of(Era::Modern))]).await).await;
    let (name, key) = (door.name(), format!("Bearer {KEY}"));
    let from = [("origin", PAGE), ("authorization", key.as_str())];
    let call = json!({"name": "pup_echo", "arguments": {}});
    let unknown = json!({"name": "nobody", "arguments": {}});
    let refused = door.modern_with("tools/list", json!({}), &[("origin", PAGE)]).await;
    assert!(refused.headers.contains_key("www-authenticate"), "{refused:?}");
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}}});
    let usual = [("host", name.as_str()), ("content-type", "application/json"), from[0], from[1]];
    let opened = door.send(Method::POST, "/mcp", &usual, hello.to_string()).await;
    let session = opened.headers["mcp-session-id"].to_str().unwrap().to_owned();
    let end: Vec<_> = usual.into_iter().chain([("mcp-session-id", session.as_str())]).collect();
    for (answer, status) in [
        (door.modern_with("tools/call", call, &from).await, 200),
        (door.modern_with("tools/call", unknown, &from).await, 200),
        (door.modern_with("no/such", json!({}), &from).await, 404),
        (refused, 401),
        (door.send(Method::POST, "/mcp", &usual, "{").await, 400),
        (door.send(Method::PUT, "/mcp", &usual, "").await, 405),
        (opened, 200),
        (door.send(Method::DELETE, "/mcp", &end, "").await, 204),
        (door.send(Method::GET, "/healthz", &usual[..3], "").await, 200),
    ] {
        assert_eq!(
            (answer.status.as_u16(), leave(&answer.headers).as_str()),
            (status, READABLE),
            "{answer:?}"
        );
    }
    let stream = door.stream(Method::GET, "/sse", &from, "").await;
    assert_eq!((stream.status, leave(&stream.headers).as_str()), (StatusCode::OK, READABLE));
    door.host.close().await;
}
