//! What becomes of a connection that ends: one that was lost is made again, a few times; one that was closed is not.

use std::pin::Pin;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::making::Why;
use super::{Berth, Place};
use crate::connect::inbox::Closed;
use crate::error::Error;
use crate::event::{Fact, Kind, State};

/// How often a lost connection is made again by itself.
const RETRIES: u32 = 3;
/// A connection that lived this long was a good one: the next loss counts as the first.
const STABLE: Duration = Duration::from_secs(30);

/// Waits for the end of a connection. One that was lost is made again, a few times; one that was closed is not.
/// Boxed, because making a connection starts this and this makes connections.
pub(super) fn watch_over(
    place: Weak<Place>,
    (number, ended): (u64, impl Future<Output = Closed> + Send + 'static),
    since: Instant,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let closed = ended.await;
        if let Some(losses) = put_away(&place, number, &closed, since).await {
            remake(place, losses).await;
        }
    })
}

/// Takes a connection that ended out of its place. Gives how often it was lost, if it is to be made again.
async fn put_away(place: &Weak<Place>, number: u64, closed: &Closed, since: Instant) -> Option<u32> {
    let place = place.upgrade()?;
    let mut making = place.making.lock().await;
    if !closed.is_by_us() {
        place.dock.trail.record(|| Fact::new(Kind::Lost).of(&place.config.name).because(&closed.reason));
        making.losses = if since.elapsed() >= STABLE { 1 } else { making.losses + 1 };
    }
    // Somebody who could not wait may have put another one in its place, or it was disconnected by hand.
    if place.current.load().as_ref().is_none_or(|current| current.number() != number) {
        return None;
    }
    if closed.is_by_us() {
        place.put(None);
        place.tell(State::Disconnected, None);
        return None;
    }
    place.tell(State::Reconnecting, Some(closed.reason.clone()));
    // A server that broke the protocol may still run.
    if let Some(lost) = place.put(None) {
        lost.close().await;
    }
    Some(making.losses)
}

async fn remake(place: Weak<Place>, losses: u32) {
    let mut last = None;
    for attempt in losses..=RETRIES {
        let Some(first) = place.upgrade().map(|place| place.dock.retry_pause) else { return };
        tokio::time::sleep(growing(first, attempt)).await;
        let Some(place) = place.upgrade() else { return };
        match Berth(place).make(Why::Lost).await {
            // Made, or closed by hand meanwhile.
            Ok(_) | Err(Error::NotConnected { .. } | Error::Cancelled { .. }) => return,
            Err(error) => last = Some(error),
        }
    }
    let Some(place) = place.upgrade() else { return };
    let mut making = place.making.lock().await;
    making.losses = 0;
    if *place.state.borrow() == State::Reconnecting {
        place.given_up.store(true, Ordering::Release);
        let last = last.map_or_else(String::new, |error| format!("; the last time: {error}"));
        place.tell(State::Disconnected, Some(format!("it was lost too often in a row{last}")));
    }
}

/// The first pause, four times as long, sixteen times as long, each up to half as long again, so that many clients do
/// not come back at once.
pub(crate) fn growing(first: Duration, attempt: u32) -> Duration {
    let base = first.saturating_mul(4_u32.saturating_pow(attempt.saturating_sub(1)));
    base + base.mul_f64(fastrand::f64() / 2.0)
}
