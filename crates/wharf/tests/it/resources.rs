//! Resources in both eras: listed, read, watched; and the servers that do it badly.

use serde_json::{Value, json};
use wharf::Host;
use wharf::event::Event;
use wharf::mcp::Body;
use wharf_testkit::{Era, Puppet, Step};

use crate::support::{at, count, folder, pup, puppet, quick, received, soon, until};

const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];

fn with_resources(era: Era) -> Puppet {
    let capabilities = json!({"tools": {}, "resources": {"subscribe": true}});
    Puppet::of(era).with(|s| s.capabilities = Some(capabilities))
}

fn listing(resources: Value) -> Step {
    Step::Reply(json!({"resources": resources}))
}

fn uris(offered: &wharf::catalog::Offered<wharf::mcp::Resource>) -> Vec<&str> {
    offered.items.iter().map(|r| r.uri.raw()).collect()
}

#[tokio::test]
async fn l80_resources_and_templates_are_listed_over_all_pages_and_kept_whole() {
    for era in ERAS {
        let log = folder();
        let log = at(&log, "log");
        let pages = vec![
            vec![Step::Reply(
                json!({"resources": [{"uri": "x://a", "name": "a", "size": 3, "extra": 1.0}], "nextCursor": ""}),
            )],
            vec![Step::Reply(
                json!({"resources": [{"uri": "x://b", "name": "b", "title": "B", "description": "d", "mimeType": "text/plain"}]}),
            )],
        ];
        let templates = json!({"resourceTemplates": [{"uriTemplate": "x://{id}", "name": "t"}]});
        let script = with_resources(era)
            .on("resources/list", [Step::Turns(pages)])
            .on("resources/templates/list", [Step::Reply(templates)])
            .log(&log);
        let host = pup(&script).await;
        let offered = host.resources("pup").await.unwrap();
        assert_eq!(uris(&offered), ["x://a", "x://b"]);
        assert_eq!(offered.items[0].size, Some(3));
        assert!(offered.items[0].raw.as_str().contains(r#""extra":1.0"#));
        assert_eq!(offered.items[1].title.as_ref().unwrap().raw(), "B");
        assert_eq!(offered.items[1].mime_type.as_ref().unwrap().raw(), "text/plain");
        let templates = host.resource_templates("pup").await.unwrap();
        assert_eq!(templates.items[0].uri_template.raw(), "x://{id}");
        host.close().await;
    }
}

#[tokio::test]
async fn l80_a_bad_entry_is_left_out_alone_and_control_characters_are_no_address() {
    let entries = json!([
        {"uri": "x://good", "name": "good"},
        {"uri": "x://bad\u{1b}]0;owned\u{7}", "name": "bad"},
        {"uri": "x://hidden\u{202e}", "name": "hidden"},
        {"name": "no address"},
        {"uri": 5, "name": "number"},
        {"uri": "", "name": "empty"},
        {"uri": "x://good", "name": "twin"},
        "no object",
        {"uri": "x://ünï code?q=1#f", "name": "fine"},
    ]);
    for era in ERAS {
        let host = pup(&with_resources(era).on("resources/list", [listing(entries.clone())])).await;
        let offered = host.resources("pup").await.unwrap();
        assert_eq!(uris(&offered), ["x://good", "x://ünï code?q=1#f"]);
        let reasons: Vec<&str> = offered.rejected.iter().map(|r| r.reason.as_str()).collect();
        assert_eq!(reasons.len(), 7, "{reasons:?}");
        assert!(reasons[0].contains("control characters"), "{reasons:?}");
        assert!(reasons[5].contains("another"), "{reasons:?}");
        let shown = offered.rejected[0].name.to_string();
        assert!(!shown.contains('\u{1b}') && shown.contains("\\u{1b}"), "{shown}");
        host.close().await;
    }
}

#[tokio::test]
async fn l80_a_list_without_an_end_is_refused_and_other_servers_are_not_affected() {
    let endless = Step::Raw(
        r#"{"jsonrpc":"2.0","id":$ID,"result":{"resources":[{"uri":"x://$SEQ","name":"n"}],"nextCursor":"$SEQ"}}"#.into(),
    );
    let circle = Step::Reply(json!({"resources": [], "nextCursor": "same"}));
    let many: Vec<Value> = (0..10_001).map(|n| json!({"uri": format!("x://{n}"), "name": "n"})).collect();
    for (step, word) in
        [(endless, "does not end"), (circle, "circles"), (listing(json!(many)), "more than 10000")]
    {
        let bad = with_resources(Era::Legacy).on("resources/list", [step]);
        let good = with_resources(Era::Modern)
            .on("resources/list", [listing(json!([{"uri": "x://a", "name": "a"}]))]);
        let without = Puppet::new();
        let servers = [puppet("bad", &bad), puppet("good", &good), puppet("without", &without)];
        let host = quick().servers(servers).start().await.unwrap();
        let found = soon("the lists", host.all_resources()).await;
        assert_eq!(found.failed.len(), 1);
        assert!(found.failed[0].1.to_string().contains(word), "{word}: {}", found.failed[0].1);
        assert_eq!(found.offered.len(), 1, "a server that has none is neither a failure nor an empty list");
        assert_eq!(uris(&found.offered[0].1), ["x://a"]);
        host.close().await;
    }
}

#[tokio::test]
async fn l80_text_and_bytes_are_read_and_a_part_that_is_not_base64_is_left_out_alone() {
    for era in ERAS {
        let contents = json!({"contents": [
            {"uri": "x://a", "mimeType": "text/plain", "text": "tide"},
            {"uri": "x://b", "mimeType": "image/png", "blob": "iVBORw=="},
            {"uri": "x://b2", "blob": "iVBORw"},
            {"uri": "x://c", "blob": "this is not base64!"},
            {"uri": "x://d"},
            {"uri": "x://e", "text": "both", "blob": ""},
        ]});
        let files = folder();
        let log = at(&files, "log");
        let script = with_resources(era).on("resources/read", [Step::Reply(contents)]).log(&log);
        let host = pup(&script).await;
        let read = host.read_resource("pup", "x://a").await.unwrap();
        assert_eq!(read.contents.len(), 3);
        assert_eq!(read.contents[0].text().unwrap().raw(), "tide");
        assert_eq!(read.contents[1].body, Body::Blob(b"\x89PNG"[..].into()));
        assert_eq!(read.contents[2].bytes(), b"\x89PNG");
        let reasons: Vec<&str> = read.rejected.iter().map(|r| r.reason.as_str()).collect();
        assert!(reasons[0].contains("not base64"), "{reasons:?}");
        assert!(reasons[1].contains("neither") && reasons[2].contains("both"), "{reasons:?}");
        let asked = received(&log).into_iter().find(|m| m["method"] == "resources/read").unwrap();
        assert_eq!(asked["params"]["uri"], "x://a");
        host.close().await;
    }
}

#[tokio::test]
async fn l80_a_server_without_resources_is_not_asked_for_them() {
    for era in ERAS {
        let files = folder();
        let log = at(&files, "log");
        let host = pup(&Puppet::of(era).log(&log)).await;
        for error in [
            host.resources("pup").await.unwrap_err(),
            host.resource_templates("pup").await.unwrap_err(),
            host.read_resource("pup", "x://a").await.unwrap_err(),
            host.subscribe("pup", "x://a").await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), "not_offered");
            assert!(error.to_string().starts_with("server `pup` offers no "), "{error}");
            assert!(error.hint().unwrap().contains("nothing was sent"), "{:?}", error.hint());
        }
        let asked = received(&log);
        assert!(!asked.iter().any(|m| m["method"].as_str().is_some_and(|m| m.starts_with("resources"))));
        let listened = asked.iter().filter(|m| m["method"] == "subscriptions/listen");
        for listen in listened {
            assert_eq!(listen["params"]["notifications"], json!({"toolsListChanged": true}));
        }
        host.close().await;
    }
    // Resources without subscriptions: listed, not watched.
    let capabilities = json!({"resources": {}});
    let script = Puppet::new()
        .with(|s| s.capabilities = Some(capabilities))
        .on("resources/list", [listing(json!([]))]);
    let host = pup(&script).await;
    assert!(host.resources("pup").await.unwrap().items.is_empty());
    assert_eq!(host.subscribe("pup", "x://a").await.unwrap_err().kind(), "not_offered");
    assert!(host.resource_templates("pup").await.unwrap().items.is_empty(), "it need not know the question");
    host.close().await;
}

#[tokio::test]
async fn l80_a_server_that_is_switched_off_or_not_allowed_is_denied_like_its_tools() {
    let mut off = puppet("off", &with_resources(Era::Modern));
    off.enabled = false;
    let mut other = puppet("other", &Puppet::new());
    if let wharf::config::Transport::Stdio(stdio) = &mut other.transport {
        stdio.command = "/bin/sh".into();
    }
    let host = quick().servers([off, other]).start().await.unwrap();
    assert_eq!(host.resources("off").await.unwrap_err().kind(), "denied");
    assert_eq!(host.read_resource("off", "x://a").await.unwrap_err().kind(), "denied");
    assert_eq!(host.subscribe("off", "x://a").await.unwrap_err().kind(), "denied");
    assert_eq!(host.prompts("off").await.unwrap_err().kind(), "denied");
    assert_eq!(host.resources("other").await.unwrap_err().kind(), "command_not_allowed");
    assert_eq!(host.resources("nobody").await.unwrap_err().kind(), "unknown_server");
    let found = host.all_resources().await;
    assert_eq!((found.offered.len(), found.failed.len()), (0, 1), "what is off is not asked");
    host.close().await;
}

#[tokio::test]
async fn l80_a_server_may_ask_back_before_it_gives_a_resource() {
    let files = folder();
    let log = at(&files, "log");
    let requests = json!({"ok": {"method": "elicitation/create", "params": {
        "message": "Sure?", "requestedSchema": {"type": "object", "properties": {"sure": {"type": "boolean", "default": true}}},
    }}});
    let question = Step::InputRequired { requests: Some(requests), state: Some("s1".into()), forever: false };
    let contents = Step::Reply(json!({"contents": [{"uri": "x://a", "text": "here"}]}));
    let script = with_resources(Era::Modern).on("resources/read", [question, contents]).log(&log);
    let host =
        quick().asker(wharf::ask::AcceptDefaults).server(puppet("pup", &script)).start().await.unwrap();
    let read = host.read_resource("pup", "x://a").await.unwrap();
    assert_eq!(read.contents[0].text().unwrap().raw(), "here");
    let reads: Vec<_> = received(&log).into_iter().filter(|m| m["method"] == "resources/read").collect();
    assert_eq!(reads.len(), 2);
    assert_eq!(reads[1]["params"]["requestState"], "s1");
    assert_eq!(
        reads[1]["params"]["inputResponses"]["ok"],
        json!({"action": "accept", "content": {"sure": true}})
    );
    host.close().await;
}

#[tokio::test]
async fn l80_progress_of_a_reading_is_told_in_order_to_the_caller_and_on_the_bus() {
    for era in ERAS {
        let steps = [
            Step::Progress { count: Some(5), interval_ms: 0 },
            Step::Reply(json!({"contents": [{"uri": "x://a", "text": "t"}]})),
        ];
        let host = pup(&with_resources(era).on("resources/read", steps)).await;
        let mut events = host.events().subscribe();
        let mut heard = Vec::new();
        let mut listener = |p: wharf::connect::Progress| heard.push(p.progress);
        let options = wharf::CallOptions { on_progress: Some(&mut listener), ..Default::default() };
        host.read_resource_with("pup", "x://a", options).await.unwrap();
        assert_eq!(heard, [1.0, 2.0, 3.0, 4.0, 5.0]);
        let mut told = Vec::new();
        let mut calls = std::collections::HashSet::new();
        while let Ok(event) = events.try_recv() {
            if let Event::Progress { server, call, tool, progress, .. } = event {
                assert_eq!((server.as_str(), tool), ("pup", None));
                calls.insert(call);
                told.push(progress);
            }
        }
        assert_eq!(told, heard);
        assert_eq!(calls.len(), 1, "one call has one number");
        host.close().await;
    }
}

#[tokio::test]
async fn l80_a_reading_that_is_given_up_is_cancelled_and_one_without_an_answer_ends() {
    let files = folder();
    let log = at(&files, "log");
    let mut server = puppet("pup", &with_resources(Era::Legacy).on("resources/read", [Step::Hang]).log(&log));
    server.timeout = std::time::Duration::from_millis(200);
    let host: Host = quick().server(server).start().await.unwrap();
    let error = host.read_resource("pup", "x://a").await.unwrap_err();
    assert_eq!(error.kind(), "timeout");
    until("the server is told", || count(&received(&log), "notifications/cancelled") == 1).await;
    let reading = tokio::spawn({
        let host = host.clone();
        async move {
            let patient = wharf::CallOptions {
                timeout: Some(std::time::Duration::from_secs(60)),
                ..Default::default()
            };
            host.read_resource_with("pup", "x://a", patient).await.map(drop)
        }
    });
    until("it is asked", || count(&received(&log), "resources/read") == 2).await;
    reading.abort();
    until("the server is told", || count(&received(&log), "notifications/cancelled") == 2).await;
    host.close().await;
}
