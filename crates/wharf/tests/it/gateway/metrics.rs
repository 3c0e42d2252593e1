//! What can be seen of a gateway from outside: its counters, whether it is ready, and by whom.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use wharf::config::{BreakerSettings, CallLimits, CallerRules, CallerTable, Share};
use wharf::gateway::{Callers, Key};
use wharf::names::{CallerName, ServerName};
use wharf_testkit::{Crash, Era, Puppet, Step};

use super::exposition::Scrape;
use super::{Answer, Door, open, open_with};
use crate::audit::{audited, log_in};
use crate::support::{at, count, folder, host, puppet, quick, received, soon, until};

pub(super) async fn get(door: &Door, path: &str, headers: &[(&str, &str)]) -> Answer {
    let host = door.name();
    let mut all = vec![("host", host.as_str())];
    all.extend(headers);
    door.send(Method::GET, path, &all, "").await
}

pub(super) async fn scrape(door: &Door) -> Scrape {
    let answer = get(door, "/metrics", &[]).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    assert_eq!(answer.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    Scrape::read(&answer.body).unwrap_or_else(|why| panic!("{why}\n{}", answer.body))
}

pub(super) async fn call(door: &Door, tool: &str) -> Value {
    door.modern("tools/call", json!({"name": tool, "arguments": {}})).await.json()
}

fn several(files: &tempfile::TempDir) -> Puppet {
    let failed = json!({"content": [{"type": "text", "text": "the tide is out"}], "isError": true});
    let refused = Step::ReplyError { code: 1, message: "no".into(), data: None };
    ["echo", "fails", "refuses", "hangs", "waits", "hidden"]
        .into_iter()
        .fold(Puppet::of(Era::Modern), Puppet::plain_tool)
        .log(at(files, "log"))
        .on("tool:fails", [Step::Reply(failed)])
        .on("tool:refuses", [refused])
        .on("tool:hangs", [Step::Hang])
        .on("tool:waits", [Step::WaitFor(at(files, "gate")), Step::Honest])
}

/// What one tool's calls came to.
fn outcomes(scrape: &Scrape, tool: &str, outcome: &str) -> f64 {
    scrape.sum("wharf_calls_total", &[("server", "pup"), ("tool", tool), ("outcome", outcome)])
}

#[tokio::test]
async fn l96_bytes_of_arguments_and_results_are_counted_by_tool() {
    let files = folder();
    let door = open(host([puppet("pup", &several(&files))]).await).await;
    let carried = async |tool: &str| {
        let (now, of) = (scrape(&door).await, [("server", "pup"), ("tool", tool)]);
        ["wharf_call_arguments_bytes_total", "wharf_call_result_bytes_total"]
            .map(|name| now.value(name, &of).unwrap())
    };
    let params = json!({"name": "pup_echo", "arguments": {"message": "hi"}});
    door.modern("tools/call", params.clone()).await;
    let [sent, got] = carried("echo").await;
    assert_eq!(sent, r#"{"message":"hi"}"#.len() as f64);
    assert!(got > 2.0, "{got}");
    door.modern("tools/call", params.clone()).await;
    assert_eq!(carried("echo").await, [2.0 * sent, 2.0 * got]);
    call(&door, "pup_refuses").await;
    assert_eq!(carried("refuses").await, [0.0, 0.0], "what had no result carried none");
    door.host.close().await;
}

#[tokio::test]
async fn l96_every_call_is_counted_once_however_it_ends() {
    let files = folder();
    let mut pup = puppet("pup", &several(&files));
    pup.disabled_tools = vec!["hidden".into()];
    // For the one that loses patience: long enough to be told which tools there are.
    let mut deaf =
        puppet("deaf", &Puppet::of(Era::Modern).plain_tool("hangs").on("tool:hangs", [Step::Hang]));
    deaf.timeout = Duration::from_secs(2);
    let door = open(quick().servers([pup, deaf]).start().await.unwrap()).await;
    for _ in 0..3 {
        assert!(call(&door, "pup_echo").await["result"].is_object());
    }
    assert_eq!(call(&door, "pup_fails").await["result"]["isError"], true);
    assert_eq!(call(&door, "pup_refuses").await["error"]["code"], 1);
    assert_eq!(call(&door, "deaf_hangs").await["error"]["data"]["kind"], "timeout");
    // What is not there, and what may not be called, bear no names that a caller made up.
    assert!(call(&door, "pup_nothing\"} 1").await["error"].is_object());
    assert!(call(&door, "pup_hidden").await["error"].is_object());
    let stranger = door.host.session("stranger").start().unwrap();
    assert_eq!(stranger.call("pup_echo", json!({})).await.error.unwrap().kind(), "denied");
    let before = count(&received(&at(&files, "log")), "tools/call");
    let watching = async {
        let sent = || count(&received(&at(&files, "log")), "tools/call");
        until("it is at the server", || sent() > before).await;
        let now = scrape(&door).await;
        let of = [("server", "pup"), ("tool", "waits")];
        assert_eq!(now.value("wharf_calls_in_flight", &of), Some(1.0));
        assert_eq!(now.value("wharf_gate_calls", &[("server", "pup")]), Some(1.0));
        assert_eq!(now.value("wharf_caller_calls", &[("caller", "local")]), Some(1.0));
    };
    tokio::select! {
        answer = call(&door, "pup_waits") => panic!("{answer:?}"),
        () = watching => {}
    }
    until("the caller that went away is heard of", || {
        door.host.counts().iter().all(|reading| reading.under_way() == 0)
    })
    .await;
    let now = scrape(&door).await;
    for (server, tool, outcome, times) in [
        ("pup", "echo", "ok", 3.0),
        ("pup", "fails", "tool_failed", 1.0),
        ("pup", "refuses", "tool", 1.0),
        ("deaf", "hangs", "timeout", 1.0),
        ("pup", "waits", "cancelled", 1.0),
    ] {
        let of = [("server", server), ("tool", tool), ("outcome", outcome)];
        assert_eq!(now.sum("wharf_calls_total", &of), times, "{tool} {outcome}");
        assert_eq!(now.sum("wharf_calls_total", &[("tool", tool)]), times, "and nothing else");
    }
    assert_eq!(now.sum("wharf_calls_total", &[("server", ""), ("outcome", "unknown_tool")]), 2.0);
    assert_eq!(now.sum("wharf_calls_total", &[("server", ""), ("outcome", "denied")]), 1.0);
    let (started, ended) = (now.sum("wharf_calls_started_total", &[]), now.sum("wharf_calls_total", &[]));
    assert_eq!((started, ended), (10.0, 10.0));
    assert_eq!(now.sum("wharf_call_duration_seconds_count", &[]), 7.0, "of those that were sent");
    assert_eq!(now.sum("wharf_calls_in_flight", &[]), 0.0);
    let slow = [("server", "deaf"), ("tool", "hangs"), ("le", "0.25")];
    assert_eq!(now.value("wharf_call_duration_seconds_bucket", &slow), Some(0.0), "it took longer");
    assert_eq!(now.value("wharf_server_state", &[("server", "pup"), ("state", "connected")]), Some(1.0));
    assert_eq!(now.sum("wharf_server_state", &[("server", "pup")]), 1.0, "one state at a time");
    assert_eq!(now.value("wharf_server_processes", &[("server", "pup")]), Some(1.0));
    assert_eq!(now.value("wharf_denials_total", &[("rule", "permission")]), Some(1.0));
    door.host.close().await;
    let now = scrape(&door).await;
    assert_eq!(now.value("wharf_server_state", &[("server", "pup"), ("state", "disconnected")]), Some(1.0));
    assert_eq!(now.value("wharf_server_processes", &[("server", "pup")]), Some(0.0));
}

#[tokio::test]
async fn l96_counts_outlive_what_is_listed_anew() {
    let tools = |name: &str| vec![json!({"name": name, "inputSchema": {"type": "object"}})];
    let changed = Step::Notify { method: "notifications/tools/list_changed".into(), params: None };
    let both = [tools("echo"), tools("more")].concat();
    let script = Puppet::of(Era::Legacy)
        .plain_tool("echo")
        .on("tool:echo", [Step::SetTools(both), changed, Step::Honest]);
    let door = open(quick().server(puppet("pup", &script)).start().await.unwrap()).await;
    call(&door, "pup_echo").await;
    assert!(call(&door, "pup_more").await["result"].is_object());
    call(&door, "pup_echo").await;
    let now = scrape(&door).await;
    assert_eq!((outcomes(&now, "echo", "ok"), outcomes(&now, "more", "ok")), (2.0, 1.0));
    door.host.close().await;
}

#[tokio::test]
async fn l96_names_that_would_break_the_format_do_not() {
    // Two that look alike, one that ends the label and adds a line, one that hides, and an honest twin.
    let hostile = ["a\"} 1", "back\\slash", "back\\\\slash", "\u{202e}drive", "\\u{202e}drive", "honest"];
    let script = hostile.into_iter().fold(Puppet::of(Era::Modern), Puppet::plain_tool);
    let door = open(host([puppet("pup", &script)]).await).await;
    for tool in hostile {
        let ended = door.host.call_tool("pup", tool, json!({}), Default::default()).await;
        assert!(ended.success, "{tool}: {ended:?}");
    }
    let now = scrape(&door).await;
    let called = now.all("wharf_calls_started_total", &[("server", "pup")]);
    assert_eq!(called.len(), hostile.len(), "each is one of its own: {called:?}");
    assert!(called.iter().all(|(_, value)| *value == 1.0), "{called:?}");
    assert_eq!(outcomes(&now, "honest", "ok"), 1.0);
    assert_eq!(outcomes(&now, "a\"} 1", "ok"), 1.0);
    let page = get(&door, "/metrics", &[]).await.body;
    assert!(!page.contains('\u{202e}'), "nothing in it drives a terminal");
    door.host.close().await;
}

#[tokio::test]
async fn l96_there_is_an_end_to_the_names() {
    let script = Puppet::of(Era::Modern).with(|script| script.many_tools = 300);
    let door = open(host([puppet("pup", &script)]).await).await;
    for n in 0..300 {
        let ended = door.host.call_tool("pup", &format!("t{n}"), json!({}), Default::default()).await;
        assert!(ended.success, "{ended:?}");
    }
    for n in 0..300 {
        assert!(call(&door, &format!("made_up_{n}")).await["error"].is_object());
    }
    let now = scrape(&door).await;
    let called = now.all("wharf_calls_started_total", &[("server", "pup")]);
    assert_eq!(called.len(), 257, "so many by name, and the rest together");
    assert_eq!(now.value("wharf_calls_started_total", &[("server", "pup"), ("tool", "")]), Some(44.0));
    assert_eq!(now.value("wharf_calls_started_total", &[("server", ""), ("tool", "")]), Some(300.0));
    assert_eq!(now.sum("wharf_calls_started_total", &[]), now.sum("wharf_calls_total", &[]));
    door.host.close().await;
}

#[tokio::test]
async fn l96_what_is_turned_away_is_counted_by_the_reason() {
    let key = Key::new(CallerName::parse("ann").unwrap(), Key::hash("whf_a"));
    let limits = CallLimits { requests_per_second: Some(0.01), burst: Some(2), ..CallLimits::default() };
    let script = Puppet::of(Era::Modern);
    let door = open_with(host([puppet("pup", &script)]).await, |b| {
        b.callers(Callers::default().keys([key])).limits(limits).largest_request(2000)
    })
    .await;
    let ann = ("authorization", "Bearer whf_a");
    let mut statuses = Vec::new();
    for more in [&[ann][..], &[ann], &[ann], &[], &[("authorization", "Bearer whf_b")]] {
        let params = json!({"name": "pup_echo", "arguments": {}});
        statuses.push(door.modern_with("tools/call", params, more).await.status.as_u16());
    }
    assert_eq!(statuses, [200, 200, 429, 401, 401]);
    assert_eq!(get(&door, "/metrics", &[]).await.status, StatusCode::UNAUTHORIZED);
    let foreign = [("host", "evil.example"), ann];
    assert_eq!(door.send(Method::GET, "/metrics", &foreign, "").await.status, StatusCode::FORBIDDEN);
    let page = get(&door, "/metrics", &[ann]).await.body;
    let now = Scrape::read(&page).unwrap();
    let rejected = |reason| now.value("wharf_requests_rejected_total", &[("reason", reason)]).unwrap();
    assert_eq!(
        (rejected("auth"), rejected("guard"), rejected("rate"), rejected("size")),
        (3.0, 1.0, 1.0, 0.0)
    );
    assert!(!page.contains("whf_"), "no key is in it");
    door.host.close().await;
}

#[tokio::test]
async fn l96_only_whoever_may_see_the_whole_sees_it() {
    let key = |name: &str| Key::new(CallerName::parse(name).unwrap(), Key::hash(&format!("whf_{name}")));
    let keys = || Callers::default().keys([key("ann"), key("ops")]);
    let (ann, ops) = (("authorization", "Bearer whf_ann"), ("authorization", "Bearer whf_ops"));
    let mut rules = CallerTable::default();
    rules.insert("*", CallerRules::new(["pup"], []).unwrap());
    let servers =
        || host([puppet("pup", &Puppet::of(Era::Modern)), puppet("secret", &Puppet::of(Era::Modern))]);
    // Callers are given parts, and nobody is named: nobody sees the whole.
    let door = open_with(servers().await, |b| b.callers(keys()).rules(rules.clone())).await;
    for path in ["/metrics", "/status"] {
        assert_eq!(get(&door, path, &[]).await.status, StatusCode::UNAUTHORIZED);
        let refused = get(&door, path, &[ops]).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
        assert!(!refused.body.contains("secret"), "{refused:?}");
    }
    let ready = get(&door, "/readyz", &[]).await;
    assert_eq!((ready.status, ready.json()), (StatusCode::OK, json!({"ready": true})));
    // Whoever is named does.
    let operators = [CallerName::parse("ops").unwrap()];
    let door = open_with(servers().await, |b| b.callers(keys()).rules(rules).operators(operators)).await;
    assert_eq!(get(&door, "/metrics", &[ann]).await.status, StatusCode::FORBIDDEN);
    assert_eq!(get(&door, "/metrics", &[ops]).await.status, StatusCode::OK);
    let status = get(&door, "/status", &[ops]).await.json();
    assert_eq!(status["servers"][1]["name"], "secret");
    // Where everyone is given everything, everyone with a key.
    let door = open_with(servers().await, |b| b.callers(keys())).await;
    assert_eq!(get(&door, "/metrics", &[]).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(get(&door, "/metrics", &[ann]).await.status, StatusCode::OK);
    assert_eq!(door.send(Method::POST, "/metrics", &[("host", &door.name()), ann], "").await.status, 405);
}

#[tokio::test]
async fn l96_ready_says_no_while_the_record_cannot_be_written() {
    let files = folder();
    let log = log_in(&files);
    let (host, audit) = audited(&log, quick().server(puppet("pup", &Puppet::of(Era::Modern)))).await;
    let door = open(host.clone()).await;
    assert_eq!(get(&door, "/readyz", &[]).await.json(), json!({"ready": true, "reasons": []}));
    let away = at(&files, "away");
    std::fs::rename(log.parent().unwrap(), &away).unwrap();
    std::fs::write(log.parent().unwrap(), "in the way").unwrap();
    assert_eq!(audit.flush().await.unwrap_err().kind(), "audit");
    let answer = get(&door, "/readyz", &[]).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.json()["reasons"][0]["what"], "audit", "{answer:?}");
    assert_eq!(get(&door, "/healthz", &[]).await.status, StatusCode::OK, "it lives");
    assert_eq!(scrape(&door).await.value("wharf_audit_writable", &[]), Some(0.0));
    std::fs::remove_file(log.parent().unwrap()).unwrap();
    std::fs::rename(&away, log.parent().unwrap()).unwrap();
    until("it can be written again", || audit.trail().ready().is_ok()).await;
    assert_eq!(get(&door, "/readyz", &[]).await.status, StatusCode::OK);
    host.close().await;
}

#[tokio::test]
async fn l96_ready_says_no_while_a_required_server_is_down() {
    let broken = Puppet::of(Era::Silent).with(|script| script.start = vec![Step::Exit(3)]);
    let servers = || [puppet("broken", &broken), puppet("fine", &Puppet::of(Era::Modern))];
    let required = |name: &str| [ServerName::parse(name).unwrap()];
    for (name, ready) in [("broken", false), ("fine", true), ("absent", false)] {
        let host = quick().servers(servers()).start().await.unwrap();
        host.tools().await;
        let door = open_with(host, |b| b.required(required(name))).await;
        let answer = get(&door, "/readyz", &[]).await;
        assert_eq!(answer.status.is_success(), ready, "{name}: {answer:?}");
        let told = answer.json();
        assert_eq!(told["ready"], ready);
        if !ready {
            assert_eq!(
                (&told["reasons"][0]["what"], &told["reasons"][0]["server"]),
                (&json!("server"), &json!(name))
            );
        }
        // Whatever is required, the other one works.
        assert!(call(&door, "fine_echo").await["result"].is_object());
        door.host.close().await;
    }
}

/// Whoever asks whether it is ready sends no calls before it is.
#[tokio::test]
async fn l96_a_required_server_that_is_back_makes_the_gateway_ready_though_nobody_calls_it() {
    let files = folder();
    let back = Crash { file: at(&files, "starts"), times: 2, code: 3 };
    let script = several(&files).with(|script| script.crash = Some(back));
    let host = quick().server(puppet("pup", &script)).start().await.unwrap();
    host.tools().await;
    let door = open_with(host, |b| b.required([ServerName::parse("pup").unwrap()])).await;
    assert_eq!(get(&door, "/readyz", &[]).await.status, StatusCode::SERVICE_UNAVAILABLE);
    soon("it is ready again", async {
        while !get(&door, "/readyz", &[]).await.status.is_success() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(count(&received(&at(&files, "log")), "tools/call"), 0);
    assert!(call(&door, "pup_echo").await["result"].is_object());
    door.host.close().await;
}

#[tokio::test]
async fn l96_a_required_server_that_is_left_alone_is_seen_everywhere_though_its_connection_lives() {
    let files = folder();
    let mut pup = puppet("pup", &several(&files));
    // Nothing that is honest takes so long.
    pup.timeout = Duration::from_secs(3);
    pup.resilience.breaker = Some(BreakerSettings { failures: 1, cool_down: Duration::from_secs(600) });
    let host = quick().server(pup).start().await.unwrap();
    let door = open_with(host, |b| b.required([ServerName::parse("pup").unwrap()])).await;
    let circuit = |now: &Scrape, word: &str| {
        now.value("wharf_server_circuit", &[("server", "pup"), ("instance", "1"), ("circuit", word)])
    };
    assert!(call(&door, "pup_echo").await["result"].is_object());
    assert!(get(&door, "/readyz", &[]).await.status.is_success());
    assert_eq!(circuit(&scrape(&door).await, "closed"), Some(1.0));
    assert_eq!(call(&door, "pup_hangs").await["error"]["data"]["kind"], "timeout");
    assert_eq!(call(&door, "pup_echo").await["error"]["data"]["kind"], "unavailable");
    assert_eq!(get(&door, "/readyz", &[]).await.status, StatusCode::SERVICE_UNAVAILABLE);
    let now = scrape(&door).await;
    assert_eq!((circuit(&now, "open"), circuit(&now, "closed")), (Some(1.0), Some(0.0)));
    assert_eq!(now.value("wharf_server_trouble", &[("server", "pup")]), Some(1.0));
    assert_eq!(outcomes(&now, "echo", "unavailable"), 1.0);
    let status = get(&door, "/status", &[]).await.json();
    let server = &status["servers"][0];
    assert_eq!((&server["state"], &server["circuit"]), (&json!("connected"), &json!("open")));
    assert!(server["trouble"].as_str().unwrap().contains("not asked at the moment"), "{server}");
    door.host.close().await;
}

#[tokio::test]
async fn l96_every_instance_and_every_process_is_told_of() {
    let files = folder();
    let mut pup = puppet("pup", &several(&files));
    pup.resilience.instances = 2;
    let mut own = puppet("own", &several(&files));
    own.share = Some(Share::Never);
    let door = open(quick().servers([pup, own]).start().await.unwrap()).await;
    for _ in 0..2 {
        assert!(call(&door, "pup_echo").await["result"].is_object());
    }
    let processes = |now: &Scrape, server: &str| now.value("wharf_server_processes", &[("server", server)]);
    let now = scrape(&door).await;
    assert_eq!(now.sum("wharf_server_instance_up", &[("server", "pup")]), 2.0);
    assert_eq!(processes(&now, "pup"), Some(2.0));
    let (before, sent) =
        (processes(&now, "own").unwrap(), count(&received(&at(&files, "log")), "tools/call"));
    let watching = async {
        let log = at(&files, "log");
        until("it is at the server", || count(&received(&log), "tools/call") > sent).await;
        assert!(processes(&scrape(&door).await, "own").unwrap() > before, "the process of one call");
    };
    tokio::select! {
        answer = call(&door, "own_waits") => panic!("{answer:?}"),
        () = watching => {}
    }
    door.host.close().await;
}

#[tokio::test]
async fn l96_ready_says_no_while_the_gateway_stops_and_calls_end() {
    let files = folder();
    let mut door = open(quick().server(puppet("pup", &several(&files))).start().await.unwrap()).await;
    assert_eq!(get(&door, "/readyz", &[]).await.status, StatusCode::OK);
    let address = door.at;
    let (idle, _) = tokio::sync::oneshot::channel();
    let watching =
        Door { at: address, host: door.host.clone(), gateway: door.gateway.clone(), stop: Some(idle) };
    let calling = call(&watching, "pup_waits");
    let stopping = async {
        until("it is at the server", || count(&received(&at(&files, "log")), "tools/call") == 1).await;
        door.stop();
        loop {
            let answer = get(&watching, "/readyz", &[]).await;
            if answer.status == StatusCode::SERVICE_UNAVAILABLE {
                assert_eq!(answer.json()["reasons"][0]["what"], "stopping", "{answer:?}");
                break;
            }
        }
        assert_eq!(get(&watching, "/healthz", &[]).await.status, StatusCode::OK);
        let late = watching.modern("tools/call", json!({"name": "pup_echo", "arguments": {}})).await;
        assert_eq!(late.status, StatusCode::SERVICE_UNAVAILABLE, "{late:?}");
        assert_eq!(late.headers["retry-after"], "1");
        let (told, kind) = (late.json(), "unavailable");
        assert_eq!((&told["id"], &told["error"]["data"]["kind"]), (&json!(7), &json!(kind)), "{told}");
        assert_eq!(told["error"]["data"]["retryable"], true, "{told}");
        // So much is not read for an id.
        let long = json!({"name": "pup_echo", "arguments": {"message": "x".repeat(70_000)}});
        let long = watching.modern("tools/call", long).await;
        assert_eq!(long.status, StatusCode::SERVICE_UNAVAILABLE, "{long:?}");
        let told = long.json();
        assert_eq!((&told["id"], &told["error"]["data"]["kind"]), (&Value::Null, &json!(kind)), "{told}");
        let stream = get(&watching, "/sse", &[]).await;
        assert_eq!(stream.status, StatusCode::SERVICE_UNAVAILABLE, "what has no id: {stream:?}");
        std::fs::write(at(&files, "gate"), "").unwrap();
    };
    let (answer, ()) = soon("the end", async { tokio::join!(calling, stopping) }).await;
    assert!(answer["result"]["content"].is_array(), "what was under way has ended: {answer}");
    #[expect(clippy::disallowed_methods, reason = "a caller in a test")]
    let closed = async { while tokio::net::TcpStream::connect(address).await.is_ok() {} };
    soon("then nobody listens any more", closed).await;
    assert_eq!(count(&received(&at(&files, "log")), "tools/call"), 1);
}
