//! Lists of what a server offers beside tools: resources, templates of them, prompts.

use std::collections::HashSet;
use std::time::Duration;

use super::Rejected;
use super::pages::List;
use crate::connect::Connection;
use crate::error::{Error, Result};
use crate::mcp::{Era, Prompt, Resource, ResourceTemplate, Revision, code, extension, method};
use crate::wire::Json;

/// What a server offers of one kind, as it said it when it was asked.
#[derive(Clone, Debug)]
pub struct Offered<T> {
    /// What can be used, in the server's order.
    pub items: Vec<T>,
    /// What cannot be used, and why.
    pub rejected: Vec<Rejected>,
    /// How long the server said that this may be kept, if it said so.
    pub ttl: Option<Duration>,
}

/// A part of the protocol that a server may have or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Resources,
    Subscriptions,
    Prompts,
    Completions,
    Logging,
    Tasks,
}

const RESOURCES: List =
    List { method: method::RESOURCES_LIST, key: "resources", name: "uri", what: "resources" };
const TEMPLATES: List = List {
    method: method::TEMPLATES_LIST,
    key: "resourceTemplates",
    name: "uriTemplate",
    what: "resource templates",
};
const PROMPTS: List = List { method: method::PROMPTS_LIST, key: "prompts", name: "name", what: "prompts" };

/// Asks for every page of the server's resources.
pub async fn resources(connection: &Connection, timeout: Duration) -> Result<Offered<Resource>> {
    Part::Resources.require(connection)?;
    fetch(connection, timeout, &RESOURCES, Resource::read).await
}

/// Asks for every page of the server's templates. A server with resources may have none.
pub async fn resource_templates(
    connection: &Connection,
    timeout: Duration,
) -> Result<Offered<ResourceTemplate>> {
    Part::Resources.require(connection)?;
    match fetch(connection, timeout, &TEMPLATES, ResourceTemplate::read).await {
        // One that has none may not know the question.
        Err(Error::Rpc { rpc, .. }) if rpc.code == code::METHOD_NOT_FOUND => {
            Ok(Offered { items: Vec::new(), rejected: Vec::new(), ttl: None })
        }
        fetched => fetched,
    }
}

/// Asks for every page of the server's prompts.
pub async fn prompts(connection: &Connection, timeout: Duration) -> Result<Offered<Prompt>> {
    Part::Prompts.require(connection)?;
    fetch(connection, timeout, &PROMPTS, Prompt::read).await
}

async fn fetch<T>(
    connection: &Connection,
    timeout: Duration,
    list: &List,
    read: fn(Json) -> Result<T, String>,
) -> Result<Offered<T>> {
    let key = list.name;
    let mut seen = HashSet::new();
    let (mut items, mut rejected) = (Vec::new(), Vec::new());
    let take = |raw: Json| {
        let name = raw.member(key).and_then(|n| n.to::<String>().ok()).unwrap_or_default();
        let first = seen.insert(name.clone());
        let usable = read(raw).and_then(|item| match first {
            true => Ok(item),
            false => Err(format!("the server lists another of this `{key}`")),
        });
        match usable {
            Ok(item) => items.push(item),
            Err(reason) => rejected.push(Rejected { name: name.into(), reason, denied: None }),
        }
    };
    let ttl = list.walk(connection, timeout, take).await?;
    Ok(Offered { items, rejected, ttl })
}

// === impl Part ===

impl Part {
    /// An error if the server does not have it, before anything is sent.
    pub(crate) fn require(self, connection: &Connection) -> Result<()> {
        if self.is_offered(connection) {
            return Ok(());
        }
        let declared = connection.info().declared();
        let has = if declared.is_empty() { "nothing".to_owned() } else { declared.join(", ") };
        let what = match self {
            Self::Resources => "no resources",
            Self::Subscriptions => "no subscriptions to its resources",
            Self::Prompts => "no prompts",
            Self::Completions => "no completion of arguments",
            Self::Logging => "no log",
            Self::Tasks => "no tasks",
        };
        Err(Error::NotOffered {
            server: connection.server().clone(),
            what: what.into(),
            hint: format!("nothing was sent; ask a server that has it (this one declares {has})"),
        })
    }

    pub(crate) fn is_offered(self, connection: &Connection) -> bool {
        let info = connection.info();
        match self {
            Self::Resources => info.offers("resources"),
            Self::Subscriptions => info.offers_flag("resources", "subscribe"),
            Self::Prompts => info.offers("prompts"),
            // The first revision had completion, and no word for having it.
            Self::Completions => info.offers("completions") || info.revision == Revision::V2024_11_05,
            Self::Logging => info.offers("logging"),
            // What the legacy era called tasks is something else.
            Self::Tasks => {
                info.revision.era() == Era::Modern && extension::is_in(&info.capabilities, extension::TASKS)
            }
        }
    }
}
