//! A server's standard error: always drained, so that it never blocks; the last lines kept, for errors.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::unix::pipe;
use tokio::sync::watch;

use crate::connect::monitor::Monitor;
use crate::error::StderrTail;
use crate::event::Event;
use crate::names::ServerName;
use crate::sandbox::Clue;
use crate::text::Foreign;
use crate::wire::{Line, Lines};

/// The last lines of a standard error.
#[derive(Clone)]
pub(super) struct Tail {
    /// Where it runs confined: what its words may mean.
    clue: Option<Arc<Clue>>,
    kept: Arc<Mutex<VecDeque<Foreign>>>,
    /// Closed when everything was read.
    reading: watch::Receiver<()>,
}

/// How many lines are kept, and how long each may be.
const LINES: usize = 12;
const LINE: usize = 400;
/// A longer line is counted, not kept.
const LINE_READ: usize = 16 * 1024;

impl Tail {
    /// Reads until the end, in a task of its own.
    pub(super) fn follow(
        stderr: pipe::Receiver,
        server: ServerName,
        monitor: Monitor,
        clue: Option<Clue>,
    ) -> Self {
        let (still_reading, reading) = watch::channel(());
        let tail = Self { clue: clue.map(Arc::new), kept: Arc::default(), reading };
        let kept = tail.clone();
        tokio::spawn(async move {
            let _still_reading = still_reading;
            let mut lines = Lines::new(LINE_READ);
            while stderr.readable().await.is_ok() {
                match stderr.try_read_buf(lines.room()) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => continue,
                    Err(_) => break,
                }
                while let Some(line) = lines.next_line() {
                    kept.keep(&line, &server, &monitor);
                }
            }
            if let Some(line) = lines.last_line() {
                kept.keep(&line, &server, &monitor);
            }
        });
        tail
    }

    /// Waits until the last line was read.
    pub(super) async fn until_end(&mut self) {
        while self.reading.changed().await.is_ok() {}
    }

    /// The lines kept, oldest first.
    pub(super) fn lines(&self) -> StderrTail {
        let lines: Vec<Foreign> =
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
        let advice = self.clue.as_ref().and_then(|clue| clue.advice(&lines));
        StderrTail { lines, advice }
    }

    /// What its words about a call that failed may mean, where it is confined.
    pub(super) fn advice(&self, said: &str) -> Option<String> {
        self.clue.as_ref()?.of_call(said)
    }

    fn keep(&self, line: &Line, server: &ServerName, monitor: &Monitor) {
        let text = match line {
            Line::Text(bytes) => {
                let text = String::from_utf8_lossy(bytes);
                let text = monitor.redactor.redact(&text);
                text.chars().take(LINE).collect::<String>()
            }
            Line::TooLong { length, .. } => format!("[a line of {length} bytes]"),
        };
        let line = Foreign::from(text);
        if monitor.debug {
            monitor.events.publish(|| Event::Stderr { server: server.clone(), line: line.clone() });
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == LINES {
            kept.pop_front();
        }
        kept.push_back(line);
    }
}
