//! In: the domains that a confined server may reach, as its profile lists them, and a host that it wants. Out: an
//! [`EgressPermit`] for exactly that host, or why not and which line would allow it. Names are brought into one form
//! once, here, and compared in that form only. What a name stands for is not known here: `net` judges that when it dials.

use std::fmt;

use crate::config::domain::{self, DEFAULT_PORTS, DomainRule};
use crate::error::{Error, Result};
use crate::names::ServerName;
use crate::text::Escaped;

/// What stands for a rule where every public host is allowed. As a rule it cannot be written.
const EVERYWHERE: &str = "*";

/// Where a confined server may go. Without a rule it may go nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EgressRules {
    rules: Vec<DomainRule>,
    /// Every public host, for a run that is watched to learn which ones are needed.
    everywhere: bool,
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
            DomainRule::parse(text).map_err(|problem| Error::Config {
                message: format!("`{}` is no rule for `domains`: {problem}", Escaped(&shorten(text))),
                hint: Some(
                    "write it like `api.example.com`, `*.example.com` or `api.example.com:8443`".into(),
                ),
            })
        });
        Ok(Self { rules: rules.collect::<Result<_>>()?, everywhere: false })
    }

    /// Every public host by name, at ports 80 and 443, to learn which of them a server needs. Never this machine or its
    /// networks. What is refused is told as an event, too.
    pub fn everywhere() -> Self {
        Self::default().and_everywhere()
    }

    /// These, and [everywhere else](Self::everywhere).
    #[must_use]
    pub fn and_everywhere(self) -> Self {
        Self { everywhere: true, ..self }
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
        if let Some(rule) =
            self.rules.iter().find(|rule| rule.matches(&target.name, target.is_address, target.port))
        {
            let (rule, loopback) = (rule.to_string(), rule.loopback);
            return Ok(EgressPermit { target: target.clone(), rule, loopback });
        }
        let public = !target.is_address && !domain::is_loopback(&target.name);
        if self.everywhere && public && DEFAULT_PORTS.contains(&target.port) {
            return Ok(EgressPermit { target: target.clone(), rule: EVERYWHERE.into(), loopback: false });
        }
        let what = format!("server `{server}` may not reach {target}");
        Err(Error::Denied { what, rule: "the domains of its sandbox".into(), hint: target.hint(server) })
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
        let (host, port) = domain::split(authority)?;
        let port = port.or(default_port).ok_or("there is no port")?;
        let (name, is_address) = domain::normal(host)?;
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
        let name = domain::bracketed(&self.name);
        if self.port == implied { name } else { format!("{name}:{}", self.port) }
    }

    /// The narrowest rule that allows it. `None` for an address that no rule allows.
    pub fn rule(&self) -> Option<String> {
        let loopback = domain::is_loopback(&self.name);
        if self.is_address && !loopback {
            return None;
        }
        let with_port = loopback || !DEFAULT_PORTS.contains(&self.port);
        let name = domain::bracketed(&self.name);
        Some(if with_port { format!("{name}:{}", self.port) } else { name })
    }

    fn hint(&self, server: &ServerName) -> String {
        match self.rule() {
            Some(rule) => format!("if it should, add for server `{server}`: sandbox.domains = [\"{rule}\"]"),
            None => "addresses are not reached; let the server use the host's name, and allow that".into(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}:{}`", domain::bracketed(&self.name), self.port)
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

    /// Whether no rule was written for it: it is allowed because everything public is.
    pub fn is_unruled(&self) -> bool {
        self.rule == EVERYWHERE
    }

    /// Whether it is this machine that is meant: only where the rule itself names it.
    pub fn loopback(&self) -> bool {
        self.loopback
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(100).collect()
}
