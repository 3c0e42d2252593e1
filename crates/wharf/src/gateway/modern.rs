//! The modern edge: every request stands alone, and its headers say what its body says.

use std::time::Duration;

use base64::Engine as _;
use http::{HeaderMap, StatusCode};
use serde_json::json;

use super::body::{self, Reply, Work};
use super::desk::{Desk, Line};
use super::guard::single;
use super::http::VERSION;
use super::limits;
use crate::host::Session;
use crate::mcp::{Revision, code, meta, method};
use crate::wire::{Json, Members, RpcError, response_error, response_result};

/// One request.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) id: Json,
    pub(super) method: String,
    pub(super) params: Option<Json>,
}

/// After so much silence the answer begins as a stream, so that nobody on the way takes it for lost.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a list may be kept by whoever got it.
const LIST_TTL_MS: u64 = 5_000;

impl Asked {
    /// Whether it is written in the modern way.
    pub(super) fn is_modern(&self) -> bool {
        self.told(meta::PROTOCOL_VERSION).is_some()
    }

    /// Answers it over HTTP. The status says what the protocol wants it to say.
    pub(super) async fn over_http(
        self,
        desk: std::sync::Arc<Desk>,
        scope: Session,
        headers: &HeaderMap,
    ) -> Reply {
        if let Err(error) = self.check_headers(headers).and_then(|()| self.check_meta()) {
            return body::message(StatusCode::BAD_REQUEST, response_error(&self.id, &error));
        }
        let (line, mut notes) = Line::new();
        let mut work = Box::pin(async move {
            let result = self.result(&desk, &scope, &line).await;
            (self, result)
        });
        let first = tokio::select! {
            biased;
            (asked, result) = &mut work => return whole(&asked, result),
            note = notes.recv() => note.map(|note| body::first_event(&note)),
            () = tokio::time::sleep(PATIENCE) => None,
        };
        let work: Work = Box::pin(async move {
            let (asked, result) = work.await;
            asked.written(result)
        });
        body::events(first, notes, Some(work))
    }

    /// Answers it over a pipe.
    pub(super) async fn over_pipe(&self, desk: &Desk, scope: &Session, line: &Line) -> Vec<u8> {
        let result = match self.check_meta() {
            Ok(()) => self.result(desk, scope, line).await,
            Err(error) => Err(error),
        };
        self.written(result)
    }

    fn written(&self, result: Result<Json, RpcError>) -> Vec<u8> {
        match result {
            Ok(result) => response_result(&self.id, &result),
            Err(error) => response_error(&self.id, &error),
        }
    }

    async fn result(&self, desk: &Desk, scope: &Session, line: &Line) -> Result<Json, RpcError> {
        let (result, cached) = match self.method.as_str() {
            method::DISCOVER => (discovered(desk), true),
            // Words of the legacy era: here they mean nothing, whatever the other edge makes of them.
            method::INITIALIZE | method::PING => return Err(unknown(&self.method)),
            name => {
                let result = desk.answer(scope, name, self.params.as_ref(), line).await?;
                (result, name.ends_with("/list"))
            }
        };
        Ok(dressed(&result, desk, cached))
    }

    fn told(&self, key: &str) -> Option<Json> {
        self.params.as_ref()?.member("_meta")?.member(key)
    }

    fn check_meta(&self) -> Result<(), RpcError> {
        let missing = |key: &str| RpcError::new(code::INVALID_PARAMS, format!("`_meta` must have `{key}`"));
        let version = self.told(meta::PROTOCOL_VERSION).ok_or_else(|| missing(meta::PROTOCOL_VERSION))?;
        let version: String = version.to().map_err(|_| missing(meta::PROTOCOL_VERSION))?;
        if version != Revision::NEWEST_MODERN.as_str() {
            let data = json!({ "supported": [Revision::NEWEST_MODERN.as_str()], "requested": version });
            let error = RpcError::new(code::UNSUPPORTED_VERSION, "unsupported protocol version");
            return Err(RpcError { data: Some(Json::of(&data)), ..error });
        }
        let capabilities = self.told(meta::CLIENT_CAPABILITIES);
        capabilities.filter(Json::is_object).map(drop).ok_or_else(|| missing(meta::CLIENT_CAPABILITIES))
    }

    /// Whoever stands in between routes by the headers: they must not lie.
    fn check_headers(&self, headers: &HeaderMap) -> Result<(), RpcError> {
        let version = self.told(meta::PROTOCOL_VERSION).and_then(|v| v.to::<String>().ok());
        if let Some(version) = version {
            same(headers, VERSION, &version, |v| Some(v.to_owned()))?;
        }
        same(headers, "mcp-method", &self.method, |v| Some(v.to_owned()))?;
        let key = match self.method.as_str() {
            method::TOOLS_CALL | method::PROMPTS_GET => "name",
            method::RESOURCES_READ => "uri",
            _ => return Ok(()),
        };
        match self.params.as_ref().and_then(|p| p.member(key)).and_then(|name| name.to::<String>().ok()) {
            Some(name) => same(headers, "mcp-name", &name, decoded),
            // What the body lacks is told by whoever reads it.
            None => Ok(()),
        }
    }
}

fn whole(asked: &Asked, result: Result<Json, RpcError>) -> Reply {
    if let Err(error) = &result
        && limits::retry_after(error).is_some()
    {
        return body::overloaded(&asked.id, error);
    }
    let unknown = matches!(&result, Err(error) if error.code == code::METHOD_NOT_FOUND);
    let status = if unknown { StatusCode::NOT_FOUND } else { StatusCode::OK };
    body::message(status, asked.written(result))
}

fn unknown(method: &str) -> RpcError {
    RpcError::new(code::METHOD_NOT_FOUND, format!("there is no method `{method}`"))
}

fn discovered(desk: &Desk) -> Json {
    let mut result = Members::new();
    result.json("supportedVersions", &Json::of(&[Revision::NEWEST_MODERN.as_str()]));
    result.json("capabilities", &desk.capabilities());
    if let Some(instructions) = &desk.instructions {
        result.text("instructions", instructions);
    }
    result.to_json()
}

/// A result as this era wants it: it says that it is complete, who gave it, and how long it may be kept.
fn dressed(result: &Json, desk: &Desk, cached: bool) -> Json {
    let [kind, ttl, told] = result.pick(["resultType", "ttlMs", "_meta"]);
    if !result.is_object() || (kind.is_some() && (!cached || ttl.is_some())) {
        return result.clone();
    }
    let mut dressed = Members::of(result);
    if kind.is_none() {
        dressed.text("resultType", "complete");
    }
    if cached && ttl.is_none() {
        dressed.number("ttlMs", LIST_TTL_MS).text("cacheScope", "private");
    }
    if told.is_none() {
        let mut own = Members::new();
        own.json(meta::SERVER_INFO, &desk.info);
        dressed.object("_meta", &own);
    }
    dressed.to_json()
}

fn same(
    headers: &HeaderMap,
    name: &'static str,
    wanted: &str,
    read: impl FnOnce(&str) -> Option<String>,
) -> Result<(), RpcError> {
    let mismatch = |how: &str| {
        RpcError::new(code::HEADER_MISMATCH, format!("the header `{name}` {how} what the body says"))
    };
    let value = single(headers, name).ok_or_else(|| mismatch("must stand once and say"))?;
    let value = read(value).ok_or_else(|| mismatch("cannot be read, and must say"))?;
    if value == wanted { Ok(()) } else { Err(mismatch("does not say")) }
}

/// A name that plain ASCII cannot spell comes in base64.
fn decoded(value: &str) -> Option<String> {
    let Some(inner) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return Some(value.to_owned());
    };
    let bytes = base64::engine::general_purpose::STANDARD.decode(inner).ok()?;
    String::from_utf8(bytes).ok()
}
