//! News from a server: progress goes to its call, the rest to the owner. What nobody wants is counted, and too much of
//! it while a call waits ends the connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::Deserialize;
use tokio::sync::mpsc;

use super::{Closed, Inbox};
use crate::connect::life::Progress;
use crate::event::{Event, Redacted};
use crate::mcp::{meta, method};
use crate::wire::Json;

/// A request stands open to hear news as long as this lives.
pub(crate) struct Standing(Arc<Inbox>);

/// Whether somebody wants a notification.
#[derive(PartialEq)]
enum Wanted {
    Yes,
    /// Somebody did, and has gone.
    TooLate,
    No,
}

/// How much of a message is shown in a `Traffic` event, and of the words that come with progress.
const SHOWN: usize = 4096;

impl Inbox {
    pub(super) fn news(&self, call: Option<u64>, name: &str, params: Option<Json>) {
        let params = params.as_ref();
        let wanted = match name {
            method::PROGRESS => self.progress(params),
            method::LISTEN_ACKNOWLEDGED => Wanted::when(self.acknowledged(params)),
            method::CANCELLED => Wanted::when(self.listened(params)),
            method::MESSAGE => {
                match (self.companion(call), params) {
                    (Some(companion), Some(params)) => companion.log(params),
                    (None, Some(params)) => self.peer.log(&self.server, params),
                    _ => {}
                }
                let clean = |params: &Json| {
                    Json::from(Redacted::new(params.clone(), self.monitor.redactor.clone()).to_value())
                };
                Wanted::when(self.peer.notification(&self.server, name, params.map(clean).as_ref()))
            }
            _ => {
                Wanted::when(self.peer.notification(&self.server, name, params) || self.is_subscribed(params))
            }
        };
        if wanted == Wanted::Yes {
            return;
        }
        self.counters.notification();
        if wanted == Wanted::TooLate || self.is_idle() {
            return;
        }
        let seen = self.unexpected.fetch_add(1, Ordering::Relaxed) + 1;
        if seen > self.limits.unexpected_notifications {
            let limit = self.limits.unexpected_notifications;
            self.close(Closed {
                reason: format!("more than {limit} notifications that nobody asked for while a call waits"),
                protocol: true,
            });
        }
    }

    /// The server made a new session for this connection.
    pub(crate) fn renewed(&self) {
        self.peer.renewed(&self.server);
    }

    /// No call waits; requests that stand open to hear news do not count.
    pub(in crate::connect) fn is_idle(&self) -> bool {
        self.pending.len() <= self.standing.load(Ordering::Relaxed)
    }

    /// One more request stands open to hear news, until the guard goes.
    pub(crate) fn stand(self: &Arc<Self>) -> Standing {
        self.standing.fetch_add(1, Ordering::Relaxed);
        Standing(Arc::clone(self))
    }

    /// Whether a notification says that it belongs to a request of ours that stands open.
    fn is_subscribed(&self, params: Option<&Json>) -> bool {
        subscription(params).is_some_and(|id| self.is_standing(id))
    }

    /// The server agrees to tell news. It may have left out some of what was asked for; `null` if it does not say.
    fn acknowledged(&self, params: Option<&Json>) -> bool {
        let honoured = params.and_then(|p| p.member("notifications")).unwrap_or_else(|| Json::of(&()));
        let told = |ears: &mpsc::Sender<Json>| drop(ears.try_send(honoured));
        let id = subscription(params);
        let heard = id.and_then(|id| self.pending.with(id, |life| life.standing.as_ref().map(told)));
        heard.flatten().is_some()
    }

    /// The server ends a request that stood open. Over pipes it may say so like this.
    fn listened(&self, params: Option<&Json>) -> bool {
        let id = params.and_then(|p| p.member("requestId"));
        let id = id.and_then(|id| id.as_str().parse().ok());
        let Some(id) = id.filter(|id| self.is_standing(*id)) else {
            return false;
        };
        self.deliver(id, Ok(Json::empty_object()));
        true
    }

    fn is_standing(&self, id: u64) -> bool {
        self.pending.with(id, |life| life.standing.is_some()) == Some(true)
    }

    fn progress(&self, params: Option<&Json>) -> Wanted {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Shape {
            progress_token: Json,
            progress: f64,
            total: Option<f64>,
            message: Option<String>,
        }
        let Some(shape) = params.and_then(|p| p.to::<Shape>().ok()) else {
            return Wanted::No;
        };
        let Ok(id) = shape.progress_token.as_str().parse::<u64>() else {
            return Wanted::No;
        };
        let Some(life) = self.pending.with(id, |life| Arc::clone(life)) else {
            // Many servers go on after a cancellation; other calls must not pay for that.
            let was_ours = (1..=self.pending.last()).contains(&id);
            return if was_ours { Wanted::TooLate } else { Wanted::No };
        };
        let progress = Progress {
            progress: shape.progress,
            total: shape.total,
            message: shape
                .message
                .map(|text| self.monitor.redactor.redact_beginning(&text, SHOWN).into_owned().into()),
            raw: params.cloned(),
        };
        self.monitor.events.publish(|| Event::Progress {
            server: self.server.clone(),
            call: id,
            tool: life.tool.clone(),
            progress: progress.progress,
            total: progress.total,
            message: progress.message.clone(),
        });
        life.sign(progress);
        Wanted::Yes
    }
}

/// The number of the request that a notification says it belongs to.
fn subscription(params: Option<&Json>) -> Option<u64> {
    let meta = params?.member("_meta")?;
    meta.member(meta::SUBSCRIPTION_ID)?.as_str().parse().ok()
}

// === impl Wanted ===

impl Wanted {
    fn when(wanted: bool) -> Self {
        if wanted { Self::Yes } else { Self::No }
    }
}

// === impl Standing ===

impl Drop for Standing {
    fn drop(&mut self) {
        self.0.standing.fetch_sub(1, Ordering::Relaxed);
    }
}
