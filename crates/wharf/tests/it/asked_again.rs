//! Servers that do not tell when their lists change: asked again when those are old, and not more often.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::Instant;
use wharf::event::Event;
use wharf::host::Listing;
use wharf_testkit::{Era, Puppet, Step};

use crate::audit::{audited, log_in, of_kind, records};
use crate::support::{at, count, folder, later, pup, puppet, quick, received, soon, until};

/// A list with one tool, which may be kept for so long.
fn list(tool: &str, ttl: Option<&Value>) -> Step {
    let mut list = json!({"tools": [{"name": tool, "inputSchema": {"type": "object"}}]});
    if let Some(ttl) = ttl {
        list["ttlMs"] = ttl.clone();
    }
    Step::Reply(list)
}

/// A server that shows something else each time, and tells of it or not.
fn fickle(era: Era, tells: bool, turns: impl IntoIterator<Item = Step>) -> Puppet {
    let turns = turns.into_iter().map(|step| vec![step]).collect();
    Puppet::of(era)
        .with(|s| s.capabilities = Some(json!({"tools": {"listChanged": tells}})))
        .on("tools/list", [Step::Turns(turns)])
}

fn names(listing: &Listing) -> Vec<&str> {
    listing.snapshot.tools().iter().map(|route| &*route.public).collect()
}

#[tokio::test]
async fn l51_a_server_that_tells_of_no_change_is_asked_again_when_its_list_is_old() {
    const SECOND: u64 = 1000;
    let (five_minutes, hour) = (300 * SECOND, 3600 * SECOND);
    for (era, ttl, kept) in [
        (Era::Modern, Some(json!(30 * SECOND)), 30 * SECOND),
        // What may not be kept at all is not asked for by everybody.
        (Era::Modern, Some(json!(0)), 5 * SECOND),
        (Era::Modern, Some(json!(10_u64.pow(15))), hour),
        // What says nothing neither ends a list nor makes it eternal.
        (Era::Modern, None, five_minutes),
        (Era::Modern, Some(json!(-1)), five_minutes),
        (Era::Modern, Some(json!(7.5)), five_minutes),
        (Era::Modern, Some(json!("30000")), five_minutes),
        (Era::Modern, Some(json!(1e300)), five_minutes),
        (Era::Modern, Some(json!(null)), five_minutes),
        (Era::Legacy, Some(json!(30 * SECOND)), five_minutes),
        (Era::Legacy, None, five_minutes),
    ] {
        let files = folder();
        let log = at(&files, "log");
        let turns = ["old", "new"].map(|tool| list(tool, ttl.as_ref()));
        let host = pup(&fickle(era, false, turns).log(&log)).await;
        let mut events = host.events().subscribe();
        assert_eq!(names(&host.known_tools().await), ["pup_old"], "{era:?} {ttl:?}");
        later(Duration::from_millis(kept - SECOND)).await;
        assert_eq!(names(&host.known_tools().await), ["pup_old"], "{era:?} {ttl:?}");
        assert_eq!(count(&received(&log), "tools/list"), 1, "{era:?} {ttl:?}");
        later(Duration::from_millis(SECOND)).await;
        let listing = soon("a list", host.known_tools()).await;
        assert_eq!(names(&listing), ["pup_new"], "{era:?} {ttl:?}");
        assert!(listing.failed.is_empty());
        let told = async { while !matches!(events.recv().await.unwrap(), Event::ToolsChanged { .. }) {} };
        soon("word of the change", told).await;
        assert!(host.call("pup_new", json!({})).await.error.is_none_or(|e| e.kind() != "unknown_tool"));
        assert_eq!(count(&received(&log), "tools/list"), 2, "{era:?} {ttl:?}");
        host.close().await;
    }
}

#[tokio::test]
async fn l51_a_server_that_tells_of_changes_is_asked_when_it_does() {
    for era in [Era::Legacy, Era::Modern] {
        let files = folder();
        let log = at(&files, "log");
        let turns = ["old", "new"].map(|tool| list(tool, Some(&json!(0))));
        let host = pup(&fickle(era, true, turns).log(&log)).await;
        for _ in 0..3 {
            assert_eq!(names(&host.known_tools().await), ["pup_old"]);
            later(Duration::from_secs(1000)).await;
        }
        assert_eq!(count(&received(&log), "tools/list"), 1);
        host.close().await;
    }
}

#[tokio::test]
async fn nam_07_however_many_want_an_old_list_its_server_is_asked_once() {
    let files = folder();
    let (log, go) = (at(&files, "log"), at(&files, "go"));
    let (ttl, second) = (json!(0), vec![Step::WaitFor(go.clone()), list("new", Some(&json!(0)))]);
    let turns = Step::Turns(vec![vec![list("old", Some(&ttl))], second]);
    let script = fickle(Era::Modern, false, []).on("tools/list", [turns]).log(&log);
    let host = pup(&script).await;
    assert_eq!(names(&host.known_tools().await), ["pup_old"]);
    for _ in 0..50 {
        host.known_tools().await;
    }
    assert_eq!(count(&received(&log), "tools/list"), 1, "it is not old yet");

    // The server takes its time: nobody waits longer than for any server, and whoever comes later does not wait.
    let mut events = host.events().subscribe();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(6)).await;
    let began = Instant::now();
    let all = join_all((0..20).map(|_| host.known_tools())).await;
    assert!(all.iter().all(|listing| names(listing) == ["pup_old"]), "what was there is shown");
    let waited = began.elapsed();
    assert!((5..6).contains(&waited.as_secs()), "{waited:?}");
    let began = Instant::now();
    let listing = host.known_tools().await;
    assert_eq!((names(&listing), listing.failed.len()), (vec!["pup_old"], 1));
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    tokio::time::resume();
    until("the server is asked", || count(&received(&log), "tools/list") == 2).await;

    std::fs::write(&go, "").unwrap();
    soon("word of the change", async {
        while !matches!(events.recv().await.unwrap(), Event::ToolsChanged { .. }) {}
    })
    .await;
    assert_eq!(names(&host.known_tools().await), ["pup_new"]);
    assert_eq!(count(&received(&log), "tools/list"), 2, "one look for all of them");
    later(Duration::from_secs(6)).await;
    join_all((0..20).map(|_| host.known_tools())).await;
    assert_eq!(count(&received(&log), "tools/list"), 3);
    host.close().await;
}

#[tokio::test]
async fn l51_a_server_that_fails_to_say_it_again_keeps_its_list_and_is_left_alone_for_a_moment() {
    let files = folder();
    let log = at(&files, "log");
    let ttl = json!(30_000);
    let refusal = Step::ReplyError { code: -32603, message: "not today".into(), data: None };
    let turns = [list("old", Some(&ttl)), refusal, list("new", Some(&ttl))];
    let host = pup(&fickle(Era::Modern, false, turns).log(&log)).await;
    host.known_tools().await;
    later(Duration::from_secs(31)).await;
    let listing = host.known_tools().await;
    assert_eq!((names(&listing), listing.failed.len()), (vec!["pup_old"], 1));
    for _ in 0..10 {
        assert_eq!(names(&host.known_tools().await), ["pup_old"]);
    }
    assert_eq!(count(&received(&log), "tools/list"), 2, "a server in trouble is not asked by everybody");
    later(Duration::from_secs(5)).await;
    assert_eq!(names(&host.known_tools().await), ["pup_new"]);
    host.close().await;
}

#[tokio::test]
async fn l51_other_lists_are_kept_for_as_long_as_their_server_says_and_else_asked_for() {
    for (ttl, asked) in [(Some(json!(30_000)), [1, 1, 2]), (Some(json!(0)), [1, 1, 2]), (None, [1, 2, 3])] {
        let files = folder();
        let log = at(&files, "log");
        let page = |key: &str, name: &str, value: String| {
            let mut page = json!({key: [{name: value, "name": "n"}]});
            page[key][0][name] = json!(value);
            if let Some(ttl) = &ttl {
                page["ttlMs"] = ttl.clone();
            }
            vec![Step::Reply(page)]
        };
        let lists = [
            ("prompts/list", "prompts", "name"),
            ("resources/list", "resources", "uri"),
            ("resources/templates/list", "resourceTemplates", "uriTemplate"),
        ];
        let script = Puppet::of(Era::Modern)
            .with(|s| s.capabilities = Some(json!({"prompts": {}, "resources": {}})))
            .log(&log);
        let script = lists.into_iter().fold(script, |script, (method, key, name)| {
            let turns = (1..4).map(|turn| page(key, name, format!("x{turn}"))).collect();
            script.on(method, [Step::Turns(turns)])
        });
        let host = pup(&script).await;
        for (turn, asked) in asked.into_iter().enumerate() {
            let prompts = host.known_prompts().await.offered;
            let resources = host.known_resources().await.offered;
            let templates = host.known_resource_templates().await.offered;
            let shown = [
                prompts[0].1.items[0].name.raw(),
                resources[0].1.items[0].uri.raw(),
                templates[0].1.items[0].uri_template.raw(),
            ];
            assert_eq!(shown, [&*format!("x{asked}"); 3], "{ttl:?}, the list of number {turn}");
            for (method, ..) in lists {
                assert_eq!(count(&received(&log), method), asked, "{ttl:?}, {method} of number {turn}");
            }
            later(Duration::from_secs(if turn == 0 { 3 } else { 31 })).await;
        }
        host.close().await;
    }
}

#[tokio::test]
async fn log_02_a_tool_that_cannot_be_used_is_one_record_however_often_its_server_is_asked() {
    let files = folder();
    let (log, trail) = (at(&files, "log"), log_in(&files));
    let bad = |name: &str| json!({"name": name, "inputSchema": 7});
    let turn = |bad: Vec<Value>| vec![Step::Reply(json!({"tools": bad, "ttlMs": 0}))];
    let turns = [turn(vec![bad("odd")]), turn(vec![bad("odd")]), turn(vec![bad("odd"), bad("newer")])];
    let script = fickle(Era::Modern, false, []).on("tools/list", [Step::Turns(turns.into())]).log(&log);
    let (host, audit) = audited(&trail, quick().server(puppet("pup", &script))).await;
    for asked in 1..=3 {
        assert_eq!(host.known_tools().await.rejected.len(), if asked == 3 { 2 } else { 1 });
        assert_eq!(count(&received(&log), "tools/list"), asked);
        later(Duration::from_secs(6)).await;
    }
    host.close().await;
    drop((host, audit));
    let rejected = of_kind(&records(&trail), "reject");
    let names: Vec<_> = rejected.iter().map(|record| record["tool"].as_str().unwrap()).collect();
    assert_eq!(names, ["odd", "newer"]);
}
