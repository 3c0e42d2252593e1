//! In: the domains that a confined server may reach, as its profile lists them, and a host that it wants. Out: an
//! [`EgressPermit`] for exactly that host, or why not and which line would allow it. Names are brought into one form
//! once, here, and compared in that form only. What a name stands for is not known here: `net` judges that when it dials.

use std::fmt;
use std::net::IpAddr;

use url::Host;

use super::address;
use crate::error::{Error, Result};
use crate::names::ServerName;
use crate::text::Escaped;

/// The ports of a rule that names none.
const DEFAULT_PORTS: [u16; 2] = [80, 443];
/// The longest name that the name system knows.
const MAX_NAME: usize = 253;

/// Where a confined server may go. Without a rule it may go nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EgressRules {
    rules: Vec<Rule>,
    /// Every public host, for a run that is watched to learn which ones are needed.
    everywhere: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    /// `*.` stood before the name.
    below: bool,
    name: String,
    port: Option<u16>,
    loopback: bool,
}

/// A host and a port that somebody wants to reach, in the one form that is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    name: String,
    port: u16,
    is_address: bool,
}

/// A confined server may reach this host, at addresses that `net` finds acceptable.
#[derive(Clone, Debug)]
pub struct EgressPermit {
    pub(super) target: Target,
    pub(super) rule: String,
    pub(super) loopback: bool,
}

// === impl EgressRules ===

impl EgressRules {
    /// Reads rules as a profile has them: `api.github.com`, `*.github.com` (what is below it, not itself), and either
    /// with a port. A loopback address or `localhost` is a rule only with its port; other addresses are none.
    ///
    /// # Errors
    /// If one of them is not such a rule. It is named.
    pub fn parse<S: AsRef<str>>(domains: impl IntoIterator<Item = S>) -> Result<Self> {
        let rules = domains.into_iter().map(|text| {
            let text = text.as_ref();
            Rule::parse(text).map_err(|problem| Error::Config {
                message: format!("`{}` is no rule for `domains`: {problem}", Escaped(&shorten(text))),
                hint: Some(
                    "write it like `api.example.com`, `*.example.com` or `api.example.com:8443`".into(),
                ),
            })
        });
        Ok(Self { rules: rules.collect::<Result<_>>()?, everywhere: false })
    }

    /// Every public host by name, to learn which of them a server needs. Never this machine or its networks.
    pub fn everywhere() -> Self {
        Self { rules: Vec::new(), everywhere: true }
    }

    /// Whether nothing may be reached.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && !self.everywhere
    }

    /// May this server reach that host?
    ///
    /// # Errors
    /// If no rule says so. The hint is the line to add.
    pub fn permit(&self, server: &ServerName, target: &Target) -> Result<EgressPermit> {
        if let Some(rule) = self.rules.iter().find(|rule| rule.matches(target)) {
            let (rule, loopback) = (rule.to_string(), rule.loopback);
            return Ok(EgressPermit { target: target.clone(), rule, loopback });
        }
        if self.everywhere && !target.is_address && !address::is_loopback_name(&target.name) {
            return Ok(EgressPermit { target: target.clone(), rule: "*".into(), loopback: false });
        }
        let what = format!("server `{server}` may not reach {target}");
        Err(Error::Denied { what, rule: "the domains of its sandbox".into(), hint: target.hint(server) })
    }
}

// === impl Rule ===

impl Rule {
    fn parse(text: &str) -> Result<Self, &'static str> {
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
        let loopback = match name.parse::<IpAddr>() {
            Ok(ip) => ip.is_loopback(),
            Err(_) => address::is_loopback_name(&name),
        };
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

    fn matches(&self, target: &Target) -> bool {
        let named = match self.below {
            true => {
                let front = target.name.strip_suffix(self.name.as_str()).and_then(|f| f.strip_suffix('.'));
                front.is_some_and(|front| !front.is_empty()) && !target.is_address
            }
            false => target.name == self.name,
        };
        named && self.port.map_or(DEFAULT_PORTS.contains(&target.port), |port| port == target.port)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let below = if self.below { "*." } else { "" };
        let name = bracketed(&self.name);
        match self.port {
            Some(port) => write!(f, "{below}{name}:{port}"),
            None => write!(f, "{below}{name}"),
        }
    }
}

// === impl Target ===

impl Target {
    /// Reads `host` or `host:port` as it stands in a request, strictly: nothing is decoded, cut off or made up.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(authority: &str, default_port: Option<u16>) -> Result<Self, &'static str> {
        if !authority.is_ascii() {
            return Err("the host has letters that belong in its `xn--` form");
        }
        let (host, port) = split(authority)?;
        let port = port.or(default_port).ok_or("there is no port")?;
        let (name, is_address) = normal(host)?;
        Ok(Self { name, port, is_address })
    }

    /// The host: a name in lower case, or an address without brackets.
    pub fn host(&self) -> &str {
        &self.name
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether it is an address and no name.
    pub fn is_address(&self) -> bool {
        self.is_address
    }

    /// The host and the port as a request has them; without the port where the scheme implies it.
    pub fn authority(&self, implied: u16) -> String {
        let name = bracketed(&self.name);
        if self.port == implied { name } else { format!("{name}:{}", self.port) }
    }

    fn hint(&self, server: &ServerName) -> String {
        let loopback = match self.name.parse::<IpAddr>() {
            Ok(ip) => ip.is_loopback(),
            Err(_) => address::is_loopback_name(&self.name),
        };
        if self.is_address && !loopback {
            return "addresses are not reached; let the server use the host's name, and allow that".into();
        }
        let with_port = loopback || !DEFAULT_PORTS.contains(&self.port);
        let name = bracketed(&self.name);
        let rule = if with_port { format!("{name}:{}", self.port) } else { name };
        format!("if it should, add for server `{server}`: sandbox.domains = [\"{rule}\"]")
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}:{}`", bracketed(&self.name), self.port)
    }
}

// === impl EgressPermit ===

impl EgressPermit {
    /// What may be reached.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The rule that allows it, as it is written.
    pub fn rule(&self) -> &str {
        &self.rule
    }

    /// Whether it is this machine that is meant: only where the rule itself names it.
    pub fn loopback(&self) -> bool {
        self.loopback
    }
}

/// The host and the port of an authority. A colon belongs to the port, except in brackets.
fn split(authority: &str) -> Result<(&str, Option<u16>), &'static str> {
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
fn normal(host: &str) -> Result<(String, bool), &'static str> {
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

fn bracketed(name: &str) -> String {
    if name.contains(':') { format!("[{name}]") } else { name.to_owned() }
}

fn shorten(text: &str) -> String {
    text.chars().take(100).collect()
}
