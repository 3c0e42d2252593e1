//! Looks for the id of an answer in a frame that cannot be parsed, or that is too long to be kept.
//!
//! In: the bytes of one frame, in any pieces. Out: the id, if the frame is an object that says it among its outermost
//! members. It is only used to end a call with an error, never to deliver an answer. An object with a `method` is a
//! request of the other side, whose ids are its own: it has no id for us, but one to refuse it by.

use super::Json;
use super::envelope::whole_number;

/// The walk over one frame. It keeps a few bytes, however long the frame is.
#[derive(Debug, Default)]
pub(crate) struct IdFinder {
    place: Place,
    /// How many objects and arrays are open.
    depth: u64,
    in_string: bool,
    /// The last byte was a backslash inside a string.
    escaped: bool,
    /// The beginning of the outermost member that is being read, without blanks.
    member: Vec<u8>,
    id: Option<u64>,
    /// The same as it is written, whatever it is.
    written: Option<Vec<u8>>,
    is_request: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Before,
    Inside,
    /// Behind the object, or in something that is none.
    Over,
}

/// More of a member need not be kept: `"id":"18446744073709551615"` fits, and what callers make their ids of.
const MEMBER: usize = 128;

impl IdFinder {
    /// The id in a frame that is there as a whole.
    pub(super) fn look(frame: &[u8]) -> Option<u64> {
        let mut finder = Self::default();
        finder.more(frame);
        finder.end()
    }

    /// Takes the next bytes of the frame.
    pub(crate) fn more(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            match self.place {
                Place::Over => return,
                // The other three are a byte order mark.
                Place::Before if byte.is_ascii_whitespace() || [0xef, 0xbb, 0xbf].contains(&byte) => {}
                Place::Before => {
                    self.place = if byte == b'{' { Place::Inside } else { Place::Over };
                    self.depth = 1;
                }
                Place::Inside if self.in_string && !self.escaped && !self.keeps() => {
                    // Nothing in here is of interest but its end.
                    let Some(stop) = memchr::memchr2(b'"', b'\\', &bytes[at..]) else {
                        return;
                    };
                    at += stop;
                    self.string_byte(bytes[at]);
                }
                Place::Inside if self.in_string => {
                    self.keep(byte);
                    self.string_byte(byte);
                }
                Place::Inside => self.token(byte),
            }
            at += 1;
        }
    }

    /// The id, now that no more bytes come.
    pub(super) fn end(self) -> Option<u64> {
        let is_request = self.is_request || (self.depth == 1 && self.member.starts_with(b"\"method\":"));
        self.id.filter(|_| !is_request)
    }

    /// The id of a request, as it is written, now that no more bytes come.
    pub(crate) fn asked(self) -> Option<Json> {
        let written = self.written.filter(|_| self.is_request)?;
        Json::parse(written, 1).ok().filter(Json::is_id)
    }

    fn string_byte(&mut self, byte: u8) {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' => self.escaped = true,
            b'"' => self.in_string = false,
            _ => {}
        }
    }

    fn token(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.keep(byte);
                self.in_string = true;
            }
            b'{' | b'[' => {
                self.keep(byte);
                self.depth += 1;
            }
            b'}' | b']' if self.depth > 1 => self.depth -= 1,
            b'}' => {
                self.end_member();
                self.place = Place::Over;
            }
            b',' if self.depth == 1 => self.end_member(),
            _ if byte.is_ascii_whitespace() => {}
            _ => self.keep(byte),
        }
    }

    fn end_member(&mut self) {
        if let Some(value) = self.member.strip_prefix(b"\"id\":") {
            let value = value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\"")).unwrap_or(value);
            self.id = self.id.or_else(|| whole_number(value));
            // One that was cut off is another.
            if self.written.is_none() && self.member.len() < MEMBER {
                self.written = Some(self.member.split_off(b"\"id\":".len()));
            }
        }
        self.is_request |= self.member.starts_with(b"\"method\":");
        self.member.clear();
    }

    fn keeps(&self) -> bool {
        self.depth == 1 && self.member.len() < MEMBER
    }

    fn keep(&mut self, byte: u8) {
        if self.keeps() {
            self.member.push(byte);
        }
    }
}
