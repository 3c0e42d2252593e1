//! calls whose callers leave before they are sent, while they run and after the answer came. Nothing leaks, and no
//! answer reaches another call.

use std::collections::HashSet;

use serde_json::json;
use wharf::config::ServerConfig;
use wharf::names::ServerName;
use wharf::{CallOptions, Host};
use wharf_testkit::{Era, HttpPuppet, Puppet, Step, http};

use super::measure::Held;
use super::{alone, rounds, tell};
use crate::support::{at, folder, pup, quick, received, soon, until};

/// What became of the calls of a storm.
#[derive(Default)]
struct Ends {
    /// Before they were sent, or while they were waited for.
    left: usize,
    /// When the answer was there, and nobody had looked at it.
    left_late: usize,
    answered: usize,
}

async fn storm(host: &Host, tool: &str, calls: usize, polls: usize) -> Ends {
    let mut all = Ends::default();
    for wave in 0..calls / 20 {
        let waves = (0..20).map(|n| {
            let number = wave * 20 + n;
            async move {
                let call = host.call(tool, json!({ "message": number.to_string() }));
                let mut call = Box::pin(call);
                // Before it is sent, while it waits, or when the answer is there.
                for _ in 0..number * 7 % polls {
                    if let std::task::Poll::Ready(outcome) = futures_util::poll!(&mut call) {
                        assert!(outcome.to_text().contains(&format!("\"{number}\"")), "{outcome:?}");
                        return true;
                    }
                    tokio::task::yield_now().await;
                }
                false
            }
        });
        let ends = soon("a wave", futures_util::future::join_all(waves)).await;
        all.answered += ends.iter().filter(|answered| **answered).count();
        all.left += ends.iter().filter(|answered| !**answered).count();
        let mut late = Box::pin(host.call(tool, json!({ "message": "late" })));
        assert!(futures_util::poll!(&mut late).is_pending());
        // Whoever stays gets his own answer, in the middle of it.
        let twin = soon("a call that stays", host.call(tool, json!({ "message": "stays" }))).await;
        assert!(twin.to_text().contains("\"stays\""), "{twin:?}");
        // The answer before that one is there by now: whoever looks has it, and every other one leaves without, which ends
        // a connection over HTTP. So it is after the last wave of the second storm, and not of the first.
        if wave % 2 == 1 {
            drop(late);
            all.left_late += 1;
        } else {
            let outcome = soon("a call whose answer is there", late).await;
            assert!(outcome.to_text().contains("\"late\""), "{outcome:?}");
            all.answered += 1;
        }
    }
    all
}

/// Plays a storm twice, of calls that are left after at most so many polls: the second must hold no more than the first.
async fn twice(host: Host, tool: &str, polls: usize) {
    let calls = rounds(400, 20_000);
    let first = storm(&host, tool, calls / 4, polls).await;
    until("the first is over", || Held::now().tasks < 60).await;
    let before = Held::now();
    let Ends { left, left_late, answered } = storm(&host, tool, calls, polls).await;
    assert!(left > calls / 20, "it was a storm: {left} left, {answered} stayed");
    assert!(left_late > 0 && answered > 0, "{left_late} left when the answer was there, {answered} had it");
    until(&format!("no more is held than {before:?}"), || Held::now().is_within(before)).await;
    // What the host counted by itself: a call that nobody ever looked at was not begun.
    let counts = host.counts();
    let [begun, ended, ok] = [
        counts.iter().map(|reading| reading.started).sum::<u64>(),
        counts.iter().map(wharf::event::Reading::ended).sum(),
        counts.iter().map(|reading| reading.outcomes[0]).sum(),
    ];
    let stayed = calls / 4 / 20 + calls / 20;
    assert_eq!(ok as usize, first.answered + answered + stayed, "each answer that somebody had");
    // One more in each wave leaves late or has its answer late.
    assert!(
        begun == ended && begun as usize <= calls / 4 + calls + 2 * stayed,
        "{begun} begun, {ended} ended"
    );
    tell(format!(
        "R-10 {tool}: {calls} calls, {left} left, {left_late} when the answer was there, {answered} answered, {:?}",
        Held::now()
    ));
    host.close().await;
}

#[test]
fn r_10_storms_of_cancellations_leak_nothing_and_mix_nothing() {
    if !alone(r_10_storms_of_cancellations_leak_nothing_and_mix_nothing, &[]) {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for era in [Era::Legacy, Era::Modern] {
            let files = folder();
            let log = at(&files, "log");
            let host = pup(&Puppet::of(era).log(&log)).await;
            host.tools().await;
            twice(host, "pup_echo", 40).await;
            let messages = received(&log);
            let calls: Vec<u64> = messages
                .iter()
                .filter(|m| m["method"] == "tools/call")
                .map(|m| m["id"].as_u64().unwrap())
                .collect();
            let once: HashSet<u64> = calls.iter().copied().collect();
            assert_eq!(once.len(), calls.len(), "no id is used twice");
        }
        let tool = json!({"name": "echo", "inputSchema": {"type": "object"}});
        let far = HttpPuppet::start(http::honest_modern(vec![tool]));
        let config = ServerConfig::http(ServerName::parse("far").unwrap(), &far.url()).unwrap();
        let host = quick().server(config).start().await.unwrap();
        host.tools().await;
        twice(host, "far_echo", 16).await;
    });
}

#[tokio::test]
async fn r_10_a_call_that_is_cancelled_before_it_begins_is_not_sent() {
    let files = folder();
    let log = at(&files, "log");
    let host = pup(&Puppet::new().log(&log).on("tool:echo", [Step::Echo])).await;
    host.tools().await;
    for _ in 0..50 {
        drop(host.call_with("pup_echo", json!({}).into(), CallOptions::default()));
    }
    assert!(host.call("pup_echo", json!({})).await.success);
    host.close().await;
    assert_eq!(received(&log).iter().filter(|m| m["method"] == "tools/call").count(), 1);
}
