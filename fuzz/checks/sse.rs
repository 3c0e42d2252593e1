//! Any bytes in any pieces: the events are those of the same bytes in one piece, and none is larger than allowed.

use wharf::wire::{SseEvent, SseParser, SseTooLong};

const MAX: usize = 24;

fn events<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<SseEvent>, Option<SseTooLong>) {
    let mut parser = SseParser::new(MAX);
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

pub(crate) fn check(data: &[u8]) {
    let Some((&size, data)) = data.split_first() else { return };
    let whole = events(std::iter::once(data));
    assert_eq!(whole, events(data.chunks(usize::from(size % 9) + 1)));
    assert!(whole.0.iter().all(|event| event.data.len() <= MAX));
}
