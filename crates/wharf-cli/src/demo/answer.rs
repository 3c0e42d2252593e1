//! One request in, one result or error out, in the era that the request was written in. Transports are elsewhere.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use wharf::mcp::{LogLevel, Revision, code, meta, method};
use wharf::wire::{Json, Members, RpcError, notification};

use super::state::{Client, Shared};
use super::{offers, tools};

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

/// What a request is answered in the midst of.
#[derive(Clone, Debug)]
pub(super) struct Around {
    /// What all clients share.
    pub(super) shared: Arc<Shared>,
    /// Who asks, in the legacy era; in the modern one a request stands alone.
    pub(super) client: Option<Arc<Client>>,
    /// Where messages go that come before the answer, if there can be any.
    pub(super) frames: Option<Frames>,
}

/// Where the progress of one call goes.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    token: Json,
    frames: Frames,
}

/// What this server can do: its lists never change.
fn capabilities() -> Value {
    json!({
        "tools": {},
        "resources": {"subscribe": true},
        "prompts": {},
        "completions": {},
        "logging": {},
    })
}

fn server_info() -> Value {
    json!({"name": "wharf-test-server", "title": "Wharf test server", "version": env!("CARGO_PKG_VERSION")})
}

const INSTRUCTIONS: &str = "A server to try a client with. Nothing it does has an effect outside it.";
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
        let call = self.method == method::TOOLS_CALL;
        call && matches!(self.params["name"].as_str(), Some("sleep" | "ask")) || self.method == method::LISTEN
    }

    /// Whether other messages may come before its answer.
    pub(super) fn has_words_before(&self) -> bool {
        self.takes_long() || (self.method == method::TOOLS_CALL && self.params["name"] == "note")
    }

    /// Where its progress goes, if it wants any.
    fn progress(&self, around: &Around) -> Option<Progress> {
        let token = self.meta(meta::PROGRESS_TOKEN).filter(|t| t.is_string() || t.is_number())?;
        Some(Progress { token: Json::of(token), frames: around.frames.clone()? })
    }

    /// Answers in the era of the request.
    pub(super) async fn answer(&self, around: &Around) -> Result<Json, RpcError> {
        let result = if self.is_modern() { self.modern(around).await } else { self.legacy(around).await };
        result.map(Json::from)
    }

    async fn legacy(&self, around: &Around) -> Result<Value, RpcError> {
        match self.method.as_str() {
            method::INITIALIZE => self.initialize(around),
            method::PING => Ok(json!({})),
            method::SET_LEVEL => self.set_level(around),
            method::SUBSCRIBE => self.subscribe(around, true),
            method::UNSUBSCRIBE => self.subscribe(around, false),
            _ => self.common(around).await,
        }
    }

    /// What both eras have.
    async fn common(&self, around: &Around) -> Result<Value, RpcError> {
        let arguments = || self.params.get("arguments").cloned().unwrap_or_else(|| json!({}));
        match self.method.as_str() {
            method::TOOLS_LIST => self.list(|| json!({"tools": tools::definitions()})),
            method::RESOURCES_LIST => self.list(offers::resources),
            method::TEMPLATES_LIST => self.list(offers::templates),
            method::PROMPTS_LIST => self.list(offers::prompts),
            method::TOOLS_CALL => self.call(around).await,
            method::RESOURCES_READ => self.read(&around.shared),
            method::PROMPTS_GET => offers::prompt(self.text("name")?, &arguments()),
            method::COMPLETE => offers::complete(&self.params),
            other => Err(unknown_method(other)),
        }
    }

    async fn modern(&self, around: &Around) -> Result<Value, RpcError> {
        self.check_meta()?;
        let mut result = match self.method.as_str() {
            method::DISCOVER => cacheable(json!({
                "supportedVersions": [Revision::NEWEST_MODERN.as_str()],
                "capabilities": capabilities(),
                "instructions": INSTRUCTIONS,
            })),
            method::LISTEN => self.listen(around).await?,
            method::TOOLS_LIST | method::RESOURCES_LIST | method::TEMPLATES_LIST | method::PROMPTS_LIST => {
                cacheable(self.common(around).await?)
            }
            method::RESOURCES_READ => {
                let mut read = cacheable(self.common(around).await?);
                if self.params["uri"] == offers::NOTE {
                    read["ttlMs"] = json!(0);
                }
                read
            }
            _ => self.common(around).await?,
        };
        if result.get("resultType").is_none() {
            result["resultType"] = json!("complete");
        }
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
        match self.meta(meta::LOG_LEVEL) {
            Some(level) if level.as_str().and_then(LogLevel::parse).is_none() => Err(unknown_level()),
            _ => Ok(()),
        }
    }

    fn initialize(&self, around: &Around) -> Result<Value, RpcError> {
        let Some(asked) = self.params["protocolVersion"].as_str() else {
            return Err(RpcError::new(code::INVALID_PARAMS, "`protocolVersion` is missing"));
        };
        if let Some(client) = &around.client {
            client.introduced(&self.params);
        }
        let known = Revision::parse(asked).filter(|r| *r <= Revision::NEWEST_LEGACY);
        Ok(json!({
            "protocolVersion": known.unwrap_or(Revision::NEWEST_LEGACY).as_str(),
            "capabilities": capabilities(),
            "serverInfo": server_info(),
            "instructions": INSTRUCTIONS,
        }))
    }

    fn list(&self, all: impl Fn() -> Value) -> Result<Value, RpcError> {
        // Every list fits on one page, so there is no cursor that could be known.
        if self.params.get("cursor").is_some_and(|c| !c.is_null()) {
            return Err(RpcError::new(code::INVALID_PARAMS, "unknown cursor"));
        }
        Ok(all())
    }

    fn read(&self, shared: &Shared) -> Result<Value, RpcError> {
        let uri = self.text("uri")?;
        offers::read(uri, &shared.note()).ok_or_else(|| self.no_resource(uri))
    }

    fn no_resource(&self, uri: &str) -> RpcError {
        /// What the legacy era says of a resource that is not there.
        const NOT_FOUND: i64 = -32002;
        let code = if self.is_modern() { code::INVALID_PARAMS } else { NOT_FOUND };
        let mut error = RpcError::new(code, "unknown resource");
        error.data = Some(json!({"uri": uri}).into());
        error
    }

    fn set_level(&self, around: &Around) -> Result<Value, RpcError> {
        let level = LogLevel::parse(self.text("level")?).ok_or_else(unknown_level)?;
        if let Some(client) = &around.client {
            client.log_from(level);
        }
        Ok(json!({}))
    }

    fn subscribe(&self, around: &Around, wanted: bool) -> Result<Value, RpcError> {
        let uri = self.text("uri")?;
        if offers::read(uri, "").is_none() {
            return Err(self.no_resource(uri));
        }
        if let Some(client) = &around.client {
            around.shared.watch_for(client, uri, wanted);
        }
        Ok(json!({}))
    }

    /// Stands open until the client has enough. Of all that may be asked for, only resources ever change.
    async fn listen(&self, around: &Around) -> Result<Value, RpcError> {
        let asked = &self.params["notifications"]["resourceSubscriptions"];
        let uris = asked.as_array().into_iter().flatten().filter_map(Value::as_str);
        let uris: Vec<String> =
            uris.filter(|uri| offers::read(uri, "").is_some()).map(str::to_owned).collect();
        let mut honoured = json!({});
        if !uris.is_empty() {
            honoured["resourceSubscriptions"] = json!(uris);
        }
        let params = json!({"_meta": {meta::SUBSCRIPTION_ID: &self.id}, "notifications": honoured});
        let Some(frames) = &around.frames else { return Err(unknown_method(&self.method)) };
        let _watching = around.shared.watch(frames, &self.id, uris);
        let _ = frames.send(notification(method::LISTEN_ACKNOWLEDGED, &Members::of(&params.into()))).await;
        std::future::pending().await
    }

    async fn call(&self, around: &Around) -> Result<Value, RpcError> {
        let name = self.text("name")?;
        let arguments = self.params.get("arguments").cloned().unwrap_or_else(|| json!({}));
        match name {
            "note" => self.write_note(arguments, around).await,
            "ask" => self.ask(arguments, around).await,
            _ => match tools::call(name, arguments, self.progress(around)).await {
                Some(result) => Ok(result),
                None => Err(RpcError::new(code::INVALID_PARAMS, format!("unknown tool: {name}"))),
            },
        }
    }

    /// Writes on the note, tells the log, and those who watch it.
    async fn write_note(&self, arguments: Value, around: &Around) -> Result<Value, RpcError> {
        let text = match tools::note(arguments) {
            Ok(text) => text,
            Err(wrong) => return Ok(wrong),
        };
        around.shared.write_note(&text, offers::NOTE).await;
        let level = match &around.client {
            Some(client) if !self.is_modern() => client.level(),
            _ => self.meta(meta::LOG_LEVEL).and_then(Value::as_str).and_then(LogLevel::parse),
        };
        if let (Some(frames), Some(LogLevel::Debug | LogLevel::Info)) = (&around.frames, level) {
            let data = format!("{} characters are on the note", text.chars().count());
            let params = json!({"level": "info", "logger": "note", "data": data});
            let _ = frames.send(notification(method::MESSAGE, &Members::of(&params.into()))).await;
        }
        Ok(tools::text("It is written."))
    }

    /// Asks the person behind the client something: by a request in the legacy era, by the answer in the modern one.
    async fn ask(&self, arguments: Value, around: &Around) -> Result<Value, RpcError> {
        let form = match tools::form(arguments) {
            Ok(form) => form,
            Err(wrong) => return Ok(wrong),
        };
        if let Some(answer) = self.params["inputResponses"].get("answer") {
            return Ok(tools::thank(answer));
        }
        if self.is_modern() {
            let offered = self.meta(meta::CLIENT_CAPABILITIES).and_then(|c| c.get("elicitation"));
            if offered.is_none() {
                let mut error =
                    RpcError::new(code::MISSING_CAPABILITY, "this needs a client that fills in forms");
                error.data = Some(json!({"requiredCapabilities": {"elicitation": {"form": {}}}}).into());
                return Err(error);
            }
            let question = json!({"method": method::ELICIT, "params": form});
            return Ok(json!({"resultType": "input_required", "inputRequests": {"answer": question}}));
        }
        let client = around.client.as_ref().filter(|client| client.fills_forms());
        let (Some(client), Some(frames)) = (client, &around.frames) else {
            return Ok(tools::failed("This needs a client that fills in forms."));
        };
        match client.ask(frames, method::ELICIT, &form).await.and_then(|answer| answer.to().ok()) {
            Some(answer) => Ok(tools::thank(&answer)),
            None => Ok(tools::failed("The question was not answered.")),
        }
    }

    fn text(&self, key: &str) -> Result<&str, RpcError> {
        let missing = || RpcError::new(code::INVALID_PARAMS, format!("`{key}` is missing"));
        self.params[key].as_str().ok_or_else(missing)
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

fn unknown_level() -> RpcError {
    RpcError::new(code::INVALID_PARAMS, "unknown log level")
}
