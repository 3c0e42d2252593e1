//! In: an endpoint as the config has it. Out: a permit to reach it within the address rules, or what is wrong with its
//! address or headers. Which addresses its name stands for is not known here: `net` asks [`address::judge`] when it dials.

use std::net::IpAddr;

use http::{HeaderName, HeaderValue};
use url::{Host, Url};

use super::{ConnectPermit, Policy, address};
use crate::config::{Origin, Remote};
use crate::error::{Error, Result};
use crate::names::ServerName;
use crate::secret::{is_credential_name, is_credential_value};
use crate::text::Escaped;

/// Headers that carry the protocol itself. Whoever sets one would say something else than Wharf means.
const OURS: [&str; 18] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "forwarded",
];

impl Policy {
    /// May this endpoint be reached?
    ///
    /// Loopback is allowed where the address itself names it: the config is the user's own or one the user trusts
    /// (`origin` says which, and a file that is not trusted never comes this far).
    pub fn permit_connect(
        &self,
        server: &ServerName,
        remote: &Remote,
        origin: &Origin,
    ) -> Result<ConnectPermit> {
        self.permit_remote(server, remote, origin, ["https", "http"])
    }

    /// The same for an endpoint that is spoken with over a WebSocket.
    pub fn permit_websocket(
        &self,
        server: &ServerName,
        remote: &Remote,
        origin: &Origin,
    ) -> Result<ConnectPermit> {
        self.permit_remote(server, remote, origin, ["wss", "ws"])
    }

    fn permit_remote(
        &self,
        server: &ServerName,
        remote: &Remote,
        origin: &Origin,
        [secure, plain]: [&str; 2],
    ) -> Result<ConnectPermit> {
        let url = remote.url.expose();
        let bad = |problem: &str| {
            Err(Error::Config {
                message: format!("server `{server}`: its `url` {problem}"),
                hint: Some(match origin {
                    Origin::File { path, line } => format!("correct it at {}:{line}", path.display()),
                    Origin::Given | Origin::BuiltIn => {
                        format!("give an address like `{secure}://example.com/mcp`")
                    }
                }),
            })
        };
        let scheme = url.scheme();
        if scheme != secure && scheme != plain {
            return bad(&format!(
                "begins with `{}:`; only `{secure}:` and `{plain}:` are reached",
                Escaped(scheme)
            ));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return bad("has a user name or password; send a header instead");
        }
        if url.fragment().is_some() {
            return bad("has a `#` part, which no server ever sees");
        }
        if url.port() == Some(0) {
            return bad("has port 0");
        }
        let Some(host) = url.host().filter(|host| *host != Host::Domain("")) else {
            return bad("has no host");
        };
        let loopback = address::names_loopback(url);
        self.check_literal(server, &host, loopback)?;
        check_headers(server, remote)?;
        let mut warnings = Vec::new();
        if scheme == plain && !loopback {
            self.check_clear_text(server, remote, secure)?;
            warnings.push(format!(
                "server `{server}` is reached over plain {plain}: everyone on the way can read and change it"
            ));
        }
        Ok(ConnectPermit {
            server: server.clone(),
            url: remote.url.clone(),
            loopback,
            private_networks: self.rules.private_networks,
            warnings,
        })
    }

    pub(super) fn check_literal(&self, server: &ServerName, host: &Host<&str>, loopback: bool) -> Result<()> {
        let ip: IpAddr = match host {
            Host::Domain(_) => return Ok(()),
            Host::Ipv4(ip) => (*ip).into(),
            Host::Ipv6(ip) => (*ip).into(),
        };
        address::judge(ip, loopback, self.rules.private_networks).map_err(|kind| Error::Denied {
            what: format!("server `{server}`: address {ip}"),
            rule: format!("the address rules: it is {kind}"),
            hint: private_hint(ip),
        })
    }

    fn check_clear_text(&self, server: &ServerName, remote: &Remote, secure: &str) -> Result<()> {
        if self.rules.private_networks {
            return Ok(());
        }
        let Some(what) = credential_in(remote) else {
            return Ok(());
        };
        Err(Error::Denied {
            what: format!("server `{server}`: {what} over plain {}", remote.url.expose().scheme()),
            rule: "the rule that credentials travel encrypted".into(),
            hint: format!(
                "use `{secure}:`; in a network of your own, `private_networks = true` in `[policy]` allows it"
            ),
        })
    }
}

fn private_hint(ip: IpAddr) -> String {
    if address::judge(ip, false, true).is_ok() {
        "to reach servers in your own network, write in your `wharf.toml`:\n  [policy]\n  private_networks = true".into()
    } else {
        "this kind of address is never reached; use the server's public name".into()
    }
}

/// The header or query field that carries a credential, if any.
fn credential_in(remote: &Remote) -> Option<String> {
    let header = remote.headers.iter().find(|(name, value)| {
        is_credential_name(name) || is_credential_value(value.expose()) || name.eq_ignore_ascii_case("cookie")
    });
    if let Some((name, _)) = header {
        return Some(format!("header `{}`", Escaped(name)));
    }
    let url: &Url = remote.url.expose();
    let mut pairs = url.query_pairs();
    let (name, _) = pairs
        .find(|(name, value)| is_credential_name(name) || name == "key" || is_credential_value(value))?;
    Some(format!("`{}` in the address", Escaped(&name)))
}

fn check_headers(server: &ServerName, remote: &Remote) -> Result<()> {
    for (name, value) in &remote.headers {
        let bad = |problem: &str| {
            Err(Error::config(format!("server `{server}`: header `{}` {problem}", Escaped(name))))
        };
        let Ok(parsed) = HeaderName::from_bytes(name.as_bytes()) else {
            return bad("is not the name of a header");
        };
        if HeaderValue::from_str(value.expose()).is_err() {
            return bad("has a value with a line break or another character that no header may have");
        }
        let of_protocol = ["mcp-", "sec-websocket-"].iter().any(|start| parsed.as_str().starts_with(start));
        if OURS.contains(&parsed.as_str()) || of_protocol {
            return bad("belongs to the protocol and is set by Wharf; take it out of `headers`");
        }
    }
    Ok(())
}
