//! Any bytes in any pieces as the frames of a WebSocket: the same messages as in one piece, none larger than allowed, and
//! none that an independent reader does not see.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::{Builder, Runtime};
use wharf::net::read_websocket;

const LIMIT: usize = 200;

/// Gives its bytes in pieces, then the end; takes whatever is written.
struct Pieces {
    bytes: Vec<u8>,
    at: usize,
    size: usize,
}

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let end = (self.at + self.size.min(out.remaining())).min(self.bytes.len());
        out.put_slice(&self.bytes[self.at..end]);
        self.at = end;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pieces {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

thread_local! {
    static RUNTIME: RefCell<Runtime> = RefCell::new(Builder::new_current_thread().enable_time().build().unwrap());
}

fn by_us(bytes: &[u8], caller: bool, size: usize) -> (Vec<Vec<u8>>, bool) {
    let io = Pieces { bytes: bytes.to_vec(), at: 0, size };
    let (messages, fair) = RUNTIME.with_borrow(|runtime| runtime.block_on(read_websocket(io, caller, LIMIT)));
    (messages.iter().map(|message| message.to_vec()).collect(), fair)
}

/// The text messages up to the first thing that is not plain, by the letter of RFC 6455.
fn by_the_letter(mut rest: &[u8], caller: bool) -> Vec<Vec<u8>> {
    let (mut messages, mut open): (Vec<Vec<u8>>, Option<Vec<u8>>) = (Vec::new(), None);
    while let Some((fin, code, payload, behind)) = frame(rest, caller) {
        rest = behind;
        match (code, open.take()) {
            (1, None) => open = Some(payload),
            (0, Some(begun)) => open = Some([begun, payload].concat()),
            (9 | 10, begun) if fin && payload.len() <= 125 => {
                open = begun;
                continue;
            }
            _ => break,
        }
        if fin {
            messages.extend(open.take());
        }
    }
    messages
}

fn frame(bytes: &[u8], masked: bool) -> Option<(bool, u8, Vec<u8>, &[u8])> {
    let [first, second, rest @ ..] = bytes else { return None };
    if first & 0x70 != 0 || (second & 0x80 != 0) != masked {
        return None;
    }
    let (length, rest) = match second & 0x7f {
        126 => {
            rest.split_first_chunk().map(|(length, rest)| (u64::from(u16::from_be_bytes(*length)), rest))?
        }
        127 => rest.split_first_chunk().map(|(length, rest)| (u64::from_be_bytes(*length), rest))?,
        short => (u64::from(short), rest),
    };
    let (mask, rest) = if masked { rest.split_first_chunk()? } else { (&[0; 4], rest) };
    let (payload, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    let payload = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
    Some((first & 0x80 != 0, first & 0x0f, payload, rest))
}

pub(crate) fn check(data: &[u8]) {
    let Some((&how, data)) = data.split_first() else { return };
    let caller = how & 1 == 1;
    let whole = by_us(data, caller, data.len().max(1));
    assert_eq!(whole, by_us(data, caller, usize::from(how >> 1) % 9 + 1));
    assert!(whole.0.iter().all(|message| message.len() <= LIMIT && std::str::from_utf8(message).is_ok()));
    let seen = by_the_letter(data, caller);
    assert_eq!(seen.get(..whole.0.len()), Some(&whole.0[..]), "another reads other messages");
}
