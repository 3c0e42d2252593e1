//! Messages over a WebSocket, one a text frame: one ordered writer, one reader, in one task.
//!
//! The upgrade, the frames and their limits are in `net`. Nothing here knows of addresses.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderMap};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::berth::Dock;
use super::connection::Wire;
use super::handshake::Introduction;
use super::http::headers;
use super::inbox::{Closed, Inbox};
use super::link::{Link, LinkFailure, Outgoing, Sent};
use crate::config::{Remote, ServerConfig};
use crate::error::{Error, Result, StderrTail};
use crate::net::{FrameEnd, Hearing, NetError, Speaking, WebSocket};
use crate::policy::ConnectPermit;

/// A WebSocket.
pub(crate) struct WsLink {
    outbox: Arc<Outbox>,
    inbox: Arc<Inbox>,
    /// Reads and writes; taken by whoever waits for its end.
    task: Mutex<Option<JoinHandle<()>>>,
}

/// What waits to be written.
#[derive(Default)]
struct Outbox {
    queue: Mutex<Queue>,
    /// Rung when there is something to write.
    bell: Notify,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<String>,
    bytes: usize,
    /// How many messages were taken out to be written, since the start.
    taken: u64,
    closed: bool,
}

/// What may wait for a server that does not read. A request of ten megabytes still fits.
const QUEUE_MAX: usize = 32 * 1024 * 1024;
/// How many messages are taken before others have their turn: a server that floods must not keep them waiting.
const TURN: usize = 16;
/// How long the goodbyes may take.
const GOODBYE: Duration = Duration::from_secs(1);

impl Dock {
    /// Connects to a WebSocket.
    pub(super) async fn upgrade(
        &self,
        config: &ServerConfig,
        remote: &Remote,
        intro: &Introduction,
    ) -> Result<Wire> {
        let permit = self.policy.now().permit_websocket(&config.name, remote, &config.origin)?;
        self.warn(config, permit.warnings());
        let headers = headers::for_upgrade(&headers::of_config(config, remote)?);
        let opening = self.open_socket(config, &permit, headers);
        let socket = match tokio::time::timeout_at(intro.deadline, opening).await {
            Ok(opened) => opened?,
            Err(_) => {
                let (server, after) = (config.name.clone(), config.start_timeout);
                return Err(Error::Timeout { server, after, sent: false, stderr: StderrTail::default() });
            }
        };
        let inbox = self.inbox(config);
        let link = Link::Ws(WsLink::start(socket, Arc::clone(&inbox)));
        Ok(Wire { server: config.name.clone(), transport: "ws", link, inbox })
    }

    /// Asks for the socket, and once more if what was shown is refused.
    async fn open_socket(
        &self,
        config: &ServerConfig,
        permit: &ConnectPermit,
        mut headers: HeaderMap,
    ) -> Result<WebSocket> {
        let limit = self.limits.now().line;
        let failed = |error: NetError| error.into_error(&config.name, "ws");
        let Some(pass) = self.pass(config) else {
            return self.net.websocket(permit, headers, limit).await.map_err(failed);
        };
        pass.look_up().await?;
        let mut shown = pass.show().await?;
        for last in [false, true] {
            if let Some(shown) = &shown {
                headers.insert(AUTHORIZATION, shown.header.clone());
            }
            match self.net.websocket(permit, headers.clone(), limit).await {
                Err(NetError::NotUpgraded { status: 401, .. }) if !last => {
                    let newer = pass.refused(shown.as_deref(), None).await?;
                    if newer.is_none() {
                        break;
                    }
                    shown = newer;
                }
                opened => return opened.map_err(failed),
            }
        }
        Err(failed(NetError::NotUpgraded { status: 401, reason: String::new() }))
    }
}

// === impl WsLink ===

impl WsLink {
    fn start(socket: WebSocket, inbox: Arc<Inbox>) -> Self {
        let outbox = Arc::new(Outbox::default());
        let task = tokio::spawn(converse(socket, Arc::clone(&outbox), Arc::clone(&inbox)));
        let back = Arc::downgrade(&outbox);
        inbox.answer_through(move |frame| {
            if let Some(outbox) = back.upgrade() {
                // A closed socket is noticed by the reader too; an answer to a server that left is not missed.
                let _ = outbox.put(frame);
            }
        });
        Self { outbox, inbox, task: Mutex::new(Some(task)) }
    }

    /// Queues a request. Its answer comes through the reader.
    pub(crate) fn carry(&self, out: Outgoing<'_>) -> Result<Sent, LinkFailure> {
        self.inbox.monitor.traffic(&self.inbox.server, true, &out.frame);
        self.outbox.put(out.frame).map(Sent).map_err(|reason| {
            // The reader knows more of a server that left.
            LinkFailure::NotSent(self.inbox.closed().map_or(reason, |closed| closed.reason))
        })
    }

    /// Whether a request was begun to be written.
    pub(crate) fn reached(&self, sent: Sent) -> bool {
        self.outbox.lock().taken > sent.0
    }

    pub(crate) fn notify(&self, frame: Vec<u8>) {
        self.inbox.monitor.traffic(&self.inbox.server, true, &frame);
        let _ = self.outbox.put(frame);
    }

    pub(crate) async fn close(&self) {
        self.inbox.close(Closed::by_us());
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            // It panics never, and is not cancelled.
            let _ = task.await;
        }
    }
}

impl Drop for WsLink {
    fn drop(&mut self) {
        // The task notices, and says goodbye.
        self.inbox.close(Closed::by_us());
    }
}

// === impl Outbox ===

impl Outbox {
    /// Takes a message, and says how many were taken before it.
    fn put(&self, frame: Vec<u8>) -> Result<u64, String> {
        let text = String::from_utf8(frame).map_err(|_| "the message is not text".to_owned())?;
        let mut queue = self.lock();
        if queue.closed {
            return Err("the socket is closed".into());
        }
        if queue.bytes > QUEUE_MAX {
            return Err("it does not read the socket, and too much waits for it".into());
        }
        let before = queue.taken + queue.messages.len() as u64;
        queue.bytes += text.len();
        queue.messages.push_back(text);
        drop(queue);
        self.bell.notify_one();
        Ok(before)
    }

    fn take(&self) -> Option<String> {
        let mut queue = self.lock();
        let text = queue.messages.pop_front()?;
        queue.bytes -= text.len();
        queue.taken += 1;
        Some(text)
    }

    /// No more is taken, and what waits is never written.
    fn shut(&self) {
        let mut queue = self.lock();
        queue.closed = true;
        queue.messages.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads and writes until one side closes.
async fn converse(socket: WebSocket, outbox: Arc<Outbox>, inbox: Arc<Inbox>) {
    let (mut speaking, mut hearing) = socket.split();
    let end = tokio::select! {
        biased;
        end = read(&mut hearing, &inbox) => end,
        _ = inbox.until_closed() => FrameEnd::Over("it was closed".into()),
        never = write(&mut speaking, &outbox) => match never {},
    };
    outbox.shut();
    let (reason, protocol) = match &end {
        FrameEnd::Over(reason) => (reason.clone(), false),
        FrameEnd::Broken(_, reason) => (reason.clone(), true),
    };
    inbox.close(Closed { reason, protocol });
    let _ = tokio::time::timeout(GOODBYE, speaking.close(end.goodbye(), hearing)).await;
}

async fn read(hearing: &mut Hearing, inbox: &Inbox) -> FrameEnd {
    loop {
        for _ in 0..TURN {
            match hearing.next().await {
                Ok(text) => inbox.take(text),
                Err(end) => return end,
            }
        }
        tokio::task::yield_now().await;
    }
}

/// Writes what waits. A server that cannot be written to is noticed by the reader, after its last words.
async fn write(speaking: &mut Speaking, outbox: &Outbox) -> std::convert::Infallible {
    loop {
        while let Some(text) = outbox.take() {
            if speaking.say(text).await.is_err() {
                outbox.shut();
                std::future::pending::<()>().await;
            }
        }
        speaking.keep_alive_until(outbox.bell.notified()).await;
    }
}
