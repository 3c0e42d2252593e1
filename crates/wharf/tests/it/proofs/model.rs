//! the calls of one server against a model of them, by `proptest-state-machine`: any order of {send, send and leave,
//! send while it is down, reply, late reply, cancel, crash, timeout} under a clock that stands still unless it is moved. P1 and P2 hold after every step.
//!
//! The server is a listener in this process, so that what it got and said is known exactly; the library is the real one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::Config;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{AbortHandle, JoinHandle};
use wharf::config::ServerConfig;
use wharf::names::ServerName;
use wharf::{Host, Outcome};

use super::{rounds, tell};
use crate::support::{at, folder, quick, within};

/// How long a call may take, by the clock that is moved by hand.
const TIME: Duration = Duration::from_secs(100);

/// The connection of a call that went over none.
const NOWHERE: usize = usize::MAX;

/// One thing that happens. Calls are numbered in the order in which they are sent.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// A call is made.
    Send,
    /// A call is made, and its caller leaves before anything is sent.
    SendAndLeave,
    /// The connection goes, nobody listens any more, and a call is made. Then the server is there again.
    SendWhileDown,
    /// The server answers a call that waits, or one that nobody waits for any more.
    Reply(usize),
    /// The server answers a call twice.
    ReplyTwice(usize),
    /// The caller leaves.
    Cancel(usize),
    /// The connection goes, with everything that waits on it. The next call finds another.
    Crash,
    /// So much time goes by that everything that waits is given up.
    Timeout,
}

/// What is known of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Waits,
    Ok,
    Cancelled,
    Unknown,
    TimedOut,
    /// Its caller left before it was sent.
    NeverBegun,
    /// There was nobody to send it to.
    NotSent,
}

/// What should be so: how each call stands, and on which connection it was sent.
#[derive(Clone, Debug, Default)]
struct Model {
    calls: Vec<(Known, usize)>,
    connection: usize,
}

impl Model {
    fn waiting(&mut self) -> impl Iterator<Item = &mut Known> {
        self.calls.iter_mut().map(|(known, _)| known).filter(|known| **known == Known::Waits)
    }
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Act;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self::default()).boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Act> {
        // A reply is only possible over the connection that the call came by.
        let answerable: Vec<usize> =
            (0..state.calls.len()).filter(|n| state.calls[*n].1 == state.connection).collect();
        let waiting: Vec<usize> =
            (0..state.calls.len()).filter(|n| state.calls[*n].0 == Known::Waits).collect();
        let mut some = vec![
            (4, Just(Act::Send).boxed()),
            (1, Just(Act::SendAndLeave).boxed()),
            (1, Just(Act::SendWhileDown).boxed()),
            (1, Just(Act::Crash).boxed()),
            (1, Just(Act::Timeout).boxed()),
        ];
        if !answerable.is_empty() {
            let pick = prop::sample::select(answerable);
            some.push((4, pick.clone().prop_map(Act::Reply).boxed()));
            some.push((1, pick.prop_map(Act::ReplyTwice).boxed()));
        }
        if !waiting.is_empty() {
            some.push((2, prop::sample::select(waiting).prop_map(Act::Cancel).boxed()));
        }
        proptest::strategy::Union::new_weighted(some).boxed()
    }

    fn preconditions(state: &Self, act: &Act) -> bool {
        match act {
            Act::Reply(n) | Act::ReplyTwice(n) => {
                state.calls.get(*n).is_some_and(|(_, connection)| *connection == state.connection)
            }
            Act::Cancel(n) => state.calls.get(*n).is_some_and(|(known, _)| *known == Known::Waits),
            Act::Send | Act::SendAndLeave | Act::SendWhileDown | Act::Crash | Act::Timeout => true,
        }
    }

    fn apply(mut state: Self, act: &Act) -> Self {
        match act {
            Act::Send => state.calls.push((Known::Waits, state.connection)),
            Act::Reply(n) | Act::ReplyTwice(n) => {
                if state.calls[*n].0 == Known::Waits {
                    state.calls[*n].0 = Known::Ok;
                }
            }
            Act::Cancel(n) => state.calls[*n].0 = Known::Cancelled,
            Act::SendAndLeave => state.calls.push((Known::NeverBegun, NOWHERE)),
            Act::Crash | Act::SendWhileDown => {
                state.waiting().for_each(|known| *known = Known::Unknown);
                state.connection += 1;
                if matches!(act, Act::SendWhileDown) {
                    state.calls.push((Known::NotSent, NOWHERE));
                }
            }
            Act::Timeout => state.waiting().for_each(|known| *known = Known::TimedOut),
        }
        state
    }
}

/// What the server got: the number of each call, in order, and how it can be answered.
#[derive(Default)]
struct Got {
    calls: Vec<u64>,
    ids: BTreeMap<u64, Value>,
    line: Option<OwnedWriteHalf>,
    connections: usize,
}

/// The real thing.
struct Real {
    runtime: tokio::runtime::Runtime,
    host: Host,
    got: Arc<Mutex<Got>>,
    calls: Vec<Call>,
    files: tempfile::TempDir,
    over: Arc<AtomicBool>,
}

struct Call {
    outcome: Option<Outcome>,
    task: Option<JoinHandle<Outcome>>,
    abort: AbortHandle,
    ends: usize,
}

async fn serve(listener: UnixListener, got: Arc<Mutex<Got>>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(converse(stream, Arc::clone(&got)));
    }
}

/// A legacy server with one tool. Calls are written down; somebody else answers them.
async fn converse(stream: UnixStream, got: Arc<Mutex<Got>>) {
    let (input, output) = stream.into_split();
    let mut lines = BufReader::new(input).lines();
    {
        let mut got = got.lock().unwrap();
        got.line = Some(output);
        got.connections += 1;
    }
    while let Ok(Some(line)) = lines.next_line().await {
        let message: Value = serde_json::from_str(&line).unwrap();
        let answer = match message["method"].as_str() {
            Some("initialize") => json!({"result": {
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "model", "version": "1"}}}),
            Some("tools/list") => {
                json!({"result": {"tools": [{"name": "do", "inputSchema": {"type": "object"}}]}})
            }
            Some("tools/call") => {
                let number = message["params"]["arguments"]["number"].as_u64().unwrap();
                let mut got = got.lock().unwrap();
                got.calls.push(number);
                got.ids.insert(number, message["id"].clone());
                continue;
            }
            Some("server/discover") => json!({"error": {"code": -32601, "message": "no"}}),
            _ => continue,
        };
        say(&got, &message["id"], answer).await;
    }
}

async fn say(got: &Mutex<Got>, id: &Value, mut answer: Value) {
    answer["jsonrpc"] = json!("2.0");
    answer["id"] = id.clone();
    let line = got.lock().unwrap().line.take();
    if let Some(mut line) = line {
        let _ = line.write_all(format!("{answer}\n").as_bytes()).await;
        got.lock().unwrap().line.get_or_insert(line);
    }
}

impl Real {
    fn new() -> Self {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let files = folder();
        let got: Arc<Mutex<Got>> = Arc::default();
        let over = Arc::new(AtomicBool::new(false));
        let path = at(&files, "socket");
        let host = runtime.block_on(async {
            // While somebody blocks, the clock does not move by itself: only steps move it.
            let stand = Arc::clone(&over);
            tokio::task::spawn_blocking(move || {
                while !stand.load(Ordering::SeqCst) {
                    std::thread::park_timeout(Duration::from_millis(20));
                }
            });
            tokio::spawn(serve(UnixListener::bind(&path).unwrap(), Arc::clone(&got)));
            let mut server = ServerConfig::unix(ServerName::parse("one").unwrap(), &path);
            // A server that fails so often would be left alone for a while; that is not what is modelled here.
            server.resilience.breaker = None;
            let host = quick().server(server).start().await.unwrap();
            host.tools().await;
            host
        });
        let mut real = Self { runtime, host, got, calls: Vec::new(), files, over };
        // Its schema is read now, so that every later call is sent at once.
        real.send();
        real.reply(0, 1);
        real
    }

    fn got<T>(&self, look: impl FnOnce(&Got) -> T) -> T {
        look(&self.got.lock().unwrap())
    }

    /// Lets everybody work until it is so. The clock stands still.
    fn until(&self, what: &str, so: impl Fn() -> bool) {
        let began = std::time::Instant::now();
        self.runtime.block_on(async {
            while !so() {
                assert!(began.elapsed() < Duration::from_secs(30), "it never came to this: {what}");
                tokio::task::yield_now().await;
                std::thread::yield_now();
            }
        });
    }

    fn send(&mut self) {
        let number = self.begin();
        self.until("the server gets the call", || self.got(|got| got.ids.contains_key(&number)));
    }

    /// Makes a call. It runs when the runtime does.
    fn begin(&mut self) -> u64 {
        let number = self.calls.len() as u64;
        let host = self.host.clone();
        let task = self.runtime.spawn(async move {
            let arguments = json!({ "number": number }).into();
            host.call_with("one_do", arguments, within(TIME, None)).await
        });
        self.calls.push(Call { outcome: None, abort: task.abort_handle(), task: Some(task), ends: 0 });
        number
    }

    /// The connection goes, and whatever waits ends.
    fn lose(&mut self, waiting: &[usize]) {
        drop(self.got.lock().unwrap().line.take());
        waiting.iter().for_each(|number| self.settle(number + 1));
    }

    /// Waits until there is another connection than there were so many.
    fn reconnect(&self, before: usize) {
        let place = self.host.berth("one").unwrap();
        self.runtime.block_on(async {
            // The pause before it is made again goes by.
            while !(place.connected() && self.got(|got| got.connections) > before) {
                tokio::time::advance(Duration::from_millis(1)).await;
                tokio::task::yield_now().await;
                let _ = place.connection().await;
            }
        });
    }

    fn reply(&mut self, number: usize, times: usize) {
        let id = self.got(|got| got.ids[&(number as u64)].clone());
        let answer = json!({"result": {"content": [{"type": "text", "text": number.to_string()}]}});
        let got = Arc::clone(&self.got);
        self.runtime.block_on(async {
            for _ in 0..times {
                say(&got, &id, answer.clone()).await;
            }
        });
        self.settle(number);
    }

    /// Waits for the end of a call, if it has none yet.
    fn settle(&mut self, number: usize) {
        let Some(task) = self.calls[number].task.take() else { return };
        self.until("the call ends", || task.is_finished());
        let outcome = self.runtime.block_on(task);
        self.calls[number].ends += 1;
        self.calls[number].outcome = outcome.ok();
    }

    fn act(&mut self, act: Act, waiting: &[usize]) {
        match act {
            Act::Send => self.send(),
            Act::Reply(number) => self.reply(number + 1, 1),
            Act::ReplyTwice(number) => self.reply(number + 1, 2),
            Act::Cancel(number) => {
                self.calls[number + 1].abort.abort();
                self.settle(number + 1);
            }
            Act::SendAndLeave => {
                let number = self.begin() as usize;
                self.calls[number].abort.abort();
                self.settle(number);
            }
            Act::SendWhileDown => {
                let before = self.got(|got| got.connections);
                let (path, away) = (at(&self.files, "socket"), at(&self.files, "away"));
                std::fs::rename(&path, &away).unwrap();
                self.lose(waiting);
                let place = self.host.berth("one").unwrap();
                self.until("it is lost", || !place.connected());
                let number = self.begin() as usize;
                self.settle(number);
                std::fs::rename(&away, &path).unwrap();
                self.reconnect(before);
            }
            Act::Crash => {
                let before = self.got(|got| got.connections);
                self.lose(waiting);
                self.reconnect(before);
            }
            Act::Timeout => {
                self.runtime.block_on(tokio::time::advance(TIME + Duration::from_secs(1)));
                waiting.iter().for_each(|number| self.settle(number + 1));
            }
        }
    }
}

/// Also when a step fails: the runtime waits for whoever blocks.
impl Drop for Real {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

/// The library under the model. The first call of [`Real`] is its own, so the model's numbers are one less.
struct Checked {
    real: Real,
    model: Model,
}

impl StateMachineTest for Checked {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(model: &Model) -> Self {
        Self { real: Real::new(), model: model.clone() }
    }

    fn apply(mut state: Self, after: &Model, act: Act) -> Self {
        let calls = state.model.calls.iter().enumerate();
        let waiting: Vec<usize> =
            calls.filter(|(_, (known, _))| *known == Known::Waits).map(|(n, _)| n).collect();
        state.real.act(act, &waiting);
        state.model = after.clone();
        state
    }

    fn check_invariants(state: &Self, model: &Model) {
        for (number, (known, _)) in model.calls.iter().enumerate() {
            let call = &state.real.calls[number + 1];
            let kind = call.outcome.as_ref().map(|o| o.error.as_deref().map_or("ok", wharf::Error::kind));
            let expected = match known {
                Known::Waits => (0, None),
                Known::Ok => (1, Some("ok")),
                Known::Cancelled => (1, None),
                Known::Unknown => (1, Some("unknown_outcome")),
                Known::TimedOut => (1, Some("timeout")),
                Known::NeverBegun => (1, None),
                Known::NotSent => (1, Some("connection")),
            };
            assert_eq!((call.ends, kind), expected, "P1, call {number}: {:?}", call.outcome);
            if let Some(outcome) = call.outcome.as_ref().filter(|o| o.success) {
                assert_eq!(outcome.to_text(), (number + 1).to_string(), "an answer of its own");
            }
        }
        let sent = state.real.got(|got| got.calls.clone());
        let is_sent = |known: &Known| !matches!(known, Known::NeverBegun | Known::NotSent);
        let each = model.calls.iter().enumerate().filter(|(_, (known, _))| is_sent(known));
        let each: Vec<u64> = std::iter::once(0).chain(each.map(|(number, _)| number as u64 + 1)).collect();
        assert_eq!(sent, each, "P2: each is sent once, in order, and what was not sent is told so");
    }

    fn teardown(state: Self, _: Model) {
        let real = state.real;
        let ended = real.calls.iter().map(|call| call.ends).sum::<usize>();
        let waiting = real.calls.iter().filter(|call| call.task.is_some()).count();
        assert_eq!(ended + waiting, real.calls.len(), "sent = ended + under way");
        real.runtime.block_on(real.host.close());
    }
}

#[test]
fn r_12_the_library_does_what_the_model_says() {
    let cases = rounds(24, 1000) as u32;
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    proptest!(config, |((state, acts, seen) in Model::sequential_strategy(1..40))| {
        Checked::test_sequential(Config::default(), state, acts, seen);
    });
    tell(format!("R-12: {cases} sequences of up to 40 steps"));
}
