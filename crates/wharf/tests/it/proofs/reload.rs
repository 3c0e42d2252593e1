//! another configuration while calls run: a busy server is removed, put back and changed. Every call ends once, and
//! the neighbour's never fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use wharf::Host;
use wharf_testkit::{Puppet, Step};

use super::{Tally, rounds, tell};
use crate::support::{at, effects, folder, is_alive, puppet, quick, soon, until};

/// Calls a tool until told to stop, and counts the ends.
async fn work(host: Host, tool: &'static str, over: Arc<AtomicBool>) -> Tally {
    let mut tally = Tally::default();
    while !over.load(Ordering::SeqCst) {
        tally.sent += 1;
        let outcome = soon("a call", host.call(tool, json!({ "message": "m" }))).await;
        tally.count(&outcome);
        tokio::task::yield_now().await;
    }
    tally
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_09_reloads_under_load_end_every_call_once_and_spare_the_neighbour() {
    let all = under_load(Duration::from_secs(20), 3).await;
    assert_eq!(all.unknown, 0, "there was time enough for all of them: {all:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_09_calls_that_outlast_the_drain_end_as_unknown_and_spare_the_neighbour() {
    let all = under_load(Duration::from_millis(1), 40).await;
    assert!(all.unknown > 0 && all.ok > 0, "some were cut off, and some were not: {all:?}");
}

/// Reloads while calls run that take so many milliseconds, each with so much time to end.
async fn under_load(drain: Duration, takes: u64) -> Tally {
    let files = folder();
    let (effect, pids) = (at(&files, "effect"), at(&files, "pids"));
    let steady = puppet("steady", &Puppet::new());
    let busy = |version: usize| {
        let steps = [Step::Count(effect.clone()), Step::Sleep(takes), Step::Echo];
        let pid = pids.with_extension(version.to_string());
        puppet("busy", &Puppet::new().pid(pid).on("tool:echo", steps))
    };
    let host = quick().drain(drain).servers([steady.clone(), busy(0)]).start().await.unwrap();
    host.tools().await;
    let over = Arc::new(AtomicBool::new(false));
    let start = |tool| tokio::spawn(work(host.clone(), tool, Arc::clone(&over)));
    let workers: Vec<_> = (0..4).map(|_| start("busy_echo")).collect();
    let neighbour = start("steady_echo");
    let many = rounds(8, 200);
    for round in 1..=many {
        until("calls run", || effects(&effect) > round as u64 * 3).await;
        if round % 2 == 1 {
            host.reconcile([steady.clone()]).await.unwrap();
        }
        host.reconcile([steady.clone(), busy(round)]).await.unwrap();
        host.known_tools().await;
    }
    until("calls run after all", || effects(&effect) > (many as u64 + 1) * 3).await;
    over.store(true, Ordering::SeqCst);
    let mut all = Tally::default();
    for worker in workers {
        let tally = soon("a worker", worker).await.unwrap();
        assert_eq!(tally.sent, tally.ends(), "{tally:?}");
        assert_eq!((tally.failed, tally.timeout), (0, 0), "drained or refused, never broken: {tally:?}");
        all.add(&tally);
    }
    let steady = soon("the neighbour", neighbour).await.unwrap();
    assert_eq!((steady.sent, steady.ok), (steady.ends(), steady.ends()), "{steady:?}");
    let mut both = Tally::default();
    [&all, &steady].into_iter().for_each(|tally| both.add(tally));
    both.agrees_with(&host);
    assert!(effects(&effect) >= all.ok, "what was answered was done");
    assert!(effects(&effect) <= all.sent - all.not_sent, "and nothing twice");
    host.close().await;
    let left = (0..=many)
        .filter_map(|n| std::fs::read_to_string(pids.with_extension(n.to_string())).ok())
        .filter(|pid| is_alive(pid.trim().parse().unwrap()));
    assert_eq!(left.count(), 0, "no process is left");
    tell(format!("R-09 {many} reloads, sent = {} = {} ends: {all:?}", all.sent, all.ends()));
    all
}
