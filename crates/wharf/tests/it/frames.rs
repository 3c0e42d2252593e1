//! Frames from hostile and clumsy servers: what is taken, what is refused, and that the connection outlives it.

use std::time::Duration;

use serde_json::{Value, json};
use wharf::Error;
use wharf::wire::{Json, Limits};
use wharf_testkit::{Era, Puppet, Step};

use crate::support::{at, echo, error, folder, once, pup, puppet, quick, received, soon, until, within};

const GOOD: &str = r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"fine"}]}}"#;

fn legacy() -> Puppet {
    Puppet::of(Era::Legacy)
}

/// Calls once, expects a protocol error that says this, and then that the same connection still works.
async fn refused_then_fine(puppet: &Puppet, reason: &str) {
    let host = pup(puppet).await;
    let before = soon("a connection", host.berth("pup").unwrap().connection()).await.unwrap();
    let outcome = soon("the bad answer", host.call("pup_echo", json!({}))).await;
    let Error::Protocol { reason: said, .. } = error(&outcome) else { panic!("{reason}: {outcome:?}") };
    assert!(said.contains(reason), "expected `{reason}` in: {said}");
    assert!(outcome.took < Duration::from_secs(20), "it waited for the timeout: {:?}", outcome.took);
    assert!(before.strays().malformed > 0, "{reason}: {:?}", before.strays());
    let next = echo(&host).await;
    assert!(next.success, "{reason}: {next:?}");
    let after = host.berth("pup").unwrap().connection().await.unwrap();
    assert_eq!(before.number(), after.number(), "{reason}: the connection was made anew");
    host.close().await;
}

#[tokio::test]
async fn frm_01_a_line_of_the_limit_is_taken_and_one_more_byte_is_not() {
    let limit = 100_000;
    for (bytes, fits) in [(limit - 1, true), (limit, true), (limit + 1, false), (40 * limit, false)] {
        let script = legacy().on("tool:echo", once(Step::LongLine { bytes, id: true, newline: true }));
        let limits = Limits { line: limit, ..Limits::default() };
        let host = quick().limits(limits).server(puppet("pup", &script)).start().await.unwrap();
        let outcome = echo(&host).await;
        assert_eq!(outcome.success, fits, "{bytes} bytes: {:?}", outcome.error);
        if !fits {
            let said = outcome.reason.clone().unwrap();
            assert!(said.contains(&bytes.to_string()) && said.contains(&limit.to_string()), "{said}");
            assert_eq!(error(&outcome).kind(), "protocol");
        }
        assert!(echo(&host).await.success, "the line after a long one is intact");
        host.close().await;
    }
}

#[tokio::test]
async fn frm_01_a_server_that_is_not_ready_for_a_line_over_the_limit_is_told_so() {
    let limit = 100_000;
    // One more without an end: it could be that of a line break.
    let line = |id, newline| Step::LongLine { bytes: limit + if newline { 1 } else { 2 }, id, newline };
    for (steps, words) in [
        (vec![line(false, true), Step::Hang], "its line has 100001 bytes, more than the limit of 100000"),
        (vec![line(false, false), Step::Hang], "its line has more than 100000 bytes, which is the limit"),
        (vec![line(true, true)], "its line has 100001 bytes, more than the limit of 100000"),
        (vec![Step::Hang], "not ready within 1s (`start_timeout`)\n"),
    ] {
        let mut config = puppet("pup", &Puppet::of(Era::Legacy).on("initialize", steps));
        config.start_timeout = Duration::from_secs(1);
        let limits = Limits { line: limit, ..Limits::default() };
        let host = quick().limits(limits).server(config).start().await.unwrap();
        let failure = host.berth("pup").unwrap().connect().await.unwrap_err();
        assert!(format!("{failure}\n").contains(words), "{words}: {failure}");
        host.close().await;
    }
}

#[tokio::test]
async fn frm_06_pieces_of_a_message_and_several_in_one_write_are_the_same_messages() {
    let split = legacy().on("tool:echo", [Step::SplitBytes(GOOD.into())]);
    let two = legacy().on("tool:echo", [Step::RawNoNewline(format!("{}\n{GOOD}\n", note("a/b")))]);
    let blank = legacy().on("tool:echo", [Step::RawNoNewline(format!("\n  \n\r\n{GOOD}\r\n"))]);
    let indented = legacy().on("tool:echo", [Step::Raw(format!(" \t{GOOD}"))]);
    for script in [split, two, blank, indented] {
        let host = pup(&script).await;
        let outcome = echo(&host).await;
        assert_eq!(outcome.to_text(), "fine", "{outcome:?}");
        host.close().await;
    }
}

#[tokio::test]
async fn frm_06_the_last_message_needs_no_line_break_but_half_a_message_is_none() {
    let whole = legacy().on("tool:echo", [Step::RawNoNewline(GOOD.into()), Step::Exit(0)]);
    let host = pup(&whole).await;
    assert_eq!(echo(&host).await.to_text(), "fine");
    host.close().await;

    let half = legacy().on("tool:echo", [Step::RawNoNewline(GOOD[..40].into()), Step::Exit(0)]);
    let host = pup(&half).await;
    assert_eq!(error(&echo(&host).await).kind(), "unknown_outcome");
    host.close().await;
}

#[tokio::test]
async fn frm_07_answers_to_nobody_are_counted_and_reach_nobody() {
    let wrong = [
        r#"{"jsonrpc":"2.0","id":424242,"result":{"content":[]}}"#,
        r#"{"jsonrpc":"2.0","id":"nobody","result":{"content":[]}}"#,
        r#"{"jsonrpc":"2.0","id":null,"result":{"content":[]}}"#,
        r#"{"jsonrpc":"2.0","id":-1,"result":{"content":[]}}"#,
        r#"{"jsonrpc":"2.0","id":18446744073709551616,"result":{"content":[]}}"#,
    ];
    let mut steps: Vec<Step> = wrong.iter().map(|line| Step::Raw((*line).into())).collect();
    steps.extend([Step::Raw(GOOD.into()), Step::Raw(GOOD.replace("fine", "again"))]);
    let host = pup(&legacy().on("tool:echo", steps)).await;
    let connection = host.berth("pup").unwrap().connection().await.unwrap();
    assert_eq!(echo(&host).await.to_text(), "fine");
    until("all strays are counted", || connection.strays().answers == 6).await;
    assert_eq!(echo(&host).await.to_text(), "fine", "the second answer went to nobody");
    until("all strays are counted", || connection.strays().answers == 12).await;
    host.close().await;
}

#[tokio::test]
async fn frm_07_an_id_in_another_spelling_is_a_protocol_error_of_its_call() {
    for id in [r#""$ID""#, "$ID.0"] {
        let line = GOOD.replace("$ID", id);
        refused_then_fine(&legacy().on("tool:echo", once(Step::Raw(line))), "its id is not the number").await;
    }
}

#[tokio::test]
async fn frm_08_a_late_answer_never_meets_the_next_call() {
    let files = folder();
    let go = at(&files, "go");
    let late = vec![Step::WaitFor(go.clone()), Step::Raw(GOOD.replace("fine", "late"))];
    let script = legacy().on("tool:echo", [Step::Turns(vec![late, vec![Step::Raw(GOOD.into())]])]);
    let host = pup(&script).await;
    let connection = host.berth("pup").unwrap().connection().await.unwrap();
    host.tools().await;
    let outcome =
        host.call_with("pup_echo", Json::from(json!({})), within(Duration::from_millis(100), None)).await;
    assert_eq!(error(&outcome).kind(), "timeout");
    std::fs::write(&go, "").unwrap();
    until("the late answer is counted", || connection.strays().answers == 1).await;
    for _ in 0..20 {
        assert_eq!(echo(&host).await.to_text(), "fine");
    }
    host.close().await;
}

#[tokio::test]
async fn frm_09_every_malformed_answer_ends_its_call_at_once_and_the_next_works() {
    let cases = [
        (r#"{"jsonrpc":"2.0","id":$ID}"#, "neither"),
        (r#"{"jsonrpc":"2.0","id":$ID,"result":{},"error":{"code":1,"message":"x"}}"#, "both"),
        (r#"{"jsonrpc":"1.0","id":$ID,"result":{"content":[]}}"#, "jsonrpc"),
        (r#"{"id":$ID,"result":{"content":[]}}"#, "jsonrpc"),
        (r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":"1","message":"x"}}"#, "code"),
        (r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":1}}"#, "message"),
        (r#"{"jsonrpc":"2.0","id":$ID,"error":"no"}"#, "code"),
        (r#"{"jsonrpc":"2.0","id":$ID,"method":"a","result":{}}"#, "both"),
        (r#"{"jsonrpc":"2.0","id":$ID,"id":$ID,"result":{"content":[]}}"#, "twice"),
        (r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[]},"result":{"content":[]}}"#, "twice"),
        (r#"{"jsonrpc":"2.0","id":$ID,"result":{"cont"#, "not acceptable JSON"),
        (r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}} trailing"#, "not acceptable JSON"),
        (r#"[{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}}]"#, "batch"),
        (r#"[{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}},{"jsonrpc":"2.0","method":"x"}]"#, "batch"),
    ];
    for (line, reason) in cases {
        refused_then_fine(&legacy().on("tool:echo", once(Step::Raw(line.into()))), reason).await;
    }
    // Probe, handshake and list come first, so the call is the fourth request.
    let mut bytes = br#"{"jsonrpc":"2.0","id":4,"result":{"x":""#.to_vec();
    bytes.extend(b"\xff\"}}\n");
    let hex = bytes.iter().map(|b| format!("{b:02x}")).collect();
    let script = legacy().on("tool:echo", once(Step::Bytes { hex }));
    refused_then_fine(&script, "not acceptable JSON").await;
}

#[tokio::test]
async fn frm_09_twin_a_null_beside_the_other_member_is_how_old_libraries_answer() {
    let result = GOOD.replace("}]}}", "}]},\"error\":null}");
    let host = pup(&legacy().on("tool:echo", [Step::Raw(result)])).await;
    assert_eq!(echo(&host).await.to_text(), "fine");
    host.close().await;

    let failure = r#"{"jsonrpc":"2.0","id":$ID,"result":null,"error":{"code":-5,"message":"no"}}"#;
    let host = pup(&legacy().on("tool:echo", [Step::Raw(failure.into())])).await;
    let outcome = echo(&host).await;
    assert_eq!(error(&outcome).kind(), "tool", "{outcome:?}");
    host.close().await;
}

#[tokio::test]
async fn frm_10_what_was_not_offered_is_refused_and_the_call_goes_on() {
    for method in ["sampling/createMessage", "elicitation/create", "roots/list", "made/up"] {
        let params = json!({"message": "m", "requestedSchema": {"type": "object", "properties": {}}});
        let steps = [Step::Ask { method: method.into(), params }, Step::ReplyWithAnswer];
        let host = pup(&legacy().on("tool:echo", steps)).await;
        let outcome = echo(&host).await;
        assert!(outcome.success, "{method}: {outcome:?}");
        let answer: Value = serde_json::from_str(&outcome.to_text()).unwrap();
        assert_eq!(answer["code"], -32601, "{method}: {answer}");
        host.close().await;
    }
    let ping = [Step::Ask { method: "ping".into(), params: json!({}) }, Step::ReplyWithAnswer];
    let host = pup(&legacy().on("tool:echo", ping)).await;
    assert_eq!(echo(&host).await.to_text(), "{}", "a ping is always answered");
    host.close().await;
}

#[tokio::test]
async fn frm_11_an_unknown_kind_of_result_is_none_and_questions_have_an_end() {
    let odd = json!({"resultType": "riddle", "content": []});
    let host = pup(&Puppet::of(Era::Modern).on("tool:echo", once(Step::Reply(odd)))).await;
    let outcome = echo(&host).await;
    assert_eq!(error(&outcome).kind(), "protocol");
    assert!(outcome.reason.as_ref().unwrap().contains("riddle"), "{outcome:?}");
    assert!(echo(&host).await.success);
    host.close().await;

    let files = folder();
    let log = at(&files, "log");
    let steps = [Step::InputRequired { requests: None, state: Some("s".into()), forever: true }];
    let host = pup(&Puppet::of(Era::Modern).on("tool:echo", steps).log(&log)).await;
    let outcome = echo(&host).await;
    assert_eq!(error(&outcome).kind(), "protocol", "{outcome:?}");
    assert!(outcome.reason.unwrap().contains("10 times"));
    assert_eq!(crate::support::count(&received(&log), "tools/call"), 10);
    host.close().await;
}

#[tokio::test]
async fn frm_12_a_banner_is_passed_over_and_too_much_of_it_is_an_error_that_shows_it() {
    let lines = |n: usize| -> Vec<String> { (0..n).map(|i| format!("Welcome {i} \u{1b}[31m!")).collect() };
    for (banner, limit, works) in [(3, 50, true), (50, 50, true), (51, 50, false), (1, 0, false)] {
        let limits = Limits { banner_lines: limit, ..Limits::default() };
        let script = Puppet::new().with(|s| s.banner = lines(banner));
        let host = quick().limits(limits).server(puppet("pup", &script)).start().await.unwrap();
        let outcome = echo(&host).await;
        assert_eq!(outcome.success, works, "{banner} of {limit}: {outcome:?}");
        if !works {
            let failed = host.tools_of("pup").await.unwrap_err().to_string();
            assert!(failed.contains("Welcome") && failed.contains("standard output"), "{failed}");
            assert!(!failed.contains('\u{1b}'), "what it wrote is shown escaped");
        }
        host.close().await;
    }
}

#[tokio::test]
async fn frm_13_progress_for_ever_does_not_outlive_the_hard_limit() {
    let steps = [Step::Progress { count: None, interval_ms: 5 }];
    let script = legacy().plain_tool("busy").plain_tool("echo").on("tool:busy", steps);
    let host = pup(&script).await;
    host.tools().await;
    let connection = host.berth("pup").unwrap().connection().await.unwrap();
    let options = within(Duration::from_millis(400), Some(Duration::from_millis(900)));
    let outcome = soon("the hard limit", host.call_with("pup_busy", Json::from(json!({})), options)).await;
    let Error::Timeout { after, .. } = error(&outcome) else { panic!("{outcome:?}") };
    assert!(*after >= Duration::from_millis(900), "progress kept it alive until the hard limit: {after:?}");
    // The server goes on and on about a call that is over. That is not held against the others.
    until("late progress came", || connection.strays().notifications > 150).await;
    let outcome = echo(&host).await;
    assert!(outcome.success, "{outcome:?}");
    assert!(connection.is_open());
    host.close().await;
}

#[tokio::test]
async fn frm_14_big_and_odd_numbers_are_forwarded_as_they_were_written() {
    let arguments = r#"{"message":"x","a":9223372036854775808,"b":1e22,"c":-0,"d":1.10,"e":123456789012345678901234567890}"#;
    for era in [Era::Legacy, Era::Modern] {
        let host = pup(&Puppet::of(era)).await;
        let outcome = host.call("pup_echo", Json::parse(arguments.as_bytes().to_vec(), 64).unwrap()).await;
        assert_eq!(outcome.to_text(), arguments);
        host.close().await;
    }
    let files = folder();
    let log = at(&files, "log");
    let ask = r#"{"jsonrpc":"2.0","id":9223372036854775808,"method":"ping"}"#;
    let host = pup(&legacy().on("tool:echo", [Step::Raw(ask.into()), Step::Honest]).log(&log)).await;
    assert!(echo(&host).await.success);
    until("the ping is answered", || {
        std::fs::read_to_string(&log).unwrap_or_default().contains(r#""id":9223372036854775808"#)
    })
    .await;
    host.close().await;
}

fn note(method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#)
}

#[tokio::test]
async fn l36_a_hundred_unexpected_notifications_are_borne_and_one_more_is_not() {
    for (count, borne) in [(100, true), (101, false)] {
        let steps = [Step::Flood { line: note("nobody/wants"), count: Some(count) }, Step::Honest];
        let host = pup(&legacy().on("tool:echo", steps)).await;
        let connection = host.berth("pup").unwrap().connection().await.unwrap();
        let outcome = echo(&host).await;
        assert_eq!(outcome.success, borne, "{count}: {outcome:?}");
        if borne {
            assert!(echo(&host).await.success, "the count begins anew with every call");
            assert_eq!(connection.strays().notifications, 2 * count);
        } else {
            assert_eq!(error(&outcome).kind(), "protocol");
            assert!(outcome.reason.unwrap().contains("100"));
            assert!(!connection.is_open());
        }
        host.close().await;
    }
}

#[tokio::test]
async fn l36_wanted_notifications_do_not_count_and_the_limit_can_be_set() {
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#;
    let steps = [
        Step::Flood { line: log.into(), count: Some(500) },
        Step::Flood { line: note("notifications/tools/list_changed"), count: Some(500) },
        Step::Progress { count: Some(500), interval_ms: 0 },
        Step::Honest,
    ];
    let host = pup(&legacy().on("tool:echo", steps)).await;
    assert!(echo(&host).await.success);
    host.close().await;

    let steps = [Step::Flood { line: note("nobody/wants"), count: Some(3) }, Step::Honest];
    let script = legacy().on("tool:echo", steps);
    for (limit, borne) in [(3, true), (2, false)] {
        let limits = Limits { unexpected_notifications: limit, ..Limits::default() };
        let host = quick().limits(limits).server(puppet("pup", &script)).start().await.unwrap();
        assert_eq!(echo(&host).await.success, borne);
        host.close().await;
    }
}

#[tokio::test]
async fn l36_a_flood_while_nobody_waits_is_only_counted() {
    let script = Puppet::of(Era::Legacy)
        .on("tool:echo", [Step::Honest, Step::Flood { line: note("nobody/wants"), count: Some(5000) }]);
    let host = pup(&script).await;
    let connection = host.berth("pup").unwrap().connection().await.unwrap();
    assert!(echo(&host).await.success);
    until("all are counted", || connection.strays().notifications == 5000).await;
    assert!(connection.is_open());
    host.close().await;
}

/// A neighbour that is always ready sees how much is taken between two of its own turns.
#[tokio::test]
async fn p3_a_flood_that_came_at_once_is_taken_in_turns_with_others() {
    const ALL: u64 = 5000;
    let files = folder();
    let written = at(&files, "written");
    let flood = Step::Flood { line: note("nobody/wants"), count: Some(ALL) };
    let script = Puppet::of(Era::Legacy).on("tool:echo", [Step::Honest, flood, Step::Count(written.clone())]);
    let host = pup(&script).await;
    let connection = host.berth("pup").unwrap().connection().await.unwrap();
    assert!(echo(&host).await.success);
    // The pipe holds all of it, and nobody reads until then: this is the only thread.
    let patience = std::time::Instant::now();
    while !written.exists() && patience.elapsed() < Duration::from_secs(20) {
        std::thread::yield_now();
    }
    let (mut seen, mut most) = (connection.strays().notifications, 0);
    assert!(seen < ALL / 2, "{seen} were taken before");
    while seen < ALL {
        tokio::task::yield_now().await;
        let now = connection.strays().notifications;
        (seen, most) = (now, most.max(now - seen));
    }
    // The end of one read and the beginning of the next.
    assert!(most <= 32, "{most} of them kept the others waiting");
    host.close().await;
}
