//! Who reads a server's answers: the call that waits, or a task. Nobody waits for one that does not come.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use serde_json::json;
use wharf_testkit::{Era, Puppet};

use crate::support::{echo, pup, soon, until};

/// Whether somebody was woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn l37_a_call_that_nobody_polls_keeps_no_other_waiting() {
    for era in [Era::Legacy, Era::Modern] {
        let host = pup(&Puppet::of(era)).await;
        assert!(echo(&host).await.success);
        let mut idle = pin!(host.call("pup_echo", json!({ "message": "idle" })));
        assert!(futures_util::poll!(&mut idle).is_pending());
        for _ in 0..3 {
            assert!(soon("an answer", echo(&host)).await.success);
        }
        let outcome = soon("the idle call's answer", idle).await;
        assert!(outcome.to_text().contains("idle"), "{outcome:?}");
        host.close().await;
    }
}

#[tokio::test]
async fn l37_a_call_that_leaves_before_it_has_read_hands_the_reading_on() {
    for era in [Era::Legacy, Era::Modern] {
        let host = pup(&Puppet::of(era)).await;
        assert!(echo(&host).await.success);
        for _ in 0..3 {
            let woken = Arc::new(Woken::default());
            let mut leaving = Box::pin(host.call("pup_echo", json!({ "message": "leaving" })));
            let waker = Waker::from(Arc::clone(&woken));
            assert!(leaving.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            until("its answer is there", || woken.0.load(Ordering::SeqCst)).await;
            drop(leaving);
            assert!(soon("an answer", echo(&host)).await.success);
        }
        host.close().await;
    }
}
