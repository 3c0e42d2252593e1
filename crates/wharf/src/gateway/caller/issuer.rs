//! The keys of whoever makes tokens.
//!
//! In: where they are, or whose they are. Out: the key that a token names. They are fetched by the same rules as any
//! server is reached, kept, and asked for again when a token names one that is not known, at most once a minute. An
//! address that the issuer's metadata gives is held to more: it never leads back to this machine.

use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::header::ACCEPT;
use http::{Request, StatusCode};
use http_body_util::Full;
use indexmap::IndexMap;
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use tokio::time::Instant;
use url::Url;

use super::Refused;
use crate::config::{JwtSettings, Origin, Remote};
use crate::error::{Error, Result};
use crate::names::ServerName;
use crate::net::{Endpoint, HttpClient, read_body};
use crate::policy::{Live, Policy, address};
use crate::secret::SecretUrl;
use crate::wire::Json;

/// An issuer, and what is known of its keys.
#[derive(Debug)]
pub(super) struct Issuer {
    settings: JwtSettings,
    policy: Live<Policy>,
    net: HttpClient,
    known: ArcSwapOption<Known>,
    /// Held while the issuer is asked; when it was asked last.
    asked: tokio::sync::Mutex<Option<Instant>>,
}

struct Known {
    keys: Vec<IssuerKey>,
    at: Instant,
}

struct IssuerKey {
    id: Option<String>,
    /// The one algorithm it is for, if the issuer says so.
    only: Option<String>,
    key: DecodingKey,
}

/// After so long the issuer is asked whether its keys are still those.
const FRESH: Duration = Duration::from_secs(10 * 60);
/// So long they count though the issuer does not answer.
const KEPT: Duration = Duration::from_secs(60 * 60);
/// The shortest time between two questions, and where no key is known at all.
const PAUSE: Duration = Duration::from_secs(60);
const PAUSE_AT_FIRST: Duration = Duration::from_secs(2);
/// How long the issuer may take to answer one of them.
const ANSWER: Duration = Duration::from_secs(10);
/// How much it may answer, and how many keys it may have.
const LARGEST: usize = 256 * 1024;
const MOST_KEYS: usize = 64;
const DEPTH: usize = 16;

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Known({} keys)", self.keys.len())
    }
}

// === impl Issuer ===

impl Issuer {
    pub(super) fn new(settings: JwtSettings, policy: Live<Policy>, net: HttpClient) -> Self {
        Self { settings, policy, net, known: ArcSwapOption::empty(), asked: tokio::sync::Mutex::default() }
    }

    /// Whether it may be asked at all. Nobody is contacted.
    pub(super) fn check(&self) -> Result<()> {
        let mut addresses = std::iter::once(&self.settings.issuer).chain(&self.settings.jwks_url);
        addresses.try_for_each(|url| self.endpoint(url).map(drop))
    }

    /// The key that a token was signed with.
    pub(super) async fn key(&self, id: Option<&str>, algorithm: Algorithm) -> Result<DecodingKey, Refused> {
        let find = || self.known.load().as_ref().and_then(|known| known.find(id, algorithm));
        if let Some((key, age)) = find() {
            let is_fresh = age < FRESH;
            // Somebody else asks already: what is known serves meanwhile.
            let Some(mut asked) = (!is_fresh).then(|| self.asked.try_lock().ok()).flatten() else {
                return if age < KEPT { Ok(key) } else { Err(Refused::Unreachable) };
            };
            let _ = self.ask(&mut asked).await;
            return match find() {
                Some((key, age)) if age < KEPT => Ok(key),
                Some(_) => Err(Refused::Unreachable),
                None => Err(Refused::Unknown("the key of the token is not known")),
            };
        }
        let mut asked = self.asked.lock().await;
        if let Some((key, _)) = find() {
            return Ok(key);
        }
        let answered = self.ask(&mut asked).await;
        drop(asked);
        match find() {
            Some((key, _)) => Ok(key),
            None if answered.is_err() && self.known.load().is_none() => Err(Refused::Unreachable),
            None => Err(Refused::Unknown("the key of the token is not known")),
        }
    }

    /// Asks the issuer, unless it was asked a moment ago.
    async fn ask(&self, asked: &mut Option<Instant>) -> Result<(), String> {
        let pause = if self.known.load().is_some() { PAUSE } else { PAUSE_AT_FIRST };
        if asked.is_some_and(|at| at.elapsed() < pause) {
            return Err("it was asked a moment ago".to_owned());
        }
        *asked = Some(Instant::now());
        let keys = self.fetch().await?;
        self.known.store(Some(Known { keys, at: Instant::now() }.into()));
        Ok(())
    }

    async fn fetch(&self) -> Result<Vec<IssuerKey>, String> {
        let at = match &self.settings.jwks_url {
            Some(url) => url.clone(),
            None => self.discover().await?,
        };
        let answer = self.get(&at).await?;
        let keys: Vec<Json> =
            answer.member("keys").and_then(|keys| keys.to().ok()).ok_or("it has no `keys`")?;
        // A key that cannot be read is none of ours; the others count.
        let keys = keys.iter().take(MOST_KEYS).filter_map(|key| IssuerKey::read(key.to().ok()?));
        Ok(keys.collect())
    }

    /// Where the issuer's own metadata says that its keys are.
    async fn discover(&self) -> Result<Url, String> {
        let issuer = &self.settings.issuer;
        let path = issuer.path().trim_end_matches('/');
        let places = [
            format!("/.well-known/oauth-authorization-server{path}"),
            format!("/.well-known/openid-configuration{path}"),
            format!("{path}/.well-known/openid-configuration"),
        ];
        for place in places {
            let mut url = issuer.clone();
            url.set_path(&place);
            let Ok(found) = self.get(&url).await else { continue };
            let [of, keys] = found.pick(["issuer", "jwks_uri"]).map(|text| text?.to::<String>().ok());
            let keys = keys.and_then(|keys| Url::parse(&keys).ok());
            // Whoever claims to be another is not believed about anything.
            if let (true, Some(keys)) = (of.as_deref() == Some(&self.settings.issuer_text), keys) {
                if address::names_loopback(&keys) && !address::names_loopback(issuer) {
                    return Err("its keys are said to be on this machine".to_owned());
                }
                return Ok(keys);
            }
        }
        Err("it has no metadata that say where its keys are".to_owned())
    }

    async fn get(&self, url: &Url) -> Result<Json, String> {
        let endpoint = self.endpoint(url).map_err(|e| e.to_string())?;
        let request = Request::get(url.as_str()).header(ACCEPT, "application/json");
        let request = request.body(Full::<Bytes>::default()).map_err(|e| e.to_string())?;
        let answer = async {
            let reply = endpoint.send(request).await.map_err(|e| e.to_string())?;
            if reply.status() != StatusCode::OK {
                return Err(format!("it answers {}", reply.status()));
            }
            read_body(reply.into_body(), LARGEST).await.map_err(|e| e.to_string())
        };
        let bytes = tokio::time::timeout(ANSWER, answer).await.map_err(|_| "it does not answer")??;
        Json::parse_strict(bytes, DEPTH).map_err(|e| e.to_string())
    }

    /// Keys that others could change on the way are no keys: encrypted, or within this machine.
    fn endpoint(&self, url: &Url) -> Result<Endpoint> {
        if url.scheme() != "https" && !address::names_loopback(url) {
            return Err(Error::Denied {
                what: format!("the issuer at {url}"),
                rule: "the rule that an issuer's keys travel encrypted".into(),
                hint: "use `https:`".into(),
            });
        }
        let name = ServerName::parse("issuer").map_err(|e| Error::Internal(e.to_string()))?;
        let remote = Remote { url: SecretUrl::new(url.clone()), headers: IndexMap::new() };
        let permit = self.policy.now().permit_connect(&name, &remote, &Origin::Given)?;
        Ok(self.net.for_permit(&permit))
    }
}

// === impl Known ===

impl Known {
    /// A key by its id; without one only the single key that it can be.
    fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<(DecodingKey, Duration)> {
        let mut fit =
            self.keys.iter().filter(|key| key.is_for(algorithm) && (id.is_none() || key.id.as_deref() == id));
        let first = fit.next()?;
        (id.is_some() || fit.next().is_none()).then(|| (first.key.clone(), self.at.elapsed()))
    }
}

// === impl IssuerKey ===

impl IssuerKey {
    fn read(jwk: Jwk) -> Option<Self> {
        // A secret that the whole world can read signs nothing.
        let is_public = !matches!(jwk.algorithm, AlgorithmParameters::OctetKey(_));
        let signs = jwk.common.public_key_use.as_ref().is_none_or(|uses| *uses == PublicKeyUse::Signature);
        if !is_public || !signs {
            return None;
        }
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        let only = jwk.common.key_algorithm.map(|algorithm| algorithm.to_string());
        Some(Self { id: jwk.common.key_id, only, key })
    }

    fn is_for(&self, algorithm: Algorithm) -> bool {
        let named = self.only.as_ref().is_none_or(|only| *only == format!("{algorithm:?}"));
        named && self.key.family().algorithms().contains(&algorithm)
    }
}
