//! One request in, one result or error out, in the era that the request was written in. Transports are elsewhere.

use serde_json::{Value, json};
use tokio::sync::mpsc;
use wharf::mcp::{Revision, code, meta, method};
use wharf::wire::{Json, Members, RpcError, notification};

use super::tools;

/// Messages on their way to the client, one frame each, without a line break.
pub(super) type Frames = mpsc::Sender<Vec<u8>>;

/// A request, read as far as every transport needs it.
#[derive(Debug)]
pub(super) struct Asked {
    /// Its id, to be echoed as it is.
    pub(super) id: Json,
    /// Its method.
    pub(super) method: String,
    /// Its params; `{}` where there were none.
    pub(super) params: Value,
}

/// Where the progress of one call goes.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    token: Json,
    frames: Frames,
}

/// What this server can do: its tools never change.
fn capabilities() -> Value {
    json!({"tools": {}})
}

fn server_info() -> Value {
    json!({"name": "wharf-test-server", "title": "Wharf test server", "version": env!("CARGO_PKG_VERSION")})
}

const INSTRUCTIONS: &str = "A server to try a client with. Nothing it does has an effect.";
/// The tools are part of the program: an hour is as good as for ever.
const TTL_MS: u64 = 3_600_000;

// === impl Asked ===

impl Asked {
    pub(super) fn new(id: Json, method: String, params: Option<&Json>) -> Self {
        let params = params.and_then(|p| p.to().ok()).unwrap_or_else(|| json!({}));
        Self { id, method, params }
    }

    fn meta(&self, key: &str) -> Option<&Value> {
        self.params.get("_meta")?.get(key)
    }

    /// The revision in `_meta`, which only the modern era has there.
    pub(super) fn version(&self) -> Option<&Value> {
        self.meta(meta::PROTOCOL_VERSION)
    }

    /// Whether only the modern era has such a request.
    pub(super) fn is_modern(&self) -> bool {
        self.version().is_some() || self.method == method::DISCOVER
    }

    /// The revision that an `initialize` asks for, if it is one.
    pub(super) fn revision(&self) -> Option<Revision> {
        self.params["protocolVersion"].as_str().and_then(Revision::parse)
    }

    /// Whether it may take long: such a request must not hold up the next one.
    pub(super) fn takes_long(&self) -> bool {
        self.method == method::TOOLS_CALL && self.params["name"] == "sleep"
    }

    /// Where its progress goes, if it wants any.
    pub(super) fn progress(&self, frames: &Frames) -> Option<Progress> {
        let token = self.meta(meta::PROGRESS_TOKEN).filter(|t| t.is_string() || t.is_number())?;
        Some(Progress { token: Json::of(token), frames: frames.clone() })
    }

    /// Answers in the era of the request.
    pub(super) async fn answer(&self, progress: Option<Progress>) -> Result<Json, RpcError> {
        let result = if self.is_modern() { self.modern(progress).await } else { self.legacy(progress).await };
        result.map(Json::from)
    }

    async fn legacy(&self, progress: Option<Progress>) -> Result<Value, RpcError> {
        match self.method.as_str() {
            method::INITIALIZE => self.initialize(),
            method::PING => Ok(json!({})),
            method::TOOLS_LIST => self.list(),
            method::TOOLS_CALL => self.call(progress).await,
            other => Err(unknown_method(other)),
        }
    }

    async fn modern(&self, progress: Option<Progress>) -> Result<Value, RpcError> {
        self.check_meta()?;
        let mut result = match self.method.as_str() {
            method::DISCOVER => cacheable(json!({
                "supportedVersions": [Revision::NEWEST_MODERN.as_str()],
                "capabilities": capabilities(),
                "instructions": INSTRUCTIONS,
            })),
            method::TOOLS_LIST => cacheable(self.list()?),
            method::TOOLS_CALL => self.call(progress).await?,
            other => return Err(unknown_method(other)),
        };
        result["resultType"] = json!("complete");
        result["_meta"] = json!({meta::SERVER_INFO: server_info()});
        Ok(result)
    }

    /// What every modern request must carry.
    pub(super) fn check_meta(&self) -> Result<(), RpcError> {
        let lacks = |what: &str| RpcError::new(code::INVALID_PARAMS, format!("`_meta` lacks `{what}`"));
        let version = self.version().ok_or_else(|| lacks(meta::PROTOCOL_VERSION))?;
        let version = version.as_str().ok_or_else(|| lacks(meta::PROTOCOL_VERSION))?;
        if version != Revision::NEWEST_MODERN.as_str() {
            let mut error = RpcError::new(code::UNSUPPORTED_VERSION, "unsupported protocol version");
            let supported = [Revision::NEWEST_MODERN.as_str()];
            error.data = Some(json!({"supported": supported, "requested": version}).into());
            return Err(error);
        }
        if !self.meta(meta::CLIENT_CAPABILITIES).is_some_and(Value::is_object) {
            return Err(lacks(meta::CLIENT_CAPABILITIES));
        }
        const LEVELS: [&str; 8] =
            ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
        match self.meta(meta::LOG_LEVEL) {
            Some(level) if !level.as_str().is_some_and(|l| LEVELS.contains(&l)) => {
                Err(RpcError::new(code::INVALID_PARAMS, "unknown log level"))
            }
            _ => Ok(()),
        }
    }

    fn initialize(&self) -> Result<Value, RpcError> {
        let Some(asked) = self.params["protocolVersion"].as_str() else {
            return Err(RpcError::new(code::INVALID_PARAMS, "`protocolVersion` is missing"));
        };
        let known = Revision::parse(asked).filter(|r| *r <= Revision::NEWEST_LEGACY);
        Ok(json!({
            "protocolVersion": known.unwrap_or(Revision::NEWEST_LEGACY).as_str(),
            "capabilities": capabilities(),
            "serverInfo": server_info(),
            "instructions": INSTRUCTIONS,
        }))
    }

    fn list(&self) -> Result<Value, RpcError> {
        // All tools fit on one page, so there is no cursor that could be known.
        if self.params.get("cursor").is_some_and(|c| !c.is_null()) {
            return Err(RpcError::new(code::INVALID_PARAMS, "unknown cursor"));
        }
        Ok(json!({"tools": tools::definitions()}))
    }

    async fn call(&self, progress: Option<Progress>) -> Result<Value, RpcError> {
        let Some(name) = self.params["name"].as_str() else {
            return Err(RpcError::new(code::INVALID_PARAMS, "`name` is missing"));
        };
        let arguments = self.params.get("arguments").cloned().unwrap_or_else(|| json!({}));
        match tools::call(name, arguments, progress).await {
            Some(result) => Ok(result),
            None => Err(RpcError::new(code::INVALID_PARAMS, format!("unknown tool: {name}"))),
        }
    }
}

// === impl Progress ===

impl Progress {
    /// Tells how far the call is.
    pub(super) async fn report(&self, done: u64, total: u64) {
        let mut params = Members::new();
        params.json("progressToken", &self.token).number("progress", done).number("total", total);
        // A client that is gone needs no progress.
        let _ = self.frames.send(notification(method::PROGRESS, &params)).await;
    }
}

fn cacheable(mut result: Value) -> Value {
    result["ttlMs"] = json!(TTL_MS);
    result["cacheScope"] = json!("public");
    result
}

fn unknown_method(name: &str) -> RpcError {
    RpcError::new(code::METHOD_NOT_FOUND, format!("unknown method: {name}"))
}
