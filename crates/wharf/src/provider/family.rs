//! Which form a model wants: by its name, or by the form's own.
//!
//! In: the name of a model or of a form. Out: a [`Provider`]. What each form allows is told in `rules.rs`.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::text::{Escaped, beginning};

/// A provider's way to write tools and tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Provider {
    /// OpenAI Chat Completions, and the many that follow it.
    OpenAiChat,
    /// OpenAI Responses.
    OpenAiResponses,
    /// Anthropic Messages.
    Anthropic,
    /// Gemini, with `parametersJsonSchema`.
    Gemini,
    /// Gemini, with the older `parameters` in its subset of OpenAPI.
    GeminiOpenApi,
    /// Mistral.
    Mistral,
    /// Amazon Bedrock Converse.
    Bedrock,
    /// Ollama.
    Ollama,
}

/// What stands before the first `/` of a model's id, as routers and their clients write it.
const PREFIXES: [(&str, Provider); 13] = [
    ("openai", Provider::OpenAiChat),
    ("azure", Provider::OpenAiChat),
    ("openrouter", Provider::OpenAiChat),
    ("groq", Provider::OpenAiChat),
    ("anthropic", Provider::Anthropic),
    ("gemini", Provider::Gemini),
    ("google", Provider::Gemini),
    ("mistral", Provider::Mistral),
    ("mistralai", Provider::Mistral),
    ("bedrock", Provider::Bedrock),
    ("amazon", Provider::Bedrock),
    ("ollama", Provider::Ollama),
    ("ollama_chat", Provider::Ollama),
];
/// Who stands before the first `.` of a Bedrock id, once its region is taken away.
const BEDROCK: [&str; 11] = [
    "anthropic",
    "amazon",
    "meta",
    "mistral",
    "cohere",
    "ai21",
    "deepseek",
    "qwen",
    "openai",
    "writer",
    "stability",
];
/// Regions that stand before it: `us.anthropic.claude-…`.
const REGIONS: [&str; 8] = ["us", "eu", "apac", "global", "us-gov", "jp", "au", "ca"];
/// How names begin in the families whose models have names of their own.
const FAMILIES: [(&str, Provider); 19] = [
    ("gpt-oss", Provider::Ollama),
    ("gpt-", Provider::OpenAiChat),
    ("chatgpt", Provider::OpenAiChat),
    ("codex", Provider::OpenAiResponses),
    ("computer-use", Provider::OpenAiResponses),
    ("text-", Provider::OpenAiChat),
    ("claude", Provider::Anthropic),
    ("gemini", Provider::Gemini),
    ("mistral", Provider::Mistral),
    ("ministral", Provider::Mistral),
    ("magistral", Provider::Mistral),
    ("codestral", Provider::Mistral),
    ("devstral", Provider::Mistral),
    ("pixtral", Provider::Mistral),
    ("mixtral", Provider::Mistral),
    ("llama", Provider::Ollama),
    ("qwen", Provider::Ollama),
    ("gemma", Provider::Ollama),
    ("phi", Provider::Ollama),
];
/// The families, for whoever named none of them.
const KNOWN: &str = "known are OpenAI (gpt-…, o1, o3, o4, chatgpt-…, codex-…), Anthropic (claude-…), Gemini (gemini-…), \
                     Mistral (mistral-…, codestral-…), Bedrock (amazon.nova-…, anthropic.…), Ollama (ollama/…, name:tag); \
                     or choose the form by its own name";

// === impl Provider ===

impl Provider {
    /// Every form.
    pub const ALL: [Self; 8] = [
        Self::OpenAiChat,
        Self::OpenAiResponses,
        Self::Anthropic,
        Self::Gemini,
        Self::GeminiOpenApi,
        Self::Mistral,
        Self::Bedrock,
        Self::Ollama,
    ];

    /// The form that a model wants, by its name: `claude-opus-4-5`, `openai/gpt-5`, `us.anthropic.claude-…-v1:0`.
    ///
    /// OpenAI's models get [`Provider::OpenAiChat`], which everything that follows OpenAI understands; those that are only
    /// served by Responses (`codex`, `…-pro`, `…-deep-research`, `computer-use-…`) get [`Provider::OpenAiResponses`].
    /// Gemini's get [`Provider::Gemini`]. Open models by their bare name, or with a tag (`mistral:7b`), are Ollama's.
    /// An id with a provider's name before a `/` is that provider's. An unknown name is an error that lists the families.
    pub fn of_model(name: &str) -> Result<Self> {
        let wanted = name.trim().to_ascii_lowercase();
        guess(&wanted).ok_or_else(|| Error::Config {
            message: format!("the model `{}` is of no known family", Escaped(beginning(name, 128))),
            hint: Some(KNOWN.into()),
        })
    }

    /// Its name, as [`FromStr`] takes it: `openai-responses`.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAiChat => "openai",
            Self::OpenAiResponses => "openai-responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::GeminiOpenApi => "gemini-openapi",
            Self::Mistral => "mistral",
            Self::Bedrock => "bedrock",
            Self::Ollama => "ollama",
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Provider {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "openai-chat" {
            return Ok(Self::OpenAiChat);
        }
        Self::ALL.into_iter().find(|provider| provider.name() == text).ok_or_else(|| Error::Config {
            message: format!("there is no form `{}`", Escaped(beginning(text, 128))),
            hint: Some(format!("the forms are {}", Self::ALL.map(Self::name).join(", "))),
        })
    }
}

fn guess(model: &str) -> Option<Provider> {
    if model.starts_with("arn:aws:bedrock:") {
        return Some(Provider::Bedrock);
    }
    let model = model.strip_prefix("models/").unwrap_or(model);
    if let Some((before, after)) = model.split_once('/') {
        let named = PREFIXES.iter().find(|(prefix, _)| *prefix == before).map(|(_, provider)| *provider);
        return match named {
            Some(Provider::OpenAiChat) if is_responses_only(after) && before != "openrouter" => {
                Some(Provider::OpenAiResponses)
            }
            Some(named) => Some(named),
            // `vertex_ai/gemini-…`, `vertex_ai/claude-…`: the model says it.
            None if before == "vertex_ai" => guess(after),
            None => None,
        };
    }
    let model = model.strip_prefix("ft:").unwrap_or(model);
    if is_bedrock(model) {
        return Some(Provider::Bedrock);
    }
    let family = FAMILIES.iter().find(|(prefix, _)| model.starts_with(prefix)).map(|(_, provider)| *provider);
    match family {
        Some(Provider::OpenAiChat) if is_responses_only(model) => Some(Provider::OpenAiResponses),
        Some(Provider::Mistral) if model.contains(':') => Some(Provider::Ollama),
        Some(family) => Some(family),
        None if is_o_series(model) && is_responses_only(model) => Some(Provider::OpenAiResponses),
        None if is_o_series(model) => Some(Provider::OpenAiChat),
        None if is_tagged(model) => Some(Provider::Ollama),
        None => None,
    }
}

/// `o1`, `o3-mini`: not every word with an o.
fn is_o_series(model: &str) -> bool {
    ["o1", "o3", "o4"]
        .iter()
        .any(|o| model.strip_prefix(o).is_some_and(|rest| rest.is_empty() || rest.starts_with('-')))
}

fn is_responses_only(model: &str) -> bool {
    model.split(['-', '.']).any(|part| part == "codex" || part == "pro")
        || model.contains("deep-research")
        || model.starts_with("computer-use")
}

fn is_bedrock(model: &str) -> bool {
    let mut parts = model.split('.');
    let first = parts.next().unwrap_or_default();
    let maker = if REGIONS.contains(&first) { parts.next().unwrap_or_default() } else { first };
    BEDROCK.contains(&maker) && parts.next().is_some()
}

/// `name:tag`, as Ollama writes it.
fn is_tagged(model: &str) -> bool {
    model.split_once(':').is_some_and(|(name, tag)| !name.is_empty() && !tag.is_empty() && !tag.contains(':'))
}
