//! The gateway over a pipe: one caller, one message a line, either era.

use std::io;
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Gateway;
use super::batch::{self, Batch};
use super::calls::{Begun, Calls};
use super::desk::unfit;
use super::ending::{OnDuty, has_looked, stops};
use super::incoming::{Frame, Incoming};
use super::leaving::{LAST_WORDS, Leaving};
use super::legacy::{self, Talk};
use super::line::Line;
use super::metrics;
use super::modern::Asked;
use super::outgoing::{self, Outgoing, Taking};
use super::stay::Guest;
use super::visit::Habit;
use crate::error::Result;
use crate::mcp::{code, method};
use crate::wire::{Json, Message, RpcError, is_batch, parse_message, response_error, response_result};

/// How much is written together.
const TOGETHER: usize = 64 * 1024;
/// Serves the one caller that there is, until its input ends or the stop has come and it has its answers.
pub(super) async fn serve(
    gateway: &Gateway,
    ends: (impl AsyncBufRead + Unpin, impl AsyncWrite + Unpin + Send + 'static),
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let desk = &gateway.desk;
    let _on_duty = OnDuty::at(desk);
    let stop = async {
        stop.await;
        desk.stop();
    };
    // Whoever started us may stand still for as long as it likes.
    serve_until(gateway, ends, (gateway.settings.limits.line, None), (stop, |_| false)).await
}

/// Serves until the input ends: then calls that are under way have a grace. Or until the stop: then no more is begun, and
/// they may end. Lines of more than `limit` bytes are not taken, and a caller that takes nothing for all of `patience` is
/// given up. Whether the caller is gone altogether can be seen by some inputs.
pub(super) async fn serve_until<I: AsyncBufRead + Unpin>(
    gateway: &Gateway,
    (mut input, output): (I, impl AsyncWrite + Unpin + Send + 'static),
    (limit, patience): (usize, Option<Duration>),
    (stop, is_gone): (impl Future<Output = ()>, impl Fn(&mut I) -> bool),
) -> Result<()> {
    let (mut pipe, messages) = Pipe::open(gateway, Guest::own());
    let leaving = pipe.leaving();
    let mut writer = tokio::spawn(write(output, messages, patience));
    let end = {
        let mut reading = pin!(read(&mut input, &mut pipe, limit));
        let end = tokio::select! {
            // The stop first: what is read after it is not begun. Reading last: there may always be more to read.
            biased;
            () = stop => End::Stop,
            _ = &mut writer => End::Output,
            read = &mut reading => End::Input(read),
        };
        if matches!(end, End::Stop) {
            // What it says is still heard, and that it says no more changes nothing.
            let heard = async {
                drop(reading.await);
                std::future::pending().await
            };
            tokio::select! {
                biased;
                () = heard => {}
                () = drain(gateway, &leaving, &mut writer) => {}
            }
        }
        end
    };
    let read = match end {
        End::Input(read) => {
            let written = async { drop((&mut writer).await) };
            leaving.after_the_last_request(written, || is_gone(&mut input)).await;
            read
        }
        End::Output | End::Stop => Ok(()),
    };
    pipe.end();
    read
}

/// What came to its end first.
enum End {
    Input(Result<()>),
    Output,
    Stop,
}

/// Takes one message after the other.
async fn read(input: &mut (impl AsyncBufRead + Unpin), pipe: &mut Pipe, limit: usize) -> Result<()> {
    let mut incoming = Incoming::new(limit);
    while let Some(frame) = incoming.next(input).await? {
        // However much there is to read, the stop is heard in between.
        tokio::task::consume_budget().await;
        match frame {
            Frame::Line(line) => pipe.take(line).await?,
            Frame::TooLong(id) => pipe.refuse_long(id, limit).await,
        }
    }
    Ok(())
}

/// At the stop calls under way may end, and the rest hear that they are given up.
async fn drain(gateway: &Gateway, leaving: &Leaving, writer: &mut JoinHandle<()>) {
    has_looked().await;
    let end = async {
        tokio::time::sleep(gateway.settings.drain).await;
        gateway.desk.end();
        tokio::time::sleep(LAST_WORDS).await;
    };
    tokio::select! {
        () = leaving.settle(async { drop(writer.await) }) => {}
        () = end => {}
    }
}

/// A caller at the other end of a pipe.
#[derive(Debug)]
pub(super) struct Pipe {
    gateway: Gateway,
    caller: Guest,
    /// Since the caller shook hands.
    talk: Option<Arc<Talk>>,
    /// What is under way, in either era.
    calls: Arc<Calls>,
    habit: Habit,
    out: mpsc::Sender<Vec<u8>>,
    taking: Taking,
    /// Whether each message was counted already when it came in.
    pub(super) is_counted: bool,
}

impl Pipe {
    /// A conversation, and what is to be written to the caller.
    pub(super) fn open(gateway: &Gateway, caller: Guest) -> (Self, Outgoing) {
        let (out, taking, messages) = outgoing::channel();
        let (gateway, calls, habit) = (gateway.clone(), Arc::default(), Habit::default());
        (Self { gateway, caller, talk: None, calls, habit, out, taking, is_counted: false }, messages)
    }

    /// Takes one message.
    pub(super) async fn take(&mut self, frame: Bytes) -> Result<()> {
        if frame.is_empty() {
            return Ok(());
        }
        if is_batch(&frame) {
            Box::pin(self.take_batch(frame)).await;
            return Ok(());
        }
        match parse_message(frame, self.gateway.settings.limits.depth) {
            Ok(Message::Request { id, method, params }) => {
                if !self.gateway.desk.is_stopping() {
                    self.taking.is_ahead().await;
                }
                // Behind the wait, in which the stop may have begun.
                if self.gateway.desk.is_stopping() {
                    self.say(response_error(&id, &stops())).await;
                    return Ok(());
                }
                if !self.is_counted
                    && let Err(overloaded) = self.gateway.desk.gate.arrive(&self.caller)
                {
                    self.say(response_error(&id, &overloaded.into())).await;
                    return Ok(());
                }
                let asked = Box::new(Asked::new(id, method, params, &mut self.habit));
                self.answer(asked).await
            }
            Ok(Message::Notification { method, params }) => {
                match &self.talk {
                    Some(talk) => talk.hear(&method, params.as_ref()),
                    None => self.calls.hear(&method, params.as_ref()),
                }
                // What is cancelled ends without a word.
                self.taking.look_again();
                Ok(())
            }
            Ok(Message::Response { id, outcome }) => {
                if let Some(talk) = &self.talk {
                    talk.asks.answered(&id, outcome);
                }
                Ok(())
            }
            Err(bad) => {
                let (id, error) = unfit(bad);
                self.say(response_error(&id, &error)).await;
                Ok(())
            }
        }
    }

    /// Takes several messages at once, where the caller's revision has that.
    async fn take_batch(&mut self, frame: Bytes) {
        let Some(talk) = self.talk.as_ref().filter(|talk| talk.revision.has_batches()) else {
            return self.say(response_error(&Json::null(), &batch::refused())).await;
        };
        self.taking.is_ahead().await;
        let batch = Batch::read(frame, self.gateway.settings.limits.depth, self.is_counted);
        let line = || Line::over(self.out.clone(), &self.caller);
        let begin = |batch: Batch| batch.begin(&self.gateway.desk, talk, &self.caller, line);
        let begun = batch.and_then(|batch| batch::answer_together(&self.out, || begin(batch)));
        // What is cancelled by it ends without a word.
        self.taking.look_again();
        if let Err(error) = begun {
            self.say(response_error(&Json::null(), &error)).await;
        }
    }

    /// Says that a message was too long to be taken.
    async fn refuse_long(&self, id: Option<Json>, limit: usize) {
        metrics::count(&self.gateway.desk.rejections.size);
        let why = format!("the message has more than {limit} bytes, which is the limit");
        let error = RpcError::new(code::INVALID_REQUEST, why);
        self.say(response_error(&id.unwrap_or_else(Json::null), &error)).await;
    }

    async fn answer(&mut self, asked: Box<Asked>) -> Result<()> {
        let desk = Arc::clone(&self.gateway.desk);
        let line = Line::over(self.out.clone(), &self.caller);
        if asked.is_modern() {
            let id = asked.id.clone();
            let begun = Begun { id: &id, line: None, is_stream: asked.method == method::LISTEN };
            let begun = self.calls.start_into(begun, asked.over_pipe(desk, line), self.out.clone());
            return self.or_refused(&id, begun).await;
        }
        if asked.method == method::INITIALIZE {
            let talk = match Talk::greet(&self.caller, asked.params.as_ref()) {
                Ok(mut talk) => {
                    talk.calls = Arc::clone(&self.calls);
                    Arc::new(talk)
                }
                Err(error) => return self.or_refused(&asked.id, Err(error)).await,
            };
            *talk.stream.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
            desk.news.add(Arc::<Talk>::downgrade(&talk) as _);
            let greeting = talk.greeting(&desk, &asked.id).await;
            self.talk = Some(talk);
            self.say(greeting).await;
            return Ok(());
        }
        let Some(talk) = &self.talk else {
            // A probe of the other era, which is told which one this is.
            let answer = match asked.method.as_str() {
                method::PING => response_result(&asked.id, &Json::empty_object()),
                _ => legacy::not_greeted(&asked.id),
            };
            self.say(answer).await;
            return Ok(());
        };
        let id = asked.id.clone();
        let call = Begun { id: &id, line: Some(line.clone()), is_stream: false };
        let out = self.out.clone();
        let begun = talk.calls.start_into(call, Arc::clone(talk).work(desk, asked, line), out);
        self.or_refused(&id, begun).await
    }

    /// Says why a request was not begun.
    async fn or_refused(&self, id: &Json, begun: Result<(), RpcError>) -> Result<()> {
        if let Err(error) = begun {
            self.say(response_error(id, &error)).await;
        }
        Ok(())
    }

    /// What is left to do when it ends.
    pub(super) fn leaving(&self) -> Leaving {
        Leaving { calls: Arc::clone(&self.calls), taking: self.taking.clone() }
    }

    /// It is over: what is still under way is cancelled.
    pub(super) fn end(self) {
        self.calls.cancel_all();
        if let Some(talk) = self.talk {
            talk.end();
        }
    }

    async fn say(&self, message: Vec<u8>) {
        // An error means that nobody reads any more; the input ends soon.
        let _ = self.out.send(message).await;
    }
}

/// One message a line; those that wait go out together.
async fn write(mut output: impl AsyncWrite + Unpin, mut messages: Outgoing, patience: Option<Duration>) {
    let mut buffer;
    while let Some(mut message) = messages.next().await {
        // A message that is alone, as most are, is not copied.
        message.push(b'\n');
        buffer = message;
        while buffer.len() < TOGETHER
            && let Some(more) = messages.more()
        {
            buffer.extend_from_slice(&more);
            buffer.push(b'\n');
        }
        let written = match patience {
            Some(patience) => write_in_time(&mut output, &buffer, patience).await,
            None => output.write_all(&buffer).await,
        };
        if written.is_err() || output.flush().await.is_err() {
            return;
        }
    }
}

/// Writes it all, but not for a caller that takes nothing for so long.
async fn write_in_time(
    output: &mut (impl AsyncWrite + Unpin),
    mut left: &[u8],
    patience: Duration,
) -> io::Result<()> {
    while !left.is_empty() {
        let written = tokio::time::timeout(patience, output.write(left)).await??;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        left = &left[written..];
    }
    Ok(())
}
