//! Several instances of one server, one of which hangs at some point or does not come back: the others take its calls.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use wharf::config::{BreakerSettings, HealthCheck};
use wharf::event::{Circuit, State};
use wharf::secret::SecretUrl;

use super::alone;
use super::fleet::{Replica, down, reached, replica, replica_at};
use crate::support::{echo, later, soon, until};

#[tokio::test]
async fn l39_an_instance_that_hangs_holds_a_few_calls_and_the_others_take_the_rest() {
    let (good, stuck) = (replica("a"), replica("a"));
    let host = alone(reached(&good, &[&stuck])).await;
    for _ in 0..2 {
        assert!(echo(&host).await.success, "both are there");
    }
    assert_eq!((good.ran(), stuck.ran()), (1, 1));
    stuck.stuck.store(true, Ordering::SeqCst);
    let mut held = Vec::new();
    for n in 0..40 {
        let call = tokio::spawn({
            let host = host.clone();
            async move { echo(&host).await }
        });
        // It is answered, or it has reached the one that does not answer.
        until("the call is somewhere", || call.is_finished() || stuck.ran() > 1 + held.len()).await;
        match stuck.ran() - 1 > held.len() {
            true => held.push(call),
            false => assert!(call.await.unwrap().success, "call {n}"),
        }
    }
    assert!(held.len() <= 9, "{} calls hang", held.len());
    assert_eq!(good.ran() - 1 + held.len(), 40);
    held.iter().for_each(tokio::task::JoinHandle::abort);
    host.close().await;
}

#[tokio::test]
async fn l39_an_instance_that_never_gets_ready_is_not_waited_for() {
    let good = replica("a");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = reached(&good, &[]);
    let address = format!("http://{}/mcp", silent.local_addr().unwrap());
    config.resilience.replicas.push(SecretUrl::new(address.parse().unwrap()));
    let host = alone(config).await;
    for n in 0..10 {
        let outcome = soon("a call", host.call("pup_echo", json!({}))).await;
        assert!(outcome.success, "call {n}: {outcome:?}");
        assert!(outcome.took < Duration::from_secs(5), "call {n} waited for it: {:?}", outcome.took);
    }
    assert_eq!(good.ran(), 10);
    host.close().await;
}

#[tokio::test]
async fn l39_an_instance_that_was_given_up_for_missed_checks_has_its_turn_again() {
    let (first, second) = (replica(""), replica(""));
    let port = second.puppet.addr().port();
    let mut config = reached(&first, &[&second]);
    config.resilience.health_check = HealthCheck::Every(Duration::from_secs(30));
    // It is not the breaker that keeps calls from it.
    config.resilience.breaker = None;
    let host = alone(config).await;
    let instance = || host.conditions()[0].instances[1].clone();
    for _ in 0..2 {
        assert!(echo(&host).await.success);
    }
    down(second).await;
    let asked = || {
        let requests = first.puppet.requests();
        requests.iter().filter(|request| request.rpc_method() == "server/discover").count()
    };
    let before = asked();
    for times in 1..=3 {
        later(Duration::from_secs(34)).await;
        until("it missed one", || instance().missed_checks == times || instance().given_up).await;
        // The other one is asked as often, and has all the time it needs for its answer.
        until("the other one is asked", || asked() == before + times as usize).await;
        assert!(echo(&host).await.success);
    }
    until("it is given up", || instance().given_up && instance().state == State::Disconnected).await;
    assert!(!host.conditions()[0].instances[0].given_up);
    assert_eq!(instance().missed_checks, 0, "what is gone misses nothing");
    assert!(instance().trouble.is_some());
    let second = replica_at(port, "");
    for _ in 0..20 {
        assert!(echo(&host).await.success);
    }
    assert!(second.ran() > 0, "it was never asked again");
    assert_eq!(instance().trouble, None);
    host.close().await;
}

/// How often it was asked for its tools.
fn lists(replica: &Replica) -> usize {
    replica.puppet.requests().iter().filter(|request| request.rpc_method() == "tools/list").count()
}

#[tokio::test]
async fn l39_an_instance_that_does_not_say_which_tools_it_has_is_waited_for_once() {
    let (good, deaf) = (replica("a"), replica("a"));
    let mut config = reached(&good, &[&deaf]);
    config.resilience.breaker = Some(BreakerSettings { failures: 1, cool_down: Duration::from_millis(40) });
    config.timeout = Duration::from_secs(60);
    let host = alone(config).await;
    host.tools().await;
    deaf.deaf.store(true, Ordering::SeqCst);
    let instance = || host.conditions()[0].instances[1].clone();
    while lists(&deaf) == 0 {
        assert!(echo(&host).await.success);
    }
    assert!(instance().trouble.unwrap().contains("has not said yet which tools"), "{:?}", instance());
    let before = good.ran();
    for n in 0..20 {
        let outcome = echo(&host).await;
        assert!(outcome.success, "call {n}: {outcome:?}");
    }
    assert_eq!((good.ran() - before, deaf.ran(), lists(&deaf)), (20, 0, 1), "the others come first");
    later(Duration::from_secs(60)).await;
    until("its time is over", || instance().circuit != Circuit::Closed).await;
    assert!(instance().trouble.unwrap().contains("did not answer within 6"), "{:?}", instance());
    deaf.deaf.store(false, Ordering::SeqCst);
    soon("it is asked again", async {
        while deaf.ran() == 0 {
            assert!(echo(&host).await.success);
        }
    })
    .await;
    assert_eq!((instance().circuit, instance().trouble), (Circuit::Closed, None));
    host.close().await;
}

#[tokio::test]
async fn l39_a_list_is_asked_of_another_instance_where_one_does_not_answer() {
    let (deaf, good) = (replica("a"), replica("a"));
    let mut config = reached(&deaf, &[&good]);
    config.timeout = Duration::from_secs(60);
    let host = alone(config).await;
    deaf.deaf.store(true, Ordering::SeqCst);
    let listing = tokio::spawn({
        let host = host.clone();
        async move { host.tools().await }
    });
    until("it is asked for its tools", || lists(&deaf) == 1).await;
    assert_eq!(lists(&good), 0);
    later(Duration::from_secs(61)).await;
    let listed = soon("the other one answers", listing).await.unwrap();
    assert_eq!((listed.snapshot.tools().len(), lists(&deaf), lists(&good)), (1, 1, 1), "{:?}", listed.failed);
    assert!(echo(&host).await.success);
    host.close().await;
}
