//! An answer in pieces: what is large is passed on as the bytes it came in, and never copied.

use bytes::Bytes;

use super::Json;
use super::write::{Members, without_breaks};

/// A message on its way out.
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    done: Vec<Bytes>,
    /// What follows them, and still grows.
    open: Vec<u8>,
}

/// What is smaller is copied, which costs less than a piece of its own.
const LARGE: usize = 16 * 1024;
/// How much most answers need beside what is passed on.
const ROOM: usize = 512;

// === impl Pieces ===

impl Pieces {
    /// A good answer to a request: some members, those of a result but for a few, and some more.
    pub fn response(
        id: &Json,
        result: &Json,
        left_out: &[&str],
        (first, last): (&Members, &Members),
    ) -> Self {
        let kept = if result.bytes().len() < LARGE { result.bytes().len() } else { 0 };
        let mut out = Self { done: Vec::new(), open: Vec::with_capacity(kept + ROOM) };
        out.push(b"{\"jsonrpc\":\"2.0\",\"id\":");
        out.push(id.bytes());
        out.push(b",\"result\":{");
        out.push(first.written());
        let mut any = !first.is_empty();
        let mut pass = |members: &[u8]| {
            if std::mem::replace(&mut any, true) {
                out.push(b",");
            }
            out.pass(result.bytes(), members);
        };
        match result.members_if_none(left_out) {
            Some(all) => pass(all),
            None => result.each_as_written(|key, member| {
                if !left_out.iter().any(|left_out| left_out.as_bytes() == key) {
                    pass(member);
                }
            }),
        }
        if any && !last.is_empty() {
            out.push(b",");
        }
        out.push(last.written());
        out.push(b"}}");
        out
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.done.iter().map(Bytes::len).sum::<usize>() + self.open.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.done.is_empty() && self.open.is_empty()
    }

    /// The pieces, in order.
    pub fn into_chunks(mut self) -> Vec<Bytes> {
        self.close();
        self.done
    }

    /// Writes all of it behind something else.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        self.done.iter().for_each(|piece| out.extend_from_slice(piece));
        out.extend_from_slice(&self.open);
    }

    /// All of it on one line.
    pub fn into_line(self) -> Vec<u8> {
        if self.done.is_empty() {
            return without_breaks(self.open);
        }
        let mut line = Vec::with_capacity(self.len() + 1);
        self.done.iter().for_each(|piece| line.extend_from_slice(piece));
        line.extend_from_slice(&self.open);
        without_breaks(line)
    }

    fn push(&mut self, text: &[u8]) {
        self.open.extend_from_slice(text);
    }

    /// Adds a part of some bytes, which is shared with them if it is large.
    fn pass(&mut self, of: &Bytes, part: &[u8]) {
        if part.len() < LARGE {
            return self.push(part);
        }
        self.close();
        self.done.push(of.slice_ref(part));
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            self.done.push(std::mem::take(&mut self.open).into());
        }
    }
}

impl From<Vec<u8>> for Pieces {
    fn from(open: Vec<u8>) -> Self {
        Self { done: Vec::new(), open }
    }
}
