//! News of a modern server: one long request that stays open, and is opened again when it breaks.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::company::Meta;
use super::connection::{Connection, Ended, Live, Request};
use super::inbox::Failure;
use super::link::LinkFailure;
use crate::error::{Error, Result};
use crate::mcp::{Era, extension, meta, method};
use crate::wire::{self, Json, Members};

/// A request that stays open as long as this is held. Dropped, the server is told that nobody listens any more.
#[derive(Debug)]
pub struct Listening(AbortHandle);

/// What the server agreed to, told once.
type First = Option<oneshot::Sender<Result<Json>>>;

/// How a request for news ended.
enum Over {
    /// It may be opened again.
    Again,
    /// Nobody was there to ask: later, as often as it takes.
    Later,
    /// There is no point in another.
    Enough,
    /// The server never agreed to the first.
    Refused,
}

/// Lists that may change: the capability, the key under which its news is asked for, the news.
pub(super) const LISTS: [(&str, &str, &str); 3] = [
    ("tools", "toolsListChanged", method::TOOLS_CHANGED),
    ("prompts", "promptsListChanged", method::PROMPTS_CHANGED),
    ("resources", "resourcesListChanged", method::RESOURCES_CHANGED),
];

/// The key under which word of tasks is asked for.
const TASK_IDS: &str = "taskIds";

/// As good as for ever, and still a time that can be counted.
const LONG: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// A request that ends sooner than this was not meant to stay.
const QUICK: Duration = Duration::from_secs(5);
/// How often that may happen in a row.
const QUICK_ENDS: u32 = 3;
/// The first pause before it is opened again; each further one is twice as long, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl Connection {
    /// Asks a modern server for news, for example `{"toolsListChanged":true}`, until the connection ends. They come to
    /// [`Peer::notification`](super::Peer::notification). A legacy server sends its news unasked: nothing is done.
    pub fn listen(&self, notifications: Json) {
        if self.info().revision.era() == Era::Modern {
            let live = self.live();
            tokio::spawn(async move { stay(&live, &notifications, None).await });
        }
    }

    /// Asks a modern server for news as long as the guard is held, and waits until it agrees: the part of what was asked
    /// for that it will tell, or `null` if it does not say. `on_end` hears that it does not keep the request open.
    pub async fn listen_for(
        &self,
        notifications: Json,
        timeout: Duration,
        on_end: impl FnOnce() + Send + 'static,
    ) -> Result<(Listening, Json)> {
        let (first, agreed) = oneshot::channel();
        let live = self.live();
        let task = tokio::spawn(async move {
            let heard = stay(&live, &notifications, Some(first)).await;
            if heard && !live.wire.inbox.is_closed() {
                on_end();
            }
        });
        let listening = Listening(task.abort_handle());
        let since = Instant::now();
        match tokio::time::timeout(timeout, agreed).await {
            Ok(Ok(agreed)) => Ok((listening, agreed?)),
            Ok(Err(_)) => Err(Error::Cancelled { reason: "the connection ended".into(), sent: false }),
            Err(_) => Err(Error::Timeout {
                server: self.server().clone(),
                after: since.elapsed(),
                sent: false,
                stderr: self.stderr(),
            }),
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Keeps a request open until there is no point in it any more. False if the server never agreed.
async fn stay(live: &Arc<Live>, notifications: &Json, mut first: First) -> bool {
    let inbox = Arc::clone(&live.wire.inbox);
    let mut quick = 0;
    let mut pause = FIRST_PAUSE;
    loop {
        let since = Instant::now();
        let over = ask(live, notifications, &mut first).await;
        if since.elapsed() >= QUICK {
            (quick, pause) = (0, FIRST_PAUSE);
        }
        match over {
            Over::Again => quick += 1,
            Over::Later => {}
            Over::Enough => return true,
            Over::Refused => return false,
        }
        if quick >= QUICK_ENDS {
            return true;
        }
        tokio::select! {
            _ = inbox.until_closed() => return true,
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
        missed(notifications, |news| inbox.take(news.into()));
    }
}

/// What changed while nobody listened was not heard: it is told as if all had changed.
fn missed(notifications: &Json, mut tell: impl FnMut(Vec<u8>)) {
    for (_, key, news) in LISTS {
        if notifications.member(key).is_some_and(|wanted| wanted.as_str() == "true") {
            tell(wire::notification(news, &Members::new()));
        }
    }
    let resources = notifications.member("resourceSubscriptions");
    for uri in resources.and_then(|uris| uris.to::<Vec<String>>().ok()).unwrap_or_default() {
        let mut params = Members::new();
        params.text("uri", &uri);
        tell(wire::notification(method::RESOURCE_UPDATED, &params));
    }
}

/// The same `_meta`, of a client that knows the extension.
fn knowing_tasks(meta: &Members) -> Members {
    let told = meta.to_json();
    let known = told.member(meta::CLIENT_CAPABILITIES);
    let (mut extensions, mut capabilities, mut all) = (Members::new(), Members::new(), Members::new());
    if let Some(known) = &known {
        capabilities.append_without(known, &["extensions"]);
        if let Some(known) = known.member("extensions") {
            extensions.append_without(&known, &[extension::TASKS]);
        }
    }
    extensions.json(extension::TASKS, &Json::empty_object());
    capabilities.object("extensions", &extensions);
    all.append_without(&told, &[meta::CLIENT_CAPABILITIES]).object(meta::CLIENT_CAPABILITIES, &capabilities);
    all
}

/// Keeps one request open. `first` hears that the server agreed, or why it did not.
async fn ask(live: &Live, notifications: &Json, first: &mut First) -> Over {
    let _standing = live.wire.inbox.stand();
    let mut params = Members::new();
    params.json("notifications", notifications);
    let mut request = Request::new(method::LISTEN, params, LONG);
    request.hard_timeout = LONG;
    let (tell, mut agreed) = mpsc::channel(1);
    request.standing = Some(tell);
    let logging = live.logging_meta.get();
    let meta = logging.as_deref().unwrap_or(&live.meta);
    // Word of a task goes to whoever says that it knows of tasks.
    let of_tasks = notifications.member(TASK_IDS).map(|_| knowing_tasks(meta));
    let meta = of_tasks.as_ref().unwrap_or(meta);
    let ended = {
        let attempt = live.wire.attempt(&mut request, Meta::Of(meta));
        tokio::pin!(attempt);
        loop {
            tokio::select! {
                biased;
                Some(agreed) = agreed.recv() => {
                    if let Some(first) = first.take() {
                        let _ = first.send(Ok(agreed));
                    }
                }
                ended = &mut attempt => break ended,
            }
        }
    };
    let over = match &ended {
        // The server ended it, or the stream broke.
        Ended::Answer(Ok(_)) | Ended::Failed(LinkFailure::Lost(_) | LinkFailure::NotSent(_)) => Over::Again,
        // There is trouble on the way.
        Ended::Failed(LinkFailure::Unreached(error)) if !error.is_refusal() => Over::Later,
        Ended::Failed(LinkFailure::Barred(error)) if error.is_retryable() => Over::Later,
        Ended::Failed(LinkFailure::Status { status, .. }) if *status == 429 || *status >= 500 => Over::Later,
        Ended::Failed(LinkFailure::Unreached(_) | LinkFailure::Barred(_) | LinkFailure::Status { .. })
        | Ended::Failed(LinkFailure::SessionExpired)
        | Ended::Gone(..)
        | Ended::TimedOut { .. } => Over::Enough,
        // It does not have such a thing, or does not do it properly.
        Ended::Answer(Err(Failure::Rpc(_) | Failure::Malformed(_) | Failure::Closed(_))) => Over::Enough,
    };
    if let Some(waiting) = first.take() {
        let refused = || Error::Protocol {
            server: live.wire.server.clone(),
            reason: "it ended a request for news without agreeing to it".into(),
            sent: false,
            stderr: live.wire.link.stderr(),
        };
        let why = live.wire.judge(ended, &request).err().map_or_else(refused, |error| *error);
        let _ = waiting.send(Err(why));
        return Over::Refused;
    }
    over
}
