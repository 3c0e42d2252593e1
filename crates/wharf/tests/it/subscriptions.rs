//! Resources that are watched, in both eras: what is told to whom, until when, and the servers that do it badly.

use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::json;
use wharf::event::Event;
use wharf_testkit::{Era, Puppet, Step};

use crate::support::{at, count, folder, later, pup, received, soon, until};

const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];
/// Longer than anybody waits for an answer.
const LONG: Duration = Duration::from_secs(60);

fn with_resources(era: Era) -> Puppet {
    let capabilities = json!({"tools": {}, "resources": {"subscribe": true}});
    Puppet::of(era).with(|s| s.capabilities = Some(capabilities))
}

/// A server that agrees to a subscription and tells of changes when files appear.
fn watched(era: Era, log: &Path, go: &Path) -> Puppet {
    let update = |uri: &str| Step::Notify {
        method: "notifications/resources/updated".into(),
        params: Some(json!({"uri": uri})),
    };
    let changes = [update("x://other"), update("x://a/below"), update("x://about"), update("x://a")];
    let script = with_resources(era).log(log);
    let mut steps = match era {
        Era::Legacy => vec![Step::Reply(json!({}))],
        _ => vec![Step::Raw(acknowledged(&["x://a"]))],
    };
    steps.push(Step::WaitFor(go.to_owned()));
    steps.extend(changes);
    steps.push(Step::Hang);
    match era {
        Era::Legacy => {
            script.on("resources/subscribe", steps).on("resources/unsubscribe", [Step::Reply(json!({}))])
        }
        _ => script.on("subscriptions/listen", steps),
    }
}

fn acknowledged(uris: &[&str]) -> String {
    let uris = json!(uris);
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":$ID}},"notifications":{{"resourceSubscriptions":{uris}}}}}}}"#
    )
}

/// How often the server was told that nobody listens any more.
fn let_go(era: Era, log: &Path) -> usize {
    let end = if era == Era::Legacy { "resources/unsubscribe" } else { "notifications/cancelled" };
    count(&received(log), end)
}

fn asked_for(era: Era, log: &Path) -> usize {
    let begin = if era == Era::Legacy { "resources/subscribe" } else { "subscriptions/listen" };
    count(&received(log), begin)
}

#[tokio::test]
async fn l80_a_watched_resource_tells_of_its_changes_and_is_let_go_with_its_last_watcher() {
    for era in ERAS {
        let files = folder();
        let (log, go) = (at(&files, "log"), at(&files, "go"));
        let host = pup(&watched(era, &log, &go)).await;
        let mut events = host.events().subscribe();
        let mut first = soon("a subscription", host.subscribe("pup", "x://a")).await.unwrap();
        let second = soon("a subscription", host.subscribe("pup", "x://a")).await.unwrap();
        assert_eq!(asked_for(era, &log), 1, "the server is asked once");
        if era == Era::Modern {
            let listen = received(&log).into_iter().find(|m| m["method"] == "subscriptions/listen").unwrap();
            assert_eq!(listen["params"]["notifications"], json!({"resourceSubscriptions": ["x://a"]}));
        }
        std::fs::write(&go, "").unwrap();
        let below = soon("an update", first.next()).await.unwrap();
        assert_eq!(below.uri.raw(), "x://a/below", "what is below it is told, what only begins alike is not");
        assert_eq!(soon("an update", first.next()).await.unwrap().uri.raw(), "x://a");
        let all: Vec<String> = second.into_stream().take(2).map(|u| u.uri.raw().to_owned()).collect().await;
        assert_eq!(all, ["x://a/below", "x://a"]);
        let mut told = Vec::new();
        while let Ok(event) = events.try_recv() {
            if let Event::ResourceUpdated { server, uri } = event {
                assert_eq!(server.as_str(), "pup");
                told.push(uri.raw().to_owned());
            }
        }
        assert_eq!(told, ["x://a/below", "x://a"]);
        assert_eq!(let_go(era, &log), 0, "one watcher is left");
        drop(first);
        until("the server is told", || let_go(era, &log) == 1).await;
        // Whoever comes again is served again.
        let again = soon("a subscription", host.subscribe("pup", "x://a")).await.unwrap();
        assert_eq!(asked_for(era, &log), 2);
        drop(again);
        until("the server is told again", || let_go(era, &log) == 2).await;
        host.close().await;
    }
}

#[tokio::test]
async fn l80_a_subscription_outlives_its_connection() {
    for era in ERAS {
        let files = folder();
        let (log, go, pid) = (at(&files, "log"), at(&files, "go"), at(&files, "pid"));
        let host = pup(&watched(era, &log, &go).pid(&pid)).await;
        let mut watching = host.subscribe("pup", "x://a").await.unwrap();
        let first = crate::support::pid_in(&pid).await;
        let process = rustix_pid(first);
        rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
        until("it is subscribed to again", || asked_for(era, &log) == 2).await;
        let update = soon("a word that something may have changed", watching.next()).await.unwrap();
        assert_eq!(update.uri.raw(), "x://a");
        std::fs::write(&go, "").unwrap();
        assert_eq!(soon("an update", watching.next()).await.unwrap().uri.raw(), "x://a/below");
        host.close().await;
        drop(host);
        while soon("the rest", watching.next()).await.is_some() {}
    }
}

fn rustix_pid(pid: u32) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

#[tokio::test]
async fn l80_a_server_that_does_not_agree_to_a_subscription_is_not_believed_to() {
    let refused = Step::ReplyError { code: -32602, message: "no such resource".into(), data: None };
    let cases = [
        (Era::Legacy, "resources/subscribe", vec![refused.clone()], "rpc"),
        (Era::Modern, "subscriptions/listen", vec![refused], "rpc"),
        (Era::Modern, "subscriptions/listen", vec![Step::Raw(acknowledged(&[])), Step::Hang], "not_offered"),
        (Era::Modern, "subscriptions/listen", vec![Step::Reply(json!({}))], "protocol"),
        (Era::Modern, "subscriptions/listen", vec![Step::Hang], "timeout"),
    ];
    for (era, method, steps, kind) in cases {
        let files = folder();
        let log = at(&files, "log");
        let host = pup(&with_resources(era).log(&log).on(method, steps)).await;
        let asking = host.subscribe("pup", "x://a");
        let waiting = async {
            until("it is asked", || count(&received(&log), method) == 1).await;
            if kind == "timeout" {
                later(LONG).await;
            }
        };
        let both = async { tokio::join!(asking, waiting) };
        let (answer, ()) = tokio::time::timeout(2 * LONG, both).await.expect("a refusal");
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(crate::support::echo(&host).await.success, "the connection is as good as before");
        host.close().await;
    }
}

#[tokio::test]
async fn l80_updates_that_nobody_subscribed_to_are_no_news_and_too_many_end_the_connection() {
    let line =
        r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x://nobody"}}"#;
    for (many, fine) in [(100, true), (101, false)] {
        let steps = [Step::Flood { line: line.into(), count: Some(many) }, Step::Echo];
        let host = pup(&with_resources(Era::Legacy).on("tool:echo", steps)).await;
        let mut events = host.events().subscribe();
        let outcome = crate::support::echo(&host).await;
        assert_eq!(outcome.success, fine, "{outcome:?}");
        while let Ok(event) = events.try_recv() {
            assert!(!matches!(event, Event::ResourceUpdated { .. }), "{event:?}");
        }
        host.close().await;
    }
    // The twin: as many of one that is watched.
    let watched = line.replace("nobody", "a");
    let steps = [Step::Flood { line: watched, count: Some(500) }, Step::Echo];
    let script = with_resources(Era::Legacy)
        .on("resources/subscribe", [Step::Reply(json!({}))])
        .on("tool:echo", steps);
    let host = pup(&script).await;
    let mut watching = host.subscribe("pup", "x://a").await.unwrap();
    assert!(crate::support::echo(&host).await.success);
    assert_eq!(soon("an update", watching.next()).await.unwrap().uri.raw(), "x://a", "the oldest became one");
    host.close().await;
}

#[tokio::test]
async fn l80_lists_that_change_are_told_and_a_modern_server_is_asked_to() {
    for era in ERAS {
        let files = folder();
        let log = at(&files, "log");
        let go = at(&files, "go");
        let capabilities =
            json!({"tools": {}, "resources": {"listChanged": true}, "prompts": {"listChanged": true}});
        let notify = |method: &str| Step::Notify { method: method.into(), params: None };
        let news = [
            notify("notifications/resources/list_changed"),
            notify("notifications/prompts/list_changed"),
            Step::Echo,
        ];
        let script = Puppet::of(era)
            .with(|s| s.capabilities = Some(capabilities))
            .on("tool:echo", news)
            .on("subscriptions/listen", [Step::Raw(acknowledged(&[])), Step::WaitFor(go)])
            .log(&log);
        let host = pup(&script).await;
        let mut events = host.events().subscribe();
        assert!(crate::support::echo(&host).await.success);
        let mut told = Vec::new();
        while let Ok(event) = events.try_recv() {
            match event {
                Event::ResourcesChanged { server, .. } => told.push(format!("resources of {server}")),
                Event::PromptsChanged { server, .. } => told.push(format!("prompts of {server}")),
                _ => {}
            }
        }
        assert_eq!(told, ["resources of pup", "prompts of pup"]);
        if era == Era::Modern {
            let listen = received(&log).into_iter().find(|m| m["method"] == "subscriptions/listen").unwrap();
            let wanted = json!({"promptsListChanged": true, "resourcesListChanged": true});
            assert_eq!(listen["params"]["notifications"], wanted);
        }
        host.close().await;
    }
}

#[tokio::test]
async fn l80_whoever_comes_while_a_subscription_ends_is_served_after_that() {
    let files = folder();
    let (log, go) = (at(&files, "log"), at(&files, "go"));
    let script = with_resources(Era::Legacy)
        .on("resources/subscribe", [Step::Reply(json!({}))])
        .on("resources/unsubscribe", [Step::WaitFor(go.clone()), Step::Reply(json!({}))])
        .log(&log);
    let host = pup(&script).await;
    // Nobody was away: the server hears nothing of it.
    let first = host.subscribe("pup", "x://a").await.unwrap();
    drop(first);
    let second = host.subscribe("pup", "x://a").await.unwrap();
    assert_eq!((asked_for(Era::Legacy, &log), let_go(Era::Legacy, &log)), (1, 0));
    drop(second);
    until("it is being let go", || let_go(Era::Legacy, &log) == 1).await;
    let coming = tokio::spawn({
        let host = host.clone();
        async move { host.subscribe("pup", "x://a").await.unwrap() }
    });
    assert!(crate::support::echo(&host).await.success);
    assert_eq!(asked_for(Era::Legacy, &log), 1, "not before the server has heard the end of the last one");
    std::fs::write(&go, "").unwrap();
    let third = soon("a subscription", coming).await.unwrap();
    let order: Vec<String> = received(&log)
        .iter()
        .filter_map(|m| m["method"].as_str())
        .filter(|m| m.starts_with("resources/"))
        .map(str::to_owned)
        .collect();
    assert_eq!(order, ["resources/subscribe", "resources/unsubscribe", "resources/subscribe"]);
    drop(third);
    host.close().await;
}

#[tokio::test]
async fn l80_a_modern_server_that_does_not_keep_listening_open_is_given_up_with_a_warning() {
    let files = folder();
    let log = at(&files, "log");
    let go = at(&files, "go");
    let agrees = Step::Raw(acknowledged(&["x://a"]));
    let short = vec![agrees.clone(), Step::Reply(json!({}))];
    let update = Step::Notify {
        method: "notifications/resources/updated".into(),
        params: Some(json!({"uri": "x://a"})),
    };
    let long = vec![agrees, Step::WaitFor(go.clone()), update, Step::Hang];
    let turns = Step::Turns(vec![short.clone(), short.clone(), short, long]);
    let host = pup(&with_resources(Era::Modern).on("subscriptions/listen", [turns]).log(&log)).await;
    let mut events = host.events().subscribe();
    let mut watching = host.subscribe("pup", "x://a").await.unwrap();
    let mut words = 0;
    while soon("the end", watching.next()).await.is_some() {
        words += 1;
    }
    assert_eq!(words, 2, "after each gap something may have been missed");
    assert_eq!(asked_for(Era::Modern, &log), 3);
    let warned = async {
        loop {
            if let Event::Warning { message, .. } = events.recv().await.unwrap() {
                return message;
            }
        }
    };
    assert!(soon("a warning", warned).await.contains("x://a"));
    // Who comes later has a subscription of its own, which does not end with the old one.
    let mut again = host.subscribe("pup", "x://a").await.unwrap();
    drop(watching);
    std::fs::write(&go, "").unwrap();
    assert_eq!(soon("an update", again.next()).await.unwrap().uri.raw(), "x://a");
    assert_eq!(let_go(Era::Modern, &log), 0);
    host.close().await;
}

#[tokio::test]
async fn l80_a_subscription_does_not_keep_a_server_running() {
    for era in ERAS {
        let files = folder();
        let (log, go, pid) = (at(&files, "log"), at(&files, "go"), at(&files, "pid"));
        let host = pup(&watched(era, &log, &go).pid(&pid)).await;
        let mut watching = host.subscribe("pup", "x://a").await.unwrap();
        let process = crate::support::pid_in(&pid).await;
        assert!(crate::support::is_alive(process));
        drop(host);
        until("the server is gone", || !crate::support::is_alive(process)).await;
        assert_eq!(soon("the end", watching.next()).await, None);
    }
}
