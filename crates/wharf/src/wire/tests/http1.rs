//! Chunks: the same bytes out, however they are cut on the way in.

use bytes::BytesMut;

use crate::wire::http1::{BadChunks, Chunks, Next, has_word, length};

/// Reads chunks that come so many bytes at a time: what they hold, and what stands behind them.
fn read(text: &str, at_once: usize) -> Result<(String, String), BadChunks> {
    let (mut chunks, mut arrived, mut body) = (Chunks::default(), BytesMut::new(), Vec::new());
    let mut parts = text.as_bytes().chunks(at_once);
    loop {
        match chunks.next(&mut arrived)? {
            Next::Over => break,
            Next::Chunk(_) if !arrived.is_empty() => body.extend_from_slice(&chunks.take(&mut arrived)),
            _ => arrived.extend_from_slice(parts.next().expect("there is no end")),
        }
    }
    arrived.extend_from_slice(&parts.collect::<Vec<_>>().concat());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((text(&body), text(&arrived)))
}

#[test]
fn chunks_are_what_they_hold_and_nothing_behind_them_is_touched() {
    let text = "3\r\nabc\r\nA;x=y\r\n0123456789\r\n1\t \r\n\n\r\n0\r\nx: y\r\n\r\nbehind";
    for at_once in 1..text.len() {
        let expected = ("abc0123456789\n".to_owned(), "behind".to_owned());
        assert_eq!(read(text, at_once), Ok(expected), "{at_once}");
    }
}

#[test]
fn what_is_wrong_is_wrong_however_often_it_is_asked_for() {
    for text in ["\r\n", "g\r\n", " 1\r\n", "1\n", "1\r\r\n", "123456789\r\n", "1;\rx\r\n", "1\r\nab\r\n"] {
        assert_eq!(read(text, 1), Err(BadChunks::Malformed), "{text:?}");
    }
    let (mut chunks, mut arrived) = (Chunks::default(), BytesMut::from("g\r\n"));
    for _ in 0..2 {
        assert_eq!(chunks.next(&mut arrived), Err(BadChunks::Malformed));
    }
    let lines = |count: usize| format!("0\r\n{}\r\n", "x: yyyyy\r\n".repeat(count));
    assert!(read(&lines(4096), 100).is_ok());
    assert_eq!(read(&lines(4097), 100), Err(BadChunks::TooMuch));
}

#[test]
fn a_length_is_digits_and_a_list_has_words() {
    assert_eq!(
        (length(b"0"), length(b"017"), length(b"18446744073709551615")),
        (Some(0), Some(17), Some(u64::MAX))
    );
    for none in ["", " 1", "1 ", "+1", "-1", "1,1", "0x1", "18446744073709551616"] {
        assert_eq!(length(none.as_bytes()), None, "{none}");
    }
    assert!(has_word(b"x ,Close", "close") && !has_word(b"closed, xclose", "close"));
}
