//! What servers offer: all pages, each tool by itself, changes followed, and lists that have no end.

use std::time::Duration;

use serde_json::{Value, json};
use wharf::event::Event;
use wharf::host::Listing;
use wharf_testkit::{Era, Puppet, Step};

use crate::support::{at, count, echo, error, folder, pup, puppet, quick, received, soon, until};

fn names(listing: &Listing) -> Vec<&str> {
    listing.snapshot.tools().iter().map(|route| route.tool.name.as_str()).collect()
}

fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}

#[tokio::test]
async fn l51_every_page_is_followed_in_order() {
    for era in [Era::Legacy, Era::Modern] {
        for (tools, page) in [(1, 1), (7, 3), (250, 10), (1000, 1000)] {
            let files = folder();
            let log = at(&files, "log");
            let script = Puppet::of(era).log(&log).with(|s| (s.many_tools, s.pages) = (tools, Some(page)));
            let host = pup(&script).await;
            let listing = host.tools().await;
            assert!(listing.failed.is_empty(), "{:?}", listing.failed);
            let expected: Vec<String> = (0..tools).map(|n| format!("t{n}")).collect();
            assert_eq!(names(&listing), expected);
            host.tools().await;
            assert_eq!(count(&received(&log), "tools/list"), tools.div_ceil(page), "and asked once");
            host.close().await;
        }
    }
}

#[tokio::test]
async fn l51_an_empty_cursor_is_a_cursor_and_null_is_none() {
    let files = folder();
    let log = at(&files, "log");
    let pages = vec![
        vec![Step::Reply(json!({"tools": [tool("a")], "nextCursor": ""}))],
        vec![Step::Reply(json!({"tools": [tool("b")], "nextCursor": null}))],
    ];
    let host = pup(&Puppet::new().on("tools/list", [Step::Turns(pages)]).log(&log)).await;
    assert_eq!(names(&host.tools().await), ["a", "b"]);
    let lists: Vec<_> = received(&log).into_iter().filter(|m| m["method"] == "tools/list").collect();
    assert_eq!(
        (lists[0]["params"].get("cursor"), lists[1]["params"].get("cursor")),
        (None, Some(&json!("")))
    );
    host.close().await;
}

#[tokio::test]
async fn nam_07_a_list_without_an_end_is_refused_and_other_servers_are_not_affected() {
    let circle = Step::Reply(json!({"tools": [tool("a")], "nextCursor": "same"}));
    let endless = Step::Raw(
        r#"{"jsonrpc":"2.0","id":$ID,"result":{"tools":[{"name":"t$SEQ","inputSchema":{"type":"object"}}],"nextCursor":"$SEQ"}}"#.into(),
    );
    let many: Vec<Value> = (0..10_001).map(|n| tool(&format!("t{n}"))).collect();
    for (script, word) in [
        (Puppet::of(Era::Legacy).on("tools/list", [circle]), "circles"),
        (Puppet::of(Era::Legacy).on("tools/list", [endless]), "does not end"),
        (Puppet::of(Era::Legacy).on("tools/list", [Step::Reply(json!({"tools": many}))]), "more than 10000"),
        (Puppet::of(Era::Legacy).with(|s| s.many_tools = 10_001), "more than 10000"),
        (Puppet::of(Era::Legacy).on("tools/list", [Step::Reply(json!({"tools": "none"}))]), "cannot be read"),
        (Puppet::of(Era::Legacy).on("tools/list", [Step::Reply(json!([]))]), "cannot be read"),
    ] {
        let servers = [puppet("bad", &script), puppet("pup", &Puppet::new())];
        let host = quick().servers(servers).start().await.unwrap();
        let listing = soon("the list", host.tools()).await;
        let said = listing.failed[0].1.to_string();
        assert!(said.contains(word), "{word}: {said}");
        assert_eq!(names(&listing), ["echo"]);
        assert!(echo(&host).await.success);
        host.close().await;
    }
    let host = pup(&Puppet::new().with(|s| (s.many_tools, s.pages) = (10_000, Some(1000)))).await;
    assert_eq!(host.tools().await.snapshot.tools().len(), 10_000, "as many as may be");
    host.close().await;
}

#[tokio::test]
async fn nam_07_pages_that_come_slowly_end_with_the_time_for_the_whole_list() {
    let page = r#"{"jsonrpc":"2.0","id":$ID,"result":{"tools":[],"nextCursor":"$SEQ"}}"#;
    let slow = Puppet::of(Era::Legacy).on("tools/list", [Step::Sleep(120), Step::Raw(page.into())]);
    let mut config = puppet("pup", &slow);
    config.timeout = Duration::from_millis(400);
    let host = quick().server(config).start().await.unwrap();
    let failure = soon("the list", host.tools_of("pup")).await.unwrap_err();
    assert!(matches!(failure.kind(), "protocol" | "timeout"), "{failure}");
    host.close().await;
}

#[tokio::test]
async fn l51_a_tool_that_cannot_be_used_is_left_out_by_itself() {
    let script = Puppet::new()
        .tool(tool("good"))
        .tool(json!({"name": "no schema"}))
        .tool(json!({"name": "bad_schema", "inputSchema": "text"}))
        .tool(json!({"inputSchema": {"type": "object"}}))
        .tool(json!("not an object"))
        .tool(json!(null))
        .tool(tool("twin"))
        .tool(json!({"name": "twin", "description": "the second", "inputSchema": {"type": "object"}}))
        .tool(tool("last"));
    let host = pup(&script).await;
    let listing = host.tools().await;
    assert!(listing.failed.is_empty());
    assert_eq!(names(&listing), ["good", "twin", "last"]);
    assert_eq!(listing.rejected.len(), 6, "{:?}", listing.rejected);
    let twin = listing.snapshot.find("pup", "twin").unwrap();
    assert_eq!(twin.tool.description.as_ref().map(|d| d.raw()), None, "the first of a name stays");
    let outcome = host.call_tool("pup", "bad_schema", json!({}), Default::default()).await;
    assert_eq!(error(&outcome).kind(), "schema", "{outcome:?}");
    assert!(host.call("pup_last", json!({})).await.success);
    host.close().await;
}

#[tokio::test]
async fn l51_a_server_without_tools_has_none() {
    let script = Puppet::of(Era::Legacy)
        .on("tools/list", [Step::ReplyError { code: -32601, message: "unknown method".into(), data: None }]);
    let host = pup(&script).await;
    let listing = host.tools().await;
    assert!(listing.failed.is_empty() && listing.snapshot.tools().is_empty());
    host.close().await;
}

#[tokio::test]
async fn l51_a_change_of_the_list_is_followed_also_by_calls() {
    let changed = Step::Notify { method: "notifications/tools/list_changed".into(), params: None };
    let strict = json!({"name": "echo", "inputSchema": {"type": "object", "required": ["must"]}});
    let steps = [Step::SetTools(vec![strict, tool("fresh")]), changed, Step::Honest];
    let files = folder();
    let log = at(&files, "log");
    let host = pup(&Puppet::of(Era::Legacy).plain_tool("echo").on("tool:echo", steps).log(&log)).await;
    let mut events = host.events().subscribe();
    assert_eq!(names(&host.tools().await), ["echo"]);
    assert!(echo(&host).await.success);
    soon("the news", async { while !matches!(events.recv().await.unwrap(), Event::ToolsChanged { .. }) {} })
        .await;
    assert_eq!(error(&echo(&host).await).kind(), "arguments", "the new schema holds, though nobody listed");
    assert_eq!(names(&host.tools().await), ["echo", "fresh"]);
    assert!(host.call("pup_fresh", json!({})).await.success);
    assert_eq!(count(&received(&log), "tools/list"), 2, "asked again once");
    host.close().await;
}

#[tokio::test]
async fn l51_a_modern_server_is_asked_to_tell_of_changes_and_heard() {
    let acknowledge = r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":$ID}}}"#;
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":$ID}}}"#;
    let files = folder();
    let (log, go) = (at(&files, "log"), at(&files, "go"));
    let steps = [
        Step::Raw(acknowledge.into()),
        Step::WaitFor(go.clone()),
        Step::SetTools(vec![tool("fresh")]),
        Step::Raw(changed.into()),
    ];
    let host = pup(&Puppet::of(Era::Modern).on("subscriptions/listen", steps).log(&log)).await;
    assert_eq!(names(&host.tools().await), ["echo"]);
    let mut events = host.events().subscribe();
    let connection = host.berth("pup").unwrap().connection().await.unwrap();
    std::fs::write(&go, "").unwrap();
    soon("the news", async { while !matches!(events.recv().await.unwrap(), Event::ToolsChanged { .. }) {} })
        .await;
    assert_eq!(names(&host.tools().await), ["fresh"]);
    assert_eq!(connection.strays(), Default::default());
    let listen = received(&log).into_iter().find(|m| m["method"] == "subscriptions/listen").unwrap();
    assert_eq!(listen["params"]["notifications"], json!({"toolsListChanged": true}));
    host.close().await;

    // One that does not promise to tell is not asked, nor is one of the older era, which tells unasked.
    let silent = Puppet::of(Era::Modern).with(|s| s.capabilities = Some(json!({"tools": {}})));
    for script in [silent, Puppet::of(Era::Legacy)] {
        let files = folder();
        let log = at(&files, "log");
        let host = pup(&script.log(&log)).await;
        assert!(echo(&host).await.success);
        assert_eq!(count(&received(&log), "subscriptions/listen"), 0);
        host.close().await;
    }
    // One that promised and knows nothing of it is none the worse.
    let host = pup(&Puppet::of(Era::Modern)).await;
    assert!(echo(&host).await.success);
    let connection = host.berth("pup").unwrap().connection().await.unwrap();
    assert_eq!(connection.strays(), Default::default());
    host.close().await;
}

#[tokio::test]
async fn nam_07_a_flood_of_changes_is_one_change() {
    let line = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let steps = [Step::Flood { line: line.into(), count: Some(20_000) }, Step::Honest];
    let files = folder();
    let log = at(&files, "log");
    let script =
        Puppet::of(Era::Legacy).plain_tool("flood").plain_tool("echo").on("tool:flood", steps).log(&log);
    let servers = [puppet("bad", &script), puppet("pup", &Puppet::new())];
    let host = quick().servers(servers).start().await.unwrap();
    host.tools().await;
    assert!(soon("the flood", host.call("bad_flood", json!({}))).await.success);
    host.tools().await;
    until("the flood is over", || count(&received(&log), "tools/list") >= 2).await;
    host.tools().await;
    assert!(count(&received(&log), "tools/list") <= 4);
    assert!(echo(&host).await.success && host.berth("bad").unwrap().connected());
    host.close().await;
}
