//! Logging in and out: the whole way, one line a step.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Request, StatusCode};
use http_body_util::Full;

use super::challenge::{self, Challenge};
use super::discover::{self, Found};
use super::grant::Grant;
use super::pass::Pass;
use super::store::Outline;
use super::visit::{self, Visitor};
use super::{client, token};
use crate::config::OAuth;
use crate::error::{Error, Result};
use crate::mcp::{Revision, meta, method};
use crate::wire::{self, Json, Members};

/// How a logout ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoggedOut {
    /// Nobody was logged in.
    WasNot,
    /// The login is forgotten, and the authorization server was told.
    Revoked,
    /// The login is forgotten; the authorization server has no place to be told, or did not listen.
    Forgotten,
}

const OFFLINE: &str = "offline_access";

impl Pass {
    /// Logs in. `more` is what the token is to be good for beside what the server asks for.
    pub(super) async fn login(
        self: &Arc<Self>,
        settings: &OAuth,
        visitor: &dyn Visitor,
        more: &[String],
    ) -> Result<Outline> {
        let errand = &self.errand;
        if !errand.policy.now().permits_token(&errand.home) {
            return Err(Error::Denied {
                what: format!("server `{}`: a token over plain http", errand.server),
                rule: "the rule that credentials travel encrypted".into(),
                hint: "use `https:`; in a network of your own, `private_networks = true` in `[policy]` allows it"
                    .into(),
            });
        }
        let before = self.read().await?;
        let challenge = match self.take_challenge() {
            Some(challenge) => Some(challenge),
            None => self.provoke().await?,
        };
        let issuer = before.as_ref().map(|grant| grant.issuer.as_str());
        let found = discover::discover(errand, challenge.as_ref(), issuer).await?;
        self.check_issuer(settings, &found, before.as_ref())?;
        let scopes = self.scopes(settings, &found, challenge.as_ref(), before.as_ref(), more)?;
        let client = client::client(errand, &found.authority, settings, &visitor.returns_to()).await?;
        let code = visit::visit(errand, visitor, &found, &client, &scopes).await?;
        let back = visitor.returns_to();
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code.code.expose()),
            ("code_verifier", code.verifier.expose()),
            ("redirect_uri", back.as_str()),
            ("resource", found.resource.as_str()),
        ];
        let tokens = token::ask(errand, &found.authority.token, &client, &form).await;
        let tokens = tokens.map_err(|refusal| refusal.into_error(errand))?;
        let grant = Grant {
            resource: found.resource,
            issuer: found.authority.issuer,
            token_endpoint: found.authority.token,
            revoke: found.authority.revoke,
            client,
            access: tokens.access,
            refresh: tokens.refresh,
            expires: tokens.expires,
            margin: tokens.margin,
            scopes: tokens.scopes.unwrap_or_else(|| scopes.clone()),
            asked: scopes,
            wanted: Vec::new(),
        };
        let _one = self.alone().await;
        let _lock = self.lock().await?;
        self.keep(&grant).await?;
        let outline = grant.outline();
        self.take(Some(grant));
        Ok(outline)
    }

    /// Forgets the login, and tells whoever made it.
    pub(super) async fn logout(&self) -> Result<LoggedOut> {
        let _one = self.alone().await;
        let _lock = self.lock().await?;
        let grant = self.read().await?;
        if !self.forget().await? {
            return Ok(LoggedOut::WasNot);
        }
        self.take(None);
        let Some((grant, endpoint)) = grant.and_then(|grant| Some((grant.clone(), grant.revoke?))) else {
            return Ok(LoggedOut::Forgotten);
        };
        let kind = if grant.refresh.is_some() { "refresh_token" } else { "access_token" };
        let token = grant.refresh.as_ref().unwrap_or(&grant.access);
        let form = [("token", token.expose()), ("token_type_hint", kind)];
        let told = token::tell(&self.errand, &endpoint, &grant.client, &form).await;
        Ok(if told { LoggedOut::Revoked } else { LoggedOut::Forgotten })
    }

    /// Asks the server something without a token, to be told what it wants.
    async fn provoke(&self) -> Result<Option<Challenge>> {
        let revision = Revision::NEWEST_MODERN;
        let mut about = Members::new();
        about
            .text(meta::PROTOCOL_VERSION, revision.as_str())
            .json(meta::CLIENT_CAPABILITIES, &Json::empty_object());
        let mut params = Members::new();
        params.object("_meta", &about);
        let request = Request::post("/")
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .header("mcp-protocol-version", revision.as_str())
            .header("mcp-method", method::DISCOVER)
            .body(Full::new(Bytes::from(wire::request(1, method::DISCOVER, params))))
            .map_err(|error| Error::Internal(error.to_string()))?;
        let answer = self.errand.ask_home(request).await?;
        let refused = answer.status == StatusCode::UNAUTHORIZED;
        Ok(refused.then(|| Challenge::read(&answer.headers)).flatten())
    }

    /// A secret of ours goes only to the authorization server that it was made for.
    fn check_issuer(&self, settings: &OAuth, found: &Found, before: Option<&Grant>) -> Result<()> {
        let issuer = &found.authority.issuer;
        let shown = crate::text::Escaped(crate::text::beginning(issuer, 200)).to_string();
        if settings.issuer.as_ref().is_some_and(|only| only != issuer) {
            let reason = format!("it names another authorization server than the config: `{shown}`");
            return Err(self.errand.failed(reason));
        }
        let is_new = before.is_some_and(|grant| grant.issuer != *issuer);
        if is_new && settings.issuer.is_none() && settings.client_secret.is_some() {
            return Err(self.errand.failed_but(
                format!("it names another authorization server than at the last login: `{shown}`"),
                format!(
                    "the `client_secret` in the config is not for it; if it is, write `issuer = \"{shown}\"` beside it"
                ),
            ));
        }
        Ok(())
    }

    /// What the token is asked to be good for: what the refusal names, or else what the server knows, and always what
    /// it was good for before.
    fn scopes(
        &self,
        settings: &OAuth,
        found: &Found,
        challenge: Option<&Challenge>,
        before: Option<&Grant>,
        more: &[String],
    ) -> Result<Vec<String>> {
        let before = before.filter(|grant| grant.issuer == found.authority.issuer);
        let challenged = challenge.and_then(|challenge| challenge.scopes.clone());
        let wants_more = challenge.is_some_and(Challenge::wants_more);
        let mut all = match (challenged, settings.scopes.is_empty()) {
            (Some(scopes), _) => scopes,
            (None, false) => settings.scopes.clone(),
            (None, true) => found.scopes.clone(),
        };
        if let Some(grant) = before {
            let known = all.iter().all(|scope| grant.asked.contains(scope));
            if wants_more && known && more.is_empty() {
                let scopes = all.join(" ");
                return Err(self.errand.failed(format!(
                    "it asks again for what the login was already asked for: `{}`",
                    crate::text::Escaped(&scopes)
                )));
            }
            all.splice(0..0, grant.asked.iter().cloned());
            all.extend(grant.wanted.iter().cloned());
        }
        all.extend(more.iter().cloned());
        // It is how some servers are asked for a token that can be renewed.
        if found.authority.scopes.iter().any(|scope| scope == OFFLINE) {
            all.push(OFFLINE.into());
        } else {
            all.retain(|scope| scope != OFFLINE);
        }
        Ok(challenge::scopes(&all.join(" ")))
    }
}
