//! In: an address that is about to be dialled. Out: whether it may be, and if not, what it is.
//! Only public unicast addresses pass by themselves. Names are not here: `net` resolves them and asks about each answer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

/// Addresses at which clouds hand credentials to whoever asks. Refused whatever else is allowed.
const METADATA_V4: [Ipv4Addr; 4] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

const METADATA: &str = "a cloud metadata address";

/// Whether an address may be dialled; if not, what kind of address it is.
pub fn judge(ip: IpAddr, loopback_allowed: bool, private_allowed: bool) -> Result<(), &'static str> {
    match ip {
        IpAddr::V4(ip) => judge_v4(ip, loopback_allowed, private_allowed),
        IpAddr::V6(ip) => judge_v6(ip, loopback_allowed, private_allowed),
    }
}

/// Whether an address's own host is this machine: `localhost` in any spelling, or a loopback address.
pub fn names_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => is_loopback_name(name),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback()),
        None => false,
    }
}

/// Whether a name means this machine without asking anybody (RFC 6761).
pub fn is_loopback_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

fn judge_v4(ip: Ipv4Addr, loopback_allowed: bool, private_allowed: bool) -> Result<(), &'static str> {
    let [a, b, c, _] = ip.octets();
    let refused = match (a, b, c) {
        _ if METADATA_V4.contains(&ip) => METADATA,
        (127, ..) if loopback_allowed => return Ok(()),
        (127, ..) => "a loopback address",
        (10, ..) | (172, 16..=31, _) | (192, 168, _) if private_allowed => return Ok(()),
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => "a private address",
        (100, 64..=127, _) if private_allowed => return Ok(()),
        (100, 64..=127, _) => "a shared carrier address",
        (0, ..) => "an unspecified address",
        (169, 254, _) => "a link-local address",
        (192, 0, 0) => "an address reserved for protocols",
        (192, 0, 2) | (198, 51, 100) | (203, 0, 113) => "a documentation address",
        (192, 88, 99) => "a 6to4 relay address",
        (198, 18..=19, _) => "a benchmarking address",
        (224..=239, ..) => "a multicast address",
        (240..=255, ..) => "a reserved address",
        _ => return Ok(()),
    };
    Err(refused)
}

fn judge_v6(ip: Ipv6Addr, loopback_allowed: bool, private_allowed: bool) -> Result<(), &'static str> {
    if METADATA_V6.contains(&ip) {
        return Err(METADATA);
    }
    if ip.is_unspecified() {
        return Err("an unspecified address");
    }
    if ip.is_loopback() {
        return if loopback_allowed {
            Ok(())
        } else {
            Err("a loopback address")
        };
    }
    if let Some(inner) = ip.to_ipv4_mapped() {
        return judge_v4(inner, loopback_allowed, private_allowed);
    }
    // Loopback inside a tunnel is somebody else's loopback or a trick, never a server the config named.
    for inner in tunnelled(ip) {
        judge_v4(inner, false, private_allowed)?;
    }
    let [first, second, third, ..] = ip.segments();
    let refused = match (first, second, third) {
        (0xfc00..=0xfdff, ..) if private_allowed => return Ok(()),
        (0xfc00..=0xfdff, ..) => "a private address",
        (0xfe80..=0xfebf, ..) => "a link-local address",
        (0xfec0..=0xfeff, ..) => "a site-local address",
        (0xff00..=0xffff, ..) => "a multicast address",
        (0x64, 0xff9b, 0) => return Ok(()), // NAT64: the address inside was judged above
        (0x2001, 0xdb8, _) | (0x3fff, 0..=0xfff, _) => "a documentation address",
        (0x2001, 2, 0) => "a benchmarking address",
        (0x2001, 0x10..=0x2f, _) => "an address that is not routed",
        (0x2000..=0x3fff, ..) => return Ok(()),
        _ => "not a public address",
    };
    Err(refused)
}

/// The IPv4 addresses that a tunnel would hand the packet to.
fn tunnelled(ip: Ipv6Addr) -> Vec<Ipv4Addr> {
    let s = ip.segments();
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match s {
        // IPv4-compatible, IPv4-translated and NAT64 carry it at the end.
        [0, 0, 0, 0, 0, 0, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            vec![v4(high, low)]
        }
        // 6to4 carries it after the prefix.
        [0x2002, high, low, ..] => vec![v4(high, low)],
        // Teredo names its server in clear and the client inverted.
        [0x2001, 0, server_high, server_low, _, _, high, low] => {
            vec![v4(server_high, server_low), v4(!high, !low)]
        }
        // ISATAP marks the interface.
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => vec![v4(high, low)],
        _ => Vec::new(),
    }
}
