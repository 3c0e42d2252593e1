//! The protocol's facts, and typed views of what servers send.
//!
//! Names, numbers and shapes from the specification, in one place. A view reads what Wharf needs and keeps the raw
//! bytes beside it, so nothing a server said is lost. Who sends what when is the business of `connect` and `call`.

mod complete;
mod content;
mod header;
mod list;
mod log;
mod prompt;
mod resource;
mod revision;
mod tool;
pub mod trace;

pub use complete::{Completion, Reference};
pub use content::Content;
pub(crate) use header::HEADER_ANNOTATION;
pub use header::HeaderRule;
pub use list::ListKind;
pub use log::LogLevel;
pub use prompt::{Prompt, PromptArgument, PromptMessage};
pub use resource::{Body, Resource, ResourceContents, ResourceTemplate};
pub use revision::{Era, Revision};
pub use tool::{Annotations, Tool};

use serde::Deserialize;

use crate::text::Foreign;
use crate::wire::Json;

/// Method names.
pub mod method {
    #![allow(missing_docs, reason = "each constant is its own documentation")]
    pub const INITIALIZE: &str = "initialize";
    pub const INITIALIZED: &str = "notifications/initialized";
    pub const DISCOVER: &str = "server/discover";
    pub const PING: &str = "ping";
    pub const TOOLS_LIST: &str = "tools/list";
    pub const TOOLS_CALL: &str = "tools/call";
    pub const PROMPTS_LIST: &str = "prompts/list";
    pub const TASKS_GET: &str = "tasks/get";
    pub const TASKS_UPDATE: &str = "tasks/update";
    pub const TASKS_CANCEL: &str = "tasks/cancel";
    pub const TASKS_RESULT: &str = "tasks/result";
    pub const TASK_CHANGED: &str = "notifications/tasks";
    pub const PROMPTS_GET: &str = "prompts/get";
    pub const RESOURCES_LIST: &str = "resources/list";
    pub const TEMPLATES_LIST: &str = "resources/templates/list";
    pub const RESOURCES_READ: &str = "resources/read";
    pub const SUBSCRIBE: &str = "resources/subscribe";
    pub const UNSUBSCRIBE: &str = "resources/unsubscribe";
    pub const COMPLETE: &str = "completion/complete";
    pub const SET_LEVEL: &str = "logging/setLevel";
    pub const LISTEN: &str = "subscriptions/listen";
    pub const LISTEN_ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
    pub const CANCELLED: &str = "notifications/cancelled";
    pub const PROGRESS: &str = "notifications/progress";
    pub const MESSAGE: &str = "notifications/message";
    pub const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
    pub const PROMPTS_CHANGED: &str = "notifications/prompts/list_changed";
    pub const RESOURCES_CHANGED: &str = "notifications/resources/list_changed";
    pub const RESOURCE_UPDATED: &str = "notifications/resources/updated";
    pub const ROOTS_CHANGED: &str = "notifications/roots/list_changed";
    pub const ELICITATION_COMPLETE: &str = "notifications/elicitation/complete";
    pub const ROOTS_LIST: &str = "roots/list";
    pub const SAMPLING: &str = "sampling/createMessage";
    pub const ELICIT: &str = "elicitation/create";
}

/// JSON-RPC and MCP error codes.
pub mod code {
    #![allow(missing_docs, reason = "each constant is its own documentation")]
    pub const PARSE: i64 = -32700;
    pub const INVALID_REQUEST: i64 = -32600;
    pub const METHOD_NOT_FOUND: i64 = -32601;
    pub const INVALID_PARAMS: i64 = -32602;
    pub const INTERNAL: i64 = -32603;
    /// A legacy server has no such resource.
    pub const NO_RESOURCE: i64 = -32002;
    /// A legacy server wants pages visited before it goes on.
    pub const PAGES_FIRST: i64 = -32042;
    pub const HEADER_MISMATCH: i64 = -32020;
    pub const MISSING_CAPABILITY: i64 = -32021;
    pub const UNSUPPORTED_VERSION: i64 = -32022;

    /// Codes that only a server of the modern era sends.
    pub fn is_modern(code: i64) -> bool {
        matches!(code, HEADER_MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_VERSION)
    }
}

/// Keys of `_meta` that belong to the protocol.
pub mod meta {
    #![allow(missing_docs, reason = "each constant is its own documentation")]
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
    pub const PROGRESS_TOKEN: &str = "progressToken";
}

/// Names of extensions, as capabilities say them.
pub mod extension {
    #![allow(missing_docs, reason = "each constant is its own documentation")]
    pub const TASKS: &str = "io.modelcontextprotocol/tasks";
    pub const APPS: &str = "io.modelcontextprotocol/ui";

    /// Whether capabilities, a client's or a server's, have an extension.
    pub fn is_in(capabilities: &crate::wire::Json, name: &str) -> bool {
        let extension = capabilities.member("extensions").and_then(|all| all.member(name));
        extension.is_some_and(|extension| extension.is_object())
    }
}

/// Where a tool's definition names its user interface: `_meta.ui.resourceUri`, and `_meta["ui/resourceUri"]` as it was first.
pub(crate) mod ui {
    pub(crate) const META: &str = "_meta";
    pub(crate) const NESTED: &str = "ui";
    pub(crate) const ADDRESS: &str = "resourceUri";
    pub(crate) const FLAT: &str = "ui/resourceUri";
}

/// Who a client or a server says it is. Servers say what they like: never an identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Implementation {
    /// The name.
    pub name: Foreign,
    /// The version.
    pub version: Foreign,
    /// A name for people.
    pub title: Option<Foreign>,
}

/// What a server told about itself when the connection was made.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    /// The revision that is spoken with it.
    pub revision: Revision,
    /// Who it says it is.
    pub implementation: Implementation,
    /// What it can do, as it said it.
    pub capabilities: Json,
    /// What it wants a model to know.
    pub instructions: Option<Foreign>,
}

impl ServerInfo {
    /// Whether the server declared a capability, for example `tools`.
    pub fn offers(&self, capability: &str) -> bool {
        self.capabilities.member(capability).is_some_and(|c| !c.is_null())
    }

    /// The names of the capabilities that the server declared, in its order, safe to show.
    pub fn declared(&self) -> Vec<String> {
        let all: indexmap::IndexMap<String, Json> = self.capabilities.to().unwrap_or_default();
        let there = all.iter().filter(|(_, value)| !value.is_null()).take(20);
        there.map(|(name, _)| crate::text::Escaped(crate::text::beginning(name, 40)).to_string()).collect()
    }

    /// Whether the server declared a flag in a capability, for example `tools` and `listChanged`.
    pub fn offers_flag(&self, capability: &str, flag: &str) -> bool {
        let flag = self.capabilities.member(capability).and_then(|c| c.member(flag));
        flag.is_some_and(|f| f.as_str() == "true")
    }
}

impl<'de> Deserialize<'de> for Implementation {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Shape {
            name: String,
            version: String,
            title: Option<String>,
        }
        let shape = Shape::deserialize(deserializer)?;
        Ok(Self {
            name: shape.name.into(),
            version: shape.version.into(),
            title: shape.title.map(Foreign::from),
        })
    }
}
