//! In: the first bytes of a TLS connection. Out: the name it is for, or why that cannot be known.
//! Strict, so that no server behind can read another name from the same bytes: whatever is odd is refused. Nothing is
//! decrypted, and a hello that hides its name is refused too.

/// What the bytes are so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hello {
    /// The hello is not complete.
    More,
    /// The name that it is for, in lower case; `None` where it names none.
    For(Option<String>),
    /// It is no hello that can be judged.
    Odd(&'static str),
}

/// No hello is longer, with its records' headers.
pub(super) const MAX_HELLO: usize = 32 * 1024;
/// The first byte of a TLS handshake.
pub(super) const HANDSHAKE: u8 = 0x16;
/// The alert for a name that is not served.
pub(super) const UNRECOGNIZED_NAME: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 112];

const CLIENT_HELLO: u8 = 1;
const MAX_RECORD: usize = 16 * 1024;
const SERVER_NAME: u16 = 0;
/// RFC 9849; also what browsers send without having a name to hide.
const ENCRYPTED_HELLO: u16 = 0xfe0d;

/// Takes bytes from the front, each part with its length before it.
struct Parts<'a>(&'a [u8]);

const CUT: &str = "its TLS hello is malformed";

/// Reads the hello as far as it is there.
pub(super) fn read(bytes: &[u8]) -> Hello {
    match handshake(bytes) {
        Ok(Some(body)) => body_name(&body).map_or_else(Hello::Odd, Hello::For),
        Ok(None) if bytes.len() >= MAX_HELLO => Hello::Odd("its TLS hello is too long"),
        Ok(None) => Hello::More,
        Err(odd) => Hello::Odd(odd),
    }
}

/// The body of the first handshake message, put together from its records.
fn handshake(mut rest: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    let mut message = Vec::new();
    loop {
        if rest.first().is_some_and(|kind| *kind != HANDSHAKE) {
            return Err("it does not begin with TLS");
        }
        let [_, major, _, high, low, after @ ..] = rest else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if *major != 3 || length == 0 || length > MAX_RECORD {
            return Err(CUT);
        }
        let Some((fragment, next)) = after.split_at_checked(length) else { return Ok(None) };
        message.extend_from_slice(fragment);
        rest = next;
        let [kind, a, b, c, body @ ..] = message.as_slice() else { continue };
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        if *kind != CLIENT_HELLO || length > MAX_HELLO || body.len() > length {
            return Err(CUT);
        }
        if body.len() == length {
            return Ok(Some(body.to_vec()));
        }
    }
}

/// The one name in a hello.
fn body_name(body: &[u8]) -> Result<Option<String>, &'static str> {
    let mut parts = Parts(body);
    parts.take(2 + 32)?;
    parts.short()?;
    parts.long()?;
    parts.short()?;
    if parts.0.is_empty() {
        return Ok(None);
    }
    let mut extensions = Parts(parts.long()?);
    parts.end()?;
    let mut name = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number()?;
        let data = extensions.long()?;
        match kind {
            ENCRYPTED_HELLO => {
                return Err("its TLS hello can hide the name it is for (ECH); switch that off");
            }
            SERVER_NAME if name.is_some() => return Err("its TLS hello has two names"),
            SERVER_NAME => name = Some(server_name(data)?),
            _ => {}
        }
    }
    Ok(name)
}

fn server_name(data: &[u8]) -> Result<String, &'static str> {
    let mut parts = Parts(data);
    let mut list = Parts(parts.long()?);
    parts.end()?;
    let [kind] = list.take(1)? else { return Err(CUT) };
    let name = list.long()?;
    if *kind != 0 || !list.0.is_empty() {
        return Err("its TLS hello has two names");
    }
    let name = std::str::from_utf8(name).ok().filter(|name| name.is_ascii());
    name.map(str::to_ascii_lowercase).ok_or(CUT)
}

// === impl Parts ===

impl<'a> Parts<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(CUT)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u16, &'static str> {
        let [high, low] = self.take(2)? else { return Err(CUT) };
        Ok(u16::from_be_bytes([*high, *low]))
    }

    /// A part with one byte for its length.
    fn short(&mut self) -> Result<&'a [u8], &'static str> {
        let [length] = self.take(1)? else { return Err(CUT) };
        self.take(usize::from(*length))
    }

    /// A part with two bytes for its length.
    fn long(&mut self) -> Result<&'a [u8], &'static str> {
        let length = self.number()?;
        self.take(usize::from(length))
    }

    fn end(&self) -> Result<(), &'static str> {
        if self.0.is_empty() { Ok(()) } else { Err(CUT) }
    }
}
