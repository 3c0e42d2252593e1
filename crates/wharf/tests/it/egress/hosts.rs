//! Who is reached, who is not, and what is told of it.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use wharf::event::Reached;

use super::{Page, Wall, answer, answering, status};
use crate::support::soon;

#[tokio::test]
async fn l17_a_listed_host_is_reached_both_ways() {
    let page = Page::open().await;
    let mut wall = Wall::around(&[&page.localhost()]);
    let got = wall.get(&page.localhost()).await;
    assert!(got.ends_with("\r\n\r\ntide"), "{got}");
    assert!(
        got.contains("x-two: 2") && !got.contains("x-one"),
        "what is the connection's own stays there: {got}"
    );
    let (rule, host) = (Some(page.localhost()), "localhost".to_owned());
    let Reached::Opened = wall.next().await else { panic!("it was not told that it opened") };
    let Reached::Closed { sent, received } = wall.next().await else { panic!("nor that it ended") };
    assert!(sent > 20 && received > 40, "{sent} {received}");

    let (mut stream, said) = wall.tunnel(&page.localhost()).await;
    assert_eq!(status(&said), 200, "{said}");
    stream.write_all(b"GET / HTTP/1.1\r\nhost: whoever\r\n\r\n").await.unwrap();
    assert!(answer(&mut stream).await.ends_with("tide"));
    let told = wall.told();
    assert_eq!(told, [(host.clone(), page.port, rule.clone(), Reached::Opened)]);
    drop(stream);
    let Reached::Closed { sent: 33, received } = wall.next().await else {
        panic!("it is not told how it ended")
    };
    assert!(received > 40);
    assert_eq!(page.accepted(), 2);
}

#[tokio::test]
async fn sbx_05_a_host_that_is_not_listed_is_refused_with_the_line_to_add() {
    let page = Page::open().await;
    let mut wall = Wall::around(&["other.example"]);
    let lines = [
        (page.localhost(), format!("sandbox.domains = [\"localhost:{}\"]", page.port)),
        ("api.example.com:443".into(), "sandbox.domains = [\"api.example.com\"]".into()),
        ("api.example.com:8443".into(), "sandbox.domains = [\"api.example.com:8443\"]".into()),
    ];
    for (authority, line) in &lines {
        for said in [wall.tunnel(authority).await.1, wall.get(authority).await] {
            assert_eq!(status(&said), 403, "{said}");
            assert!(said.contains(line) && said.contains("server `boat`"), "{said}");
            assert!(said.to_lowercase().contains("content-type: text/plain"), "{said}");
        }
    }
    let told = wall.told();
    assert_eq!(told.len(), 6);
    assert!(
        told.iter().all(|(_, _, rule, reached)| rule.is_none() && matches!(reached, Reached::Refused(_)))
    );
    assert_eq!((told[2].0.as_str(), told[2].1), ("api.example.com", 443));
    assert_eq!(page.accepted(), 0);
}

#[tokio::test]
async fn sbx_05_an_empty_list_means_nobody() {
    let page = Page::open().await;
    let wall = Wall::around(&[]);
    assert_eq!(status(&wall.get(&page.localhost()).await), 403);
    assert_eq!(status(&wall.tunnel(&page.localhost()).await.1), 403);
    assert_eq!(page.accepted(), 0);
    let open = Wall::around(&[&page.localhost()]);
    assert_eq!(status(&open.get(&page.localhost()).await), 200);
}

#[tokio::test]
async fn sbx_05_the_host_in_the_header_is_the_host_of_the_request() {
    let page = Page::open().await;
    let wall = Wall::around(&[&page.localhost(), "allowed.example"]);
    let here = page.localhost();
    let bad = [
        format!("GET http://{here}/ HTTP/1.1\r\nHost: allowed.example\r\n\r\n"),
        format!("GET http://{here}/ HTTP/1.1\r\nHost: evil.example\r\n\r\n"),
        format!("GET http://{here}/ HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        format!("GET http://{here}/ HTTP/1.1\r\nHost: {here}\r\nHost: evil.example\r\n\r\n"),
        format!("GET http://{here}/ HTTP/1.1\r\nHost: {here}\r\nHost: {here}\r\n\r\n"),
        format!("GET http://{here}/ HTTP/1.1\r\nHost: {here}, evil.example\r\n\r\n"),
        format!("GET http://{here}/ HTTP/1.1\r\nHost: x@{here}\r\n\r\n"),
        format!("GET http://{here}/ HTTP/1.1\r\n\r\n"),
        format!("CONNECT {here} HTTP/1.1\r\nHost: evil.example\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nHost: {here}\r\n\r\n"),
        format!("GET https://{here}/ HTTP/1.1\r\nHost: {here}\r\n\r\n"),
        format!("GET ftp://{here}/ HTTP/1.1\r\nHost: {here}\r\n\r\n"),
        format!("GET //{here}/ HTTP/1.1\r\nHost: {here}\r\n\r\n"),
    ];
    for request in &bad {
        let said = wall.say(request).await;
        assert_eq!(status(&said), 400, "{request}: {said}");
    }
    assert_eq!(page.accepted(), 0);
    let good = [
        format!("GET http://{here}/ HTTP/1.1\r\nHost: {here}\r\n\r\n"),
        format!("GET http://{here}/ HTTP/1.1\r\nhOsT: LocalHost:{}\r\n\r\n", page.port),
        format!("GET http://{here}/ HTTP/1.0\r\n\r\n"),
        format!("CONNECT {here} HTTP/1.1\r\n\r\n"),
        format!("CONNECT {here} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ];
    for request in &good {
        let said = wall.say(request).await;
        assert_eq!(status(&said), 200, "{request}: {said}");
    }
}

#[tokio::test]
async fn sbx_05_what_a_host_hears_is_one_request_with_one_length() {
    let page = Page::open().await;
    let wall = Wall::around(&[&page.localhost()]);
    let here = page.localhost();
    let head = format!("POST http://{here}/a?b HTTP/1.1\r\nHost: {here}\r\n");
    let inner = "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    for (lengths, body) in [
        ("Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 6\r\n", "0\r\n\r\n"),
        ("Content-Length: 3\r\nContent-Length: 60\r\n", "abc"),
        ("Transfer-Encoding: x, chunked\r\nContent-Length: 3\r\n", "abc"),
        ("Transfer-Encoding: identity\r\nContent-Length: 3\r\n", "abc"),
        ("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"),
        ("Content-Length: +3\r\n", "abc"),
        ("X: a\r\n Content-Length: 3\r\n", "abc"),
    ] {
        let said = wall.say(format!("{head}{lengths}\r\n{body}{inner}")).await;
        let heard = page.heard().to_lowercase();
        assert!(!heard.contains("evil"), "{lengths}: {heard} {said}");
        assert!(
            !(heard.contains("content-length") && heard.contains("transfer-encoding")),
            "{lengths}: {heard}"
        );
    }
    let said = wall.say(format!("{head}Proxy-Authorization: x\r\nConnection: x-a\r\nX-A: 1\r\nX-B: 2\r\nContent-Length: 4\r\n\r\nover")).await;
    assert_eq!(status(&said), 200, "{said}");
    let heard = page.heard().to_lowercase();
    assert!(heard.starts_with("post /a?b http/1.1\r\n"), "{heard}");
    assert!(heard.contains("x-b: 2") && heard.ends_with("\r\n\r\nover"), "{heard}");
    assert!(!heard.contains("proxy") && !heard.contains("x-a"), "{heard}");
}

#[tokio::test]
async fn sbx_05_each_request_of_a_connection_is_judged() {
    let page = Page::open().await;
    let wall = Wall::around(&[&page.localhost()]);
    let here = page.localhost();
    let mut stream = wall.connect().await;
    for (host, expected) in [(here.as_str(), 200), ("evil.example", 403), (here.as_str(), 200)] {
        let request = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(status(&answer(&mut stream).await), expected, "{host}");
    }
    assert_eq!(page.accepted(), 2);
}

#[tokio::test]
async fn sbx_06_a_relay_in_between_changes_nothing() {
    let page = Page::open().await;
    let wall = Wall::around(&[&page.localhost()]);
    let relay = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, path) = (relay.local_addr().unwrap(), wall.path());
    tokio::spawn(async move {
        while let Ok((mut inner, _)) = relay.accept().await {
            let mut outer = UnixStream::connect(&path).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut inner, &mut outer).await });
        }
    });
    for (host, expected) in [(page.localhost().as_str(), "200"), ("evil.example:443", "403")] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(format!("CONNECT {host} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
        let mut start = [0; 12];
        soon("an answer", stream.read_exact(&mut start)).await.unwrap();
        assert!(String::from_utf8_lossy(&start).ends_with(expected), "{host}");
    }
}

#[tokio::test]
async fn sbx_06_a_tunnel_leads_to_its_own_host() {
    let page = Page::open().await;
    let wall = Wall::around(&["localhost:80", &page.localhost()]);
    for (inside, expected) in [
        ("CONNECT evil.example:443 HTTP/1.1\r\n\r\n".to_owned(), 403),
        (format!("CONNECT {} HTTP/1.1\r\n\r\n", page.localhost()), 403),
        ("GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(), 403),
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("\x16\x03\x01\x00\x05hello".to_owned(), 400),
    ] {
        let (mut stream, said) = wall.tunnel("localhost:80").await;
        assert_eq!(status(&said), 200, "{said}");
        stream.write_all(inside.as_bytes()).await.unwrap();
        let said = answer(&mut stream).await;
        assert_eq!(status(&said), expected, "{inside}: {said}");
    }
    assert_eq!(page.accepted(), 0);
    let (mut stream, _) = wall.tunnel(&page.localhost()).await;
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert_eq!(status(&answer(&mut stream).await), 200);
}

#[tokio::test]
async fn ssrf_05_what_an_allowed_name_stands_for_is_judged() {
    let page = Page::open().await;
    let rules = [format!("allowed.example:{}", page.port), page.localhost()];
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    for (address, kind) in [
        ("127.0.0.1", "a loopback address"),
        ("::1", "a loopback address"),
        ("::ffff:127.0.0.1", "a loopback address"),
        ("10.0.0.1", "a private address"),
        ("192.168.1.1", "a private address"),
        ("fd00::1", "a private address"),
        ("169.254.1.1", "a link-local address"),
        ("fe80::1", "a link-local address"),
        ("169.254.169.254", "a cloud metadata address"),
        ("fd00:ec2::254", "a cloud metadata address"),
        ("100.100.100.200", "a cloud metadata address"),
        ("0.0.0.0", "an unspecified address"),
        ("2002:7f00:1::", "a loopback address"),
    ] {
        let (net, asked) = answering(&[address, address]);
        let mut wall = Wall::with(&rules, |options| options.net = net);
        let said = wall.tunnel(&format!("allowed.example:{}", page.port)).await.1;
        assert_eq!(status(&said), 403, "{address}: {said}");
        assert!(said.contains(kind) && !said.contains("sandbox.domains"), "{address}: {said}");
        assert_eq!(asked.load(std::sync::atomic::Ordering::SeqCst), 1, "asked once, and that is what counts");
        let told = wall.told();
        assert!(matches!(&told[..], [(_, _, Some(_), Reached::Refused(_))]), "{told:?}");
        assert_eq!(status(&wall.get(&page.localhost()).await), 200);
        assert_eq!(
            asked.load(std::sync::atomic::Ordering::SeqCst),
            1,
            "nobody is asked what this machine is called"
        );
    }
}

#[tokio::test]
async fn ssrf_04_a_rule_for_this_machine_is_for_its_port_alone() {
    let (page, other) = (Page::open().await, Page::open().await);
    let wall = Wall::around(&[&page.localhost()]);
    assert_eq!(status(&wall.get(&other.localhost()).await), 403);
    assert_eq!(status(&wall.get("localhost").await), 403);
    assert_eq!(other.accepted(), 0);
    assert_eq!(status(&wall.get(&page.localhost()).await), 200);
    let literal = Wall::around(&[&format!("127.0.0.1:{}", page.port)]);
    assert_eq!(status(&literal.get(&format!("127.0.0.1:{}", page.port)).await), 200);
    assert_eq!(status(&literal.get(&page.localhost()).await), 403);
}

#[tokio::test]
async fn l17_a_host_that_does_not_answer_is_no_refusal() {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let mut wall = Wall::around(&[&format!("localhost:{port}")]);
    for said in
        [wall.get(&format!("localhost:{port}")).await, wall.tunnel(&format!("localhost:{port}")).await.1]
    {
        assert_eq!(status(&said), 502, "{said}");
    }
    assert!(wall.told().iter().all(|(.., reached)| matches!(reached, Reached::Failed(_))));
    let (net, _) = answering(&[]);
    let nameless = Wall::with(&["allowed.example"], |options| options.net = net);
    let said = nameless.get("allowed.example").await;
    assert!(status(&said) == 502 && said.contains("could not be resolved"), "{said}");
}
