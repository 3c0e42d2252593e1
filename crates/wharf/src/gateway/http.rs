//! The gateway over HTTP: who is let in, what was asked, and in which era.
//!
//! Limits come first: how many connections, how long a request may take to arrive, how large it may be.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::accept;
use super::barred::{Bar, Whence};
use super::batch;
use super::bell::Listener;
use super::body::{self, Reply};
use super::clock::{Clock, Wait};
use super::desk::unfit;
use super::ending::{Shift, has_looked, stops};
use super::guard;
use super::h1::{BadBody, Head, Intake, Outlet, Over, Usual};
use super::legacy::Sessions;
use super::metrics;
use super::modern::Asked;
use super::pages;
use super::probes::{self, SENT_AT_THE_END};
use super::reel::Reel;
use super::resource::Resource;
use super::sse::Streams;
use super::stay::Guest;
use super::visit::Habit;
use super::websocket;
use super::{Gateway, Settings};
use crate::mcp::{Revision, code};
use crate::wire::{Json, Message, RpcError, is_batch, parse_message, response_error};

pub(super) const VERSION: &str = "mcp-protocol-version";
pub(super) const SESSION: &str = "mcp-session-id";

/// How long the head of a request, and its body, may take to arrive.
pub(super) const ARRIVE: Duration = Duration::from_secs(15);

/// Serves until told to stop, then lets what is under way end.
pub(super) async fn serve(gateway: &Gateway, listener: TcpListener, stop: impl Future<Output = ()>) {
    let at = listener.local_addr().ok();
    let (resource, names) = (Resource::new(&gateway.settings, at), guard::names(&gateway.settings, at));
    let (sessions, streams) = (Arc::default(), Arc::default());
    let door = Arc::new(Door { gateway: gateway.clone(), sessions, streams, resource, names });
    // Also if nobody waits for the end.
    let _streams = Streaming(&door.sessions);
    let converse = |stream, closed| converse(stream, Arc::clone(&door), closed);
    let stopping = async {
        gateway.desk.until_stopping().await;
        // Streams that nothing is under way on would never end by themselves.
        door.sessions.stop();
        door.while_stopping(&listener).await;
    };
    tokio::select! {
        () = accept::receive(&listener, gateway, stop, converse) => {}
        () = stopping => {}
        () = gateway.desk.at_every_withdrawal(|| door.sessions.withdraw()) => {}
        () = door.sessions.tend(&gateway.desk.clock) => {}
    }
}

/// Streams that belong to no request. Dropped, they end.
struct Streaming<'a>(&'a Sessions);

impl Drop for Streaming<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// What every connection needs.
pub(super) struct Door {
    pub(super) gateway: Gateway,
    sessions: Arc<Sessions>,
    /// Those of the oldest callers.
    streams: Arc<Streams>,
    pub(super) resource: Resource,
    /// What it is called by.
    pub(super) names: Vec<String>,
}

/// What is to be done with a request, as far as its head says.
enum Wanted {
    /// Nothing more: this is the answer.
    Nothing(Reply),
    /// Its body is a message of this caller.
    Message(Guest),
}

/// How long a caller may be silent. Looked at twice: the wait goes on across requests, and only whoever was silent for all
/// of it is given up.
struct Patience {
    clock: Clock,
    wait: Pin<Box<Wait>>,
    heard: bool,
}

/// What a connection keeps from one request to the next, so that it need not be made for each.
pub(super) struct Seat<'a> {
    clock: &'a Clock,
    /// How long nothing was said to the caller who waits.
    silence: Wait,
    /// Whether what the request needs is taken back.
    listener: Listener<'a>,
    /// The name that we were called by last, which was one of ours.
    name: String,
    habit: Habit,
    /// The stream of a legacy request that needed none.
    pub(super) reel: Option<Arc<Reel>>,
}

/// One request after the other, until one side has enough.
async fn converse(mut stream: TcpStream, door: Arc<Door>, closed: watch::Receiver<bool>) {
    let desk = &door.gateway.desk;
    let _ = stream.set_nodelay(true);
    let from = stream.peer_addr().ok().map(|peer| peer.ip());
    let (reads, writes) = stream.split();
    let (mut intake, mut outlet) = (Intake::new(reads), Outlet::new(writes));
    // Rung behind the stop: what is looked at only then costs the requests before it nothing.
    let mut stop = desk.listener();
    let mut patience = Patience::new(&desk.clock);
    let mut seat = Seat::new(desk);
    let caller = loop {
        let head = tokio::select! {
            biased;
            head = intake.head() => head,
            () = patience.is_over() => Err(Over::Late),
            () = poll_fn(|cx| has_stopped(stop.hears(cx), desk)) => last_head(&mut intake).await,
        };
        let head = match head {
            Ok(head) => head,
            // A caller that breaks off is no news here.
            Err(Over::Gone) => return,
            Err(Over::Late) if !intake.has_begun() => return,
            Err(Over::Late) => {
                let late = body::plain(StatusCode::REQUEST_TIMEOUT, TOO_LATE);
                return outlet.end(late, None, &mut intake).await;
            }
            Err(Over::Bad(bad)) => {
                metrics::count(&desk.rejections.malformed);
                let (status, why) = bad.words();
                return outlet.end(body::plain(status, why), None, &mut intake).await;
            }
        };
        patience.heard = true;
        let ends = (&mut intake, &mut outlet);
        let Some(mut reply) = door.answer(&head, from, ends, &mut seat).await else { return };
        if head.has_usual(Usual::Origin) {
            reply = pages::readable(reply, &head, &door.gateway.settings);
        }
        let is_last = !head.may_go_on() || !intake.is_at_an_end() || desk.is_stopping();
        if let Some(caller) = reply.becomes.clone() {
            if outlet.send(reply, Some(&head), true, &mut intake).await.is_err() {
                return;
            }
            break caller;
        }
        if is_last {
            return outlet.end(reply, Some(&head), &mut intake).await;
        }
        if outlet.send(reply, Some(&head), false, &mut intake).await.is_err() {
            return;
        }
    };
    drop((seat, stop));
    let rest = intake.into_rest();
    websocket::converse(&door.gateway, caller, (stream, rest), closed).await;
}

/// The end of the stop's wait, if it has come since the last look.
fn has_stopped(is_time_to_look: bool, desk: &Shift) -> Poll<()> {
    if is_time_to_look && desk.is_stopping() { Poll::Ready(()) } else { Poll::Pending }
}

/// At the stop: the head that was begun, if it comes soon. Whoever has asked is told that nothing was done, and who has
/// nothing to ask is let go.
async fn last_head(intake: &mut Intake<'_>) -> Result<Head, Over> {
    tokio::select! {
        biased;
        head = intake.head() => return head,
        () = has_looked() => {}
    }
    if !intake.has_begun() {
        return Err(Over::Gone);
    }
    tokio::time::timeout(SENT_AT_THE_END, intake.head()).await.unwrap_or(Err(Over::Late))
}

// === impl Patience ===

impl Patience {
    fn new(clock: &Clock) -> Self {
        Self { clock: clock.clone(), wait: Box::pin(clock.wait(ARRIVE)), heard: false }
    }

    async fn is_over(&mut self) {
        loop {
            self.wait.as_mut().await;
            self.wait = Box::pin(self.clock.wait(ARRIVE));
            if !std::mem::take(&mut self.heard) {
                return;
            }
        }
    }
}

// === impl Seat ===

impl<'a> Seat<'a> {
    fn new(desk: &'a Shift) -> Self {
        let clock = &desk.clock;
        let (silence, listener) = (clock.wait(SILENCE), desk.listener());
        Self { clock, silence, listener, name: String::new(), habit: Habit::default(), reel: None }
    }

    /// A request begins: the wait after which its answer does as a stream, and who hears when it must end.
    pub(super) fn begin(&mut self) -> (&mut Wait, &mut Listener<'a>) {
        self.clock.restart(&mut self.silence, SILENCE);
        (&mut self.silence, &mut self.listener)
    }
}

// === impl Door ===

impl Door {
    /// Answers a request. `None`: its caller did not wait for it.
    async fn answer(
        &self,
        head: &Head,
        from: Option<IpAddr>,
        (intake, outlet): (&mut Intake<'_>, &mut Outlet<'_>),
        seat: &mut Seat<'_>,
    ) -> Option<Reply> {
        let settings = &self.gateway.settings;
        let caller = match self.wanted(head, from, &mut seat.name).await {
            Wanted::Nothing(reply) => return Some(reply),
            Wanted::Message(caller) => caller,
        };
        let frame = match intake.body(settings.body, ARRIVE, &mut outlet.writes).await {
            Ok(frame) => frame,
            Err(BadBody::Gone) => return None,
            Err(bad) => return Some(self.refuse(bad)),
        };
        // Large, so it is not moved into what waits for both.
        let mut work = pin!(self.take(head, caller, frame, seat));
        tokio::select! {
            biased;
            reply = &mut work => Some(reply),
            () = intake.gone() => None,
        }
    }

    /// Who is let in, and what for. Nothing of the body was looked at.
    async fn wanted(&self, head: &Head, from: Option<IpAddr>, known: &mut String) -> Wanted {
        let settings = &self.gateway.settings;
        let turn_away = |bar| self.gateway.desk.gate.turn_away(Whence::address(from), bar);
        if let Err((status, why)) = guard::check(head, (settings, &self.names), known) {
            metrics::count(&self.gateway.desk.rejections.guard);
            turn_away(Bar::Address(why));
            return Wanted::Nothing(body::plain(status, why));
        }
        if let Some(reply) = pages::preflight(head, settings) {
            return Wanted::Nothing(reply);
        }
        let path = head.path_bytes();
        if !matches!(path, b"/mcp" | b"/sse" | b"/messages") {
            return Wanted::Nothing(self.about_itself(head).await);
        }
        let admission = settings.admission.load();
        let caller = match admission.admit(head, self.resource.url()).await {
            Ok(caller) => caller,
            Err(refused) => {
                metrics::count(&self.gateway.desk.rejections.auth);
                turn_away(Bar::Identity(refused.words()));
                return Wanted::Nothing(self.resource.refuse(refused, &admission));
            }
        };
        drop(admission);
        let is_message = *head.method() == Method::POST && path != b"/sse";
        if !is_message && self.gateway.desk.is_stopping() {
            return Wanted::Nothing(probes::stopping());
        }
        if let Err(overloaded) = self.gateway.desk.gate.arrive(&caller) {
            return Wanted::Nothing(body::overloaded(&Json::null(), &overloaded.into()));
        }
        if is_message {
            return match check_kind(head, path) {
                Ok(()) => Wanted::Message(caller),
                Err(refused) => {
                    metrics::count(&self.gateway.desk.rejections.malformed);
                    Wanted::Nothing(*refused)
                }
            };
        }
        Wanted::Nothing(self.stream(head, caller))
    }

    /// What is asked of the gateway itself, by whoever looks after it or wants to know who gives out tokens.
    async fn about_itself(&self, head: &Head) -> Reply {
        let settings = &self.gateway.settings;
        let admission = settings.admission.load();
        if admission.tokens.is_some() && self.resource.describes_itself_at(head.path()) {
            return match *head.method() {
                Method::GET | Method::HEAD => self.resource.described(&admission),
                _ => body::not_allowed("GET, HEAD"),
            };
        }
        drop(admission);
        Box::pin(self.probe(head)).await
    }

    /// What has no body: streams, and the end of sessions.
    fn stream(&self, head: &Head, caller: Guest) -> Reply {
        let is_legacy = !is_modern(head);
        match (head.path(), head.method().clone()) {
            ("/sse", Method::GET) => self.streams.open(&self.gateway, caller),
            ("/sse", _) => body::not_allowed("GET"),
            ("/messages", _) => body::not_allowed("POST"),
            (_, Method::GET) if websocket::is_asked(head) => websocket::agree(head, caller),
            (_, Method::GET) if is_legacy && !accepts_events(head) => {
                body::plain(StatusCode::NOT_ACCEPTABLE, "accept text/event-stream")
            }
            (_, Method::GET) if is_legacy => self.sessions.stream(head, &caller),
            (_, Method::DELETE) if is_legacy => self.sessions.end(head, &caller),
            (_, _) if is_legacy => body::not_allowed("GET, POST, DELETE"),
            _ => body::not_allowed("POST"),
        }
    }

    fn refuse(&self, bad: BadBody) -> Reply {
        let rejections = &self.gateway.desk.rejections;
        let is_size = bad == BadBody::TooLarge;
        metrics::count(if is_size { &rejections.size } else { &rejections.malformed });
        match bad {
            BadBody::TooLarge => {
                let limit = self.gateway.settings.body;
                let why = format!("the request has more than {limit} bytes, which is the limit");
                body::plain(StatusCode::PAYLOAD_TOO_LARGE, &why)
            }
            BadBody::Late => body::plain(StatusCode::REQUEST_TIMEOUT, TOO_LATE),
            BadBody::Malformed | BadBody::Gone => {
                body::plain(StatusCode::BAD_REQUEST, "the chunks of the request cannot be told apart")
            }
        }
    }

    /// Takes what a caller has sent.
    async fn take(&self, head: &Head, caller: Guest, frame: Bytes, seat: &mut Seat<'_>) -> Reply {
        let (desk, settings) = (&self.gateway.desk, &self.gateway.settings);
        if head.path_bytes() == b"/messages" {
            // A message for a stream, which is also where the answer goes.
            let reply = Box::pin(self.streams.take(head.query(), &caller, frame.clone())).await;
            // At the stop streams take no more, or are gone already.
            return match reply.status {
                StatusCode::NOT_FOUND if desk.is_stopping() => body::overloaded(&self.id_of(frame), &stops()),
                _ => reply,
            };
        }
        let modern = is_modern(head);
        if is_batch(&frame) {
            let frame = (frame, settings.limits.depth);
            let reply = match modern {
                true => body::refuse(StatusCode::BAD_REQUEST, &batch::refused()),
                false => self.sessions.take_batch(desk, (&caller, head), frame),
            };
            if reply.status == StatusCode::BAD_REQUEST {
                metrics::count(&desk.rejections.malformed);
            }
            return reply;
        }
        let message = match read(frame, settings) {
            Ok(message) => message,
            Err(refused) => {
                metrics::count(&desk.rejections.malformed);
                return *refused;
            }
        };
        match message {
            // Judged here, where it would be begun: it may have taken long to arrive.
            Message::Request { id, .. } if desk.is_stopping() => body::overloaded(&id, &stops()),
            Message::Request { id, method, params } => {
                let asked = Box::new(Asked::new(id, method, params, &mut seat.habit));
                if modern || asked.is_modern() {
                    return asked.over_http(desk, caller, head, seat).await;
                }
                self.sessions.answer(desk, (&caller, head), asked, seat).await
            }
            Message::Notification { .. } if modern => body::accepted(),
            Message::Response { .. } if modern => {
                let error =
                    RpcError::new(code::INVALID_REQUEST, "a caller of this revision sends no responses");
                body::refuse(StatusCode::BAD_REQUEST, &error)
            }
            message => self.sessions.hear(&caller, head, message),
        }
    }
}

/// After so much silence the answer begins as a stream, so that nobody on the way takes it for lost.
const SILENCE: Duration = Duration::from_secs(5);
const TOO_LATE: &str = "the request took too long to arrive";

/// Whether a message is sent in a way that is read here.
fn check_kind(head: &Head, path: &[u8]) -> Result<(), Box<Reply>> {
    let refuse = |status, why| Err(Box::new(body::plain(status, why)));
    if !is_json(head) {
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send application/json");
    }
    // What is packed may be anything when it is unpacked: nobody here does.
    if head.has_usual(Usual::ContentEncoding) {
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send it as it is, without a content-encoding");
    }
    if path == b"/mcp" && !accepts_both(head) {
        return refuse(StatusCode::NOT_ACCEPTABLE, "accept both application/json and text/event-stream");
    }
    Ok(())
}

/// Takes a body apart.
fn read(frame: Bytes, settings: &Settings) -> Result<Message, Box<Reply>> {
    parse_message(frame, settings.limits.depth).map_err(|bad| {
        let (id, error) = unfit(bad);
        Box::new(body::message(StatusCode::BAD_REQUEST, response_error(&id, &error)))
    })
}

/// Whether the header names a revision that is not of the legacy era. Old callers send none.
fn is_modern(head: &Head) -> bool {
    match head.usual(Usual::Version) {
        Some(version) if version == Revision::NEWEST_MODERN.as_str().as_bytes() => return true,
        Some(version) if version == Revision::NEWEST_LEGACY.as_str().as_bytes() => return false,
        _ => {}
    }
    match head.one(VERSION) {
        Some(version) => Revision::parse(version).is_none_or(|revision| revision > Revision::NEWEST_LEGACY),
        None => head.has(VERSION),
    }
}

fn is_json(head: &Head) -> bool {
    if head.usual(Usual::ContentType) == Some(b"application/json") {
        return true;
    }
    let kind = head.one("content-type").unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

fn accepts_both(head: &Head) -> bool {
    // What nearly every caller sends.
    const USUAL: &[u8] = b"application/json, text/event-stream";
    head.usual(Usual::Accept) == Some(USUAL)
        || accepts(head, &["application/json", "application/*"]) && accepts_events(head)
}

fn accepts_events(head: &Head) -> bool {
    accepts(head, &["text/event-stream", "text/*"])
}

/// Whether one of these kinds is accepted, in whichever line of the field. Who says nothing accepts anything.
fn accepts(head: &Head, kinds: &[&str]) -> bool {
    let is_meant = |kind: &str| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        kind == "*/*" || kinds.iter().any(|known| kind.eq_ignore_ascii_case(known))
    };
    !head.has("accept") || head.lines("accept").any(|line| line.split(',').any(is_meant))
}
