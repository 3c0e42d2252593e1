//! The way through a person's browser: the page they are brought to, and the address they come back with.
//!
//! In: an authorization server and a client. Out: a code that was meant for us, from whom we asked it. Opening the page
//! is the program's, through [`Visitor`].

use std::pin::Pin;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use url::Url;

use super::discover::{Authority, Found};
use super::errand::Errand;
use super::grant::Client;
use crate::error::{Error, Result};
use crate::secret::Secret;
use crate::text::{Escaped, beginning};

/// Brings a person to a page and back.
pub trait Visitor: Send + Sync {
    /// The address that the person comes back to. It is the same until the visit is over.
    fn returns_to(&self) -> Url;

    /// Brings the person to the page, and waits for the address that they come back with: the whole address, its query,
    /// or the bare code. Whether it is the right one is not for the visitor to say; [`Page::fits`] tells.
    fn visit<'a>(&'a self, page: &'a Page) -> Visiting<'a>;
}

/// A visit under way.
pub type Visiting<'a> = Pin<Box<dyn Future<Output = Result<Secret>> + Send + 'a>>;

/// The page that a person is asked to look at.
#[derive(Debug)]
pub struct Page {
    url: Url,
    issuer: String,
    state: Secret,
}

/// What goes with one visit and no other.
pub(super) struct Secrets {
    verifier: Secret,
    state: Secret,
}

/// What came back.
pub(super) struct Code {
    pub(super) code: Secret,
    pub(super) verifier: Secret,
}

// === impl Page ===

impl Page {
    /// Its address, checked: only letters of an address, `https:`, or `http:` on this machine.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Who shows it, as it calls itself.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Whether an answer belongs to this visit. Others may knock at a door that is open to the whole machine.
    pub fn fits(&self, query: &str) -> bool {
        let mut pairs = url::form_urlencoded::parse(query.as_bytes());
        pairs.any(|(name, value)| name == "state" && value == self.state.expose())
    }
}

/// Brings the person to the authorization server and takes what they bring back.
pub(super) async fn visit(
    errand: &Errand,
    visitor: &dyn Visitor,
    found: &Found,
    client: &Client,
    scopes: &[String],
) -> Result<Code> {
    let authority = &found.authority;
    let secrets = Secrets::new()?;
    let page = Page {
        url: address(found, client, scopes, &visitor.returns_to(), &secrets),
        issuer: authority.issuer.clone(),
        state: secrets.state.clone(),
    };
    let returned = visitor.visit(&page).await?;
    let code = judge(errand, authority, &page, returned.expose())?;
    Ok(Code { code, verifier: secrets.verifier })
}

fn address(found: &Found, client: &Client, scopes: &[String], back: &Url, secrets: &Secrets) -> Url {
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(secrets.verifier.expose().as_bytes()));
    let mut url = found.authority.authorize.clone();
    {
        let mut query = url.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", &client.id)
            .append_pair("redirect_uri", back.as_str())
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256")
            .append_pair("state", secrets.state.expose())
            .append_pair("resource", &found.resource);
        if !scopes.is_empty() {
            query.append_pair("scope", &scopes.join(" "));
        }
        if scopes.iter().any(|scope| scope == "offline_access") {
            // OpenID hands out what lasts only if the person is asked.
            query.append_pair("prompt", "consent");
        }
    }
    url
}

/// Whether what came back is an answer to what was asked, by the one who was asked.
fn judge(errand: &Errand, authority: &Authority, page: &Page, returned: &str) -> Result<Secret> {
    let returned = returned.trim();
    let query = match returned.split_once('?') {
        Some((_, query)) => query.split('#').next().unwrap_or_default(),
        None if returned.contains('=') && !returned.contains("://") => returned,
        // A bare code, by the person's own hand. PKCE binds it to this visit; who sent it is not in it.
        None if !authority.names_itself && is_code(returned) => return Ok(Secret::new(returned)),
        None => return Err(errand.failed("that is not the address that the browser came back to".into())),
    };
    let get = |name: &str| {
        let mut all = url::form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == name);
        (all.next().map(|(_, value)| value.into_owned()), all.next().is_some())
    };
    let once = |name: &str| match get(name) {
        (_, true) => Err(errand.failed(format!("the answer has `{name}` twice"))),
        (value, false) => Ok(value),
    };
    if once("state")?.as_deref() != Some(page.state.expose()) {
        return Err(errand.failed("the answer does not belong to this login (its `state` is another)".into()));
    }
    // RFC 9207, letter by letter, and before anything else in the answer is believed.
    match once("iss")? {
        Some(issuer) if issuer == authority.issuer => {}
        Some(other) => {
            let other = Escaped(beginning(&other, 200)).to_string();
            return Err(
                errand.failed(format!("the answer comes from another authorization server: `{other}`"))
            );
        }
        None if authority.names_itself => {
            return Err(errand.failed("the answer does not say who sent it (`iss` is missing)".into()));
        }
        None => {}
    }
    if let Some(error) = once("error")? {
        let more = once("error_description")?.map_or_else(String::new, |text| format!(", {text}"));
        let said = Escaped(beginning(&format!("{error}{more}"), 300)).to_string();
        return Err(errand.failed(format!("the authorization server refuses: {said}")));
    }
    let code = once("code")?.filter(|code| is_code(code));
    code.map(Secret::new).ok_or_else(|| errand.failed("the answer has no code".into()))
}

fn is_code(text: &str) -> bool {
    (1..=8192).contains(&text.len()) && text.bytes().all(|b| (0x21..=0x7e).contains(&b))
}

// === impl Secrets ===

impl Secrets {
    fn new() -> Result<Self> {
        Ok(Self { verifier: random()?, state: random()? })
    }
}

/// As many letters as nobody guesses.
fn random() -> Result<Secret> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|_| Error::Internal("no random numbers to be had".into()))?;
    Ok(Secret::new(URL_SAFE_NO_PAD.encode(bytes)))
}
