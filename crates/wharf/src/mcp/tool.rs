//! A tool as its server describes it.

use std::sync::OnceLock;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::header::{self, HeaderRule};
use super::ui;
use crate::names::ToolName;
use crate::text::Foreign;
use crate::wire::{Json, fingerprint};

/// A tool of a server. Everything in it comes from the server; annotations are claims, not facts.
#[derive(Clone, Debug)]
pub struct Tool {
    /// The name the server knows it by.
    pub name: ToolName,
    /// A name for people.
    pub title: Option<Foreign>,
    /// What it does, in the server's words.
    pub description: Option<Foreign>,
    /// The schema of its arguments: always an object of `type: "object"`.
    pub input_schema: Json,
    /// The schema of its structured result.
    pub output_schema: Option<Json>,
    /// What the server claims about its effects.
    pub annotations: Annotations,
    /// Arguments that are repeated as headers over HTTP, or why they cannot be.
    pub headers: Result<Vec<HeaderRule>, String>,
    /// It is for the server's own user interface, and not for models (MCP Apps).
    pub app_only: bool,
    /// The addresses of the user interfaces that show its results (MCP Apps).
    pub interfaces: Vec<String>,
    /// A legacy server runs it as a task, or not at all.
    pub needs_task: bool,
    /// The whole definition, byte for byte.
    pub raw: Json,
    /// Made when somebody asks.
    fingerprint: OnceLock<Box<str>>,
}

/// What a server claims about a tool's effects. Never a reason to allow more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Annotations {
    /// It changes nothing.
    pub read_only_hint: Option<bool>,
    /// It may destroy something.
    pub destructive_hint: Option<bool>,
    /// Calling it twice is like calling it once.
    pub idempotent_hint: Option<bool>,
    /// It reaches the world outside.
    pub open_world_hint: Option<bool>,
}

impl Tool {
    /// Reads one definition of a list. An error names what makes it unusable; the rest of the list is not touched by it.
    pub fn read(raw: Json) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Shape {
            name: String,
            title: Option<String>,
            description: Option<String>,
            #[serde(rename = "inputSchema")]
            _input_schema: IgnoredAny,
            #[serde(rename = "outputSchema")]
            _output_schema: Option<IgnoredAny>,
            annotations: Option<Annotations>,
        }
        let shape: Shape = raw.to().map_err(|e| format!("its definition cannot be read: {e}"))?;
        let name = ToolName::parse(&shape.name).map_err(|e| e.to_string())?;
        // They share the bytes of the whole.
        let [input_schema, output_schema] = raw.pick(["inputSchema", "outputSchema"]);
        let input_schema = input_schema.unwrap_or_else(Json::null);
        let root = input_schema.member("type");
        if root.is_none_or(|t| t.as_str() != "\"object\"") {
            return Err("its `inputSchema` is not an object schema (`\"type\": \"object\"`)".into());
        }
        let headers = header::read_rules(&input_schema);
        Ok(Self {
            name,
            title: shape.title.map(Foreign::from),
            description: shape.description.map(Foreign::from),
            input_schema,
            output_schema: output_schema.filter(|s| !s.is_null()),
            annotations: shape.annotations.unwrap_or_default(),
            headers,
            app_only: is_app_only(&raw),
            interfaces: interfaces(&raw),
            needs_task: raw
                .member("execution")
                .and_then(|execution| execution.member("taskSupport"))
                .is_some_and(|support| support.as_str() == "\"required\""),
            raw,
            fingerprint: OnceLock::new(),
        })
    }

    /// The same tool with another text of its definition, for whoever is shown it. Its name and its fingerprint stay what
    /// the server's own text gives.
    pub(crate) fn retold(&self, raw: Json) -> Result<Self, String> {
        let retold = Self::read(raw)?;
        let fingerprint = OnceLock::from(Box::from(self.fingerprint()));
        Ok(Self { name: self.name.clone(), fingerprint, ..retold })
    }

    /// The fingerprint of the whole definition.
    pub fn fingerprint(&self) -> &str {
        self.fingerprint.get_or_init(|| fingerprint(&self.raw).into())
    }
}

/// The addresses of user interfaces that a definition names: in the place where they stand now, and where they stood.
fn interfaces(definition: &Json) -> Vec<String> {
    let Some(meta) = definition.member(ui::META) else { return Vec::new() };
    let nested = meta.member(ui::NESTED).and_then(|ui| ui.member(ui::ADDRESS));
    let all = nested.into_iter().chain(meta.member(ui::FLAT));
    let mut all: Vec<String> = all.filter_map(|uri| uri.text().map(Into::into)).collect();
    all.dedup();
    all
}

/// Whether a definition says who may see the tool, and models are not among them.
fn is_app_only(definition: &Json) -> bool {
    let ui = definition.member("_meta").and_then(|meta| meta.member("ui"));
    let visibility = ui.and_then(|ui| ui.member("visibility")).and_then(|who| who.to::<Vec<String>>().ok());
    visibility.is_some_and(|who| !who.iter().any(|who| who == "model"))
}
