//! P1 where nothing is there yet: the hard limit bounds all that a call waits for, also before it is sent.

use std::time::Duration;

use serde_json::json;
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
