//! What a login leaves behind: tokens, and what is needed to renew them. Bound to the server, the authorization server
//! and the client that it was made for; kept as one secret text.

use std::mem::take;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use url::Url;
use zeroize::Zeroize;

use super::store::Outline;
use crate::secret::Secret;

/// A login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    /// The audience of the tokens.
    pub(super) resource: String,
    /// Who made them: nobody else is shown anything of this.
    pub(super) issuer: String,
    pub(super) token_endpoint: Url,
    pub(super) revoke: Option<Url>,
    pub(super) client: Client,
    pub(super) access: Secret,
    pub(super) refresh: Option<Secret>,
    pub(super) expires: Option<SystemTime>,
    /// How long before its end it is renewed.
    pub(super) margin: Duration,
    /// What it was asked to be good for.
    pub(super) asked: Vec<String>,
    /// What it is good for, as far as is known.
    pub(super) scopes: Vec<String>,
    /// What the server wanted more, since.
    pub(super) wanted: Vec<String>,
}

/// Who we are to an authorization server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) id: String,
    pub(super) secret: Option<Secret>,
    pub(super) method: Method,
}

/// How a client proves who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Method {
    #[serde(rename = "none")]
    Open,
    #[serde(rename = "client_secret_basic")]
    Basic,
    #[serde(rename = "client_secret_post")]
    Post,
}

/// The text. Times are seconds since 1970.
#[derive(Serialize, Deserialize)]
struct Shape {
    version: u32,
    resource: String,
    issuer: String,
    token_endpoint: String,
    revocation_endpoint: Option<String>,
    client_id: String,
    client_secret: Option<String>,
    method: Method,
    access_token: String,
    refresh_token: Option<String>,
    expires: Option<u64>,
    margin: u64,
    asked: Vec<String>,
    scopes: Vec<String>,
    #[serde(default)]
    wanted: Vec<String>,
}

const VERSION: u32 = 1;

// === impl Grant ===

impl Grant {
    pub(super) fn write(&self) -> Secret {
        let expose = |secret: &Option<Secret>| secret.as_ref().map(|secret| secret.expose().to_owned());
        let shape = Shape {
            version: VERSION,
            resource: self.resource.clone(),
            issuer: self.issuer.clone(),
            token_endpoint: self.token_endpoint.to_string(),
            revocation_endpoint: self.revoke.as_ref().map(Url::to_string),
            client_id: self.client.id.clone(),
            client_secret: expose(&self.client.secret),
            method: self.client.method,
            access_token: self.access.expose().to_owned(),
            refresh_token: expose(&self.refresh),
            expires: self.expires.and_then(seconds),
            margin: self.margin.as_secs(),
            asked: self.asked.clone(),
            scopes: self.scopes.clone(),
            wanted: self.wanted.clone(),
        };
        Secret::new(serde_json::to_string(&shape).unwrap_or_default())
    }

    /// `None` if it is not the text of a grant.
    pub(super) fn read(text: &Secret) -> Option<Self> {
        let mut shape: Shape = serde_json::from_str(text.expose()).ok()?;
        let (token_endpoint, revoke) =
            (Url::parse(&shape.token_endpoint).ok()?, shape.revocation_endpoint.take());
        (shape.version == VERSION).then(|| Self {
            resource: take(&mut shape.resource),
            issuer: take(&mut shape.issuer),
            token_endpoint,
            revoke: revoke.and_then(|url| Url::parse(&url).ok()),
            client: Client {
                id: take(&mut shape.client_id),
                secret: shape.client_secret.take().map(Secret::new),
                method: shape.method,
            },
            access: Secret::new(take(&mut shape.access_token)),
            refresh: shape.refresh_token.take().map(Secret::new),
            expires: shape.expires.and_then(|at| UNIX_EPOCH.checked_add(Duration::from_secs(at))),
            margin: Duration::from_secs(shape.margin),
            asked: take(&mut shape.asked),
            scopes: take(&mut shape.scopes),
            wanted: take(&mut shape.wanted),
        })
    }

    /// What may be seen of it.
    pub(super) fn outline(&self) -> Outline {
        Outline {
            issuer: self.issuer.clone(),
            expires: self.expires,
            renewable: self.refresh.is_some(),
            scopes: self.scopes.clone(),
            wanted: self.wanted.clone(),
        }
    }

    /// Whether it should be renewed before it is used again.
    pub(super) fn is_old(&self, now: SystemTime) -> bool {
        self.expires.is_some_and(|end| now.checked_add(self.margin).is_none_or(|soon| soon >= end))
    }

    /// Whether it is of no use any more.
    pub(super) fn has_ended(&self, now: SystemTime) -> bool {
        self.expires.is_some_and(|end| now >= end)
    }

    /// Everything in it that nobody may see.
    pub(super) fn secrets(&self) -> Vec<Secret> {
        let mut all = vec![self.access.clone()];
        all.extend(self.refresh.clone());
        all.extend(self.client.secret.clone());
        all
    }
}

impl Drop for Shape {
    fn drop(&mut self) {
        self.access_token.zeroize();
        self.refresh_token.zeroize();
        self.client_secret.zeroize();
    }
}

fn seconds(time: SystemTime) -> Option<u64> {
    time.duration_since(UNIX_EPOCH).ok().map(|time| time.as_secs())
}
