//! A server's standard error: always drained, so that it never blocks; the last lines kept, for errors.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::unix::pipe;

use crate::connect::monitor::Monitor;
use crate::error::StderrTail;
use crate::event::Event;
use crate::names::ServerName;
use crate::text::Foreign;
use crate::wire::{Line, Lines};

/// The last lines of a standard error.
#[derive(Clone, Default)]
pub(super) struct Tail(Arc<Mutex<VecDeque<Foreign>>>);

/// How many lines are kept, and how long each may be.
const LINES: usize = 12;
const LINE: usize = 400;
/// A longer line is counted, not kept.
const LINE_READ: usize = 16 * 1024;

impl Tail {
    /// Reads until the end, in a task of its own.
    pub(super) fn follow(stderr: pipe::Receiver, server: ServerName, monitor: Monitor) -> Self {
        let tail = Self::default();
        let kept = tail.clone();
        tokio::spawn(async move {
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

    /// The lines kept, oldest first.
    pub(super) fn lines(&self) -> StderrTail {
        StderrTail(self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect())
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
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == LINES {
            kept.pop_front();
        }
        kept.push_back(line);
    }
}
