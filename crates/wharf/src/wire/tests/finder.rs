//! Whose answer was it? The id in frames that cannot be parsed.

use crate::wire::id_finder::IdFinder;

/// Looks in the whole frame, and again byte by byte: the answer must not depend on the pieces.
fn look(frame: &str) -> Option<u64> {
    let whole = IdFinder::look(frame.as_bytes());
    let mut bytewise = IdFinder::default();
    frame.bytes().for_each(|b| bytewise.more(&[b]));
    assert_eq!(bytewise.end(), whole, "{frame}");
    whole
}

#[test]
fn an_outermost_id_is_found_wherever_it_stands() {
    assert_eq!(look(r#"{"jsonrpc":"2.0","id":7,"result":{"#), Some(7));
    assert_eq!(look(r#"{"result":{"a":[1,{"b":2}]},"id":7}"#), Some(7));
    assert_eq!(look(" { \"id\" : 7 , \"result\" : ]"), Some(7));
    assert_eq!(look(r#"{"id":"7","result":x}"#), Some(7));
    assert_eq!(look("\u{feff}{\"id\":7,\"result\":1}"), Some(7), "behind a byte order mark");
    assert_eq!(look(r#"{"id":18446744073709551615,x"#), Some(u64::MAX));
    assert_eq!(look(r#"{"id":7,"result":"a "stray" quote"}"#), Some(7));
    assert_eq!(look(r#"{"id":7,"result":{}}{"id":8,"result":{}}"#), Some(7), "the first of two on one line");
}

#[test]
fn an_id_that_is_not_the_frames_own_is_not_taken() {
    assert_eq!(look(r#"{"result":{"id":7}}"#), None, "nested");
    assert_eq!(look(r#"{"result":{"id":7}"#), None, "nested, and cut right behind it");
    assert_eq!(look(r#"{"result":[{"id":7},"#), None, "nested in an array");
    assert_eq!(look(r#"{"result":"\"id\":7,","x":"#), None, "inside a string");
    assert_eq!(look(r#"{"result":"\\\"id\":7}"#), None, "inside a string behind a backslash");
    assert_eq!(look(r#"{"a":"id","b":7,"#), None, "a value, not a key");
    assert_eq!(look(r#"{"id":7"#), None, "the number may go on");
    assert_eq!(look(r#"{"id":7.5,"x"#), None);
    assert_eq!(look(r#"{"id":-7,"x"#), None);
    assert_eq!(look(r#"{"id":{"id":7},"x"#), None);
    assert_eq!(look(r#"{"id":[7],"x"#), None);
    assert_eq!(look(r#"{"id":99999999999999999999999999999999999999999999,"x"#), None);
    assert_eq!(look(r#"["id":7,"#), None, "not an object");
    assert_eq!(look(r#"debug: got {"id":7,"result":1}"#), None, "a log line that quotes a message");
}

#[test]
fn the_id_of_the_other_sides_request_is_not_ours() {
    assert_eq!(look(r#"{"id":7,"method":"ping","params":{"#), None);
    assert_eq!(look(r#"{"method":"ping","id":7,"params":{"#), None);
    assert_eq!(look(r#"{"id":7,"method":"pi"#), None);
    assert_eq!(
        look(r#"{"id":7,"result":{"method":"ping"},"#),
        Some(7),
        "only an outermost method makes a request"
    );
}
