//! States that go out to callers and come back: nobody can make one, change one, or use another's.
//!
//! A state is locked with a key that only this process has, and bound to its caller and to what was asked. The key ends
//! with the process, and with it every state.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::names::{CallerName, ServerName};
use crate::wire::{Json, RpcError};

/// Locks and unlocks states, and signs the ids of tasks.
pub(super) struct Seal(LessSafeKey, hmac::Key);

/// What a state stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A server's own state, as it gave it: for no other.
    Theirs(ServerName, Json),
    /// A call that waits here for an answer.
    Parked(u64),
}

/// What a state is bound to: a caller, and what it asked for.
pub(super) struct Binding([u8; 32]);

/// How long a state is good for.
pub(super) const GOOD_FOR: Duration = Duration::from_secs(10 * 60);
/// What states begin with.
const MARK: &str = "w1.";
/// How many bytes of a signature are kept.
const TAG: usize = 16;
/// The largest state of a server that is passed on.
const LARGEST: usize = 256 * 1024;

// === impl Seal ===

impl Seal {
    /// A new key.
    pub(super) fn new() -> Result<Self> {
        let (mut key, mut sign) = ([0_u8; 32], [0_u8; 32]);
        // From the system: what the cryptography has of its own takes a tenth of a second to begin with.
        let random = getrandom::fill(&mut key).and_then(|()| getrandom::fill(&mut sign)).ok();
        let key = random.and_then(|()| UnboundKey::new(&AES_256_GCM, &key).ok());
        key.map(|key| Self(LessSafeKey::new(key), hmac::Key::new(hmac::HMAC_SHA256, &sign)))
            .ok_or_else(|| Error::Internal("no random numbers to be had".into()))
    }

    /// Locks a state. `None` if it is too large to be passed on.
    pub(super) fn lock(&self, state: &State, binding: &Binding) -> Option<Json> {
        let until = (SystemTime::now() + GOOD_FOR).duration_since(UNIX_EPOCH).ok()?.as_millis();
        let mut text = u64::try_from(until).ok()?.to_be_bytes().to_vec();
        match state {
            State::Theirs(_, state) if state.bytes().len() > LARGEST => return None,
            State::Theirs(server, state) => {
                text.push(b't');
                text.extend_from_slice(server.as_str().as_bytes());
                text.push(b'/');
                text.extend_from_slice(state.bytes());
            }
            State::Parked(ticket) => {
                text.push(b'p');
                text.extend_from_slice(&ticket.to_be_bytes());
            }
        }
        let mut nonce = [0_u8; NONCE_LEN];
        getrandom::fill(&mut nonce).ok()?;
        let aad = Aad::from(binding.0);
        self.0.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut text).ok()?;
        let mut out = nonce.to_vec();
        out.append(&mut text);
        Some(Json::of(&format!("{MARK}{}", URL_SAFE_NO_PAD.encode(out))))
    }

    /// Unlocks a state that comes back. Why it is not good is not said: there is nothing to mend.
    pub(super) fn unlock(&self, state: &Json, binding: &Binding) -> Result<State, RpcError> {
        self.open(state, binding).ok_or_else(refused)
    }

    /// A name for a server's task that is good for one caller. The same task has the same name.
    pub(super) fn task(&self, caller: &CallerName, server: &ServerName, id: &str) -> String {
        let text = format!("{server}/{id}");
        let tag = hmac::sign(&self.1, &signed(caller, &text));
        format!("{MARK}{}.{}", URL_SAFE_NO_PAD.encode(&text), URL_SAFE_NO_PAD.encode(&tag.as_ref()[..TAG]))
    }

    /// The server and its own id of a task, if the name is one that this caller was given.
    pub(super) fn open_task(&self, caller: &CallerName, name: &str) -> Option<(ServerName, String)> {
        let (text, tag) = name.strip_prefix(MARK)?.split_once('.')?;
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        let whole = hmac::sign(&self.1, &signed(caller, &text));
        let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
        aws_lc_rs::constant_time::verify_slices_are_equal(&whole.as_ref()[..TAG], &tag).ok()?;
        let (server, id) = text.split_once('/')?;
        Some((ServerName::parse(server).ok()?, id.to_owned()))
    }

    fn open(&self, state: &Json, binding: &Binding) -> Option<State> {
        let text: String = state.to().ok()?;
        let mut bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix(MARK)?).ok()?;
        if bytes.len() < NONCE_LEN {
            return None;
        }
        let mut sealed = bytes.split_off(NONCE_LEN);
        let nonce = Nonce::try_assume_unique_for_key(&bytes).ok()?;
        let plain = self.0.open_in_place(nonce, Aad::from(binding.0), &mut sealed).ok()?;
        let (until, rest) = plain.split_first_chunk::<8>()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_millis();
        if now > u128::from(u64::from_be_bytes(*until)) {
            return None;
        }
        match rest.split_first()? {
            (b't', theirs) => {
                let slash = memchr::memchr(b'/', theirs)?;
                let server = ServerName::parse(std::str::from_utf8(&theirs[..slash]).ok()?).ok()?;
                Some(State::Theirs(server, Json::parse(theirs[slash + 1..].to_vec(), 127).ok()?))
            }
            (b'p', ticket) => Some(State::Parked(u64::from_be_bytes(ticket.try_into().ok()?))),
            _ => None,
        }
    }
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal(***)")
    }
}

// === impl Binding ===

impl Binding {
    /// A caller, a method, and what is asked for: a retry says the same again, however it spells it.
    pub(super) fn new(caller: &CallerName, method: &str, params: Option<&Json>) -> Self {
        let mut hash = Sha256::new();
        let mut part = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        };
        part(caller.as_str());
        part(method);
        let picked = params.map(|params| params.pick(["name", "uri", "arguments"])).unwrap_or_default();
        for value in picked {
            match value.and_then(|value| value.to::<serde_json::Value>().ok()) {
                // An absent value and an empty object are the same request.
                Some(value) if value != serde_json::json!({}) => part(&sorted(value).to_string()),
                _ => part(""),
            }
        }
        Self(hash.finalize().into())
    }
}

/// The same value with its keys in order.
fn sorted(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(members.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        plain => plain,
    }
}

fn signed(caller: &CallerName, task: &str) -> Vec<u8> {
    format!("{}\0{caller}\0{task}", caller.as_str().len()).into_bytes()
}

/// What every bad state is told.
pub(super) fn refused() -> RpcError {
    RpcError::new(
        crate::mcp::code::INVALID_PARAMS,
        "the `requestState` is not one of this request, was used already, or is too old: make the request anew",
    )
}
