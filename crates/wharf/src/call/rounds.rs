//! A request that a server may answer with a question: it is asked again with the answers, a few times at most.
//!
//! In: a request that may be written more than once. Out: the result that is no question. In the modern era a question
//! is an `input_required` result; in the legacy era it is an error that names pages to visit, and everything else is
//! asked by requests of the server, which `connect` answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;

use super::relayed::{INPUT_REQUIRED, UNFINISHED};
use super::{OnProgress, Relayed};
use crate::ask::{self, Asker};
use crate::connect::{Companion, Connection, Request};
use crate::error::{Error, Light, Result};
use crate::mcp::trace::{self, TraceParent};
use crate::mcp::{Era, code, method};
use crate::names::ToolName;
use crate::wire::{Json, Members};

/// What is asked, in every round alike.
pub(super) struct Errand<'a> {
    pub(super) method: &'static str,
    /// What it is about: a tool, a prompt, a resource.
    pub(super) name: Option<&'a str>,
    /// The tool, if it is one: errors name it.
    pub(super) tool: Option<&'a ToolName>,
    /// Headers that mirror arguments.
    pub(super) headers: Vec<(String, String)>,
    pub(super) timeout: Duration,
    pub(super) hard_timeout: Option<Duration>,
    /// The server's own.
    pub(super) usual: Duration,
    /// Since when; `None` from now on.
    pub(super) since: Option<Instant>,
    /// Whoever it is made for, if not for the program itself.
    pub(super) relayed: Option<&'a Arc<Relayed>>,
    /// Whether the connection carries only requests of the same caller, or can tell whose a question is.
    pub(super) private: bool,
}

/// What goes back to a server that asked.
#[derive(Default)]
struct Round {
    responses: Option<Json>,
    state: Option<Json>,
}

/// Why there is no result yet.
enum Question {
    Input(InputRequired),
    /// The parameters of an elicitation each.
    Pages(Vec<Json>),
}

/// What a server wants to know before it answers.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InputRequired {
    #[serde(default)]
    input_requests: BTreeMap<String, InputRequest>,
    request_state: Option<Json>,
}

#[derive(Deserialize)]
struct InputRequest {
    method: String,
    params: Option<Json>,
}

/// How often a server may ask before it must answer.
const MAX_ROUNDS: usize = 10;
/// How long a server that wants nothing but to be asked again is left alone first.
const PAUSE: Duration = Duration::from_millis(250);
/// How many pages somebody may be sent to at once.
const MAX_PAGES: usize = 10;

impl Errand<'_> {
    /// Asks until there is a result. `params` writes the parameters, anew in each round.
    pub(super) async fn run(
        &self,
        connection: &Connection,
        params: impl Fn() -> Members,
        asker: &Arc<dyn Asker>,
        mut on_progress: Option<OnProgress<'_>>,
    ) -> Light<Json> {
        let modern = connection.info().revision.era() == Era::Modern;
        let started = self.since.unwrap_or_else(Instant::now);
        let mut round = self.relayed.map_or_else(Round::default, |relayed| Round::of(relayed));
        for number in 0..MAX_ROUNDS {
            let mut request = Request::new(self.method, round.write(params()), self.timeout);
            let hard = self.hard_timeout.unwrap_or(request.hard_timeout);
            // All rounds together have the time of one call.
            request.hard_timeout = if number == 0 { hard } else { hard.saturating_sub(started.elapsed()) };
            request.usual = self.usual;
            request.started = (number == 0).then_some(started);
            request.tool = self.tool;
            request.name = self.name;
            if !self.headers.is_empty() {
                request.headers.clone_from(&self.headers);
            }
            if let Some(told) = self.relayed.map(|relayed| &relayed.told) {
                request
                    .headers
                    .extend(told.trace.iter().flat_map(|parent| trace_headers(*parent, &told.meta)));
            }
            request.told = self.relayed.map(|relayed| &relayed.told);
            request.companion = self.companion(modern);
            request.on_progress = on_progress.as_mut().map(|listener| &mut **listener as OnProgress<'_>);
            let question = match connection.carry(&mut request).await {
                Ok(result) => match self.asked(connection, &result, modern)? {
                    None => return Ok(result),
                    Some(question) => question,
                },
                Err(error) => match pages(&error).filter(|_| !modern && asker.offers().urls) {
                    None => return Err(self.begun(*error, number).into()),
                    Some(pages) => Question::Pages(pages),
                },
            };
            // Whoever is asked has as long as the whole call.
            let left = hard.saturating_sub(started.elapsed());
            round = match tokio::time::timeout(left, question.answer(connection, asker)).await {
                Ok(answered) => {
                    answered.map_err(|reason| Error::Cancelled { reason, sent: self.tool.is_some() })?
                }
                Err(_) => return Err(self.unanswered(connection, started.elapsed()).into()),
            };
        }
        let reason = format!("it asked back more than {MAX_ROUNDS} times in one call");
        Err(self.protocol(connection, reason).into())
    }

    /// What a server logs and asks goes to the caller only where it cannot be another caller's.
    fn companion(&self, modern: bool) -> Option<Arc<dyn Companion>> {
        let relayed = self.relayed.filter(|_| modern || self.private)?;
        Some(Arc::clone(relayed) as Arc<dyn Companion>)
    }

    /// Whether a result is a question, and not the caller's to answer. A kind of result that nobody knows is not a result.
    fn asked(&self, connection: &Connection, result: &Json, modern: bool) -> Result<Option<Question>> {
        let [kind] = result.peek(["resultType"]);
        match kind {
            None | Some(b"\"complete\"") => Ok(None),
            _ if modern && self.relayed.is_some_and(|relayed| relayed.returns_kind(kind)) => Ok(None),
            // To a legacy server it is a member like any other, as long as nobody else takes it for its own.
            Some(other) if !modern && !UNFINISHED.contains(&other) => Ok(None),
            Some(INPUT_REQUIRED) if modern => {
                let question: InputRequired = result.to().map_err(|e| {
                    self.protocol(connection, format!("its `input_required` cannot be read: {e}"))
                })?;
                if question.input_requests.is_empty() && question.request_state.is_none() {
                    return Err(self.protocol(connection, "its `input_required` asks for nothing".into()));
                }
                Ok(Some(Question::Input(question)))
            }
            Some(other) => {
                let shown: String = String::from_utf8_lossy(other).chars().take(60).collect();
                Err(self.protocol(
                    connection,
                    format!("its result is of the unknown kind {}", crate::text::Escaped(&shown)),
                ))
            }
        }
    }

    /// From the second round on the server has begun: what could not be sent must not start the call anew.
    fn begun(&self, error: Error, round: usize) -> Error {
        match error {
            error if round == 0 => error,
            error if self.tool.is_some() => error.once_begun(self.method),
            Error::Connection { server, transport, reason, stderr, .. } => {
                Error::Connection { server, transport, reason, stderr, retryable: false }
            }
            error => error,
        }
    }

    fn unanswered(&self, connection: &Connection, after: Duration) -> Error {
        let (server, stderr) = (connection.server().clone(), connection.stderr());
        Error::Timeout { server, after, sent: self.tool.is_some(), stderr }
    }

    fn protocol(&self, connection: &Connection, reason: String) -> Error {
        let (server, stderr) = (connection.server().clone(), connection.stderr());
        Error::Protocol { server, reason, sent: self.tool.is_some(), stderr }
    }
}

/// What `_meta` says of a trace, which was checked before it was written there, as headers say it.
fn trace_headers(parent: TraceParent, meta: &Members) -> Vec<(String, String)> {
    let mut headers = vec![(trace::key::PARENT.to_owned(), parent.to_string())];
    let keys = [trace::key::STATE, trace::key::BAGGAGE];
    for (key, found) in keys.into_iter().zip(meta.to_json().pick(keys)) {
        let text = found.as_ref().and_then(Json::text);
        headers.extend(text.map(|text| (key.to_owned(), text.into_owned())));
    }
    headers
}

/// The pages that a legacy server wants visited before it runs the call at all.
fn pages(error: &Error) -> Option<Vec<Json>> {
    let (Error::Tool { rpc, .. } | Error::Rpc { rpc, .. }) = error else { return None };
    if rpc.code != code::PAGES_FIRST {
        return None;
    }
    let pages: Vec<Json> = rpc.data.as_ref()?.member("elicitations")?.to().ok()?;
    (1..=MAX_PAGES).contains(&pages.len()).then_some(pages)
}

// === impl Round ===

impl Round {
    /// What a caller brings from the rounds before, which were its own requests.
    fn of(relayed: &Relayed) -> Self {
        Self { responses: relayed.responses.clone(), state: relayed.state.clone() }
    }

    fn write(&self, mut params: Members) -> Members {
        if let Some(responses) = &self.responses {
            params.json("inputResponses", responses);
        }
        if let Some(state) = &self.state {
            params.json("requestState", state);
        }
        params
    }
}

// === impl Question ===

impl Question {
    /// Asks each question; the state goes back byte for byte.
    async fn answer(self, connection: &Connection, asker: &Arc<dyn Asker>) -> Result<Round, String> {
        match self {
            Self::Input(question) => question.answer(connection, asker).await,
            Self::Pages(pages) => visit(pages, connection, asker).await,
        }
    }
}

impl InputRequired {
    async fn answer(self, connection: &Connection, asker: &Arc<dyn Asker>) -> Result<Round, String> {
        if self.input_requests.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
        let mut responses = Members::new();
        for (key, asked) in &self.input_requests {
            let response = ask(connection, asker, &asked.method, asked.params.clone()).await?;
            responses.json_under(key, &response);
        }
        let responses = (!self.input_requests.is_empty()).then(|| responses.to_json());
        Ok(Round { responses, state: self.request_state })
    }
}

/// Has each page visited. One that is not ends the call: the server would only ask again.
async fn visit(pages: Vec<Json>, connection: &Connection, asker: &Arc<dyn Asker>) -> Result<Round, String> {
    for page in pages {
        let said = ask(connection, asker, method::ELICIT, Some(page)).await?;
        if said.member("action").is_none_or(|action| action.as_str() != "\"accept\"") {
            let server = connection.server();
            return Err(format!("server `{server}` wants a page visited first, and that was declined"));
        }
    }
    Ok(Round::default())
}

async fn ask(
    connection: &Connection,
    asker: &Arc<dyn Asker>,
    method: &str,
    params: Option<Json>,
) -> Result<Json, String> {
    let server = connection.server();
    let said = ask::answer(Arc::clone(asker), server.clone(), method.to_owned(), params).await;
    // There is no way to answer with an error: the call ends here instead.
    said.map_err(|error| format!("server `{server}`: it asks for `{method}`: {error}"))
}
