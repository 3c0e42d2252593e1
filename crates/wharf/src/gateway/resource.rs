//! The gateway as others see it who give out tokens: a protected resource (RFC 9728).
//!
//! In: where it listens, or is said to. Out: its description, and refusals that say where the description is.

use std::net::SocketAddr;

use http::StatusCode;
use serde_json::json;
use url::Url;

use super::Settings;
use super::body::{self, Reply};
use super::caller::Refused;
use super::terms::Admission;

/// Where the description of a resource is, before its own path.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The address that callers use.
#[derive(Debug)]
pub(super) struct Resource {
    url: String,
    path: String,
    /// Where its description is.
    metadata: String,
}

// === impl Resource ===

impl Resource {
    pub(super) fn new(settings: &Settings, at: Option<SocketAddr>) -> Self {
        let own = || at.and_then(|at| Url::parse(&format!("http://{at}/mcp")).ok());
        let Some(url) = settings.url.clone().or_else(own) else {
            return Self { url: String::new(), path: String::new(), metadata: String::new() };
        };
        let path = url.path().trim_end_matches('/').to_owned();
        let mut metadata = url.clone();
        metadata.set_path(&format!("{WELL_KNOWN}{path}"));
        Self { url: url.to_string(), path, metadata: metadata.to_string() }
    }

    /// The address, as tokens have it.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn describes_itself_at(&self, path: &str) -> bool {
        path.strip_prefix(WELL_KNOWN)
            .is_some_and(|rest| rest.is_empty() || rest == "/mcp" || rest == self.path)
    }

    /// Who gives out tokens for it, and with which scopes.
    pub(super) fn described(&self, admission: &Admission) -> Reply {
        let jwt = admission.tokens.as_ref().map(|tokens| &tokens.settings);
        let description = json!({
            "resource": self.url,
            "authorization_servers": jwt.iter().map(|jwt| &jwt.issuer_text).collect::<Vec<_>>(),
            "bearer_methods_supported": ["header"],
            "scopes_supported": jwt.map(|jwt| &jwt.scopes[..]).unwrap_or_default(),
        });
        body::message(StatusCode::OK, description.to_string().into_bytes())
    }

    /// Turns a caller away, and says how to come back.
    pub(super) fn refuse(&self, refused: Refused, admission: &Admission) -> Reply {
        let why = refused.words();
        let (status, error) = match refused {
            Refused::Unnamed => (StatusCode::UNAUTHORIZED, None),
            Refused::Unknown(_) => (StatusCode::UNAUTHORIZED, Some("invalid_token")),
            Refused::Scope => (StatusCode::FORBIDDEN, Some("insufficient_scope")),
            Refused::Unreachable => {
                return body::plain(StatusCode::SERVICE_UNAVAILABLE, why).with("retry-after", "5");
            }
        };
        let mut challenge: Vec<String> = Vec::new();
        if let Some(error) = error {
            challenge.push(format!("error=\"{error}\""));
            challenge.push(format!("error_description=\"{}\"", why.replace('`', "")));
        }
        if let Some(tokens) = &admission.tokens {
            let scopes = &tokens.settings.scopes;
            if !scopes.is_empty() {
                challenge.push(format!("scope=\"{}\"", scopes.join(" ")));
            }
            challenge.push(format!("resource_metadata=\"{}\"", self.metadata));
        }
        let challenge = match &challenge[..] {
            [] => "Bearer".to_owned(),
            parts => format!("Bearer {}", parts.join(", ")),
        };
        body::plain(status, why).with("www-authenticate", challenge)
    }
}
