//! Completion: what an argument is completed for, and the values that a server proposes.

use serde::Deserialize;

use crate::text::Foreign;
use crate::wire::{Json, Members};

/// What an argument belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// A prompt, by its name.
    Prompt(String),
    /// A template of resources, by its pattern.
    Template(String),
}

/// Values that may be meant.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The values, the likeliest first.
    pub values: Vec<Foreign>,
    /// How many there are in all, if the server knows.
    pub total: Option<u64>,
    /// Whether there are more than these.
    pub has_more: bool,
    /// The whole answer, byte for byte.
    pub raw: Json,
}

/// The protocol's own limit.
const MAX_VALUES: usize = 100;

impl Completion {
    /// Reads the result of `completion/complete`. Values beyond the protocol's hundred are left out.
    pub fn read(raw: Json) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Shape {
            completion: Inner,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Inner {
            values: Vec<String>,
            total: Option<Json>,
            has_more: Option<bool>,
        }
        let Shape { completion } = raw.to().map_err(|e| format!("its completion cannot be read: {e}"))?;
        let too_many = completion.values.len() > MAX_VALUES;
        Ok(Self {
            values: completion.values.into_iter().take(MAX_VALUES).map(Foreign::from).collect(),
            total: completion.total.and_then(|total| total.to().ok()),
            has_more: completion.has_more.unwrap_or(false) || too_many,
            raw,
        })
    }
}

impl Reference {
    /// The same in the protocol's words.
    pub fn to_json(&self) -> Json {
        let mut members = Members::new();
        match self {
            Self::Prompt(name) => members.text("type", "ref/prompt").text("name", name),
            Self::Template(uri) => members.text("type", "ref/resource").text("uri", uri),
        };
        members.to_json()
    }
}
