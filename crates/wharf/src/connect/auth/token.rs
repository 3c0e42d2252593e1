//! In: a client and a form. Out: what the token endpoint gives for it, or why it gives nothing.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use url::Url;

use super::challenge;
use super::errand::Errand;
use super::grant::{Client, Method};
use crate::error::{Error, Result};
use crate::secret::{Redactor, Secret};

/// What the endpoint gave.
#[derive(Debug)]
pub(super) struct Tokens {
    pub(super) access: Secret,
    pub(super) refresh: Option<Secret>,
    pub(super) expires: Option<SystemTime>,
    pub(super) margin: Duration,
    /// What they are good for, where that differs from what was asked.
    pub(super) scopes: Option<Vec<String>>,
}

/// Why there are no tokens.
pub(super) enum Refusal {
    /// The login is over: the endpoint does not know what it was shown.
    Ended(String),
    /// Something else, that may pass.
    Trouble(Error),
}

#[derive(Deserialize)]
struct Shape {
    access_token: String,
    token_type: Option<String>,
    refresh_token: Option<String>,
    expires_in: Option<Seconds>,
    scope: Option<String>,
}

/// Some write a number as a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Seconds {
    Number(f64),
    Text(String),
}

/// How long before its end a token is renewed, at most, and what part of its life that is.
const MARGIN: Duration = Duration::from_secs(60);
const MARGIN_PART: u32 = 5;
/// Nobody means a token to live longer.
const LONGEST_LIFE: f64 = 10.0 * 365.0 * 86400.0;
const LONGEST_TOKEN: usize = 64 * 1024;

/// Asks for tokens. Nothing of the client goes anywhere but to this endpoint.
pub(super) async fn ask(
    errand: &Errand,
    endpoint: &Url,
    client: &Client,
    form: &[(&str, &str)],
) -> Result<Tokens, Refusal> {
    let (form, basic) = signed(client, form);
    let answer = errand.post_form(endpoint, &form, basic.as_ref()).await.map_err(Refusal::Trouble)?;
    if !answer.status.is_success() {
        let shown = form.iter().filter(|(name, _)| *name != "grant_type").map(|(_, value)| *value);
        let redactor = Redactor::new(shown.map(Secret::new).chain(client.secret.clone()));
        let (error, said) = answer.trouble(&redactor);
        let reason = format!("the authorization server refuses: {said}");
        return Err(match error.as_deref() {
            Some("invalid_grant" | "invalid_client" | "unauthorized_client") => Refusal::Ended(reason),
            _ => Refusal::Trouble(errand.failed(reason)),
        });
    }
    let broken = |reason: String| {
        Refusal::Trouble(errand.failed(format!("the authorization server's tokens cannot be read: {reason}")))
    };
    let shape: Shape = answer
        .json()
        // What is wrong with it may quote it.
        .and_then(|json| json.to().map_err(|_| "they do not have the form of tokens".to_owned()))
        .map_err(broken)?;
    Tokens::read(shape, SystemTime::now()).map_err(|reason| broken(reason.to_owned()))
}

/// Tells an endpoint something that has no answer. False if it did not take it.
pub(super) async fn tell(errand: &Errand, endpoint: &Url, client: &Client, form: &[(&str, &str)]) -> bool {
    let (form, basic) = signed(client, form);
    let told = errand.post_form(endpoint, &form, basic.as_ref()).await;
    told.is_ok_and(|answer| answer.status.is_success())
}

/// A form with what proves who sends it.
fn signed<'a>(client: &'a Client, form: &[(&'a str, &'a str)]) -> (Vec<(&'a str, &'a str)>, Option<Secret>) {
    let secret = client.secret.as_ref().map(Secret::expose).unwrap_or_default();
    let mut form = form.to_vec();
    match client.method {
        Method::Basic => return (form, Some(basic(&client.id, secret))),
        Method::Post => form.extend([("client_id", client.id.as_str()), ("client_secret", secret)]),
        Method::Open => form.push(("client_id", client.id.as_str())),
    }
    (form, None)
}

// === impl Tokens ===

impl Tokens {
    fn read(shape: Shape, now: SystemTime) -> Result<Self, &'static str> {
        let is_token = |text: &str| {
            (1..=LONGEST_TOKEN).contains(&text.len()) && text.bytes().all(|b| (0x21..=0x7e).contains(&b))
        };
        let bearer = shape.token_type.as_deref().is_none_or(|kind| kind.eq_ignore_ascii_case("bearer"));
        if !bearer {
            return Err("they are not of the type `Bearer`");
        }
        if !is_token(&shape.access_token) {
            return Err("the access token is none");
        }
        let refresh = shape.refresh_token.filter(|token| !token.is_empty());
        if refresh.as_deref().is_some_and(|token| token.len() > LONGEST_TOKEN) {
            return Err("the refresh token is none");
        }
        let life = shape.expires_in.and_then(Seconds::read);
        Ok(Self {
            access: Secret::new(shape.access_token),
            refresh: refresh.map(Secret::new),
            expires: life.and_then(|life| now.checked_add(life)),
            margin: life.map_or(MARGIN, |life| MARGIN.min(life / MARGIN_PART)),
            scopes: shape.scope.map(|scope| challenge::scopes(&scope)).filter(|scopes| !scopes.is_empty()),
        })
    }
}

impl Seconds {
    fn read(self) -> Option<Duration> {
        let seconds = match self {
            Self::Number(number) => number,
            Self::Text(text) => text.trim().parse().ok()?,
        };
        Duration::try_from_secs_f64(seconds.clamp(0.0, LONGEST_LIFE)).ok()
    }
}

impl Refusal {
    /// The error for whoever is logging in.
    pub(super) fn into_error(self, errand: &Errand) -> Error {
        match self {
            Self::Ended(reason) => errand.failed(reason),
            Self::Trouble(error) => error,
        }
    }
}

/// `Authorization: Basic`, with both parts encoded as RFC 6749 wants it.
fn basic(id: &str, secret: &str) -> Secret {
    let encode = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let pair = Secret::new(format!("{}:{}", encode(id), encode(secret)));
    Secret::new(format!("Basic {}", STANDARD.encode(pair.expose())))
}
