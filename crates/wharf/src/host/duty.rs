//! Who uses a server at the moment, so that it can go when nobody does.

use std::time::Duration;

use tokio::sync::watch;

/// The users of one server.
pub(super) struct Duty(watch::Sender<Using>);

#[derive(Clone, Copy, Default)]
struct Using {
    users: usize,
    /// Nobody new may come.
    over: bool,
}

/// One user, as long as it lives.
pub(super) struct User<'a>(&'a Duty);

// === impl Duty ===

impl Duty {
    /// Uses the server; `None` if it is on its way out.
    pub(super) fn enter(&self) -> Option<User<'_>> {
        let came = self.0.send_if_modified(|using| {
            using.users += usize::from(!using.over);
            !using.over
        });
        came.then_some(User(self))
    }

    /// Nobody new may use it.
    pub(super) fn end(&self) {
        self.0.send_modify(|using| using.over = true);
    }

    /// Waits until nobody uses it, but no longer than this.
    pub(super) async fn idle(&self, deadline: Duration) {
        let mut using = self.0.subscribe();
        let _ = tokio::time::timeout(deadline, using.wait_for(|using| using.users == 0)).await;
    }
}

impl Default for Duty {
    fn default() -> Self {
        Self(watch::channel(Using::default()).0)
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|using| using.users -= 1);
    }
}
