//! News of a modern server: one long request that stays open, and is opened again when it breaks.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::connection::{Connection, Ended, Live, Request};
use super::inbox::Failure;
use super::link::LinkFailure;
use crate::mcp::{Era, method};
use crate::wire::{self, Json, Members};

/// As good as for ever, and still a time that can be counted.
const LONG: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// A request that ends sooner than this was not meant to stay.
const QUICK: Duration = Duration::from_secs(5);
/// How often that may happen in a row.
const QUICK_ENDS: u32 = 3;
/// The first pause before it is opened again; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

impl Connection {
    /// Asks a modern server for news, for example `{"toolsListChanged":true}`, until the connection ends. They come to
    /// [`Peer::notification`](super::Peer::notification). A legacy server sends its news unasked: nothing is done.
    pub fn listen(&self, notifications: Json) {
        if self.info().revision.era() == Era::Modern {
            tokio::spawn(stay(self.live(), notifications));
        }
    }
}

async fn stay(live: Arc<Live>, notifications: Json) {
    let inbox = Arc::clone(&live.wire.inbox);
    let mut quick = 0;
    let mut pause = FIRST_PAUSE;
    loop {
        let since = Instant::now();
        if !ask(&live, &notifications).await {
            return;
        }
        if since.elapsed() >= QUICK {
            (quick, pause) = (0, FIRST_PAUSE);
        }
        quick += 1;
        if quick >= QUICK_ENDS {
            return;
        }
        tokio::select! {
            _ = inbox.until_closed() => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause *= 2;
        // What changed while nobody listened was not heard.
        if notifications.member("toolsListChanged").is_some_and(|t| t.as_str() == "true") {
            inbox.take(wire::notification(method::TOOLS_CHANGED, &Members::new()).into());
        }
    }
}

/// Keeps one request open. False if there is no point in another.
async fn ask(live: &Live, notifications: &Json) -> bool {
    let _standing = live.wire.inbox.stand();
    let mut params = Members::new();
    params.json("notifications", notifications);
    let mut request = Request::new(method::LISTEN, params, LONG);
    request.hard_timeout = LONG;
    request.standing = true;
    match live.wire.attempt(&mut request, Some(&live.meta)).await {
        // The server ended it, the stream broke, or there is trouble on the way.
        Ended::Answer(Ok(_)) | Ended::Failed(LinkFailure::Lost(_) | LinkFailure::NotSent(_)) => true,
        Ended::Failed(LinkFailure::Unreached(error)) => !error.is_refusal(),
        Ended::Failed(LinkFailure::Status { status, .. }) => status == 429 || status >= 500,
        Ended::Failed(LinkFailure::SessionExpired) | Ended::Gone(..) | Ended::TimedOut(_) => false,
        // It does not have such a thing, or does not do it properly.
        Ended::Answer(Err(Failure::Rpc(_) | Failure::Malformed(_) | Failure::Closed(_))) => false,
    }
}
