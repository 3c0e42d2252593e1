//! The modern edge: every request stands alone, and its headers say what its body says.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use serde_json::json;

use super::body::{self, Reply, Work};
use super::desk::{Desk, invalid, unknown};
use super::guard::single;
use super::http::VERSION;
use super::limits;
use super::line::Line;
use super::mirrored::{Mirrored, decoded};
use super::parked::{Inquirer, Running, Step};
use super::seal::{Binding, State};
use super::visit::{self, Said, Visit};
use crate::mcp::{LogLevel, Revision, code, meta, method};
use crate::names::CallerName;
use crate::wire::{Json, Members, RpcError, response_error, response_result};

/// One request.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) id: Json,
    pub(super) method: String,
    pub(super) params: Option<Json>,
}

/// After so much silence the answer begins as a stream, so that nobody on the way takes it for lost.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a list may be kept by whoever got it.
const LIST_TTL_MS: u64 = 5_000;
/// Whatever a server says.
const LONGEST_TTL_MS: u64 = 60 * 60 * 1000;

impl Asked {
    /// Whether it is written in the modern way.
    pub(super) fn is_modern(&self) -> bool {
        self.told(meta::PROTOCOL_VERSION).is_some()
    }

    /// Answers it over HTTP. The status says what the protocol wants it to say.
    pub(super) async fn over_http(self, desk: Arc<Desk>, caller: CallerName, headers: &HeaderMap) -> Reply {
        if let Err(error) = self.check_headers(headers).and_then(|()| self.check_meta()) {
            return body::message(StatusCode::BAD_REQUEST, response_error(&self.id, &error));
        }
        let (line, mut notes) = Line::new();
        let mirrored = Mirrored::of(headers);
        let mut work = Box::pin(async move {
            let result = desk.ending.or_over(self.result(&desk, &caller, &line, Some(&mirrored))).await;
            (self, result)
        });
        let first = tokio::select! {
            biased;
            (asked, result) = &mut work => match notes.try_recv() {
                Err(_) => return whole(&asked, result),
                // What was said on the way comes first, however soon the end came.
                Ok(note) => {
                    let last: Work = Box::pin(std::future::ready(asked.written(result)));
                    return body::events(Some(body::first_event(&note)), notes, Some(last));
                }
            },
            note = notes.recv() => note.map(|note| body::first_event(&note)),
            () = tokio::time::sleep(PATIENCE) => None,
        };
        let work: Work = Box::pin(async move {
            let (asked, result) = work.await;
            asked.written(result)
        });
        body::events(first, notes, Some(work))
    }

    /// Answers it over a pipe.
    pub(super) async fn over_pipe(&self, desk: &Arc<Desk>, caller: &CallerName, line: &Line) -> Vec<u8> {
        let result = match self.check_meta() {
            Ok(()) => self.result(desk, caller, line, None).await,
            Err(error) => Err(error),
        };
        self.written(result)
    }

    fn written(&self, result: Result<Json, RpcError>) -> Vec<u8> {
        match result {
            Ok(result) => response_result(&self.id, &result),
            Err(error) => response_error(&self.id, &self.in_this_era(error)),
        }
    }

    /// An error in the words of this era, which has one code less: a resource that is not there is a bad parameter.
    fn in_this_era(&self, error: RpcError) -> RpcError {
        if error.code != code::NO_RESOURCE {
            return error;
        }
        let uri = self.params.as_ref().and_then(|params| params.member("uri"));
        let named = uri.map(|uri| {
            let mut data = Members::new();
            data.json("uri", &uri);
            data.to_json()
        });
        RpcError { code: code::INVALID_PARAMS, data: error.data.or(named), ..error }
    }

    async fn result(
        &self,
        desk: &Arc<Desk>,
        caller: &CallerName,
        line: &Line,
        mirrored: Option<&Mirrored>,
    ) -> Result<Json, RpcError> {
        if let (method::TOOLS_CALL, Some(mirrored)) = (self.method.as_str(), mirrored) {
            mirrored.check(&*desk.scope(caller)?, self.params.as_ref()).await?;
        }
        let ttl = match self.method.as_str() {
            method::RESOURCES_READ => Some(0),
            name => name.ends_with("/list").then_some(LIST_TTL_MS),
        };
        let result = match self.method.as_str() {
            method::DISCOVER => {
                return Ok(dressed(&discovered(desk, caller).await?, desk, Some(LIST_TTL_MS)));
            }
            method::TOOLS_CALL | method::PROMPTS_GET | method::RESOURCES_READ => {
                self.errand(desk, caller, line).await?
            }
            method::LISTEN => self.listen(desk, caller, line).await?,
            // Words of the legacy era: here they mean nothing, whatever the other edge makes of them.
            method::INITIALIZE
            | method::PING
            | method::SET_LEVEL
            | method::SUBSCRIBE
            | method::UNSUBSCRIBE => return Err(unknown(&self.method)),
            name => {
                // Nobody is asked anything on the way to these: they need no capabilities.
                let mut said = Said::read(self.params.as_ref());
                said.capabilities = Some(Json::empty_object());
                let scope = desk.scope(caller)?;
                let nobody = Arc::new(Inquirer::absent(Json::empty_object()));
                let visit = Visit::modern(said, line.clone(), nobody);
                desk.answer(&scope, name, self.params.as_ref(), &visit).await?
            }
        };
        Ok(dressed(&result, desk, ttl))
    }

    /// A request whose server may want to know something before it answers.
    async fn errand(&self, desk: &Arc<Desk>, caller: &CallerName, line: &Line) -> Result<Json, RpcError> {
        let mut said = Said::read(self.params.as_ref());
        line.report_as(said.token.clone());
        let binding = || Binding::new(caller, &self.method, self.params.as_ref());
        let state = said.state.take().map(|state| desk.seal.unlock(&state, &binding())).transpose()?;
        let mut running = match state {
            Some(State::Parked(ticket)) => desk.parking.resume(ticket, said.responses.as_ref(), line)?,
            Some(State::Theirs(state)) => {
                said.state = Some(state);
                self.start(desk, caller, said, line)?
            }
            None => self.start(desk, caller, said, line)?,
        };
        match running.go().await {
            Step::Done(Ok(result)) if is_question(&result) => {
                let locked = |state| desk.seal.lock(&State::Theirs(state), &binding());
                let capabilities = self.told(meta::CLIENT_CAPABILITIES).unwrap_or_else(Json::empty_object);
                passed_on(&result, &capabilities, locked)
            }
            Step::Done(result) => result,
            Step::Asks(questions) => {
                let ticket = desk.parking.park(caller, running)?;
                let state = desk.seal.lock(&State::Parked(ticket), &binding());
                let state = state.ok_or_else(|| RpcError::new(code::INTERNAL, "no state can be made"))?;
                let mut result = Members::new();
                result.text("resultType", "input_required");
                result.json("inputRequests", &questions).json("requestState", &state);
                Ok(result.to_json())
            }
        }
    }

    fn start(
        &self,
        desk: &Arc<Desk>,
        caller: &CallerName,
        mut said: Said,
        line: &Line,
    ) -> Result<Running, RpcError> {
        let capabilities = said.capabilities.as_ref().map_or_else(Json::empty_object, visit::for_modern);
        said.capabilities = Some(capabilities.clone());
        let scope = desk.scope_for(caller, &capabilities, said.level())?;
        let (desk, method, params) = (Arc::clone(desk), self.method.clone(), self.params.clone());
        let own = line.clone();
        Ok(Running::start(capabilities, line.clone(), move |asker| async move {
            let visit = Visit::modern(said, own, asker);
            desk.answer(&scope, &method, params.as_ref(), &visit).await
        }))
    }

    fn told(&self, key: &str) -> Option<Json> {
        self.params.as_ref()?.member("_meta")?.member(key)
    }

    fn check_meta(&self) -> Result<(), RpcError> {
        let missing = |key: &str| invalid(&format!("`_meta` must have `{key}`"));
        let version = self.told(meta::PROTOCOL_VERSION).ok_or_else(|| missing(meta::PROTOCOL_VERSION))?;
        let version: String = version.to().map_err(|_| missing(meta::PROTOCOL_VERSION))?;
        if version != Revision::NEWEST_MODERN.as_str() {
            let data = json!({ "supported": [Revision::NEWEST_MODERN.as_str()], "requested": version });
            let error = RpcError::new(code::UNSUPPORTED_VERSION, "unsupported protocol version");
            return Err(RpcError { data: Some(Json::of(&data)), ..error });
        }
        let level = self.told(meta::LOG_LEVEL);
        if level.is_some_and(|level| level.to::<String>().ok().and_then(|l| LogLevel::parse(&l)).is_none()) {
            return Err(invalid(&format!("`{}` is no level of a log", meta::LOG_LEVEL)));
        }
        let capabilities = self.told(meta::CLIENT_CAPABILITIES);
        capabilities.filter(Json::is_object).map(drop).ok_or_else(|| missing(meta::CLIENT_CAPABILITIES))
    }

    /// Whoever stands in between routes by the headers: they must not lie.
    fn check_headers(&self, headers: &HeaderMap) -> Result<(), RpcError> {
        let version = self.told(meta::PROTOCOL_VERSION).and_then(|v| v.to::<String>().ok());
        if let Some(version) = version {
            same(headers, VERSION, &version, |v| Some(v.to_owned()))?;
        }
        same(headers, "mcp-method", &self.method, |v| Some(v.to_owned()))?;
        let key = match self.method.as_str() {
            method::TOOLS_CALL | method::PROMPTS_GET => "name",
            method::RESOURCES_READ => "uri",
            _ => return Ok(()),
        };
        match self.params.as_ref().and_then(|p| p.member(key)).and_then(|name| name.to::<String>().ok()) {
            Some(name) => same(headers, "mcp-name", &name, decoded),
            // What the body lacks is told by whoever reads it.
            None => Ok(()),
        }
    }
}

fn whole(asked: &Asked, result: Result<Json, RpcError>) -> Reply {
    if let Err(error) = &result
        && limits::retry_after(error).is_some()
    {
        return body::overloaded(&asked.id, error);
    }
    let status = match &result {
        Err(error) if error.code == code::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        Err(error) if code::is_modern(error.code) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    };
    body::message(status, asked.written(result))
}

async fn discovered(desk: &Desk, caller: &CallerName) -> Result<Json, RpcError> {
    let mut result = Members::new();
    result.json("supportedVersions", &Json::of(&[Revision::NEWEST_MODERN.as_str()]));
    result.json("capabilities", &desk.capabilities(caller).await?);
    if let Some(instructions) = &desk.instructions {
        result.text("instructions", instructions);
    }
    Ok(result.to_json())
}

/// A result as this era wants it: it says what kind of result it is, who gave it, and how long it may be kept. What a
/// server says of itself is between it and us.
fn dressed(result: &Json, desk: &Desk, ttl: Option<u64>) -> Json {
    let [kind, theirs, told] = result.pick(["resultType", "ttlMs", "_meta"]);
    if !result.is_object() {
        return result.clone();
    }
    let mut dressed = Members::default();
    if kind.is_none() {
        dressed.text("resultType", "complete");
    }
    let complete = kind.is_none_or(|kind| kind.as_str() == "\"complete\"");
    dressed.append_without(result, &["_meta", "ttlMs", "cacheScope"]);
    if let (Some(ttl), true) = (ttl, complete) {
        // What is kept is each caller's own, whatever its server says: it knows only us, and we may be many.
        let ttl = theirs.and_then(|theirs| theirs.to::<u64>().ok()).unwrap_or(ttl);
        dressed.number("ttlMs", ttl.min(LONGEST_TTL_MS)).text("cacheScope", "private");
    }
    let mut own = Members::default();
    if let Some(told) = told {
        own.append_without(&told, &[meta::SERVER_INFO]);
    }
    own.json(meta::SERVER_INFO, &desk.info);
    dressed.object("_meta", &own);
    dressed.to_json()
}

fn is_question(result: &Json) -> bool {
    result.member("resultType").is_some_and(|kind| kind.as_str() == "\"input_required\"")
}

/// A modern server's question on its way to a modern caller: as it is, but for the state, which goes out locked. What
/// the caller did not offer it is not asked.
fn passed_on(
    result: &Json,
    capabilities: &Json,
    locked: impl Fn(Json) -> Option<Json>,
) -> Result<Json, RpcError> {
    let [asked, state] = result.pick(["inputRequests", "requestState"]);
    let broken = |why: &str| {
        RpcError::new(code::INTERNAL, format!("the server's question cannot be passed on: {why}"))
    };
    if let Some(asked) = asked {
        let all: indexmap::IndexMap<String, Json> = asked.to().map_err(|_| broken("it is malformed"))?;
        for one in all.values() {
            let [method, params] = one.pick(["method", "params"]);
            let method: String =
                method.and_then(|m| m.to().ok()).ok_or_else(|| broken("it has no method"))?;
            if !visit::offers(capabilities, &method, params.as_ref()) {
                return Err(broken("it asks for what was not offered"));
            }
        }
    }
    let Some(state) = state else { return Ok(result.clone()) };
    let mut passed = Members::default();
    passed.append_without(result, &["requestState"]);
    passed.json("requestState", &locked(state).ok_or_else(|| broken("its state is too large"))?);
    Ok(passed.to_json())
}

fn same(
    headers: &HeaderMap,
    name: &'static str,
    wanted: &str,
    read: impl FnOnce(&str) -> Option<String>,
) -> Result<(), RpcError> {
    let mismatch = |how: &str| {
        RpcError::new(code::HEADER_MISMATCH, format!("the header `{name}` {how} what the body says"))
    };
    let value = single(headers, name).ok_or_else(|| mismatch("must stand once and say"))?;
    let value = read(value).ok_or_else(|| mismatch("cannot be read, and must say"))?;
    if value == wanted { Ok(()) } else { Err(mismatch("does not say")) }
}
