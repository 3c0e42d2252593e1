//! R-10 through the door: callers over HTTP, in both eras, that leave before, during and after their answers, beside some
//! who stay, while the server dies now and then. Every call that was let in has one end, and nothing is left of it all.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use wharf::event::{OUTCOMES, Reading};
use wharf_testkit::{Puppet, Step};

use super::metrics::scrape;
use super::{Door, modern_body, open};
use crate::proofs::measure::Held;
use crate::proofs::{alone, rounds, tell};
use crate::support::{at, folder, puppet, quick, soon, until};

/// When a caller leaves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Leaves {
    /// In the middle of what it says.
    BeforeItAsked,
    /// As soon as it has asked.
    AtOnce,
    /// After so many milliseconds.
    Later(u64),
    /// With the first bytes of the answer.
    WithTheFirstBytes,
    /// When the message is there, before the end of what brings it.
    WithTheMessage,
    /// When it has its answer.
    Never,
}

/// What callers share.
struct Storm {
    door: Door,
    /// Of the legacy era.
    session: String,
    next: AtomicU64,
}

/// What became of calls, as their callers saw it.
#[derive(Default)]
struct Seen {
    /// Those that were asked for from the first byte to the last.
    asked: u64,
    ok: HashSet<u64>,
    /// Those whose caller went when the answer was there, of each era.
    left_late: [u64; 2],
    /// Those whose answer said that nothing was run.
    not_run: HashSet<u64>,
    lost: u64,
}

/// Half of the callers are modern.
fn era(number: u64) -> usize {
    usize::from(number.is_multiple_of(2))
}

impl Storm {
    /// One caller in a hundred kills the server, and not the last one of a storm: it is up again when all is counted.
    fn request(&self, number: u64) -> String {
        let tool = match number % 100 {
            49 => "pup_die",
            n if n % 3 == 0 => "pup_slow",
            _ => "pup_echo",
        };
        let params = json!({"name": tool, "arguments": {"number": number}});
        let (headers, body) = if era(number) == 1 {
            let headers =
                format!("mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: {tool}");
            (headers, modern_body("tools/call", params))
        } else {
            let headers = format!("mcp-protocol-version: 2025-11-25\r\nmcp-session-id: {}", self.session);
            (headers, json!({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}))
        };
        let (body, host) = (body.to_string(), self.door.name());
        format!(
            "POST /mcp HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\nconnection: close\r\n\
             accept: application/json, text/event-stream\r\n{headers}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    /// Makes a call, and goes. Gives the answer that it stayed for.
    async fn call(&self, number: u64, leaves: Leaves) -> Option<Value> {
        #[expect(clippy::disallowed_methods, reason = "a caller in a test")]
        let mut stream = TcpStream::connect(self.door.at).await.unwrap();
        let request = self.request(number);
        let said = if leaves == Leaves::BeforeItAsked { request.len() / 2 } else { request.len() };
        stream.write_all(&request.as_bytes()[..said]).await.unwrap();
        match leaves {
            Leaves::BeforeItAsked | Leaves::AtOnce => return None,
            Leaves::Later(wait) => {
                tokio::time::sleep(Duration::from_millis(wait)).await;
                return None;
            }
            Leaves::WithTheFirstBytes => {
                stream.read_exact(&mut [0; 9]).await.unwrap();
                return None;
            }
            Leaves::WithTheMessage => {
                let mut come = Vec::new();
                while !come.windows(9).any(|part| part == b"\"jsonrpc\"") {
                    assert!(stream.read_buf(&mut come).await.unwrap() > 0, "it ended without a message");
                }
                return None;
            }
            Leaves::Never => {}
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        // Whether it came as one message, in chunks or as an event: it is all that has braces.
        let message = &body[body.find('{').unwrap()..=body.rfind('}').unwrap()];
        Some(serde_json::from_str(message).unwrap_or_else(|e| panic!("{e}: {answer}")))
    }

    /// So many calls, twenty at a time.
    async fn rages(&self, calls: u64, seen: &mut Seen) {
        for _ in 0..calls / 20 {
            let wave = (0..20).map(|_| async {
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                let leaves = match number / 2 % 8 {
                    0 => Leaves::BeforeItAsked,
                    1 => Leaves::AtOnce,
                    2 => Leaves::Later(number % 11),
                    3 => Leaves::WithTheFirstBytes,
                    4 => Leaves::WithTheMessage,
                    _ => Leaves::Never,
                };
                (number, leaves, self.call(number, leaves).await)
            });
            for (number, leaves, answer) in soon("a wave", futures_util::future::join_all(wave)).await {
                seen.asked += u64::from(leaves != Leaves::BeforeItAsked);
                seen.left_late[era(number)] += u64::from(leaves == Leaves::WithTheMessage);
                if let Some(answer) = answer {
                    seen.count(number, &answer);
                }
            }
        }
        let at_rest = || self.door.host.counts().iter().all(|reading| reading.under_way() == 0);
        until("nothing is under way", at_rest).await;
    }

    /// Sums, call by call and by the counters of the host and of the gateway.
    async fn judge(&self, seen: &Seen, ran: &HashSet<u64>) {
        let counts = self.door.host.counts();
        let sum = |of: fn(&Reading) -> u64| counts.iter().map(of).sum::<u64>();
        let (begun, ended) = (sum(|reading| reading.started), sum(Reading::ended));
        assert_eq!((begun, sum(Reading::under_way)), (ended, 0), "each call has one end");
        assert_eq!(sum(|reading| reading.outcomes.iter().sum()), ended, "of one kind");
        // Who is turned away at the door has not begun; who left early may have.
        let (ok, not_run) = (seen.ok.len() as u64, seen.not_run.len() as u64);
        assert!((ok + seen.lost..=seen.asked).contains(&begun), "{begun} of {}", seen.asked);
        assert!(sum(|reading| reading.outcomes[0]) >= ok, "each answer that somebody had");
        assert!(ran.iter().all(|number| *number < self.next.load(Ordering::Relaxed)), "nothing is made up");
        assert!(seen.ok.is_subset(ran), "what was answered ran");
        assert!(seen.not_run.is_disjoint(ran), "and what was said not to have run did not");
        assert!(ok > seen.asked / 10 && seen.lost > 0, "some stayed, and the server died");
        for of in [0, 1] {
            assert!(
                seen.ok.iter().any(|number| era(*number) == of) && seen.left_late[of] > 0,
                "in both eras"
            );
        }
        let now = scrape(&self.door).await;
        for what in ["calls_in_flight", "gate_calls", "gate_waiting", "caller_calls", "caller_waiting"] {
            assert!(now.sum(&format!("wharf_{what}"), &[]) == 0.0, "{what}");
        }
        let counted = |what| now.sum(what, &[]) as u64;
        assert_eq!((counted("wharf_calls_started_total"), counted("wharf_calls_total")), (begun, ended));
        let kinds = OUTCOMES.iter().enumerate().map(|(at, kind)| {
            let times: u64 = counts.iter().map(|reading| reading.outcomes[at]).sum();
            (*kind, times)
        });
        let kinds: Vec<_> = kinds.filter(|(_, times)| *times > 0).collect();
        tell(format!(
            "R-10 gateway: {} asked, {begun} begun = {kinds:?}, {} ran; answered: {ok} ok + {not_run} not run + {} lost",
            seen.asked,
            ran.len(),
            seen.lost
        ));
    }
}

impl Seen {
    fn count(&mut self, number: u64, answer: &Value) {
        if answer["result"].is_object() {
            let text = answer["result"]["content"][0]["text"].as_str().unwrap();
            assert_eq!(text, json!({ "number": number }).to_string(), "its own answer: {answer}");
            self.ok.insert(number);
            return;
        }
        let data = &answer["error"]["data"];
        match data["kind"].as_str().unwrap() {
            "unknown_outcome" => {
                assert_eq!(data["mayHaveRun"], true, "{answer}");
                self.lost += 1;
            }
            "connection" | "unavailable" | "overloaded" => {
                assert_eq!(data["mayHaveRun"], false, "{answer}");
                self.not_run.insert(number);
            }
            _ => panic!("{answer}"),
        }
    }
}

/// Which calls the servers ran. None ran twice.
fn ran(noted: &std::path::Path) -> HashSet<u64> {
    let mut ran = HashSet::new();
    for line in std::fs::read_to_string(noted).unwrap().lines() {
        let arguments: Value = serde_json::from_str(line).unwrap();
        assert!(ran.insert(arguments["number"].as_u64().unwrap()), "it ran twice: {line}");
    }
    ran
}

/// A gateway from its beginning to its end, with a storm of so many calls in between.
async fn weather(calls: u64) {
    let files = folder();
    let noted = at(&files, "noted");
    let note = || Step::Note(noted.clone());
    let script = ["echo", "slow", "die"]
        .into_iter()
        .fold(Puppet::new(), Puppet::plain_tool)
        .on("tool:echo", [note(), Step::Echo])
        .on("tool:slow", [note(), Step::Sleep(5), Step::Echo])
        .on("tool:die", [note(), Step::Kill]);
    let host = quick().server(puppet("pup", &script)).start().await.unwrap();
    host.tools().await;
    let door = open(host).await;
    let session = door.greet().await;
    let storm = Storm { door, session, next: AtomicU64::new(0) };
    let mut seen = Seen::default();
    // The first of them fills caches and pools.
    storm.rages(calls / 4, &mut seen).await;
    until("the first is over", || Held::now().tasks < 60).await;
    let before = Held::now();
    storm.rages(calls, &mut seen).await;
    until(&format!("no more is held than {before:?}"), || Held::now().is_within(before)).await;
    storm.judge(&seen, &ran(&noted)).await;
    let Storm { mut door, .. } = storm;
    door.stop();
    soon("the end", door.host.close()).await;
}

#[test]
fn r_10_callers_that_leave_a_gateway_leave_nothing_behind() {
    if !alone(r_10_callers_that_leave_a_gateway_leave_nothing_behind, &[]) {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // Once before, so that what a process needs for all of them is there.
        weather(400).await;
        until("its tasks end", || Held::now().tasks <= 2).await;
        let before = Held::now();
        weather(rounds(400, 20_000) as u64).await;
        until(&format!("no more is held than {before:?}"), || Held::now().is_within(before)).await;
        tell(format!("R-10 gateway: before {before:?}, after {:?}", Held::now()));
    });
}
