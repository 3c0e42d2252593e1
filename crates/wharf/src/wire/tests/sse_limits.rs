//! The limits of events: what is kept of a stream is bounded, whatever the fields are called.

use crate::wire::{SseEvent, SseParser, SseTooLong};

fn first(max: usize, stream: &[u8]) -> Result<Option<SseEvent>, SseTooLong> {
    let mut parser = SseParser::new(max);
    parser.push(stream);
    parser.next_event()
}

#[test]
fn data_at_the_limit_passes_and_one_byte_more_does_not() {
    for (length, fits) in [(99, true), (100, true), (101, false)] {
        let data = "x".repeat(length);
        for field in
            [format!("data: {data}"), format!("data:{data}"), format!("event: message\nid: 5\ndata: {data}")]
        {
            let event = first(100, format!("{field}\n\n").as_bytes());
            assert_eq!(event.is_ok_and(|e| e.is_some_and(|e| e.data == data.as_bytes())), fits, "{length}");
        }
    }
}

#[test]
fn joined_lines_count_with_their_line_breaks() {
    let lines = |n: usize| "data: xxxxxxxxx\n".repeat(n) + "\n";
    assert_eq!(first(99, lines(10).as_bytes()).unwrap().unwrap().data.len(), 99);
    assert_eq!(first(98, lines(10).as_bytes()), Err(SseTooLong(98)));
}

#[test]
fn an_error_stays_and_the_buffer_is_given_up() {
    let mut parser = SseParser::new(10);
    parser.push(b"data: 12345678901\n\ndata: ok\n\n");
    assert_eq!(parser.next_event(), Err(SseTooLong(10)));
    parser.push(b"data: ok\n\n");
    assert_eq!(parser.next_event(), Err(SseTooLong(10)));
}

#[test]
fn no_field_grows_without_bound() {
    for field in ["data: ", "id: ", "event: ", ": ", "retry: ", "x: ", "", "data"] {
        let mut parser = SseParser::new(1000);
        parser.push(field.as_bytes());
        let mut taken = 0;
        let ended = loop {
            parser.push(&[b'1'; 512]);
            taken += 512;
            match parser.next_event() {
                Err(_) => break true,
                Ok(_) if taken > 1 << 20 => break false,
                Ok(_) => {}
            }
        };
        assert!(ended && taken <= 66 * 1024, "`{field}` took {taken} bytes");
    }
}

#[test]
fn many_small_fields_are_bounded_too_but_signs_of_life_are_not_counted() {
    for line in ["id: 1\n", "event: e\n", "x: y\n", "data: 1\n: comment\n"] {
        assert!(first(1 << 20, line.repeat(1 << 17).as_bytes()).is_err(), "{line:?}");
    }
    let alive = ": ping\n".repeat(1 << 17) + "data: at last\n\n";
    assert_eq!(first(100, alive.as_bytes()).unwrap().unwrap().data, "at last");
}

#[test]
fn many_lines_are_joined_in_linear_time() {
    // Joined by copying all each time, this would move 10^12 bytes.
    let stream = "data: x\n".repeat(1_000_000) + "\n";
    assert_eq!(first(1 << 21, stream.as_bytes()).unwrap().unwrap().data.len(), 1_999_999);
}

#[test]
fn a_long_line_in_small_pieces_is_searched_once() {
    // Searched from its beginning each time, this would read 10^11 bytes.
    let mut parser = SseParser::new(1 << 20);
    parser.push(b"data: ");
    for _ in 0..1 << 19 {
        parser.push(b"x");
        assert_eq!(parser.next_event(), Ok(None));
    }
    parser.push(b"\n\n");
    assert_eq!(parser.next_event().unwrap().unwrap().data.len(), 1 << 19);
}

#[test]
fn a_single_line_of_data_is_not_copied() {
    let mut parser = SseParser::new(1 << 20);
    parser.push(b"data: one\n\ndata: two\n\n");
    let one = parser.next_event().unwrap().unwrap();
    let two = parser.next_event().unwrap().unwrap();
    // Both still lie in the one buffer, as far apart as they came.
    assert_eq!(two.data.as_ptr() as usize - one.data.as_ptr() as usize, b"one\n\ndata: ".len());
}
