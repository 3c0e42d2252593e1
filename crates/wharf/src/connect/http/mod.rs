//! Streamable HTTP: every request is a POST, its answer is the body of that POST's answer.
//!
//! One link for both eras. In the modern era nothing is kept between two requests, and closing an answer's stream gives
//! its request up. In the legacy era there is a session (`session.rs`) with streams that can be resumed. Finding the
//! era is in `open.rs`; opening sockets is not here, `net` does that.

pub(super) mod answer;
mod clerk;
pub(super) mod events;
pub(super) mod headers;
mod open;
mod session;
mod target;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures_util::FutureExt as _;
use http::Method;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::task::AbortHandle;

pub(super) use self::answer::Content;
pub(super) use self::clerk::{Clerk, Office};
use self::events::{Events, Resume, StreamEnd};
pub(super) use self::target::{Target, Unsent};
use super::inbox::{Closed, Inbox};
use super::link::{LinkFailure, Outgoing, Sent};
use crate::mcp::{Era, Revision, method};
use crate::net::{Answer, Ask, NetError, Preset};

/// A Streamable HTTP endpoint.
pub(crate) struct HttpLink(Arc<Core>);

struct Core {
    target: Target,
    inbox: Arc<Inbox>,
    manner: ArcSwap<Manner>,
    /// Sends notifications and answers in order; only in the legacy era.
    clerk: OnceLock<Clerk>,
    /// What was said in the handshake, to say it again. Locked while it is said.
    greeting: tokio::sync::Mutex<Greeting>,
    /// The task that reads the server's own stream; only in the legacy era.
    news: Mutex<Option<AbortHandle>>,
}

/// How the server is spoken with at the moment. Replaced whole.
#[derive(Clone)]
struct Manner {
    era: Era,
    /// Of every POST.
    headers: HeaderMap,
    /// The same, made ready.
    post: Preset,
    /// And with what the call of a tool says besides.
    call: Preset,
    session: Option<HeaderValue>,
    /// How often the session was renewed.
    renewals: u64,
}

#[derive(Default)]
struct Greeting {
    initialize: Bytes,
    initialized: Bytes,
    revision: Option<Revision>,
}

/// How long the end of a stream is waited for after its answer came. A stream read to its end leaves a connection that
/// can be used again.
const LAST_WORDS: Duration = Duration::from_secs(2);

// === impl HttpLink ===

impl HttpLink {
    /// A link that speaks the modern era until a handshake is made. Nothing is sent yet.
    pub(crate) fn new(target: Target, mut headers: HeaderMap, inbox: Arc<Inbox>) -> Self {
        headers.insert(headers::VERSION, HeaderValue::from_static(Revision::NEWEST_MODERN.as_str()));
        let (post, call) = (Preset::default(), Preset::default());
        let manner = Manner { era: Era::Modern, headers, post, call, session: None, renewals: 0 };
        Self(Arc::new(Core {
            target,
            inbox,
            manner: ArcSwap::new(manner.prepared()),
            clerk: OnceLock::new(),
            greeting: tokio::sync::Mutex::default(),
            news: Mutex::new(None),
        }))
    }

    /// Sends a request and reads until its answer is in the inbox. A session that ended is renewed, once.
    pub(crate) async fn carry(&self, out: Outgoing<'_>) -> Result<Sent, LinkFailure> {
        let core = &self.0;
        core.inbox.monitor.traffic(&core.inbox.server, true, &out.frame);
        let call =
            Call { id: out.id, initialize: out.method == method::INITIALIZE, body: Bytes::from(out.frame) };
        if call.initialize {
            core.begin_session(&call.body).await;
        }
        let manner = core.manner.load_full();
        let own = Own::new(manner.era, out.method, out.name, out.headers)?;
        match core.ask(&call, &manner, &own).await {
            Err(LinkFailure::SessionExpired) => {
                let manner = Box::pin(core.renew(manner.renewals, call.id)).await?;
                Box::pin(core.ask(&call, &manner, &own)).await?;
            }
            other => other?,
        }
        Ok(Sent(0))
    }

    /// The revision that was agreed on, which every later message repeats.
    pub(crate) fn agreed(&self, revision: Revision) {
        let mut manner = Manner::clone(&self.0.manner.load());
        manner.headers.insert(headers::VERSION, HeaderValue::from_static(revision.as_str()));
        self.0.manner.store(manner.prepared());
        if let Ok(mut greeting) = self.0.greeting.try_lock() {
            greeting.revision = Some(revision);
        }
    }

    /// Ends the handshake, and opens the server's own stream.
    pub(crate) async fn initialized(&self, frame: Vec<u8>) -> Result<(), LinkFailure> {
        self.0.end_handshake(Bytes::from(frame)).await
    }

    /// Sends a notification, after those that were sent before it. The modern era has none over HTTP.
    pub(crate) fn notify(&self, frame: Vec<u8>) {
        self.0.inbox.monitor.traffic(&self.0.inbox.server, true, &frame);
        if let Some(clerk) = self.0.clerk.get() {
            clerk.send(&self.0.inbox, frame);
        }
    }

    /// Tells a legacy server that nobody waits any more. A modern one knows it from the closed stream.
    pub(crate) fn cancel(&self, frame: Vec<u8>) {
        if self.0.manner.load().era == Era::Legacy {
            self.notify(frame);
        }
    }

    /// Ends the session, if there is one.
    pub(crate) async fn close(&self) {
        self.0.shut();
        if let Some(clerk) = self.0.clerk.get() {
            clerk.finished().await;
        }
        self.0.target.endpoint.close();
    }
}

impl Drop for HttpLink {
    fn drop(&mut self) {
        // The clerk notices, and ends the session.
        self.0.shut();
    }
}

// === impl Core ===

/// One request, as it is sent and perhaps sent again.
struct Call {
    id: u64,
    initialize: bool,
    body: Bytes,
}

impl Core {
    /// Sends a request and reads its answer.
    async fn ask(&self, call: &Call, manner: &Manner, own: &Own) -> Result<(), LinkFailure> {
        let preset = if own.is_call { &manner.call } else { &manner.post };
        let ask = Ask { method: &Method::POST, preset, own: own.headers(), body: &call.body };
        let answer = self.target.send(&ask).await.map_err(answer::unreached)?;
        let session = answer.head.value(headers::SESSION);
        if !answer.head.status().is_success() {
            if let (Era::Modern, Some(session)) = (manner.era, session) {
                // Some servers open a session for a question they refuse. Nobody will use it.
                tokio::spawn(self.target.clone().end_session(manner.headers.clone(), session));
            }
            return answer::refusal(&self.inbox, call.id, manner.session.is_some(), answer).await;
        }
        if call.initialize {
            self.keep_session(session);
        }
        self.receive(call.id, manner.era, answer).await
    }

    async fn receive(&self, call: u64, era: Era, answer: Answer) -> Result<(), LinkFailure> {
        match answer::content(&answer.head) {
            Content::Json => match answer.body.read(self.inbox.limits.body).await {
                Ok(body) => {
                    let wrong = self.inbox.take_for(call, body);
                    if self.inbox.waits(call) {
                        let wrong = wrong.unwrap_or_else(|| "the HTTP answer holds no answer to it".into());
                        self.inbox.refuse(call, wrong);
                    }
                }
                Err(e @ NetError::TooLarge { .. }) => self.inbox.refuse(call, e.to_string()),
                Err(e) => return Err(LinkFailure::Lost(e.to_string())),
            },
            Content::Events => {
                let events = Events::new(answer.body, self.inbox.limits.event);
                return self.follow(call, era, events).await;
            }
            Content::Other(what) => self.inbox.refuse(call, what),
        }
        Ok(())
    }

    /// Reads a stream until it brought the answer.
    async fn follow(&self, call: u64, era: Era, mut events: Events) -> Result<(), LinkFailure> {
        let mut resume = Resume::default();
        let mut tries = 0;
        loop {
            match events.next(&mut resume).await {
                Ok(event) => {
                    tries = 0;
                    if event.name.as_deref().is_none_or(|name| name == "message") {
                        self.inbox.take_for(call, event.data);
                    }
                    if !self.inbox.waits(call) {
                        self.let_end(events);
                        return Ok(());
                    }
                }
                Err(StreamEnd::TooMuch(reason)) => {
                    self.inbox.refuse(call, reason);
                    return Ok(());
                }
                Err(StreamEnd::Over(reason)) => {
                    if era == Era::Modern || resume.last_id.is_none() {
                        return Err(LinkFailure::Lost(format!("{reason} before the answer came")));
                    }
                    events = Box::pin(self.resume(&resume, &mut tries, &reason)).await?;
                }
            }
        }
    }

    /// The answer is there. The rest of the stream is read, elsewhere if it is not here yet.
    fn let_end(&self, mut events: Events) {
        let inbox = Arc::clone(&self.inbox);
        let mut rest = Box::pin(async move {
            let mut resume = Resume::default();
            while let Ok(event) = events.next(&mut resume).await {
                inbox.take(event.data);
            }
        });
        if (&mut rest).now_or_never().is_none() {
            tokio::spawn(tokio::time::timeout(LAST_WORDS, rest));
        }
    }

    fn shut(&self) {
        self.inbox.close(Closed { reason: "it was closed".into(), protocol: false });
        let news = self.news.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(news) = news {
            news.abort();
        }
    }
}

// === impl Manner ===

impl Manner {
    /// With what every request says made ready, so that one says only what is its own.
    fn prepared(mut self) -> Arc<Self> {
        self.post = Preset::new(self.headers.clone());
        let mut call = self.headers.clone();
        if self.era == Era::Modern {
            call.insert(headers::METHOD, HeaderValue::from_static(method::TOOLS_CALL));
        }
        self.call = Preset::new(call);
        Arc::new(self)
    }
}

/// What one request says in headers of its own.
struct Own {
    /// Whether it calls a tool.
    is_call: bool,
    /// The one that nearly every call has, and nothing else.
    one: Option<(HeaderName, HeaderValue)>,
    /// All, where there may be others.
    all: Vec<(HeaderName, HeaderValue)>,
}

// === impl Own ===

impl Own {
    fn new(
        era: Era,
        asked: &str,
        name: Option<&str>,
        mirrored: &[(String, String)],
    ) -> Result<Self, LinkFailure> {
        let is_call = asked == method::TOOLS_CALL;
        if is_call && mirrored.is_empty() {
            let named = name.filter(|_| era == Era::Modern);
            let one = named.map(|name| (headers::NAME, headers::value(name)));
            return Ok(Self { is_call, one, all: Vec::new() });
        }
        let mut all = Vec::with_capacity(mirrored.len() + 2);
        if era == Era::Modern {
            all.extend((!is_call).then(|| (headers::METHOD, headers::value(asked))));
            all.extend(name.map(|name| (headers::NAME, headers::value(name))));
        }
        for (name, value) in mirrored {
            let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
                LinkFailure::NotSent(format!("`{}` is not the name of a header", name.escape_debug()))
            })?;
            all.push((key, headers::value(value)));
        }
        Ok(Self { is_call, one: None, all })
    }

    fn headers(&self) -> &[(HeaderName, HeaderValue)] {
        self.one.as_ref().map_or(&self.all, std::slice::from_ref)
    }
}
