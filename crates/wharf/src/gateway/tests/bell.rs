//! Whoever listens hears what was rung, and is woken for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use crate::gateway::bell::Bell;

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn woken() -> (Arc<Woken>, Waker) {
    let woken = Arc::<Woken>::default();
    (Arc::clone(&woken), Waker::from(woken))
}

#[test]
fn a_listener_looks_at_first_and_whenever_it_was_rung() {
    let (bell, (woken, waker)) = (Bell::default(), woken());
    let cx = Context::from_waker(&waker);
    let mut listener = bell.listener();
    bell.ring();
    assert!(listener.hears(&cx), "there may be something to see already");
    assert!(!listener.hears(&cx));
    assert_eq!(woken.0.load(Ordering::Relaxed), 0);
    for times in 1..=3 {
        bell.ring();
        assert_eq!(woken.0.load(Ordering::Relaxed), times, "without listening anew");
        assert!(listener.hears(&cx));
        assert!(!listener.hears(&cx));
    }
}

#[test]
fn a_listener_that_goes_elsewhere_is_woken_there_and_one_that_is_gone_is_not() {
    let (bell, (first, one), (second, other)) = (Bell::default(), woken(), woken());
    let (mut listener, mut neighbour) = (bell.listener(), bell.listener());
    assert!(listener.hears(&Context::from_waker(&one)) && neighbour.hears(&Context::from_waker(&one)));
    assert!(!listener.hears(&Context::from_waker(&other)), "nothing was rung");
    bell.ring();
    assert_eq!((first.0.load(Ordering::Relaxed), second.0.load(Ordering::Relaxed)), (1, 1));
    drop(listener);
    bell.ring();
    assert_eq!((first.0.load(Ordering::Relaxed), second.0.load(Ordering::Relaxed)), (2, 1));
    let mut third = bell.listener();
    assert!(third.hears(&Context::from_waker(&other)), "in the place of the first");
    bell.ring();
    assert_eq!((first.0.load(Ordering::Relaxed), second.0.load(Ordering::Relaxed)), (3, 2));
}
