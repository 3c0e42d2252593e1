//! The private parts of the proxy: what the first bytes of a tunnel are taken for.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::hello::{self, Hello};
use super::tunnel::{Opening, look};
use crate::policy::Target;

/// What a real client says first, to a host of this name.
fn hello_to(name: &str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// A hello with these extensions, in records of this size.
fn hello_with(extensions: &[(u16, &[u8])], record: usize) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 0x01, 1, 0]);
    let mut all = Vec::new();
    for (kind, data) in extensions {
        all.extend(kind.to_be_bytes());
        all.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        all.extend(*data);
    }
    body.extend(u16::try_from(all.len()).unwrap().to_be_bytes());
    body.extend(all);
    let mut message = vec![1, 0];
    message.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
    message.extend(body);
    records(&message, record)
}

fn records(message: &[u8], record: usize) -> Vec<u8> {
    let of = |part: &[u8]| {
        let length = u16::try_from(part.len()).unwrap().to_be_bytes();
        [&[22, 3, 1], &length[..], part].concat()
    };
    message.chunks(record).flat_map(of).collect()
}

/// The extension that names these hosts.
fn names(hosts: &[&str]) -> Vec<u8> {
    let mut list = Vec::new();
    for host in hosts {
        list.push(0);
        list.extend(u16::try_from(host.len()).unwrap().to_be_bytes());
        list.extend(host.bytes());
    }
    [&u16::try_from(list.len()).unwrap().to_be_bytes()[..], &list].concat()
}

async fn opening(mut bytes: &[u8], authority: &str) -> Opening {
    let target = Target::parse(authority, None).unwrap();
    look(&mut bytes, &mut Vec::new(), &target).await.unwrap()
}

#[test]
fn sbx_05_the_name_in_a_hello_is_read_as_a_server_reads_it() {
    for name in ["example.com", "Example.COM", "a.b.c.example.com", "xn--bcher-kva.example"] {
        let bytes = hello_to(name);
        assert_eq!(hello::read(&bytes), Hello::For(Some(name.to_lowercase())), "{name}");
        let mut acceptor = rustls::server::Acceptor::default();
        acceptor.read_tls(&mut bytes.as_slice()).unwrap();
        let accepted = acceptor.accept().unwrap().unwrap();
        assert_eq!(accepted.client_hello().server_name().map(str::to_lowercase), Some(name.to_lowercase()));
    }
    assert_eq!(hello::read(&hello_to("127.0.0.1")), Hello::For(None));
    let named = names(&["example.com"]);
    for record in [1, 3, 4, 5, 40, 16_000] {
        let bytes = hello_with(&[(0, &named)], record);
        assert_eq!(hello::read(&bytes), Hello::For(Some("example.com".into())), "in records of {record}");
    }
}

#[test]
fn sbx_05_a_hello_is_waited_for_until_it_is_whole() {
    let whole = hello_to("example.com");
    for end in 0..whole.len() {
        assert_eq!(hello::read(&whole[..end]), Hello::More, "{end}");
    }
    let mut endless = records(&[&[1, 0, 0x7f, 0xff][..], &[0; 16_000]].concat(), 1);
    endless.truncate(hello::MAX_HELLO);
    assert!(matches!(hello::read(&endless), Hello::Odd("its TLS hello is too long")));
}

#[test]
fn sbx_05_a_hello_that_could_be_read_in_two_ways_is_refused() {
    let (one, two, named) =
        (names(&["a.example"]), names(&["a.example", "b.example"]), names(&["b.example"]));
    let good = hello_with(&[(0, &one)], 16_000);
    let mut more = good.clone();
    more[4] += 1; // The record goes on after the hello.
    more.push(2);
    let mut short = good.clone();
    short[8] -= 1;
    let mut odd_kind = one.clone();
    odd_kind[2] = 1;
    let mut not_ascii = one.clone();
    not_ascii[5] = 0xe4;
    for (what, bytes) in [
        ("two names", hello_with(&[(0, &two)], 16_000)),
        ("two lists of names", hello_with(&[(0, &one), (0, &named)], 16_000)),
        ("a hidden name", hello_with(&[(0, &one), (0xfe0d, b"x")], 16_000)),
        ("a name of another kind", hello_with(&[(0, &odd_kind)], 16_000)),
        ("a name that is none", hello_with(&[(0, &not_ascii)], 16_000)),
        ("an empty list", hello_with(&[(0, &[0, 0])], 16_000)),
        ("a list that ends early", hello_with(&[(0, &one[..5])], 16_000)),
        ("a list that goes on", hello_with(&[(0, &[&one[..], b"x"].concat())], 16_000)),
        ("another message behind it", more),
        ("a length that is not its own", short),
        ("an empty record", vec![22, 3, 1, 0, 0]),
        ("a record that is too long", vec![22, 3, 1, 0xff, 0xff]),
        ("SSL 2", vec![0x80, 0x2e, 1, 3, 1]),
        ("another message", records(&[2, 0, 0, 1, 0], 100)),
        ("HTTP", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
    ] {
        assert!(matches!(hello::read(&bytes), Hello::Odd(_)), "{what}: {:?}", hello::read(&bytes));
    }
    assert_eq!(hello::read(&good), Hello::For(Some("a.example".into())));
}

#[tokio::test]
async fn sbx_05_to_port_443_goes_tls_for_the_very_host() {
    let hello = hello_to("example.com");
    assert_eq!(opening(&hello, "example.com:443").await, Opening::Fine);
    for (what, bytes, authority) in [
        ("another host", hello.clone(), "example.org:443"),
        ("a host below", hello.clone(), "www.example.com:443"),
        ("no name", hello_to("127.0.0.1"), "example.com:443"),
        ("no TLS", b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n".to_vec(), "example.com:443"),
        ("another host, another port", hello.clone(), "example.org:8443"),
        ("half a hello", hello[..20].to_vec(), "example.com:443"),
    ] {
        assert!(matches!(opening(&bytes, authority).await, Opening::Refused(_)), "{what}");
    }
    assert_eq!(opening(b"hello", "example.com:5432").await, Opening::Fine);
    assert_eq!(opening(b"", "example.com:443").await, Opening::Fine, "nothing came, nothing is wrong");
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_judged_without_a_panic(bytes in proptest::collection::vec(0_u8.., 0..600)) {
        hello::read(&bytes);
        let tls = [&[22, 3, 1, 0, 200, 1, 0, 0, 196][..], &bytes].concat();
        hello::read(&tls);
    }

    #[test]
    fn a_hello_with_any_byte_changed_names_its_host_or_is_refused(at in 0_usize..300, to in 0_u8..) {
        let mut bytes = hello_with(&[(0, &names(&["example.com"])), (43, &[2, 3, 4])], 16_000);
        let at = at % bytes.len();
        bytes[at] = to;
        // A change within the name is another name; nothing else makes one.
        if let Hello::For(Some(name)) = hello::read(&bytes) {
            proptest::prop_assert!(name.len() <= "example.com".len(), "{name}");
        }
    }
}
