//! Any bytes in any pieces: the lines are those of the same bytes in one piece, and no line is longer than allowed.

use wharf::wire::{Line, Lines};

const MAX: usize = 24;

fn lines<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Line> {
    let mut lines = Lines::new(MAX);
    let mut out = Vec::new();
    for piece in pieces {
        lines.room().extend_from_slice(piece);
        out.extend(std::iter::from_fn(|| lines.next_line()));
    }
    out.extend(lines.last_line());
    out
}

pub(crate) fn check(data: &[u8]) {
    let Some((&size, data)) = data.split_first() else { return };
    let whole = lines(std::iter::once(data));
    assert_eq!(whole, lines(data.chunks(usize::from(size % 9) + 1)));
    for line in &whole {
        match line {
            Line::Text(text) => assert!(text.len() <= MAX && !text.contains(&b'\n')),
            Line::TooLong { length, .. } => assert!(*length > MAX as u64),
        }
    }
}
