//! P1 where nothing is there yet: the hard limit bounds all that a call waits for, also before it is sent.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{FutureExt as _, TryFutureExt as _};
use serde_json::{Value, json};
use wharf::mcp::Reference;
use wharf_testkit::{Era, Puppet, Step};

use crate::gateway::open_with;
use crate::support::{at, echo, effects, error, folder, puppet, quick, soon, within};

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
    config.timeout = Duration::from_millis(60);
    let host = quick().server(config).start().await.unwrap();
    host.tools().await;
    let door = open_with(host, |b| b).await;
    let call = |tool: &str| json!({"name": tool, "arguments": {}});
    soon("it", door.modern("tools/call", call("pup_die"))).await;
    let answer = soon("it", door.modern("tools/call", call("pup_echo"))).await.json();
    assert_eq!(answer["error"]["data"]["kind"], "connection", "{answer}");
    assert_eq!(answer["error"]["data"]["retryable"], true);
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
    config.timeout = Duration::from_millis(100);
    config.start_timeout = Duration::from_secs(3600);
    let host = quick().server(config).start().await.unwrap();
    host.tools().await;
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
    is_late(&soon("it", door.modern("prompts/get", json!({"name": prompt}))).await.json());
    tokio::time::pause();
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
        assert!(begun.elapsed() < Duration::from_secs(3), "{method}: {:?}", begun.elapsed());
    }
    tokio::time::resume();
    soon("the end", door.host.close()).await;
}
