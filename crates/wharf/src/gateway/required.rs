//! Servers without which the gateway is not ready.
//!
//! While one of them cannot be reached it is tried again now and then: whoever asks `/readyz` sends no calls here before it says
//! yes, so no call would find out that the server is back.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;

use super::Settings;
use super::desk::Desk;

/// The longest that a server is left to itself between two tries.
const LONGEST: Duration = Duration::from_secs(60);

/// Looks after them, as long as the gateway is there. The pauses grow while one stays away; where none is required there is
/// nothing to look at.
pub(super) fn look_after(desk: Weak<Desk>, settings: &Arc<Settings>) -> impl Future<Output = ()> + use<> {
    let (mut adopted, settings) = (settings.adopted.subscribe(), Arc::downgrade(settings));
    let required = move || settings.upgrade().map(|s| s.admission.load().required.clone());
    async move {
        let mut tries = 0;
        loop {
            while required().is_some_and(|required| required.is_empty()) {
                if adopted.changed().await.is_err() {
                    return;
                }
            }
            let Some((clock, host)) = desk.upgrade().map(|desk| (desk.clock.clone(), desk.host().clone()))
            else {
                return;
            };
            let pause = host.patience_with_lost(tries).min(LONGEST);
            clock.wait(pause).await;
            let Some(required) = required() else { return };
            let away = join_all(required.iter().map(|server| host.try_again(server))).await;
            tries = if away.contains(&true) { tries + 1 } else { 0 };
        }
    }
}
