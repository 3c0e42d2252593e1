//! Tokens that somebody else makes: JWTs of one issuer.
//!
//! In: a token. Out: the caller that it names, if the issuer signed it, for us, for now, with the scopes that are
//! needed; or why not. What it lets in ends with it. It ends here: no token of a caller ever travels to a server.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jsonwebtoken::{Algorithm, Validation, decode, decode_header, get_current_timestamp};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::issuer::Issuer;
use super::{Key, Refused};
use crate::config::JwtSettings;
use crate::error::Result;
use crate::gateway::stay::{Guest, Stay};
use crate::names::CallerName;
use crate::net::HttpClient;
use crate::policy::{Live, Policy};

/// Who may call by token.
#[derive(Debug)]
pub(in crate::gateway) struct Tokens {
    pub(in crate::gateway) settings: JwtSettings,
    issuer: Issuer,
    stays: Mutex<Stays>,
    /// Tokens that were judged a moment ago, by their hashes: signatures are dear.
    judged: Mutex<HashMap<[u8; 32], (Guest, Instant)>>,
    /// When this was made, in seconds since 1970, and by the clock that nobody sets.
    began: (u64, Instant),
}

/// Whoever comes by token stays as long as the token counts, and these settings do.
#[derive(Debug, Default)]
struct Stays {
    /// By the second after which they are over: tokens that end together have the same one.
    by_end: BTreeMap<u64, Stay>,
    is_over: bool,
}

/// Signatures that only the issuer can make. `none` and those with a shared secret are not among them.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];
/// How far clocks may differ, in seconds.
const LEEWAY: u64 = 30;
/// How long a judgement lasts: so long a key counts that the issuer has taken back.
const LASTS: Duration = Duration::from_secs(60);
/// How many judgements are kept.
const JUDGED: usize = 4096;

type Claims = Map<String, Value>;

// === impl Tokens ===

impl Tokens {
    pub(in crate::gateway) fn new(settings: JwtSettings, policy: Live<Policy>, net: HttpClient) -> Self {
        let issuer = Issuer::new(settings.clone(), policy, net);
        let began = (get_current_timestamp(), Instant::now());
        Self { settings, issuer, stays: Mutex::default(), judged: Mutex::default(), began }
    }

    /// Whether the issuer may be asked for its keys. Nobody is contacted.
    pub(in crate::gateway) fn check(&self) -> Result<()> {
        self.issuer.check()
    }

    /// Who a token names. `us` is whom it must be for, unless the settings say otherwise.
    pub(in crate::gateway) async fn judge(&self, token: &str, us: &str) -> Result<Guest, Refused> {
        let hash = Key::hash(token);
        if let Some(guest) = self.remembered(&hash) {
            return Ok(guest);
        }
        let header = decode_header(token).map_err(|_| Refused::Unknown("the token cannot be read"))?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(Refused::Unknown("tokens signed in that way are not taken"));
        }
        if header.crit.is_some() {
            return Err(Refused::Unknown("the token wants something that is not known here"));
        }
        let key = self.issuer.key(header.kid.as_deref(), header.alg).await?;
        let mut wanted = Validation::new(header.alg);
        wanted.leeway = LEEWAY;
        wanted.validate_nbf = true;
        wanted.set_required_spec_claims(&["exp", "iss", "aud"]);
        wanted.set_issuer(&[&self.settings.issuer_text]);
        match &self.settings.audience[..] {
            [] => wanted.set_audience(&[us]),
            named => wanted.set_audience(named),
        }
        let claims = decode::<Claims>(token, &key, &wanted).map_err(|e| Refused::Unknown(why(&e)))?.claims;
        // One issuer, not a list that has it.
        if claims.get("iss").and_then(Value::as_str) != Some(&self.settings.issuer_text) {
            return Err(Refused::Unknown("the token is of another issuer"));
        }
        let caller = self.caller(&claims)?;
        if !self.settings.scopes.iter().all(|scope| scopes(&claims).any(|has| has == scope)) {
            return Err(Refused::Scope);
        }
        let end = claims.get("exp").and_then(Value::as_f64).unwrap_or_default().ceil() as u64;
        let guest = Guest::new(caller, &self.stay_until(end.saturating_add(LEEWAY)));
        self.remember(hash, &guest, end);
        Ok(guest)
    }

    /// Ends what tokens let in that do not count any more. True if there were some.
    pub(in crate::gateway) fn look(&self) -> bool {
        let now = self.now();
        let mut stays = self.stays();
        stays.by_end.retain(|_, stay| stay.is_held());
        let left = stays.by_end.split_off(&now);
        let over = std::mem::replace(&mut stays.by_end, left);
        over.values().for_each(Stay::end);
        !over.is_empty()
    }

    /// Ends everything that a token let in: these settings do not count any more.
    pub(in crate::gateway) fn end(&self) {
        let mut stays = self.stays();
        stays.is_over = true;
        std::mem::take(&mut stays.by_end).values().for_each(Stay::end);
    }

    fn stay_until(&self, second: u64) -> Stay {
        let mut stays = self.stays();
        let stay = stays.by_end.entry(second).or_insert_with(|| Stay::until(second)).clone();
        if stays.is_over {
            stay.end();
        }
        stay
    }

    /// In seconds since 1970, by whichever clock has come further: one stands still while the machine sleeps, the other
    /// can be set back.
    fn now(&self) -> u64 {
        let (second, at) = self.began;
        get_current_timestamp().max(second + at.elapsed().as_secs())
    }

    fn stays(&self) -> MutexGuard<'_, Stays> {
        self.stays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn caller(&self, claims: &Claims) -> Result<CallerName, Refused> {
        let name = claims.get(&self.settings.caller).and_then(Value::as_str);
        let caller = name.and_then(|name| CallerName::parse(name).ok());
        // Nobody calls itself what the gateway calls those on this machine.
        caller
            .filter(|caller| *caller != CallerName::local())
            .ok_or(Refused::Unknown("the token does not name a caller"))
    }

    fn remembered(&self, hash: &[u8; 32]) -> Option<Guest> {
        let judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        judged.get(hash).filter(|(_, until)| Instant::now() < *until).map(|(guest, _)| guest.clone())
    }

    fn remember(&self, hash: [u8; 32], guest: &Guest, end: u64) {
        let left = Duration::from_secs(end.saturating_sub(self.now()));
        let until = Instant::now() + LASTS.min(left);
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        if judged.len() >= JUDGED {
            let now = Instant::now();
            judged.retain(|_, (_, until)| now < *until);
        }
        if judged.len() < JUDGED {
            judged.insert(hash, (guest.clone(), until));
        }
    }
}

/// The scopes of a token: words in `scope`, or a list or words in `scp`.
fn scopes(claims: &Claims) -> impl Iterator<Item = &str> {
    let values = ["scope", "scp"].into_iter().filter_map(|name| claims.get(name));
    values.flat_map(|value| match value {
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
        Value::String(words) => words.split(' ').collect::<Vec<_>>(),
        _ => Vec::new(),
    })
}

/// Why a token is refused, without a word of it.
fn why(error: &jsonwebtoken::errors::Error) -> &'static str {
    use jsonwebtoken::errors::ErrorKind;
    match error.kind() {
        ErrorKind::ExpiredSignature => "the token has expired",
        ErrorKind::ImmatureSignature => "the token does not count yet",
        ErrorKind::InvalidIssuer => "the token is of another issuer",
        ErrorKind::InvalidAudience => "the token is for another audience",
        ErrorKind::InvalidSignature => "the signature of the token is wrong",
        ErrorKind::MissingRequiredClaim(_) => "the token lacks `exp`, `iss` or `aud`",
        _ => "the token is not valid",
    }
}
