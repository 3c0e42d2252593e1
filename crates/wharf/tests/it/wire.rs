//! Hostile frames and their honest twins (FRM), at the boundary of `wharf::wire`.

use bytes::Bytes;
use wharf::wire::{
    Json, JsonError, Limits, Line, Lines, Malformed, Members, Message, Pending, ReplyId, SseParser,
    notification, parse_frame, request, response_result,
};

fn one(frame: &str) -> Result<Message, Malformed> {
    let mut messages = parse_frame(Bytes::copy_from_slice(frame.as_bytes()), 127);
    assert_eq!(messages.len(), 1, "{frame}");
    messages.remove(0)
}

fn refused(frame: &str) -> Malformed {
    match one(frame) {
        Err(malformed) => malformed,
        Ok(message) => panic!("{frame} was taken as {message:?}"),
    }
}

fn answer(frame: &str) -> (ReplyId, String) {
    match one(frame) {
        Ok(Message::Response { id, outcome: Ok(result) }) => (id, result.as_str().to_owned()),
        other => panic!("{frame} was taken as {other:?}"),
    }
}

/// All lines of a stream that arrives in one piece.
fn lines(max: usize, stream: &[u8]) -> Vec<Line> {
    let mut lines = Lines::new(max);
    lines.room().extend_from_slice(stream);
    let mut out: Vec<Line> = std::iter::from_fn(|| lines.next_line()).collect();
    out.extend(lines.last_line());
    out
}

fn text(line: &str) -> Line {
    Line::Text(Bytes::copy_from_slice(line.as_bytes()))
}

// --- FRM-01: length ---

#[test]
fn frm_01_a_line_at_the_limit_passes_and_one_byte_more_does_not() {
    for ending in ["\n", "\r\n", ""] {
        for (length, fits) in [(99, true), (100, true), (101, false), (102, false), (5000, false)] {
            let long = "x".repeat(length);
            let first = if fits { text(&long) } else { Line::TooLong { id: None, length: length as u64 } };
            assert_eq!(lines(100, format!("{long}{ending}").as_bytes()), [first], "{length} {ending:?}");
        }
    }
    for stream in [format!("{}\r\r\n", "x".repeat(100)), format!("{}\r\r", "x".repeat(100))] {
        assert_eq!(
            lines(100, stream.as_bytes()),
            [Line::TooLong { id: None, length: 101 }],
            "one `\\r` is the line's"
        );
    }
    let stream = format!("{}\nnext\n", "x".repeat(101));
    assert_eq!(lines(100, stream.as_bytes())[1], text("next"), "the stream recovers");
}

#[test]
fn frm_01_the_default_limit_is_ten_mebibytes() {
    let limits = Limits::default();
    assert_eq!((limits.line, limits.event, limits.body), (10_485_760, 10_485_760, 10_485_760));
    assert_eq!((limits.depth, limits.unexpected_notifications), (127, 100));
    for (length, fits) in [(10_485_759, true), (10_485_760, true), (10_485_761, false)] {
        let mut line = vec![b'x'; length];
        line.push(b'\n');
        assert_eq!(matches!(lines(limits.line, &line)[..], [Line::Text(_)]), fits, "{length}");
    }
}

#[test]
fn frm_01_a_gigabyte_without_a_line_break_fills_no_memory_and_ends_its_call() {
    let mut lines = Lines::new(1 << 20);
    lines.room().extend_from_slice(br#"{"jsonrpc":"2.0","id":42,"result":""#);
    let chunk = vec![b'x'; 64 * 1024];
    let mut largest = 0;
    for _ in 0..1 << 14 {
        lines.room().extend_from_slice(&chunk);
        assert_eq!(lines.next_line(), None);
        largest = largest.max(lines.room().capacity());
    }
    assert!(largest <= 4 << 20, "{largest} bytes were kept");
    lines.room().extend_from_slice(b"\"}\n{\"id\":1}\n");
    assert_eq!(lines.next_line(), Some(Line::TooLong { id: Some(42), length: (1 << 30) + 37 }));
    assert_eq!(lines.next_line(), Some(text("{\"id\":1}")));
}

#[test]
fn frm_01_the_id_of_an_over_long_line_is_read_where_it_can_be() {
    let id = |line: String| match &lines(100, line.as_bytes())[..] {
        [Line::TooLong { id, .. }] => *id,
        other => panic!("{other:?}"),
    };
    let long = "x".repeat(9000);
    assert_eq!(id(format!("{{\"id\":7,\"result\":\"{long}\"}}")), Some(7), "first");
    assert_eq!(id(format!("{{\"result\":\"{long}\",\"id\":7}}")), Some(7), "last");
    assert_eq!(id(format!("{{\"a\":\"{long}\",\"id\":7,\"b\":\"{long}\"}}\n")), Some(7), "in the middle");
    assert_eq!(id(format!("{{\"result\":{{\"id\":7,\"x\":\"{long}\"}}}}")), None, "nested");
    assert_eq!(id(format!("{{\"result\":\"{long}\\\"id\\\":7}}")), None, "inside a string");
    assert_eq!(
        id(format!("{{\"id\":7,\"method\":\"log\",\"params\":\"{long}\"}}")),
        None,
        "a request of the server"
    );
}

// --- FRM-03: nesting ---

#[test]
fn frm_03_nesting_at_the_limit_passes_and_deeper_is_refused() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let objects = |depth: usize| "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth);
    for (depth, fits) in [(2, true), (126, true), (127, true), (128, false), (100_000, false)] {
        assert_eq!(Json::parse(nested(depth), 127).is_ok(), fits, "{depth}");
        assert_eq!(Json::parse_strict(objects(depth), 127).is_ok(), fits, "{depth}");
        // What is accepted can be read back.
        assert_eq!(serde_json::from_str::<serde_json::Value>(&nested(depth)).is_ok(), fits, "{depth}");
        let frame = format!("{{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{}}}", nested(depth - 1));
        match one(&frame) {
            Ok(_) => assert!(fits, "{depth}"),
            Err(malformed) => {
                assert!(
                    !fits && malformed.id == Some(5) && malformed.reason.contains("nested too deeply"),
                    "{depth}: {malformed:?}"
                )
            }
        }
    }
    assert!(
        Json::parse(nested(10), 10).is_ok() && Json::parse(nested(11), 10).is_err(),
        "a lower limit holds"
    );
    assert!(Json::parse(nested(128), 9999).is_err(), "a higher limit than can be read back is not given");
    assert!(Json::parse("[".repeat(127), 127).is_err() && Json::parse("]", 127).is_err());
}

// --- FRM-05: bytes that are no message ---

#[test]
fn frm_05_bad_bytes_are_refused_and_end_their_call() {
    let frames: [&[u8]; 6] = [
        b"{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":\"\xff\"}",
        b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}",
        b"{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":\"\\ud800\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":\"\\udc00\\ud800\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":\"\0\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}\0",
    ];
    for frame in frames {
        let messages = parse_frame(Bytes::from_static(frame), 127);
        assert!(matches!(&messages[..], [Err(Malformed { id: Some(3), .. })]), "{messages:?}");
    }
    let pair = "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":\"\\ud83d\\ude00 \\u0000 é\"}";
    assert_eq!(
        answer(pair),
        (ReplyId::Number(3), "\"\\ud83d\\ude00 \\u0000 é\"".to_owned()),
        "a whole pair is kept"
    );
}

#[test]
fn frm_05_blank_lines_are_skipped_and_a_lone_cr_ends_no_line() {
    assert_eq!(lines(100, b"\n\r\n  \t \n{\"a\":1}\r\n\n"), [text("{\"a\":1}")]);
    assert_eq!(lines(100, b"{\"a\":1}\r{\"b\":2}\r"), [text("{\"a\":1}\r{\"b\":2}")]);
    let glued = "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1}\r{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":1}";
    assert_eq!(refused(glued).id, Some(1));
}

#[test]
fn frm_05_content_length_framing_is_refused_and_ends_the_call_it_answers() {
    let stream =
        b"Content-Length: 36\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}Content-Length: 36\r\n\r\n";
    let ids: Vec<_> = lines(100, stream)
        .into_iter()
        .map(|line| match line {
            Line::Text(line) => parse_frame(line, 127).remove(0).expect_err("not a message").id,
            Line::TooLong { .. } => panic!("too long"),
        })
        .collect();
    assert_eq!(ids, [None, Some(1)]);
}

// --- FRM-06: pieces ---

#[test]
fn frm_06_messages_are_whole_however_they_are_written() {
    let stream = b"{\"id\":1}\n{\"id\":2}\r\n{\"id\":3}";
    let expected = [text("{\"id\":1}"), text("{\"id\":2}"), text("{\"id\":3}")];
    assert_eq!(lines(100, stream), expected, "in one write, without a final line break");
    let mut byte_by_byte = Lines::new(100);
    let mut seen = Vec::new();
    for byte in stream {
        byte_by_byte.room().extend_from_slice(&[*byte]);
        seen.extend(byte_by_byte.next_line());
    }
    seen.extend(byte_by_byte.last_line());
    assert_eq!(seen, expected, "byte by byte");
    assert_eq!(byte_by_byte.last_line(), None);
}

#[test]
fn frm_06_events_are_whole_however_they_are_written() {
    let stream = b"\xef\xbb\xbf: hi\r\nid: 7\r\nevent: message\r\nretry: 10\r\ndata: a\r\ndata:b\r\n\r\n\n\ndata\r\rdata: never ended";
    let mut whole = SseParser::new(100);
    whole.push(stream);
    let mut bytewise = SseParser::new(100);
    let mut seen = Vec::new();
    for byte in stream {
        bytewise.push(&[*byte]);
        seen.extend(bytewise.next_event().unwrap());
    }
    let expected: Vec<_> = std::iter::from_fn(|| whole.next_event().unwrap()).collect();
    assert_eq!(seen, expected);
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert_eq!((&seen[0].data[..], seen[0].name.as_deref()), (&b"a\nb"[..], Some("message")));
    assert_eq!((seen[0].id.as_deref(), seen[0].retry), (Some("7"), Some(10)));
    assert!(seen[1].data.is_empty() && seen[1].id.is_none(), "an event does not inherit");
}

#[test]
fn frm_06_odd_fields_of_an_event_are_ignored() {
    let mut parser = SseParser::new(100);
    parser.push(
        b"retry: 5\nretry: +6\nretry: x\nid: a\0b\nDATA: no\nevent: only\n\nevent: nothing\n\ndata:  two\n\n",
    );
    let first = parser.next_event().unwrap().unwrap();
    assert_eq!((first.retry, first.id, &first.data[..]), (Some(5), None, &b""[..]));
    assert_eq!(
        &parser.next_event().unwrap().unwrap().data[..],
        b" two",
        "one blank goes, and an event without data is none"
    );
}

// --- FRM-07 and FRM-08: whose answer is it ---

#[test]
fn frm_07_only_our_own_spelling_of_an_id_is_an_answer() {
    let id = |id: &str| answer(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}")).0;
    assert_eq!(id("1"), ReplyId::Number(1));
    assert_eq!(id("\"1\""), ReplyId::Respelt(1));
    assert_eq!(id("1.0"), ReplyId::Respelt(1));
    assert_eq!(id("null"), ReplyId::Null);
    for strange in
        ["\"a\"", "1.5", "-1", "1e0", "\"\"", "true", "[1]", "{\"a\":1}", "18446744073709551616", "\"01\""]
    {
        assert_eq!(id(strange), ReplyId::Unknown, "{strange}");
    }
    assert_eq!(answer(r#"{"jsonrpc":"2.0","result":{}}"#).0, ReplyId::Null, "no id at all");
}

#[test]
fn frm_07_an_unknown_or_second_answer_meets_nobody() {
    let pending = Pending::default();
    let (first, second) = (pending.insert("first").unwrap(), pending.insert("second").unwrap());
    assert_eq!(pending.take(999), None);
    assert_eq!(pending.take(0), None);
    assert_eq!(pending.take(u64::MAX), None);
    assert_eq!(pending.take(first.0), Some("first"));
    assert_eq!(pending.take(first.0), None, "a second answer");
    assert_eq!(pending.only(), Some(second.0));
    assert_eq!(pending.take(second.0), Some("second"));
}

#[test]
fn frm_08_an_id_is_never_used_again_and_stays_small() {
    let pending = Pending::default();
    let held = pending.insert(0).unwrap();
    let mut last = held.0;
    for call in 1..200_000 {
        let ticket = pending.insert(call).unwrap();
        assert!(ticket.0 > last, "ids only grow");
        last = ticket.0;
        assert_eq!(pending.take(ticket.0), Some(call));
        assert_eq!(pending.take(ticket.0), None);
    }
    assert!(last < 250_000, "some servers keep ids in 32 bits, and this one is {last}");
    assert_eq!(pending.take(held.0), Some(0), "a call that waits long is not lost");
}

#[test]
fn frm_08_waiting_calls_are_bounded_and_closing_ends_them_all() {
    let pending = Pending::default();
    let tickets: Vec<_> = (0..65_536).map(|call| pending.insert(call).unwrap()).collect();
    assert_eq!(pending.insert(65_536), Err(65_536), "one more than may wait");
    assert_eq!(pending.take(tickets[5].0), Some(5));
    assert!(pending.insert(5).is_ok());
    assert_eq!(pending.close().len(), 65_536);
    assert!(pending.is_empty() && pending.insert(1).is_err() && pending.take(tickets[6].0).is_none());
}

// --- FRM-09: envelopes ---

#[test]
fn frm_09_an_envelope_that_contradicts_itself_ends_its_call() {
    for frame in [
        r#"{"jsonrpc":"2.0","id":4,"result":{},"error":{"code":1,"message":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":4}"#,
        r#"{"jsonrpc":"1.0","id":4,"result":{}}"#,
        r#"{"jsonrpc":2.0,"id":4,"result":{}}"#,
        r#"{"id":4,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":4,"error":{"code":"x","message":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":4,"error":{"code":1}}"#,
        r#"{"jsonrpc":"2.0","id":4,"error":"x"}"#,
        r#"{"jsonrpc":"2.0","id":4,"error":{"code":99999999999999999999,"message":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":4,"result":{},"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":4,"result":{}"#,
        r#"{"jsonrpc":"2.0","id":4,"result":{}} x"#,
        r#"{"jsonrpc":"2.0","id":4,"result":{},}"#,
    ] {
        assert_eq!(refused(frame).id, Some(4), "{frame}");
    }
    assert_eq!(
        answer(r#"{"jsonrpc":"2.0","id":4,"result":{},"error":null}"#).1,
        "{}",
        "a null beside it means nothing"
    );
    let error =
        one(r#"{"jsonrpc":"2.0","id":4,"result":null,"error":{"code":-1,"message":"no","data":[1.10]}}"#);
    let Ok(Message::Response { outcome: Err(error), .. }) = error else { panic!("{error:?}") };
    assert_eq!((error.code, error.message.raw(), error.data.unwrap().as_str()), (-1, "no", "[1.10]"));
}

#[test]
fn frm_09_a_malformed_request_of_the_server_ends_no_call_of_ours() {
    for frame in [
        r#"{"jsonrpc":"2.0","id":4,"method":5}"#,
        r#"{"jsonrpc":"1.0","id":4,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":4,"method":"ping","params":}"#,
        r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
        r#"2026-11-15 DEBUG <- {"jsonrpc":"2.0","id":4,"result":{}}"#,
    ] {
        assert_eq!(refused(frame).id, None, "{frame}");
    }
    let Ok(Message::Request { id, method, params }) = one(r#"{"jsonrpc":"2.0","id":"x-1","method":"ping"}"#)
    else {
        panic!("an honest request")
    };
    assert_eq!((id.as_str(), &*method, params), ("\"x-1\"", "ping", None));
}

#[test]
fn frm_09_a_batch_gives_its_messages_in_order_and_never_nothing() {
    let parse = |frame: &str| parse_frame(Bytes::copy_from_slice(frame.as_bytes()), 127);
    let batch = parse(r#" [ {"jsonrpc":"2.0","id":1,"result":1} , 5 ,{"jsonrpc":"2.0","method":"m"}] "#);
    assert!(matches!(batch[0], Ok(Message::Response { id: ReplyId::Number(1), .. })));
    assert!(batch[1].is_err() && matches!(batch[2], Ok(Message::Notification { .. })) && batch.len() == 3);
    for bad in ["[]", "[1,]", "[1", "[1]]", "[\"\u{1}\"]"] {
        assert!(matches!(&parse(bad)[..], [Err(_)]), "{bad}");
    }
    let many = |n: usize| format!("[{}]", vec!["1"; n].join(","));
    assert_eq!(parse(&many(999)).len(), 999);
    assert_eq!(parse(&many(1000)).len(), 1000);
    assert_eq!(parse(&many(1001)).len(), 1, "one complaint, not a thousand and one");
}

// --- FRM-14: nothing is altered ---

#[test]
fn frm_14_arguments_survive_byte_for_byte() {
    let arguments = r#"{"z":9223372036854775808,"a":1e22,"m":-0,"f":1.10,"e":1E+400,"big":123456789012345678901234567890,"u":"\u00e9\/"}"#;
    let json = Json::parse_strict(arguments, 127).unwrap();
    assert_eq!(json.as_str(), arguments);
    let mut params = Members::new();
    params.text("name", "echo").json("arguments", &json);
    let sent = request(1, "tools/call", params);
    let expected = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{\"name\":\"echo\",\"arguments\":{arguments}}}}}"
    );
    assert_eq!(std::str::from_utf8(&sent).unwrap(), expected);

    let Ok(Message::Request { params: Some(params), .. }) = one(&expected) else { panic!("a request") };
    let back = params.member("arguments").unwrap();
    assert_eq!(back.as_str(), arguments);
    assert_eq!(Members::of(&back).to_json().as_str(), arguments);
    assert_eq!(serde_json::to_string(&back).unwrap(), arguments);
    let reply = response_result(&Json::parse("9223372036854775808", 127).unwrap(), &back);
    assert_eq!(
        reply,
        format!("{{\"jsonrpc\":\"2.0\",\"id\":9223372036854775808,\"result\":{arguments}}}").into_bytes()
    );
}

#[test]
fn frm_14_a_message_stays_on_one_line_whatever_its_parts_are() {
    let pretty = Json::parse("{\n  \"a\": 1,\r\n  \"b\": \"x\\ny\"\n}", 127).unwrap();
    let mut params = Members::of(&pretty);
    params.json_under("c\n", &Json::of("d\r\n")).number("n", u64::MAX).object("o", &Members::new());
    for message in
        [request(1, "m\n", params.clone()), notification("m", &params), response_result(&pretty, &pretty)]
    {
        assert!(
            !message.contains(&b'\n') && !message.contains(&b'\r'),
            "{}",
            String::from_utf8_lossy(&message)
        );
    }
    let Ok(Message::Notification { params: Some(sent), .. }) =
        one(&String::from_utf8(notification("m", &params)).unwrap())
    else {
        panic!("a notification")
    };
    let value: serde_json::Value = sent.to().unwrap();
    assert_eq!(value, serde_json::json!({"a":1,"b":"x\ny","c\n":"d\r\n","n":u64::MAX,"o":{}}));
}

#[test]
fn frm_14_deep_parts_are_not_dropped_when_they_are_put_together() {
    let deep = Json::parse("[".repeat(127) + &"]".repeat(127), 127).unwrap();
    let mut members = Members::new();
    members.json("arguments", &deep);
    assert_eq!(members.to_json().as_str().len(), deep.as_str().len() + "{\"arguments\":}".len());
}

// --- duplicate keys ---

#[test]
fn duplicate_keys_are_refused_however_they_are_spelt() {
    for frame in [
        r#"{"jsonrpc":"2.0","id":6,"id":7,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":6,"\u0069d":7,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":6,"result":{},"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":6,"result":{},"extra":1,"ext\u0072a":2}"#,
    ] {
        let malformed = refused(frame);
        assert!(malformed.id == Some(6) && malformed.reason.contains("twice"), "{frame}: {malformed:?}");
    }
    assert!(
        one(r#"{"jsonrpc":"2.0","\u0069d":6,"result":{"id":7},"extra":{"id":8}}"#).is_ok(),
        "the same key elsewhere"
    );

    let strict = |text: &str| Json::parse_strict(text.to_owned(), 127);
    let twice = |key: &str| Err(JsonError::DuplicateKey(key.to_owned()));
    assert_eq!(strict(r#"{"a":1,"b":{"c":[{"d":1,"d":2}]}}"#), twice("d"));
    assert_eq!(strict(r#"{"path":"/ok","p\u0061th":"/etc"}"#), twice("path"));
    assert_eq!(strict(r#"{"":1,"":2}"#), twice(""));
    assert!(strict(r#"{"a":{"a":1},"b":[{"a":1},{"a":2}],"c":"a","A":1}"#).is_ok());
    let many = |last: usize| {
        format!("{{{},\"{last}\":0}}", (0..5000).map(|i| format!("\"{i}\":0")).collect::<Vec<_>>().join(","))
    };
    assert!(strict(&many(5000)).is_ok() && strict(&many(17)) == twice("17"));
}

#[test]
fn what_is_said_about_a_bad_frame_neither_drives_a_terminal_nor_repeats_it() {
    let long = "x".repeat(100_000);
    for frame in [
        "{\"\\u001b[2J\":1,\"\\u001b[2J\":2}".to_owned(),
        format!("{{\"{long}\":1,\"{long}\":2}}"),
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{{\"code\":\"{long}\u{3164}\",\"message\":\"\"}}}}"
        ),
    ] {
        let reason = refused(&frame).reason;
        assert!(reason.len() < 200 && !reason.chars().any(wharf::text::is_unsafe_to_show), "{reason:?}");
    }
}
