//! A model provider on loopback that follows a script, and is as strict as the real one about what it is asked.
//!
//! In: the answers of a conversation, one a turn. Out: a base URL. A request that the provider would refuse gets a 400
//! with the reason, and so does one that does not bring back the model's own turn byte for byte. The rules are written
//! from the providers' documents.

mod rules;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::http::{HttpPuppet, Recorded, Reply};

/// Whose interface it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// OpenAI Chat Completions, below `/v1`.
    OpenAiChat,
    /// Anthropic Messages.
    Anthropic,
    /// Gemini.
    Gemini,
}

/// A scripted model. It lives as long as this value.
#[derive(Debug)]
pub struct ScriptedModel {
    puppet: HttpPuppet,
    dialect: Dialect,
}

/// The key that it wants.
pub const KEY: &str = "key-that-nobody-may-see";
/// The model that it is.
pub const MODEL: &str = "scripted-1";

struct Script {
    dialect: Dialect,
    /// The answers, and the model's own turn in each, which must come back.
    turns: Vec<(Value, String)>,
    next: Mutex<usize>,
}

// === impl ScriptedModel ===

impl ScriptedModel {
    /// Starts it with these answers: whole bodies. Must be called inside a Tokio runtime.
    pub fn start(dialect: Dialect, answers: impl IntoIterator<Item = Value>) -> Self {
        let turns = answers.into_iter().map(|answer| {
            let own = dialect.own_turn(&answer).to_string();
            (answer, own)
        });
        let script = Arc::new(Script { dialect, turns: turns.collect(), next: Mutex::new(0) });
        let puppet = HttpPuppet::start(move |request| {
            let script = Arc::clone(&script);
            async move { script.answer(&request) }
        });
        Self { puppet, dialect }
    }

    /// What a program must have in its environment to talk to it.
    pub fn environment(&self) -> Vec<(String, String)> {
        let prefix = match self.dialect {
            Dialect::OpenAiChat => "OPENAI",
            Dialect::Anthropic => "ANTHROPIC",
            Dialect::Gemini => "GEMINI",
        };
        let base = match self.dialect {
            Dialect::OpenAiChat => "/v1",
            Dialect::Anthropic | Dialect::Gemini => "",
        };
        let values =
            [("BASE_URL", self.puppet.url_of(base)), ("API_KEY", KEY.into()), ("MODEL", MODEL.into())];
        values.into_iter().map(|(name, value)| (format!("{prefix}_{name}"), value)).collect()
    }

    /// The bodies of what it was asked so far.
    pub fn asked(&self) -> Vec<Value> {
        self.puppet.requests().iter().map(Recorded::json).collect()
    }
}

// === impl Script ===

impl Script {
    fn answer(&self, request: &Recorded) -> Reply {
        let mut next = self.next.lock().unwrap();
        let brought_back = self.turns[..*next].iter().map(|(_, own)| own.as_str());
        let checked = rules::check(self.dialect, request, brought_back);
        let reply = match (checked, self.turns.get(*next)) {
            (Err(reason), _) => refuse(&reason),
            (Ok(()), None) => refuse("the script is over"),
            (Ok(()), Some((answer, _))) => Reply::ok(answer.clone()),
        };
        *next += 1;
        reply
    }
}

fn refuse(reason: &str) -> Reply {
    Reply::Json(400, Vec::new(), json!({"error": {"message": reason}}))
}

// === impl Dialect ===

impl Dialect {
    /// The part of an answer that the next request must hold unchanged.
    fn own_turn(self, answer: &Value) -> &Value {
        match self {
            Self::OpenAiChat => &answer["choices"][0]["message"],
            Self::Anthropic => &answer["content"],
            Self::Gemini => &answer["candidates"][0]["content"],
        }
    }
}
