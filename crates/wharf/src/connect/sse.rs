//! HTTP+SSE, the transport of 2024-11-05: one stream brings everything, messages are posted to the address it names.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::HeaderMap;
use http::{Method, StatusCode};
use url::Url;

use super::http::events::{Events, Resume, StreamEnd};
use super::http::{Clerk, Content, Office, Target, Unsent, answer, headers};
use super::inbox::{Closed, Inbox};
use super::link::{LinkFailure, Outgoing, Sent};
use crate::error::{Error, StderrTail};
use crate::net::{Answer, Ask, Preset};
use crate::text::Escaped;

/// The stream of one server, and the place that messages are posted to.
pub(crate) struct SseLink(Arc<Post>);

struct Post {
    target: Target,
    preset: Preset,
    inbox: Arc<Inbox>,
    /// Sends what has no answer, in order.
    clerk: OnceLock<Clerk>,
}

impl SseLink {
    /// Opens the stream and waits for the address. Bounded by the caller's deadline.
    pub(crate) async fn open(
        mut target: Target,
        url: &Url,
        headers: HeaderMap,
        inbox: Arc<Inbox>,
    ) -> Result<Self, Error> {
        let fail = |reason: String, retryable| Error::Connection {
            server: inbox.server.clone(),
            transport: "sse",
            reason,
            stderr: StderrTail::default(),
            retryable,
        };
        let (preset, nothing) = (Preset::new(headers::for_stream(&headers)), Bytes::new());
        let ask = Ask { method: &Method::GET, preset: &preset, own: &[], body: &nothing };
        let sent = target.send(&ask).await;
        let Answer { head, body } = sent.map_err(|e| e.into_error(&inbox.server, "sse"))?;
        match head.status() {
            StatusCode::OK => {}
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                return Err(Error::Auth {
                    server: inbox.server.clone(),
                    reason: format!("HTTP status {}", status.as_u16()),
                });
            }
            status => {
                let retryable = status.is_server_error();
                return Err(fail(
                    format!("the server answered with HTTP status {}", status.as_u16()),
                    retryable,
                ));
            }
        }
        match answer::content(&head) {
            Content::Events => {}
            Content::Json => {
                return Err(fail("it answers with JSON, not with a stream of events".into(), false));
            }
            Content::Other(what) => return Err(fail(what, false)),
        }
        let mut events = Events::new(body, inbox.limits.event);
        let first = events.next(&mut Resume::default()).await;
        let first = first.map_err(|end| fail(reason_of(end), true))?;
        if first.name.as_deref() != Some("endpoint") {
            return Err(fail("its stream does not begin with the event `endpoint`".into(), false));
        }
        let address = post_address(url, &String::from_utf8_lossy(&first.data)).map_err(|e| fail(e, false))?;
        let unreadable = |_| fail("the address it names cannot be requested".into(), false);
        target.uri = Some(address.as_str().parse().map_err(unreadable)?);
        Ok(Self::start(target, headers, inbox, events))
    }

    fn start(target: Target, headers: HeaderMap, inbox: Arc<Inbox>, events: Events) -> Self {
        tokio::spawn(read_on(Arc::clone(&inbox), events));
        let preset = Preset::new(headers);
        let post = Arc::new(Post { target, preset, inbox: Arc::clone(&inbox), clerk: OnceLock::new() });
        post.clerk.get_or_init(|| Clerk::start(Arc::clone(&inbox), Arc::clone(&post)));
        let back = Arc::downgrade(&post);
        inbox.answer_through(move |frame| {
            if let Some(post) = back.upgrade() {
                post.queue(frame);
            }
        });
        Self(post)
    }

    /// Posts a request. Its answer comes through the stream.
    pub(crate) async fn carry(&self, out: Outgoing<'_>) -> Result<Sent, LinkFailure> {
        let inbox = &self.0.inbox;
        inbox.monitor.traffic(&inbox.server, true, &out.frame);
        let sent = self.0.send(out.frame.into()).await;
        let answer = sent.map_err(answer::unreached)?;
        if !answer.head.status().is_success() {
            answer::refusal(inbox, out.id, false, answer).await?;
        } else {
            // Read to its end, so that the connection can be used again.
            answer.body.skip();
        }
        Ok(Sent(0))
    }

    /// Posts the end of the handshake, and waits until the server took it.
    pub(crate) async fn initialized(&self, frame: Vec<u8>) -> Result<(), LinkFailure> {
        let refused = |body: String| LinkFailure::NotSent(body);
        self.0.post(frame.into()).await.map_err(refused)
    }

    /// Posts a notification, after those before it.
    pub(crate) fn notify(&self, frame: Vec<u8>) {
        self.0.queue(frame);
    }

    pub(crate) async fn close(&self) {
        self.0.shut();
        if let Some(clerk) = self.0.clerk.get() {
            clerk.finished().await;
        }
        self.0.target.endpoint.close();
    }
}

impl Drop for SseLink {
    fn drop(&mut self) {
        self.0.shut();
    }
}

// === impl Post ===

impl Post {
    async fn send(&self, frame: Bytes) -> Result<Answer, Unsent> {
        let ask = Ask { method: &Method::POST, preset: &self.preset, own: &[], body: &frame };
        self.target.send(&ask).await
    }

    fn queue(&self, frame: Vec<u8>) {
        self.inbox.monitor.traffic(&self.inbox.server, true, &frame);
        if let Some(clerk) = self.clerk.get() {
            clerk.send(&self.inbox, frame);
        }
    }

    fn shut(&self) {
        self.inbox.close(Closed { reason: "it was closed".into(), protocol: false });
    }
}

impl Office for Post {
    async fn post(&self, frame: Bytes) -> Result<(), String> {
        let Answer { head, body } = self.send(frame).await.map_err(|e| e.to_string())?;
        let status = head.status();
        // Read, so that the connection can be used again.
        let _ = body.read(4096).await;
        if status.is_success() {
            Ok(())
        } else {
            Err(format!("the server answered with HTTP status {}", status.as_u16()))
        }
    }

    /// There is no session to end: closing the stream is the goodbye.
    async fn leave(&self) {}
}

/// Reads the stream to its end, which is the end of the connection.
async fn read_on(inbox: Arc<Inbox>, mut events: Events) {
    let mut resume = Resume::default();
    loop {
        let event = tokio::select! {
            event = events.next(&mut resume) => event,
            _ = inbox.until_closed() => return,
        };
        match event {
            Ok(event) if event.name.as_deref().is_none_or(|name| name == "message") => inbox.take(event.data),
            Ok(_) => {}
            Err(end) => {
                let protocol = matches!(end, StreamEnd::TooMuch(_));
                let reason = reason_of(end);
                return inbox.close(Closed { reason, protocol });
            }
        }
    }
}

fn reason_of(end: StreamEnd) -> String {
    match end {
        StreamEnd::Over(reason) | StreamEnd::TooMuch(reason) => reason,
    }
}

/// The address that messages go to. It comes from the server, so it may only lead back to where the stream came from:
/// our credentials go there.
fn post_address(stream: &Url, named: &str) -> Result<Url, String> {
    let shown = || {
        let cut: String = named.chars().take(200).collect();
        Escaped(&cut).to_string()
    };
    let address =
        stream.join(named.trim()).map_err(|_| format!("the address it names is not one: `{}`", shown()))?;
    let same = address.origin() == stream.origin() && address.origin().is_tuple();
    if !same || !address.username().is_empty() || address.password().is_some() {
        return Err(format!("it wants messages posted to another place than its own: `{}`", shown()));
    }
    Ok(address)
}
