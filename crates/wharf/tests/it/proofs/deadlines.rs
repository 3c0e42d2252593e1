//! P1 as far as time goes: when a call ends that is not answered, and that its hard limit bounds all that it waits for, also
//! before it is sent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{FutureExt as _, TryFutureExt as _};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use wharf::event::State;
use wharf::mcp::Reference;
use wharf::{CallOptions, Error, Host, Outcome};
use wharf_testkit::{Era, Puppet, Step};

use super::troubles::far;
use crate::gateway::open_with;
use crate::support::{
    at, count, echo, effects, error, folder, later, next_state, puppet, quick, received, soon, until, within,
};

const SOFT: Duration = Duration::from_millis(300);
const HARD: Duration = Duration::from_millis(700);

/// It starts once, and never gets ready again once it has died.
fn once(files: &tempfile::TempDir) -> Puppet {
    let turns = vec![vec![], vec![Step::Hang]];
    let start = vec![Step::TurnsIn { file: at(files, "starts"), turns }];
    let ran = Step::Count(at(files, "ran"));
    Puppet::of(Era::Modern)
        .plain_tool("echo")
        .plain_tool("die")
        .on("tool:die", [ran, Step::Kill])
        .with(|s| s.start = start)
}

#[tokio::test]
async fn p1_a_call_to_a_server_that_never_gets_ready_ends_with_its_own_time() {
    for instances in [1, 2] {
        let mut config = puppet("pup", &Puppet::new().with(|s| s.start = vec![Step::Hang]));
        config.resilience.instances = instances;
        let host = quick().server(config).start().await.unwrap();
        let by_tool = host.call_tool("pup", "echo", json!({}), within(SOFT, Some(HARD)));
        let by_name = host.call_with("pup_echo", json!({}).into(), within(SOFT, Some(HARD)));
        // Its own time to get ready is a minute, which nobody here waits for.
        let (by_tool, by_name) = soon("both calls", async { tokio::join!(by_tool, by_name) }).await;
        for outcome in [by_tool, by_name] {
            assert_eq!(error(&outcome).kind(), "connection", "{outcome:?}");
            assert!(
                error(&outcome).is_retryable() && error(&outcome).to_string().contains("still being started")
            );
        }
        soon("the end", host.close()).await;
    }
}

#[tokio::test]
async fn p1_a_start_that_takes_longer_than_a_call_may_goes_on_without_it() {
    let slow = Puppet::of(Era::Modern).with(|s| s.start_delay_ms = 1500);
    let host = quick().server(puppet("pup", &slow)).start().await.unwrap();
    let impatient = soon("it", host.call_tool("pup", "echo", json!({}), within(SOFT, Some(HARD)))).await;
    assert_eq!(error(&impatient).kind(), "connection", "{impatient:?}");
    assert!(echo(&host).await.success, "the next one finds it started");
    host.close().await;
}

#[tokio::test]
async fn p1_what_is_connected_again_for_a_call_takes_no_more_than_its_time() {
    for marked in [false, true] {
        let files = folder();
        let mut config = puppet("pup", &once(&files));
        config.resilience.idempotent = marked.then(|| "*".to_owned()).into_iter().collect();
        let host = quick().server(config).start().await.unwrap();
        host.tools().await;
        let lost = soon("it", host.call_tool("pup", "die", json!({}), within(SOFT, Some(HARD)))).await;
        assert_eq!(error(&lost).kind(), "unknown_outcome", "what may have run is what is told: {lost:?}");
        assert_eq!(effects(&at(&files, "ran")), 1);
        let next = soon("it", host.call_tool("pup", "echo", json!({}), within(SOFT, Some(HARD)))).await;
        assert_eq!(error(&next).kind(), "connection", "{next:?}");
        assert!(error(&next).is_retryable(), "nothing was sent");
        soon("the end", host.close()).await;
    }
}

#[tokio::test]
async fn p1_through_the_gateway_the_time_of_a_call_runs_from_its_beginning() {
    let files = folder();
    let mut config = puppet("pup", &once(&files));
    // Twenty times as long is the limit of the whole.
    config.timeout = Duration::from_secs(5);
    config.start_timeout = Duration::from_secs(3600);
    let host = quick().server(config).start().await.unwrap();
    host.tools().await;
    let door = open_with(host, |b| b).await;
    let call = |tool: &str| json!({"name": tool, "arguments": {}});
    soon("it", door.modern("tools/call", call("pup_die"))).await;
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let answer = door.modern("tools/call", call("pup_echo")).await.json();
    assert_eq!(answer["error"]["data"]["kind"], "connection", "{answer}");
    assert_eq!(answer["error"]["data"]["retryable"], true);
    assert_eq!(begun.elapsed().as_secs(), 100);
    tokio::time::resume();
    soon("the end", door.host.close()).await;
}

#[tokio::test(start_paused = true)]
async fn l37_what_is_no_call_waits_no_longer_for_its_server_than_its_time() {
    let mut config = puppet("pup", &Puppet::new().with(|s| s.start = vec![Step::Hang]));
    // A minute in all.
    config.timeout = Duration::from_secs(3);
    config.start_timeout = Duration::from_secs(3600);
    let host = quick().server(config).start().await.unwrap();
    let (name, nothing) = (Reference::Prompt("p".into()), BTreeMap::new());
    let options = || within(Duration::from_secs(1), Some(Duration::from_secs(10)));
    for (what, seconds, asking) in [
        ("reads", 10, host.read_resource_with("pup", "x://a", options()).map_ok(drop).boxed()),
        ("fills", 10, host.prompt_with("pup", "p", &nothing, options()).map_ok(drop).boxed()),
        ("lists", 60, host.resources("pup").map_ok(drop).boxed()),
        ("completes", 60, host.complete("pup", &name, ("a", "b"), &nothing).map_ok(drop).boxed()),
    ] {
        let begun = tokio::time::Instant::now();
        let late = asking.await.unwrap_err();
        assert!(late.kind() == "connection" && late.is_retryable(), "{what}: {late:?}");
        assert!(late.to_string().contains("still being started"), "{what}: {late}");
        assert_eq!(begun.elapsed().as_secs(), seconds, "{what}");
    }
    host.close().await;
}

#[tokio::test]
async fn l37_through_the_gateway_what_is_no_call_has_its_own_time_too() {
    let files = folder();
    let offers = json!({"tools": {}, "prompts": {}, "resources": {}, "completions": {}});
    let script = once(&files)
        .with(|s| s.capabilities = Some(offers))
        .on("prompts/list", [Step::Reply(json!({"prompts": [{"name": "p"}]}))])
        .on("resources/list", [Step::Reply(json!({"resources": [{"uri": "x://a", "name": "a"}]}))])
        .on("prompts/get", [Step::Kill]);
    let mut config = puppet("pup", &script);
    // Twenty times as long is the limit of the whole.
    config.timeout = Duration::from_secs(5);
    config.start_timeout = Duration::from_secs(3600);
    let host = quick().server(config).start().await.unwrap();
    host.tools().await;
    let mut events = host.events().subscribe();
    let door = open_with(host, |b| b).await;
    let prompts = door.modern("prompts/list", json!({})).await.json();
    let prompt = prompts["result"]["prompts"][0]["name"].clone();
    assert!(prompt.is_string(), "{prompts}");
    let resources = door.modern("resources/list", json!({})).await.json();
    assert_eq!(resources["result"]["resources"][0]["uri"], "x://a", "{resources}");
    let is_late = |answer: &Value| {
        assert_eq!(answer["error"]["data"]["kind"], "connection", "{answer}");
        assert_eq!(answer["error"]["data"]["retryable"], true, "{answer}");
    };
    // It is lost on the way, and the way over a fresh connection takes no longer than is left.
    let lost = async {
        assert_eq!(next_state(&mut events).await.0, State::Reconnecting);
        tokio::time::pause();
    };
    let asking = async { tokio::join!(door.modern("prompts/get", json!({"name": prompt})), lost) };
    let begun = tokio::time::Instant::now();
    is_late(&asking.await.0.json());
    assert!(begun.elapsed() < Duration::from_secs(110), "{:?}", begun.elapsed());
    for (method, params) in [
        ("prompts/get", json!({"name": prompt})),
        ("resources/read", json!({"uri": "x://a"})),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": prompt}, "argument": {"name": "a", "value": "b"}}),
        ),
    ] {
        let begun = tokio::time::Instant::now();
        is_late(&door.modern(method, params).await.json());
        assert_eq!(begun.elapsed().as_secs(), 100, "{method}");
    }
    tokio::time::resume();
    soon("the end", door.host.close()).await;
}

/// A call that is under way, and how often its server gave a sign of life.
struct Awaited {
    server: &'static str,
    heard: Arc<AtomicUsize>,
    call: JoinHandle<Outcome>,
}

impl Awaited {
    fn begin(host: &Host, server: &'static str, limits: (Duration, Duration)) -> Self {
        let (host, heard) = (host.clone(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&heard);
        let call = tokio::spawn(async move {
            let mut hears = move |_| {
                counted.fetch_add(1, Ordering::SeqCst);
            };
            let options = CallOptions { on_progress: Some(&mut hears), ..within(limits.0, Some(limits.1)) };
            host.call_tool(server, "do", json!({}), options).await
        });
        Self { server, heard, call }
    }

    async fn hears_more(&self) {
        let before = self.heard.load(Ordering::SeqCst);
        until("a sign of life", || self.heard.load(Ordering::SeqCst) > before).await;
        assert!(!self.call.is_finished(), "{}", self.server);
    }
}

/// After how many seconds calls end, on a clock that jumps from one thing that is due to the next.
async fn seconds(calls: Vec<Awaited>) -> Vec<(&'static str, u64)> {
    tokio::time::pause();
    let ends = calls.into_iter().map(async |awaited| (awaited.server, awaited.call.await.unwrap()));
    let ends = tokio::time::timeout(Duration::from_secs(10_000), join_all(ends)).await.expect("they end");
    tokio::time::resume();
    let after = |(server, outcome): (_, Outcome)| match error(&outcome) {
        Error::Timeout { after, .. } => (server, after.as_secs()),
        other => panic!("{server}: {other:?}"),
    };
    ends.into_iter().map(after).collect()
}

/// Whoever gives signs of life has until the hard limit, and whoever gives none until the other one. Not a moment more or
/// less: the clock is ours, and while it is looked at it does not go by itself.
#[tokio::test]
async fn p1_a_call_ends_at_its_timeout_and_with_signs_of_life_at_its_hard_limit() {
    let limits = (Duration::from_secs(1000), Duration::from_secs(3000));
    // From now on nobody takes this clock for the world's.
    later(Duration::from_secs(1)).await;
    for era in [Era::Legacy, Era::Modern] {
        let files = folder();
        let log = at(&files, "log");
        let near = |name: &str, step| {
            puppet(name, &Puppet::of(era).plain_tool("do").log(&log).on("tool:do", [step]))
        };
        let busy = near("busy", Step::Progress { count: None, interval_ms: 20 });
        let (far_silent, far_busy) = (far(era, "silent"), far(era, "busy"));
        let servers = [near("silent", Step::Hang), busy, far_silent.1, far_busy.1];
        let host = quick().servers(servers).start().await.unwrap();
        assert!(host.tools().await.failed.is_empty());
        let begin = |servers: [&'static str; 2]| servers.map(|server| Awaited::begin(&host, server, limits));

        let silent = begin(["silent", "far-silent"]);
        until("both are under way", || {
            let asked = far_silent.0.requests().iter().any(|request| request.rpc_method() == "tools/call");
            asked && count(&received(&log), "tools/call") == 1
        })
        .await;
        assert_eq!(seconds(silent.into()).await, [("silent", 1000), ("far-silent", 1000)], "{era:?}");

        let busy = begin(["busy", "far-busy"]);
        for _ in 0..3 {
            join_all(busy.iter().map(Awaited::hears_more)).await;
            // Together more than the timeout; what was heard in between counts.
            later(Duration::from_secs(900)).await;
        }
        join_all(busy.iter().map(Awaited::hears_more)).await;
        assert_eq!(seconds(busy.into()).await, [("busy", 3000), ("far-busy", 3000)], "{era:?}");
        soon("the end", host.close()).await;
    }
}
