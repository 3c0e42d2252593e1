//! Messages on their way out. Parts that are already JSON are copied in as they are.

use super::{Json, RpcError};

/// How much most messages need, with what every request of the modern era carries.
const ROOM: usize = 512;

/// The members of a JSON object under construction, without the braces.
#[derive(Clone, Debug, Default)]
pub struct Members(Vec<u8>);

impl Members {
    /// No members yet, and room for a small call: growing step by step costs more than the bytes.
    pub fn new() -> Self {
        Self(Vec::with_capacity(ROOM))
    }

    /// The members of an object that is already JSON. Anything else has none. A key that is added to them must be new.
    pub fn of(object: &Json) -> Self {
        let text = object.as_str().trim();
        let inner = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).map_or("", str::trim);
        Self(inner.as_bytes().to_vec())
    }

    /// Adds a member whose value is already JSON.
    pub fn json(&mut self, key: &'static str, value: &Json) -> &mut Self {
        self.key(key);
        self.0.extend_from_slice(value.bytes());
        self
    }

    /// The same under a key that somebody else chose.
    pub fn json_under(&mut self, key: &str, value: &Json) -> &mut Self {
        self.comma();
        push_string(&mut self.0, key);
        self.0.push(b':');
        self.0.extend_from_slice(value.bytes());
        self
    }

    /// Adds a member whose value is a string.
    pub fn text(&mut self, key: &'static str, value: &str) -> &mut Self {
        self.key(key);
        push_string(&mut self.0, value);
        self
    }

    /// Adds a member whose value is a number.
    pub fn number(&mut self, key: &'static str, value: u64) -> &mut Self {
        self.key(key);
        push_number(&mut self.0, value);
        self
    }

    /// Adds a member whose value is an object of these members.
    pub fn object(&mut self, key: &'static str, value: &Self) -> &mut Self {
        self.key(key);
        value.write(&mut self.0);
        self
    }

    /// Adds a member that is an object, whose members are added where they will stand.
    pub fn object_of(&mut self, key: &'static str, add: impl FnOnce(&mut Self)) -> &mut Self {
        self.key(key);
        self.0.push(b'{');
        add(self);
        self.0.push(b'}');
        self
    }

    /// Adds a member that is an array of these values, each of which is made when its turn comes.
    pub fn array(&mut self, key: &'static str, items: impl IntoIterator<Item = Json>) -> &mut Self {
        self.key(key);
        self.0.push(b'[');
        for (place, item) in items.into_iter().enumerate() {
            self.0.extend_from_slice(if place == 0 { b"" } else { b"," });
            self.0.extend_from_slice(item.bytes());
        }
        self.0.push(b']');
        self
    }

    /// Adds other members. None of their keys may be here already.
    pub fn append(&mut self, others: &Self) -> &mut Self {
        if !others.0.is_empty() {
            self.comma();
        }
        self.0.extend_from_slice(&others.0);
        self
    }

    /// Adds the members of an object, but for some, each as it is written.
    pub fn append_without(&mut self, object: &Json, left_out: &[&str]) -> &mut Self {
        object.each_as_written(|key, member| {
            if !left_out.iter().any(|left_out| left_out.as_bytes() == key) {
                self.comma();
                self.0.extend_from_slice(member);
            }
        });
        self
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The object, braces included.
    pub fn to_json(&self) -> Json {
        let mut out = Vec::with_capacity(self.0.len() + 2);
        self.write(&mut out);
        // Written from checked parts and escaped strings, so there is nothing to check again.
        Json::joined(out)
    }

    /// The same of members that are many and to be kept: they are not copied, and take no more room than they need.
    pub fn into_json(self) -> Json {
        let Self(mut text) = self;
        text.insert(0, b'{');
        text.push(b'}');
        text.shrink_to_fit();
        Json::joined(text)
    }

    /// The members as they stand in a message.
    pub(super) fn written(&self) -> &[u8] {
        &self.0
    }

    fn key(&mut self, key: &'static str) {
        debug_assert!(is_plain(key.as_bytes()), "a key of ours has no escapes");
        self.0.reserve(key.len() + 4);
        self.comma();
        self.0.push(b'"');
        self.0.extend_from_slice(key.as_bytes());
        self.0.extend_from_slice(b"\":");
    }

    /// Between two members. No value ends with the brace that opens an object.
    fn comma(&mut self) {
        if !matches!(self.0.last(), None | Some(b'{')) {
            self.0.push(b',');
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        out.extend_from_slice(&self.0);
        out.push(b'}');
    }
}

/// A request, on one line and without a line break at its end.
pub fn request(id: u64, method: &str, params: Members) -> Vec<u8> {
    // Behind the parameters there is room for what comes before them, and moving them costs less than an allocation.
    let Members(mut out) = params;
    let length = out.len();
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    push_number(&mut out, id);
    out.extend_from_slice(b",\"method\":");
    push_string(&mut out, method);
    out.extend_from_slice(b",\"params\":{");
    out.rotate_left(length);
    out.push(b'}');
    finish(out)
}

/// A notification, on one line.
pub fn notification(method: &str, params: &Members) -> Vec<u8> {
    let mut out = Vec::with_capacity(params.0.len() + method.len() + 48);
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":");
    push_string(&mut out, method);
    if !params.is_empty() {
        out.extend_from_slice(b",\"params\":");
        params.write(&mut out);
    }
    finish(out)
}

/// A good answer to a request of the other side, whose id is echoed as it came; on one line.
pub fn response_result(id: &Json, result: &Json) -> Vec<u8> {
    let mut out = response_head(id, result.bytes().len());
    out.extend_from_slice(b",\"result\":");
    out.extend_from_slice(result.bytes());
    finish(out)
}

/// A bad answer to a request of the other side, on one line.
pub fn response_error(id: &Json, error: &RpcError) -> Vec<u8> {
    let mut members = Members::new();
    members.json("code", &Json::of(&error.code)).text("message", error.message.raw());
    if let Some(data) = &error.data {
        members.json("data", data);
    }
    let mut out = response_head(id, 64);
    out.extend_from_slice(b",\"error\":");
    members.write(&mut out);
    finish(out)
}

fn response_head(id: &Json, room: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(room + 48);
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.bytes());
    out
}

/// Closes a message. A part may hold line breaks between its tokens (never inside a string), and on a pipe a line break
/// ends the message: a blank takes its place.
fn finish(mut out: Vec<u8>) -> Vec<u8> {
    out.push(b'}');
    without_breaks(out)
}

pub(super) fn without_breaks(mut out: Vec<u8>) -> Vec<u8> {
    let mut at = 0;
    while let Some(found) = memchr::memchr2(b'\n', b'\r', &out[at..]) {
        at += found;
        out[at] = b' ';
    }
    out
}

/// Digits from the back, without an allocation.
fn push_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0_u8; 20];
    let mut from = digits.len();
    loop {
        from -= 1;
        digits[from] = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[from..]);
}

fn push_string(out: &mut Vec<u8>, text: &str) {
    if !is_plain(text.as_bytes()) {
        // A string always serialises.
        out.extend_from_slice(serde_json::to_string(text).unwrap_or_default().as_bytes());
        return;
    }
    out.reserve(text.len() + 2);
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

/// Whether a string can hold these bytes as they are. Eight are looked at together.
fn is_plain(text: &[u8]) -> bool {
    let (words, rest) = text.as_chunks::<8>();
    let special = words.iter().fold(0, |special, word| special | specials(*word));
    // The last eight cover what is left, where there are as many.
    match text.last_chunk::<8>() {
        Some(last) if !rest.is_empty() => (special | specials(*last)) == 0,
        _ => special == 0 && !rest.iter().any(|b| SPECIAL[usize::from(*b)]),
    }
}

/// Not zero where one of eight bytes cannot stand in a string as it is.
fn specials(eight: [u8; 8]) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    // The highest bit of a byte is set where it is below `bound`; beyond the first such byte it may be set by mistake.
    let below = |word: u64, bound: u64| word.wrapping_sub(ONES * bound) & !word & HIGH;
    let word = u64::from_ne_bytes(eight);
    let (quote, backslash) = (word ^ (ONES * u64::from(b'"')), word ^ (ONES * u64::from(b'\\')));
    below(word, 0x20) | below(quote, 1) | below(backslash, 1)
}

/// Which bytes a string cannot hold as they are.
static SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        special[byte] = true;
        byte += 1;
    }
    special[b'"' as usize] = true;
    special[b'\\' as usize] = true;
    special
};
