//! The puppet behind a socket: each connection starts one, and is its standard input and output.
//!
//! In: a script. Out: a listener at a Unix socket, or at a WebSocket on loopback, until it is dropped.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};

use crate::http::{HttpPuppet, Reply};
use crate::oauth::Guard;
use crate::puppet::Puppet;
use crate::puppet_path;

/// Puppets at a Unix socket.
#[derive(Debug)]
pub struct UnixPuppet(JoinHandle<()>);

/// Puppets at a WebSocket.
#[derive(Debug)]
pub struct WsPuppet {
    at: SocketAddr,
    heads: Arc<Mutex<Vec<Head>>>,
    listening: JoinHandle<()>,
}

/// The headers of a request.
pub type Head = Vec<(String, String)>;

/// What a scripted WebSocket does with its connection.
pub type Act = Arc<dyn Fn(WebSocketStream<TcpStream>) -> Acting + Send + Sync>;

/// The work of an [`Act`].
pub type Acting = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

// === impl UnixPuppet ===

impl UnixPuppet {
    /// Listens; nothing is there yet at the path. The connection itself is the puppet's standard input and output.
    ///
    /// # Panics
    /// If it cannot.
    pub fn listen(path: &Path, script: &Puppet) -> Self {
        let listener = UnixListener::bind(path).expect("the socket can be bound");
        let args = script.args();
        Self(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let stream = stream.into_std().expect("a fresh stream");
                stream.set_nonblocking(false).expect("a fresh stream");
                let output = OwnedFd::from(stream.try_clone().expect("a descriptor to spare"));
                let mut child = Command::new(puppet_path())
                    .args(&args)
                    .stdin(OwnedFd::from(stream))
                    .stdout(output)
                    .spawn()
                    .expect("the puppet starts");
                std::thread::spawn(move || child.wait());
            }
        }))
    }
}

impl Drop for UnixPuppet {
    fn drop(&mut self) {
        self.0.abort();
    }
}

// === impl WsPuppet ===

impl WsPuppet {
    /// Listens at a free port. Each line of a puppet is one text frame, and the other way round.
    ///
    /// # Panics
    /// If it cannot.
    pub async fn listen(script: &Puppet) -> Self {
        let args = Arc::new(script.args());
        let act: Act = Arc::new(move |socket| Box::pin(bridge(socket, Arc::clone(&args))));
        Self::acting(act).await
    }

    /// Listens, and does this with each connection.
    ///
    /// # Panics
    /// If it cannot.
    pub async fn acting(act: Act) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let at = listener.local_addr().expect("a bound listener has an address");
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (act, seen) = (Arc::clone(&act), Arc::clone(&seen));
                tokio::spawn(async move {
                    if let Some(socket) = greet(stream, &seen).await {
                        act(socket).await;
                    }
                });
            }
        });
        Self { at, heads, listening }
    }

    /// The same behind a guard: those it does not let in are refused, and what is no WebSocket is asked of it.
    ///
    /// # Panics
    /// If it cannot.
    pub async fn guarded(script: &Puppet, guard: Guard) -> Self {
        let args = Arc::new(script.args());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let at = listener.local_addr().expect("a bound listener has an address");
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        let plain = Arc::new(HttpPuppet::start({
            let guard = guard.clone();
            move |request| std::future::ready(guard.judge(&request).unwrap_or_else(|| Reply::status(404)))
        }));
        let listening = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (args, seen, guard) = (Arc::clone(&args), Arc::clone(&seen), guard.clone());
                let plain = Arc::clone(&plain);
                tokio::spawn(async move {
                    let mut head = vec![0; 8192];
                    let length = stream.peek(&mut head).await.unwrap_or_default();
                    let head = String::from_utf8_lossy(&head[..length]).to_lowercase();
                    if !head.contains("upgrade: websocket") {
                        let mut there = TcpStream::connect(plain.addr()).await.expect("our own port");
                        let _ = tokio::io::copy_bidirectional(&mut stream, &mut there).await;
                    } else if let Some(socket) = greet_if(stream, &seen, |a| guard.admits(a)).await {
                        bridge(socket, args).await;
                    }
                });
            }
        });
        Self { at, heads, listening }
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("ws://{}/mcp", self.at)
    }

    /// The headers of the requests that became WebSockets, one list a connection.
    pub fn heads(&self) -> Vec<Head> {
        self.heads.lock().unwrap().clone()
    }
}

impl Drop for WsPuppet {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn greet(stream: TcpStream, seen: &Mutex<Vec<Head>>) -> Option<WebSocketStream<TcpStream>> {
    greet_if(stream, seen, |_| true).await
}

async fn greet_if(
    stream: TcpStream,
    seen: &Mutex<Vec<Head>>,
    admits: impl Fn(Option<&str>) -> bool,
) -> Option<WebSocketStream<TcpStream>> {
    #[expect(clippy::result_large_err, reason = "the type of the callback is not ours")]
    let look = |request: &Request, mut response: Response| {
        let text = |value: &http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let head = request.headers().iter().map(|(name, value)| (name.to_string(), text(value)));
        seen.lock().unwrap().push(head.collect());
        let shown = request.headers().get("authorization").and_then(|value| value.to_str().ok());
        if !admits(shown) {
            let mut refusal = http::Response::new(None);
            *refusal.status_mut() = http::StatusCode::UNAUTHORIZED;
            return Err(refusal);
        }
        if let Some(spoken) = request.headers().get("sec-websocket-protocol") {
            response.headers_mut().insert("sec-websocket-protocol", spoken.clone());
        }
        Ok(response)
    };
    tokio_tungstenite::accept_hdr_async(stream, look).await.ok()
}

/// Starts a puppet, and hands messages on until one side ends.
async fn bridge(socket: WebSocketStream<TcpStream>, args: Arc<Vec<String>>) {
    use futures_util::{SinkExt as _, StreamExt as _};
    let mut child = tokio::process::Command::new(puppet_path())
        .args(args.iter())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the puppet starts");
    let mut input = child.stdin.take().expect("a pipe");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).split(b'\n');
    let (mut sink, mut stream) = socket.split();
    let outward = async move {
        while let Ok(Some(line)) = lines.next_segment().await {
            let text = String::from_utf8_lossy(&line).into_owned();
            if sink.send(Message::text(text)).await.is_err() {
                return;
            }
        }
    };
    let inward = async move {
        while let Some(Ok(message)) = stream.next().await {
            let Message::Text(text) = message else { continue };
            if input.write_all(format!("{text}\n").as_bytes()).await.is_err() {
                // It may still have last words.
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        () = outward => {}
        () = inward => {}
    }
}
