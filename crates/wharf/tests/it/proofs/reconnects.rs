//! connecting, calling and disconnecting again and again leaves nothing: no descriptor, thread, task, zombie,
//! folder, and no memory that grows with it.

use serde_json::json;
use wharf::Host;
use wharf::config::ServerConfig;
use wharf::names::ServerName;
use wharf_testkit::{HttpPuppet, Puppet, http};

use super::measure::{Held, resident};
use super::{alone, rounds, tell};
use crate::support::{folder, puppet, quick, until};

/// So many rounds fill caches and pools.
const WARM_UP: usize = 10;
/// How much the allocator may keep for itself, in KiB.
const SLACK: u64 = 2048;

async fn round(host: &Host, number: usize) {
    let name = host.servers()[0].name.to_string();
    let outcome = host.call(&format!("{name}_echo"), json!({ "message": number.to_string() })).await;
    assert!(outcome.to_text().contains(&number.to_string()), "{outcome:?}");
    host.berth(name.as_str()).unwrap().disconnect().await;
}

/// Plays the rounds and compares what is held after the warm-up with what is held at the end. The server, if it lives in
/// this process, forgets each round.
async fn again_and_again(host: Host, what: &str, forget: impl Fn()) {
    let many = rounds(50, 1000);
    for number in 0..WARM_UP {
        round(&host, number).await;
    }
    let (before, settled) = (Held::now(), resident());
    for number in 0..many {
        round(&host, number).await;
        forget();
    }
    until(&format!("{what}: nothing more is held than {before:?}"), || Held::now().is_within(before)).await;
    let now = resident();
    assert!(now < settled + SLACK, "{what}: {now} KiB after {many} rounds, {settled} KiB before");
    tell(format!("R-02 {what}: {many} rounds, {:?}, memory {settled} -> {now} KiB", Held::now()));
    host.close().await;
}

#[test]
fn r_02_a_thousand_connections_leave_nothing() {
    if !alone(r_02_a_thousand_connections_leave_nothing, &[]) {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let scratch = folder();
        let server = puppet("pup", &Puppet::new());
        let host = quick().scratch(scratch.path()).server(server).start().await.unwrap();
        again_and_again(host, "stdio", || ()).await;
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "no folder is left");

        let tool = json!({"name": "echo", "inputSchema": {"type": "object"}});
        let far = |url: &str| ServerConfig::http(ServerName::parse("far").unwrap(), url).unwrap();
        let modern = HttpPuppet::start(http::honest_modern(vec![tool.clone()]));
        let host = quick().server(far(&modern.url())).start().await.unwrap();
        again_and_again(host, "modern HTTP", || modern.forget()).await;
        drop(modern);
        let legacy = HttpPuppet::start(http::honest_legacy(vec![tool], true));
        let host = quick().server(far(&legacy.url())).start().await.unwrap();
        again_and_again(host, "legacy HTTP", || legacy.forget()).await;
    });
}
