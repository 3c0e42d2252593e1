//! a network that swallows everything and says nothing: during a call, while a stream of news is idle, and while
//! connecting. In a network of its own, where nftables drops what we say it drops.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use wharf::config::ServerConfig;
use wharf::names::ServerName;
use wharf::net::NetOptions;
use wharf::policy::Policy;
use wharf::{CallOptions, Host};

use super::{alone, tell};
use crate::http::server::{Exchange, Server};
use crate::http::{discovered, done, initialized};
use crate::support::{error, soon, until};

pub(crate) fn run(program: &str, args: &[&str]) {
    let ran = Command::new(program).args(args).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(ran.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// A network with nothing in it but this machine, and a filter that is empty yet. A kernel that lets nobody make a network
/// of his own without being root lets root.
pub(crate) fn network_of_its_own() -> &'static [&'static str] {
    let anybody: &[&str] = &["unshare", "-Urn"];
    let works = Command::new(anybody[0]).args([anybody[1], "true"]).status().is_ok_and(|s| s.success());
    if works { anybody } else { &["unshare", "-n"] }
}

fn set_up() {
    run("ip", &["link", "set", "lo", "up"]);
    run("nft", &["add", "table", "inet", "half"]);
    run("nft", &["add", "chain", "inet", "half", "in", "{ type filter hook input priority 0; }"]);
}

/// From now on nothing reaches either side of a server.
fn swallow(server: &Server) {
    let port = server.address.port().to_string();
    for side in ["dport", "sport"] {
        run("nft", &["add", "rule", "inet", "half", "in", "tcp", side, &port, "drop"]);
    }
}

fn undrop() {
    run("nft", &["flush", "chain", "inet", "half", "in"]);
}

/// How many sockets of this process lead to a server: the rows with its port on the other side that somebody holds.
fn sockets_to(server: &Server) -> usize {
    let port = format!(":{:04X}", server.address.port());
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let rows = table.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[2].ends_with(&port) && row[9] != "0").count()
}

async fn host(server: &Server) -> Host {
    let config = ServerConfig::http(ServerName::parse("far").unwrap(), &server.url()).unwrap();
    let net = NetOptions {
        connect_timeout: Duration::from_millis(700),
        keepalive: Duration::from_secs(1),
        ..NetOptions::default()
    };
    let retry = Duration::from_millis(10);
    Host::builder().policy(Policy::strict()).net(net).retry_pause(retry).server(config).start().await.unwrap()
}

/// A server of one era with a tool `t`. It answers calls once `answers` is true, and holds streams of news open.
async fn far(modern: bool, answers: &Arc<AtomicBool>) -> Server {
    let answers = Arc::clone(answers);
    Server::start(move |x| play(x, modern, Arc::clone(&answers))).await
}

async fn play(x: Exchange, modern: bool, answers: Arc<AtomicBool>) {
    let tools =
        json!({"tools": [{"name": "t", "inputSchema": {"type": "object"}}], "resultType": "complete"});
    match x.seen.line().as_str() {
        "POST server/discover" if modern => x.result(discovered()).await,
        "POST server/discover" => x.reply(400, "", "no").await,
        "POST initialize" => x.result(initialized()).await,
        "POST tools/list" => x.result(tools).await,
        "POST tools/call" if answers.load(Ordering::SeqCst) => x.result(done()).await,
        "POST tools/call" => x.hold().await,
        "GET" | "POST subscriptions/listen" => x.events("").await.closed().await,
        _ => x.accepted().await,
    }
}

async fn call(host: &Host, time: Duration) -> wharf::Outcome {
    let options = CallOptions { timeout: Some(time), ..CallOptions::default() };
    soon("a call", host.call_tool("far", "t", json!({}), options)).await
}

#[test]
fn r_04_a_network_that_swallows_everything_is_noticed_and_outlived() {
    if !alone(r_04_a_network_that_swallows_everything_is_noticed_and_outlived, network_of_its_own()) {
        return;
    }
    set_up();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for modern in [true, false] {
            during_a_call(modern).await;
            while_connecting(modern).await;
            while_idle(modern).await;
        }
    });
}

/// The call ends at its deadline, its connection is given up, and the next call after that finds a way.
async fn during_a_call(modern: bool) {
    let answers = Arc::new(AtomicBool::new(false));
    let server = far(modern, &answers).await;
    let host = host(&server).await;
    assert!(host.tools_of("far").await.is_ok());
    let idle = sockets_to(&server);
    let time = Duration::from_millis(600);
    let since = Instant::now();
    let (outcome, ()) = tokio::join!(call(&host, time), async {
        server.until_asked("POST tools/call").await;
        assert!(sockets_to(&server) > 0);
        swallow(&server);
    });
    assert_eq!(error(&outcome).kind(), "timeout", "{outcome:?}");
    assert!(since.elapsed() < 10 * time, "{:?}", since.elapsed());
    until("nothing is left of the way to the server", || sockets_to(&server) == 0).await;
    undrop();
    answers.store(true, Ordering::SeqCst);
    until_it_works(&host).await;
    assert!(server.count("POST tools/call") >= 2);
    tell(format!("R-04 modern={modern}: during a call {:?}, sockets before {idle}", since.elapsed()));
    host.close().await;
}

/// Nothing was sent, which is what the error says; then it works.
async fn while_connecting(modern: bool) {
    let server = far(modern, &Arc::new(AtomicBool::new(true))).await;
    let host = host(&server).await;
    swallow(&server);
    let outcome = call(&host, Duration::from_secs(20)).await;
    let failure = error(&outcome);
    assert_eq!(failure.kind(), "connection", "{failure}");
    assert!(failure.is_retryable(), "{failure}");
    assert_eq!(sockets_to(&server), 0, "what came of nothing is closed");
    assert_eq!(server.log().len(), 0, "nobody was asked anything");
    undrop();
    until_it_works(&host).await;
    assert_eq!(server.count("POST tools/call"), 1, "only the call that got through");
    host.close().await;
}

/// A stream of news on which nothing comes looks the same as one that is dead. It is found out, and opened again.
async fn while_idle(modern: bool) {
    let stream = if modern { "POST subscriptions/listen" } else { "GET" };
    let server = far(modern, &Arc::new(AtomicBool::new(true))).await;
    let host = host(&server).await;
    until_it_works(&host).await;
    server.until_asked(stream).await;
    swallow(&server);
    until("the dead stream is closed", || sockets_to(&server) == 0).await;
    undrop();
    let before = server.count(stream);
    until("it is opened again", || server.count(stream) > before).await;
    until_it_works(&host).await;
    host.close().await;
}

/// The next calls may find the old way, or a new one that was begun in vain.
async fn until_it_works(host: &Host) {
    for _ in 0..20 {
        if call(host, Duration::from_secs(2)).await.success {
            return;
        }
    }
    panic!("it never works again");
}
