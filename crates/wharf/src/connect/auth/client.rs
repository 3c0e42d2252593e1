//! Who we are to an authorization server: the client that the config names, the document that describes us, or one that
//! is registered now, in this order.

use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::discover::Authority;
use super::errand::Errand;
use super::grant::{Client, Method};
use crate::config::OAuth;
use crate::error::Result;
use crate::secret::{Redactor, Secret};
use crate::text::Escaped;
use crate::wire::Json;

#[derive(Deserialize)]
struct Registered {
    client_id: String,
    client_secret: Option<String>,
    token_endpoint_auth_method: Option<String>,
}

/// Finds or makes the client for a login.
pub(super) async fn client(
    errand: &Errand,
    authority: &Authority,
    settings: &OAuth,
    redirect: &Url,
) -> Result<Client> {
    if let Some(id) = &settings.client_id {
        let secret = settings.client_secret.clone();
        let method = Method::choose(errand, authority, secret.is_some(), None)?;
        return Ok(Client { id: id.clone(), secret, method });
    }
    if let (Some(document), true) = (&settings.client_metadata_url, authority.takes_documents) {
        return Ok(Client { id: document.as_str().to_owned(), secret: None, method: Method::Open });
    }
    match &authority.register {
        Some(endpoint) => register(errand, authority, endpoint, redirect).await,
        None => Err(errand.failed_but(
            "its authorization server does not register clients, and none is configured".into(),
            format!(
                "register a client there by hand, with the redirect address http://127.0.0.1/callback, and write:\n  [mcp.{}.oauth]\n  client_id = \"…\"",
                errand.server
            ),
        )),
    }
}

/// Registers a client, as RFC 7591 has it.
async fn register(errand: &Errand, authority: &Authority, endpoint: &Url, redirect: &Url) -> Result<Client> {
    let offered = |method: &str| authority.methods.as_ref().is_none_or(|all| all.iter().any(|m| m == method));
    // A program on somebody's machine cannot keep a secret, so it is best without one.
    let method = ["none", "client_secret_basic", "client_secret_post"].into_iter().find(|m| offered(m));
    let body = json!({
        "client_name": "Wharf",
        "application_type": "native",
        "redirect_uris": [redirect.as_str()],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method.unwrap_or("none"),
    });
    let answer = errand.post_json(endpoint, &Json::of(&body)).await?;
    if !answer.status.is_success() {
        let (_, said) = answer.trouble(&Redactor::default());
        return Err(errand.failed(format!("its authorization server does not register Wharf: {said}")));
    }
    let read = answer.json().ok().and_then(|json| json.to::<Registered>().ok());
    let Some(registered) = read.filter(|registered| !registered.client_id.is_empty()) else {
        return Err(errand.failed("its authorization server registered Wharf, but says not as whom".into()));
    };
    let secret = registered.client_secret.filter(|secret| !secret.is_empty()).map(Secret::new);
    let told = registered.token_endpoint_auth_method.as_deref();
    let method = Method::choose(errand, authority, secret.is_some(), told)?;
    Ok(Client { id: registered.client_id, secret, method })
}

impl Method {
    /// How a client proves who it is: as the registration says, or else as the authorization server offers it.
    fn choose(errand: &Errand, authority: &Authority, has_secret: bool, told: Option<&str>) -> Result<Self> {
        if !has_secret {
            return Ok(Self::Open);
        }
        let known = |method: &str| match method {
            "client_secret_basic" => Some(Self::Basic),
            "client_secret_post" => Some(Self::Post),
            "none" => Some(Self::Open),
            _ => None,
        };
        let unknown = |methods: &str| {
            errand.failed(format!(
                "its authorization server wants clients to prove themselves in a way that Wharf does not know: {}",
                Escaped(methods)
            ))
        };
        if let Some(told) = told {
            return known(told).ok_or_else(|| unknown(told));
        }
        let Some(offered) = &authority.methods else { return Ok(Self::Basic) };
        let wanted = ["client_secret_basic", "client_secret_post", "none"];
        let found = wanted.into_iter().find(|method| offered.iter().any(|o| o == method));
        found.and_then(known).ok_or_else(|| unknown(&offered.join(", ")))
    }
}
