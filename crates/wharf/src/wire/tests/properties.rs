//! What holds for any input: against `serde_json`, against a model, and for any way of cutting a stream in pieces.

use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;

use crate::wire::{Json, JsonError, Line, Lines, Members, Pending, SseEvent, SseParser, SseTooLong};

/// JSON text with blanks, escapes, odd numbers and duplicate keys, as a hostile or a careless sender writes it.
fn json_text() -> impl Strategy<Value = String> {
    let number = "-?(0|[1-9][0-9]{0,24})(\\.[0-9]{1,5})?([eE][+-]?[0-9]{1,2})?";
    let string = prop_oneof![
        "\"[ -!#-\\[\\]-~é日😀\u{7f}\u{2028}]{0,40}\"",
        "\"(\\\\[\"\\\\/bfnrt]|\\\\u00[0-9a-fA-F]{2}|\\\\ud83d\\\\ude00|[a-z]){0,12}\"",
    ];
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("false".to_owned()),
        number,
        string
    ];
    let blank = "[ \t\r\n]{0,2}";
    leaf.prop_recursive(6, 64, 6, move |inner| {
        let key = prop_oneof!["\"[a-c]\"", "\"\\\\u006[1-3]\"", "\"[a-z]{0,30}\""];
        let item = (blank, inner.clone(), blank).prop_map(|(a, v, b)| a + &v + &b);
        let member = (blank, key, blank, item.clone()).prop_map(|(a, k, b, v)| a + &k + &b + ":" + &v);
        prop_oneof![
            vec(item, 0..6).prop_map(|items| format!("[{}]", items.join(","))),
            vec(member, 0..20).prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    })
}

/// The same text with a few bytes changed, added or taken away.
fn spoilt() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        proptest::sample::select(&b"{}[]\",:\\0123456789.eE+-tfnu \t\r\n\x00\x1f\x7f\xff\xc3\xef"[..]),
        any::<u8>()
    ];
    (json_text(), vec((any::<prop::sample::Index>(), byte, 0..3_u8), 1..4)).prop_map(|(text, changes)| {
        let mut bytes = text.into_bytes();
        for (at, byte, how) in changes {
            let at = at.index(bytes.len() + 1);
            match how {
                0 => bytes.insert(at, byte),
                1 if at < bytes.len() => bytes[at] = byte,
                _ if at < bytes.len() => drop(bytes.remove(at)),
                _ => bytes.push(byte),
            }
        }
        bytes
    })
}

/// Wharf and `serde_json` agree, but for numbers that `serde_json` cannot hold: those are kept as they are written.
fn agree(bytes: &[u8]) -> Result<(), TestCaseError> {
    match (Json::parse(bytes.to_vec(), 127), serde_json::from_slice::<Value>(bytes)) {
        (Ok(json), Ok(value)) => {
            let blanks = [' ', '\t', '\r', '\n'];
            prop_assert_eq!(json.as_str(), std::str::from_utf8(bytes).unwrap().trim_matches(blanks));
            prop_assert_eq!(json.to::<Value>().unwrap(), value);
        }
        (Ok(_), Err(e)) => prop_assert!(e.to_string().starts_with("number out of range"), "accepted: {}", e),
        (Err(e), Ok(_)) => prop_assert!(false, "refused: {}", e),
        (Err(_), Err(_)) => {}
    }
    Ok(())
}

/// Whether a key stands twice, by a reader that is not ours.
fn has_twins(text: &str) -> bool {
    struct Twins(bool);
    impl<'de> serde::Deserialize<'de> for Twins {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_any(Visit)
        }
    }
    struct Visit;
    impl<'de> serde::de::Visitor<'de> for Visit {
        type Value = Twins;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("JSON")
        }
        fn visit_bool<E>(self, _: bool) -> Result<Twins, E> {
            Ok(Twins(false))
        }
        fn visit_i64<E>(self, _: i64) -> Result<Twins, E> {
            Ok(Twins(false))
        }
        fn visit_u64<E>(self, _: u64) -> Result<Twins, E> {
            Ok(Twins(false))
        }
        fn visit_f64<E>(self, _: f64) -> Result<Twins, E> {
            Ok(Twins(false))
        }
        fn visit_str<E>(self, _: &str) -> Result<Twins, E> {
            Ok(Twins(false))
        }
        fn visit_unit<E>(self) -> Result<Twins, E> {
            Ok(Twins(false))
        }
        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<Twins, A::Error> {
            let mut any = false;
            while let Some(Twins(twins)) = items.next_element()? {
                any |= twins;
            }
            Ok(Twins(any))
        }
        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut members: A) -> Result<Twins, A::Error> {
            let (mut any, mut seen) = (false, std::collections::HashSet::new());
            while let Some((key, Twins(twins))) = members.next_entry::<String, Twins>()? {
                any |= twins | !seen.insert(key);
            }
            Ok(Twins(any))
        }
    }
    serde_json::from_str::<Twins>(text).unwrap().0
}

/// Cuts bytes into pieces of the given sizes, over and over.
fn pieces<'a>(bytes: &'a [u8], sizes: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    let (mut rest, mut sizes) = (bytes, sizes.iter().cycle());
    std::iter::from_fn(move || {
        let (piece, after) = rest.split_at((*sizes.next()?).clamp(1, rest.len().max(1)).min(rest.len()));
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

fn lines<'a>(max: usize, pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Line> {
    let mut lines = Lines::new(max);
    let mut out = Vec::new();
    for piece in pieces {
        lines.room().extend_from_slice(piece);
        out.extend(std::iter::from_fn(|| lines.next_line()));
    }
    out.extend(lines.last_line());
    out
}

/// The lines by the plainest means: split at `\n`, drop one `\r`, measure.
fn lines_by_hand(max: usize, bytes: &[u8]) -> Vec<Result<Vec<u8>, u64>> {
    let all = bytes.split(|b| *b == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let fitting = all.map(|line| if line.len() > max { Err(line.len() as u64) } else { Ok(line.to_vec()) });
    fitting.filter(|line| !line.as_ref().is_ok_and(|l| l.iter().all(u8::is_ascii_whitespace))).collect()
}

fn events<'a>(max: usize, pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<SseEvent>, Option<SseTooLong>) {
    let mut parser = SseParser::new(max);
    let mut out = Vec::new();
    for piece in pieces {
        parser.push(piece);
        loop {
            match parser.next_event() {
                Ok(Some(event)) => out.push(event),
                Ok(None) => break,
                Err(e) => return (out, Some(e)),
            }
        }
    }
    (out, None)
}

/// A stream made of what streams are made of, so that the interesting meetings happen often.
fn stream(words: &'static [&'static [u8]]) -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![8 => proptest::sample::select(words).prop_map(<[u8]>::to_vec), 1 => vec(any::<u8>(), 0..4)], 0..40)
        .prop_map(|parts| parts.concat())
}

const LINE_WORDS: &[&[u8]] = &[
    b"\n",
    b"\r\n",
    b"\r",
    b" ",
    b"{\"id\":7,\"result\":1}",
    b"\"id\":",
    b"{",
    b"}",
    b"\"",
    b"\\",
    b",",
    b"abc",
    b"12",
];
const SSE_WORDS: &[&[u8]] = &[
    b"\n",
    b"\n",
    b"\n\n",
    b"\r",
    b"\r\n",
    b"data: ",
    b"data:",
    b"data",
    b"id: 1",
    b"event: e",
    b"retry: 5",
    b": c",
    b"x",
    b"\xef\xbb\xbf",
    b"\0",
    b" ",
];

/// What a caller of [`Pending`] does.
#[derive(Clone, Debug)]
enum Step {
    Insert,
    /// An answer to one of all ids ever given, or to one never given.
    Take(prop::sample::Index),
    Look(prop::sample::Index),
    Stranger(u64),
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => Just(Step::Insert),
        8 => any::<prop::sample::Index>().prop_map(Step::Take),
        3 => any::<prop::sample::Index>().prop_map(Step::Look),
        1 => any::<u64>().prop_map(Step::Stranger),
        1 => proptest::bool::weighted(0.02).prop_map(|yes| if yes { Step::Close } else { Step::Insert }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn valid_json_is_accepted_and_kept_byte_for_byte(text in json_text()) {
        prop_assert!(Json::parse(text.clone(), 127).is_ok(), "{}", text);
        agree(text.as_bytes())?;
    }

    #[test]
    fn spoilt_json_is_judged_as_serde_json_judges_it(bytes in spoilt()) {
        agree(&bytes)?;
    }

    #[test]
    fn any_bytes_are_judged_as_serde_json_judges_them(bytes in vec(any::<u8>(), 0..64)) {
        agree(&bytes)?;
    }

    #[test]
    fn strict_refuses_exactly_the_texts_with_twin_keys(text in json_text()) {
        let strict = Json::parse_strict(text.clone(), 127);
        if has_twins(&text) {
            prop_assert!(matches!(strict, Err(JsonError::DuplicateKey(_))), "{}", text);
        } else {
            prop_assert!(strict.is_ok(), "{}: {:?}", text, strict);
        }
    }

    #[test]
    fn a_member_is_found_as_serde_json_finds_it(text in json_text(), key in "[a-c]") {
        let Ok(json) = Json::parse_strict(text, 127) else { return Ok(()) };
        let value: Value = json.to().unwrap();
        prop_assert_eq!(json.member(&key).map(|m| m.to::<Value>().unwrap()), value.get(&key).cloned());
    }

    #[test]
    fn members_write_what_was_put_in(text in json_text(), key in ".{0,8}", value in ".{0,16}") {
        let json = Json::parse(text, 127).unwrap();
        let mut members = Members::new();
        members.json_under(&key, &Json::of(&value));
        members.text("text", &value);
        members.json("json value", &json);
        let written = members.to_json();
        prop_assert_eq!(Json::parse_strict(written.bytes().clone(), 127).is_ok(), !has_twins(json.as_str()));
        prop_assert!(written.as_str().contains(json.as_str()));
        let message = crate::wire::request(1, &value, members);
        prop_assert!(!message.contains(&b'\n') && !message.contains(&b'\r'));
        prop_assert_eq!(serde_json::from_slice::<Value>(&message).unwrap()["params"].clone(), written.to::<Value>().unwrap());
    }

    #[test]
    fn lines_are_the_same_however_they_arrive(bytes in stream(LINE_WORDS), sizes in vec(1..40_usize, 1..6), max in 1..40_usize) {
        let whole = lines(max, std::iter::once(&bytes[..]));
        prop_assert_eq!(&whole, &lines(max, pieces(&bytes, &sizes)));
        let seen: Vec<_> = whole.into_iter().map(|line| match line {
            Line::Text(text) => Ok(text.to_vec()),
            Line::TooLong { length, .. } => Err(length),
        }).collect();
        prop_assert_eq!(seen, lines_by_hand(max, &bytes));
    }

    #[test]
    fn events_are_the_same_however_they_arrive(bytes in stream(SSE_WORDS), sizes in vec(1..20_usize, 1..6), max in 0..20_usize) {
        prop_assert_eq!(events(max, std::iter::once(&bytes[..])), events(max, pieces(&bytes, &sizes)));
    }

    #[test]
    fn no_answer_reaches_the_wrong_call(steps in vec(step(), 0..400)) {
        let pending = Pending::default();
        let (mut model, mut given, mut closed) = (HashMap::new(), Vec::new(), false);
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Insert => match pending.insert(number) {
                    Ok(ticket) => {
                        prop_assert!(!closed && ticket.0 > given.last().copied().unwrap_or(0), "an id came back");
                        model.insert(ticket.0, number);
                        given.push(ticket.0);
                    }
                    Err(back) => prop_assert!(closed && back == number),
                },
                Step::Take(which) if !given.is_empty() => {
                    let id = *which.get(&given);
                    prop_assert_eq!(pending.take(id), model.remove(&id));
                }
                Step::Look(which) if !given.is_empty() => {
                    let id = *which.get(&given);
                    prop_assert_eq!(pending.with(id, |call| *call), model.get(&id).copied());
                }
                Step::Stranger(id) if !given.contains(&id) => prop_assert_eq!(pending.take(id), None),
                Step::Close => {
                    let (mut left, mut expected) = (pending.close(), model.drain().map(|(_, v)| v).collect::<Vec<_>>());
                    left.sort_unstable();
                    expected.sort_unstable();
                    prop_assert_eq!(left, expected);
                    closed = true;
                }
                _ => {}
            }
            prop_assert_eq!(pending.len(), model.len());
            let only = (model.len() == 1).then(|| *model.keys().next().unwrap());
            prop_assert_eq!(pending.only(), only);
        }
    }
}
