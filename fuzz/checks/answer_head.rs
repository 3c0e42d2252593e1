//! Any bytes as the head of a server's answer: the fields are those that stand there line by line, wherever it is cut
//! nothing else comes out, and its body ends in one place only.

use wharf::net::{BodyEnd, read_answer_head};

pub(crate) fn check(data: &[u8]) {
    let Some((&cut, data)) = data.split_first() else { return };
    let read = read_answer_head(data);
    let Ok(Some(head)) = &read else { return };
    // Read once more, by the lines alone.
    let mut lines =
        data[..head.taken].split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let first = lines.next().unwrap();
    assert!(first.starts_with(b"HTTP/1.") && first[8] == b' ', "{first:?}");
    assert_eq!(std::str::from_utf8(&first[9..12]).unwrap().parse(), Ok(head.status));
    let mut fields: Vec<(String, &[u8])> = Vec::new();
    for line in lines.by_ref().take_while(|line| !line.is_empty()) {
        let colon = line.iter().position(|byte| *byte == b':').unwrap();
        let name = String::from_utf8(line[..colon].to_ascii_lowercase()).unwrap();
        fields.push((name, line[colon + 1..].trim_ascii()));
    }
    assert!(lines.eq([&b""[..]]), "it ends with an empty line");
    let mut ours: Vec<(String, &[u8])> =
        head.fields.iter().map(|(name, value)| (name.to_string(), value.as_bytes().trim_ascii())).collect();
    let of = |name: &str| -> Vec<&[u8]> {
        fields.iter().filter(|(own, _)| own == name).map(|(_, value)| *value).collect()
    };
    let (lengths, encodings) = (of("content-length"), of("transfer-encoding"));
    assert!(lengths.is_empty() || encodings.is_empty(), "two ends");
    assert!(lengths.windows(2).all(|two| number(two[0]) == number(two[1])), "two lengths");
    let bodyless = head.status < 200 || matches!(head.status, 204 | 304);
    match head.end {
        BodyEnd::Length(0) if bodyless => {}
        BodyEnd::Length(length) => assert_eq!(number(lengths[0]), Some(length)),
        BodyEnd::Chunked => assert!(encodings.len() == 1 && encodings[0].eq_ignore_ascii_case(b"chunked")),
        BodyEnd::Open => assert!(lengths.is_empty() && encodings.is_empty()),
    }
    // Those of one name stay in their order, which is all that an order says.
    ours.sort_by(|one, other| one.0.cmp(&other.0));
    fields.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(ours, fields);
    for end in [usize::from(cut) % head.taken, head.taken - 1] {
        assert_eq!(read_answer_head(&data[..end]), Ok(None), "half of it is enough");
    }
    assert_eq!(read_answer_head(&data[..head.taken]), read, "what is behind it matters");
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
