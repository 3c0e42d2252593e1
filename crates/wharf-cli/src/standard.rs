//! Standard input and output, for a program at the other end.
//!
//! Pipes are read and written by the runtime itself, through handles of our own: whoever else holds them notices nothing.
//! Anything else, a terminal or a socket, goes through threads, which costs every message a few switches more.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::pipe;

/// How much may be written before the program at the other end has read anything.
const PIPE: usize = 1024 * 1024;

/// Standard input.
pub(crate) fn input() -> Box<dyn AsyncRead + Send + Unpin> {
    match pipe::OpenOptions::new().open_receiver("/proc/self/fd/0") {
        Ok(pipe) => Box::new(pipe),
        Err(_) => Box::new(tokio::io::stdin()),
    }
}

/// Standard output.
pub(crate) fn output() -> Box<dyn AsyncWrite + Send + Unpin> {
    match pipe::OpenOptions::new().open_sender("/proc/self/fd/1") {
        Ok(pipe) => {
            // A larger pipe takes a long list in one go; where it is refused, the normal one does.
            let _ = rustix::pipe::fcntl_setpipe_size(&pipe, PIPE);
            Box::new(pipe)
        }
        Err(_) => Box::new(tokio::io::stdout()),
    }
}
