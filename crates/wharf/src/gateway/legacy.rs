//! The legacy edge: a handshake, then requests that belong to a session.
//!
//! A request goes on when its caller hangs up: only `notifications/cancelled` ends it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::asking::{Asks, Messenger};
use super::bench::{Edge, Job};
use super::body::{self, Reply};
use super::calls::Calls;
use super::capabilities;
use super::clock::Clock;
use super::desk::{Desk, invalid};
use super::ending::Shift;
use super::h1::{Head, Usual};
use super::http::{SESSION, Seat, VERSION};
use super::line::Line;
use super::modern::Asked;
use super::reel::{ALWAYS, Reels};
use super::stay::{Guest, Stay};
use super::undressed::{in_this_era, undressed};
use super::visit::{self, Visit};
use super::watching::Watches;
use crate::host::Session as Scope;
use crate::mcp::{Era, LogLevel, Revision, code, method};
use crate::names::CallerName;
use crate::wire::{Json, Members, Message, Pieces, RpcError, response_error, response_result};

/// The sessions of callers over HTTP.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    talks: Mutex<Talks>,
    /// Rung for whoever looks after them.
    opened: Notify,
}

/// By names that only we give, so by a quick hash.
type Talks = HashMap<String, Arc<Talk>, foldhash::fast::RandomState>;

/// One conversation with a caller.
#[derive(Debug)]
pub(super) struct Talk {
    /// Who opened it.
    pub(super) caller: CallerName,
    pub(super) revision: Revision,
    /// What the caller answers, as it said.
    capabilities: Json,
    /// From which level on it wants to hear the log.
    level: Mutex<Option<LogLevel>>,
    pub(super) calls: Arc<Calls>,
    /// What it was asked.
    pub(super) asks: Asks,
    /// The way that leads to it and is always open, where there is one.
    pub(super) stream: Mutex<Option<Line>>,
    /// Streams that it reads over HTTP, and how many there were.
    pub(super) reels: Reels,
    pub(super) streams: AtomicU64,
    /// Resources that it watches.
    pub(super) watches: Watches,
    /// Whether it said that it is ready to hear what it did not ask for.
    pub(super) ready: AtomicBool,
    /// What servers see of it, if they can tell it from others.
    own: OnceLock<Scope>,
    seen: Mutex<Seen>,
}

/// When a caller was heard of last, and by what it was let in.
#[derive(Debug)]
struct Seen {
    at: Instant,
    /// Of all that let it in, what lasts longest: a caller whose token ends comes with the next one.
    stay: Stay,
}

/// Sessions that were not used for so long are forgotten.
const IDLE: Duration = Duration::from_secs(60 * 60);
/// How often is looked.
const LOOK: Duration = Duration::from_secs(60);
/// How many sessions are kept, and of one caller, so that it leaves room for others.
const MOST: usize = 10_000;
const MOST_OF_ONE: usize = 5_000;

// === impl Sessions ===

impl Sessions {
    /// Answers a request over HTTP.
    pub(super) async fn answer(
        &self,
        desk: &Arc<Shift>,
        (caller, head): (&Guest, &Head),
        asked: Box<Asked>,
        seat: &mut Seat<'_>,
    ) -> Reply {
        if asked.method == method::INITIALIZE {
            return Box::pin(self.open(desk, caller, &asked.id, asked.params.as_ref())).await;
        }
        match self.find(head, caller, Some(&asked.id)) {
            Ok(talk) => talk.answer(desk, asked.with_head(head), caller, seat).await,
            Err(refused) => *refused,
        }
    }

    /// Hears what is no request, over HTTP.
    pub(super) fn hear(&self, caller: &Guest, head: &Head, message: Message) -> Reply {
        let talk = match self.find(head, caller, None) {
            Ok(talk) => talk,
            Err(refused) => return *refused,
        };
        match message {
            Message::Notification { method, params } => talk.hear(&method, params.as_ref()),
            Message::Response { id, outcome } => talk.asks.answered(&id, outcome),
            Message::Request { .. } => {}
        }
        body::accepted()
    }

    /// Opens the stream that belongs to no request, or reads one on that broke.
    pub(super) fn stream(&self, head: &Head, caller: &Guest) -> Reply {
        match self.find(head, caller, None) {
            Ok(talk) => talk.read_on(head.one("last-event-id")),
            Err(refused) => *refused,
        }
    }

    /// Ends those that nobody uses any more. Never ends by itself.
    pub(super) async fn tend(&self, clock: &Clock) {
        loop {
            // Where there are none nobody is woken to see that.
            while self.lock().is_empty() {
                self.opened.notified().await;
            }
            clock.wait(LOOK).await;
            sweep(&mut self.lock());
        }
    }

    /// Ends the streams that belong to no request.
    pub(super) fn stop(&self) {
        self.lock().values().for_each(|talk| talk.reels.stop());
    }

    /// Ends the sessions of callers who are not let in any more. What they have under way ends by itself, with words.
    pub(super) fn withdraw(&self) {
        let gone: Vec<_> =
            self.lock().extract_if(|_, talk| talk.seen().stay.is_over()).map(|(_, talk)| talk).collect();
        for talk in gone {
            talk.watches.clear();
            talk.reels.stop();
        }
    }

    /// Ends a session.
    pub(super) fn end(&self, head: &Head, caller: &Guest) -> Reply {
        match self.find(head, caller, None) {
            Ok(talk) => {
                talk.end();
                if let Some(id) = head.one(SESSION) {
                    self.lock().remove(id);
                }
                body::done()
            }
            Err(refused) => *refused,
        }
    }

    async fn open(&self, desk: &Desk, caller: &Guest, id: &Json, params: Option<&Json>) -> Reply {
        let talk = match Talk::greet(caller, params) {
            Ok(talk) => Arc::new(talk),
            Err(error) => return body::message(StatusCode::BAD_REQUEST, response_error(id, &error)),
        };
        let Some(name) = random_name() else {
            let error = RpcError::new(code::INTERNAL, "no random numbers to be had");
            return body::message(StatusCode::INTERNAL_SERVER_ERROR, response_error(id, &error));
        };
        let greeting = talk.greeting(desk, id).await;
        let mut sessions = self.lock();
        sweep(&mut sessions);
        let own = sessions.values().filter(|talk| talk.caller == **caller).count();
        if sessions.len() >= MOST || own >= MOST_OF_ONE {
            return body::plain(StatusCode::SERVICE_UNAVAILABLE, "too many sessions; try again later");
        }
        sessions.insert(name.clone(), Arc::clone(&talk));
        drop(sessions);
        self.opened.notify_one();
        desk.news.add(Arc::<Talk>::downgrade(&talk) as _);
        body::message(StatusCode::OK, greeting).with(SESSION, name)
    }

    /// The session of a request. Another caller's is not found, and neither is one that never was.
    pub(super) fn find(
        &self,
        head: &Head,
        caller: &Guest,
        id: Option<&Json>,
    ) -> Result<Arc<Talk>, Box<Reply>> {
        let refuse = |status, why: &str| {
            let error = RpcError::new(code::INVALID_REQUEST, why);
            let told = response_error(id.unwrap_or(&Json::null()), &error);
            Box::new(body::message(status, told))
        };
        let Some(name) = head.usual_text(Usual::Session) else {
            let why = "the header `Mcp-Session-Id` is missing: send `initialize` first";
            return Err(refuse(StatusCode::BAD_REQUEST, why));
        };
        let talk = self.lock().get(name).filter(|talk| talk.caller == **caller && talk.is_fresh()).cloned();
        let lost = || refuse(StatusCode::NOT_FOUND, "there is no such session: send `initialize`");
        let talk = talk.ok_or_else(lost)?;
        if head.usual(Usual::Version) != Some(talk.revision.as_str().as_bytes())
            && head.one(VERSION).is_some_and(|version| version != talk.revision.as_str())
        {
            let why = "the session was opened with another revision";
            return Err(refuse(StatusCode::BAD_REQUEST, why));
        }
        let mut seen = talk.seen();
        seen.at = Instant::now();
        if caller.stay().outlasts(&seen.stay) {
            seen.stay = caller.stay().clone();
        }
        drop(seen);
        Ok(talk)
    }

    fn lock(&self) -> MutexGuard<'_, Talks> {
        self.talks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sweep(sessions: &mut Talks) {
    sessions.extract_if(|_, talk| !talk.is_fresh()).for_each(|(_, talk)| talk.end());
}

// === impl Talk ===

impl Talk {
    /// Agrees on a revision: the caller's, if Wharf speaks it, or else the newest of this era.
    pub(super) fn greet(caller: &Guest, params: Option<&Json>) -> Result<Self, RpcError> {
        let [asked, capabilities] =
            params.map(|p| p.pick(["protocolVersion", "capabilities"])).unwrap_or_default();
        let capabilities = capabilities.filter(Json::is_object);
        if let Some(all) = &capabilities {
            capabilities::are_small(all.bytes())?;
        }
        // Copied: the message that they came in may be large, and the conversation long.
        let capabilities = capabilities.map(|all| Members::of(&all).to_json());
        let asked = asked.and_then(|asked| asked.to::<String>().ok());
        let known = asked.and_then(|text| Revision::parse(&text)).filter(|r| *r <= Revision::NEWEST_LEGACY);
        Ok(Self {
            caller: caller.name().clone(),
            revision: known.unwrap_or(Revision::NEWEST_LEGACY),
            capabilities: capabilities.unwrap_or_else(Json::empty_object),
            level: Mutex::default(),
            calls: Arc::default(),
            asks: Asks::default(),
            stream: Mutex::default(),
            reels: Reels::default(),
            streams: AtomicU64::new(ALWAYS + 1),
            watches: Watches::default(),
            ready: AtomicBool::new(false),
            own: OnceLock::new(),
            seen: Mutex::new(Seen { at: Instant::now(), stay: caller.stay().clone() }),
        })
    }

    /// The answer to `initialize`.
    pub(super) async fn greeting(self: &Arc<Self>, desk: &Desk, id: &Json) -> Vec<u8> {
        let capabilities = match self.scope(desk) {
            Ok(scope) => desk.capabilities(&scope, Era::Legacy).await,
            Err(error) => return response_error(id, &error),
        };
        let mut result = Members::new();
        result.text("protocolVersion", self.revision.as_str());
        result.json("capabilities", &capabilities).json("serverInfo", &desk.info);
        if let Some(instructions) = &desk.instructions {
            result.text("instructions", instructions);
        }
        response_result(id, &result.to_json())
    }

    /// The work of a request, to what is said of it.
    pub(super) fn work(
        self: Arc<Self>,
        desk: Arc<Shift>,
        asked: Box<Asked>,
        line: Line,
    ) -> impl Future<Output = Pieces> + Send + 'static {
        let (id, own, edge) = (asked.id.clone(), line.clone(), Edge::Legacy(self));
        let work = Job { desk: Arc::clone(&desk), asked, line: own, edge }.start();
        async move {
            let result = desk.or_over(&line, work).await;
            result.unwrap_or_else(|error| response_error(&id, &error).into())
        }
    }

    /// The same, to its answer.
    pub(super) async fn answered(
        self: &Arc<Self>,
        desk: &Desk,
        asked: &Asked,
        line: Line,
    ) -> Result<Pieces, RpcError> {
        match self.result(desk, asked, line).await {
            Ok(result) => Ok(undressed(&asked.id, &result)),
            Err(error) => Err(in_this_era(&asked.method, error)),
        }
    }

    async fn result(self: &Arc<Self>, desk: &Desk, asked: &Asked, line: Line) -> Result<Json, RpcError> {
        let params = asked.params.as_ref();
        match asked.method.as_str() {
            method::PING => Ok(Json::empty_object()),
            // Put aside, these two: most requests are others, and should not be larger for them.
            method::SET_LEVEL => {
                Box::pin(desk.require(&self.scope(desk)?, method::SET_LEVEL)).await?;
                self.set_level(params)
            }
            method::SUBSCRIBE => Box::pin(self.watch(desk, params)).await,
            method::UNSUBSCRIBE => self.unwatch(params),
            name => {
                let scope = self.scope(desk)?;
                let asker = Arc::new(self.messenger(Some(line.clone())));
                let mut said = asked.said();
                desk.embark(&mut said, name);
                let visit = Visit::legacy(said, &line, asker, self.level());
                desk.answer(&scope, name, params, &visit).await
            }
        }
    }

    /// Hears what the caller tells.
    pub(super) fn hear(&self, name: &str, params: Option<&Json>) {
        self.calls.hear(name, params);
        if name == method::INITIALIZED {
            self.ready.store(true, Ordering::Relaxed);
        }
        if let (method::ROOTS_CHANGED, Some(scope)) = (name, self.own.get()) {
            scope.tell_lanes(method::ROOTS_CHANGED);
        }
    }

    /// The ways that lead to the caller, the best first.
    pub(super) fn lines(&self) -> Vec<Line> {
        let always = self.stream.lock().unwrap_or_else(PoisonError::into_inner).clone();
        always.into_iter().chain(self.calls.lines()).collect()
    }

    /// What servers see of the caller: with nothing to tell it from others, what they see of everybody.
    pub(super) fn scope(self: &Arc<Self>, desk: &Desk) -> Result<Scope, RpcError> {
        let plain = self.level().is_none() && visit::for_legacy(&self.capabilities) == Json::empty_object();
        // What one conversation has read, another has not.
        if plain && !desk.follows_flow() {
            return desk.scope(&self.caller);
        }
        if let Some(own) = self.own.get() {
            return Ok(own.clone());
        }
        let scope = desk.open(&self.caller, self.messenger(None))?;
        let scope = self.own.get_or_init(|| scope).clone();
        if let Some(level) = self.level() {
            scope.log_from(level);
        }
        Ok(scope)
    }

    /// The scope that is its own, if it has one.
    pub(super) fn own_scope(&self) -> Option<Scope> {
        self.own.get().cloned()
    }

    fn messenger(self: &Arc<Self>, line: Option<Line>) -> Messenger {
        Messenger { talk: Arc::downgrade(self), capabilities: self.capabilities.clone(), line }
    }

    fn set_level(&self, params: Option<&Json>) -> Result<Json, RpcError> {
        let level = params.and_then(|params| params.member("level")).and_then(|l| l.to::<String>().ok());
        let level =
            level.as_deref().and_then(LogLevel::parse).ok_or_else(|| invalid("`level` is no level"))?;
        *self.level.lock().unwrap_or_else(PoisonError::into_inner) = Some(level);
        if let Some(own) = self.own.get() {
            own.log_from(level);
        }
        Ok(Json::empty_object())
    }

    pub(super) fn level(&self) -> Option<LogLevel> {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caller, and what lets it in.
    pub(super) fn guest(&self) -> Guest {
        Guest::new(self.caller.clone(), &self.seen().stay)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_fresh(&self) -> bool {
        self.seen().at.elapsed() < IDLE || !self.calls.is_empty() || self.reels.is_read()
    }

    /// The conversation is over: what it had to itself closes.
    pub(super) fn end(&self) {
        self.calls.cancel_all();
        self.watches.clear();
        self.reels.end();
        if let Some(own) = self.own.get().cloned() {
            tokio::spawn(async move { own.close().await });
        }
    }
}

/// A name that cannot be guessed.
pub(super) fn random_name() -> Option<String> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// For the pipe, which has no headers: what is wrong with a first message that is neither era's.
pub(super) fn not_greeted(id: &Json) -> Vec<u8> {
    let data = json!({ "supported": [Revision::NEWEST_MODERN.as_str()] });
    let error =
        RpcError::new(code::INVALID_REQUEST, "send `initialize` first, or say `_meta` with every request");
    response_error(id, &RpcError { data: Some(Json::of(&data)), ..error })
}
