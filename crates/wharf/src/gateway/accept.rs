//! Receiving callers, whatever they come through: so many at a time, until the stop, and the last ones may end.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::Gateway;
use super::ending::OnDuty;

/// How long callers have to hear that their calls were given up.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Where callers knock.
pub(super) trait Door {
    /// What a caller comes through.
    type Stream;

    /// Waits for the next one.
    async fn knock(&self) -> io::Result<Self::Stream>;
}

/// One that goes on listening after the stop, for whoever asks how it is.
impl Door for &TcpListener {
    type Stream = TcpStream;

    async fn knock(&self) -> io::Result<TcpStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

impl Door for UnixListener {
    type Stream = UnixStream;

    async fn knock(&self) -> io::Result<UnixStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

/// Lets callers in until told to stop, then lets what is under way end. The watch that a conversation gets tells it of
/// the stop.
pub(super) async fn receive<D: Door, C>(
    door: D,
    gateway: &Gateway,
    stop: impl Future<Output = ()>,
    converse: impl Fn(D::Stream, watch::Receiver<bool>) -> C,
) where
    C: Future<Output = ()> + Send + 'static,
{
    let settings = &gateway.settings;
    let room = Arc::new(Semaphore::new(settings.connections));
    // Goes last, when the watch has ended: also if nobody waits for the end.
    let _on_duty = OnDuty::at(&gateway.desk);
    let (closing, closed) = watch::channel(false);
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            // First, so that nobody who comes keeps the stop from being heard.
            biased;
            () = &mut stop => break,
            accepted = accept(&door, &room) => accepted,
        };
        if let Some((stream, place)) = accepted {
            let conversation = converse(stream, closed.clone());
            tokio::spawn(async move {
                conversation.await;
                drop(place);
            });
        }
    }
    drop(door);
    drop(closed);
    // First: from here on no request is begun, whatever its conversation knows of the stop.
    gateway.desk.stop();
    let _ = closing.send(true);
    // Every conversation holds a receiver: when the last is gone, so is the last call.
    if tokio::time::timeout(settings.drain, closing.closed()).await.is_err() {
        gateway.desk.end();
        let _ = tokio::time::timeout(LAST_WORDS, closing.closed()).await;
    }
    gateway.desk.gate.settle();
}

async fn accept<D: Door>(door: &D, room: &Arc<Semaphore>) -> Option<(D::Stream, OwnedSemaphorePermit)> {
    // Whoever comes when there is no room waits in the system's own queue.
    let place = Arc::clone(room).acquire_owned().await.ok()?;
    match door.knock().await {
        Ok(stream) => Some((stream, place)),
        // A caller that left before it was greeted, or no descriptor to spare: the next one may do better.
        Err(_) => {
            tokio::time::sleep(Duration::from_millis(10)).await;
            None
        }
    }
}
