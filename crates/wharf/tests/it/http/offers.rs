//! Resources over HTTP: the header that names them, and a session that the server forgot.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use wharf::Host;

use super::server::{self, Server};

const LIMIT: Duration = Duration::from_secs(20);

async fn host(server: &Server) -> Host {
    Host::builder().server(server::http(&server.url())).start().await.unwrap()
}

fn contents(uri: &Value) -> Value {
    json!({"resultType": "complete", "contents": [{"uri": uri, "text": "t"}], "ttlMs": 0, "cacheScope": "private"})
}

#[tokio::test]
async fn l80_the_address_of_a_resource_stands_in_a_header_whatever_is_in_it() {
    let server = Server::start(|x| async move {
        match x.seen.method() {
            "server/discover" => {
                let mut found = super::discovered();
                found["capabilities"] = json!({"resources": {}, "prompts": {}});
                x.result(found).await;
            }
            "prompts/list" => x.result(json!({"prompts": [{"name": "greet"}]})).await,
            "prompts/get" => x.result(json!({"messages": []})).await,
            _ => {
                let uri = x.seen.body["params"]["uri"].clone();
                x.result(contents(&uri)).await;
            }
        }
    })
    .await;
    let host = host(&server).await;
    for (uri, header) in [
        ("file:///a b", "file:///a b"),
        ("x://ü", "=?base64?eDovL8O8?="),
        ("x://\r\nX-Evil: 1", "=?base64?eDovLw0KWC1FdmlsOiAx?="),
    ] {
        let read = host.read_resource("far", uri).await.unwrap();
        assert_eq!(read.contents[0].uri.raw(), uri);
        let seen = server.log().into_iter().rfind(|s| s.method() == "resources/read").unwrap();
        assert_eq!(seen.header("mcp-name"), Some(header));
        assert_eq!(seen.header("mcp-method"), Some("resources/read"));
        assert_eq!(seen.header("x-evil"), None);
    }
    host.prompt("far", "greet", &Default::default()).await.unwrap();
    assert_eq!(server.until_asked("POST prompts/get").await.header("mcp-name"), Some("greet"));
    host.close().await;
}

#[tokio::test]
async fn l80_what_was_asked_of_a_session_is_asked_of_the_next_one_when_the_server_forgets_it() {
    let sessions = Arc::new(AtomicUsize::new(0));
    let server = Server::start(move |x| {
        let sessions = Arc::clone(&sessions);
        async move {
            let forgotten = x.seen.header("mcp-session-id") == Some("s1");
            match x.seen.line().as_str() {
                "POST server/discover" => x.reply(400, "", "no").await,
                "POST initialize" => {
                    let number = sessions.fetch_add(1, Ordering::SeqCst) + 1;
                    let mut hello = super::initialized();
                    hello["capabilities"] = json!({"resources": {"subscribe": true}, "logging": {}});
                    let answer = x.seen.answer(hello);
                    x.json(&format!("mcp-session-id: s{number}\r\n"), answer).await;
                }
                "POST notifications/initialized" => x.accepted().await,
                "GET" => x.reply(405, "", "").await,
                "DELETE" => x.reply(200, "", "").await,
                "POST resources/read" if forgotten => x.reply(404, "", "").await,
                "POST resources/read" => {
                    let uri = x.seen.body["params"]["uri"].clone();
                    x.result(contents(&uri)).await;
                }
                _ => x.result(json!({})).await,
            }
        }
    })
    .await;
    let host = host(&server).await;
    host.set_log_level("far", wharf::mcp::LogLevel::Warning).await.unwrap();
    let mut watching = host.subscribe("far", "x://a").await.unwrap();
    let read = host.read_resource("far", "x://a").await.unwrap();
    assert_eq!(read.contents[0].text().unwrap().raw(), "t", "a reading has no effect, so it is made again");
    let update = tokio::time::timeout(LIMIT, watching.next()).await.expect("a word after the gap");
    assert_eq!(update.unwrap().uri.raw(), "x://a");
    for line in ["POST resources/subscribe", "POST logging/setLevel"] {
        server.until(|log| log.iter().filter(|s| s.line() == line).count() == 2).await;
        let last = server.log().into_iter().rfind(|s| s.line() == line).unwrap();
        assert_eq!(last.header("mcp-session-id"), Some("s2"), "{line}");
    }
    host.close().await;
}
