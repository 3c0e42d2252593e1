//! Who is turned away is on record: callers without a key, requests for another host, floods.

use http::{Method, StatusCode};
use serde_json::json;
use wharf::config::CallLimits;
use wharf::gateway::{Callers, Key};
use wharf::names::CallerName;
use wharf_testkit::{Era, Puppet, Step};

use super::open_with;
use crate::audit::{audited, log_in, of_kind, records};
use crate::support::{at, count, folder, puppet, quick, received, until};

#[tokio::test]
async fn l95_callers_without_a_key_are_on_record_and_do_not_fill_it() {
    const KNOCKS: usize = 300;
    let files = folder();
    let log = log_in(&files);
    let (host, audit) = audited(&log, quick().server(puppet("pup", &Puppet::of(Era::Modern)))).await;
    let key = Key::new(CallerName::parse("ann").unwrap(), Key::hash("whf_right"));
    let mut door = open_with(host, |b| b.callers(Callers::default().keys([key]))).await;
    let echo = json!({"name": "pup_echo", "arguments": {}});
    for _ in 0..KNOCKS {
        let bad =
            door.modern_with("tools/call", echo.clone(), &[("authorization", "Bearer whf_wrong")]).await;
        assert_eq!(bad.status, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(door.modern("tools/call", echo.clone()).await.status, StatusCode::UNAUTHORIZED);
    let astray = door.send(Method::POST, "/mcp", &[("host", "evil.example")], "{}").await;
    assert_eq!(astray.status, StatusCode::FORBIDDEN);
    let good = door.modern_with("tools/call", echo, &[("authorization", "Bearer whf_right")]).await;
    assert_eq!(good.status, StatusCode::OK);
    door.stop();
    let more = format!("127.0.0.1: that key is not known here; {} more within 60 s", KNOCKS - 1);
    until("the number is on record", || {
        of_kind(&records(&log), "barred").iter().any(|record| record["reason"] == more)
    })
    .await;
    door.host.close().await;
    drop(audit);
    let all = records(&log);
    let barred = of_kind(&all, "barred");
    let told: Vec<_> =
        barred.iter().map(|r| (r["rule"].as_str().unwrap(), r["reason"].as_str().unwrap())).collect();
    let expected = [
        ("authentication", "127.0.0.1: that key is not known here"),
        ("authentication", "127.0.0.1: say who you are: `Authorization: Bearer KEY`"),
        ("the gateway's address", "127.0.0.1: this gateway is not called by that name; see --host"),
        ("authentication", more.as_str()),
    ];
    assert_eq!(told, expected);
    assert!(barred.iter().all(|record| record["decision"] == "deny" && record["outcome"] == "denied"));
    assert!(!all.iter().any(|record| record.to_string().contains("whf_")), "no key is on record");
    assert_eq!(of_kind(&all, "call").len(), 1, "who is let in is on record as ever");
}

#[tokio::test]
async fn l95_calls_beyond_the_limits_are_on_record() {
    let files = folder();
    let (log, calls, go) = (log_in(&files), at(&files, "calls"), at(&files, "go"));
    let slow = Puppet::of(Era::Modern).on("tool:echo", [Step::WaitFor(go.clone()), Step::Honest]).log(&calls);
    let (host, _audit) = audited(&log, quick().server(puppet("slow", &slow))).await;
    host.tools().await;
    // One is under way, one may wait.
    let limits = CallLimits { calls_per_server: 1, waiting: 8, ..CallLimits::default() };
    let mut door = open_with(host, |b| b.limits(limits)).await;
    let echo = || json!({"name": "slow_echo", "arguments": {}});
    let asking = async { tokio::join!(door.modern("tools/call", echo()), door.modern("tools/call", echo())) };
    let refusing = async {
        until("the first call is under way", || count(&received(&calls), "tools/call") == 1).await;
        let mut refused = 0;
        while refused < 5 {
            let answer = tokio::time::timeout(
                std::time::Duration::from_millis(200),
                door.modern("tools/call", echo()),
            );
            // The second may still be on its way to the queue.
            if let Ok(answer) = answer.await {
                assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
                refused += 1;
            }
        }
        std::fs::write(&go, "").unwrap();
    };
    let ((first, second), ()) = tokio::join!(asking, refusing);
    assert_eq!((first.status, second.status), (StatusCode::OK, StatusCode::OK));
    door.stop();
    let told = || of_kind(&records(&log), "barred");
    until("the number is on record", || told().len() == 2).await;
    let told = told();
    assert_eq!((&told[0]["caller"], &told[0]["server"]), (&json!("local"), &json!("slow")));
    assert_eq!(
        (&told[0]["outcome"], &told[0]["rule"]),
        (&json!("overloaded"), &json!("the gateway's limits"))
    );
    assert!(told[1]["reason"].as_str().unwrap().ends_with("; 4 more within 60 s"), "{told:?}");
    door.host.close().await;
}
