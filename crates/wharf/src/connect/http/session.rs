//! The legacy era over HTTP: a session with an id, a stream of the server's own, streams that are resumed where they
//! broke, and a session that the server forgot made again without anybody noticing.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::answer::{self, Content};
use super::clerk::{Clerk, Office};
use super::events::{Events, Resume, StreamEnd};
use super::{Core, Manner, headers};
use crate::connect::inbox::Closed;
use crate::connect::link::LinkFailure;
use crate::connect::listen::LONGEST_PAUSE;
use crate::mcp::{Era, Revision, method};
use crate::net::{Answer, Ask, Preset};
use crate::text::Escaped;
use crate::wire::{self, Json, Members, Message};

/// How often a stream is asked for again without anything new on it.
const RESUMES: u32 = 5;
/// How long a renewed handshake may take.
const RENEWAL: Duration = Duration::from_secs(30);
/// How long the server's own stream is waited for before the first call.
const OPENING: Duration = Duration::from_millis(250);
/// A stream of news that ends sooner than this was not meant to stay.
const QUICK: Duration = Duration::from_secs(5);
/// How often that may happen in a row.
const QUICK_ENDS: u32 = 3;

impl Core {
    /// A handshake begins: what was learned about an earlier one is forgotten.
    pub(super) async fn begin_session(self: &Arc<Self>, initialize: &Bytes) {
        self.greeting.lock().await.initialize = initialize.clone();
        let mut manner = Manner::clone(&self.manner.load());
        manner.era = Era::Legacy;
        manner.headers.remove(headers::VERSION);
        manner.set_session(None);
        self.manner.store(manner.prepared());
        self.clerk.get_or_init(|| Clerk::start(Arc::clone(&self.inbox), Arc::clone(self)));
        let back = Arc::downgrade(self);
        self.inbox.answer_through(move |frame| {
            if let Some(core) = back.upgrade() {
                core.inbox.monitor.traffic(&core.inbox.server, true, &frame);
                if let Some(clerk) = core.clerk.get() {
                    clerk.send(&core.inbox, frame);
                }
            }
        });
    }

    pub(super) fn keep_session(&self, session: Option<HeaderValue>) {
        let mut manner = Manner::clone(&self.manner.load());
        manner.set_session(session);
        self.manner.store(manner.prepared());
    }

    /// Tells the server that the handshake is over, and waits until it knows: what comes next must not overtake this.
    pub(super) async fn end_handshake(self: &Arc<Self>, frame: Bytes) -> Result<(), LinkFailure> {
        self.greeting.lock().await.initialized = frame.clone();
        let manner = self.manner.load_full();
        self.deliver(&manner.post, frame).await?;
        // What the server says before its stream is open may be lost. But some begin it only with their first word.
        let opened = self.hear_news(manner);
        let _ = tokio::time::timeout(OPENING, opened).await;
        Ok(())
    }

    /// Posts a message that has no answer.
    async fn deliver(&self, preset: &Preset, frame: Bytes) -> Result<(), LinkFailure> {
        let ask = Ask { method: &Method::POST, preset, own: &[], body: &frame };
        let answer = self.target.send(&ask).await.map_err(answer::unreached)?;
        let status = answer.head.status();
        // Read, so that the connection can be used again.
        let body = answer.body.read(4096).await.unwrap_or_default();
        if status.is_success() {
            return Ok(());
        }
        let body = String::from_utf8_lossy(&body);
        Err(LinkFailure::Status {
            status: status.as_u16(),
            body: Escaped(&self.inbox.monitor.redactor.redact_beginning(&body, 300)).to_string(),
            challenge: None,
            retry_after: None,
        })
    }

    /// Makes the session again, once however many calls noticed that it is gone. `seen` is what the call knew.
    pub(super) async fn renew(self: &Arc<Self>, seen: u64, call: u64) -> Result<Arc<Manner>, LinkFailure> {
        let greeting = self.greeting.lock().await;
        let manner = self.manner.load_full();
        if manner.renewals != seen {
            return Ok(manner);
        }
        let mut fresh = Manner::clone(&manner);
        fresh.renewals += 1;
        fresh.set_session(None);
        let renewed = async {
            let session = self.greet(&fresh, &greeting.initialize, greeting.revision).await?;
            fresh.set_session(session);
            let preset = Preset::new(fresh.headers.clone());
            let told = self.deliver(&preset, greeting.initialized.clone()).await;
            told.map_err(|e| format!("{e:?}"))
        };
        let outcome = tokio::time::timeout(RENEWAL, renewed).await;
        if let Err(reason) = outcome.unwrap_or_else(|_| Err("it did not answer in time".into())) {
            // This call was certainly not run; it must not be counted among those that the end finds under way.
            self.inbox.forget(call);
            self.inbox.close(Closed {
                reason: format!("the session ended and could not be made again: {reason}"),
                protocol: false,
            });
            return Err(LinkFailure::SessionExpired);
        }
        let fresh = fresh.prepared();
        self.manner.store(Arc::clone(&fresh));
        drop(greeting);
        drop(self.hear_news(Arc::clone(&fresh)));
        // A server that forgot the session may have been replaced: what is known of it is asked for again.
        let changed = wire::notification(method::TOOLS_CHANGED, &Members::new());
        self.inbox.take(changed.into());
        self.inbox.renewed();
        Ok(fresh)
    }

    /// Says the handshake's first sentence again. The answer is read here: it has the number of a call that ended.
    async fn greet(
        &self,
        manner: &Manner,
        frame: &Bytes,
        agreed: Option<Revision>,
    ) -> Result<Option<HeaderValue>, String> {
        let mut headers = manner.headers.clone();
        headers.remove(headers::VERSION);
        let preset = Preset::new(headers);
        let ask = Ask { method: &Method::POST, preset: &preset, own: &[], body: frame };
        let Answer { head, body } = self.target.send(&ask).await.map_err(|e| e.to_string())?;
        if !head.status().is_success() {
            return Err(format!("HTTP status {}", head.status().as_u16()));
        }
        let session = head.value(headers::SESSION);
        let limits = &self.inbox.limits;
        let body = match answer::content(&head) {
            Content::Json => body.read(limits.body).await.map_err(|e| e.to_string())?,
            Content::Events => {
                let mut events = Events::new(body, limits.event);
                let first = events.next(&mut Resume::default()).await;
                first.map_err(|_| "the stream ended".to_owned())?.data
            }
            Content::Other(what) => return Err(what),
        };
        let revision = match wire::parse_frame(body, limits.depth).pop() {
            Some(Ok(Message::Response { outcome: Ok(result), .. })) => result.member("protocolVersion"),
            _ => return Err("it did not answer `initialize`".into()),
        };
        if agreed.map(|r| Json::of(r.as_str())) != revision {
            return Err("it speaks another revision of the protocol now".into());
        }
        Ok(session)
    }

    /// Asks for the rest of a stream that ended before its answer.
    pub(super) async fn resume(
        &self,
        resume: &Resume,
        tries: &mut u32,
        reason: &str,
    ) -> Result<Events, LinkFailure> {
        let manner = self.manner.load_full();
        while *tries < RESUMES {
            *tries += 1;
            tokio::time::sleep(resume.pause()).await;
            match self.open_stream(&manner, resume).await {
                Ok(Some(events)) => return Ok(events),
                Ok(None) => {
                    let reason = format!("{reason} before the answer came, and cannot be resumed");
                    return Err(LinkFailure::Lost(reason));
                }
                Err(_) => {}
            }
        }
        Err(LinkFailure::Lost(format!(
            "{reason} before the answer came, and was resumed {RESUMES} times in vain"
        )))
    }

    /// Opens a stream of events. `Ok(None)` if the server has none, an error if it could not be asked.
    async fn open_stream(&self, manner: &Manner, resume: &Resume) -> Result<Option<Events>, String> {
        let mut headers: HeaderMap = headers::for_stream(&manner.headers);
        let last = resume.last_id.as_deref().map(HeaderValue::from_str);
        match last {
            Some(Ok(last)) => drop(headers.insert(headers::LAST_EVENT_ID, last)),
            Some(Err(_)) => return Ok(None),
            None => {}
        }
        let (preset, nothing) = (Preset::new(headers), Bytes::new());
        let ask = Ask { method: &Method::GET, preset: &preset, own: &[], body: &nothing };
        let Answer { head, body } = self.target.send(&ask).await.map_err(|e| e.to_string())?;
        if head.status().is_server_error() {
            return Err(format!("HTTP status {}", head.status().as_u16()));
        }
        let is_stream = head.status() == StatusCode::OK && matches!(answer::content(&head), Content::Events);
        Ok(is_stream.then(|| Events::new(body, self.inbox.limits.event)))
    }

    /// Reads the server's own stream in a task, in place of the one of an earlier session. The receiver hears, by an
    /// error, when the server has answered whether there is such a stream.
    fn hear_news(self: &Arc<Self>, manner: Arc<Manner>) -> oneshot::Receiver<()> {
        let (opening, opened) = oneshot::channel();
        let task = tokio::spawn(read_news(Arc::clone(self), manner, opening)).abort_handle();
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(earlier) = news.replace(task) {
            earlier.abort();
        }
        opened
    }
}

impl Manner {
    fn set_session(&mut self, session: Option<HeaderValue>) {
        match &session {
            Some(id) => drop(self.headers.insert(headers::SESSION, id.clone())),
            None => drop(self.headers.remove(headers::SESSION)),
        }
        self.session = session;
    }
}

impl Office for Core {
    async fn post(&self, frame: Bytes) -> Result<(), String> {
        let manner = self.manner.load_full();
        self.deliver(&manner.post, frame).await.map_err(|e| format!("{e:?}"))
    }

    async fn leave(&self) {
        let manner = self.manner.load_full();
        if let Some(session) = manner.session.clone() {
            self.target.clone().end_session(manner.headers.clone(), session).await;
        }
    }
}

/// What became of a stream of news.
enum News {
    /// There will be no other.
    Over,
    /// It ended, or broke.
    Ended,
    /// Nobody was there to ask.
    Unreached,
}

/// Reads what the server says of its own accord. Most servers have nothing to say and refuse; that is no fault.
async fn read_news(core: Arc<Core>, manner: Arc<Manner>, opening: oneshot::Sender<()>) {
    let mut opening = Some(opening);
    let mut resume = Resume::default();
    let (mut quick, mut unreached) = (0, 0);
    loop {
        let since = Instant::now();
        let news = tokio::select! {
            _ = core.inbox.until_closed() => return,
            news = read_stream(&core, &manner, &mut resume, &mut opening) => news,
        };
        match news {
            News::Over => return,
            News::Unreached => unreached = 5.min(unreached + 1),
            News::Ended => {
                unreached = 0;
                quick = if since.elapsed() < QUICK { quick + 1 } else { 1 };
            }
        }
        if quick >= QUICK_ENDS {
            return;
        }
        let pause = resume.pause() * 2_u32.pow(unreached);
        tokio::select! {
            _ = core.inbox.until_closed() => return,
            () = tokio::time::sleep(pause.min(LONGEST_PAUSE)) => {}
        }
    }
}

/// Reads one stream to its end.
async fn read_stream(
    core: &Core,
    manner: &Manner,
    resume: &mut Resume,
    opening: &mut Option<oneshot::Sender<()>>,
) -> News {
    let opened = core.open_stream(manner, resume).await;
    drop(opening.take());
    match opened {
        Ok(None) => News::Over,
        Err(_) => News::Unreached,
        Ok(Some(mut events)) => loop {
            match events.next(resume).await {
                Ok(event) => core.inbox.take(event.data),
                Err(StreamEnd::Over(_)) => return News::Ended,
                Err(StreamEnd::TooMuch(_)) => return News::Over,
            }
        },
    }
}
