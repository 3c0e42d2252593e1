//! Who is let in at the gateway's sockets, and what is turned away.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use futures_util::{SinkExt as _, StreamExt as _};
use http::StatusCode;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::{WebSocketStream, tungstenite};
use wharf::Host;
use wharf::gateway::{Callers, GatewayBuilder, Key, UnixDoor};
use wharf::names::CallerName;

use super::Through;
use super::served::Served;
use crate::gateway::modern_body;
use crate::support::{at, folder, soon};

const KEY: &str = "wharf_0123456789abcdef0123456789abcdef";

async fn ws(with: impl FnOnce(GatewayBuilder) -> GatewayBuilder) -> Served {
    Served::start(Through::Ws, Host::builder().start().await.unwrap(), with).await
}

/// Asks for a WebSocket with further headers.
async fn knock(
    served: &Served,
    more: &[(&'static str, &str)],
) -> Result<(WebSocketStream<TcpStream>, http::HeaderMap), StatusCode> {
    let stream = TcpStream::connect(&served.url[5..served.url.len() - 4]).await.unwrap();
    let mut request = served.url.as_str().into_client_request().unwrap();
    for (name, value) in more {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    match tokio_tungstenite::client_async(request, stream).await {
        Ok((socket, response)) => Ok((socket, response.headers().clone())),
        Err(tungstenite::Error::Http(response)) => Err(response.status()),
        Err(error) => panic!("{error}"),
    }
}

async fn works(socket: &mut WebSocketStream<TcpStream>) -> bool {
    let ask = modern_body("server/discover", json!({})).to_string();
    socket.send(Message::text(ask)).await.unwrap();
    matches!(soon("an answer", socket.next()).await, Some(Ok(Message::Text(text))) if text.contains("2026-07-28"))
}

/// The code that a connection is closed with.
async fn closed_with(socket: &mut WebSocketStream<TcpStream>) -> u16 {
    loop {
        match soon("the end", socket.next()).await {
            Some(Ok(Message::Close(Some(why)))) => return why.code.into(),
            Some(Ok(_)) => {}
            other => panic!("it ended without a word: {other:?}"),
        }
    }
}

#[tokio::test]
async fn l30_an_upgrade_is_guarded_like_any_request() {
    let served = ws(|b| b.origins(["https://app.example.org".to_owned()])).await;
    for evil in ["https://evil.com", "null", "http://127.0.0.1.evil.com"] {
        assert_eq!(knock(&served, &[("origin", evil)]).await.err(), Some(StatusCode::FORBIDDEN), "{evil}");
    }
    assert_eq!(knock(&served, &[("host", "evil.com")]).await.err(), Some(StatusCode::FORBIDDEN));
    let (mut allowed, _) = knock(&served, &[("origin", "https://app.example.org")]).await.unwrap();
    assert!(works(&mut allowed).await, "the twin: a page that is allowed");

    let key = Key::new(CallerName::parse("ann").unwrap(), Key::hash(KEY));
    let keyed = ws(|b| b.callers(Callers::default().keys([key]))).await;
    assert_eq!(knock(&keyed, &[]).await.err(), Some(StatusCode::UNAUTHORIZED));
    let wrong = knock(&keyed, &[("authorization", "Bearer wrong")]).await;
    assert_eq!(wrong.err(), Some(StatusCode::UNAUTHORIZED));
    let (mut ann, _) = knock(&keyed, &[("authorization", &format!("Bearer {KEY}"))]).await.unwrap();
    assert!(works(&mut ann).await);
}

#[tokio::test]
async fn l30_the_upgrade_follows_its_rules() {
    let served = ws(|b| b).await;
    let (_, told) = knock(&served, &[("sec-websocket-protocol", "other, mcp")]).await.unwrap();
    assert_eq!(told["sec-websocket-protocol"], "mcp");
    let compressed = ("sec-websocket-extensions", "permessage-deflate");
    let (mut plain, told) = knock(&served, &[compressed]).await.unwrap();
    assert!(!told.contains_key("sec-websocket-protocol") && !told.contains_key("sec-websocket-extensions"));
    assert!(works(&mut plain).await);
    assert_eq!(
        knock(&served, &[("sec-websocket-version", "8")]).await.err(),
        Some(StatusCode::UPGRADE_REQUIRED)
    );
    assert_eq!(knock(&served, &[("sec-websocket-key", "short")]).await.err(), Some(StatusCode::BAD_REQUEST));
    assert_eq!(
        knock(&served, &[("upgrade", "h2c")]).await.err(),
        Some(StatusCode::BAD_REQUEST),
        "what is no WebSocket is a GET like any other"
    );
}

#[tokio::test]
async fn l30_a_frame_of_the_limit_is_taken_and_one_more_byte_is_not() {
    let limit = 50_000;
    let served = ws(|b| b.largest_request(limit)).await;
    for (bytes, fits) in [(limit - 1, true), (limit, true), (limit + 1, false), (40 * limit, false)] {
        let (mut socket, _) = knock(&served, &[]).await.unwrap();
        let empty = modern_body("server/discover", json!({"pad": ""})).to_string();
        let pad = "x".repeat(bytes - empty.len());
        let message = modern_body("server/discover", json!({"pad": pad})).to_string();
        assert_eq!(message.len(), bytes);
        let _ = socket.send(Message::text(message)).await;
        if fits {
            let answer = soon("an answer", socket.next()).await.unwrap().unwrap();
            assert!(answer.to_text().unwrap().contains("2026-07-28"), "{bytes}");
        } else if bytes == limit + 1 {
            assert_eq!(closed_with(&mut socket).await, 1009, "{bytes}");
        } else {
            // What was not read may take the goodbye with it.
            while let Some(Ok(frame)) = soon("the end", socket.next()).await {
                assert!(!frame.is_text(), "{bytes}");
            }
        }
    }
    let (mut pieces, _) = knock(&served, &[]).await.unwrap();
    for n in 0..3 {
        let kind = if n == 0 { Data::Text } else { Data::Continue };
        let part = Frame::message("x".repeat(limit / 2), OpCode::Data(kind), false);
        let _ = pieces.send(Message::Frame(part)).await;
    }
    assert_eq!(closed_with(&mut pieces).await, 1009, "the pieces together are too large");
}

#[tokio::test]
async fn l30_frames_of_callers_follow_the_rules() {
    let served = ws(|b| b).await;
    let (mut socket, _) = knock(&served, &[]).await.unwrap();
    let ask = modern_body("server/discover", json!({})).to_string();
    let (a, b) = ask.split_at(9);
    for (part, kind, last) in [(a, Data::Text, false), (b, Data::Continue, true)] {
        let frame = Frame::message(part.to_owned(), OpCode::Data(kind), last);
        socket.send(Message::Frame(frame)).await.unwrap();
        if !last {
            socket.send(Message::Ping("there?".into())).await.unwrap();
        }
    }
    let pong = soon("a pong", socket.next()).await.unwrap().unwrap();
    assert!(matches!(pong, Message::Pong(said) if said == "there?"), "between the pieces");
    let answer = soon("an answer", socket.next()).await.unwrap().unwrap();
    assert!(answer.to_text().unwrap().contains("2026-07-28"), "a message in pieces is one message");

    socket.send(Message::binary(ask.clone())).await.unwrap();
    assert_eq!(closed_with(&mut socket).await, 1003, "binary frames are not text");

    let head = |version: &str, fields: &str| {
        format!(
            "GET /mcp HTTP/{version}\r\nhost: localhost\r\nconnection: keep-alive, Upgrade\r\nupgrade: WebSocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{fields}\r\n"
        )
    };
    let address = &served.url[5..served.url.len() - 4];
    // What follows would be a body to some, and frames to others.
    for (version, fields) in
        [("1.1", "content-length: 5\r\n"), ("1.1", "transfer-encoding: chunked\r\n"), ("1.0", "")]
    {
        let mut raw = TcpStream::connect(address).await.unwrap();
        raw.write_all(head(version, fields).as_bytes()).await.unwrap();
        let mut all = String::new();
        soon("the end", raw.read_to_string(&mut all)).await.unwrap();
        assert!(all.starts_with("HTTP/1.1 400 "), "{fields}: {all}");
    }
    // The last three are goodbyes, which are answered by the same.
    for (bytes, code, words) in [
        (&b"\x81\x02{}"[..], 1002_u16, "protocol"),
        (b"\x81\x82\0\0\0\0\xff\xfe", 1007, "UTF-8"),
        (b"\x88\x82\0\0\0\0\x03\xe8", 1000, ""),
        (b"\x88\x85\0\0\0\0\x03\xe9bye", 1001, "bye"),
        (b"\x88\x80\0\0\0\0", 0, ""),
    ] {
        let mut raw = TcpStream::connect(address).await.unwrap();
        raw.write_all(head("1.1", "").as_bytes()).await.unwrap();
        raw.write_all(bytes).await.unwrap();
        let mut all = Vec::new();
        soon("the end", raw.read_to_end(&mut all)).await.unwrap();
        let text = String::from_utf8_lossy(&all);
        assert!(text.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "the example of RFC 6455: {text}");
        let frame = &all[all.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4..];
        assert_eq!(frame[0], 0x88, "{code}: {frame:?}");
        assert_eq!(usize::from(frame[1]), frame.len() - 2, "one frame and no more: {frame:?}");
        if code > 0 {
            assert_eq!(frame[2..4], code.to_be_bytes(), "{frame:?}");
            let reason = String::from_utf8_lossy(&frame[4..]);
            assert!(reason.contains(words), "expected `{words}` in: {reason}");
        }
    }
}

#[tokio::test]
async fn l30_the_gateways_socket_is_ours_alone_and_goes_with_it() {
    let files = folder();
    let path = files.path().join("new").join("s");
    let door = UnixDoor::bind(&path).await.unwrap();
    let mode = |path: &std::path::Path| path.symlink_metadata().unwrap().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    let taken = UnixDoor::bind(&path).await.unwrap_err();
    assert!(taken.to_string().contains("somebody listens there already"), "{taken}");
    drop(door);
    assert!(!path.exists());

    // Left behind by one that was killed: nobody listens.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let door = UnixDoor::bind(&path).await.unwrap();
    assert!(UnixStream::connect(&path).await.is_ok());
    // What somebody else put in its place is not removed.
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "not a socket").unwrap();
    drop(door);
    assert!(path.exists());
    let other = UnixDoor::bind(&path).await.unwrap_err();
    assert!(other.to_string().contains("not a socket"), "{other}");
    assert_eq!(std::fs::read(&path).unwrap(), b"not a socket");
}

#[tokio::test]
async fn l30_the_gateways_socket_is_not_made_where_others_could_replace_it() {
    let files = folder();
    let open = at(&files, "open");
    std::fs::create_dir(&open).unwrap();
    for mode in [0o777, 0o1777, 0o770] {
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(mode)).unwrap();
        let refused = UnixDoor::bind(&open.join("s")).await.unwrap_err();
        assert!(refused.to_string().contains("others can write to the folder"), "{refused}");
        assert!(refused.hint().is_some() && !open.join("s").exists());
    }
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
    symlink(at(&files, "elsewhere"), open.join("s")).unwrap();
    assert!(UnixDoor::bind(&open.join("s")).await.is_err(), "a link is not a socket");
    std::fs::remove_file(open.join("s")).unwrap();
    drop(UnixDoor::bind(&open.join("s")).await.unwrap());
    assert!(UnixDoor::bind("relative/s".as_ref()).await.is_err());
}

#[tokio::test]
async fn l30_a_line_of_more_than_the_limit_is_refused_and_the_next_one_is_heard() {
    let limit = 50_000;
    let host = Host::builder().start().await.unwrap();
    let served = Served::start(Through::Unix, host, |b| b.largest_request(limit)).await;
    let mut caller = served.raw().await;
    for (bytes, fits) in [(limit - 1, true), (limit, true), (limit + 1, false), (9 * limit, false)] {
        let empty = modern_body("server/discover", json!({"pad": ""})).to_string();
        let message =
            modern_body("server/discover", json!({"pad": "x".repeat(bytes - empty.len())})).to_string();
        caller.say(&message).await;
        let told = caller.hear().await.unwrap();
        assert_eq!((told["result"].is_object(), &told["id"]), (fits, &json!(7)), "{bytes}: {told}");
    }
    caller.say(&modern_body("server/discover", json!({})).to_string()).await;
    assert!(caller.hear().await.unwrap()["result"].is_object());
}
