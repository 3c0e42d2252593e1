//! What callers ask, answered by the host. It knows methods, and nothing of eras or transports.
//!
//! In: a caller's scope, a method, its parameters, and what goes with them. Out: a result as the server wrote it, or an
//! error in the protocol's own codes. Codes that speak of our own hop to a server stay there.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use serde_json::json;

use super::Settings;
use super::apps::{self, Apps};
use super::bench::Benches;
use super::capabilities::{self, Capabilities};
use super::clock::Clock;
use super::ending::Bells;
use super::limits::{Gate, Overloaded};
use super::lists::{Lists, View};
use super::metrics::Rejections;
use super::news::{self, News};
use super::offers::Offers;
use super::parked::{Inquirer, Parking};
use super::required;
use super::seal::{self, Seal};
use super::tasks;
use super::telemetry::Tracer;
use super::trace::{self, Trip};
use super::visit::{Said, Visit};
use crate::call::OnProgress;
use crate::config::CallerTable;
use crate::connect::Progress;
use crate::error::{Error, Result};
use crate::host::{CallOptions, Host, Session};
use crate::mcp::{Era, LogLevel, code, meta, method};
use crate::names::CallerName;
use crate::outcome::Outcome;
use crate::policy::Permission;
use crate::session::Taint;
use crate::wire::{Json, Malformed, Members, RpcError};

/// The one place where requests are answered.
#[derive(Debug)]
pub(super) struct Desk {
    host: Host,
    /// Name and version.
    pub(super) info: Json,
    /// The same as the modern era says it with every result: `_meta` with nothing else in it.
    pub(super) signature: Members,
    /// How the modern era says that a result is one.
    pub(super) complete: Members,
    pub(super) instructions: Option<String>,
    lists: Lists,
    pub(super) offers: Offers,
    pub(super) capabilities: Capabilities,
    pub(super) news: News,
    /// Whether somebody looks after it already.
    tended: AtomicBool,
    scopes: Mutex<Scopes>,
    /// Who of the callers without a conversation has read something private: whatever such a caller says of itself, it is
    /// the same one.
    taints: Mutex<HashMap<CallerName, Taint>>,
    pub(super) seal: Seal,
    pub(super) parking: Arc<Parking>,
    /// Whose user interfaces callers have.
    pub(super) apps: Apps,
    pub(super) bells: Bells,
    pub(super) clock: Clock,
    /// Where requests are worked on.
    pub(super) benches: Benches,
    /// How much callers may ask for.
    pub(super) gate: Gate,
    /// What was turned away at the door.
    pub(super) rejections: Rejections,
    /// Where traces are made.
    pub(super) tracer: Option<Arc<Tracer>>,
    /// What callers are given; nothing there: everything.
    pub(super) callers: ArcSwapOption<CallerTable>,
    /// By which the host knows the scopes of our callers.
    pub(super) number: u64,
}

/// A caller, and what it said of itself: connections to legacy servers are made with exactly that.
type ScopeKey = (CallerName, Bytes, Option<LogLevel>);
/// Looked into at every call, so by a quick hash.
type Scopes = HashMap<ScopeKey, Kept, foldhash::fast::RandomState>;

/// A scope, and how often was looked since it was used. Counted, as reading the clock costs a call more.
#[derive(Debug)]
struct Kept {
    scope: Session,
    looks: u32,
}

/// Connections of one caller alone are closed when they were not used for so long.
const LANE_IDLE: Duration = Duration::from_secs(5 * 60);
/// How often is looked.
const LOOK: Duration = Duration::from_secs(30);
/// Scopes that were not used for so many looks, a quarter of an hour, are forgotten.
const SCOPE_IDLE: u32 = 30;
/// So many one caller may have at a time: it may say something else of itself with every request.
const MOST_OF_ONE: usize = 64;

// === impl Desk ===

impl Desk {
    pub(super) fn new(
        host: Host,
        (name, version): (String, String),
        instructions: Option<String>,
    ) -> Result<Self> {
        let info = Json::of(&json!({ "name": name, "version": version }));
        let (mut own, mut signature) = (Members::default(), Members::default());
        own.json(meta::SERVER_INFO, &info);
        signature.object("_meta", &own);
        let mut complete = Members::default();
        complete.text("resultType", "complete");
        let (number, lists) = (host.number_gateway(), Lists::new(host.events().clone()));
        Ok(Self {
            host,
            info,
            signature,
            complete,
            instructions,
            lists,
            offers: Offers::default(),
            capabilities: Capabilities::default(),
            news: News::default(),
            tended: AtomicBool::new(false),
            scopes: Mutex::default(),
            taints: Mutex::default(),
            seal: Seal::new()?,
            parking: Arc::default(),
            apps: Apps::default(),
            bells: Bells::default(),
            clock: Clock::new(),
            benches: Benches::default(),
            gate: Gate::default(),
            rejections: Rejections::default(),
            tracer: None,
            callers: ArcSwapOption::empty(),
            number,
        })
    }

    /// Whose tools are served.
    pub(super) fn host(&self) -> &Host {
        &self.host
    }

    /// The view of a caller who can be asked nothing.
    pub(super) fn scope(&self, caller: &CallerName) -> Result<Session, RpcError> {
        self.scope_for(caller, &Json::empty_object(), None)
    }

    /// A modern caller's own view of the host. Those that say the same of themselves have the same.
    pub(super) fn scope_for(
        &self,
        caller: &CallerName,
        capabilities: &Json,
        level: Option<LogLevel>,
    ) -> Result<Session, RpcError> {
        let key = (caller.clone(), capabilities.bytes().clone(), level);
        let mut scopes = self.scopes();
        if let Some(kept) = scopes.get_mut(&key) {
            kept.looks = 0;
            return Ok(kept.scope.clone());
        }
        let left = make_room(&mut scopes, caller)?;
        let taint = {
            let mut taints = self.taints.lock().unwrap_or_else(PoisonError::into_inner);
            taints.entry(caller.clone()).or_default().clone()
        };
        let scope = self.open_with(caller, Inquirer::absent(capabilities.clone()), taint)?;
        if let Some(level) = level {
            scope.log_from(level);
        }
        scopes.insert(key, Kept { scope: scope.clone(), looks: 0 });
        drop(scopes);
        // Its connections close with it.
        drop(left);
        Ok(scope)
    }

    /// A scope of its own, for a conversation.
    pub(super) fn open(&self, caller: &CallerName, asker: impl crate::ask::Asker) -> Result<Session> {
        self.open_with(caller, asker, Taint::new())
    }

    /// Whether it matters which conversation has read what.
    pub(super) fn follows_flow(&self) -> bool {
        self.host.reaching().0.has_flow()
    }

    fn open_with(&self, caller: &CallerName, asker: impl crate::ask::Asker, taint: Taint) -> Result<Session> {
        let scope = self.host.session(caller.as_str()).permission(Permission::Yolo);
        let mut scope = scope.asker(asker).taint(taint).relaying(self.number);
        let mut table = self.callers.load_full();
        if let Some(callers) = &table {
            scope = scope.rules(callers.rules_of(caller));
        }
        let scope = scope.start()?;
        // Others may have come while it was made, and found nobody to give them to.
        loop {
            let now = self.callers.load_full();
            if now.as_ref().map(Arc::as_ptr) == table.as_ref().map(Arc::as_ptr) {
                return Ok(scope);
            }
            scope.give(now.as_ref().map(|callers| callers.rules_of(caller)));
            table = now;
        }
    }

    /// What the whole can do for a caller, as a server says it.
    pub(super) async fn capabilities(&self, scope: &Session, era: Era) -> Json {
        capabilities::written(self.capabilities.of(scope).await, era)
    }

    /// Answers one request. What few requests need is put aside, so that the others need no room for it.
    pub(super) async fn answer(
        &self,
        scope: &Session,
        method: &str,
        params: Option<&Json>,
        visit: &Visit<'_>,
    ) -> Result<Json, RpcError> {
        let answer = match method {
            method::TOOLS_LIST => {
                let known = Box::pin(scope.known_tools()).await;
                let (apps, headers) = (apps::are_known(visit), visit.mirrored.is_some());
                let view = View { apps, objects: visit.objects, headers };
                let strays = self.strays(scope, &known.snapshot).await;
                self.lists.tools(&known.snapshot, (view, strays), params)
            }
            method::TOOLS_CALL => self.call(scope, params, visit).await,
            _ => Box::pin(self.offered(scope, method, params, visit)).await,
        };
        if let Some(trip) = &visit.trip {
            trip.end(answer.as_ref());
        }
        answer
    }

    /// Where traces are made, a request that goes on to a server goes under a span of ours.
    pub(super) fn embark(&self, said: &mut Said, method: &str) {
        let Some(tracer) = &self.tracer else { return };
        let on = [method::TOOLS_CALL, method::PROMPTS_GET, method::RESOURCES_READ];
        let Some(method) = on.into_iter().find(|known| *known == method) else { return };
        let Some(made) = tracer.make(said.trace) else { return };
        said.meta = trace::under(&said.meta, made.for_server());
        said.trace = Some(made.for_server());
        said.trip = Some(Trip::new(tracer, made, method));
    }

    async fn call(
        &self,
        scope: &Session,
        params: Option<&Json>,
        visit: &Visit<'_>,
    ) -> Result<Json, RpcError> {
        let params = params.ok_or_else(|| invalid("`tools/call` needs parameters"))?;
        let (name, arguments) = (visit.name.as_ref(), visit.arguments.as_ref());
        let name = name.and_then(Json::text).ok_or_else(|| invalid("`name` must be a string"))?;
        let snapshot = scope.snapshot();
        let (name, route) = match snapshot.route(&name) {
            // An app knows its server's tools by the names that the server gave them.
            None => {
                match self.apps.tool(scope.agent(), &snapshot, &name).filter(|_| apps::are_known(visit)) {
                    Some(route) => (Cow::Borrowed(&*route.public), Some(route)),
                    None => (name, None),
                }
            }
            Some(route) => (name, Some(route)),
        };
        if let Some(route) = route.filter(|route| !self.apps.may_call(scope.agent(), route, visit)) {
            let refused = Error::Denied {
                what: format!("tool `{}` of `{}`", route.tool.name, route.server),
                rule: "the tool's own `visibility`: it is for apps alone".into(),
                hint: "call it from its app".into(),
            };
            scope.refuse(route, &refused).await;
            return Err(unknown_tool(false));
        }
        if let Some(mirrored) = visit.mirrored {
            match route {
                Some(route) => mirrored.check_at(route, arguments)?,
                None => Box::pin(mirrored.check(scope, Some(params))).await?,
            }
        }
        match route {
            Some(route) => visit.goes_to(scope, &route.server, Some(&route.tool.name))?,
            // Whatever it leads to, nobody knows that it is whose state comes with it.
            None if visit.is_bound() => return Err(seal::refused()),
            None => {}
        }
        let server = route.map(|route| &route.server);
        let pass = self.gate.enter(scope.agent(), server, || scope.time_for(server)).await?;
        let nothing = Json::empty_object();
        let arguments = arguments.unwrap_or(&nothing);
        let mut report = |progress: Progress| visit.line.progress(&progress);
        let on_progress = visit.reports.then_some(&mut report as OnProgress<'_>);
        let relayed = Some(Arc::clone(&visit.relayed));
        let options =
            CallOptions { on_progress, relayed, hard_timeout: pass.left(), ..CallOptions::default() };
        if let Some(trip) = &visit.trip {
            trip.goes_on();
        }
        let mut outcome = match route.filter(|_| pass.is_at_once() || visit.is_bound()) {
            Some(route) => scope.call_at(route, arguments, options).await,
            // Nobody knows it, or what it leads to may have changed while others were waited for.
            None => Box::pin(scope.call_with(&name, arguments.clone(), options)).await,
        };
        if let Some(trip) = &visit.trip {
            trip.came_back(outcome.server.as_ref(), Ok(Some(&outcome)));
        }
        let server = outcome.server.take();
        if let (None, Some(server)) = (route, &server) {
            let tool = scope.snapshot().route(&name).map(|route| route.tool.name.clone());
            visit.line.is_for(scope, server, tool.as_ref());
        }
        // A name that nobody knows may be one of a server that could not be asked, if the caller is given that.
        if let Some(Error::UnknownTool { .. }) = outcome.error.as_deref()
            && let Some(error) = scope.unreached_tool(&name)
        {
            return Err(told(error));
        }
        match (said(outcome)?, server) {
            (result, Some(server)) if tasks::is_task(&result) => {
                Ok(self.begun(scope.agent(), &server, &result))
            }
            (result, Some(server)) => Ok(self.led_back(scope, &server, result).await),
            (result, None) => Ok(result),
        }
    }

    /// Tells news and closes what nobody uses any more, as long as the desk is there.
    pub(super) fn tend(self: &Arc<Self>, settings: &Arc<Settings>) {
        if self.tended.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(tracer) = &self.tracer {
            tracer.tend();
        }
        tokio::spawn(news::follow(Arc::downgrade(self), self.host.events().subscribe_but_calls()));
        tokio::spawn(required::look_after(Arc::downgrade(self), settings));
        let (desk, clock) = (Arc::downgrade(self), self.clock.clone());
        tokio::spawn(async move {
            loop {
                clock.wait(LOOK).await;
                let Some(desk) = desk.upgrade() else { return };
                desk.recycle().await;
            }
        });
    }

    async fn recycle(&self) {
        self.benches.clear();
        self.lists.recycle();
        let (kept, left): (Vec<Session>, Vec<Session>) = {
            let mut scopes = self.scopes();
            // Whoever holds one may hear news through it, which come only where the next request goes, too.
            let is_old = |_: &ScopeKey, kept: &mut Kept| {
                kept.looks += 1;
                kept.looks > SCOPE_IDLE && !kept.scope.is_held()
            };
            let left = scopes.extract_if(is_old).map(|(_, kept)| kept.scope).collect();
            (scopes.values().map(|kept| kept.scope.clone()).collect(), left)
        };
        // Their connections close with them.
        drop(left);
        // Conversations have scopes of their own.
        let own = self.news.scopes();
        let all = kept.iter().chain(&own).map(|scope| scope.recycle(LANE_IDLE));
        futures_util::future::join_all(all).await;
    }

    fn scopes(&self) -> MutexGuard<'_, Scopes> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes room for one more scope of a caller, by taking away the one that it has not used for longest.
fn make_room(scopes: &mut Scopes, caller: &CallerName) -> Result<Option<Kept>, Overloaded> {
    let own = || scopes.iter().filter(|((of, ..), _)| of == caller);
    if own().count() < MOST_OF_ONE {
        return Ok(None);
    }
    let idle = own().filter(|(_, kept)| !kept.scope.is_held());
    let oldest = idle.max_by_key(|(_, kept)| kept.looks).map(|(key, _)| key.clone());
    let oldest = oldest.ok_or(Overloaded::MUCH)?;
    Ok(scopes.remove(&oldest))
}

/// What a caller is told of an outcome: the tool's own answer as it is, and of what went wrong on the way what the
/// caller can do something about.
fn said(outcome: Outcome) -> Result<Json, RpcError> {
    let Some(error) = outcome.error else { return Ok(outcome.raw) };
    match error.cause() {
        // A model can mend its arguments: so it is told as the tool's answer, as the protocol wants it.
        Error::Arguments { problems, .. } => {
            let text = format!("invalid arguments: {}", problems.join("; "));
            Ok(Json::of(&json!({ "content": [{ "type": "text", "text": text }], "isError": true })))
        }
        // So is what waits for somebody's yes: the model can tell whom to ask, and come back.
        Error::Unapproved { .. } => {
            let text = format!("{error}; {}", error.hint().unwrap_or_default());
            Ok(Json::of(&json!({ "content": [{ "type": "text", "text": text }], "isError": true })))
        }
        // What an operator said no to is there, and may not be done.
        Error::Denied { rule, .. } if rule.starts_with("approval") || rule.starts_with("consent") => {
            let fact = if error.may_have_run() { "it was begun before" } else { "nothing was sent" };
            let text = format!("{error}; {fact}");
            Ok(Json::of(&json!({ "content": [{ "type": "text", "text": text }], "isError": true })))
        }
        // A tool that may not be seen is a tool that is not there.
        Error::UnknownTool { .. } | Error::UnknownServer { .. } | Error::Denied { .. } => {
            Err(unknown_tool(error.may_have_run()))
        }
        _ => Err(told(*error)),
    }
}

/// What a caller is told of an error.
pub(super) fn told(error: Error) -> RpcError {
    match error {
        // What a server says of a request as such it says of ours: the caller's own was in order.
        Error::Tool { rpc, .. } | Error::Rpc { rpc, .. } if is_of_a_request(rpc.code) => {
            RpcError { code: code::INTERNAL, ..rpc }
        }
        Error::Tool { rpc, .. } | Error::Rpc { rpc, .. } if is_passed_on(rpc.code) => rpc,
        error => {
            let mut data = json!({
                "kind": error.kind(),
                "retryable": error.is_retryable(),
                "mayHaveRun": error.may_have_run(),
                "hint": error.hint(),
            });
            if let Error::Unavailable { retry_after, .. }
            | Error::Overloaded { retry_after, .. }
            | Error::Busy { retry_after: Some(retry_after), .. } = &error
            {
                data["retryAfterMs"] = u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX).into();
            }
            RpcError { data: Some(Json::of(&data)), ..RpcError::new(code::INTERNAL, error.to_string()) }
        }
    }
}

/// Whether an error code says something to the caller. A missing capability is the caller's own: its capabilities are
/// the ones that the server was told. The other codes of the modern era speak of our own hop.
fn is_passed_on(number: i64) -> bool {
    number == code::MISSING_CAPABILITY || !code::is_modern(number)
}

fn is_of_a_request(number: i64) -> bool {
    matches!(number, code::PARSE | code::INVALID_REQUEST | code::METHOD_NOT_FOUND)
}

/// The same for one that is not there and one that may not be seen: not even a name that is near tells which.
fn unknown_tool(may_have_run: bool) -> RpcError {
    let hint = "`tools/list` has the names of all tools that can be called";
    let data =
        json!({ "kind": "unknown_tool", "retryable": false, "mayHaveRun": may_have_run, "hint": hint });
    RpcError { data: Some(Json::of(&data)), ..invalid("unknown tool") }
}

pub(super) fn unknown(method: &str) -> RpcError {
    RpcError::new(code::METHOD_NOT_FOUND, format!("there is no method `{method}`"))
}

/// What is answered to a message that cannot be taken, and under which id.
pub(super) fn unfit(bad: Malformed) -> (Json, RpcError) {
    let code = if bad.is_json { code::INVALID_REQUEST } else { code::PARSE };
    (bad.asked.unwrap_or_else(Json::null), RpcError::new(code, bad.reason))
}

pub(super) fn invalid(what: &str) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, what)
}

impl From<Error> for RpcError {
    fn from(error: Error) -> Self {
        Self::new(code::INTERNAL, error.to_string())
    }
}
