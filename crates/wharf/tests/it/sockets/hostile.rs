//! Sockets that somebody else could stand behind, and servers that break the rules of frames.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use wharf::Error;
use wharf::config::{Origin, Remote, ServerConfig};
use wharf::names::ServerName;
use wharf::net::NetOptions;
use wharf::policy::{FoundFile, Policy, SocketRequest};
use wharf::secret::{Secret, SecretUrl};
use wharf_testkit::{Puppet, UnixPuppet, WsPuppet};

use crate::support::{at, echo, error, folder, quick, soon};

fn name() -> ServerName {
    ServerName::parse("pup").unwrap()
}

async fn connecting(config: ServerConfig) -> Result<(), Error> {
    let host = quick().server(config).start().await.unwrap();
    let made = soon("connecting", host.berth("pup").unwrap().connect()).await.map(drop);
    host.close().await;
    made
}

fn denied(made: Result<(), Error>, why: &str) {
    let Err(Error::Denied { rule, hint, .. }) = &made else { panic!("{why}: {made:?}") };
    assert!(rule.contains(why), "expected `{why}` in: {rule}");
    assert!(!hint.is_empty());
}

#[tokio::test]
async fn l30_a_socket_in_a_folder_of_everybody_or_behind_a_link_is_refused() {
    let files = folder();
    let (path, link, open) = (at(&files, "s"), at(&files, "link"), at(&files, "open"));
    let _listening = UnixPuppet::listen(&path, &Puppet::new());
    symlink(&path, &link).unwrap();
    denied(connecting(ServerConfig::unix(name(), &link)).await, "it is a symbolic link");

    std::fs::create_dir(&open).unwrap();
    let in_open = open.join("s");
    let _open = UnixPuppet::listen(&in_open, &Puppet::new());
    for mode in [0o777, 0o1777, 0o702] {
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(mode)).unwrap();
        denied(connecting(ServerConfig::unix(name(), &in_open)).await, "everybody can write to the folder");
    }
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let below = open.join("below");
    std::fs::create_dir(&below).unwrap();
    let _below = UnixPuppet::listen(&below.join("s"), &Puppet::new());
    denied(connecting(ServerConfig::unix(name(), below.join("s"))).await, "everybody can write to");

    std::fs::write(at(&files, "file"), "").unwrap();
    denied(connecting(ServerConfig::unix(name(), at(&files, "file"))).await, "it is a file");
    denied(connecting(ServerConfig::unix(name(), files.path())).await, "it is a folder");

    // The twins: the socket itself, a link among the folders, and the open folder closed.
    connecting(ServerConfig::unix(name(), &path)).await.unwrap();
    let through = at(&files, "through");
    symlink(files.path(), &through).unwrap();
    connecting(ServerConfig::unix(name(), through.join("s"))).await.unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
    connecting(ServerConfig::unix(name(), &in_open)).await.unwrap();
}

#[test]
fn l30_a_socket_of_another_user_is_refused() {
    let found = |path: &str, kind, owner, mode| FoundFile { path: path.into(), kind, owner, mode };
    let ask = |path: &str, socket: (u32, u32), folders: &[(u32, u32)]| {
        let file = found("/run/a/s", "socket", socket.0, socket.1);
        let folders: Vec<_> =
            folders.iter().map(|(owner, mode)| found("/run/a", "folder", *owner, *mode)).collect();
        let request = SocketRequest {
            server: &name(),
            path: Path::new(path),
            file: &file,
            folders: &folders,
            us: 1000,
        };
        Policy::strict().permit_socket(&request).map(|permit| {
            // What stands there when it is connected to may be another's after all.
            assert_eq!([1000, 0, 1001].map(|user| permit.may_listen(user)), [true, true, false]);
            permit.path().to_path_buf()
        })
    };
    let fine = [(1000, 0o40700), (0, 0o41777), (0, 0o40755)];
    assert_eq!(ask("/run/a/s", (1000, 0o140600), &fine).unwrap(), PathBuf::from("/run/a/s"));
    assert!(ask("/run/a/s", (0, 0o140666), &fine).is_ok(), "root may serve everybody");
    for (path, socket, folders) in [
        ("/run/a/s", (1001, 0o140777), &fine[..]),
        ("run/a/s", (1000, 0o140600), &fine[..]),
        ("/run/a/s", (1000, 0o140600), &[(1001, 0o40700)]),
        ("/run/a/s", (1000, 0o140600), &[(1000, 0o40700), (1001, 0o40755)]),
        ("/run/a/s", (1000, 0o140600), &[(1000, 0o40700), (0, 0o40777)]),
    ] {
        assert!(matches!(ask(path, socket, folders), Err(Error::Denied { .. })), "{path} {socket:?}");
    }
}

#[test]
fn l30_a_websocket_obeys_the_address_rules() {
    let ask = |url: &str, headers: &[(&str, &str)]| {
        let headers = headers.iter().map(|(k, v)| ((*k).to_owned(), Secret::new(*v))).collect();
        let remote = Remote { url: SecretUrl::new(url.parse().unwrap()), headers };
        Policy::strict().permit_websocket(&name(), &remote, &Origin::Given).map(drop)
    };
    ask("wss://example.com/mcp", &[("Authorization", "Bearer abc")]).unwrap();
    ask("ws://127.0.0.1:1/mcp", &[("Authorization", "Bearer abc")]).unwrap();
    assert!(matches!(ask("ws://10.0.0.1/", &[]), Err(Error::Denied { .. })));
    assert!(matches!(ask("wss://169.254.169.254/", &[]), Err(Error::Denied { .. })));
    let clear = ask("ws://example.com/mcp", &[("Authorization", "Bearer abc")]).unwrap_err();
    assert!(clear.to_string().contains("plain ws"), "{clear}");
    assert!(matches!(ask("https://example.com/", &[]), Err(Error::Config { .. })));
    assert!(matches!(ask("wss://example.com/", &[("Sec-WebSocket-Key", "x")]), Err(Error::Config { .. })));
}

/// A server that answers the modern way, and its tool calls with these frames.
async fn answering(frames: impl Fn(&Value) -> Vec<Frame> + Send + Sync + 'static) -> WsPuppet {
    let frames = Arc::new(frames);
    WsPuppet::acting(Arc::new(move |socket| Box::pin(act(socket, Arc::clone(&frames))))).await
}

async fn act<S: AsyncRead + AsyncWrite + Unpin>(
    mut socket: WebSocketStream<S>,
    frames: Arc<impl Fn(&Value) -> Vec<Frame> + Send + Sync + 'static>,
) {
    while let Some(Ok(message)) = socket.next().await {
        let Message::Text(text) = message else { continue };
        let asked: Value = serde_json::from_str(&text).unwrap();
        let result = match asked["method"].as_str().unwrap_or_default() {
            "server/discover" => {
                json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
            }
            "tools/list" => {
                json!({"resultType": "complete", "tools": [{"name": "echo", "inputSchema": {"type": "object"}}]})
            }
            "tools/call" => {
                for frame in frames(&asked["id"]) {
                    if socket.send(Message::Frame(frame)).await.is_err() {
                        return;
                    }
                }
                continue;
            }
            _ => continue,
        };
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
        socket.send(Message::text(answer.to_string())).await.unwrap();
    }
}

fn good(id: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "result": {"resultType": "complete", "content": [{"type": "text", "text": "fine"}]}})
        .to_string()
}

fn text(text: String) -> Frame {
    Frame::message(text, OpCode::Data(Data::Text), true)
}

async fn called(server: &WsPuppet) -> wharf::outcome::Outcome {
    let host = quick().server(ServerConfig::websocket(name(), &server.url()).unwrap()).start().await.unwrap();
    let outcome = echo(&host).await;
    host.close().await;
    outcome
}

#[tokio::test]
async fn l30_a_message_in_pieces_with_pings_between_is_one_message() {
    let server = answering(|id| {
        let all = good(id);
        let (a, b) = all.split_at(20);
        vec![
            Frame::ping("are you there"),
            Frame::message(a.to_owned(), OpCode::Data(Data::Text), false),
            Frame::ping("still"),
            Frame::message(b.to_owned(), OpCode::Data(Data::Continue), true),
        ]
    })
    .await;
    assert_eq!(called(&server).await.to_text(), "fine");
}

#[tokio::test]
async fn l30_frames_against_the_rules_end_the_connection_with_a_protocol_error() {
    type Making = fn(&Value) -> Vec<Frame>;
    let wrong: [(&str, Making); 4] = [
        ("binary", |id| vec![Frame::message(good(id), OpCode::Data(Data::Binary), true)]),
        ("UTF-8", |_| vec![Frame::message(&b"{\"\xff\xfe\"}"[..], OpCode::Data(Data::Text), true)]),
        ("protocol", |id| vec![Frame::message(good(id), OpCode::Data(Data::Continue), true)]),
        ("protocol", |id| {
            let mut masked = text(good(id));
            masked.header_mut().mask = Some([1, 2, 3, 4]);
            vec![masked]
        }),
    ];
    for (why, frames) in wrong {
        let server = answering(frames).await;
        let outcome = called(&server).await;
        let Error::Protocol { reason, .. } = error(&outcome) else { panic!("{why}: {outcome:?}") };
        assert!(reason.to_lowercase().contains(&why.to_lowercase()), "expected `{why}` in: {reason}");
    }
    let server = answering(|id| vec![text(good(id))]).await;
    assert_eq!(called(&server).await.to_text(), "fine");
}

#[tokio::test]
async fn l30_a_websocket_in_tls_is_trusted_by_its_certificate() {
    // Whoever offers HTTP/2 first must still be asked for HTTP/1.1, which alone can become a WebSocket.
    let (acceptor, pem) = crate::net::tls_acceptor("localhost", false, &[b"h2", b"http/1.1"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("wss://localhost:{}/mcp", listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let socket = tokio_tungstenite::accept_async(stream).await.unwrap();
                act(socket, Arc::new(|id: &Value| vec![text(good(id))])).await;
            });
        }
    });
    let config = ServerConfig::websocket(name(), &url).unwrap();
    let stranger = connecting(config.clone()).await.unwrap_err();
    assert!(stranger.to_string().contains("no trusted TLS connection"), "{stranger}");
    let trusting = NetOptions { extra_roots: vec![pem], ..NetOptions::default() };
    let host = quick().net(trusting).server(config).start().await.unwrap();
    assert_eq!(echo(&host).await.to_text(), "fine");
    host.close().await;
}

/// A server that finds its era, counts the pings it gets, and in time stops to listen.
async fn pinged(pings: Arc<AtomicUsize>, deaf_after: usize) -> WsPuppet {
    WsPuppet::acting(Arc::new(move |mut socket| {
        let pings = Arc::clone(&pings);
        Box::pin(async move {
            while pings.load(Ordering::SeqCst) < deaf_after {
                match socket.next().await {
                    Some(Ok(Message::Ping(_))) => drop(pings.fetch_add(1, Ordering::SeqCst)),
                    Some(Ok(Message::Text(text))) => {
                        let asked: Value = serde_json::from_str(&text).unwrap();
                        let found = json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}});
                        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": found});
                        socket.send(Message::text(answer.to_string())).await.unwrap();
                    }
                    Some(Ok(_)) => {}
                    _ => return,
                }
            }
            std::future::pending::<()>().await;
        })
    }))
    .await
}

#[tokio::test]
async fn l30_a_quiet_connection_is_kept_and_a_dead_one_is_given_up() {
    let pings = Arc::new(AtomicUsize::new(0));
    let server = pinged(Arc::clone(&pings), 8).await;
    let config = ServerConfig::websocket(name(), &server.url()).unwrap();
    let host = quick().server(config).start().await.unwrap();
    let connection = soon("connecting", host.berth("pup").unwrap().connect()).await.unwrap();
    tokio::time::pause();
    let mut waited = 0;
    while connection.is_open() && waited < 1000 {
        tokio::time::advance(Duration::from_secs(10)).await;
        waited += 10;
        // The pings and their answers travel through real sockets, which are looked at now and then.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(pings.load(Ordering::SeqCst), 8, "it was asked every half minute while it answered");
    // Eight answers, half a minute and at most a step apart, and two minutes of silence.
    assert!((240..=480).contains(&waited), "it was given up after {waited} s");
    tokio::time::resume();
    host.close().await;
}

#[tokio::test]
async fn l30_a_servers_goodbye_is_answered() {
    let (heard, mut told) = tokio::sync::mpsc::unbounded_channel();
    let server = WsPuppet::acting(Arc::new(move |mut socket| {
        let heard = heard.clone();
        Box::pin(async move {
            let Some(Ok(Message::Text(text))) = socket.next().await else { return };
            let asked: Value = serde_json::from_str(&text).unwrap();
            let found =
                json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}});
            let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": found});
            socket.send(Message::text(answer.to_string())).await.unwrap();
            socket.close(None).await.unwrap();
            while let Some(frame) = socket.next().await {
                if !matches!(frame, Ok(Message::Text(_) | Message::Ping(_))) {
                    let _ = heard.send(frame.map_err(|error| error.to_string()));
                }
            }
        })
    }))
    .await;
    let config = ServerConfig::websocket(name(), &server.url()).unwrap();
    let host = quick().server(config).start().await.unwrap();
    soon("connecting", host.berth("pup").unwrap().connect()).await.unwrap();
    let goodbye = soon("a goodbye", told.recv()).await;
    assert!(matches!(goodbye, Some(Ok(Message::Close(_)))), "{goodbye:?}");
    host.close().await;
}

/// A server that answers the first request on each connection with these bytes.
async fn answering_with(head: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer).await;
            let _ = stream.write_all(head.as_bytes()).await;
        }
    });
    format!("ws://{at}/mcp")
}

#[tokio::test]
async fn l30_an_answer_that_is_no_upgrade_is_told_as_what_it_is() {
    const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n";
    let lying: &'static str = Box::leak(
        format!("{SWITCH}upgrade: websocket\r\nsec-websocket-accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n")
            .into_boxed_str(),
    );
    let other: &'static str = Box::leak(format!("{SWITCH}upgrade: h2c\r\n\r\n").into_boxed_str());
    for (head, kind, why) in [
        ("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n", "auth", "401"),
        ("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "connection", "404"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", "connection", "200"),
        (
            "HTTP/1.1 302 Found\r\nlocation: ws://169.254.169.254/\r\ncontent-length: 0\r\n\r\n",
            "denied",
            "redirects",
        ),
        (lying, "connection", "key"),
        (other, "connection", "another protocol"),
    ] {
        let url = answering_with(head).await;
        let failure = connecting(ServerConfig::websocket(name(), &url).unwrap()).await.unwrap_err();
        assert_eq!(failure.kind(), kind, "{failure}");
        assert!(failure.to_string().contains(why), "expected `{why}` in: {failure}");
    }
}
