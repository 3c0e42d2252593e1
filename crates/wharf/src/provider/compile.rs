//! Tools become the `tools` of a request.
//!
//! In: routes, and a provider. Out: [`Compiled`]: the JSON, the way back from its names, what was lost and what was left
//! out. A tool that cannot be said is left out with the reason; it never takes another with it. What was compiled once
//! is kept, so that the next request costs little more than putting it together.

mod cache;
mod entry;
mod names;

use std::collections::HashSet;
use std::sync::Arc;

use self::cache::Cache;
use self::entry::Entry;
use super::rules::Rules;
use super::{Loss, Provider, Toolset};
use crate::names::{ServerName, ToolName};
use crate::registry::Route;
use crate::wire::Json;

/// From so many tools on, models choose noticeably worse among them.
pub const MANY_TOOLS: usize = 40;

/// Compiles tools for providers, and remembers what it compiled. One for the whole program.
#[derive(Debug, Default)]
pub struct Compiler {
    strict: Strict,
    cache: Cache,
}

/// Whether the model is held to a tool's schema (`strict: true`), where the provider can do that.
///
/// Only a schema that loses nothing by it is ever strict: every property is required, and no keyword must go. An
/// optional argument is not made nullable instead, because the model's `null` would then have to be told from the
/// caller's. All other tools say `strict: false` where the provider would otherwise try.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strict {
    /// As the provider has it: for OpenAI where nothing is lost, for Anthropic not.
    #[default]
    Usual,
    /// Never.
    Never,
    /// Wherever nothing is lost.
    Lossless,
}

/// Tools as a provider takes them.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// What goes under `tools` of the request, for Bedrock under `toolConfig.tools`: a list. Of Gemini's it has one
    /// object with all `functionDeclarations`, or nothing where there are none.
    pub tools: Json,
    /// Where the names of the tools lead.
    pub toolset: Toolset,
    /// What the tools lost, for those that lost something.
    pub losses: Vec<ToolLosses>,
    /// The tools that are not in it.
    pub left_out: Vec<LeftOut>,
    /// What may go wrong with all of them together.
    pub warnings: Vec<String>,
}

/// What one tool lost.
#[derive(Clone, Debug)]
pub struct ToolLosses {
    /// The server.
    pub server: ServerName,
    /// The tool.
    pub tool: ToolName,
    /// What is not said, or not as its server said it.
    pub losses: Arc<[Loss]>,
}

/// A tool that the provider is not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The server.
    pub server: ServerName,
    /// The tool.
    pub tool: ToolName,
    /// Why.
    pub reason: String,
}

// === impl Compiler ===

impl Compiler {
    /// With nothing compiled yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with another rule for when a tool is strict.
    #[must_use]
    pub fn with_strict(self, strict: Strict) -> Self {
        Self { strict, ..self }
    }

    /// Puts tools into a provider's form, in their order.
    pub fn compile<'r>(&self, provider: Provider, routes: impl IntoIterator<Item = &'r Route>) -> Compiled {
        let rules = Rules::of(provider);
        let mut seen = HashSet::new();
        let routes: Vec<&Route> =
            routes.into_iter().filter(|route| seen.insert((&route.server, &route.tool.name))).collect();
        // Tools of user interfaces are not for models.
        let routes: Vec<&Route> = routes.into_iter().filter(|route| !route.tool.app_only).collect();
        let mut batch = Batch { provider, max: rules.tools_max, ..Batch::new(provider) };
        for (route, name) in routes.iter().zip(names::assign(&routes, rules.name_max)) {
            let Some(name) = name else {
                batch.leave_out(route, "its name cannot be told from another tool's".into());
                continue;
            };
            let entry = self.cache.get_or_insert(route, (provider, self.strict), || {
                Entry::of(&route.tool, provider, &rules, self.strict)
            });
            match &*entry {
                Ok(entry) => batch.add(route, name, entry),
                Err(reason) => batch.leave_out(route, reason.clone()),
            }
        }
        batch.finish()
    }
}

/// The tools of one request, while they are gathered.
struct Batch {
    provider: Provider,
    max: Option<usize>,
    text: String,
    names: Vec<(String, Route)>,
    losses: Vec<ToolLosses>,
    left_out: Vec<LeftOut>,
}

// === impl Batch ===

impl Batch {
    fn new(provider: Provider) -> Self {
        let (text, names, losses, left_out) = Default::default();
        Self { provider, max: None, text, names, losses, left_out }
    }

    fn add(&mut self, route: &Route, name: String, entry: &Entry) {
        if let Some(max) = self.max.filter(|max| self.names.len() >= *max) {
            return self.leave_out(route, format!("the provider takes at most {max} tools"));
        }
        if !self.names.is_empty() {
            self.text.push(',');
        }
        entry.write(&name, &mut self.text);
        if !entry.losses.is_empty() {
            let (server, tool) = (route.server.clone(), route.tool.name.clone());
            self.losses.push(ToolLosses { server, tool, losses: Arc::clone(&entry.losses) });
        }
        self.names.push((name, route.clone()));
    }

    fn leave_out(&mut self, route: &Route, reason: String) {
        self.left_out.push(LeftOut { server: route.server.clone(), tool: route.tool.name.clone(), reason });
    }

    fn finish(self) -> Compiled {
        let text = match self.provider {
            Provider::Gemini | Provider::GeminiOpenApi if !self.names.is_empty() => {
                format!("[{{\"functionDeclarations\":[{}]}}]", self.text)
            }
            _ => format!("[{}]", self.text),
        };
        let count = self.names.len();
        let warnings = (count >= MANY_TOOLS).then(|| {
            format!("{count} tools: from {MANY_TOOLS} on, models choose noticeably worse among them")
        });
        Compiled {
            // Put together from JSON, so it is JSON.
            tools: Json::parse(text, 127).unwrap_or_else(|_| Json::of(&[(); 0])),
            toolset: self.names.into_iter().collect(),
            losses: self.losses,
            left_out: self.left_out,
            warnings: warnings.into_iter().collect(),
        }
    }
}
