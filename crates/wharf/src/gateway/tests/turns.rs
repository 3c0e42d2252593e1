//! Whose turn it is.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::sleep;

use crate::config::CallLimits;
use crate::gateway::barred::Barred;
use crate::gateway::limits::{Gate, Overloaded, Pass};
use crate::names::{CallerName, ServerName};

fn gate(calls_per_caller: usize, calls_per_server: usize, waiting: usize) -> Gate {
    Gate::new(
        CallLimits { calls_per_caller, calls_per_server, waiting, ..CallLimits::default() },
        true,
        Barred::default(),
    )
}

fn caller(name: &str) -> CallerName {
    CallerName::parse(name).unwrap()
}

fn server(name: &str) -> ServerName {
    ServerName::parse(name).unwrap()
}

/// A pass may name whoever asked for it, so names must stay as long as it does.
async fn enter<'a>(gate: &'a Gate, who: &str, at: &str) -> Result<Pass<'a>, Overloaded> {
    let (who, at) = (Box::leak(Box::new(caller(who))), Box::leak(Box::new(server(at))));
    gate.enter(who, Some(at), || Duration::MAX).await
}

fn at_once<'a>(gate: &'a Gate, who: &str, at: &str) -> Option<Result<Pass<'a>, Overloaded>> {
    enter(gate, who, at).now_or_never()
}

#[tokio::test(start_paused = true)]
async fn l94_one_callers_flood_leaves_room_at_its_server_and_takes_none_elsewhere() {
    let gate = gate(100, 8, 32);
    let held: Vec<Pass<'_>> = (0..4).map(|_| at_once(&gate, "flood", "slow").unwrap().unwrap()).collect();
    assert!(at_once(&gate, "flood", "slow").is_none(), "half of the server is the most for one caller");
    assert!(at_once(&gate, "other", "slow").unwrap().is_ok(), "another finds room");
    assert!(at_once(&gate, "flood", "quick").unwrap().is_ok(), "and so does the same one elsewhere");
    drop(held);
    assert!(at_once(&gate, "flood", "slow").unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn p3_however_many_servers_hang_a_caller_reaches_the_next_one() {
    let gate = gate(64, 256, 1024);
    let (mut held, mut at_each) = (Vec::new(), Vec::new());
    for server in ["a", "b", "c", "d", "e", "f"] {
        let before = held.len();
        // As many as it lets through, at a server that answers none.
        while let Some(pass) = at_once(&gate, "ann", server) {
            held.push(pass.unwrap());
        }
        at_each.push(held.len() - before);
    }
    assert_eq!(at_each, [32, 16, 8, 4, 2, 1]);
    assert!(at_once(&gate, "ann", "healthy").unwrap().is_ok());
    // Whoever waits at one of them goes when it has ended something at another.
    let mut waiting = Box::pin(async { enter(&gate, "ann", "a").await });
    assert!((&mut waiting).now_or_never().is_none());
    held.truncate(1);
    assert!(waiting.now_or_never().unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn p3_however_many_callers_wait_at_servers_that_hang_others_may_wait_elsewhere() {
    let gate = gate(64, 1, 64);
    let mut tasks = Vec::new();
    for server in ["a", "b", "c"] {
        // One has it, and the others wait, from so many callers that no share of one is all of the queue.
        for caller in 0..64 {
            let gate = &gate;
            let mut entering = Box::pin(async move { enter(gate, &format!("c{caller}"), server).await });
            tasks.push((entering.as_mut().now_or_never(), entering));
        }
    }
    let _busy = at_once(&gate, "ann", "healthy").unwrap().unwrap();
    assert!(at_once(&gate, "bob", "healthy").is_none(), "it waits, and is not refused");
}

#[tokio::test(start_paused = true)]
async fn l94_where_there_is_one_caller_it_has_all_of_a_server_until_there_are_others() {
    let limits = CallLimits { calls_per_server: 8, ..CallLimits::default() };
    let gate = Gate::new(limits.clone(), false, Barred::default());
    let held: Vec<Pass<'_>> = (0..8).map(|_| at_once(&gate, "local", "s").unwrap().unwrap()).collect();
    assert!(at_once(&gate, "local", "s").is_none(), "all of it and no more");
    // The first key: what is under way goes on, and no more is taken than a share.
    gate.adopt(limits.clone(), true);
    let mut held = held.into_iter();
    held.by_ref().take(4).for_each(drop);
    assert!(at_once(&gate, "local", "s").is_none(), "four are under way, which is half");
    assert!(at_once(&gate, "ann", "s").unwrap().is_ok());
    // And back: whoever waits for its share goes at once.
    let mut waiting = Box::pin(async { enter(&gate, "local", "s").await });
    assert!((&mut waiting).now_or_never().is_none());
    gate.adopt(limits, false);
    assert!(waiting.now_or_never().unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn l96_a_wait_is_counted_when_it_begins_and_its_time_however_it_ends() {
    let gate = gate(100, 2, 80);
    let at = server("s");
    let _held = at_once(&gate, "a", "s").unwrap().unwrap();
    let mut waiting: Vec<_> = (0..10).map(|_| Box::pin(async { enter(&gate, "a", "s").await })).collect();
    assert!(waiting.iter_mut().all(|w| w.now_or_never().is_none()));
    let crush = gate.gauge().crush(&at);
    assert_eq!((crush.waits, crush.waited), (10, Duration::ZERO));
    sleep(Duration::from_secs(3)).await;
    drop(waiting);
    let crush = gate.gauge().crush(&at);
    assert_eq!((crush.waits, crush.waited), (10, Duration::from_secs(30)), "they left");
    assert_eq!((crush.too_many, crush.too_often), (0, 0), "nobody refused them");
}

#[tokio::test(start_paused = true)]
async fn l94_turns_go_round_the_callers() {
    let gate = gate(100, 2, 800);
    let order = Arc::new(Mutex::new(String::new()));
    let first = [at_once(&gate, "x", "s").unwrap().unwrap(), at_once(&gate, "y", "s").unwrap().unwrap()];
    let mut tasks = Vec::new();
    for who in ["a", "a", "a", "a", "b", "b", "c"] {
        let (gate, order) = (gate.clone(), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let _pass = enter(&gate, who, "s").await.unwrap();
            order.lock().unwrap().push_str(who);
            sleep(Duration::from_secs(1)).await;
        }));
        tokio::task::yield_now().await;
    }
    let [x, y] = first;
    drop(x);
    sleep(Duration::from_millis(500)).await;
    drop(y);
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), "abcabaa");
}

#[tokio::test(start_paused = true)]
async fn l94_a_full_queue_refuses_at_once_and_another_queue_does_not_mind() {
    let gate = gate(100, 2, 16);
    let _held = at_once(&gate, "a", "stuck").unwrap().unwrap();
    let mut waiting: Vec<_> = (0..2).map(|_| Box::pin(async { enter(&gate, "a", "stuck").await })).collect();
    assert!(waiting.iter_mut().all(|w| w.now_or_never().is_none()));
    let refused = at_once(&gate, "a", "stuck").unwrap().unwrap_err();
    assert!(refused.retry_after > Duration::ZERO);
    let _bob = at_once(&gate, "b", "stuck").unwrap().unwrap();
    let mut bob = Box::pin(async { enter(&gate, "b", "stuck").await });
    assert!((&mut bob).now_or_never().is_none(), "another caller still waits where one has too many");
    assert!(at_once(&gate, "a", "fine").unwrap().is_ok());
    // Whoever stops waiting makes room for another.
    waiting.pop();
    assert!(at_once(&gate, "a", "stuck").is_none());
}

#[tokio::test(start_paused = true)]
async fn l94_a_rate_has_a_burst_and_refills() {
    let limits = CallLimits { requests_per_second: Some(2.0), burst: Some(3), ..CallLimits::default() };
    let gate = Gate::new(limits, true, Barred::default());
    let ann = caller("ann");
    assert!((0..3).all(|_| gate.arrive(&ann).is_ok()));
    let wait = gate.arrive(&ann).unwrap_err().retry_after;
    assert!(wait <= Duration::from_millis(500), "{wait:?}");
    assert!(gate.arrive(&caller("bob")).is_ok(), "each has its own");
    sleep(wait).await;
    assert!(gate.arrive(&ann).is_ok() && gate.arrive(&ann).is_err());
    let limits = CallLimits { server_calls_per_second: Some(1.0), ..CallLimits::default() };
    let gate = Gate::new(limits, true, Barred::default());
    assert!(at_once(&gate, "a", "s").unwrap().is_ok() && at_once(&gate, "b", "s").unwrap().is_ok());
    assert!(at_once(&gate, "c", "s").unwrap().is_err());
    assert!(at_once(&gate, "c", "t").unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn l94_whatever_comes_and_goes_no_limit_is_passed_and_no_place_is_lost() {
    const CALLERS: usize = 5;
    const SERVERS: usize = 3;
    let gate = gate(8, 8, 64);
    let counts = Arc::new([const { AtomicUsize::new(0) }; CALLERS + SERVERS]);
    let mut random = fastrand::Rng::with_seed(7);
    let mut tasks = Vec::new();
    for _ in 0..3000 {
        let (who, at) = (random.usize(..CALLERS), random.usize(..SERVERS));
        let (hold, patience) = (random.u64(1..40), random.u64(1..400));
        let (start, gate, counts) = (random.u64(..4000), gate.clone(), Arc::clone(&counts));
        tasks.push(tokio::spawn(async move {
            sleep(Duration::from_millis(start)).await;
            let (name, place) = (format!("c{who}"), format!("s{at}"));
            let entering = enter(&gate, &name, &place);
            let Ok(Ok(_pass)) = tokio::time::timeout(Duration::from_millis(patience), entering).await else {
                return 0;
            };
            let calls = counts[who].fetch_add(1, Ordering::SeqCst) + 1;
            let busy = counts[CALLERS + at].fetch_add(1, Ordering::SeqCst) + 1;
            assert!(calls <= 8 && busy <= 8, "{calls} {busy}");
            sleep(Duration::from_millis(hold)).await;
            counts[who].fetch_sub(1, Ordering::SeqCst);
            counts[CALLERS + at].fetch_sub(1, Ordering::SeqCst);
            1
        }));
    }
    let mut through = 0;
    for task in tasks {
        through += task.await.unwrap();
    }
    assert!(through > 1000, "{through}");
    // Every place is free again.
    for at in 0..SERVERS {
        let place = format!("s{at}");
        let all: Vec<_> = (0..4).map(|_| at_once(&gate, "c0", &place).unwrap().unwrap()).collect();
        let rest: Vec<_> = (0..4).map(|_| at_once(&gate, "c1", &place).unwrap().unwrap()).collect();
        assert_eq!(all.len() + rest.len(), 8);
    }
}

#[tokio::test(start_paused = true)]
async fn l37_whoever_waits_for_its_turn_waits_no_longer_than_its_call_may_take() {
    let gate = gate(100, 1, 8);
    let time = Duration::from_secs(5);
    let (first, second, at) = (caller("a"), caller("b"), server("s"));
    let held = at_once(&gate, "x", "s").unwrap().unwrap();
    let begun = tokio::time::Instant::now();
    assert!(gate.enter(&first, Some(&at), || time).await.is_err(), "nobody leaves");
    assert_eq!(begun.elapsed(), time);
    // The twin: a turn that comes in time leaves the rest of it for the call.
    let wait = async {
        sleep(Duration::from_secs(2)).await;
        drop(held);
    };
    let (pass, ()) = tokio::join!(gate.enter(&second, Some(&at), || time), wait);
    assert_eq!(pass.unwrap().left(), Some(Duration::from_secs(3)));
}

#[tokio::test(start_paused = true)]
async fn l96_a_hundred_callers_are_ever_told_of_by_name() {
    let gate = gate(100, 1000, 8);
    let mut names = std::collections::BTreeSet::new();
    for round in 0..30 {
        let inside: Vec<_> = (0..10)
            .map(|n| at_once(&gate, &format!("caller-{}", round * 10 + n), "s").unwrap().unwrap())
            .collect();
        let told = gate.gauge().callers;
        assert_eq!(told.iter().map(|(_, load)| load.under_way).sum::<usize>(), 10, "all are counted");
        names.extend(told.into_iter().filter_map(|(name, _)| name));
        drop(inside);
    }
    assert_eq!(names.len(), 100);
}
