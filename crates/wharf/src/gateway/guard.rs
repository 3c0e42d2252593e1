//! Which requests are answered at all: those that were meant for this address.
//!
//! A page in a browser can reach a server on its own machine under a name of its choice. So the name that a request
//! was sent to, and the page that it comes from, are looked at before anything else.

use std::net::{IpAddr, SocketAddr};

use http::StatusCode;

use super::Settings;
use super::h1::{Head, Usual};

/// What the gateway is called by, beside the names of this machine for itself: names it was given, the host of its URL,
/// and where it listens. A listener at every address has none by that; then no name that a page makes up leads here.
pub(super) fn names(settings: &Settings, at: Option<SocketAddr>) -> Vec<String> {
    let url = settings.url.as_ref().and_then(|url| url.host_str());
    let url = url.map(|host| host.trim_start_matches('[').trim_end_matches(']').to_owned());
    let at = at.map(|at| at.ip()).filter(|ip| !ip.is_unspecified()).map(|ip| ip.to_string());
    settings.hosts.iter().cloned().chain(url).chain(at).collect()
}

/// Whether a request was meant for us. The error is what to answer. `known` is the last name that was found to be ours:
/// nearly every request of a connection is sent to the same.
pub(super) fn check(
    head: &Head,
    (settings, names): (&Settings, &[String]),
    known: &mut String,
) -> Result<(), (StatusCode, &'static str)> {
    let is_known = !known.is_empty() && head.usual(Usual::Host) == Some(known.as_bytes());
    if is_known && head.authority().is_none() && !head.has_usual(Usual::Origin) {
        return Ok(());
    }
    let host = head.one("host").ok_or((StatusCode::BAD_REQUEST, "one Host header is needed"))?;
    // In the absolute form the target names a host too: it must be the same.
    if head.authority().is_some_and(|target| !target.eq_ignore_ascii_case(host)) {
        return Err((StatusCode::BAD_REQUEST, "the target and the Host header name different hosts"));
    }
    if !is_known {
        if !is_ours(host, names) {
            return Err((StatusCode::FORBIDDEN, "this gateway is not called by that name; see --host"));
        }
        host.clone_into(known);
    }
    if head.has("origin") {
        let origin = head.one("origin");
        if !origin.is_some_and(|origin| is_page_of_ours(origin, host, settings)) {
            return Err((StatusCode::FORBIDDEN, "pages of that origin are not served; see --origin"));
        }
    }
    Ok(())
}

/// A page of the very address that is called, or one that was allowed by name.
fn is_page_of_ours(origin: &str, host: &str, settings: &Settings) -> bool {
    let allowed = settings.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin));
    let own = origin.split_once("://").is_some_and(|(scheme, authority)| {
        matches!(scheme, "http" | "https") && authority.eq_ignore_ascii_case(host)
    });
    allowed || own
}

pub(super) fn is_ours(authority: &str, allowed: &[String]) -> bool {
    let name = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) if rest.is_empty() || is_port(rest) => address,
        Some(_) => return false,
        None => match authority.split_once(':') {
            Some((name, port)) if is_number(port) => name,
            Some(_) => return false,
            None => authority,
        },
    };
    let ip = name.parse::<IpAddr>().ok();
    let loopback = ip.is_some_and(|ip| ip.is_loopback());
    let known = |allowed: &String| {
        allowed.eq_ignore_ascii_case(name)
            || allowed.eq_ignore_ascii_case(authority)
            || (ip.is_some() && allowed.parse().ok() == ip)
    };
    loopback || name.eq_ignore_ascii_case("localhost") || allowed.iter().any(known)
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(is_number)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() <= 5 && text.bytes().all(|b| b.is_ascii_digit())
}
