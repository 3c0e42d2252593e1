//! Several instances of one server, and callers with connections of their own: at which one each is, and where it goes when
//! that one is gone.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use wharf::config::{ServerConfig, Share};
use wharf::gateway::{Callers, Key};
use wharf::names::CallerName;
use wharf_testkit::{Era, Puppet, Step};

use super::alone;
use super::fleet::{Replica, delicate, down, reached, replica};
use crate::gateway::{Door, open_with};
use crate::support::{at, effects, folder, puppet};

/// A door with three keys.
async fn keyed(config: ServerConfig) -> Door {
    let host = alone(config).await;
    let key = |name: &str| Key::new(CallerName::parse(name).unwrap(), Key::hash(name));
    let keys = Callers::default().keys([key("ann"), key("bob"), key("cyd")]);
    open_with(host, |builder| builder.callers(keys)).await
}

async fn call(door: &Door, who: &str) -> Value {
    let params: Value = json!({"name": "pup_echo", "arguments": {}});
    let key = format!("Bearer {who}");
    door.modern_with("tools/call", params, &[("authorization", &key)]).await.json()
}

async fn calls(door: &Door, who: &str, count: usize) {
    for n in 0..count {
        let done = call(door, who).await;
        assert!(done["result"]["content"].is_array(), "call {n}: {done}");
    }
}

/// Instances of which each caller has its own connection to one; that one, after a call of ann's, and another.
async fn visited(make: impl Fn(&Replica, &[&Replica]) -> ServerConfig) -> (Door, Replica, Replica) {
    let (first, second) = (replica(""), replica(""));
    let mut config = make(&first, &[&second]);
    config.share = Some(Share::PerCaller);
    let door = keyed(config).await;
    calls(&door, "ann", 1).await;
    match first.ran() {
        1 => (door, first, second),
        _ => (door, second, first),
    }
}

#[tokio::test]
async fn l39_callers_with_a_connection_of_their_own_stay_at_one_instance() {
    let (first, second) = (replica(""), replica(""));
    let mut config = reached(&first, &[&second]);
    config.share = Some(Share::PerCaller);
    let door = keyed(config).await;
    let mut instances = BTreeSet::new();
    for who in ["ann", "bob", "cyd"] {
        let before = (first.ran(), second.ran());
        calls(&door, who, 4).await;
        let ran = (first.ran() - before.0, second.ran() - before.1);
        assert!(ran == (4, 0) || ran == (0, 4), "{who}: {ran:?}");
        instances.insert(ran);
    }
    assert_eq!(instances.len(), 2, "not all at the same");
    door.host.close().await;
}

#[tokio::test]
async fn l39_a_caller_whose_instance_is_gone_goes_on_at_another_and_stays_there() {
    let (door, home, other) = visited(reached).await;
    let port = home.puppet.addr().port();
    down(home).await;
    calls(&door, "ann", 4).await;
    assert_eq!(other.ran(), 4, "each ran once");
    let home = super::fleet::replica_at(port, "");
    calls(&door, "ann", 4).await;
    assert_eq!((home.ran(), other.ran()), (0, 8), "where it is well it stays");
    door.host.close().await;
}

#[tokio::test]
async fn l39_what_may_have_run_at_a_callers_instance_is_sent_to_no_other() {
    let (door, home, other) = visited(reached).await;
    home.mute.store(true, Ordering::SeqCst);
    let lost = call(&door, "ann").await;
    assert_eq!(lost["error"]["data"]["kind"], "unknown_outcome", "{lost}");
    assert_eq!((home.ran(), other.ran()), (2, 0));
    // It can be reached, so it is still hers.
    home.mute.store(false, Ordering::SeqCst);
    calls(&door, "ann", 2).await;
    assert_eq!((home.ran(), other.ran()), (4, 0));
    door.host.close().await;
}

#[tokio::test]
async fn l39_a_caller_whose_instance_is_left_alone_goes_on_at_another() {
    let (door, home, other) = visited(delicate).await;
    home.mute.store(true, Ordering::SeqCst);
    let lost = call(&door, "ann").await;
    assert_eq!(lost["error"]["data"]["kind"], "unknown_outcome", "{lost}");
    calls(&door, "ann", 3).await;
    assert_eq!((home.ran(), other.ran()), (2, 3));
    door.host.close().await;
}

#[tokio::test]
async fn l39_a_program_of_a_callers_own_that_died_is_started_again_where_it_was() {
    let files = folder();
    let (first, second) = (at(&files, "1"), at(&files, "2"));
    // The first two processes die at their first call, and a third one does not.
    let script = Puppet::of(Era::Legacy).plain_tool("echo").on(
        "tool:echo",
        [Step::TurnsIn {
            file: first.clone(),
            turns: vec![
                vec![Step::Honest],
                vec![Step::Kill],
                vec![Step::Count(second.clone()), Step::Honest],
            ],
        }],
    );
    let mut config = puppet("pup", &script);
    (config.share, config.resilience.instances) = (Some(Share::PerCaller), 2);
    let door = keyed(config).await;
    calls(&door, "ann", 1).await;
    let lost = call(&door, "ann").await;
    assert_eq!(lost["error"]["data"]["kind"], "unknown_outcome", "{lost}");
    calls(&door, "ann", 1).await;
    assert_eq!((effects(&second), door.host.status()[0].connections), (1, 1), "no other was started");
    door.host.close().await;
}

#[tokio::test]
async fn l39_connections_for_one_call_alone_go_round_and_pass_an_instance_that_is_gone() {
    let (first, second) = (replica(""), replica(""));
    let mut config = reached(&first, &[&second]);
    config.share = Some(Share::Never);
    let door = keyed(config).await;
    calls(&door, "ann", 4).await;
    assert_eq!((first.ran(), second.ran()), (2, 2));
    down(first).await;
    calls(&door, "ann", 4).await;
    assert_eq!(second.ran(), 6, "each ran once");
    door.host.close().await;
}
