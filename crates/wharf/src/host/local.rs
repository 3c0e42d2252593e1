//! The program's own functions as tools.
//!
//! In: an async or a plain function with arguments that `serde` reads and `schemars` describes. Out: a tool like a
//! server's: listed, checked, permitted, told of as an event. A panic in it is a failed result, not a crash.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::context::Context;
use crate::error::{Error, Result};
use crate::mcp::Tool;
use crate::names::{ServerName, ToolName};
use crate::registry::{NAME_MAX, RESERVED_PREFIX};
use crate::wire::Json;

/// The set that local tools belong to unless they say otherwise. Its tools have no prefix.
pub const LOCAL_SET: &str = "local";

/// A function of the program, as a tool.
///
/// ```
/// use schemars::JsonSchema;
/// use serde::Deserialize;
/// use wharf::LocalTool;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Add {
///     a: i64,
///     b: i64,
/// }
///
/// let add = LocalTool::new("add", "Adds two numbers", async |add: Add, _| Ok::<_, String>((add.a + add.b).to_string()));
/// ```
#[derive(Clone)]
pub struct LocalTool {
    name: String,
    set: String,
    description: String,
    input: Value,
    output: Option<Output>,
    ask: bool,
    timeout: Option<Duration>,
    handler: Handler,
}

/// What a structured result looks like. One that is not an object by its type stands in one, under `result`.
#[derive(Clone)]
struct Output {
    schema: Value,
    in_object: bool,
}

/// A local tool that has been registered.
pub(super) struct Function {
    pub(super) tool: Arc<Tool>,
    pub(super) set: ServerName,
    /// What stands before its name.
    pub(super) prefix: String,
    pub(super) ask: bool,
    pub(super) timeout: Option<Duration>,
    /// Its result stands in an object whatever it is.
    in_object: bool,
    handler: Handler,
}

/// For tools that take no arguments.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
pub struct NoArguments {}

/// What a local tool answers. Text, or anything that serializes by [`Reply::structured`].
#[derive(Clone, Debug)]
pub struct Reply {
    content: Vec<Value>,
    structured: Option<Value>,
    failed: bool,
}

/// What went wrong in a handler.
#[derive(Debug)]
enum Failure {
    /// The arguments fit the schema and not the type.
    Arguments(String),
    /// The tool says so itself.
    Tool(String),
}

type Handler =
    Arc<dyn Fn(Json, Context) -> Pin<Box<dyn Future<Output = Result<Reply, Failure>> + Send>> + Send + Sync>;

// === impl LocalTool ===

impl LocalTool {
    /// An async function. Its first parameter is the arguments; the second reaches the rest of the program.
    pub fn new<A, R, E, F>(
        name: impl Into<String>,
        description: impl Into<String>,
        function: impl Fn(A, Context) -> F + Send + Sync + 'static,
    ) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        F: Future<Output = Result<R, E>> + Send + 'static,
        R: Into<Reply>,
        E: fmt::Display,
    {
        let function = Arc::new(function);
        Self::with::<A>(name.into(), description.into(), move |arguments: A, context| {
            let function = Arc::clone(&function);
            Box::pin(async move {
                let answered = function(arguments, context).await;
                answered.map(Into::into).map_err(|error| Failure::Tool(error.to_string()))
            })
        })
    }

    /// A plain function. It runs on a thread where it may block.
    pub fn blocking<A, R, E>(
        name: impl Into<String>,
        description: impl Into<String>,
        function: impl Fn(A, Context) -> Result<R, E> + Send + Sync + 'static,
    ) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: Into<Reply> + 'static,
        E: fmt::Display + 'static,
    {
        let function = Arc::new(function);
        Self::with::<A>(name.into(), description.into(), move |arguments: A, context| {
            let function = Arc::clone(&function);
            Box::pin(async move {
                let run = move || {
                    let answered = function(arguments, context);
                    answered.map(Into::into).map_err(|error| Failure::Tool(error.to_string()))
                };
                match tokio::task::spawn_blocking(run).await {
                    Ok(answered) => answered,
                    Err(error) => match error.try_into_panic() {
                        Ok(panic) => std::panic::resume_unwind(panic),
                        Err(error) => Err(Failure::Tool(error.to_string())),
                    },
                }
            })
        })
    }

    fn with<A: DeserializeOwned + JsonSchema + Send + 'static>(
        name: String,
        description: String,
        run: impl Fn(A, Context) -> Pin<Box<dyn Future<Output = Result<Reply, Failure>> + Send>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let handler = move |arguments: Json, context| match arguments.to::<A>() {
            Ok(arguments) => run(arguments, context),
            Err(error) => Box::pin(std::future::ready(Err(Failure::Arguments(error.to_string()))))
                as Pin<Box<dyn Future<Output = _> + Send>>,
        };
        Self {
            name,
            set: LOCAL_SET.into(),
            description,
            input: schema_of::<A>(),
            output: None,
            ask: false,
            timeout: None,
            handler: Arc::new(handler),
        }
    }

    /// Makes it part of another set than [`LOCAL_SET`]: the set's name stands before its own, as a server's does.
    #[must_use]
    pub fn in_set(mut self, set: impl Into<String>) -> Self {
        self.set = set.into();
        self
    }

    /// Says what its structured result looks like.
    #[must_use]
    pub fn returns<R: JsonSchema>(mut self) -> Self {
        self.output = Some(Output::of(schema_of::<R>()));
        self
    }

    /// Somebody must allow each agent to call it, however far the agent is trusted short of [`Permission::Yolo`].
    ///
    /// [`Permission::Yolo`]: crate::policy::Permission::Yolo
    #[must_use]
    pub fn ask_first(mut self) -> Self {
        self.ask = true;
        self
    }

    /// How long a call may take. Defaults to no limit but the caller's.
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = Some(time);
        self
    }

    /// Checks what the program wrote: the names, and that the arguments are an object.
    pub(super) fn define(self) -> Result<Function> {
        let set = ServerName::parse(&self.set).map_err(|e| Error::config(e.to_string()))?;
        let prefix = if set.as_str() == LOCAL_SET { String::new() } else { set.as_str().to_owned() };
        let full = if prefix.is_empty() { self.name.clone() } else { format!("{prefix}_{}", self.name) };
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if self.name.is_empty() || !full.chars().all(plain) || full.len() > NAME_MAX {
            return Err(Error::config(format!(
                "`{}` is not a name for a tool: letters, digits, `_` and `-`, at most {NAME_MAX} with its set",
                crate::text::Escaped(&full)
            )));
        }
        if full.to_ascii_lowercase().starts_with(RESERVED_PREFIX) {
            return Err(Error::config(format!(
                "`{full}` is not a name for a tool: `{RESERVED_PREFIX}` is Wharf's own"
            )));
        }
        let mut raw =
            json!({ "name": self.name, "description": self.description, "inputSchema": self.input });
        let in_object = self.output.as_ref().is_some_and(|output| output.in_object);
        if let Some(output) = self.output {
            raw["outputSchema"] = output.schema;
        }
        let tool = Tool::read(Json::of(&raw)).map_err(|reason| {
            Error::config(format!("the local tool `{}` cannot be used: {reason}", self.name))
        })?;
        let (ask, timeout, handler) = (self.ask, self.timeout, self.handler);
        Ok(Function { tool: Arc::new(tool), set, prefix, ask, timeout, in_object, handler })
    }
}

fn schema_of<T: JsonSchema>() -> Value {
    schemars::schema_for!(T).to_value()
}

// === impl Output ===

impl Output {
    fn of(mut schema: Value) -> Self {
        if schema["type"] == "object" {
            return Self { schema, in_object: false };
        }
        // Definitions are referred to from the root.
        let definitions = schema.as_object_mut().and_then(|members| members.remove("$defs"));
        let mut outer =
            json!({ "type": "object", "properties": { "result": schema }, "required": ["result"] });
        if let Some(definitions) = definitions {
            outer["$defs"] = definitions;
        }
        Self { schema: outer, in_object: true }
    }
}

// === impl Function ===

impl Function {
    /// Runs it to a result in the protocol's shape. Dropping the future ends it, unless it is a blocking one.
    pub(super) async fn run(&self, arguments: Json, context: Context) -> Result<Json> {
        let call = AssertUnwindSafe(async { (self.handler)(arguments, context).await });
        match call.catch_unwind().await {
            Ok(Ok(reply)) => Ok(reply.into_json(self.in_object)),
            Ok(Err(Failure::Tool(message))) => Ok(Reply::failed(message).into_json(false)),
            Ok(Err(Failure::Arguments(problem))) => {
                let (server, tool) = (self.set.clone(), self.tool.name.clone());
                Err(Error::Arguments { server, tool, problems: vec![problem] })
            }
            Err(panic) => {
                let said = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
                let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
                let said = said.map(|s| format!(": {s}")).unwrap_or_default();
                Ok(Reply::failed(format!("the tool panicked{said}")).into_json(false))
            }
        }
    }

    pub(super) fn key(&self) -> (ServerName, ToolName) {
        (self.set.clone(), self.tool.name.clone())
    }
}

// === impl Reply ===

impl Reply {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::block(json!({ "type": "text", "text": text.into() }))
    }

    /// A picture.
    pub fn image(bytes: &[u8], mime_type: &str) -> Self {
        use base64::Engine as _;
        let data = base64::engine::general_purpose::STANDARD.encode(bytes);
        Self::block(json!({ "type": "image", "data": data, "mimeType": mime_type }))
    }

    /// A value that programs read, with the same as text for models. A value that is not an object stands in one, under
    /// `result`. One that cannot be written as JSON makes the call a failure.
    pub fn structured(value: &impl Serialize) -> Self {
        match serde_json::to_value(value) {
            Ok(value) => Self { structured: Some(value.clone()), ..Self::text(value.to_string()) },
            Err(error) => Self::failed(format!("the result cannot be written as JSON: {error}")),
        }
    }

    /// Everything of this and of another, in this order.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.content.extend(other.content);
        self.structured = other.structured.or(self.structured);
        self.failed |= other.failed;
        self
    }

    fn block(block: Value) -> Self {
        Self { content: vec![block], structured: None, failed: false }
    }

    fn failed(message: String) -> Self {
        Self { failed: true, ..Self::text(message) }
    }

    /// In the protocol's shape.
    fn into_json(self, in_object: bool) -> Json {
        let mut result = json!({ "content": self.content });
        if let Some(value) = self.structured {
            let in_object = in_object || !value.is_object();
            result["structuredContent"] = if in_object { json!({ "result": value }) } else { value };
        }
        if self.failed {
            result["isError"] = true.into();
        }
        Json::of(&result)
    }
}

impl From<String> for Reply {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<&str> for Reply {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<()> for Reply {
    fn from((): ()) -> Self {
        Self { content: Vec::new(), structured: None, failed: false }
    }
}

impl fmt::Debug for LocalTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalTool").field("set", &self.set).field("name", &self.name).finish_non_exhaustive()
    }
}
