//! One rule of `domains` in a profile: which host, at which port.
//!
//! In: the text of a rule, or a host as it stands in a request. Out: the one form in which they are compared, or what is
//! wrong. What a name stands for is not known here: `net` judges that when it dials.

use std::fmt;
use std::net::IpAddr;

use url::Host;

/// The ports of a rule that names none.
pub(crate) const DEFAULT_PORTS: [u16; 2] = [80, 443];
/// The longest name that the name system knows.
const MAX_NAME: usize = 253;

/// A host, or what is below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DomainRule {
    /// `*.` stood before the name.
    below: bool,
    name: String,
    port: Option<u16>,
    pub(crate) loopback: bool,
}

// === impl DomainRule ===

impl DomainRule {
    /// Reads a rule as a profile has it: `api.github.com`, `*.github.com` (what is below it, not itself), and either with
    /// a port. A loopback address or `localhost` is a rule only with its port; other addresses are none.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let (below, rest) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if rest.contains('*') {
            return Err("`*` stands only at the beginning, for what is below a name: `*.example.com`");
        }
        if rest.contains("://") || rest.contains('/') {
            return Err("it is an address with a path; only its host belongs here");
        }
        let (host, port) = split(rest)?;
        let (name, is_address) = normal(host)?;
        let loopback = is_loopback(&name);
        if is_address && !loopback {
            return Err("addresses are not allowed, write the name of the host");
        }
        if loopback && (below || port.is_none()) {
            return Err("this machine itself is allowed one port at a time: `localhost:8080`");
        }
        if below && !name.contains('.') {
            return Err("everything below a top-level domain is too much");
        }
        Ok(Self { below, name, port, loopback })
    }

    /// Whether it allows a host in the one form that is compared.
    pub(crate) fn matches(&self, host: &str, is_address: bool, port: u16) -> bool {
        let named = match self.below {
            true => {
                let front = host.strip_suffix(self.name.as_str()).and_then(|f| f.strip_suffix('.'));
                front.is_some_and(|front| !front.is_empty()) && !is_address
            }
            false => host == self.name,
        };
        named && self.port.map_or(DEFAULT_PORTS.contains(&port), |own| own == port)
    }
}

impl fmt::Display for DomainRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let below = if self.below { "*." } else { "" };
        let name = bracketed(&self.name);
        match self.port {
            Some(port) => write!(f, "{below}{name}:{port}"),
            None => write!(f, "{below}{name}"),
        }
    }
}

/// The host and the port of an authority. A colon belongs to the port, except in brackets.
pub(crate) fn split(authority: &str) -> Result<(&str, Option<u16>), &'static str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let end = rest.find(']').ok_or("a bracket is not closed")?;
            let after = &rest[end + 1..];
            (
                &authority[..end + 2],
                if after.is_empty() {
                    None
                } else {
                    Some(after.strip_prefix(':').ok_or("there is something after the bracket")?)
                },
            )
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let Some(port) = port else { return Ok((host, None)) };
    let digits = !port.is_empty() && port.len() <= 5 && port.bytes().all(|b| b.is_ascii_digit());
    let number = port.parse().ok().filter(|port| digits && *port != 0).ok_or("its port is none")?;
    Ok((host, Some(number)))
}

/// The one form of a host, and whether it is an address. Every spelling of an address is one.
pub(crate) fn normal(host: &str) -> Result<(String, bool), &'static str> {
    let bracketed = host.starts_with('[');
    let odd = |c: char| {
        let plain = c.is_alphanumeric() || c == '-' || c == '.' || c == '_';
        !(plain || (bracketed && matches!(c, ':' | '[' | ']')))
    };
    if host.is_empty() {
        return Err("there is no host");
    }
    if host.contains(odd) {
        return Err("the host has characters that belong in no name");
    }
    if host.ends_with('.') {
        return Err("the host ends with a dot");
    }
    match Host::parse(host).map_err(|_| "the host is not a name")? {
        Host::Ipv4(ip) => Ok((ip.to_string(), true)),
        Host::Ipv6(ip) => Ok((ip.to_string(), true)),
        // Characters that stand for a dot or for nothing may come out of the normal form.
        Host::Domain(name)
            if name.len() > MAX_NAME || name.ends_with('.') || name.split('.').any(str::is_empty) =>
        {
            Err("the host is not a name")
        }
        Host::Domain(name) => Ok((name, false)),
    }
}

/// Whether a host in that form is this machine, without asking anybody (RFC 6761).
pub(crate) fn is_loopback(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(ip) => ip.is_loopback(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

/// A host as it stands before a port.
pub(crate) fn bracketed(name: &str) -> String {
    if name.contains(':') { format!("[{name}]") } else { name.to_owned() }
}
