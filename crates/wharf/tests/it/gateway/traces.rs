//! Traces: carried through in both eras, with spans of ours in between where a collector is there to take them.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use wharf::config::{ServerConfig, TelemetrySettings};
use wharf::mcp::trace::{TraceParent, is_baggage, is_state};
use wharf::names::ServerName;
use wharf::secret::Secret;
use wharf_testkit::http::{Reply, honest_legacy, honest_modern};
use wharf_testkit::{Era, HttpPuppet, Puppet, Recorded, Step};

use super::pipe::Caller;
use super::{Door, modern_body, open, open_with};
use crate::support::{at, folder, host, later, puppet, quick, received, soon, until};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// Of a resource.
const ADDRESS: &str = "x://secret-cove/chart";
const UNRECORDED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

/// Calls `pup_echo` in an era, with this `_meta` and these headers.
async fn call(door: &Door, era: Era, told: Value, headers: &[(&str, &str)]) -> Value {
    let params = json!({"name": "pup_echo", "arguments": {"message": "hush-hush"}, "_meta": told});
    let answer = match era {
        Era::Modern => door.modern_with("tools/call", params, headers).await,
        _ => {
            let (session, name) = (door.greet().await, door.name());
            let mut all = vec![
                ("host", name.as_str()),
                ("content-type", "application/json"),
                ("accept", "application/json, text/event-stream"),
                ("mcp-session-id", &session),
            ];
            all.extend(headers);
            let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
            door.send(Method::POST, "/mcp", &all, body.to_string()).await
        }
    };
    answer.json()
}

/// The `_meta` of the last call that reached a puppet.
fn told(log: &std::path::Path) -> Value {
    let mut calls = received(log).into_iter().rev().filter(|message| message["method"] == "tools/call");
    calls.next().expect("a call")["params"]["_meta"].clone()
}

/// A collector, and settings that send there.
fn collector() -> (HttpPuppet, TelemetrySettings) {
    let puppet = HttpPuppet::start(|_: Recorded| async { Reply::ok(json!({"partialSuccess": {}})) });
    let settings = sending_to(&puppet.url());
    (puppet, settings)
}

fn sending_to(url: &str) -> TelemetrySettings {
    let mut url: url::Url = url.parse().unwrap();
    url.set_path("");
    TelemetrySettings { otlp: Some(url), ..TelemetrySettings::default() }
}

/// Every span that a collector has, in the order of its coming.
fn spans(collector: &HttpPuppet) -> Vec<Value> {
    let mut all = Vec::new();
    for request in collector.requests() {
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/traces"));
        assert_eq!(request.header("content-type"), Some("application/json"));
        let body = request.json();
        let resource = &body["resourceSpans"][0]["resource"]["attributes"][0];
        assert_eq!(resource, &json!({"key": "service.name", "value": {"stringValue": "wharf"}}));
        all.extend(body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().iter().cloned());
    }
    all
}

fn attribute<'a>(span: &'a Value, key: &str) -> Option<&'a str> {
    let attributes = span["attributes"].as_array().unwrap();
    attributes.iter().find(|attribute| attribute["key"] == key)?["value"]["stringValue"].as_str()
}

#[test]
fn l96_a_trace_context_is_read_by_the_book() {
    let read = TraceParent::parse(PARENT).unwrap();
    assert_eq!((read.to_string().as_str(), read.is_sampled()), (PARENT, true));
    assert!(!TraceParent::parse(UNRECORDED).unwrap().is_sampled());
    let later = format!("cc{}-what-will-be", &PARENT[2..]);
    assert_eq!(TraceParent::parse(&later), Some(read), "a version to come");
    for bad in [
        "",
        "00-1-2-01",
        &PARENT.to_uppercase(),
        &format!("ff{}", &PARENT[2..]),
        &format!("{PARENT}-more"),
        &format!("{PARENT} "),
        &format!("cc{}x", &PARENT[2..]),
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333é-01",
        "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",
    ] {
        assert_eq!(TraceParent::parse(bad), None, "{bad}");
    }
    for (state, good) in [
        ("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", true),
        ("a@b=1, ,c=2", true),
        ("", false),
        ("a", false),
        ("A=1", false),
        ("a=", false),
        ("a=1\n", false),
        (&"a=1,".repeat(40), false),
        (&format!("a={}", "b".repeat(511)), false),
    ] {
        assert_eq!(is_state(state), good, "{state}");
    }
    for (baggage, good) in [
        ("userId=alice,serverNode=DF%2028;prop=1", true),
        ("a =1", true),
        ("", false),
        ("a b=1", false),
        ("a=\u{1}", false),
        (&format!("a={}", "b".repeat(8192)), false),
    ] {
        assert_eq!(is_baggage(baggage), good, "{baggage}");
    }
}

#[tokio::test]
async fn l96_a_callers_trace_reaches_the_server_unchanged_where_none_are_made() {
    let files = folder();
    for (caller, server) in
        [Era::Legacy, Era::Modern].into_iter().flat_map(|c| [Era::Legacy, Era::Modern].map(|s| (c, s)))
    {
        let log = at(&files, &format!("{caller:?}{server:?}"));
        let door = open(host([puppet("pup", &Puppet::of(server).log(&log))]).await).await;
        let all = json!({"tracestate": "rojo=1", "vendor/x": 1.50, "traceparent": PARENT, "baggage": "k=v"});
        call(&door, caller, all, &[("traceparent", UNRECORDED)]).await;
        let got = told(&log);
        assert_eq!(got["traceparent"], PARENT, "what the message says counts: {got}");
        assert_eq!((&got["tracestate"], &got["baggage"]), (&json!("rojo=1"), &json!("k=v")), "{got}");
        // Only in headers.
        let headers = [("traceparent", PARENT), ("tracestate", "congo=2"), ("baggage", "bad baggage")];
        call(&door, caller, json!({"vendor/x": 1}), &headers).await;
        let got = told(&log);
        assert_eq!((&got["traceparent"], &got["tracestate"]), (&json!(PARENT), &json!("congo=2")), "{got}");
        assert_eq!((&got["baggage"], &got["vendor/x"]), (&Value::Null, &json!(1)), "{got}");
        // What is not valid goes nowhere, and takes its state with it; the rest goes on.
        for bad in [json!("00-1-2-01"), json!(7), json!({"a": 1})] {
            let told_here =
                json!({"traceparent": bad, "tracestate": "rojo=1", "baggage": "k=v", "vendor/x": 2});
            call(&door, caller, told_here, &[]).await;
            let got = told(&log);
            assert_eq!((&got["traceparent"], &got["tracestate"]), (&Value::Null, &Value::Null), "{got}");
            assert_eq!((&got["baggage"], &got["vendor/x"]), (&json!("k=v"), &json!(2)), "{got}");
        }
        let bad_state = json!({"traceparent": PARENT, "tracestate": "NO"});
        call(&door, caller, bad_state, &[]).await;
        let got = told(&log);
        assert_eq!((&got["traceparent"], &got["tracestate"]), (&json!(PARENT), &Value::Null), "{got}");
        door.host.close().await;
    }
}

#[tokio::test]
async fn l96_spans_stand_between_the_callers_and_the_servers() {
    let files = folder();
    for (caller, server) in
        [Era::Legacy, Era::Modern].into_iter().flat_map(|c| [Era::Legacy, Era::Modern].map(|s| (c, s)))
    {
        let log = at(&files, &format!("{caller:?}{server:?}"));
        let (collector, mut settings) = collector();
        settings.headers.insert("Authorization".into(), Secret::new("Bearer open-sesame"));
        let servers = host([puppet("pup", &Puppet::of(server).log(&log))]).await;
        let door = open_with(servers, |b| b.telemetry(settings)).await;
        call(&door, caller, json!({"traceparent": PARENT, "tracestate": "rojo=1"}), &[]).await;
        let got = told(&log);
        until("the spans are there", || spans(&collector).len() == 2).await;
        let shown =
            collector.requests().into_iter().all(|r| r.header("authorization") == Some("Bearer open-sesame"));
        assert!(shown, "the collector knows who sends them");
        let [request, onward] = <[Value; 2]>::try_from(spans(&collector)).unwrap();
        assert_eq!((&request["traceId"], &onward["traceId"]), (&json!(TRACE), &json!(TRACE)));
        assert_eq!(request["parentSpanId"], "b7ad6b7169203331", "under the caller's");
        assert_eq!(onward["parentSpanId"], request["spanId"], "one under the other");
        let expected = format!("00-{TRACE}-{}-01", onward["spanId"].as_str().unwrap());
        assert_eq!(got["traceparent"], expected, "and the server's under that");
        assert_eq!(got["tracestate"], "rojo=1");
        assert_eq!((&request["kind"], &onward["kind"]), (&json!(2), &json!(3)));
        for span in [&request, &onward] {
            assert_eq!(span["name"], "tools/call echo");
            assert_eq!(attribute(span, "mcp.method.name"), Some("tools/call"));
            assert_eq!(attribute(span, "gen_ai.tool.name"), Some("echo"));
            assert_eq!(attribute(span, "wharf.server.name"), Some("pup"));
            assert_eq!(attribute(span, "error.type"), None);
            let time = |key: &str| span[key].as_str().unwrap().parse::<u128>().unwrap();
            assert!(time("startTimeUnixNano") <= time("endTimeUnixNano"), "{span}");
        }
        let body = String::from_utf8(collector.requests()[0].body.to_vec()).unwrap();
        assert!(!body.contains("hush-hush"), "no argument is in it: {body}");
        // A trace that its beginner does not record goes through as it is.
        call(&door, caller, json!({"traceparent": UNRECORDED}), &[]).await;
        assert_eq!(told(&log)["traceparent"], UNRECORDED);
        // One that begins here.
        call(&door, caller, json!({}), &[]).await;
        let begun = told(&log)["traceparent"].as_str().unwrap().to_owned();
        assert!(TraceParent::parse(&begun).is_some_and(TraceParent::is_sampled), "{begun}");
        until("those spans are there, too", || spans(&collector).len() == 4).await;
        assert_eq!(spans(&collector)[2]["parentSpanId"], Value::Null);
        door.host.close().await;
    }
}

#[tokio::test]
async fn l96_how_a_call_failed_is_on_its_spans() {
    let files = folder();
    let (collector, settings) = collector();
    let failed = json!({"content": [], "isError": true});
    let script = ["fails", "refuses", "waits"].into_iter().fold(Puppet::of(Era::Modern), Puppet::plain_tool);
    let script = script
        .log(at(&files, "log"))
        .on("tool:fails", [Step::Reply(failed)])
        .on("tool:refuses", [Step::ReplyError { code: -5, message: "no".into(), data: None }])
        .on("tool:waits", [Step::Hang]);
    let door = open_with(host([puppet("pup", &script)]).await, |b| b.telemetry(settings)).await;
    let call = |tool: &'static str| door.modern("tools/call", json!({"name": tool, "arguments": {}}));
    call("pup_fails").await;
    call("pup_refuses").await;
    call("pup_nothing").await;
    let at_server =
        || received(&at(&files, "log")).iter().filter(|m| m["method"] == "tools/call").count() == 3;
    tokio::select! {
        answer = call("pup_waits") => panic!("{answer:?}"),
        () = until("it is at the server", at_server) => {}
    }
    until("all spans are there", || spans(&collector).len() == 7).await;
    let all = spans(&collector);
    let errors: Vec<_> = all.iter().map(|span| attribute(span, "error.type").unwrap()).collect();
    let expected = [
        "tool_error",
        "tool_error",
        "tool",
        "tool",
        // Nothing was sent, so there is no span of that.
        "unknown_tool",
        "cancelled",
        "cancelled",
    ];
    assert_eq!(errors, expected);
    assert!(all.iter().all(|span| span["status"]["code"] == 2));
    assert_eq!(attribute(&all[2], "rpc.response.status_code"), Some("-5"));
    assert!(all.iter().all(|span| !span.to_string().contains("pup_nothing")), "a made up name is no name");
    door.host.close().await;
}

#[tokio::test]
async fn l96_a_collector_that_is_gone_or_hangs_holds_up_nothing() {
    let silent = HttpPuppet::start(|_: Recorded| async { Reply::Hang });
    let refusing = HttpPuppet::start(|_: Recorded| async { Reply::status(503) });
    for url in ["http://127.0.0.1:9".to_owned(), silent.url(), refusing.url()] {
        let servers = quick().server(puppet("pup", &Puppet::of(Era::Modern))).start().await.unwrap();
        let door = open_with(servers, |b| b.telemetry(sending_to(&url))).await;
        let answered = async || {
            let answer = soon("a call", call(&door, Era::Modern, json!({"traceparent": PARENT}), &[])).await;
            assert!(answer["result"].is_object(), "{answer}");
        };
        answered().await;
        if url == silent.url() {
            until("the collector has the first spans", || silent.requests().len() == 1).await;
            answered().await;
            assert_eq!(silent.hangups(), 0, "it hangs all the while: nobody has given it up");
        } else {
            answered().await;
        }
        for _ in 2..20 {
            answered().await;
        }
        let name = door.name();
        let failed = "wharf_telemetry_spans_total{fate=\"failed\"} 40\n";
        let look = async {
            while !door.send(Method::GET, "/metrics", &[("host", &name)], "").await.body.contains(failed) {
                // Longer than a collector is waited for.
                later(Duration::from_secs(6)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(3600), look).await.expect("they are counted as lost");
        door.host.close().await;
    }
}

#[tokio::test]
async fn l96_servers_over_http_hear_of_the_trace_in_a_header_too() {
    let tools = || vec![json!({"name": "echo", "inputSchema": {"type": "object"}})];
    let (modern, legacy) =
        (HttpPuppet::start(honest_modern(tools())), HttpPuppet::start(honest_legacy(tools(), true)));
    for server in [&modern, &legacy] {
        let config = ServerConfig::http(ServerName::parse("pup").unwrap(), &server.url()).unwrap();
        let door = open(host([config]).await).await;
        let all = json!({"traceparent": PARENT, "tracestate": "rojo=1", "baggage": "k=v"});
        let answer = call(&door, Era::Modern, all, &[]).await;
        assert!(answer["result"].is_object(), "{answer}");
        let calls: Vec<_> =
            server.requests().into_iter().filter(|r| r.rpc_method() == "tools/call").collect();
        assert_eq!(calls[0].header("traceparent"), Some(PARENT));
        assert_eq!(calls[0].header("tracestate"), Some("rojo=1"));
        assert_eq!(calls[0].header("baggage"), Some("k=v"));
        // The twin: what nobody said, or said wrongly, is not there.
        call(&door, Era::Modern, json!({"tracestate": "NO", "baggage": "bad baggage"}), &[]).await;
        let last = server.requests().into_iter().rfind(|r| r.rpc_method() == "tools/call").unwrap();
        for name in ["traceparent", "tracestate", "baggage"] {
            assert_eq!(last.header(name), None, "{name}");
        }
        door.host.close().await;
    }
}

#[tokio::test]
async fn l96_prompts_and_resources_have_spans_too() {
    let (collector, settings) = collector();
    let files = folder();
    let script = Puppet::of(Era::Modern)
        .with(|script| script.capabilities = Some(json!({"tools": {}, "prompts": {}, "resources": {}})))
        .log(at(&files, "log"))
        .on("prompts/list", [Step::Reply(json!({"prompts": [{"name": "tide"}]}))])
        .on("prompts/get", [Step::Reply(json!({"messages": []}))])
        .on("resources/list", [Step::Reply(json!({"resources": [{"uri": ADDRESS, "name": "chart"}]}))])
        .on("resources/read", [Step::Reply(json!({"contents": [{"uri": ADDRESS, "text": "deep"}]}))]);
    let door = open_with(host([puppet("pup", &script)]).await, |b| b.telemetry(settings)).await;
    let listed = door.modern("prompts/list", json!({})).await.json();
    let name =
        listed["result"]["prompts"][0]["name"].as_str().unwrap_or_else(|| panic!("{listed}")).to_owned();
    let params = modern_body("prompts/get", json!({"name": name, "_meta": {"traceparent": PARENT}}));
    let answer = door.modern("prompts/get", params["params"].clone()).await.json();
    assert!(answer["result"]["messages"].is_array(), "{answer}");
    until("the spans are there", || spans(&collector).len() == 2).await;
    let all = spans(&collector);
    assert_eq!((&all[0]["name"], &all[1]["parentSpanId"]), (&json!("prompts/get"), &all[0]["spanId"]));
    let got = received(&at(&files, "log")).into_iter().find(|m| m["method"] == "prompts/get").unwrap();
    let told = got["params"]["_meta"]["traceparent"].as_str().unwrap();
    assert!(told.contains(all[1]["spanId"].as_str().unwrap()), "{told}");

    let listed = door.modern("resources/list", json!({})).await.json();
    let uri =
        listed["result"]["resources"][0]["uri"].as_str().unwrap_or_else(|| panic!("{listed}")).to_owned();
    let params = modern_body("resources/read", json!({"uri": uri, "_meta": {"traceparent": PARENT}}));
    let read = door.modern("resources/read", params["params"].clone()).await.json();
    assert_eq!(read["result"]["contents"][0]["text"], "deep", "{read}");
    until("its spans are there", || spans(&collector).len() == 4).await;
    let all = spans(&collector);
    assert_eq!((&all[2]["name"], &all[3]["parentSpanId"]), (&json!("resources/read"), &all[2]["spanId"]));
    let got = received(&at(&files, "log")).into_iter().find(|m| m["method"] == "resources/read").unwrap();
    assert_eq!(got["params"]["uri"], ADDRESS, "it did go there");
    let sent: Vec<_> = collector.requests().into_iter().map(|request| request.json().to_string()).collect();
    assert!(!sent.concat().contains("secret-cove"), "an address may say too much: {sent:?}");
    door.host.close().await;
}

#[tokio::test]
async fn l96_what_a_server_says_of_its_trace_reaches_the_caller_unchanged() {
    let trace = json!({"traceparent": PARENT, "tracestate": "rojo=1", "baggage": "k=v", "vendor/x": 1.50});
    let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress",
        "params": {"progressToken": "TOKEN", "progress": 1, "_meta": trace}});
    let progress = Step::Raw(progress.to_string().replace("\"TOKEN\"", "$TOKEN"));
    let question = json!({"message": "Where to?", "requestedSchema": {"type": "object", "properties": {}}, "_meta": trace});
    let asks = Step::Ask { method: "elicitation/create".into(), params: question.clone() };
    let wants = Step::InputRequired {
        requests: Some(json!({"q1": {"method": "elicitation/create", "params": question}})),
        state: None,
        forever: false,
    };
    for (era, asking) in [(Era::Legacy, asks), (Era::Modern, wants)] {
        let script = Puppet::of(era).on("tool:echo", [progress.clone(), asking, Step::ReplyWithAnswer]);
        let host = quick().server(puppet("pup", &script)).start().await.unwrap();
        let door = open(host.clone()).await;
        // A modern caller is told and asked in the answer to its call.
        let mut params = json!({"name": "pup_echo", "arguments": {}, "_meta": {"progressToken": "mine"}});
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {"form": {}}});
        let events = door.modern("tools/call", params).await.events();
        let told = events.iter().find(|event| event["method"] == "notifications/progress");
        let told = &told.unwrap_or_else(|| panic!("{events:?}"))["params"];
        assert_eq!((&told["_meta"], &told["progressToken"]), (&trace, &json!("mine")), "{era:?}");
        let asked = &events.last().unwrap()["result"]["inputRequests"];
        let asked =
            asked.as_object().and_then(|all| all.values().next()).unwrap_or_else(|| panic!("{events:?}"));
        assert_eq!(asked["params"]["_meta"], trace, "{era:?}: {asked}");
        // A legacy one by messages of their own.
        let mut caller = Caller::of(&host);
        caller.greet(json!({"elicitation": {}})).await;
        let params = json!({"name": "pup_echo", "arguments": {}, "_meta": {"progressToken": "mine"}});
        caller.ask(7, "tools/call", params).await;
        let told = caller.next().await;
        assert_eq!(told["method"], "notifications/progress", "{told}");
        assert_eq!(told["params"]["_meta"], trace, "{era:?}: {told}");
        let asked = caller.next().await;
        assert_eq!(asked["method"], "elicitation/create", "{asked}");
        assert_eq!(asked["params"]["_meta"], trace, "{era:?}: {asked}");
        host.close().await;
    }
}
