//! rmcp as client and as server.

use serde_json::json;
use wharf_testkit::rmcp_client::{RmcpClient, Wire, list_and_call};
use wharf_testkit::{Puppet, puppet_path, rmcp_peer_path};

#[tokio::test]
async fn an_unscripted_puppet_is_honest_on_both_wires() {
    for wire in [Wire::Legacy, Wire::Modern] {
        let script = Puppet::new().args();
        let seen = list_and_call(wire, &puppet_path(), &[&script[0]], "echo", json!({"message": "hi"})).await;
        assert_eq!(seen.tools, ["echo"]);
        assert_eq!(seen.result["content"][0]["text"], r#"{"message":"hi"}"#);
    }
}

#[tokio::test]
async fn the_rmcp_server_asks_on_both_wires() {
    for wire in [Wire::Legacy, Wire::Modern] {
        let client = RmcpClient::start(wire, &rmcp_peer_path(), &[]).await;
        let mut tools = client.tools().await;
        tools.sort();
        assert_eq!(tools, ["add", "ask", "echo", "progress"]);
        let answer = client.call("ask", json!({})).await.unwrap();
        assert_eq!(answer["content"][0]["text"], "Hello, Ada", "{wire:?}");
        let sum = client.call("add", json!({"a": 2, "b": 3})).await.unwrap();
        assert_eq!(sum["content"][0]["text"], "5");
        client.close().await;
    }
}
