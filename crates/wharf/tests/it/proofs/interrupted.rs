//! R-05: system calls that are interrupted, pipes that are full, and servers that take nothing any more. Frames stay whole.

use std::time::Duration;

use serde_json::{Value, json};
use wharf_testkit::{Era, Puppet, Step};

use super::{alone, long, tell};
use crate::support::{
    at, count, echo, effects, error, folder, is_alive, pid_in, pup, puppet, quick, received, soon, until,
    within,
};

/// Every third read and every fifth wait is interrupted by a signal that never was. Writes are interrupted in another
/// test, by a library of our own: the runtime's own alarm bell is one, and does not bear it.
#[test]
fn r_05_interrupted_reads_lose_nothing() {
    let files = folder();
    let notes = at(&files, "notes").display().to_string();
    let under = [
        "strace",
        "-f",
        "-qq",
        "-o",
        &notes,
        "-e",
        "trace=read,epoll_wait",
        "-e",
        // Not the first ones: those are of the loader, which is nobody's promise.
        "inject=read:error=EINTR:when=60+3",
        "-e",
        "inject=epoll_wait:error=EINTR:when=3+2",
    ];
    if !alone(r_05_interrupted_reads_lose_nothing, &under) {
        let notes = std::fs::read_to_string(&notes).unwrap();
        let injected = |call: &str| {
            notes.lines().filter(|line| line.contains(call) && line.ends_with("(INJECTED)")).count()
        };
        let counts = [injected(" read("), injected(" epoll_wait(")];
        assert!(counts.iter().all(|n| *n > 2), "it was hardly interrupted: {counts:?}");
        tell(format!("R-05 interrupted reads, waits: {counts:?}"));
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(many_calls_and_whole_frames());
}

#[tokio::test]
async fn r_05_a_full_pipe_keeps_frames_whole_and_in_order() {
    for era in [Era::Legacy, Era::Modern] {
        let files = folder();
        let (pid, log) = (at(&files, "pid"), at(&files, "log"));
        let host = pup(&Puppet::of(era).pid(&pid).log(&log)).await;
        host.tools().await;
        let process = rustix::process::Pid::from_raw(pid_in(&pid).await.cast_signed()).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
        // Six megabytes, of which the pipe takes a few kilobytes.
        let large = "x".repeat(100_000);
        let calls: Vec<_> = (0..64)
            .map(|number| {
                let (host, message) = (host.clone(), format!("{number}:{large}"));
                tokio::spawn(async move { host.call("pup_echo", json!({ "message": message })).await })
            })
            .collect();
        // Some leave while their frames wait: what is half written is written to its end.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        let (gone, stay): (Vec<_>, Vec<_>) = calls.into_iter().enumerate().partition(|(n, _)| n % 4 == 2);
        gone.iter().for_each(|(_, call)| call.abort());
        rustix::process::kill_process(process, rustix::process::Signal::CONT).unwrap();
        for (number, call) in stay {
            let outcome = soon("a call", call).await.unwrap();
            assert!(outcome.to_text().contains(&format!("\"{number}:")), "{:?}", outcome.error);
        }
        assert!(echo(&host).await.success, "all that waited was written");
        host.close().await;
        let text = std::fs::read_to_string(&log).unwrap();
        assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "every frame is whole");
        assert!(count(&received(&log), "tools/call") <= 65);
    }
}

#[tokio::test]
async fn r_05_a_server_that_closes_its_input_and_lives_is_lost_and_made_again() {
    let files = folder();
    let (pid, starts) = (at(&files, "pid"), at(&files, "starts"));
    // Deaf after the handshake and the list, the first time; the second one listens.
    let deaf = Puppet::of(Era::Legacy).pid(&pid).with(|s| {
        s.start = vec![Step::Count(starts.clone())];
        s.deaf_after = Some(4);
        (s.closes_input, s.ignore_eof) = (true, true);
    });
    let host = pup(&deaf).await;
    host.tools().await;
    let first = pid_in(&pid).await;
    let outcome = echo(&host).await;
    let kind = error(&outcome).kind();
    assert!(matches!(kind, "connection" | "unknown_outcome"), "{outcome:?}");
    until("the deaf one is gone", || !is_alive(first)).await;
    until("another is in its place", || effects(&starts) >= 2).await;
    assert!(host.tools_of("pup").await.is_ok(), "which works");
    host.close().await;
}

#[tokio::test]
async fn r_06_late_answers_after_a_standstill_reach_nobody() {
    let files = folder();
    let (pid, go) = (at(&files, "pid"), at(&files, "go"));
    let script = Puppet::new().pid(&pid).on("tool:echo", [Step::WaitFor(go.clone()), Step::Echo]);
    let mut config = puppet("pup", &script);
    // In the long form it is silent for longer than its timeout, again and again: it would be left alone.
    config.resilience.breaker = None;
    let host = quick().server(config).start().await.unwrap();
    host.tools().await;
    let connection = host.berth("pup").unwrap().connection().await.unwrap();
    let process = rustix::process::Pid::from_raw(pid_in(&pid).await.cast_signed()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
    let time = if long() { Duration::from_secs(60) } else { Duration::from_millis(300) };
    let calls = (0..20).map(|n| host.call_with("pup_echo", json!({ "n": n }).into(), within(time, None)));
    // When is proved elsewhere; that they do is enough here.
    let ended = tokio::time::timeout(time + Duration::from_secs(60), futures_util::future::join_all(calls));
    for outcome in ended.await.expect("the calls end") {
        assert_eq!(error(&outcome).kind(), "timeout", "{outcome:?}");
    }
    std::fs::write(&go, "").unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::CONT).unwrap();
    let calls = (100..120).map(|n| {
        let host = &host;
        async move { (n, host.call("pup_echo", json!({ "n": n })).await) }
    });
    for (number, outcome) in soon("the calls", futures_util::future::join_all(calls)).await {
        assert_eq!(outcome.to_text(), format!(r#"{{"n":{number}}}"#), "its own answer");
    }
    assert!(connection.is_open(), "the same server as before");
    until("late answers are counted", || connection.strays().answers > 0).await;
    host.close().await;
}

/// Every pipe holds one page, so that frames are written in parts, and every third call on one is interrupted.
#[test]
fn r_05_pipes_that_take_parts_and_are_interrupted_keep_frames_whole() {
    let files = folder();
    let library = format!("LD_PRELOAD={}", wharf_testkit::shim::build(files.path()).display());
    let notes = at(&files, "notes");
    let count = format!("SHIM_COUNT={}", notes.display());
    let under = ["env", &library, "SHIM_PIPES=1", &count];
    if !alone(r_05_pipes_that_take_parts_and_are_interrupted_keep_frames_whole, &under) {
        // A line for each process: reads, and writes.
        let told = std::fs::read_to_string(&notes).unwrap();
        let told =
            told.lines().map(|line| line.split(' ').map(|n| n.parse::<u32>().unwrap()).collect::<Vec<_>>());
        let most = told.max().unwrap();
        assert!(most.iter().all(|times| *times > 20), "it was hardly interrupted: {most:?}");
        tell(format!("R-05 interrupted reads, writes on pipes: {most:?}"));
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(many_calls_and_whole_frames());
}

/// Writers of all sizes at once, each of whom gets his own answer; then what the server got is looked at.
async fn many_calls_and_whole_frames() {
    let files = folder();
    let log = at(&files, "log");
    let host = pup(&Puppet::new().log(&log)).await;
    assert!(echo(&host).await.success);
    let calls = (0..100_usize).map(|number| {
        let host = host.clone();
        tokio::spawn(async move {
            let message = format!("{number}:{}", "x".repeat(if number % 10 == 0 { 20_000 } else { number }));
            let outcome = soon("a call", host.call("pup_echo", json!({ "message": message }))).await;
            assert!(outcome.to_text().contains(&format!("\"{number}:")), "{:?}", outcome.error);
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    host.close().await;
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "every frame is whole");
    assert_eq!(count(&received(&log), "tools/call"), 101, "and nothing was sent twice");
}
