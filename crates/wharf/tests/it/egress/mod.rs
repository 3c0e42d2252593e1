//! The way of a confined server to the network, spoken to over its raw socket, with hosts on loopback that count who came
//! (l17 and the hostile cases SBX-05, SBX-06 and SSRF). A rule that names this machine stands for any host: nothing here
//! leaves loopback.

mod hosts;
mod inside;
mod limits;
mod names;
mod tls;

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::broadcast;
use wharf::event::{Bus, Event, Reached};
use wharf::names::ServerName;
use wharf::net::{NetOptions, Resolve};
use wharf::policy::EgressRules;
use wharf::sandbox::egress::{Egress, EgressLimits, EgressOptions};

use crate::support::soon;

/// A host on loopback: answers each request with its own bytes, and counts connections.
pub(crate) struct Page {
    pub(crate) port: u16,
    accepted: Arc<AtomicUsize>,
    heard: Arc<Mutex<String>>,
}

/// A proxy, and what is told of it.
pub(crate) struct Wall {
    pub(crate) egress: Egress,
    pub(crate) events: broadcast::Receiver<Event>,
    pub(crate) folder: TempDir,
}

/// Knows every name, and counts how often it was asked.
pub(crate) struct Everyone(Vec<IpAddr>, Arc<AtomicUsize>);

impl Page {
    pub(crate) async fn open() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let page = Self {
            port: listener.local_addr().unwrap().port(),
            accepted: Arc::default(),
            heard: Arc::default(),
        };
        let (accepted, heard) = (Arc::clone(&page.accepted), Arc::clone(&page.heard));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::SeqCst);
                let heard = Arc::clone(&heard);
                tokio::spawn(async move {
                    let mut bytes = Vec::new();
                    while stream.read_buf(&mut bytes).await.unwrap_or(0) > 0 {
                        *heard.lock().unwrap() = String::from_utf8_lossy(&bytes).into_owned();
                        if bytes.ends_with(b"\r\n\r\n") || bytes.ends_with(b"over") {
                            let _ = stream.write_all(ANSWER.as_bytes()).await;
                        }
                    }
                });
            }
        });
        page
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    pub(crate) fn heard(&self) -> String {
        self.heard.lock().unwrap().clone()
    }

    pub(crate) fn localhost(&self) -> String {
        format!("localhost:{}", self.port)
    }
}

const ANSWER: &str =
    "HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: x-one\r\nx-one: 1\r\nx-two: 2\r\n\r\ntide";

impl Wall {
    pub(crate) fn around(rules: &[&str]) -> Self {
        Self::with(rules, |_| {})
    }

    pub(crate) fn with(rules: &[&str], change: impl FnOnce(&mut EgressOptions)) -> Self {
        let folder = private_folder();
        let bus = Bus::default();
        let events = bus.subscribe();
        let server = ServerName::parse("boat").unwrap();
        let mut options = EgressOptions::new(server, EgressRules::parse(rules).unwrap(), bus);
        // Nobody outside is asked for a name.
        options.net = answering(&["127.0.0.1"]).0;
        change(&mut options);
        let egress = Egress::listen(&folder.path().join("egress"), options).unwrap();
        Self { egress, events, folder }
    }

    pub(crate) fn limited(rules: &[&str], change: impl FnOnce(&mut EgressLimits)) -> Self {
        Self::with(rules, |options| change(&mut options.limits))
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.egress.path().to_path_buf()
    }

    pub(crate) async fn connect(&self) -> UnixStream {
        UnixStream::connect(self.egress.path()).await.unwrap()
    }

    /// Sends bytes and reads until the proxy closes or has answered a whole message.
    pub(crate) async fn say(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect().await;
        // One that is refused unheard is closed before everything is written.
        let _ = stream.write_all(bytes.as_ref()).await;
        answer(&mut stream).await
    }

    pub(crate) async fn get(&self, authority: &str) -> String {
        self.say(format!("GET http://{authority}/x HTTP/1.1\r\nHost: {authority}\r\n\r\n")).await
    }

    pub(crate) async fn tunnel(&self, authority: &str) -> (UnixStream, String) {
        let mut stream = self.connect().await;
        let request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let said = answer(&mut stream).await;
        (stream, said)
    }

    /// What was told until now: host, port, rule and what came of it.
    pub(crate) fn told(&mut self) -> Vec<(String, u16, Option<String>, Reached)> {
        std::iter::from_fn(|| self.events.try_recv().ok())
            .filter_map(|event| match event {
                Event::Egress { server, host, port, rule, reached } => {
                    assert_eq!(server.as_str(), "boat");
                    Some((host.raw().to_owned(), port, rule, reached))
                }
                _ => None,
            })
            .collect()
    }

    /// Waits for the next thing that is told.
    pub(crate) async fn next(&mut self) -> Reached {
        soon("an event", async {
            loop {
                if let Event::Egress { reached, .. } = self.events.recv().await.unwrap() {
                    return reached;
                }
            }
        })
        .await
    }
}

pub(crate) fn private_folder() -> TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    folder
}

/// One message: its head, and as much of a body as its length says; or what came before the end.
pub(crate) async fn answer(stream: &mut UnixStream) -> String {
    soon("an answer", async {
        let mut bytes = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let lines = head.lines().map(str::to_lowercase);
                let length = lines.filter_map(|l| l.strip_prefix("content-length: ")?.parse().ok()).next();
                if body.len() >= length.unwrap_or(0) {
                    return text;
                }
            }
            if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return String::from_utf8_lossy(&bytes).into_owned();
            }
        }
    })
    .await
}

pub(crate) fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

/// A resolver for which every name has these addresses, and the count of its questions.
pub(crate) fn answering(addresses: &[&str]) -> (NetOptions, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let addresses = addresses.iter().map(|ip| ip.parse().unwrap()).collect();
    let resolver = Arc::new(Everyone(addresses, Arc::clone(&asked)));
    (NetOptions { resolver, ..NetOptions::default() }, asked)
}

impl Resolve for Everyone {
    fn resolve<'a>(
        &'a self,
        _: &'a str,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        let addresses = self.0.clone();
        Box::pin(async move { Ok(addresses) })
    }
}
