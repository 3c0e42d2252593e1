//! The model becomes source.
//!
//! In: a [`Module`]. Out: a file that compiles and that `rustfmt` would leave as it is. Here the names are given out,
//! and here it is decided which types need a `Box`, an attribute, a `Default`.

use std::collections::HashMap;

use super::comment::{self, span};
use super::ident::Scope;
use super::shape::{Field, Function, Item, Kind, Module, Type};
use super::source::Source;
use super::{RUST_MARK, RustNote};
use crate::names::{ServerName, ToolName};

/// The longest type that is written out: with an `Option` around it, it still fits in a function's head.
const TYPE_MAX: usize = 66;
/// The same for one with a tuple in it, which is not to be broken over lines: it fits after the longest name.
const TUPLE_MAX: usize = 32;
/// Names of types that mean something else in the module.
const TYPES: [&str; 16] = [
    "Self",
    "Option",
    "Vec",
    "String",
    "Box",
    "Result",
    "BTreeMap",
    "Serialize",
    "Deserialize",
    "Clone",
    "Copy",
    "Debug",
    "Default",
    "PartialEq",
    "Eq",
    "Hash",
];
/// Functions that the module has beside those of the tools.
const FUNCTIONS: [&str; 5] = ["new", "named", "host", "call_untyped", "call_typed"];

/// Writes a module.
pub(super) fn module(server: &ServerName, module: &Module, notes: &mut Vec<RustNote>) -> String {
    let mut scope = Scope::with(&TYPES);
    let client = scope.pascal(server.as_str(), "Server");
    let names = module.used().into_iter().map(|item| (item, scope.pascal(&module.items[item].hint, "Type")));
    let mut names: Vec<(usize, String)> = names.collect();
    names.sort_unstable();
    let order: Vec<usize> = names.iter().map(|(item, _)| *item).collect();
    let mut writer = Writer { module, names: names.into_iter().collect(), notes, has_map: false };

    let mut body = Source::default();
    writer.client(&mut body, server, &client);
    for item in &order {
        body.line(0, "");
        writer.item(&mut body, *item);
    }
    let mut source = Source::default();
    writer.head(&mut source, server, !order.is_empty());
    source.block(&body.finish());
    source.finish()
}

struct Writer<'a> {
    module: &'a Module,
    names: HashMap<usize, String>,
    notes: &'a mut Vec<RustNote>,
    /// `BTreeMap` was written somewhere.
    has_map: bool,
}

/// Where a type is written, for the note and for `Self` and `Box`.
struct Spot<'a> {
    tool: &'a ToolName,
    place: String,
    owner: Option<usize>,
}

impl Writer<'_> {
    fn head(&self, out: &mut Source, server: &ServerName, has_types: bool) {
        out.line(0, &format!("//! The tools of the MCP server `{server}`, typed."));
        out.line(0, "//!");
        out.line(0, &format!("{RUST_MARK}{server}`. Do not edit it: run that again."));
        out.line(0, "//! What these types cannot say of a tool's schema is checked when the tool is called.");
        out.block(ALLOW);
        if self.has_map {
            out.line(0, "use std::collections::BTreeMap;");
            out.line(0, "");
        }
        if has_types {
            out.line(0, "use serde::{Deserialize, Serialize};");
            out.line(0, "");
        }
    }

    /// The struct with a function for each tool.
    fn client(&mut self, out: &mut Source, server: &ServerName, name: &str) {
        let module = self.module;
        let typed = module.functions.iter().any(|function| function.gives.is_some());
        let untyped = module.functions.iter().any(|function| function.gives.is_none());
        out.line(0, &format!("/// The server `{server}`, with a function for each of its tools."));
        out.line(0, "#[derive(Clone, Debug)]");
        out.line(0, &format!("pub struct {name} {{"));
        out.block("    host: wharf::Host,\n    server: String,\n}\n\n");
        out.line(0, &format!("impl {name} {{"));
        out.block("    /// The server as a host knows it by the name it had when this was generated.\n");
        out.block("    pub fn new(host: wharf::Host) -> Self {\n");
        out.line(2, &format!("Self::named(host, \"{server}\")"));
        out.block("    }\n\n");
        out.block(NAMED);
        let mut scope = Scope::with(&FUNCTIONS);
        for function in &module.functions {
            out.line(0, "");
            let name = scope.snake(function.tool.name.as_str(), "tool");
            self.function(out, function, &name);
        }
        if untyped {
            out.block(UNTYPED);
        }
        if typed {
            out.block(TYPED);
        }
        out.line(0, "}");
    }

    fn function(&mut self, out: &mut Source, function: &Function, name: &str) {
        let tool = &function.tool;
        let spot = |side: &str| Spot { tool: &tool.name, place: side.to_owned(), owner: None };
        let described = tool.description.as_ref().or(tool.title.as_ref());
        let described = described.map(|text| comment::lines(text.raw())).unwrap_or_default();
        let described = if described.is_empty() {
            vec![format!("The tool {}.", span(tool.name.as_str()))]
        } else {
            described
        };
        out.doc(1, &[described]);
        let takes = function.takes.as_ref().map(|of| self.spell(of, &spot("arguments")));
        let gives = function.gives.as_ref().map(|of| self.spell(of, &spot("result")));
        let (method, gives) = match gives {
            Some(of) => ("call_typed", format!("wharf::Result<{of}>")),
            None => ("call_untyped", "wharf::Outcome".to_owned()),
        };
        out.function(name, takes.as_deref(), &gives);
        if takes.is_none() {
            out.line(2, "let arguments = &serde_json::Map::new();");
        }
        out.call(method, tool.name.as_str());
        out.line(1, "}");
    }

    fn item(&mut self, out: &mut Source, at: usize) {
        let module = self.module;
        let item = &module.items[at];
        let tool = span(item.tool.as_str());
        let what = match item.place.as_str() {
            whole @ ("arguments" | "result") => format!("The {whole} of the tool {tool}."),
            part => format!("{} of the tool {tool}.", span(part)),
        };
        let said = item.description.as_deref().map(comment::lines).unwrap_or_default();
        out.doc(0, &[vec![what], said]);
        let name = self.names[&at].clone();
        match &item.kind {
            Kind::Struct { fields, closed, rest } => {
                let has_default = module.has_default(&Type::Named(at));
                let default = if has_default { ", Default" } else { "" };
                out.line(0, &format!("#[derive(Clone, Debug{default}, PartialEq, Serialize, Deserialize)]"));
                // A server may send more than it says; whoever calls it may not.
                if *closed && rest.is_none() && item.place.starts_with("arguments") {
                    out.line(0, "#[serde(deny_unknown_fields)]");
                }
                self.members(out, at, fields, rest.as_ref());
            }
            Kind::Words(words) => words_enum(out, &name, words),
            Kind::Choice(variants) => {
                out.line(0, "#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]");
                out.line(0, "#[serde(untagged)]");
                out.line(0, &format!("pub enum {name} {{"));
                let mut scope = Scope::with(&["Self"]);
                for (wish, of) in variants {
                    let of = self.spell(of, &self.spot(item, at, wish));
                    out.variant(&scope.pascal(wish, "Variant"), &of);
                }
                out.line(0, "}");
            }
        }
    }

    fn members(&mut self, out: &mut Source, at: usize, fields: &[Field], rest: Option<&Type>) {
        let (item, name) = (&self.module.items[at], &self.names[&at]);
        if fields.is_empty() && rest.is_none() {
            out.line(0, &format!("pub struct {name} {{}}"));
            return;
        }
        out.line(0, &format!("pub struct {name} {{"));
        let mut scope = Scope::default();
        for field in fields {
            let said = field.description.as_deref().map(comment::lines).unwrap_or_default();
            out.doc(1, &[said, field.facts.clone()]);
            let ident = scope.snake(&field.key, "field");
            if ident.strip_prefix("r#").unwrap_or(&ident) != field.key {
                out.rename_field(&field.key);
            }
            let of = self.spell(&field.of, &self.spot(item, at, &field.key));
            let is_maybe = matches!(field.of, Type::Maybe(_));
            let of = if field.required || is_maybe { of } else { format!("Option<{of}>") };
            if !field.required {
                out.line(1, "#[serde(default, skip_serializing_if = \"Option::is_none\")]");
            }
            out.field(&ident, &of);
        }
        if let Some(rest) = rest {
            out.line(1, "/// All other members.");
            out.line(1, "#[serde(flatten)]");
            let of = self.spell(&Type::Map(Box::new(rest.clone())), &self.spot(item, at, "*"));
            out.field(&scope.snake("extra", "extra"), &of);
        }
        out.line(0, "}");
    }

    fn spot<'s>(&self, item: &'s Item, at: usize, key: &str) -> Spot<'s> {
        Spot { tool: &item.tool, place: format!("{}.{key}", item.place), owner: Some(at) }
    }

    /// A type in Rust, or anything if that would be too long to read.
    fn spell(&mut self, of: &Type, spot: &Spot<'_>) -> String {
        let spelt = self.type_of(of, spot, true);
        let max = if spelt.contains('(') { TUPLE_MAX } else { TYPE_MAX };
        if spelt.len() <= max {
            self.has_map |= spelt.contains("BTreeMap<");
            return spelt;
        }
        self.notes.push(RustNote::new(spot.tool, &spot.place, "its type would be too long to read"));
        let any = "serde_json::Value";
        if matches!(of, Type::Maybe(_)) { format!("Option<{any}>") } else { any.to_owned() }
    }

    fn type_of(&self, of: &Type, spot: &Spot<'_>, by_value: bool) -> String {
        let inner = |of: &Type| self.type_of(of, spot, false);
        match of {
            Type::Any => "serde_json::Value".into(),
            Type::Null => "()".into(),
            Type::Bool => "bool".into(),
            Type::Integer => "i64".into(),
            Type::Unsigned => "u64".into(),
            Type::Number => "f64".into(),
            Type::Text => "String".into(),
            Type::List(of) => format!("Vec<{}>", inner(of)),
            Type::Map(of) if **of == Type::Any => "serde_json::Map<String, serde_json::Value>".into(),
            Type::Map(of) => format!("BTreeMap<String, {}>", inner(of)),
            Type::Maybe(of) => format!("Option<{}>", self.type_of(of, spot, by_value)),
            Type::Tuple(parts) => {
                let parts: Vec<String> =
                    parts.iter().map(|part| self.type_of(part, spot, by_value)).collect();
                if parts.len() == 1 { format!("({},)", parts[0]) } else { format!("({})", parts.join(", ")) }
            }
            Type::Named(item) => {
                let itself = spot.owner == Some(*item);
                let name = if itself { "Self" } else { self.names.get(item).map_or("Self", String::as_str) };
                let endless = by_value && spot.owner.is_some_and(|owner| self.module.holds(*item, owner));
                if endless { format!("Box<{name}>") } else { name.to_owned() }
            }
        }
    }
}

/// An enum of texts.
fn words_enum(out: &mut Source, name: &str, words: &[String]) {
    let default = if words.len() == 1 { ", Default" } else { "" };
    let derive =
        format!("#[derive(Clone, Copy, Debug{default}, PartialEq, Eq, Hash, Serialize, Deserialize)]");
    out.line(0, &derive);
    out.line(0, &format!("pub enum {name} {{"));
    let mut scope = Scope::with(&["Self"]);
    for word in words {
        let otherwise = if word.is_empty() { "Empty" } else { "Word" };
        let ident = scope.pascal(word, otherwise);
        if words.len() == 1 {
            out.line(1, "#[default]");
        }
        if ident != *word {
            out.rename_variant(word);
        }
        out.line(1, &format!("{ident},"));
    }
    out.line(0, "}");
}

const ALLOW: &str = "\
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::enum_variant_names,
    clippy::large_enum_variant,
    clippy::wrong_self_convention,
    reason = \"the names and shapes are the server's, and not all of them may be needed\"
)]

";

const NAMED: &str = "    \
    /// The server by another name.
    pub fn named(host: wharf::Host, server: impl Into<String>) -> Self {
        let server = server.into();
        Self { host, server }
    }

    /// The host that calls go through.
    pub fn host(&self) -> &wharf::Host {
        &self.host
    }
";

const UNTYPED: &str = "
    async fn call_untyped<A: serde::Serialize>(&self, tool: &str, arguments: &A) -> wharf::Outcome {
        let arguments = wharf::wire::Json::of(arguments);
        let options = wharf::CallOptions::default();
        self.host
            .call_tool(&self.server, tool, arguments, options)
            .await
    }
";

const TYPED: &str = "
    async fn call_typed<A, R>(&self, tool: &str, arguments: &A) -> wharf::Result<R>
    where
        A: serde::Serialize,
        R: serde::de::DeserializeOwned,
    {
        let tool = self.host.callable(&self.server, tool).await?;
        tool.call_as(arguments).await
    }
";
