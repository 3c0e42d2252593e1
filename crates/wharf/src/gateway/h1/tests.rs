//! Heads that are one thing to us must be the same thing to everybody on the way.

use bytes::BytesMut;

use super::HEAD;
use super::head::{BadHead, Framing, Head};

fn taken(text: &str) -> Result<Option<Head>, BadHead> {
    Head::take(&mut BytesMut::from(text))
}

fn whole(fields: &str) -> Head {
    taken(&format!("POST /mcp?a=b HTTP/1.1\r\nHost: here\r\n{fields}\r\n")).unwrap().unwrap()
}

#[test]
fn a_head_is_taken_when_it_is_whole_and_nothing_behind_it() {
    let text = "GET /mcp?a=b HTTP/1.1\r\nHOST:  here \r\nx-a: 1\r\nX-A: 2\r\n\r\n";
    for end in 0..text.len() {
        assert!(taken(&text[..end]).unwrap().is_none(), "{end}");
    }
    let mut arrived = BytesMut::from(format!("{text}behind").as_str());
    let head = Head::take(&mut arrived).unwrap().unwrap();
    assert_eq!(&arrived[..], b"behind");
    assert_eq!((head.method().as_str(), head.path(), head.query()), ("GET", "/mcp", Some("a=b")));
    assert_eq!((head.one("host"), head.one("x-a"), head.has("x-a")), (Some("here"), None, true));
    assert_eq!(head.framing, Framing::Length(0));
}

#[test]
fn a_head_has_a_limit() {
    let with = |length: usize| {
        let begin = "GET / HTTP/1.1\r\nx: ";
        format!("{begin}{}\r\n\r\n", "y".repeat(length - begin.len() - 4))
    };
    assert!(taken(&with(HEAD - 1)).unwrap().is_some());
    assert!(taken(&with(HEAD)).unwrap().is_some());
    assert_eq!(taken(&with(HEAD + 1)).unwrap_err(), BadHead::TooLarge);
    let fields = |count: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(count));
    assert!(taken(&fields(100)).unwrap().is_some());
    assert_eq!(taken(&fields(101)).unwrap_err(), BadHead::TooLarge);
}

#[test]
fn the_end_of_a_body_is_told_in_one_way_only() {
    assert_eq!(whole("content-length: 17\r\n").framing, Framing::Length(17));
    assert_eq!(whole("Transfer-Encoding: Chunked\r\n").framing, Framing::Chunked);
    for fields in [
        "content-length: 1\r\ncontent-length: 1\r\n",
        "content-length: 1\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 1\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: gzip, chunked\r\n",
        "transfer-encoding: identity\r\n",
        "content-length: \r\n",
        "content-length: -1\r\n",
        "content-length: 0x10\r\n",
        "content-length: 99999999999999999999\r\n",
    ] {
        let text = format!("POST /mcp HTTP/1.1\r\n{fields}\r\n");
        assert_eq!(taken(&text).unwrap_err(), BadHead::Malformed, "{fields}");
    }
    let old = "POST /mcp HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n";
    assert_eq!(taken(old).unwrap_err(), BadHead::Malformed);
}

#[test]
fn whoever_wants_to_go_says_so() {
    assert!(whole("").may_go_on());
    assert!(whole("connection: keep-alive, upgrade\r\n").may_go_on());
    assert!(!whole("connection: upgrade, Close\r\n").may_go_on());
    assert!(!taken("GET / HTTP/1.0\r\n\r\n").unwrap().unwrap().may_go_on());
}

#[test]
fn a_target_may_name_its_host() {
    let head = taken("GET http://there:1/mcp?x HTTP/1.1\r\n\r\n").unwrap().unwrap();
    assert_eq!((head.authority(), head.path(), head.query()), (Some("there:1"), "/mcp", Some("x")));
    let head = taken("GET http://there HTTP/1.1\r\n\r\n").unwrap().unwrap();
    assert_eq!((head.authority(), head.path()), (Some("there"), ""));
    assert_eq!(taken("OPTIONS * HTTP/1.1\r\n\r\n").unwrap().unwrap().path(), "");
    assert_eq!(whole("").authority(), None);
}

#[test]
fn a_value_is_text_or_nothing() {
    let head = Head::take(&mut BytesMut::from(&b"GET / HTTP/1.1\r\nx-a: \xff\r\n\r\n"[..])).unwrap().unwrap();
    assert_eq!((head.one("x-a"), head.has("x-a")), (None, true));
    assert!(whole("a: x, WebSocket ,y\r\n").lists("a", "websocket"));
    assert!(!whole("a: xwebsocket\r\n").lists("a", "websocket"));
}

#[test]
fn a_usual_field_is_found_however_it_is_written_and_counted_as_often_as_it_stands() {
    for name in ["accept", "origin", "mcp-name", "mcp-method", "traceparent", "content-type", "authorization"]
        .into_iter()
        .chain(["mcp-session-id", "content-encoding", "mcp-protocol-version", "x-other"])
    {
        let (loud, value) = (name.to_ascii_uppercase(), Some("Some, Thing"));
        for written in [name, &*loud] {
            let head = whole(&format!("{written}: Some, Thing\r\n"));
            assert_eq!((head.one(name), head.has(name), head.lists(name, "thing")), (value, true, true));
            let head = whole(&format!("{name}: a\r\n{written}: b\r\n"));
            assert_eq!((head.one(name), head.has(name)), (None, true), "{name}");
            assert!(head.lists(name, "a") && head.lists(name, "b") && !head.lists(name, "c"), "{name}");
        }
        assert_eq!((whole("").one(name), whole("").has(name)), (None, false), "{name}");
    }
    let head = whole("Mcp-Param-A: 1\r\nx: 2\r\nmcp-param-b: \u{fc}\r\n");
    assert_eq!(head.beginning("mcp-param-").collect::<Vec<_>>(), [("A", Some("1")), ("b", None)]);
}
