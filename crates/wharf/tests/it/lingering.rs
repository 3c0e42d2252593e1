//! Threads that stay awake for a moment read for themselves what comes in it: the same as otherwise, and nothing is lost.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::watch;
use wharf::connect::Progress;
use wharf::linger::{self, Allowance};
use wharf::{CallOptions, Error};
use wharf_testkit::{Era, Puppet, Step};

use crate::gateway::{modern_body, open};
use crate::support::{at, effects, error, folder, host, pup, puppet, quick, soon};

/// As often as there is any wait.
const ALWAYS: Allowance = Allowance { caller: u8::MAX, server: u8::MAX };
const CALLS: usize = 20;

/// Says it anew: what is left when a core was crowded is nothing.
fn allow() {
    linger::allow(ALWAYS);
}

#[tokio::test]
async fn l36_a_call_that_lingers_has_its_own_answer() {
    for era in [Era::Legacy, Era::Modern] {
        let host = pup(&Puppet::of(era)).await;
        for number in 0..CALLS {
            allow();
            let message = format!("number {number}");
            let outcome =
                host.call_tool("pup", "echo", json!({"message": message}), CallOptions::default()).await;
            assert!(outcome.into_result().unwrap().to_text().contains(&message));
        }
        linger::allow(Allowance::default());
        host.close().await;
    }
}

#[tokio::test]
async fn l36_a_call_that_lingers_in_vain_has_its_answer_when_it_comes() {
    for era in [Era::Legacy, Era::Modern] {
        let files = folder();
        let lingered = at(&files, "lingered");
        let steps = [Step::WaitFor(lingered.clone()), Step::Honest];
        let host = pup(&Puppet::of(era).on("tool:echo", steps)).await;
        allow();
        let call = host.call_tool("pup", "echo", json!({"message": "late"}), CallOptions::default());
        let seen = async {
            while linger::allowed().server == u8::MAX {
                tokio::task::yield_now().await;
            }
            std::fs::write(&lingered, "").unwrap();
        };
        let (outcome, ()) = soon("it is answered", async { tokio::join!(call, seen) }).await;
        assert!(outcome.into_result().unwrap().to_text().contains("late"));
        linger::allow(Allowance::default());
        host.close().await;
    }
}

#[tokio::test]
async fn l37_what_comes_while_a_call_lingers_is_taken_in_order() {
    let steps = [Step::Progress { count: Some(40), interval_ms: 0 }, Step::Honest];
    let host = pup(&Puppet::of(Era::Modern).on("tool:echo", steps)).await;
    for _ in 0..CALLS {
        allow();
        let mut heard = Vec::new();
        let mut listen = |step: Progress| heard.push(step.progress as u64);
        let options = CallOptions { on_progress: Some(&mut listen), ..CallOptions::default() };
        let outcome = host.call_tool("pup", "echo", json!({"message": "x"}), options).await;
        assert!(outcome.success, "{outcome:?}");
        assert_eq!(heard, (1..=40).collect::<Vec<u64>>());
    }
    linger::allow(Allowance::default());
    host.close().await;
}

#[tokio::test]
async fn p2_a_server_that_dies_while_a_call_lingers_leaves_an_unknown_outcome() {
    let files = folder();
    let done = at(&files, "done");
    let steps = [Step::Count(done.clone()), Step::Kill];
    let script = Puppet::of(Era::Legacy).plain_tool("deed").on("tool:deed", steps);
    let host = quick().servers([puppet("pup", &script)]).start().await.unwrap();
    allow();
    let outcome = host.call_tool("pup", "deed", json!({}), CallOptions::default()).await;
    let Error::UnknownOutcome { .. } = error(&outcome) else { panic!("{outcome:?}") };
    assert_eq!(effects(&done), 1);
    linger::allow(Allowance::default());
    host.close().await;
}

/// A caller of its own, which is answered while the test's thread does nothing but serve. It says nothing before the thread has
/// lingered for it.
fn ask(at: SocketAddr, numbers: std::ops::Range<usize>, mut lingered: watch::Receiver<bool>) -> Vec<Value> {
    let mut stream = TcpStream::connect(at).unwrap();
    Handle::current().block_on(lingered.wait_for(|lingered| *lingered)).unwrap();
    let mut answers = Vec::new();
    for number in numbers {
        let arguments = json!({"message": format!("number {number}")});
        let body = modern_body("tools/call", json!({"name": "pup_echo", "arguments": arguments})).to_string();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nhost: {at}\r\naccept: application/json, text/event-stream\r\ncontent-type: application/json\r\n\
             mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: pup_echo\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        // In two pieces: what comes while the thread lingers may be a part.
        stream.write_all(&head.as_bytes()[..40]).unwrap();
        stream.write_all(format!("{}{body}", &head[40..]).as_bytes()).unwrap();
        answers.push(answer(&mut stream));
    }
    answers
}

/// The body of one answer that says how long it is.
fn answer(stream: &mut TcpStream) -> Value {
    let (mut text, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let told = String::from_utf8_lossy(&text).into_owned();
        if let Some((head, body)) = told.split_once("\r\n\r\n") {
            let length = head
                .to_lowercase()
                .split("content-length: ")
                .nth(1)
                .map(|rest| rest.lines().next().unwrap().parse());
            let length: usize = length.unwrap_or_else(|| panic!("{head}")).unwrap();
            if body.len() == length {
                return serde_json::from_str(body).unwrap();
            }
        }
        let more = stream.read(&mut piece).unwrap();
        assert!(more > 0, "the gateway hung up: {told}");
        text.extend_from_slice(&piece[..more]);
    }
}

#[tokio::test]
async fn l94_callers_that_a_gateway_lingers_for_are_answered_each_in_its_turn() {
    let door = open(host([puppet("pup", &Puppet::of(Era::Modern))]).await).await;
    let at = door.at;
    let (lingered, seen) = watch::channel(false);
    let callers: Vec<_> = (0..3)
        .map(|caller| {
            let lingered = seen.clone();
            tokio::task::spawn_blocking(move || ask(at, caller * CALLS..(caller + 1) * CALLS, lingered))
        })
        .collect();
    // Only for callers: so whatever is used up was for one.
    let callers_only = Allowance { caller: u8::MAX, server: 0 };
    linger::allow(callers_only);
    let allowing = async {
        loop {
            if linger::allowed() != callers_only {
                lingered.send_replace(true);
            }
            linger::allow(callers_only);
            tokio::task::yield_now().await;
        }
    };
    let serving = async {
        for (caller, asked) in callers.into_iter().enumerate() {
            let answers = asked.await.unwrap();
            for (number, answer) in answers.iter().enumerate() {
                let expected = format!("number {}", caller * CALLS + number);
                assert!(answer["result"].to_string().contains(&expected), "{answer}");
            }
            assert_eq!(answers.len(), CALLS);
        }
    };
    let served = async {
        tokio::select! {
            () = serving => {}
            () = allowing => {}
        }
    };
    soon("all are answered", served).await;
    linger::allow(Allowance::default());
    door.host.close().await;
}
