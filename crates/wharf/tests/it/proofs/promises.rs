//! The promises P1, P2, P4, P5 and P6, one test each. P3, that servers do not disturb each other, is with the circuit
//! breaker's tests; what P5 says of approvals and pins is proved on the real binary.

use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use serde_json::json;
use wharf::config::ServerConfig;
use wharf::event::{Reading, State};
use wharf::gateway::Gateway;
use wharf::{CallOptions, Error};
use wharf_testkit::{Era, Grandchild, Puppet, Step};

use super::measure::Held;
use super::troubles::{FAR, far, troubles};
use super::{Tally, alone, tell};
use crate::audit::{audited, log_in, of_kind, records};
use crate::gateway::pipe::Caller;
use crate::gateway::{modern_body, open, open_with};
use crate::support::{
    at, count, echo, effects, error, folder, held, is_alive, later, next_state, pid_in, pup, puppet, quick,
    received, soon, until, within,
};

#[tokio::test]
async fn p1_every_accepted_call_has_exactly_one_end_within_its_hard_deadline() {
    // Enough for what is honest on any machine. That nothing takes longer is proved in `deadlines`, by a clock of our own.
    let (soft, hard) = (Duration::from_secs(2), Duration::from_secs(4));
    let mut all = Tally::default();
    for era in [Era::Legacy, Era::Modern] {
        let mut tally = Tally::default();
        let files = folder();
        let log = log_in(&files);
        let servers = troubles().into_iter().map(|(name, steps)| {
            let script = Puppet::of(era).plain_tool("do").on("tool:do", steps);
            puppet(&name.replace('_', "-"), &script)
        });
        let (far, far_configs): (Vec<_>, Vec<_>) = FAR.map(|name| far(era, name)).into_iter().unzip();
        let (host, audit) = audited(&log, quick().servers(servers).servers(far_configs)).await;
        assert!(host.tools().await.failed.is_empty());
        let names = troubles().into_iter().map(|(name, _)| (name, name.replace('_', "-")));
        let names = names.chain(FAR.map(|name| (name, format!("far-{name}"))));
        let calls = names.flat_map(|both| vec![both; 4]).map(|(name, server)| {
            let host = &host;
            async move {
                let options = within(soft, Some(hard));
                (name, host.call_tool(&server, "do", json!({}), options).await)
            }
        });
        // Each future ends once by its nature; what counts is that all do, and as one of the kinds.
        for (name, outcome) in soon("all calls", futures_util::future::join_all(calls)).await {
            tally.sent += 1;
            tally.count(&outcome);
            match name {
                "honest" | "twice" | "error_too" => assert!(outcome.success, "{name}: {outcome:?}"),
                "silent" | "busy" | "nobody" | "garbage" | "stopped" => {
                    let Error::Timeout { after, .. } = error(&outcome) else { panic!("{name}: {outcome:?}") };
                    let limit = if name == "busy" { hard } else { soft };
                    assert!(*after >= limit, "{name}: {after:?}");
                }
                "half" | "killed" | "gone" => {
                    let kind = error(&outcome).kind();
                    assert!(
                        matches!(kind, "unknown_outcome" | "connection" | "timeout"),
                        "{name}: {outcome:?}"
                    );
                }
                _ => assert!(!outcome.success, "{name}: {outcome:?}"),
            }
        }
        assert_eq!(tally.sent, tally.ends());
        tally.agrees_with(&host);
        soon("the end", host.close()).await;
        drop((audit, far));
        let on_record = of_kind(&records(&log), "call");
        assert_eq!(on_record.len() as u64, tally.sent, "each is on record once");
        let went_well = on_record.iter().filter(|record| record["outcome"] == "ok").count();
        assert_eq!(went_well as u64, tally.ok);
        all.add(&tally);
    }
    tell(format!("P1: {all:?}"));
}

#[tokio::test]
async fn p2_a_call_is_sent_at_most_once_and_not_sent_is_told_from_maybe_done() {
    // What a server says of its own tools counts for nothing: only the operator can say that twice is as good as once.
    let hint = json!({"idempotentHint": true, "readOnlyHint": true});
    let tool = json!({"name": "echo", "inputSchema": {"type": "object"}, "annotations": hint});
    for era in [Era::Legacy, Era::Modern] {
        let files = folder();
        let (log, effect, turn) = (at(&files, "log"), at(&files, "effect"), at(&files, "turn"));
        let dies = vec![Step::Count(effect.clone()), Step::Kill];
        let turns = vec![dies.clone(), dies, vec![Step::Count(effect.clone()), Step::Honest]];
        let script = Puppet::of(era)
            .tool(tool.clone())
            .log(&log)
            .on("tool:echo", [Step::TurnsIn { file: turn, turns }]);
        let host = pup(&script).await;
        host.tools().await;
        for calls in 1..=2 {
            let outcome = echo(&host).await;
            assert_eq!(error(&outcome).kind(), "unknown_outcome", "it may have been done: {outcome:?}");
            assert!(!error(&outcome).is_retryable());
            assert_eq!((effects(&effect), count(&received(&log), "tools/call")), (calls, calls as usize));
        }
        assert!(echo(&host).await.success);
        assert_eq!((effects(&effect), count(&received(&log), "tools/call")), (3, 3));
        host.close().await;
    }
    // A server that cannot be started was sent nothing, and the error says that too.
    let files = folder();
    let log = at(&files, "log");
    let dead = Puppet::new().log(&log).with(|s| s.start = vec![Step::Exit(1)]);
    let host = pup(&dead).await;
    let outcome = host.call_tool("pup", "echo", json!({}), within(Duration::from_secs(20), None)).await;
    assert_eq!(
        (error(&outcome).kind(), error(&outcome).may_have_run()),
        ("connection", false),
        "{outcome:?}"
    );
    assert_eq!(count(&received(&log), "tools/call"), 0);
    host.close().await;
    for (era, greeting) in [(Era::Legacy, "initialize"), (Era::Modern, "server/discover")] {
        what_broke_the_protocol_is_said_to_have_been_sent_or_not(era, greeting).await;
    }
}

/// One server floods before anything of the call was sent, and another after it has done what was asked: the same kind of
/// error, and only what is said beside it tells them apart.
async fn what_broke_the_protocol_is_said_to_have_been_sent_or_not(era: Era, greeting: &str) {
    let note = r#"{"jsonrpc":"2.0","method":"nobody/wants"}"#;
    let flood = || Step::Flood { line: note.into(), count: Some(200) };
    let files = folder();
    let (early, late, effect) = (at(&files, "early"), at(&files, "late"), at(&files, "effect"));
    let before = Puppet::of(era).plain_tool("do").log(&early).on(greeting, [flood(), Step::Honest]);
    let after = Puppet::of(era)
        .plain_tool("do")
        .log(&late)
        .on("tool:do", [Step::Count(effect.clone()), flood(), Step::Hang]);
    let host = quick().servers([puppet("before", &before), puppet("after", &after)]).start().await.unwrap();
    for (server, log, sent) in [("before", &early, false), ("after", &late, true)] {
        let outcome = soon(server, host.call_tool(server, "do", json!({}), CallOptions::default())).await;
        let failed = error(&outcome);
        assert_eq!((failed.kind(), failed.is_retryable()), ("protocol", false), "{outcome:?}");
        assert_eq!(count(&received(log), "tools/call"), usize::from(sent), "{server}");
        assert_eq!((failed.may_have_run(), effects(&effect)), (sent, u64::from(sent)), "{outcome:?}");
        let (hint, words) = (failed.hint().unwrap(), failed.to_string());
        assert_eq!(hint.contains("may have run: check its effect"), sent, "{hint}");
        assert_eq!(hint.contains("nothing was run"), !sent, "{hint}");
        assert_eq!(words.contains("after the call was sent"), sent, "{words}");
    }
    // A caller of a gateway reads the same.
    let door = open(host).await;
    let told = door.modern("tools/call", json!({"name": "after_do", "arguments": {}})).await.json();
    let data = &told["error"]["data"];
    assert_eq!((&data["kind"], &data["mayHaveRun"]), (&json!("protocol"), &json!(true)), "{told}");
    assert!(told["error"]["message"].as_str().unwrap().contains("after the call was sent"), "{told}");
    let told = door.modern("tools/call", json!({"name": "before_do", "arguments": {}})).await.json();
    assert_eq!(told["error"]["data"]["mayHaveRun"], false, "{told}");
    assert_eq!((effects(&effect), count(&received(&early), "tools/call")), (2, 0));
    door.host.close().await;
}

#[test]
fn p4_nothing_is_left_after_stop_crash_or_kill() {
    if !alone(p4_nothing_is_left_after_stop_crash_or_kill, &[]) {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // Once before, so that what a process needs for all of them is there.
        start_and_end(&[("stop", true)]).await;
        let before = Held::now();
        start_and_end(&[("stop", true), ("crash", false), ("crash", true), ("kill", true)]).await;
        until(&format!("no more is held than {before:?}"), || Held::now().is_within(before)).await;
        tell(format!("R-08 P4: before {before:?}, after {:?}", Held::now()));
    });
}

async fn start_and_end(ways: &[(&str, bool)]) {
    for &(how, setsid) in ways {
        let (files, scratch) = (folder(), folder());
        let (pid, below) = (at(&files, "pid"), at(&files, "below"));
        let script = Puppet::new().pid(&pid).plain_tool("die").on("tool:die", [Step::Kill]).with(|s| {
            s.spawn_grandchild = Some(Grandchild { pid_file: below.clone(), setsid });
            (s.ignore_eof, s.ignore_term) = (true, true);
        });
        let (server, grandchild);
        if how == "kill" {
            // Wharf itself is killed.
            let mut held = held(&script, scratch.path());
            (server, grandchild) = (pid_in(&pid).await, pid_in(&below).await);
            assert!(is_alive(server) && is_alive(grandchild));
            held.kill().unwrap();
            held.wait().unwrap();
        } else {
            // The twin: what another server has started is nobody's business.
            let beside = at(&files, "beside");
            let neighbour = Puppet::new().with(|s| {
                s.spawn_grandchild = Some(Grandchild { pid_file: beside.clone(), setsid: true });
            });
            let servers = [puppet("pup", &script), puppet("beside", &neighbour)];
            let host = quick().scratch(scratch.path()).servers(servers).start().await.unwrap();
            host.tools().await;
            (server, grandchild) = (pid_in(&pid).await, pid_in(&below).await);
            let beside = pid_in(&beside).await;
            assert!(is_alive(server) && is_alive(grandchild) && is_alive(beside));
            if how == "crash" {
                assert_eq!(error(&host.call("pup_die", json!({})).await).kind(), "unknown_outcome");
                until("what crashed is gone", || !is_alive(server) && !is_alive(grandchild)).await;
                assert!(is_alive(beside), "what is beside it goes on");
            }
            soon("the stop", host.close()).await;
            until("nor what is beside it", || !is_alive(beside)).await;
        }
        until("no process is left", || !is_alive(server) && !is_alive(grandchild)).await;
        until("no folder is left", || std::fs::read_dir(scratch.path()).unwrap().count() == 0).await;
    }
}

#[tokio::test]
async fn p5_a_lost_server_comes_back_after_growing_pauses_and_its_state_is_told() {
    let files = folder();
    let turn = at(&files, "turn");
    let steps =
        [Step::TurnsIn { file: turn, turns: vec![vec![], vec![Step::Exit(7)], vec![Step::Exit(7)], vec![]] }];
    let script = Puppet::of(Era::Legacy)
        .plain_tool("die")
        .plain_tool("echo")
        .on("tool:die", [Step::Kill])
        .with(|s| s.start = steps.into());
    let pause = Duration::from_millis(40);
    let host = quick().retry_pause(pause).server(puppet("pup", &script)).start().await.unwrap();
    host.tools().await;
    let mut events = host.events().subscribe();
    let since = Instant::now();
    assert_eq!(error(&host.call("pup_die", json!({})).await).kind(), "unknown_outcome");
    let (state, reason) = next_state(&mut events).await;
    assert_eq!(state, State::Reconnecting);
    assert!(reason.contains("signal 9"), "{reason}");
    let mut failures = 0;
    loop {
        match next_state(&mut events).await {
            (State::Connected, _) => break,
            (State::Reconnecting, reason) if reason.contains("exit status 7") => failures += 1,
            (State::Reconnecting, _) => {}
            (state, reason) => panic!("{state:?}: {reason}"),
        }
    }
    // One, four and sixteen pauses, each at least that long.
    assert_eq!(failures, 2);
    assert!(since.elapsed() >= 21 * pause, "{:?}", since.elapsed());
    assert!(echo(&host).await.success);
    host.close().await;
}

/// How long a stop lets calls go on: nothing is cut off before the clock is put forward.
const DRAIN: Duration = Duration::from_secs(60);

/// A server whose calls may take longer than that.
fn patient(script: &Puppet) -> ServerConfig {
    let mut config = puppet("pup", script);
    config.timeout = 2 * DRAIN;
    config
}

#[tokio::test]
async fn p6_a_stop_takes_no_more_calls_lets_those_under_way_end_and_cancels_the_rest() {
    let files = folder();
    let (log, go) = (at(&files, "log"), at(&files, "go"));
    let script = Puppet::new()
        .log(&log)
        .plain_tool("short")
        .plain_tool("long")
        .on("tool:short", [Step::WaitFor(go.clone()), Step::Honest])
        .on("tool:long", [Step::Hang]);
    let host = quick().server(patient(&script)).start().await.unwrap();
    let mut door = open_with(host.clone(), |builder| builder.drain(DRAIN)).await;
    let (stop, session) = (door.stopper(), door.greet().await);
    let call = |name: &str| door.modern("tools/call", json!({"name": name, "arguments": {}}));
    let stop = async {
        until("all are at the server", || count(&received(&log), "tools/call") == 4).await;
        stop();
        let (name, path) = (door.name(), "/readyz");
        while door.send(Method::GET, path, &[("host", &name)], "").await.status == StatusCode::OK {}
        assert_eq!(call("pup_short").await.status, StatusCode::SERVICE_UNAVAILABLE, "nobody new is let in");
        std::fs::write(&go, "").unwrap();
        until("those that end have ended", || host.counts()[..].iter().map(Reading::ended).sum::<u64>() == 2)
            .await;
        later(DRAIN).await;
    };
    let old = |id: u64, name: &str| {
        let params = json!({"name": name, "arguments": {}});
        let request = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        door.legacy(Some(&session), request)
    };
    let all = async {
        tokio::join!(call("pup_short"), call("pup_long"), old(1, "pup_short"), old(2, "pup_long"), stop)
    };
    let (short, long, old_short, old_long, ()) =
        tokio::time::timeout(2 * DRAIN, all).await.expect("the stop");
    for (short, long) in [(short.json(), long.json()), (old_short.json(), old_long.json())] {
        assert!(short["result"]["content"].is_array(), "what was under way may end: {short}");
        assert!(
            long["result"].is_null() && long["error"]["message"].is_string(),
            "the rest is told so: {long}"
        );
        assert!(long.to_string().contains("cancelled"), "{long}");
    }
    until("the server hears of it", || count(&received(&log), "notifications/cancelled") == 2).await;
    host.close().await;
}

#[tokio::test]
async fn p6_a_stop_is_the_same_over_a_pipe() {
    for modern in [false, true] {
        let files = folder();
        let (log, go) = (at(&files, "log"), at(&files, "go"));
        let script = Puppet::new()
            .log(&log)
            .plain_tool("short")
            .plain_tool("long")
            .on("tool:short", [Step::WaitFor(go.clone()), Step::Honest])
            .on("tool:long", [Step::Hang]);
        let host = quick().server(patient(&script)).start().await.unwrap();
        let gateway = Gateway::builder(host.clone()).drain(DRAIN).build().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let mut caller = Caller::at(gateway, async move { drop(stopped.await) });
        if !modern {
            caller.greet(json!({})).await;
        }
        for (id, name) in [(1, "pup_short"), (2, "pup_long")] {
            let mut params = json!({"name": name, "arguments": {}});
            if modern {
                params = modern_body("tools/call", params)["params"].clone();
            }
            caller.ask(id, "tools/call", params).await;
        }
        until("both are at the server", || count(&received(&log), "tools/call") == 2).await;
        drop(stop);
        std::fs::write(&go, "").unwrap();
        let short = caller.next().await;
        later(DRAIN).await;
        let long = caller.next().await;
        assert!(short["id"] == 1 && short["result"]["content"].is_array(), "{short}");
        assert!(long["id"] == 2 && long["error"]["data"]["kind"] == "cancelled", "{long}");
        assert_eq!(caller.last().await, None);
        until("the server hears of it", || count(&received(&log), "notifications/cancelled") == 1).await;
        host.close().await;
    }
}
