//! In: a server's address and what it said when it refused. Out: who hands out tokens for it, and how.
//!
//! RFC 9728 leads from the server to its authorization server, RFC 8414 or OpenID from there to the endpoints. Nobody
//! is believed about anybody else: the resource must be the server's own, the issuer the one that was asked.

use serde::Deserialize;
use url::Url;

use super::challenge::{self, Challenge};
use super::errand::Errand;
use crate::error::Result;
use crate::text::{Escaped, beginning};

/// Where a login goes.
#[derive(Debug)]
pub(super) struct Found {
    /// What the token is to be good for, as its audience.
    pub(super) resource: String,
    /// The scopes that the server knows.
    pub(super) scopes: Vec<String>,
    pub(super) authority: Authority,
}

/// An authorization server.
#[derive(Debug)]
pub(super) struct Authority {
    /// Its name, letter by letter.
    pub(super) issuer: String,
    pub(super) authorize: Url,
    pub(super) token: Url,
    pub(super) register: Option<Url>,
    pub(super) revoke: Option<Url>,
    /// How clients may prove who they are; `None` if it does not say.
    pub(super) methods: Option<Vec<String>>,
    pub(super) scopes: Vec<String>,
    /// It promises to name itself in every answer.
    pub(super) names_itself: bool,
    /// It takes the address of a document for a client's name.
    pub(super) takes_documents: bool,
}

#[derive(Deserialize)]
struct Resource {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    registration_endpoint: Option<String>,
    revocation_endpoint: Option<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    code_challenge_methods_supported: Option<Vec<String>>,
    scopes_supported: Option<Vec<String>>,
    authorization_response_iss_parameter_supported: Option<bool>,
    client_id_metadata_document_supported: Option<bool>,
}

const OAUTH: &str = "/.well-known/oauth-authorization-server";
const OPENID: &str = "/.well-known/openid-configuration";
const PROTECTED: &str = "/.well-known/oauth-protected-resource";

/// Follows the way from a server to its authorization server. `before` is the one of an earlier login.
pub(super) async fn discover(
    errand: &Errand,
    challenge: Option<&Challenge>,
    before: Option<&str>,
) -> Result<Found> {
    let named = challenge.and_then(|challenge| challenge.resource_metadata.as_deref());
    let Some(found) = resource(errand, named).await? else {
        // Servers of before June 2025 do not say: they are their own.
        let issuer = errand.home.origin().ascii_serialization();
        let authority = authority(errand, &issuer).await?;
        return Ok(Found { resource: own_name(&errand.home), scopes: Vec::new(), authority });
    };
    let of = errand.address("the resource in its metadata", &found.resource)?;
    if !covers(&of, &errand.home) {
        let what = Escaped(beginning(&found.resource, 200)).to_string();
        return Err(errand.failed(format!("its metadata are about another server: `{what}`")));
    }
    let servers = &found.authorization_servers;
    let same = servers.iter().find(|issuer| Some(issuer.as_str()) == before);
    let Some(issuer) = same.or(servers.first()) else {
        return Err(errand.failed("its metadata name no authorization server".into()));
    };
    let authority = authority(errand, issuer).await?;
    let scopes = challenge::scopes(&found.scopes_supported.unwrap_or_default().join(" "));
    Ok(Found { resource: found.resource, scopes, authority })
}

/// What the server says of itself: where its refusal pointed, or else at the two usual places.
async fn resource(errand: &Errand, named: Option<&str>) -> Result<Option<Resource>> {
    if let Some(named) = named {
        let url = errand.address("the `resource_metadata` of its refusal", named)?;
        let found = document(errand, &url).await?;
        return match found {
            Some(found) => Ok(Some(found)),
            None => Err(errand.failed(format!("its refusal points to {}, where nothing is", shown(&url)))),
        };
    }
    let path = errand.home.path().trim_end_matches('/');
    let mut places = vec![format!("{PROTECTED}{path}")];
    if !path.is_empty() {
        places.push(PROTECTED.to_owned());
    }
    for place in places {
        if let Some(found) = document(errand, &at(&errand.home, &place)).await? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// What an authorization server says of itself.
async fn authority(errand: &Errand, issuer: &str) -> Result<Authority> {
    let base = errand.address("its authorization server", issuer)?;
    if base.query().is_some() || base.fragment().is_some() {
        return Err(errand.failed("the name of its authorization server has a query".into()));
    }
    let path = base.path().trim_end_matches('/');
    let mut places = vec![format!("{OAUTH}{path}"), format!("{OPENID}{path}")];
    if !path.is_empty() {
        places.push(format!("{path}{OPENID}"));
    }
    for place in places {
        if let Some(metadata) = document::<Metadata>(errand, &at(&base, &place)).await? {
            return Authority::read(errand, issuer, metadata);
        }
    }
    Err(errand.failed(format!("its authorization server {} has no metadata", shown(&base))))
}

/// A document, if there is one.
async fn document<T: serde::de::DeserializeOwned>(errand: &Errand, url: &Url) -> Result<Option<T>> {
    let answer = errand.get(url).await?;
    if answer.status.is_server_error() {
        let status = answer.status.as_u16();
        return Err(errand.failed(format!("{} answers with HTTP status {status}", shown(url))));
    }
    if !answer.status.is_success() {
        return Ok(None);
    }
    let read = answer.json().and_then(|json| json.to::<T>().map_err(|error| error.to_string()));
    let unreadable = |reason: String| errand.failed(format!("{} cannot be read: {reason}", shown(url)));
    read.map(Some).map_err(unreadable)
}

// === impl Authority ===

impl Authority {
    fn read(errand: &Errand, issuer: &str, metadata: Metadata) -> Result<Self> {
        if metadata.issuer != issuer {
            let [other, asked] = [&metadata.issuer, issuer].map(|t| Escaped(beginning(t, 200)).to_string());
            return Err(errand.failed(format!(
                "the metadata of its authorization server `{asked}` are those of `{other}`"
            )));
        }
        let challenges = metadata.code_challenge_methods_supported.unwrap_or_default();
        if !challenges.iter().any(|method| method == "S256") {
            let reason =
                "its authorization server does not promise PKCE with S256, so a stolen code would be enough";
            return Err(errand.failed(reason.into()));
        }
        let address = |what: &str, text: Option<String>| -> Result<Option<Url>> {
            let Some(text) = text else { return Ok(None) };
            let url = errand.address(what, &text)?;
            errand.check(&url)?;
            Ok(Some(url))
        };
        let missing = |what: &str| errand.failed(format!("its authorization server has no `{what}`"));
        let authorize = metadata.authorization_endpoint.ok_or_else(|| missing("authorization_endpoint"))?;
        Ok(Self {
            authorize: page(errand, &authorize)?,
            token: address("the token endpoint", metadata.token_endpoint)?
                .ok_or_else(|| missing("token_endpoint"))?,
            register: address("the registration endpoint", metadata.registration_endpoint)?,
            revoke: address("the revocation endpoint", metadata.revocation_endpoint)?,
            methods: metadata.token_endpoint_auth_methods_supported,
            scopes: challenge::scopes(&metadata.scopes_supported.unwrap_or_default().join(" ")),
            names_itself: metadata.authorization_response_iss_parameter_supported == Some(true),
            takes_documents: metadata.client_id_metadata_document_supported == Some(true),
            issuer: metadata.issuer,
        })
    }
}

/// The page that a person is brought to. It is handed to another program, so it has only letters that no program takes
/// for anything but an address.
fn page(errand: &Errand, text: &str) -> Result<Url> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~:/?[]@!&=%+,".contains(&b);
    let refused = || {
        let shown = Escaped(beginning(text, 200)).to_string();
        errand.failed(format!("its authorization server's page is not an address to open: `{shown}`"))
    };
    let url = Url::parse(text).map_err(|_| refused())?;
    if !text.bytes().all(is_plain) || !url.as_str().bytes().all(is_plain) || url.fragment().is_some() {
        return Err(refused());
    }
    errand.check(&url)?;
    Ok(url)
}

fn at(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(path);
    url.set_query(None);
    url.set_fragment(None);
    url
}

/// A server's name as the audience of a token: its address, without what may be secret in it.
pub(super) fn own_name(home: &Url) -> String {
    let url = at(home, home.path());
    let text = url.as_str();
    if url.path() == "/" { text.trim_end_matches('/').to_owned() } else { text.to_owned() }
}

/// Whether a resource is the server itself, or the whole that it is part of.
fn covers(resource: &Url, home: &Url) -> bool {
    let whole = resource.path().trim_end_matches('/');
    let rest = home.path().strip_prefix(whole);
    resource.origin() == home.origin()
        && resource.query().is_none()
        && resource.fragment().is_none()
        && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn shown(url: &Url) -> String {
    crate::secret::SecretUrl::new(url.clone()).to_string()
}
