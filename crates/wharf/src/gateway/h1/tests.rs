//! Heads that are one thing to us must be the same thing to everybody on the way.

use bytes::BytesMut;

use proptest::prelude::*;

use super::HEAD;
use super::head::{BadHead, Framing, Head};
use super::lines::{First, Lines, Unread};

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
fn gwy_12_a_line_that_ends_in_half_is_no_line() {
    for text in [
        "GET / HTTP/1.1\nHost: here\r\n\r\n",
        "GET / HTTP/1.1\r\nx: a\nauthorization: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: here\r\n\n",
        "\nGET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nx: a\rb: c\r\n\r\n",
    ] {
        assert_eq!(taken(text).unwrap_err(), BadHead::Malformed, "{text:?}");
    }
    let after = |lines: usize| format!("{}GET / HTTP/1.1\r\nx: a\r\n\r\n", "\r\n".repeat(lines));
    for lines in [0, 1, 2] {
        assert_eq!(taken(&after(lines)).unwrap().unwrap().one("x"), Some("a"));
    }
    assert_eq!(taken(&after(3)).unwrap_err(), BadHead::Malformed);
}

#[test]
fn what_a_head_says_is_not_shown() {
    let shown = format!("{:?}", whole("authorization: Bearer hidden\r\n"));
    assert!(shown.contains("/mcp") && !shown.contains("hidden"), "{shown}");
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
    for odd in ["GET http://there?x=/mcp HTTP/1.1\r\n\r\n", "GET http://there#/mcp HTTP/1.1\r\n\r\n"] {
        assert_eq!(taken(odd).unwrap().unwrap().path(), "", "{odd}");
    }
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
            assert_eq!(head.lines(name).collect::<Vec<_>>(), ["a", "b"], "{name}");
        }
        assert_eq!((whole("").one(name), whole("").has(name)), (None, false), "{name}");
    }
    let head = whole("Mcp-Param-A: 1\r\nx: 2\r\nmcp-param-b: \u{fc}\r\n");
    assert_eq!(head.beginning("mcp-param-").collect::<Vec<_>>(), [("A", Some("1")), ("b", None)]);
}

/// The verb, the target, whether it is new, the fields, and the length.
type Taken = (Vec<u8>, Vec<u8>, bool, Vec<(Vec<u8>, Vec<u8>)>, usize);

fn by_us(text: &[u8]) -> Result<Taken, Unread> {
    let mut lines = Lines::new(text);
    let First { method, target, is_new } = lines.first()?;
    let mut fields = Vec::new();
    let known = |name: &[u8]| (name == b"host" || name == b"x-y").then_some(0);
    while let Some((_, name, value)) = lines.field(known)? {
        fields.push((name.within(text).to_vec(), value.within(text).to_vec()));
    }
    Ok((method.within(text).to_vec(), target.within(text).to_vec(), is_new, fields, lines.end()))
}

/// What a library makes of it that nearly everybody reads heads with; `None` if it does not take it.
fn by_others(text: &[u8]) -> Option<Taken> {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Request::new(&mut fields);
    let httparse::Status::Complete(length) = head.parse(text).ok()? else { return None };
    let fields = head.headers.iter().map(|field| (field.name.as_bytes().to_vec(), field.value.to_vec()));
    let (method, target) = (head.method?.as_bytes().to_vec(), head.path?.as_bytes().to_vec());
    Some((method, target, head.version? == 1, fields.collect(), length))
}

/// Whether a line ends with half of what ends it, which others take.
fn has_half_end(head: &[u8]) -> bool {
    head.iter().enumerate().any(|(at, byte)| *byte == b'\n' && (at == 0 || head[at - 1] != b'\r'))
}

/// Heads that are nearly good ones.
fn heads() -> impl Strategy<Value = Vec<u8>> {
    let part = "[ \t:a-zA-Z0-9/?#!~_\u{7f}\u{fc}\u{0}-]{0,40}";
    let name = prop_oneof![4 => "[a-zA-Z0-9!#$%&'*+.^_`|~-]{1,24}", 1 => part];
    let value = prop_oneof![4 => "[ \t]{0,3}[ -~]{0,60}[ \t]{0,3}", 1 => part];
    let end = prop_oneof![8 => Just("\r\n"), 1 => Just("\n"), 1 => Just("\r"), 1 => Just("\r\r\n")];
    let field = (name, prop_oneof![9 => Just(":"), 1 => Just(" :")], value, end.clone());
    let first = prop_oneof![
        6 => "(POST|GET|x-y) /[a-z?#=&%/]{0,30} HTTP/1\\.[01]",
        1 => "[A-Z ]{0,6}[ /a-z]{0,8}( HTTP/[12]\\.[0-9])?",
    ];
    let fields = proptest::collection::vec(field, 0..9);
    ("(\r\n|\n){0,2}", first, end.clone(), fields, end, any::<(u8, prop::sample::Index, bool)>()).prop_map(
        |(before, first, end, fields, last, (byte, at, is_spoilt))| {
            let fields = fields.iter().map(|(a, b, c, d)| format!("{a}{b}{c}{d}")).collect::<String>();
            let mut text = format!("{before}{first}{end}{fields}{last}and what is behind it").into_bytes();
            if is_spoilt {
                let at = at.index(text.len());
                text[at] = byte;
            }
            text
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Nobody on the way may see another request than we do. What we alone refuse harms nobody.
    #[test]
    fn gwy_11_a_head_is_to_us_what_it_is_to_others(text in heads()) {
        let (ours, theirs) = (by_us(&text), by_others(&text));
        if let Ok(ours) = &ours {
            prop_assert_eq!(Some(ours), theirs.as_ref());
        }
        if let Some(theirs) = theirs.filter(|theirs| theirs.1.is_ascii() && !has_half_end(&text[..theirs.4])) {
            prop_assert_eq!(ours, Ok(theirs));
        }
    }

    #[test]
    fn gwy_11_a_part_of_a_good_head_is_never_a_bad_one(text in heads()) {
        let Ok(whole) = by_us(&text) else { return Ok(()) };
        for end in 0..whole.4 {
            prop_assert_eq!(by_us(&text[..end]), Err(Unread::Partial), "{}", end);
        }
    }
}
