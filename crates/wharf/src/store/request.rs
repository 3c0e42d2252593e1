//! A call as the queue of approvals knows it: who, what, and with which arguments, exactly and by their shape.
//!
//! In: what the way of a call knows. Out: the texts that approvals are found by, and what is shown to whoever answers.

use serde_json::Value;

use super::chain::hex;
use super::writer::unsigned;
use crate::catalog::fingerprint;
use crate::event::Redacted;
use crate::policy::{FlowReason, Identity, Wanted};
use crate::wire::Json;

/// A call that somebody must allow.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(super) caller: String,
    pub(super) session: String,
    pub(super) server: String,
    pub(super) identity: String,
    pub(super) tool: String,
    pub(super) digest: String,
    pub(super) shape: String,
    pub(super) arguments: String,
    pub(super) why: Option<String>,
}

/// A call that waits for an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// By which it is answered.
    pub id: u64,
    /// Since when: microseconds since 1970.
    pub created: u64,
    /// Until when it can be answered.
    pub expires: u64,
    /// Who wants to call.
    pub caller: String,
    /// The server.
    pub server: String,
    /// The tool, by its original name.
    pub tool: String,
    /// The arguments as they will be sent, but for secrets of the server.
    pub arguments: String,
    /// Why it is asked about, if not because a rule always wants it.
    pub why: Option<String>,
}

/// How far a yes of the queue reaches. It never reaches another caller, or another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaching {
    /// Exactly this call, and one time.
    Once,
    /// Calls of this tool whose arguments have the same names and kinds of value.
    Shape,
    /// Every call of this tool.
    Tool,
    /// Everything that is asked about in this session.
    Session,
}

/// Longer arguments are shown by their beginning.
const LARGEST: usize = 256 * 1024;

// === impl Request ===

impl Request {
    /// A call. The order of members and the space between them make no other call; everything else does.
    pub(crate) fn new(session: String, wanted: &Wanted<'_>, shown: &Redacted) -> Self {
        let mut identity = match wanted.identity() {
            Identity::Server(hash) => hex(hash),
            Identity::Local(set) => format!("local {set}"),
        };
        // A yes to a call is none to the same call after something private was read.
        if wanted.flow().is_some() {
            identity.push_str(" flow");
        }
        let arguments = shown.unredacted();
        let mut text = shown.to_json().as_str().to_owned();
        if text.len() > LARGEST {
            let bytes = text.len();
            text.truncate(text.floor_char_boundary(LARGEST));
            text.push_str(&format!("… ({bytes} bytes in all)"));
        }
        let mut form = String::new();
        shape(&arguments.to().unwrap_or(Value::Null), &mut form);
        Self {
            caller: wanted.caller().as_str().to_owned(),
            session,
            server: wanted.server().as_str().to_owned(),
            identity,
            tool: wanted.tool().as_str().to_owned(),
            why: wanted.flow().map(FlowReason::words),
            digest: fingerprint(arguments),
            shape: fingerprint(&Json::of(&form)),
            arguments: text,
        }
    }
}

/// Names and kinds, without values. The depth was bounded when the arguments were read.
fn shape(value: &Value, to: &mut String) {
    match value {
        Value::Null => to.push('0'),
        Value::Bool(_) => to.push('b'),
        Value::Number(_) => to.push('n'),
        Value::String(_) => to.push('s'),
        Value::Array(items) => {
            // A longer list of the same is the same.
            let mut kinds: Vec<String> = items
                .iter()
                .map(|item| {
                    let mut kind = String::new();
                    shape(item, &mut kind);
                    kind
                })
                .collect();
            kinds.sort();
            kinds.dedup();
            to.push('[');
            to.push_str(&kinds.join(","));
            to.push(']');
        }
        Value::Object(members) => {
            let mut keys: Vec<_> = members.iter().collect();
            keys.sort_by_key(|(key, _)| *key);
            to.push('{');
            for (key, member) in keys {
                to.push_str(&Value::from(key.as_str()).to_string());
                shape(member, to);
            }
            to.push('}');
        }
    }
}

// === impl Waiting ===

impl Waiting {
    pub(super) const SELECT: &str =
        "SELECT id, created, expires, caller, server, tool, coalesce(arguments, ''), why FROM approvals";

    pub(super) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: unsigned(row.get(0)?),
            created: unsigned(row.get(1)?),
            expires: unsigned(row.get(2)?),
            caller: row.get(3)?,
            server: row.get(4)?,
            tool: row.get(5)?,
            arguments: row.get(6)?,
            why: row.get(7)?,
        })
    }
}

// === impl Reaching ===

impl Reaching {
    /// In a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Shape => "shape",
            Self::Tool => "tool",
            Self::Session => "session",
        }
    }

    /// What a yes of this reach allows, in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Once => "this call, one time",
            Self::Shape => "calls of this tool with arguments of this shape",
            Self::Tool => "every call of this tool",
            Self::Session => "everything that is asked about in this session",
        }
    }
}
