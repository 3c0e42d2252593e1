//! What is asked of a server beside tool calls: reading a resource, filling a prompt, completing an argument, the level
//! of its log. A server that does not have it is not asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::rounds::Errand;
use super::{OnProgress, Relayed};
use crate::ask::Asker;
use crate::catalog::{self, Part, Rejected};
use crate::connect::{Connection, Request};
use crate::error::{Error, Result};
use crate::mcp::{Completion, Era, LogLevel, Prompt, PromptMessage, Reference, ResourceContents, method};
use crate::text::{Escaped, Foreign};
use crate::wire::{Json, Members};

/// How something is asked for.
pub struct Asked<'a> {
    /// Who answers, if the server asks back.
    pub asker: &'a Arc<dyn Asker>,
    /// How long to wait without a sign of life.
    pub timeout: Duration,
    /// How long to wait whatever the signs; `None` is twenty timeouts.
    pub hard_timeout: Option<Duration>,
    /// How long its server may be silent by its own settings: whoever waits for less learns nothing of it.
    pub usual: Duration,
    /// Who hears of progress, in order, before the answer.
    pub on_progress: Option<OnProgress<'a>>,
    /// Whoever it is asked for, if not for the program itself.
    pub relayed: Option<&'a Arc<Relayed>>,
    /// Whether nobody else's requests go over the connection.
    pub private: bool,
}

/// What was read of a resource.
#[derive(Clone, Debug)]
pub struct ResourceRead {
    /// Its parts, in the server's order. Reading a folder may give several.
    pub contents: Vec<ResourceContents>,
    /// Parts that cannot be used, and why.
    pub rejected: Vec<Rejected>,
    /// The whole answer, byte for byte.
    pub raw: Json,
}

/// A prompt with its gaps filled.
#[derive(Clone, Debug)]
pub struct PromptFetched {
    /// What it is for, in the server's words.
    pub description: Option<Foreign>,
    /// Its messages, in order.
    pub messages: Vec<PromptMessage>,
    /// Messages that cannot be used, and why.
    pub rejected: Vec<Rejected>,
    /// The whole answer, byte for byte.
    pub raw: Json,
}

/// An argument that somebody is typing.
#[derive(Clone, Debug)]
pub struct Completing<'a> {
    /// What it belongs to.
    pub reference: &'a Reference,
    /// Its name.
    pub argument: &'a str,
    /// What is typed so far.
    pub value: &'a str,
    /// Arguments that are settled already.
    pub context: &'a BTreeMap<String, String>,
}

/// How many names a hint holds.
const SHOWN: usize = 12;

/// Reads a resource.
pub async fn read_resource(connection: &Connection, uri: &str, asked: Asked<'_>) -> Result<ResourceRead> {
    Part::Resources.require(connection)?;
    let params = || {
        let mut params = Members::new();
        params.text("uri", uri);
        params
    };
    let raw = asked.run(connection, (method::RESOURCES_READ, Some(uri)), params).await?;
    let (contents, rejected) = parts(connection, &raw, "contents", ResourceContents::read)?;
    Ok(ResourceRead { contents, rejected, raw })
}

/// Passes a request of a caller on: its parameters as they came, and the server's answer as it is. `about` is the prompt
/// or the resource that it is about, for transports that say so in a header.
pub(crate) async fn forward(
    connection: &Connection,
    (part, method, about): (Part, &'static str, Option<&str>),
    params: &Members,
    asked: Asked<'_>,
) -> Result<Json> {
    part.require(connection)?;
    asked.run(connection, (method, about), || params.clone()).await
}

/// Looks a prompt up in the server's list.
pub async fn find_prompt(connection: &Connection, name: &str, timeout: Duration) -> Result<Prompt> {
    let offered = catalog::prompts(connection, timeout).await?;
    let names: Vec<String> = offered.items.iter().map(|p| format!("`{}`", p.name)).take(SHOWN).collect();
    if let Some(prompt) = offered.items.into_iter().find(|prompt| prompt.name.raw() == name) {
        return Ok(prompt);
    }
    let rejected = offered.rejected.iter().find(|rejected| rejected.name.raw() == name);
    let hint = match rejected {
        Some(rejected) => format!("it is listed, but {}", rejected.reason),
        None if names.is_empty() => "it has none".to_owned(),
        None => format!("it has {}", names.join(", ")),
    };
    Err(Error::UnknownPrompt { server: connection.server().clone(), name: name.to_owned(), hint })
}

/// Fills a prompt. What it needs is checked first; an argument that it does not know is refused as well.
pub async fn prompt(
    connection: &Connection,
    prompt: &Prompt,
    arguments: &BTreeMap<String, String>,
    asked: Asked<'_>,
) -> Result<PromptFetched> {
    Part::Prompts.require(connection)?;
    check(connection, prompt, arguments)?;
    let params = || {
        let mut params = Members::new();
        params.text("name", prompt.name.raw());
        if !arguments.is_empty() {
            params.json("arguments", &Json::of(arguments));
        }
        params
    };
    let raw = asked.run(connection, (method::PROMPTS_GET, Some(prompt.name.raw())), params).await?;
    let (messages, rejected) = parts(connection, &raw, "messages", PromptMessage::read)?;
    let description = raw.member("description").and_then(|d| d.to::<String>().ok()).map(Foreign::from);
    Ok(PromptFetched { description, messages, rejected, raw })
}

/// Asks what may be meant by the beginning of an argument.
pub async fn complete(
    connection: &Connection,
    completing: &Completing<'_>,
    timeout: Duration,
) -> Result<Completion> {
    Part::Completions.require(connection)?;
    let mut argument = Members::new();
    argument.text("name", completing.argument).text("value", completing.value);
    let mut params = Members::new();
    params.json("ref", &completing.reference.to_json()).object("argument", &argument);
    if !completing.context.is_empty() {
        let mut context = Members::new();
        context.json("arguments", &Json::of(completing.context));
        params.object("context", &context);
    }
    let raw = connection.request(Request::new(method::COMPLETE, params, timeout)).await?;
    Completion::read(raw).map_err(|reason| broken(connection, reason))
}

/// Asks for log messages of this level and graver ones. A legacy server is told once, a modern one with every request.
pub async fn set_log_level(connection: &Connection, level: LogLevel, timeout: Duration) -> Result<()> {
    Part::Logging.require(connection)?;
    if connection.info().revision.era() == Era::Modern {
        connection.log_from(level);
        return Ok(());
    }
    let mut params = Members::new();
    params.text("level", level.as_str());
    connection.request(Request::new(method::SET_LEVEL, params, timeout)).await.map(drop)
}

// === impl Asked ===

impl Asked<'_> {
    async fn run(
        self,
        connection: &Connection,
        (method, name): (&'static str, Option<&str>),
        params: impl Fn() -> Members,
    ) -> Result<Json> {
        let errand = Errand {
            method,
            name,
            tool: None,
            headers: Vec::new(),
            timeout: self.timeout,
            hard_timeout: self.hard_timeout,
            usual: self.usual,
            since: None,
            relayed: self.relayed,
            private: self.private,
        };
        errand.run(connection, params, self.asker, self.on_progress).await.map_err(|error| *error)
    }
}

impl std::fmt::Debug for Asked<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asked").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Whether the arguments fill the prompt's gaps.
fn check(connection: &Connection, prompt: &Prompt, arguments: &BTreeMap<String, String>) -> Result<()> {
    let missing = prompt.arguments.iter().filter(|a| a.required && !arguments.contains_key(a.name.raw()));
    let mut problems: Vec<String> =
        missing.map(|argument| format!("missing required argument `{}`", argument.name)).collect();
    let is_known = |name: &String| prompt.arguments.iter().any(|a| a.name.raw() == name);
    let unknown = arguments.keys().filter(|name| !is_known(name));
    problems.extend(unknown.map(|name| format!("it has no argument `{}`", Escaped(name))));
    if problems.is_empty() {
        return Ok(());
    }
    let known: Vec<String> = prompt.arguments.iter().map(|a| format!("`{}`", a.name)).collect();
    let takes = if known.is_empty() { "no arguments".to_owned() } else { known.join(", ") };
    Err(Error::PromptArguments {
        server: connection.server().clone(),
        prompt: prompt.name.clone(),
        problems,
        hint: format!("nothing was sent; it takes {takes}"),
    })
}

/// The parts of an answer, each read by itself.
fn parts<T>(
    connection: &Connection,
    raw: &Json,
    key: &str,
    read: fn(Json) -> Result<T, String>,
) -> Result<(Vec<T>, Vec<Rejected>)> {
    let all = raw.member(key).and_then(|parts| parts.to::<Vec<Json>>().ok());
    let all = all.ok_or_else(|| broken(connection, format!("its answer has no list `{key}`")))?;
    let (mut good, mut rejected) = (Vec::new(), Vec::new());
    for raw in all {
        let name = raw.member("uri").and_then(|uri| uri.to::<String>().ok()).unwrap_or_default();
        match read(raw) {
            Ok(part) => good.push(part),
            Err(reason) => rejected.push(Rejected { name: name.into(), reason, denied: None }),
        }
    }
    Ok((good, rejected))
}

fn broken(connection: &Connection, reason: String) -> Error {
    Error::Protocol { server: connection.server().clone(), reason, sent: false, stderr: connection.stderr() }
}
