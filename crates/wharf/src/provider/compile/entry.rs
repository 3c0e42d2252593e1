//! One tool in a provider's form.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Strict;
use crate::mcp::Tool;
use crate::provider::Provider;
use crate::provider::loss::{How, Loss};
use crate::provider::rules::{Dialect, Rules};
use crate::provider::schema::{self, Rewritten};

/// A tool as it stands in the list, but for its name: that depends on the other tools.
#[derive(Debug)]
pub(super) struct Entry {
    before_name: &'static str,
    after_name: String,
    pub(super) losses: Arc<[Loss]>,
}

impl Entry {
    /// The tool in the provider's form, or why it has none.
    pub(super) fn of(tool: &Tool, provider: Provider, rules: &Rules, strict: Strict) -> Result<Self, String> {
        let source = schema::read(&tool.input_schema)?;
        let is_wanted = match strict {
            Strict::Usual => rules.strict_by_default,
            Strict::Never => false,
            Strict::Lossless => true,
        };
        let lossless = |dialect: &Dialect| schema::rewrite(&source, dialect).ok().filter(|done| done.fits);
        let held = rules.strict.filter(|_| is_wanted).and_then(lossless);
        let is_strict = held.is_some();
        let Rewritten { schema, words, mut losses, .. } = match held {
            Some(held) => held,
            None => schema::rewrite(&source, rules.dialect)?,
        };
        let described =
            tool.description.as_ref().or(tool.title.as_ref()).map(|text| text.raw()).unwrap_or_default();
        let mut description = schema::clean(described).into_owned();
        if description != described {
            let (path, keyword) = (String::new(), "description".to_owned());
            losses.push(Loss { path, keyword, how: How::Rewritten, widens: false });
        }
        if let Some(words) = words {
            let space = if description.trim().is_empty() { "" } else { " " };
            description = format!("{description}{space}{words}");
        }
        let description = Some(description).filter(|text| !text.trim().is_empty());
        let (before_name, after_name) = shape(provider, description, &schema, is_strict);
        Ok(Self { before_name, after_name, losses: losses.into() })
    }

    /// Writes the tool with its name.
    pub(super) fn write(&self, name: &str, text: &mut String) {
        text.push_str(self.before_name);
        // Names are letters, digits, `_` and `-`.
        text.push('"');
        text.push_str(name);
        text.push('"');
        text.push_str(&self.after_name);
    }

    /// How many bytes it holds.
    pub(super) fn weight(&self) -> usize {
        let loss = |loss: &Loss| loss.path.len() + loss.keyword.len() + size_of::<Loss>();
        self.after_name.len() + self.losses.iter().map(loss).sum::<usize>()
    }
}

/// What stands before and after the name.
fn shape(
    provider: Provider,
    description: Option<String>,
    schema: &Value,
    is_strict: bool,
) -> (&'static str, String) {
    let described = description.map(|text| format!(",\"description\":{}", json!(text))).unwrap_or_default();
    let function = "{\"type\":\"function\",\"function\":{\"name\":";
    let has_arguments = schema.get("properties").is_some();
    match provider {
        Provider::OpenAiChat => {
            (function, format!("{described},\"parameters\":{schema},\"strict\":{is_strict}}}}}"))
        }
        Provider::OpenAiResponses => (
            "{\"type\":\"function\",\"name\":",
            format!("{described},\"parameters\":{schema},\"strict\":{is_strict}}}"),
        ),
        Provider::Anthropic => {
            let strict = if is_strict { ",\"strict\":true" } else { "" };
            ("{\"name\":", format!("{described},\"input_schema\":{schema}{strict}}}"))
        }
        Provider::Gemini => ("{\"name\":", format!("{described},\"parametersJsonSchema\":{schema}}}")),
        // An object without properties is refused: no arguments are told by saying nothing of them.
        Provider::GeminiOpenApi if !has_arguments => ("{\"name\":", format!("{described}}}")),
        Provider::GeminiOpenApi => ("{\"name\":", format!("{described},\"parameters\":{schema}}}")),
        Provider::Mistral | Provider::Ollama => {
            (function, format!("{described},\"parameters\":{schema}}}}}"))
        }
        Provider::Bedrock => {
            ("{\"toolSpec\":{\"name\":", format!("{described},\"inputSchema\":{{\"json\":{schema}}}}}}}"))
        }
    }
}
