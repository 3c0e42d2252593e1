//! A connection in clear or in TLS, as the HTTP client wants it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use rustix::net::RecvFlags;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::gate::Gate;

#[derive(Debug)]
pub(super) struct Stream {
    io: Io,
    gate: Arc<Gate>,
}

#[derive(Debug)]
enum Io {
    Clear(TokioIo<TcpStream>),
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
}

// === impl Stream ===

impl Stream {
    pub(super) fn clear(tcp: TcpStream) -> Self {
        Self { io: Io::Clear(TokioIo::new(tcp)), gate: Arc::default() }
    }

    pub(super) fn tls(tls: TlsStream<TcpStream>) -> Self {
        Self { io: Io::Tls(Box::new(TokioIo::new(tls))), gate: Arc::default() }
    }

    /// What may be woken by it.
    pub(super) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Whether both sides agreed on HTTP/2.
    pub(super) fn is_http2(&self) -> bool {
        matches!(&self.io, Io::Tls(tls) if tls.inner().get_ref().1.alpn_protocol() == Some(b"h2"))
    }

    /// Whether the other side closed, by the system's own word: the runtime hears of it only when it next listens.
    fn is_over(&self) -> bool {
        let (tcp, clear) = match &self.io {
            Io::Clear(io) => (io.inner(), true),
            Io::Tls(io) => (io.inner().get_ref().0, false),
        };
        match rustix::net::recv(tcp, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((_, 0)) => true,
            // Nobody was asked anything; but TLS has words of its own.
            Ok(_) => clear,
            Err(error) => !matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR),
        }
    }
}

impl Read for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = match &mut this.io {
            Io::Clear(io) => Pin::new(io).poll_read(cx, buf),
            Io::Tls(io) => Pin::new(io).poll_read(cx, buf),
        };
        if polled.is_pending() && this.gate.looks_closely() && this.is_over() {
            return Poll::Ready(Ok(()));
        }
        polled
    }
}

impl Write for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().io {
            Io::Clear(io) => Pin::new(io).poll_write(cx, buf),
            Io::Tls(io) => Pin::new(io).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Clear(io) => Pin::new(io).poll_flush(cx),
            Io::Tls(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Clear(io) => Pin::new(io).poll_shutdown(cx),
            Io::Tls(io) => Pin::new(io).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Clear(io) => io.is_write_vectored(),
            Io::Tls(io) => io.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().io {
            Io::Clear(io) => Pin::new(io).poll_write_vectored(cx, bufs),
            Io::Tls(io) => Pin::new(io).poll_write_vectored(cx, bufs),
        }
    }
}
