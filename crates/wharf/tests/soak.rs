//! Many calls: the memory of the caller must not grow with them. A process of its own, so that no other test's memory
//! is measured with it. 2,000 calls as a rule; 100,000 with `WHARF_ALL=1`, which `./check --all` sets.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test may fail loudly and tell what it measured"
)]

use serde_json::json;
use wharf::config::ServerConfig;
use wharf::names::ServerName;
use wharf::policy::Policy;
use wharf::wire::Json;
use wharf::{CallOptions, Host};
use wharf_testkit::{Puppet, puppet_path};

/// Resident memory of this process in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The first tenth fills caches and pools; after it the memory stays where it is.
#[tokio::test]
async fn memory_is_flat_over_many_calls() {
    const SLACK: u64 = 1024;
    let all = std::env::var_os("WHARF_ALL").is_some_and(|v| v == "1");
    let calls = if all { 100_000 } else { 2_000 };
    let path = puppet_path().display().to_string();
    let server = ServerConfig::stdio(ServerName::parse("pup").unwrap(), path.clone(), Puppet::new().args());
    let policy = Policy::strict().with_sandbox(false).with_commands([path]);
    let host =
        Host::builder().server(server).policy(policy).environment(std::env::vars()).start().await.unwrap();
    let arguments = Json::of(&json!({"message": "x".repeat(1000)}));
    let (mut settled, mut most) = (0, 0);
    for done in 1..=calls {
        let outcome = host.call_tool("pup", "echo", arguments.clone(), CallOptions::default()).await;
        assert!(outcome.success, "{outcome:?}");
        if done == calls / 10 {
            settled = resident();
        } else if done > calls / 10 && done % (calls / 20) == 0 {
            let now = resident();
            most = most.max(now);
            assert!(now < settled + SLACK, "after {done} calls: {now} KiB, after a tenth: {settled} KiB");
        }
    }
    println!("{calls} calls: {settled} KiB after a tenth, at most {most} KiB after that");
    host.close().await;
}
