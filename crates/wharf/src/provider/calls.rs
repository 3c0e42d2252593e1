//! A model's tool calls, ready to run or with the reason why not.
//!
//! In: a provider's answer and the tools that the model was given. Out: an [`Answer`]. A call that cannot be run is
//! still in it, with an error that the model can act on: one bad call never spoils the turn. Running them is `host`'s.

use super::answers::{self, Written, string};
use super::family::Provider;
use super::toolset::Toolset;
use crate::error::{Error, Result};
use crate::outcome::Outcome;
use crate::registry::Route;
use crate::text::{Escaped, Foreign, beginning};
use crate::wire::{Json, Limits};

/// The most calls of one answer that are run. The others get a failed result each.
pub const CALLS_MAX: usize = 128;
/// The longest arguments of one call, in bytes: more than any model writes in one answer.
pub const ARGUMENTS_MAX: usize = 1024 * 1024;

/// What a model answered.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Answer {
    /// What it said, without its thoughts. Empty where it only called tools.
    pub text: Foreign,
    /// The tool calls, in order. Empty where it wants none.
    pub calls: Vec<ToolCall>,
    /// Why it ended.
    pub stop: Stop,
    /// What must be sent back as the model's turn, byte for byte as it came: signatures and thoughts are in it.
    pub messages: Vec<Json>,
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// It said all it wanted.
    Done,
    /// It waits for tools.
    Tools,
    /// It ran into the limit of tokens. Its last call may be incomplete and is not run.
    Cut,
    /// The model, or a filter, refused.
    Refused,
    /// Another reason, in the provider's word.
    Other(Foreign),
}

/// One call of a model.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolCall {
    /// By which the result finds its call. Ollama has none and Gemini may have none.
    pub id: Option<String>,
    /// The name as the model wrote it.
    pub name: Foreign,
    /// The namespace beside it (OpenAI Responses). It is not looked at: names in a [`Toolset`] are unique without it.
    pub namespace: Option<Foreign>,
    /// Where the name leads; `None` if it is nobody's.
    pub route: Option<Route>,
    /// The arguments; `None` if they cannot be read.
    pub arguments: Option<Json>,
    /// Why it cannot be run.
    pub problem: Option<Error>,
}

// === impl Provider ===

impl Provider {
    /// Reads an answer: the whole body, or only the message in it. Names are looked up in the tools that the model was
    /// given. It is an error only if there is no answer in it at all, such as when the provider reports an error.
    pub fn answer(self, body: &Json, tools: &Toolset) -> Result<Answer> {
        let heard = answers::read(self, body).map_err(|reason| Error::Provider {
            provider: self.name(),
            reason: Escaped(beginning(&reason, 2000)).to_string(),
        })?;
        let mut calls: Vec<ToolCall> = Vec::with_capacity(heard.calls.len());
        let total = heard.calls.len();
        for (place, written) in heard.calls.into_iter().enumerate() {
            let refused = refusal(self, &written, &calls, (place, total));
            calls.push(ToolCall::read(written, tools, refused));
        }
        let stop = Stop::of(heard.ended, !calls.is_empty());
        if let (Stop::Cut, Some(last)) = (&stop, calls.last_mut()) {
            last.problem.get_or_insert(Error::Denied {
                what: format!("the call of `{}`", last.name),
                rule: "the rule that an answer is complete: it was cut off at the limit of tokens".into(),
                hint: "it was not run; make a shorter call, or one call at a time".into(),
            });
        }
        Ok(Answer { text: heard.text.into(), calls, stop, messages: heard.messages })
    }

    /// Whether its calls always have an id.
    fn has_ids(self) -> bool {
        !matches!(self, Self::Gemini | Self::GeminiOpenApi | Self::Ollama)
    }
}

/// Why a call is not run, whatever it says: too many, or a result could not find it.
fn refusal(
    provider: Provider,
    written: &Written,
    before: &[ToolCall],
    (place, total): (usize, usize),
) -> Option<Error> {
    let name = Escaped(beginning(&written.name, 128));
    let what = format!("call {} of {total}, `{name}`", place + 1);
    if place >= CALLS_MAX {
        return Some(Error::Denied {
            what,
            rule: format!("the limit of {CALLS_MAX} calls in one answer"),
            hint: "it was not run; make fewer calls at a time".into(),
        });
    }
    match &written.id {
        None if !provider.has_ids() => None,
        None => Some(Error::Denied {
            what,
            rule: "the rule that a call has an id".into(),
            hint: "it was not run; call again, with an id".into(),
        }),
        Some(id) if before.iter().any(|call| call.id.as_ref() == Some(id)) => Some(Error::Denied {
            what,
            rule: format!("the rule that an id is used once: `{}`", Escaped(beginning(id, 128))),
            hint: "it was not run; call again, with an id of its own".into(),
        }),
        Some(_) => None,
    }
}

// === impl ToolCall ===

impl ToolCall {
    fn read(written: Written, tools: &Toolset, refused: Option<Error>) -> Self {
        let route = tools.route(&written.name).cloned();
        let arguments = arguments(written.arguments);
        let problem = refused.or_else(|| match (&route, &arguments) {
            (None, _) => Some(unknown(&written.name, tools)),
            (Some(route), Err(reason)) => Some(Error::Arguments {
                server: route.server.clone(),
                tool: route.tool.name.clone(),
                problems: vec![reason.clone()],
            }),
            (Some(_), Ok(_)) => None,
        });
        Self {
            id: written.id,
            name: written.name.into(),
            namespace: written.namespace.map(Foreign::from),
            route,
            arguments: arguments.ok(),
            problem,
        }
    }

    /// Where to call and with what, or why it cannot be run.
    pub fn ready(&self) -> Result<(&Route, &Json)> {
        match (&self.problem, &self.route, &self.arguments) {
            (None, Some(route), Some(arguments)) => Ok((route, arguments)),
            (Some(problem), ..) => Err(problem.clone()),
            _ => Err(Error::Internal("a call without a target was called ready".into())),
        }
    }

    /// The outcome of a call that ended with an error before anything was sent.
    pub fn failed(&self, error: Error) -> Outcome {
        match &self.route {
            Some(route) => Outcome::from_error(route.server.clone(), route.tool.name.clone(), error),
            None => Outcome::not_found(error),
        }
    }
}

/// No such tool: what may have been meant, the most alike first.
fn unknown(name: &str, tools: &Toolset) -> Error {
    const ALIKE: f64 = 0.75;
    const SUGGESTED: usize = 3;
    let wanted = beginning(name, 128).to_ascii_lowercase();
    let mut alike: Vec<(f64, &str)> = tools
        .names()
        .map(|known| (strsim::jaro_winkler(&wanted, &known.to_ascii_lowercase()), known))
        .filter(|(score, _)| *score >= ALIKE)
        .collect();
    alike.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    let names: Vec<String> = alike.iter().take(SUGGESTED).map(|(_, known)| format!("`{known}`")).collect();
    let hint = match names.is_empty() {
        true => "nothing was run; call only tools that are listed, by their exact names".into(),
        false => format!("nothing was run; did you mean {}?", names.join(" or ")),
    };
    Error::UnknownTool { name: Escaped(beginning(name, 128)).to_string(), hint }
}

/// Arguments as an object, whether the provider writes them as one or as a text. Nothing at all is `{}`.
fn arguments(written: Option<Json>) -> Result<Json, String> {
    let Some(written) = written.filter(|w| !w.is_null()) else {
        return Ok(Json::empty_object());
    };
    let size = written.bytes().len();
    if size > ARGUMENTS_MAX {
        return Err(format!("the arguments have {size} bytes, more than {ARGUMENTS_MAX}"));
    }
    let read = match string(Some(written.clone())) {
        Some(text) if text.trim().is_empty() => return Ok(Json::empty_object()),
        Some(text) => Json::parse_strict(text, Limits::default().depth),
        None => written.refuse_duplicates().map(|()| written),
    };
    match read {
        Ok(object) if object.is_object() => Ok(object),
        Ok(null) if null.is_null() => Ok(Json::empty_object()),
        Ok(_) => Err("the arguments are not a JSON object".into()),
        Err(reason) => Err(format!("the arguments are not usable JSON: {reason}")),
    }
}

// === impl Stop ===

impl Stop {
    /// The words of all providers: none means two things.
    fn of(word: Option<String>, has_calls: bool) -> Self {
        let Some(word) = word else {
            return if has_calls { Self::Tools } else { Self::Done };
        };
        match word.to_ascii_lowercase().as_str() {
            // Some say that they are done and call all the same.
            "stop" | "end_turn" | "stop_sequence" | "completed" if has_calls => Self::Tools,
            "stop" | "end_turn" | "stop_sequence" | "completed" => Self::Done,
            "tool_calls" | "tool_use" | "function_call" => Self::Tools,
            "length"
            | "max_tokens"
            | "max_output_tokens"
            | "model_length"
            | "model_context_window_exceeded" => Self::Cut,
            "refusal"
            | "content_filter"
            | "content_filtered"
            | "guardrail_intervened"
            | "safety"
            | "recitation"
            | "blocklist"
            | "prohibited_content"
            | "spii"
            | "image_safety" => Self::Refused,
            _ => Self::Other(word.into()),
        }
    }
}
