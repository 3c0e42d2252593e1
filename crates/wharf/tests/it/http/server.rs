//! A loopback HTTP server that a test plays by hand, down to the bytes, and what a connection to it needs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use wharf::config::{Remote, ServerConfig, Transport};
use wharf::connect::{Answering, Dock, EraMemory, Peer};
use wharf::event::Bus;
use wharf::names::ServerName;
use wharf::net::{HttpClient, NetOptions};
use wharf::policy::Policy;
use wharf::secret::{Secret, SecretUrl};
use wharf::wire::{Json, Limits};

/// How long a condition may take to come true before a test fails.
const PATIENCE: Duration = Duration::from_secs(10);

/// A listener on loopback, and everything it was asked.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    log: watch::Receiver<Vec<Seen>>,
}

/// One request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) verb: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

/// A request that waits for what the test answers. Dropped, its connection closes.
pub(crate) struct Exchange {
    pub(crate) seen: Seen,
    stream: TcpStream,
    back: oneshot::Sender<TcpStream>,
}

/// An answer under way as a stream of events.
pub(crate) struct Events {
    stream: TcpStream,
    back: oneshot::Sender<TcpStream>,
}

impl Server {
    /// Listens; every request goes to the test's function.
    pub(crate) async fn start<F>(play: impl Fn(Exchange) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (sender, log) = watch::channel(Vec::new());
        let (play, sender) = (Arc::new(play), Arc::new(sender));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                stream.set_nodelay(true).unwrap();
                tokio::spawn(serve(stream, Arc::clone(&play), Arc::clone(&sender)));
            }
        });
        Self { address, connections, log }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Everything that was asked so far.
    pub(crate) fn log(&self) -> Vec<Seen> {
        self.log.borrow().clone()
    }

    /// What was asked so far, each as `VERB method`.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.log().iter().map(Seen::line).collect()
    }

    /// Requests so far whose line is this.
    pub(crate) fn count(&self, line: &str) -> usize {
        self.asked().iter().filter(|l| *l == line).count()
    }

    /// Waits until the log is as wanted.
    pub(crate) async fn until(&self, wanted: impl Fn(&[Seen]) -> bool) {
        let mut log = self.log.clone();
        let met = tokio::time::timeout(PATIENCE, log.wait_for(|log| wanted(log))).await;
        assert!(met.is_ok(), "never came: {:?}", self.asked());
    }

    /// Waits until that was asked.
    pub(crate) async fn until_asked(&self, line: &str) -> Seen {
        self.until(|log| log.iter().any(|s| s.line() == line)).await;
        self.log().into_iter().find(|s| s.line() == line).unwrap()
    }
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.verb, self.method()).trim_end().to_owned()
    }
}

impl Exchange {
    /// Answers with bytes of the test's own, and keeps the connection.
    pub(crate) async fn raw(mut self, bytes: &[u8]) {
        if self.stream.write_all(bytes).await.is_ok() {
            let _ = self.back.send(self.stream);
        }
    }

    /// Answers with bytes of the test's own, and gives the connection away.
    pub(crate) async fn take(mut self, bytes: &[u8]) -> TcpStream {
        let _ = self.stream.write_all(bytes).await;
        self.stream
    }

    /// Does not answer until the other side closes the connection.
    pub(crate) async fn hold(mut self) {
        let mut byte = [0];
        while matches!(self.stream.read(&mut byte).await, Ok(1..)) {}
    }

    pub(crate) async fn reply(self, status: u16, headers: &str, body: &str) {
        let length = body.len();
        let text = format!("HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\n\r\n{body}");
        self.raw(text.as_bytes()).await;
    }

    pub(crate) async fn json(self, headers: &str, body: Value) {
        let headers = format!("content-type: application/json\r\n{headers}");
        self.reply(200, &headers, &body.to_string()).await;
    }

    /// Answers the request with a result.
    pub(crate) async fn result(self, result: Value) {
        let answer = self.seen.answer(result);
        self.json("", answer).await;
    }

    pub(crate) async fn accepted(self) {
        self.reply(202, "", "").await;
    }

    pub(crate) async fn events(mut self, headers: &str) -> Events {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{headers}transfer-encoding: chunked\r\n\r\n"
        );
        let _ = self.stream.write_all(head.as_bytes()).await;
        Events { stream: self.stream, back: self.back }
    }
}

impl Seen {
    pub(crate) fn answer(&self, result: Value) -> Value {
        serde_json::json!({"jsonrpc": "2.0", "id": self.body["id"], "result": result})
    }
}

impl Events {
    /// Sends text as it is, in one chunk. False if nobody reads any more.
    pub(crate) async fn text(&mut self, text: &str) -> bool {
        let chunk = format!("{:x}\r\n{text}\r\n", text.len());
        self.stream.write_all(chunk.as_bytes()).await.is_ok()
    }

    pub(crate) async fn message(&mut self, message: &Value) -> bool {
        self.text(&format!("data: {message}\n\n")).await
    }

    /// Ends the answer as HTTP wants it; the connection can be used again.
    pub(crate) async fn end(mut self) {
        if self.stream.write_all(b"0\r\n\r\n").await.is_ok() {
            let _ = self.back.send(self.stream);
        }
    }

    /// Waits until the other side closes the connection.
    pub(crate) async fn closed(&mut self) {
        let mut byte = [0];
        while matches!(self.stream.read(&mut byte).await, Ok(1..)) {}
    }

    /// Closes the connection with a reset.
    pub(crate) fn reset(self) {
        self.stream.set_zero_linger().unwrap();
    }
}

async fn serve<F>(
    mut stream: TcpStream,
    play: Arc<impl Fn(Exchange) -> F + Send + Sync>,
    log: Arc<watch::Sender<Vec<Seen>>>,
) where
    F: Future<Output = ()> + Send + 'static,
{
    while let Some(seen) = read(&mut stream).await {
        log.send_modify(|log| log.push(seen.clone()));
        let (back, returned) = oneshot::channel();
        tokio::spawn(play(Exchange { seen, stream, back }));
        match returned.await {
            Ok(again) => stream = again,
            Err(_) => return,
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8(bytes[..head].to_vec()).unwrap();
    let mut lines = text.lines();
    let mut first = lines.next()?.split(' ').map(str::to_owned);
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim_matches([' ', '\t']).to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
    let mut body = bytes.split_off(head + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(Seen {
        verb: first.next()?,
        path: first.next()?,
        headers,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    })
}

/// Who answers the servers of a test, and remembers what they told.
#[derive(Default)]
pub(crate) struct Ears {
    heard: Mutex<Vec<String>>,
    bell: watch::Sender<usize>,
}

impl Ears {
    /// Waits until so many notifications of a kind were heard.
    pub(crate) async fn until_heard(&self, method: &str, times: usize) {
        let mut bell = self.bell.subscribe();
        let met = bell.wait_for(|_| self.count(method) >= times);
        let met = tokio::time::timeout(PATIENCE, met).await.is_ok();
        assert!(met, "{method} was heard {} times, not {times}", self.count(method));
    }

    pub(crate) fn count(&self, method: &str) -> usize {
        self.heard.lock().unwrap().iter().filter(|m| *m == method).count()
    }
}

impl Peer for Ears {
    fn capabilities(&self) -> Json {
        Json::of(&serde_json::json!({"elicitation": {}}))
    }

    fn request(&self, _server: &ServerName, method: &str, _params: Option<Json>) -> Answering {
        let answer = Json::of(&serde_json::json!({"action": "accept", "content": {"asked": method}}));
        Box::pin(async move { Ok(answer) })
    }

    fn notification(&self, _server: &ServerName, method: &str, _params: Option<&Json>) -> bool {
        self.heard.lock().unwrap().push(method.to_owned());
        self.bell.send_modify(|n| *n += 1);
        method.ends_with("list_changed")
    }
}

/// A dock with everything at its default.
pub(crate) fn dock(peer: Arc<Ears>) -> Dock {
    Dock {
        trail: Default::default(),
        policy: Policy::strict().into(),
        net: HttpClient::new(NetOptions::default()).unwrap(),
        environment: BTreeMap::new(),
        scratch: std::env::temp_dir(),
        limits: Limits::default().into(),
        peer,
        events: Bus::default(),
        eras: Arc::new(EraMemory::default()),
        logins: wharf::connect::Logins::new(Arc::new(wharf::connect::TokenMemory::default())),
        client_info: Json::of(&serde_json::json!({"name": "test", "version": "0"})),
        grace: Duration::from_secs(2),
        retry_pause: Duration::from_millis(250),
        leaving: wharf::connect::Leaving::default(),
        strays: Default::default(),
        egress: NetOptions::default(),
        sandbox: None,
        packages: None,
    }
}

pub(crate) fn remote(url: &str) -> Remote {
    let headers = [("X-Key".to_owned(), Secret::new("opensesame"))];
    Remote { url: SecretUrl::new(url.parse().unwrap()), headers: headers.into_iter().collect() }
}

pub(crate) fn http(url: &str) -> ServerConfig {
    ServerConfig::new(ServerName::parse("far").unwrap(), Transport::Http(remote(url)))
}
