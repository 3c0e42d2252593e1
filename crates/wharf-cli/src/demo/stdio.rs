//! The test server on standard input and output: one message a line, until the input ends.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use wharf::mcp::code;
use wharf::wire::{Limits, Line, Lines};

use super::conversation::Conversation;

/// Serves until standard input ends.
pub(crate) async fn run_stdio() -> io::Result<()> {
    let (frames, outgoing) = mpsc::channel(64);
    let writer = tokio::spawn(write(outgoing));
    read(Conversation::new(frames, Arc::default())).await?;
    writer.await?
}

async fn read(mut conversation: Conversation) -> io::Result<()> {
    let mut input = tokio::io::stdin();
    let limits = Limits::default();
    let mut lines = Lines::new(limits.line);
    loop {
        while let Some(line) = lines.next_line() {
            take(&mut conversation, line, limits.depth).await;
        }
        if input.read_buf(lines.room()).await? == 0 {
            if let Some(line) = lines.last_line() {
                take(&mut conversation, line, limits.depth).await;
            }
            return Ok(());
        }
    }
}

async fn take(conversation: &mut Conversation, line: Line, depth: usize) {
    match line {
        Line::Text(text) => conversation.take_frame(text, depth).await,
        Line::TooLong { .. } => conversation.refuse(code::INVALID_REQUEST, "the line is too long").await,
    }
}

/// Writes whole lines, as many at once as there are.
async fn write(mut outgoing: mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    let mut output = tokio::io::stdout();
    let mut batch = Vec::new();
    while let Some(frame) = outgoing.recv().await {
        batch.clear();
        batch.extend_from_slice(&frame);
        batch.push(b'\n');
        while let Ok(frame) = outgoing.try_recv() {
            batch.extend_from_slice(&frame);
            batch.push(b'\n');
        }
        output.write_all(&batch).await?;
        output.flush().await?;
    }
    Ok(())
}
