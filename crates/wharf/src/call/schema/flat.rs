//! The plainest schemas, as most are: an object whose members are texts, numbers and truths.
//!
//! In: a schema. Out: a check that reads the arguments where they lie and builds nothing, or none if the schema says
//! anything more. It only ever says yes: whatever it does not know is left to the validator.

use serde_json::{Map, Value};

use crate::wire::Json;

/// What the members of an object must be.
#[derive(Debug)]
pub(super) struct Flat {
    members: Vec<Member>,
    required: u64,
}

#[derive(Debug)]
struct Member {
    name: Box<str>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Text,
    Whole,
    Number,
    Truth,
}

/// As many members as there are bits to remember which were seen.
const MEMBERS_MAX: usize = 64;
/// Words that only tell. Formats are not checked by the validator either.
const TELLING: [&str; 9] = [
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "format",
    "$comment",
];

// === impl Flat ===

impl Flat {
    /// `None` if the schema says more than this can check.
    pub(super) fn of(schema: &Map<String, Value>) -> Option<Self> {
        let known = ["type", "properties", "required", "additionalProperties"];
        if !schema.keys().all(|key| known.contains(&key.as_str()) || TELLING.contains(&key.as_str())) {
            return None;
        }
        if schema.get("type")? != "object"
            || schema.get("additionalProperties").is_some_and(|a| !a.is_boolean())
        {
            return None;
        }
        let properties = schema.get("properties")?.as_object()?;
        if properties.len() > MEMBERS_MAX {
            return None;
        }
        let member = |(name, schema): (&String, &Value)| {
            let plain = !name.contains(['\\', '"', '$']) && !name.contains(char::is_control);
            let kind = Kind::of(schema.as_object()?)?;
            plain.then(|| Member { name: name.as_str().into(), kind })
        };
        let members: Vec<Member> = properties.iter().map(member).collect::<Option<_>>()?;
        let mut required = 0;
        if let Some(names) = schema.get("required") {
            for name in names.as_array()? {
                let place = members.iter().position(|member| Some(&*member.name) == name.as_str())?;
                required |= 1 << place;
            }
        }
        Some(Self { members, required })
    }

    /// Whether the arguments fit. A no means that somebody else has to look.
    pub(super) fn fits(&self, arguments: &Json) -> bool {
        let mut seen = 0_u64;
        let known = arguments.each_member(|key, value| {
            let place = self.members.iter().position(|member| member.name.as_bytes() == key);
            let Some(place) = place else { return false };
            let first = seen & (1 << place) == 0;
            seen |= 1 << place;
            first && self.members[place].kind.fits(value)
        });
        known && seen & self.required == self.required
    }
}

// === impl Kind ===

impl Kind {
    fn of(schema: &Map<String, Value>) -> Option<Self> {
        if !schema.keys().all(|key| key == "type" || TELLING.contains(&key.as_str())) {
            return None;
        }
        match schema.get("type")?.as_str()? {
            "string" => Some(Self::Text),
            "integer" => Some(Self::Whole),
            "number" => Some(Self::Number),
            "boolean" => Some(Self::Truth),
            _ => None,
        }
    }

    /// The value is well-formed: its first byte says what it is.
    fn fits(self, value: &[u8]) -> bool {
        match (self, value.first()) {
            (Self::Text, Some(b'"')) | (Self::Truth, Some(b't' | b'f')) => true,
            (Self::Number, Some(b'-' | b'0'..=b'9')) => true,
            // `1.0` is whole too, but that takes a closer look.
            (Self::Whole, Some(b'-' | b'0'..=b'9')) => !value.iter().any(|b| matches!(b, b'.' | b'e' | b'E')),
            _ => false,
        }
    }
}
