//! Which endpoints may be reached (l15 and the hostile cases SSRF that need no socket).

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::net::IpAddr;

use url::Url;
use wharf::config::{Origin, Remote};
use wharf::names::ServerName;
use wharf::policy::address::{is_loopback_name, judge};
use wharf::policy::{ConnectPermit, Policy};
use wharf::secret::{Secret, SecretUrl};
use wharf::{Error, Result};

fn connect_with(policy: &Policy, url: &str, headers: &[(&str, &str)]) -> Result<ConnectPermit> {
    let remote = Remote {
        url: SecretUrl::new(Url::parse(url).unwrap()),
        headers: headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Secret::new(*value)))
            .collect(),
    };
    policy.permit_connect(&ServerName::parse("srv").unwrap(), &remote, &Origin::Given)
}

fn connect(url: &str) -> Result<ConnectPermit> {
    connect_with(&Policy::strict(), url, &[])
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn ssrf_01_every_spelling_of_loopback_is_seen_as_loopback() {
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "①②⑦.⓪.⓪.①",
        "127。0。0。1",
        "[::1]",
        "[::ffff:127.0.0.1]",
    ] {
        assert!(
            connect(&format!("http://{host}/mcp")).unwrap().loopback(),
            "{host}"
        );
    }
    connect("http://0/mcp").unwrap_err();
    connect("http://[::127.0.0.1]/mcp").unwrap_err();
    assert!(!connect("https://127.0.0.1.example.com/mcp").unwrap().loopback());
    assert!(judge(ip("127.8.9.1"), true, false).is_ok());
    assert!(judge(ip("127.8.9.1"), false, true).is_err());
}

#[test]
fn ssrf_02_addresses_that_are_not_public_are_refused() {
    for text in [
        "127.0.0.1",
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.100.100.200",
        "169.254.1.1",
        "169.254.169.254",
        "168.63.129.16",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.1",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.1.1.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::127.0.0.1",
        "::10.0.0.1",
        "::8.8.8.8",
        "::ffff:0:10.0.0.1",
        "64:ff9b::127.0.0.1",
        "64:ff9b::a00:1",
        "64:ff9b:1::1",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "2001:0:a00:1::",
        "2001:0:808:808:0:0:80ff:fffe",
        "fc00::",
        "fdff::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "2001:db8::1",
        "3fff::1",
        "100::1",
        "5f00::1",
        "2001:2::1",
        "2001:10::1",
        "2001:20::1",
        "2606:4700::5efe:a00:1",
        "4000::1",
    ] {
        assert!(judge(ip(text), false, false).is_err(), "{text}");
    }
    for text in [
        "1.1.1.1",
        "8.8.8.8",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.0.1",
        "172.32.0.1",
        "192.0.1.1",
        "198.17.0.1",
        "198.20.0.1",
        "223.255.255.255",
        "2606:4700::1111",
        "2a00::1",
        "64:ff9b::808:808",
        "2002:808:808::1",
        "::ffff:8.8.8.8",
    ] {
        assert!(judge(ip(text), false, false).is_ok(), "{text}");
    }
}

#[test]
fn ssrf_02_private_networks_can_be_allowed_but_metadata_never() {
    for text in [
        "10.1.2.3",
        "172.20.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "fd12::1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
    ] {
        assert!(judge(ip(text), false, true).is_ok(), "{text}");
    }
    for text in [
        "169.254.169.254",
        "fd00:ec2::254",
        "100.100.100.200",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::",
        "127.0.0.1",
        "::1",
        "0.0.0.0",
        "fe80::1",
        "169.254.0.1",
        "224.0.0.1",
        "64:ff9b::7f00:1",
        "168.63.129.16",
    ] {
        assert!(judge(ip(text), false, true).is_err(), "{text}");
    }
    for text in ["64:ff9b::7f00:1", "2002:7f00:1::", "::7f00:1"] {
        assert!(
            judge(ip(text), true, true).is_err(),
            "loopback in a tunnel: {text}"
        );
    }
}

#[test]
fn ssrf_02_a_literal_address_is_judged_before_any_contact() {
    for host in [
        "10.0.0.1",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "192.168.0.1",
        "0x0a.0.0.1",
        "[::ffff:a00:1]",
    ] {
        let error = connect(&format!("https://{host}/mcp")).unwrap_err();
        assert!(matches!(error, Error::Denied { .. }), "{error}");
    }
    let open = Policy::strict().with_private_networks(true);
    assert!(
        connect_with(&open, "https://10.0.0.1/mcp", &[])
            .unwrap()
            .private_networks()
    );
    connect_with(&open, "https://169.254.169.254/mcp", &[]).unwrap_err();
    assert!(!connect("https://1.1.1.1/mcp").unwrap().private_networks());
}

#[test]
fn ssrf_04_names_of_this_machine_are_known_in_every_spelling() {
    for name in [
        "localhost",
        "LOCALHOST",
        "localhost.",
        "a.localhost",
        "a.b.Localhost.",
    ] {
        assert!(is_loopback_name(name), "{name}");
        assert!(
            connect(&format!("http://{name}:8080/mcp")).unwrap().loopback(),
            "{name}"
        );
    }
    for name in [
        "localhost.example.com",
        "notlocalhost",
        "localhost.localdomain",
        "example.com",
    ] {
        assert!(!is_loopback_name(name), "{name}");
        assert!(
            !connect(&format!("https://{name}/mcp")).unwrap().loopback(),
            "{name}"
        );
    }
}

#[test]
fn ssrf_09_odd_addresses_are_refused() {
    for url in [
        "https://ada@example.com/",
        "https://ada:pw@example.com/",
        "https://example.com/#x",
        "https://example.com/mcp#@evil",
        "https://example.com:0/",
        "file:///etc/passwd",
        "unix:/x",
        "gopher://example.com/",
        "ftp://example.com/",
        "ws://example.com/",
        "javascript:alert(1)",
        "data:text/plain,x",
    ] {
        let error = connect(url).unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{url}: {error}");
        assert!(!format!("{error} {error:?}").contains("pw"), "{error}");
    }
    connect("https://example.com:8443/mcp?a=b").unwrap();
}

#[test]
fn l15_plain_http_carries_no_credentials_except_at_home() {
    let credentials: [&[(&str, &str)]; 4] = [
        &[("Authorization", "Bearer abc")],
        &[("X-Api-Key", "abc")],
        &[("Cookie", "a=b")],
        &[("X-Plain", "ghp_0123456789abcdef0123")],
    ];
    for headers in credentials {
        connect_with(&Policy::strict(), "http://example.com/mcp", headers).unwrap_err();
        connect_with(&Policy::strict(), "https://example.com/mcp", headers).unwrap();
        connect_with(&Policy::strict(), "http://localhost:1/mcp", headers).unwrap();
        connect_with(
            &Policy::strict().with_private_networks(true),
            "http://example.com/mcp",
            headers,
        )
        .unwrap();
    }
    connect("http://example.com/mcp?api_key=x").unwrap_err();
    assert_eq!(connect("http://example.com/mcp").unwrap().warnings().len(), 1);
    assert_eq!(connect("https://example.com/mcp").unwrap().warnings(), [""; 0]);
    assert_eq!(connect("http://127.0.0.1/mcp").unwrap().warnings(), [""; 0]);
}

#[test]
fn l15_headers_that_carry_the_protocol_are_ours() {
    let with = |name: &str, value: &str| {
        connect_with(&Policy::strict(), "https://example.com/mcp", &[(name, value)])
    };
    for name in [
        "Host",
        "content-length",
        "Transfer-Encoding",
        "Connection",
        "MCP-Protocol-Version",
        "Mcp-Session-Id",
        "mcp-method",
        "Accept",
        "Content-Type",
        "Accept-Encoding",
        "Upgrade",
        "TE",
        "bad name",
        "",
        "x\r\ny",
        "x:",
    ] {
        with(name, "x").unwrap_err();
    }
    for value in ["a\r\nb", "a\nb", "a\0b"] {
        let error = with("X-Custom", value).unwrap_err();
        assert!(!error.to_string().contains('\n'));
    }
    with("X-Custom", "value").unwrap();
    with("Authorization", "Bearer abc").unwrap();
}
