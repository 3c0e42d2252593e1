//! The modern edge: every request stands alone, and its headers say what its body says.

use std::borrow::Cow;
use std::sync::Arc;

use http::StatusCode;
use serde_json::json;

use super::bench::{Edge, Job};
use super::body::{self, Reply, Work};
use super::capabilities::are_small;
use super::desk::{Desk, invalid, unknown};
use super::ending::Shift;
use super::h1::{Head, Usual};
use super::http::{Seat, VERSION};
use super::limits;
use super::line::Line;
use super::mirrored::{Mirrored, decoded, is_coded};
use super::parked::{Inquirer, Running, Step};
use super::seal::{Binding, State};
use super::stay::Guest;
use super::trace::Carried;
use super::visit::{self, Aside, Habit, Said, Visit};
use crate::host::Session;
use crate::mcp::{Era, LogLevel, Revision, code, meta, method};
use crate::names::CallerName;
use crate::wire::{Json, Members, Pieces, Place, RpcError, response_error, response_result, text_of};

/// One request.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) id: Json,
    pub(super) method: String,
    pub(super) params: Option<Json>,
    /// What it says beside the matter.
    aside: Aside,
    /// What its headers say of its trace.
    carried: Option<Box<Carried>>,
}

const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

/// How long an answer may be kept by whoever got it, in milliseconds.
#[derive(Clone, Copy)]
struct Ttl {
    /// If no server says it.
    unsaid: u64,
    /// Whatever a server says.
    most: u64,
}

const LIST: Ttl = Ttl { unsaid: 5_000, most: 5_000 };
const READ: Ttl = Ttl { unsaid: 0, most: 60 * 60 * 1000 };

impl Asked {
    pub(super) fn new(id: Json, method: String, params: Option<Json>, habit: &mut Habit) -> Self {
        let aside = Aside::of(params.as_ref(), habit);
        Self { id, method, params, aside, carried: None }
    }

    /// The same with what its head says beside the matter.
    pub(super) fn with_head(mut self: Box<Self>, head: &Head) -> Box<Self> {
        self.carried = Carried::of(head);
        self
    }

    /// Whether it is written in the modern way.
    pub(super) fn is_modern(&self) -> bool {
        self.aside.version.is_some()
    }

    /// Answers it over HTTP. The status says what the protocol wants it to say.
    pub(super) async fn over_http(
        self: Box<Self>,
        desk: &Arc<Shift>,
        caller: Guest,
        head: &Head,
        seat: &mut Seat<'_>,
    ) -> Reply {
        let checked = self.check_revision(head).and_then(|()| self.check_headers(head));
        if let Err(error) = checked.and_then(|()| self.check_meta()) {
            return body::message(StatusCode::BAD_REQUEST, response_error(&self.id, &error));
        }
        let (id, (line, notes)) = (self.id.clone(), Line::new(caller));
        let edge = Edge::Modern(Some(Mirrored::of(head)));
        let asked = self.with_head(head);
        let mut work = Job { desk: Arc::clone(desk), asked, line: line.clone(), edge }.start();
        let (silence, listener) = seat.begin();
        let result = tokio::select! {
            biased;
            result = &mut work => Err(result),
            error = desk.over(listener, &line) => Err(Err(error)),
            note = notes.next() => Ok(note.map(|note| body::first_event(&note))),
            () = silence => Ok(None),
        };
        match result {
            Ok(first) => {
                let desk = Arc::clone(desk);
                let last: Work = Box::pin(async move { written(&id, desk.or_over(&line, work).await) });
                body::events(first, notes, Some(last))
            }
            Err(result) => match notes.take() {
                None => whole(&id, result),
                // What was said on the way comes first, however soon the end came.
                Some(note) => {
                    let last: Work = Box::pin(std::future::ready(written(&id, result)));
                    body::events(Some(body::first_event(&note)), notes, Some(last))
                }
            },
        }
    }

    /// Answers it over a pipe.
    pub(super) fn over_pipe(
        self: Box<Self>,
        desk: Arc<Shift>,
        line: Line,
    ) -> impl Future<Output = Pieces> + Send + 'static {
        let (id, checked) = (self.id.clone(), self.check_meta());
        let start = |()| {
            let (desk, line, edge) = (Arc::clone(&desk), line.clone(), Edge::Modern(None));
            Job { desk, asked: self, line, edge }.start()
        };
        let work = checked.map(start);
        async move {
            let result = match work {
                Ok(work) => desk.or_over(&line, work).await,
                Err(error) => Err(error),
            };
            result.unwrap_or_else(|error| response_error(&id, &error).into())
        }
    }

    /// The work of it, to its answer.
    pub(super) async fn answered(
        &self,
        desk: &Arc<Shift>,
        line: &Line,
        mirrored: Option<&Mirrored>,
    ) -> Result<Pieces, RpcError> {
        let result = self.result(desk, line.caller(), line, mirrored).await;
        result.map_err(|error| self.in_this_era(error))
    }

    /// The answer with a result in the words of this era: what kind of result it is, who gave it, and how long it may be
    /// kept. What a server says of itself is between it and us.
    fn dressed(&self, result: &Json, desk: &Desk, ttl: Option<Ttl>) -> Pieces {
        if !result.is_object() {
            return response_result(&self.id, result).into();
        }
        let [kind, told] = result.peek(["resultType", "_meta"]);
        let nothing = Members::default();
        let first = if kind.is_none() { &desk.complete } else { &nothing };
        if ttl.is_none() && told.is_none() {
            // Nearly every call.
            return Pieces::response(&self.id, result, &[], (first, &desk.signature));
        }
        let complete = kind.is_none_or(|kind| kind == b"\"complete\"");
        let [theirs, told] = result.pick(["ttlMs", "_meta"]);
        let last = closing(desk, ttl.filter(|_| complete), theirs, told);
        // A task has a `ttlMs` of its own.
        let left_out: &[&str] = if ttl.is_some() { &["_meta", "ttlMs", "cacheScope"] } else { &["_meta"] };
        Pieces::response(&self.id, result, left_out, (first, &last))
    }

    /// An error in the words of this era, which has two codes less: a resource that is not there is a bad parameter, and
    /// pages that must be visited first are something that the caller did not offer.
    fn in_this_era(&self, error: RpcError) -> RpcError {
        if error.code == code::PAGES_FIRST {
            let data = Json::of(&json!({ "requiredCapabilities": { "elicitation": { "url": {} } } }));
            return RpcError { code: code::MISSING_CAPABILITY, data: Some(data), ..error };
        }
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
        desk: &Arc<Shift>,
        caller: &CallerName,
        line: &Line,
        mirrored: Option<&Mirrored>,
    ) -> Result<Pieces, RpcError> {
        let ttl = match self.method.as_str() {
            method::RESOURCES_READ => Some(READ),
            name => name.ends_with("/list").then_some(LIST),
        };
        let result = match self.method.as_str() {
            method::DISCOVER => {
                let discovered = Box::pin(discovered(desk, &self.scope(desk, caller)?)).await;
                return Ok(self.dressed(&discovered, desk, Some(LIST)));
            }
            method::TOOLS_CALL | method::PROMPTS_GET | method::RESOURCES_READ => {
                self.errand(desk, caller, line, mirrored).await?
            }
            method::LISTEN => Box::pin(self.listen(desk, caller, line)).await?,
            // Words of the legacy era: here they mean nothing, whatever the other edge makes of them.
            method::INITIALIZE
            | method::PING
            | method::SET_LEVEL
            | method::SUBSCRIBE
            | method::UNSUBSCRIBE => return Err(unknown(&self.method)),
            name => {
                // Nobody is asked anything on the way to these: all that matters is which extensions the caller knows.
                let scope = self.scope(desk, caller)?;
                let mut said = self.said();
                said.capabilities = Some(visit::extensions(said.capabilities.as_ref()));
                let mut visit = Visit::modern(said, line, Inquirer::nobody());
                visit.mirrored = mirrored;
                desk.answer(&scope, name, self.params.as_ref(), &visit).await?
            }
        };
        Ok(self.dressed(&result, desk, ttl))
    }

    /// What its caller sees: it depends on who that is and on what this request says that it can, and on nothing else.
    pub(super) fn scope(&self, desk: &Desk, caller: &CallerName) -> Result<Session, RpcError> {
        let said = self.said();
        let capabilities = said.capabilities.as_ref().map_or_else(Json::empty_object, visit::for_modern);
        desk.scope_for(caller, &capabilities, said.level())
    }

    pub(super) fn said(&self) -> Said {
        Said::of(self.params.as_ref(), &self.aside, self.carried.as_deref())
    }

    /// A request whose server may want to know something before it answers.
    async fn errand(
        &self,
        desk: &Arc<Shift>,
        caller: &CallerName,
        line: &Line,
        mirrored: Option<&Mirrored>,
    ) -> Result<Json, RpcError> {
        let mut said = self.said();
        let capabilities = said.capabilities.as_ref().map_or_else(Json::empty_object, visit::for_modern);
        said.capabilities = Some(capabilities.clone());
        let scope = desk.scope_for(caller, &capabilities, said.level())?;
        let mirrored = mirrored.filter(|_| self.method == method::TOOLS_CALL);
        said.headers = mirrored.map(Mirrored::passed_on).unwrap_or_default();
        if capabilities == Json::empty_object() && said.state.is_none() {
            // It can be asked nothing, so nothing needs to be kept of it.
            desk.embark(&mut said, &self.method);
            let mut visit = Visit::modern(said, line, Inquirer::nobody());
            visit.mirrored = mirrored;
            let result = desk.answer(&scope, &self.method, self.params.as_ref(), &visit).await?;
            return self.passed_on(desk, line, result);
        }
        line.report_as(said.token.clone());
        if let Some(mirrored) = mirrored {
            mirrored.check(&scope, self.params.as_ref()).await?;
        }
        let binding = || Binding::new(caller, &self.method, self.params.as_ref());
        let state = said.state.take().map(|state| desk.seal.unlock(&state, &binding())).transpose()?;
        let mut running = match state {
            Some(State::Parked(ticket)) => desk.parking.resume(ticket, said.responses.as_ref(), line)?,
            Some(State::Theirs(server, state)) => {
                (said.bound, said.state) = (Some(server), Some(state));
                self.start(desk, scope, said, line)
            }
            None => self.start(desk, scope, said, line),
        };
        match running.go().await {
            Step::Done(result) => self.passed_on(desk, line, result?),
            Step::Asks(questions) => {
                // Whoever comes back may offer less than before: then the call ends here.
                if let Some(kind) = running.asks_beyond(&capabilities) {
                    let error =
                        "the call waits for an answer that this request does not offer, so it was cancelled";
                    let data = json!({ "requiredCapabilities": { (kind): {} } });
                    let error = RpcError::new(code::MISSING_CAPABILITY, error);
                    return Err(RpcError { data: Some(Json::of(&data)), ..error });
                }
                let ticket = desk.parking.park(desk, caller, running)?;
                let state = desk.seal.lock(&State::Parked(ticket), &binding());
                let state = state.ok_or_else(|| RpcError::new(code::INTERNAL, "no state can be made"))?;
                let mut result = Members::new();
                result.text("resultType", "input_required");
                result.json("inputRequests", &questions).json("requestState", &state);
                Ok(result.to_json())
            }
        }
    }

    fn start(&self, desk: &Arc<Shift>, scope: Session, mut said: Said, line: &Line) -> Running {
        desk.embark(&mut said, &self.method);
        let capabilities = said.capabilities.clone().unwrap_or_else(Json::empty_object);
        let (desk, method, params) = (Arc::clone(desk), self.method.clone(), self.params.clone());
        let own = line.clone();
        Running::start(capabilities, line.clone(), move |asker| async move {
            let visit = Visit::modern(said, &own, asker);
            desk.answer(&scope, &method, params.as_ref(), &visit).await
        })
    }

    /// A result as it is, or a modern server's question as its caller may be asked it.
    fn passed_on(&self, desk: &Desk, line: &Line, result: Json) -> Result<Json, RpcError> {
        if !is_question(&result) {
            return Ok(result);
        }
        let (caller, server) = line.between();
        let binding = Binding::new(&caller, &self.method, self.params.as_ref());
        let locked = |state| desk.seal.lock(&State::Theirs(server.clone()?, state), &binding);
        let capabilities = self.part(&self.aside.capabilities).unwrap_or_else(Json::empty_object);
        passed_on(&result, &capabilities, locked)
    }

    fn check_meta(&self) -> Result<(), RpcError> {
        let missing = |key: &str| invalid(&format!("`_meta` must have `{key}`"));
        let version = self.written(&self.aside.version);
        if !version.is_some_and(|version| says(version, Revision::NEWEST_MODERN.as_str().as_bytes())) {
            let version = version.and_then(text_of);
            return Err(unsupported(&version.ok_or_else(|| missing(meta::PROTOCOL_VERSION))?));
        }
        let level = self.written(&self.aside.log_level);
        if level.is_some_and(|level| text_of(level).and_then(|l| LogLevel::parse(&l)).is_none()) {
            return Err(invalid(&format!("`{}` is no level of a log", meta::LOG_LEVEL)));
        }
        let capabilities = self.written(&self.aside.capabilities).filter(|all| all.starts_with(b"{"));
        are_small(capabilities.ok_or_else(|| missing(meta::CLIENT_CAPABILITIES))?)
    }

    /// A revision that is not spoken here has headers of its own: whoever speaks it is told so before anything else.
    fn check_revision(&self, head: &Head) -> Result<(), RpcError> {
        let spoken = Revision::NEWEST_MODERN.as_str();
        if let Some(version) = self.written(&self.aside.version)
            && !head.usual(Usual::Version).is_some_and(|told| says(version, told))
            && let Some(version) = text_of(version)
        {
            same(head, VERSION, &version, |v| Some(v.into()))?;
        }
        if head.usual(Usual::Version) == Some(spoken.as_bytes()) {
            return Ok(());
        }
        match head.one(VERSION) {
            Some(version) if version != spoken => Err(unsupported(version)),
            _ => Ok(()),
        }
    }

    /// Whoever stands in between routes by the headers: they must not lie.
    fn check_headers(&self, head: &Head) -> Result<(), RpcError> {
        if head.usual(Usual::Method) != Some(self.method.as_bytes()) {
            same(head, METHOD, &self.method, |v| Some(v.into()))?;
        }
        let name = match self.method.as_str() {
            method::TOOLS_CALL | method::PROMPTS_GET => self.written(&self.aside.name),
            method::RESOURCES_READ => self.written(&self.aside.uri),
            method::TASKS_GET | method::TASKS_UPDATE | method::TASKS_CANCEL => {
                self.params.as_ref().and_then(|params| params.peek(["taskId"])[0])
            }
            _ => None,
        };
        // What the body lacks is told by whoever reads it.
        let Some(name) = name else { return Ok(()) };
        if head.usual(Usual::Name).is_some_and(|told| !is_coded(told) && says(name, told)) {
            return Ok(());
        }
        text_of(name).map_or(Ok(()), |name| same(head, NAME, &name, decoded))
    }

    /// A part of the parameters, as it is written.
    fn written(&self, place: &Option<Place>) -> Option<&[u8]> {
        Some(&self.params.as_ref()?.bytes()[place.clone()?])
    }

    /// The same to keep.
    fn part(&self, place: &Option<Place>) -> Option<Json> {
        Some(self.params.as_ref()?.at(place.as_ref()?))
    }
}

fn unsupported(version: &str) -> RpcError {
    let data = json!({ "supported": [Revision::NEWEST_MODERN.as_str()], "requested": version });
    let error = RpcError::new(code::UNSUPPORTED_VERSION, "unsupported protocol version");
    RpcError { data: Some(Json::of(&data)), ..error }
}

/// Whether a value is this text, by its bytes alone. One that is written in another way may be it all the same.
fn says(value: &[u8], text: &[u8]) -> bool {
    let inner = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    inner == Some(text) && text.iter().all(|byte| byte.is_ascii() && *byte != b'\\')
}

fn written(id: &Json, result: Result<Pieces, RpcError>) -> Vec<u8> {
    match result {
        Ok(message) => message.into_line(),
        Err(error) => response_error(id, &error),
    }
}

fn whole(id: &Json, result: Result<Pieces, RpcError>) -> Reply {
    let error = match result {
        Ok(message) => return body::pieces(message),
        Err(error) => error,
    };
    if limits::retry_after(&error).is_some() {
        return body::overloaded(id, &error);
    }
    let status = match error.code {
        code::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        number if code::is_modern(number) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    };
    body::message(status, response_error(id, &error))
}

async fn discovered(desk: &Desk, scope: &Session) -> Json {
    let mut result = Members::new();
    result.json("supportedVersions", &Json::of(&[Revision::NEWEST_MODERN.as_str()]));
    result.json("capabilities", &desk.capabilities(scope, Era::Modern).await);
    if let Some(instructions) = &desk.instructions {
        result.text("instructions", instructions);
    }
    result.to_json()
}

/// What comes after the members of a result.
fn closing(desk: &Desk, ttl: Option<Ttl>, theirs: Option<Json>, told: Option<Json>) -> Members {
    let (mut last, mut own) = (Members::default(), Members::default());
    if let Some(ttl) = ttl {
        // What is kept is each caller's own, whatever its server says: it knows only us, and we may be many.
        let theirs = theirs.and_then(|theirs| theirs.to::<u64>().ok()).unwrap_or(ttl.unsaid);
        last.number("ttlMs", theirs.min(ttl.most)).text("cacheScope", "private");
    }
    if let Some(told) = told {
        own.append_without(&told, &[meta::SERVER_INFO]);
    }
    if own.is_empty() {
        last.append(&desk.signature);
    } else {
        own.json(meta::SERVER_INFO, &desk.info);
        last.object("_meta", &own);
    }
    last
}

fn is_question(result: &Json) -> bool {
    let [kind] = result.peek(["resultType"]);
    kind == Some(b"\"input_required\"")
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
    head: &Head,
    name: &str,
    wanted: &str,
    read: impl FnOnce(&str) -> Option<Cow<'_, str>>,
) -> Result<(), RpcError> {
    let mismatch = |how: &str| {
        RpcError::new(code::HEADER_MISMATCH, format!("the header `{name}` {how} what the body says"))
    };
    let value = head.one(name).ok_or_else(|| mismatch("must stand once and say"))?;
    let value = read(value).ok_or_else(|| mismatch("cannot be read, and must say"))?;
    if value == wanted { Ok(()) } else { Err(mismatch("does not say")) }
}
