//! A permitted call on its way: sent once, kept alive by progress, asked back as often as the server may ask.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::ask::{self, Asker};
use crate::connect::{Connection, Progress, Request};
use crate::error::{Error, Result};
use crate::mcp::{Era, Tool, method};
use crate::policy::CallPermit;
use crate::wire::{Json, Members};

/// What is sent: a tool and its arguments, already checked.
#[derive(Debug)]
pub struct Call<'a> {
    /// Proof that the call is allowed.
    pub permit: &'a CallPermit,
    /// The tool.
    pub tool: &'a Tool,
    /// Its arguments, the very bytes that were checked.
    pub arguments: &'a Json,
    /// How long to wait without a sign of life.
    pub timeout: Duration,
    /// How long to wait whatever the signs; `None` leaves it to the connection.
    pub hard_timeout: Option<Duration>,
}

/// Who hears of progress.
pub type OnProgress<'a> = &'a mut (dyn FnMut(Progress) + Send);

/// How often a modern server may ask before it must answer.
const MAX_ROUNDS: usize = 10;

/// Sends a call and gives the server's result. A tool that may have run is never sent again by this function;
/// the rounds of `input_required` are the server's own invitation to go on.
pub async fn send(
    connection: &Connection,
    call: &Call<'_>,
    asker: &Arc<dyn Asker>,
    mut on_progress: Option<OnProgress<'_>>,
) -> Result<Json> {
    let modern = connection.info().revision.era() == Era::Modern;
    let mut round = Round::default();
    for number in 0..MAX_ROUNDS {
        let mut request = Request::new(method::TOOLS_CALL, params(call, &round), call.timeout);
        request.hard_timeout = call.hard_timeout.unwrap_or(request.hard_timeout);
        request.tool = Some(&call.tool.name);
        request.name = Some(call.tool.name.as_str());
        if modern {
            request.headers = headers(call);
        }
        request.on_progress = on_progress.as_mut().map(|listener| &mut **listener as OnProgress<'_>);
        let result = connection.request(request).await.map_err(|error| begun(error, number))?;
        match asked(connection, &result, modern)? {
            None => return Ok(result),
            Some(question) => round = question.answer(connection, asker).await?,
        }
    }
    Err(protocol(connection, format!("it asked back more than {MAX_ROUNDS} times in one call")))
}

/// From the second round on the server has begun: what could not be sent must not start the call anew.
fn begun(mut error: Error, round: usize) -> Error {
    if let (Error::Connection { retryable, .. }, true) = (&mut error, round > 0) {
        *retryable = false;
    }
    error
}

/// What goes back to a server that asked.
#[derive(Default)]
struct Round {
    responses: Option<Json>,
    state: Option<Json>,
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

fn params(call: &Call<'_>, round: &Round) -> Members {
    let mut params = Members::new();
    params.text("name", call.tool.name.as_str()).json("arguments", call.arguments);
    if let Some(responses) = &round.responses {
        params.json("inputResponses", responses);
    }
    if let Some(state) = &round.state {
        params.json("requestState", state);
    }
    params
}

/// The arguments that the tool wants repeated as headers.
fn headers(call: &Call<'_>) -> Vec<(String, String)> {
    let Ok(rules) = &call.tool.headers else { return Vec::new() };
    if rules.is_empty() {
        return Vec::new();
    }
    let arguments: serde_json::Value = call.arguments.to().unwrap_or_default();
    let value =
        |rule: &crate::mcp::HeaderRule| Some((format!("Mcp-Param-{}", rule.name), rule.value(&arguments)?));
    rules.iter().filter_map(value).collect()
}

/// Whether a result is a question. A kind of result that nobody knows is not a result.
fn asked(connection: &Connection, result: &Json, modern: bool) -> Result<Option<InputRequired>> {
    if !modern {
        return Ok(None);
    }
    let kind = result.member("resultType");
    match kind.as_ref().map(|kind| &kind.bytes()[..]) {
        None | Some(b"\"complete\"") => Ok(None),
        Some(b"\"input_required\"") => {
            let question: InputRequired = result
                .to()
                .map_err(|e| protocol(connection, format!("its `input_required` cannot be read: {e}")))?;
            if question.input_requests.is_empty() && question.request_state.is_none() {
                return Err(protocol(connection, "its `input_required` asks for nothing".into()));
            }
            Ok(Some(question))
        }
        Some(other) => {
            let shown: String = String::from_utf8_lossy(other).chars().take(60).collect();
            Err(protocol(
                connection,
                format!("its result is of the unknown kind {}", crate::text::Escaped(&shown)),
            ))
        }
    }
}

impl InputRequired {
    /// Asks each question; the state goes back byte for byte.
    async fn answer(self, connection: &Connection, asker: &Arc<dyn Asker>) -> Result<Round> {
        let mut responses = Members::new();
        for (key, asked) in &self.input_requests {
            let (server, method) = (connection.server().clone(), asked.method.clone());
            let said = ask::answer(Arc::clone(asker), server, method, asked.params.clone()).await;
            match said {
                Ok(response) => responses.json(key, &response),
                // There is no way to answer with an error: the call ends here instead.
                Err(error) => {
                    let reason = format!("it asks for `{}`: {error}", asked.method);
                    return Err(Error::Cancelled {
                        reason: format!("server `{}`: {reason}", connection.server()),
                    });
                }
            };
        }
        let responses = (!self.input_requests.is_empty()).then(|| responses.to_json());
        Ok(Round { responses, state: self.request_state })
    }
}

fn protocol(connection: &Connection, reason: String) -> Error {
    Error::Protocol { server: connection.server().clone(), reason, stderr: connection.stderr() }
}
