//! `server-everything` behind an address, as its own process.

use wharf::config::{Remote, Transport};

use crate::node::everything;
use crate::process::{Running, free_port, unread};
use crate::walk::{SERVER, endpoint, host, killed_in_a_call, ordinary, works};

/// The whole walk, over the transport that `make` makes and the server's `mode` speaks.
async fn whole(mode: &str, path: &str, make: fn(Remote) -> Transport, spoken: &str) {
    let port = free_port();
    let expected = everything();
    let first = Running::everything(mode, port).await;
    let host = host(endpoint(make, &format!("http://127.0.0.1:{port}{path}"))).await;
    ordinary(&host, &expected).await;
    assert_eq!(host.berth(SERVER).unwrap().connection().await.unwrap().transport(), spoken);

    killed_in_a_call(&host, &expected, first.pid(), unread(port)).await;
    drop(first);
    let second = Running::everything(mode, port).await;
    works(&host, &expected).await;
    host.close().await;
    second.end();
}

#[tokio::test]
async fn everything_over_streamable_http() {
    whole("streamableHttp", "/mcp", Transport::Http, "http").await;
}

#[tokio::test]
async fn everything_over_sse() {
    whole("sse", "/sse", Transport::Sse, "sse").await;
}

#[tokio::test]
async fn everything_over_sse_where_the_config_says_http() {
    whole("sse", "/sse", Transport::Http, "sse").await;
}
