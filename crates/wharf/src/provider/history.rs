//! A conversation in a provider's messages, with the results still in the neutral form.
//!
//! In: what was said, in the provider's own form and passed on as it is, and the results of calls. Out: the messages of
//! the next request. Results that a later one supersedes shrink to a line, where the owner of the history says so.

use super::calls::Answer;
use super::family::Provider;
use super::message::{Part, ToolMessage};
use crate::wire::Json;

/// What has been said so far.
///
/// ```no_run
/// use serde_json::json;
/// use wharf::provider::{Compiler, History, Provider, ToolMessage};
/// # use wharf::{Host, wire::Json};
/// # async fn run(host: Host, ask: impl AsyncFn(&Json, Vec<Json>) -> Json) -> wharf::Result<String> {
/// let form = Provider::Anthropic;
/// let compiled = Compiler::new().compile(form, host.tools().await.snapshot.tools());
/// let mut history = History::default();
/// history.say(json!({ "role": "user", "content": "What is in this folder?" }));
/// loop {
///     let body = ask(&compiled.tools, history.messages(form)).await;
///     let answer = form.answer(&body, &compiled.toolset)?;
///     if answer.calls.is_empty() {
///         return Ok(answer.text.lines().to_string());
///     }
///     history.answer(&answer);
///     let done = host.run_calls(answer.calls).await;
///     history.results(done.iter().map(|(call, outcome)| ToolMessage::new(call, outcome)));
/// }
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct History {
    entries: Vec<Entry>,
    rules: Vec<Newest>,
}

#[derive(Clone, Debug)]
enum Entry {
    /// A message as its author wrote it.
    Said(Json),
    /// The results of one turn.
    Results(Vec<ToolMessage>),
}

/// Of this tool, only the newest result for the same values of these arguments counts.
#[derive(Clone, Debug)]
struct Newest {
    server: String,
    tool: String,
    by: Vec<String>,
}

/// What stands in the place of a result that no longer counts.
const SUPERSEDED: &str = "[superseded: a later call of this tool has the result that counts]";

// === impl History ===

impl History {
    /// Adds a message in the provider's own form, such as the user's.
    pub fn say(&mut self, message: impl Into<Json>) {
        self.entries.push(Entry::Said(message.into()));
    }

    /// Adds a model's answer, as it came.
    pub fn answer(&mut self, answer: &Answer) {
        self.entries.extend(answer.messages.iter().cloned().map(Entry::Said));
    }

    /// Adds the results of a turn, in the order of its calls. Older results that they supersede shrink to a line.
    pub fn results(&mut self, results: impl IntoIterator<Item = ToolMessage>) {
        let results: Vec<ToolMessage> = results.into_iter().collect();
        self.entries.push(Entry::Results(Vec::with_capacity(results.len())));
        for result in results {
            if let Some(rule) = self.rule_for(&result).filter(|_| !result.is_error).cloned() {
                self.older().filter(|old| rule.matches(old, &result)).for_each(shrink);
            }
            if let Some(Entry::Results(turn)) = self.entries.last_mut() {
                turn.push(result);
            }
        }
    }

    /// From now on a successful result of this tool supersedes its older ones that were asked for with the same values
    /// of these arguments; with no arguments named, all of them. Nothing is superseded unless it is said here.
    ///
    /// A shrunken result still stands in its place, since every provider wants a result for each call. What the
    /// provider has cached of the conversation behind it is lost.
    pub fn keep_newest(&mut self, server: &str, tool: &str, by: &[&str]) {
        let by = by.iter().map(|&name| name.to_owned()).collect();
        self.rules.push(Newest { server: server.to_owned(), tool: tool.to_owned(), by });
    }

    /// The messages of the next request.
    pub fn messages(&self, provider: Provider) -> Vec<Json> {
        let mut messages = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            match entry {
                Entry::Said(message) => messages.push(message.clone()),
                Entry::Results(results) => messages.extend(provider.messages(results)),
            }
        }
        messages
    }

    fn rule_for(&self, result: &ToolMessage) -> Option<&Newest> {
        let (server, tool) = result.tool.as_ref()?;
        self.rules.iter().find(|rule| rule.server == server.as_str() && rule.tool == tool.as_str())
    }

    fn older(&mut self) -> impl Iterator<Item = &mut ToolMessage> {
        self.entries.iter_mut().flat_map(|entry| match entry {
            Entry::Results(results) => results.as_mut_slice(),
            Entry::Said(_) => &mut [],
        })
    }
}

// === impl Newest ===

impl Newest {
    /// Whether both are results of the same tool for the same thing. Values are compared as they are written.
    fn matches(&self, old: &ToolMessage, new: &ToolMessage) -> bool {
        let value = |message: &ToolMessage, key: &str| message.arguments.as_ref().and_then(|a| a.member(key));
        old.tool == new.tool && self.by.iter().all(|key| value(old, key) == value(new, key))
    }
}

fn shrink(old: &mut ToolMessage) {
    old.parts = vec![Part::Text(SUPERSEDED.into())];
    old.is_error = false;
}
