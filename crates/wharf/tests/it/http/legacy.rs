//! The legacy era: a session, streams that are resumed, requests in both directions.

use serde_json::json;

use super::server::{self, Server};
use super::{call, connect, done, kind, legacy};

#[tokio::test]
async fn l31_a_legacy_session_goes_with_every_request_and_is_ended() {
    let server = legacy(|x| async move { x.result(done()).await }).await;
    let (connection, _) = connect(&server).await;
    call(&connection).await.unwrap();
    server.until_asked("GET").await;
    connection.close().await;
    connection.close().await;
    let log = server.log();
    let find = |line: &str| log.iter().find(|s| s.line() == line).unwrap();
    let initialize = find("POST initialize");
    assert_eq!(initialize.header("mcp-session-id"), None);
    assert_eq!(initialize.header("mcp-protocol-version"), None);
    assert_eq!(initialize.header("mcp-method"), None);
    for line in [
        "POST notifications/initialized",
        "POST tools/call",
        "GET",
        "DELETE",
    ] {
        assert_eq!(find(line).header("mcp-session-id"), Some("s1"), "{line}");
        assert_eq!(
            find(line).header("mcp-protocol-version"),
            Some("2025-11-25"),
            "{line}"
        );
        assert_eq!(find(line).header("mcp-method"), None, "{line}");
        assert_eq!(find(line).header("x-key"), Some("opensesame"), "{line}");
    }
    assert_eq!(server.count("DELETE"), 1);
    let at = |line: &str| log.iter().position(|s| s.line() == line).unwrap();
    assert!(at("POST notifications/initialized") < at("POST tools/call"));
}
