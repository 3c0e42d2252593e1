//! Any bytes in any pieces as a body of chunks: the same body as in one piece, and the same as to an independent reader.

use bytes::BytesMut;
use wharf::wire::{BadChunks, Chunks, NextChunk};

/// The body, and how many bytes stand behind it; `None` while there is more to come.
type Read = Result<Option<(Vec<u8>, usize)>, BadChunks>;

fn by_us<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Read {
    let (mut chunks, mut body, mut arrived) = (Chunks::default(), Vec::new(), BytesMut::new());
    let mut is_over = false;
    for piece in pieces {
        arrived.extend_from_slice(piece);
        while !is_over {
            match chunks.next(&mut arrived)? {
                NextChunk::Over => is_over = true,
                NextChunk::Chunk(_) if !arrived.is_empty() => {
                    body.extend_from_slice(&chunks.take(&mut arrived))
                }
                NextChunk::Chunk(_) | NextChunk::Line => break,
            }
        }
    }
    Ok(is_over.then_some((body, arrived.len())))
}

/// The same by another's reading of sizes, all at once.
fn by_others(mut rest: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut body = Vec::new();
    loop {
        let Ok(httparse::Status::Complete((line, size))) = httparse::parse_chunk_size(rest) else {
            return None;
        };
        rest = &rest[line..];
        if size == 0 {
            break;
        }
        let (chunk, behind) = rest.split_at_checked(usize::try_from(size).ok()?)?;
        body.extend_from_slice(chunk);
        rest = behind.strip_prefix(b"\r\n")?;
    }
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        rest = &rest[end + 2..];
        if end == 0 {
            return Some((body, rest.len()));
        }
    }
}

pub(crate) fn check(data: &[u8]) {
    let Some((&size, data)) = data.split_first() else { return };
    let whole = by_us(std::iter::once(data));
    assert_eq!(whole, by_us(data.chunks(usize::from(size % 9) + 1)));
    if let Ok(Some(read)) = whole {
        assert_eq!(Some(read), by_others(data));
    }
}
