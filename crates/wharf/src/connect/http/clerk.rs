//! Sends notifications and answers to a legacy server one after the other, so that their order is the order of sending.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::connect::inbox::{Closed, Inbox};

/// A queue of messages that have no answer, and the task that sends them.
pub(crate) struct Clerk {
    queue: mpsc::Sender<Bytes>,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// How the clerk sends, and what it does at the end.
pub(crate) trait Office: Send + Sync + 'static {
    /// Sends one message, and waits until the server took it.
    fn post(&self, frame: Bytes) -> impl Future<Output = Result<(), String>> + Send;
    /// After the last message.
    fn leave(&self) -> impl Future<Output = ()> + Send;
}

/// Messages that may wait for a server that does not take them.
const WAITING: usize = 1024;
/// How long a server may take to accept a message.
const ACCEPT: Duration = Duration::from_secs(30);
/// How long the last messages and the goodbye may take together.
const GOODBYE: Duration = Duration::from_secs(2);

impl Clerk {
    /// Starts to work, until the inbox closes.
    pub(crate) fn start(inbox: Arc<Inbox>, office: Arc<impl Office>) -> Self {
        let (queue, waiting) = mpsc::channel(WAITING);
        let task = tokio::spawn(work(waiting, inbox, office));
        Self { queue, task: Mutex::new(Some(task)) }
    }

    /// Takes a message. Too many that wait end the connection: the server would miss some.
    pub(crate) fn send(&self, inbox: &Inbox, frame: Vec<u8>) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.queue.try_send(frame.into()) {
            inbox.close(Closed {
                reason: "it does not accept messages, and too many wait for it".into(),
                protocol: false,
            });
        }
    }

    /// Waits for the goodbye, once.
    pub(crate) async fn finished(&self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            let _ = task.await;
        }
    }
}

async fn work(mut waiting: mpsc::Receiver<Bytes>, inbox: Arc<Inbox>, office: Arc<impl Office>) {
    let closed = inbox.until_closed();
    tokio::pin!(closed);
    loop {
        let frame = tokio::select! {
            frame = waiting.recv() => frame,
            _ = &mut closed => None,
        };
        let Some(frame) = frame else { break };
        // A server that does not take a notification does not stop the others.
        let post = tokio::time::timeout(ACCEPT, office.post(frame));
        tokio::pin!(post);
        tokio::select! {
            _ = &mut post => {}
            _ = &mut closed => {
                let _ = tokio::time::timeout(GOODBYE, post).await;
                break;
            }
        }
    }
    let goodbye = async {
        while let Ok(frame) = waiting.try_recv() {
            let _ = office.post(frame).await;
        }
        office.leave().await;
    };
    let _ = tokio::time::timeout(GOODBYE, goodbye).await;
}
