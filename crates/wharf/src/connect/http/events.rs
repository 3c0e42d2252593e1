//! The body of an answer as a stream of events.

use std::time::Duration;

use crate::net::ResponseBody;
use crate::wire::{SseEvent, SseParser};

/// Events as they come, and where to go on when the stream breaks.
pub(crate) struct Events {
    body: ResponseBody,
    parser: SseParser,
    max: usize,
    /// Bytes since the last event: comments are not events, and a stream of nothing else is cut.
    idle: usize,
    /// Events in this turn: a server that floods must not keep others waiting.
    turn: u8,
}

/// Where a stream can be resumed, and when.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resume {
    pub(crate) last_id: Option<String>,
    pub(crate) retry: Option<Duration>,
}

/// Why a stream ended.
#[derive(Debug)]
pub(crate) enum StreamEnd {
    /// The server ended it, or the connection broke.
    Over(String),
    /// It brings more than is accepted.
    TooMuch(String),
}

/// How many events are given before others have their turn.
const TURN: u8 = 16;
/// The longest pause that a server can ask for.
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// The pause that is made when the server does not ask for one.
const DEFAULT_RETRY: Duration = Duration::from_secs(1);

impl Events {
    pub(crate) fn new(body: ResponseBody, max: usize) -> Self {
        Self { body, parser: SseParser::new(max), max, idle: 0, turn: 0 }
    }

    /// The next event with data; ids and pauses are noted on the way. Half an event at the end is no event.
    pub(crate) async fn next(&mut self, resume: &mut Resume) -> Result<SseEvent, StreamEnd> {
        loop {
            self.turn += 1;
            if self.turn == TURN {
                self.turn = 0;
                tokio::task::yield_now().await;
            }
            let parsed = self.parser.next_event();
            match parsed.map_err(|e| StreamEnd::TooMuch(e.to_string()))? {
                Some(event) => {
                    self.idle = 0;
                    resume.note(&event);
                    if !event.data.is_empty() {
                        return Ok(event);
                    }
                }
                None => self.fill().await?,
            }
        }
    }

    async fn fill(&mut self) -> Result<(), StreamEnd> {
        let bytes = match self.body.piece().await {
            None => return Err(StreamEnd::Over("the server closed the stream".into())),
            Some(Err(e)) => return Err(StreamEnd::Over(format!("the stream broke: {e}"))),
            Some(Ok(bytes)) => bytes,
        };
        self.idle += bytes.len();
        self.parser.push(&bytes);
        // Twice, because an event of the largest size is idle until its end.
        if self.idle > self.max.saturating_mul(2) {
            let limit = self.max;
            return Err(StreamEnd::TooMuch(format!("more than {limit} bytes came without an event")));
        }
        Ok(())
    }
}

// === impl Resume ===

impl Resume {
    fn note(&mut self, event: &SseEvent) {
        if let Some(id) = &event.id {
            // An empty id takes back the ones before it.
            self.last_id = Some(id.clone()).filter(|id| !id.is_empty());
        }
        if let Some(ms) = event.retry {
            self.retry = Some(Duration::from_millis(ms).min(LONGEST_RETRY));
        }
    }

    /// How long to wait before the stream is asked for again.
    pub(crate) fn pause(&self) -> Duration {
        self.retry.unwrap_or(DEFAULT_RETRY)
    }
}
