//! In: an address that a server named, or somebody whom a server named. Out: a permit to reach it, by stricter rules
//! than those for what the user wrote: it travels encrypted, and it leads to this machine only from this machine.

use url::{Host, Url};

use super::{ConnectPermit, Policy, address};
use crate::error::{Error, Result};
use crate::names::ServerName;
use crate::secret::SecretUrl;

impl Policy {
    /// May an address be reached that a server led us to? `home` is the server's own, as the config has it.
    ///
    /// Plain `http:` is for this machine only, and this machine is reached only if `home` is on it, too: nobody outside
    /// sends us to ourselves.
    pub fn permit_found(&self, server: &ServerName, home: &Url, found: &Url) -> Result<ConnectPermit> {
        let refuse = |rule: &str| {
            Err(Error::Denied {
                what: format!("server `{server}`: the address {} it leads to", SecretUrl::new(found.clone())),
                rule: rule.to_owned(),
                hint: "nothing was sent there; report it to whoever runs the server".into(),
            })
        };
        let on_this_machine = address::names_loopback(found);
        match found.scheme() {
            "https" => {}
            "http" if on_this_machine => {}
            // In a network of the user's own, the server itself may be there as the user wrote it.
            "http" if self.rules.private_networks && found.origin() == home.origin() => {}
            "http" => return refuse("the rule that credentials travel encrypted"),
            _ => return refuse("the rule that only `https:` addresses are taken from servers"),
        }
        let Some(host) = found.host().filter(|host| *host != Host::Domain("")) else {
            return refuse("the rule that an address has a host");
        };
        if !found.username().is_empty() || found.password().is_some() || found.port() == Some(0) {
            return refuse("the rule that an address is a host and a path");
        }
        if on_this_machine && !address::names_loopback(home) {
            return refuse("the address rules: nobody outside leads to this machine");
        }
        self.check_literal(server, &host, on_this_machine)?;
        let mut url = found.clone();
        url.set_fragment(None);
        Ok(ConnectPermit {
            server: server.clone(),
            url: SecretUrl::new(url),
            loopback: on_this_machine,
            private_networks: self.rules.private_networks,
            warnings: Vec::new(),
        })
    }

    /// May a token be shown to a server at this address? Not where others can read it on the way.
    pub fn permits_token(&self, home: &Url) -> bool {
        matches!(home.scheme(), "https" | "wss")
            || address::names_loopback(home)
            || self.rules.private_networks
    }
}
