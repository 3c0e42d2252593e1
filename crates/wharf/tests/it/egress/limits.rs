//! The bounds of the proxy, and its end.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use wharf::event::{Bus, Reached};
use wharf::names::ServerName;
use wharf::policy::EgressRules;
use wharf::sandbox::egress::{Egress, EgressOptions};

use super::{Page, Wall, answer, private_folder, status};
use crate::support::soon;

async fn ends(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Vec<u8> {
    let mut rest = Vec::new();
    let _ = soon("the end of a connection", stream.read_to_end(&mut rest)).await;
    rest
}

#[tokio::test]
async fn l17_so_many_connections_and_no_more() {
    let page = Page::open().await;
    let mut wall = Wall::limited(&[&page.localhost()], |limits| limits.connections = 2);
    let (first, said) = wall.tunnel(&page.localhost()).await;
    assert_eq!(status(&said), 200);
    let (_second, said) = wall.tunnel(&page.localhost()).await;
    assert_eq!(status(&said), 200);
    let said = wall.get(&page.localhost()).await;
    assert!(status(&said) == 503 && said.contains("2 connections already"), "{said}");
    assert_eq!(page.accepted(), 2);
    assert!(matches!(wall.told().last(), Some((.., Reached::Refused(_)))));
    drop(first);
    let Reached::Closed { .. } = wall.next().await else { panic!("it did not end") };
    // The place is free a moment after the end was told.
    soon("a free place", async { while status(&wall.get(&page.localhost()).await) != 200 {} }).await;
}

#[tokio::test]
async fn l17_the_head_of_a_request_is_bounded() {
    let page = Page::open().await;
    let wall = Wall::limited(&[&page.localhost()], |limits| limits.head = 16 * 1024);
    let here = page.localhost();
    let with = |bytes: usize| {
        let head = format!("GET http://{here}/ HTTP/1.1\r\nHost: {here}\r\nX: ");
        let fill = bytes - head.len() - 4;
        format!("{head}{}\r\n\r\n", "x".repeat(fill))
    };
    assert_eq!(status(&wall.say(with(15 * 1024)).await), 200);
    let mut stream = wall.connect().await;
    // The proxy may have closed before everything is written.
    let _ = stream.write_all(with(64 * 1024).as_bytes()).await;
    assert!(matches!(status(&answer(&mut stream).await), 431 | 0));
    assert_eq!(page.accepted(), 1);
}

#[tokio::test(start_paused = true)]
async fn l17_a_head_that_does_not_come_is_not_waited_for() {
    let wall = Wall::around(&[]);
    let mut stream = wall.connect().await;
    stream.write_all(b"CONNECT exa").await.unwrap();
    let began = tokio::time::Instant::now();
    ends(&mut stream).await;
    assert!(began.elapsed() >= Duration::from_secs(30), "{:?}", began.elapsed());
}

#[tokio::test]
async fn l17_a_tunnel_that_stays_silent_is_cut() {
    let page = Page::open().await;
    let idle = Duration::from_millis(500);
    let wall = Wall::limited(&[&page.localhost()], |limits| limits.idle = idle);
    let (mut stream, _) = wall.tunnel(&page.localhost()).await;
    let began = std::time::Instant::now();
    while began.elapsed() < idle * 5 / 2 {
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        assert_eq!(status(&answer(&mut stream).await), 200, "while there is talk it stays");
    }
    assert!(ends(&mut stream).await.is_empty());
}

#[tokio::test]
async fn l17_a_tunnel_that_never_begins_is_cut() {
    let page = Page::open().await;
    let mut wall = Wall::limited(&[&page.localhost()], |limits| limits.opening = Duration::from_millis(100));
    let (mut stream, said) = wall.tunnel(&page.localhost()).await;
    assert_eq!(status(&said), 200);
    assert!(ends(&mut stream).await.is_empty());
    assert_eq!(wall.next().await, Reached::Opened);
    assert!(matches!(wall.next().await, Reached::Refused(_)));
    assert_eq!(wall.next().await, Reached::Closed { sent: 0, received: 0 });
}

#[tokio::test]
async fn l17_a_host_that_speaks_first_is_heard() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = format!("localhost:{}", listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"220 ahoy\r\n").await.unwrap();
        let mut said = [0; 4];
        stream.read_exact(&mut said).await.unwrap();
        stream.write_all(&said).await.unwrap();
    });
    let wall = Wall::around(&[&authority]);
    let (mut stream, _) = wall.tunnel(&authority).await;
    let mut greeting = [0; 10];
    soon("a greeting", stream.read_exact(&mut greeting)).await.unwrap();
    stream.write_all(b"EHLO").await.unwrap();
    assert_eq!(ends(&mut stream).await, b"EHLO");
}

#[tokio::test]
async fn l17_when_the_proxy_goes_everything_goes() {
    let page = Page::open().await;
    let wall = Wall::around(&[&page.localhost()]);
    let (mut stream, said) = wall.tunnel(&page.localhost()).await;
    assert_eq!(status(&said), 200);
    let path = wall.path();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let Wall { egress, mut events, folder } = wall;
    drop(egress);
    assert!(!path.exists());
    assert!(ends(&mut stream).await.is_empty());
    let mut last = None;
    soon("the last event", async {
        while let Ok(event) = events.recv().await {
            last = Some(event);
        }
    })
    .await;
    assert!(format!("{last:?}").contains("Closed"), "{last:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn l17_only_a_folder_of_our_own_is_listened_in() {
    let listen = |folder: &tempfile::TempDir| {
        let server = ServerName::parse("boat").unwrap();
        let options = EgressOptions::new(server, EgressRules::default(), Bus::default());
        Egress::listen(&folder.path().join("egress"), options)
    };
    let folder = private_folder();
    for mode in [0o755, 0o770, 0o701] {
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        let error = listen(&folder).unwrap_err();
        assert!(error.to_string().contains("not ours alone"), "{error}");
    }
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let first = listen(&folder).unwrap();
    assert!(listen(&folder).is_err(), "another one listens there");
    drop(first);
    assert!(listen(&folder).is_ok());
}
