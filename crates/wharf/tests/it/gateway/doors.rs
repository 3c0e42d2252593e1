//! Who is let in, and what is turned away before anything behind the gateway hears of it.

use http::{Method, StatusCode};
use serde_json::json;
use wharf::Host;
use wharf::gateway::{Callers, Gateway, Key};
use wharf::names::CallerName;
use wharf_testkit::{Era, Puppet};

use super::{Door, modern_body, open, open_with};
use crate::proofs::alone;
use crate::proofs::half_open::{network_of_its_own, run};
use crate::support::{at, folder, host, puppet, received};

const KEY: &str = "wharf_0123456789abcdef0123456789abcdef";

async fn empty() -> Host {
    Host::builder().start().await.unwrap()
}

async fn list(door: &Door, more: &[(&str, &str)]) -> StatusCode {
    door.modern_with("tools/list", json!({}), more).await.status
}

#[tokio::test]
async fn gwy_01_without_the_right_key_nothing_behind_is_contacted() {
    let files = folder();
    let log = at(&files, "log");
    let host = host([puppet("pup", &Puppet::of(Era::Modern).log(&log))]).await;
    let key = Key::new(CallerName::parse("ann").unwrap(), Key::hash(KEY));
    let door = open_with(host, |b| b.callers(Callers::default().keys([key]))).await;
    let right = format!("Bearer {KEY}");
    let prefix = format!("Bearer {}", &KEY[..20]);
    let wrong = ["Bearer", "Bearer ", "Bearer wrong", prefix.as_str(), KEY, "Basic d2hhcmY6", "Bearer a b"];
    assert_eq!(list(&door, &[]).await, StatusCode::UNAUTHORIZED);
    for value in wrong {
        assert_eq!(list(&door, &[("authorization", value)]).await, StatusCode::UNAUTHORIZED, "{value}");
    }
    let twice = [("authorization", right.as_str()), ("authorization", right.as_str())];
    assert_eq!(list(&door, &twice).await, StatusCode::UNAUTHORIZED, "two of them are none");
    let path = format!("/mcp?access_token={KEY}");
    let name = door.name();
    let in_query = door.send(Method::POST, &path, &[("host", &name)], "{}").await;
    assert_eq!(in_query.status, StatusCode::UNAUTHORIZED);
    assert!(in_query.headers.contains_key("www-authenticate"));
    assert!(received(&log).is_empty(), "the server was never contacted");

    assert_eq!(list(&door, &[("authorization", &right)]).await, StatusCode::OK);
    let lower = format!("bearer {KEY}");
    assert_eq!(list(&door, &[("authorization", &lower)]).await, StatusCode::OK, "the scheme in any case");
    assert!(!received(&log).is_empty());
    door.host.close().await;
}

#[tokio::test]
async fn gwy_02_only_its_own_name_opens_the_gateway() {
    let door = open(empty().await).await;
    let body = modern_body("tools/list", json!({})).to_string();
    let usual = [
        ("content-type", "application/json"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/list"),
    ];
    let ask = async |hosts: &[&str]| {
        let mut headers: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
        headers.extend(usual);
        door.send(Method::POST, "/mcp", &headers, body.clone()).await.status
    };
    let port = door.at.port();
    for evil in ["evil.com", "evil.com:80", "127.0.0.1.evil.com", "localhost.evil.com", "127.0.0.1:x", ""] {
        assert_eq!(ask(&[evil]).await, StatusCode::FORBIDDEN, "{evil}");
    }
    assert_eq!(ask(&[]).await, StatusCode::BAD_REQUEST);
    assert_eq!(ask(&["127.0.0.1", "127.0.0.1"]).await, StatusCode::BAD_REQUEST);
    for own in ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:80", &format!("127.0.0.1:{port}")] {
        assert_eq!(ask(&[own]).await, StatusCode::OK, "{own}");
    }
    let named = open_with(empty().await, |b| b.hosts(["tools.example.org".to_owned()])).await;
    let headers: Vec<_> = [("host", "tools.example.org")].into_iter().chain(usual).collect();
    assert_eq!(named.send(Method::POST, "/mcp", &headers, body.clone()).await.status, StatusCode::OK);
}

/// In a network of its own, where there is an address that is not loopback, whatever this machine has.
#[test]
fn gwy_02_a_gateway_is_called_by_the_address_where_it_listens() {
    if !alone(gwy_02_a_gateway_is_called_by_the_address_where_it_listens, network_of_its_own()) {
        return;
    }
    run("ip", &["link", "set", "lo", "up"]);
    run("ip", &["address", "add", "192.0.2.7/32", "dev", "lo"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(called_at("192.0.2.7".parse().unwrap()));
}

async fn called_at(ip: std::net::IpAddr) {
    let key = Key::new(CallerName::parse("ann").unwrap(), Key::hash(KEY));
    let right = format!("Bearer {KEY}");
    for (bind, is_ours) in [(ip, true), ("0.0.0.0".parse().unwrap(), false)] {
        let callers = Callers::default().keys([key.clone()]);
        let gateway = Gateway::builder(empty().await).callers(callers).build().unwrap();
        let listener = tokio::net::TcpListener::bind((bind, 0)).await.unwrap();
        let at = std::net::SocketAddr::new(ip, listener.local_addr().unwrap().port());
        let served = gateway.clone();
        let serving = tokio::spawn(async move { served.serve_http(listener, std::future::pending()).await });
        let door = Door { at, host: empty().await, gateway, stop: None };
        let expected = if is_ours { StatusCode::OK } else { StatusCode::FORBIDDEN };
        assert_eq!(list(&door, &[("authorization", &right)]).await, expected, "bound to {bind}");
        let evil = [("host", "evil.com"), ("authorization", right.as_str())];
        assert_eq!(door.send(Method::POST, "/mcp", &evil, "{}").await.status, StatusCode::FORBIDDEN);
        serving.abort();
    }
}

#[tokio::test]
async fn gwy_03_pages_of_other_origins_are_turned_away() {
    let door = open(empty().await).await;
    let port = door.at.port();
    let own = format!("http://127.0.0.1:{port}");
    let other = "http://127.0.0.1:1";
    for evil in ["https://evil.com", "null", "http://localhost.evil.com", other, "file://", ""] {
        assert_eq!(list(&door, &[("origin", evil)]).await, StatusCode::FORBIDDEN, "{evil}");
        let name = door.name();
        for (method, path) in [(Method::GET, "/healthz"), (Method::OPTIONS, "/mcp"), (Method::GET, "/mcp")] {
            let answer = door.send(method, path, &[("host", &name), ("origin", evil)], "").await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{evil} at {path}");
            assert!(!answer.headers.contains_key("access-control-allow-origin"));
        }
    }
    assert_eq!(list(&door, &[("origin", &own)]).await, StatusCode::OK);
    let allowed = open_with(empty().await, |b| b.origins(["https://app.example.org".to_owned()])).await;
    assert_eq!(list(&allowed, &[("origin", "https://app.example.org")]).await, StatusCode::OK);
}

#[tokio::test]
async fn gwy_04_an_address_that_others_reach_needs_callers_with_keys() {
    let at = |text: &str| text.parse().unwrap();
    let gateway = Gateway::builder(empty().await).build().unwrap();
    let refused = gateway.may_listen(at("0.0.0.0:80")).unwrap_err();
    assert_eq!(refused.kind(), "denied");
    assert!(refused.hint().is_some());
    for own in ["127.0.0.1:80", "[::1]:80"] {
        gateway.may_listen(at(own)).unwrap();
    }
    let key = Key::new(CallerName::parse("ann").unwrap(), Key::hash(KEY));
    let keyed = Gateway::builder(empty().await).callers(Callers::default().keys([key])).build().unwrap();
    keyed.may_listen(at("0.0.0.0:80")).unwrap();
}

#[tokio::test]
async fn gwy_05_headers_that_say_something_else_than_the_body_are_refused() {
    let files = folder();
    let log = at(&files, "log");
    let door = open(host([puppet("pup", &Puppet::of(Era::Modern).log(&log))]).await).await;
    let name = door.name();
    let body = modern_body("tools/call", json!({"name": "pup_echo", "arguments": {}})).to_string();
    let ask = async |version: &str, method: &str, tool: Option<&str>| {
        let mut headers = vec![
            ("host", name.as_str()),
            ("content-type", "application/json"),
            ("mcp-protocol-version", version),
            ("mcp-method", method),
        ];
        headers.extend(tool.map(|tool| ("mcp-name", tool)));
        door.send(Method::POST, "/mcp", &headers, body.clone()).await
    };
    let encoded = "=?base64?cHVwX2VjaG8=?=";
    let lies = [
        ("2026-07-28", "tools/call", Some("pup_safe")),
        ("2026-07-28", "tools/call", None),
        ("2026-07-28", "tools/list", Some("pup_echo")),
        ("2026-07-28", "tools/call", Some("=?base64?cHVwX2VjaG8?=")),
        ("2026-07-28", "tools/call", Some("=?base64?!!!!?=")),
        ("2025-11-25", "tools/call", Some("pup_echo")),
    ];
    for (version, method, tool) in lies {
        let answer = ask(version, method, tool).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{version} {method} {tool:?}: {answer:?}");
        assert_eq!(answer.json()["error"]["code"], -32020, "{version} {method} {tool:?}");
    }
    assert!(received(&log).is_empty(), "the server was never contacted");
    for told in ["pup_echo", encoded] {
        assert_eq!(ask("2026-07-28", "tools/call", Some(told)).await.status, StatusCode::OK, "{told}");
    }
    door.host.close().await;
}

#[tokio::test]
async fn gwy_07_a_session_is_found_only_by_its_own_caller() {
    let keys = ["ann", "bob"]
        .map(|name| Key::new(CallerName::parse(name).unwrap(), Key::hash(&format!("{KEY}{name}"))));
    let door = open_with(empty().await, |b| b.callers(Callers::default().keys(keys))).await;
    let name = door.name();
    let ask = async |caller: &str, session: Option<&str>, message: serde_json::Value| {
        let key = format!("Bearer {KEY}{caller}");
        let mut headers =
            vec![("host", name.as_str()), ("content-type", "application/json"), ("authorization", &key)];
        headers.extend(session.map(|session| ("mcp-session-id", session)));
        door.send(Method::POST, "/mcp", &headers, message.to_string()).await
    };
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}});
    let opened = ask("ann", Some("of-my-own"), hello).await;
    let session = opened.headers["mcp-session-id"].to_str().unwrap().to_owned();
    assert_ne!(session, "of-my-own", "the caller does not choose its name");
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(ask("ann", Some(&session), ping.clone()).await.status, StatusCode::OK);
    assert_eq!(ask("bob", Some(&session), ping.clone()).await.status, StatusCode::NOT_FOUND, "stolen");
    assert_eq!(ask("ann", Some("guess"), ping.clone()).await.status, StatusCode::NOT_FOUND, "guessed");
    assert_eq!(ask("ann", None, ping.clone()).await.status, StatusCode::BAD_REQUEST);
    let key = format!("Bearer {KEY}ann");
    let end = [("host", name.as_str()), ("authorization", &key), ("mcp-session-id", &session)];
    assert_eq!(door.send(Method::DELETE, "/mcp", &end, "").await.status, StatusCode::NO_CONTENT);
    assert_eq!(ask("ann", Some(&session), ping).await.status, StatusCode::NOT_FOUND, "over");
}

#[tokio::test]
async fn gwy_14_only_the_exact_path_leads_in() {
    let door = open(empty().await).await;
    let name = door.name();
    let get = async |path: &str| door.send(Method::GET, path, &[("host", &name)], "").await.status;
    for odd in ["/mcp/", "//mcp", "/MCP", "/mcp/../healthz", "/%6dcp", "/healthz/x", "/"] {
        assert_eq!(get(odd).await, StatusCode::NOT_FOUND, "{odd}");
    }
    assert_eq!(get("/healthz").await, StatusCode::OK);
    assert_eq!(get("/mcp").await, StatusCode::BAD_REQUEST, "a session is needed");
}

#[tokio::test]
async fn gwy_12_a_list_in_several_lines_is_one_list_and_what_is_no_list_stands_once() {
    let key = Key::new(CallerName::parse("ann").unwrap(), Key::hash(KEY));
    let door = open_with(empty().await, |b| b.callers(Callers::default().keys([key]))).await;
    let (name, right) = (door.name(), format!("Bearer {KEY}"));
    let body = modern_body("tools/list", json!({})).to_string();
    let usual = [
        ("host", name.as_str()),
        ("authorization", &right),
        ("content-type", "application/json"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/list"),
    ];
    let ask = async |more: &[(&str, &str)]| {
        let headers: Vec<_> = usual.iter().chain(more).copied().collect();
        door.send(Method::POST, "/mcp", &headers, body.clone()).await.status
    };
    let (json, events) = ("application/json", "text/event-stream");
    for lines in [
        vec![json, events],
        vec![events, "text/html;q=0.5", "Application/JSON; q=0.9"],
        vec!["text/html", "*/*"],
        vec!["text/*, text/html", "", "application/*"],
        vec![json, "a\u{fc}", events],
    ] {
        let accept: Vec<_> = lines.iter().map(|line| ("accept", *line)).collect();
        assert_eq!(ask(&accept).await, StatusCode::OK, "{lines:?}");
    }
    // However often something is said, nothing else is meant by it.
    for lines in
        [vec![json, json], vec![events, "text/*"], vec!["", ""], vec!["application/json text/event-stream"]]
    {
        let accept: Vec<_> = lines.iter().map(|line| ("accept", *line)).collect();
        assert_eq!(ask(&accept).await, StatusCode::NOT_ACCEPTABLE, "{lines:?}");
    }
    let refused = [
        StatusCode::BAD_REQUEST,
        StatusCode::UNAUTHORIZED,
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        StatusCode::BAD_REQUEST,
        StatusCode::BAD_REQUEST,
    ];
    for (field, refused) in usual.into_iter().zip(refused) {
        assert_eq!(ask(&[field]).await, refused, "{field:?} is no list, and stands there twice");
    }
    let length = body.len().to_string();
    let lengths = [("content-length", length.as_str()), ("content-length", &length)];
    assert_ne!(ask(&lengths).await, StatusCode::OK, "nor is a length");
    assert_eq!(ask(&[]).await, StatusCode::OK);
}
