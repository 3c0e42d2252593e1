//! Any text as the address of a server: one that may be reached is a plain address of the web that nobody can misread,
//! and it is the one that was written. A second opinion on addresses comes from the standard library.

use std::net::{IpAddr, Ipv4Addr};

use url::Host;
use wharf::config::{Origin, ServerConfig, Transport};
use wharf::names::ServerName;
use wharf::policy::Policy;
use wharf::text::is_unsafe_to_show;

pub(crate) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let name = ServerName::parse("far").unwrap();
    let safe =
        |shown: String| assert!(!shown.chars().any(|c| is_unsafe_to_show(c) && c != '\n'), "{shown:?}");
    let config = match ServerConfig::http(name.clone(), text) {
        Ok(config) => config,
        Err(error) => return safe(error.to_string()),
    };
    let Transport::Http(remote) = &config.transport else { panic!("it is reached over HTTP") };
    let permit = match Policy::strict().permit_connect(&name, remote, &Origin::Given) {
        Ok(permit) => permit,
        Err(error) => return safe(error.to_string()),
    };
    let url = permit.url().expose();
    assert_eq!(url, remote.url.expose(), "what was checked is what is reached");
    assert!(matches!(url.scheme(), "http" | "https"));
    assert!(url.username().is_empty() && url.password().is_none() && url.fragment().is_none());
    assert_ne!(url.port(), Some(0));
    match url.host().expect("it has a host") {
        Host::Ipv4(ip) => judge(ip, permit.loopback()),
        Host::Ipv6(ip) => match ip.to_ipv4_mapped() {
            Some(mapped) => judge(mapped, permit.loopback()),
            None => {
                assert!(!ip.is_unspecified() && !ip.is_multicast());
                assert!(!ip.is_unique_local() && !ip.is_unicast_link_local());
                assert_eq!(ip.is_loopback(), permit.loopback());
            }
        },
        Host::Domain(name) => {
            assert!(name.parse::<IpAddr>().is_err() && !name.is_empty());
            if permit.loopback() {
                assert!(name.trim_end_matches('.').rsplit('.').next() == Some("localhost"), "{name}");
            }
        }
    }
}

fn judge(ip: Ipv4Addr, loopback: bool) {
    assert!(!ip.is_private() && !ip.is_link_local() && !ip.is_unspecified() && !ip.is_broadcast(), "{ip}");
    assert!(!ip.is_multicast() && !ip.is_documentation(), "{ip}");
    assert_eq!(ip.is_loopback(), loopback, "{ip}");
}
