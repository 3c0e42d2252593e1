//! Requests as they are written, and bodies that are read into one place.

use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Uri};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::connector;
use crate::net::NetError;
use crate::net::ask::{Address, Ask, Preset};
use crate::net::pool::{Limits, Pool};
use crate::policy::Policy;

const NAME: HeaderName = HeaderName::from_static("mcp-name");

fn preset(headers: &[(HeaderName, &'static str)]) -> Preset {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(name, HeaderValue::from_static(value));
    }
    Preset::new(map)
}

fn written(
    method: &Method,
    preset: &Preset,
    own: &[(HeaderName, &'static str)],
    body: &'static str,
) -> String {
    let own: Vec<_> =
        own.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect();
    let address = Address::new("http://here:1?a=b".parse().unwrap());
    let mut out = Vec::new();
    let ask = Ask { method, preset, own: &own, body: &Bytes::from_static(body.as_bytes()) };
    ask.write_head(&mut out, &address, &HeaderValue::from_static("here:1"));
    String::from_utf8(out).unwrap()
}

#[test]
fn what_is_a_requests_own_stands_in_place_of_what_all_say() {
    let shared = preset(&[(AUTHORIZATION, "all"), (CONNECTION, "close"), (CONTENT_LENGTH, "7")]);
    let begin = "POST /?a=b HTTP/1.1\r\nhost: here:1\r\n";
    assert_eq!(
        written(&Method::POST, &shared, &[(NAME, "x")], "{}"),
        format!("{begin}authorization: all\r\nmcp-name: x\r\ncontent-length: 2\r\n\r\n")
    );
    assert_eq!(
        written(&Method::POST, &shared, &[(NAME, "x"), (AUTHORIZATION, "own"), (NAME, "y")], ""),
        format!("{begin}authorization: own\r\nmcp-name: y\r\ncontent-length: 0\r\n\r\n")
    );
    assert_eq!(
        written(&Method::GET, &preset(&[(HOST, "there")]), &[], ""),
        "GET /?a=b HTTP/1.1\r\nhost: there\r\n\r\n"
    );
    assert_eq!(
        written(&Method::DELETE, &shared, &[(HOST, "there")], ""),
        "DELETE /?a=b HTTP/1.1\r\nauthorization: all\r\nhost: there\r\n\r\n"
    );
}

#[test]
fn what_requests_share_is_not_shown() {
    let shown = format!("{:?}", preset(&[(AUTHORIZATION, "canary")]));
    assert!(shown.contains("Preset") && !shown.contains("canary"), "{shown}");
}

#[tokio::test]
async fn exh_01_a_body_of_known_length_is_read_up_to_its_limit() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let uri: Uri = format!("http://{}/mcp", listener.local_addr().unwrap()).parse().unwrap();
    let lengths = [0, 1, 4000, 4096, 70_000, (1 << 20) + 1, 3_000_000];
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        for length in lengths {
            stream.read_exact(&mut [0; 20]).await.unwrap();
            while stream.read_u8().await.unwrap() != b'}' {}
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            let body: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let (one, two) = body.split_at(length / 3);
            // The last one is not taken.
            let _ = stream.write_all(one).await;
            tokio::task::yield_now().await;
            let _ = stream.write_all(two).await;
        }
    });
    let (connector, _) = connector(&Policy::strict(), &uri.to_string(), vec![vec![]]);
    let pool = Pool::new(connector, uri.clone(), Limits { idle: 1, age: Duration::from_secs(90) });
    let (preset, body) = (Preset::default(), Bytes::from_static(b"{}"));
    let ask = Ask { method: &Method::POST, preset: &preset, own: &[], body: &body };
    for (at, length) in lengths.into_iter().enumerate() {
        let answer = pool.send(&Address::new(uri.clone()), &ask).await.unwrap();
        let is_last = at == lengths.len() - 1;
        match answer.body.read(if is_last { length - 1 } else { length }).await {
            Ok(read) => assert!(
                !is_last
                    && (0..length).eq(read.iter().enumerate().map(|(at, byte)| {
                        assert_eq!(*byte, (at % 251) as u8);
                        at
                    }))
            ),
            Err(error) => assert!(is_last && matches!(error, NetError::TooLarge { .. }), "{error}"),
        }
        assert_eq!(pool.resting(), usize::from(!is_last), "{length}");
    }
}
