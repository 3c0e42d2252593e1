//! Prompts as their server lists them, and the messages that one becomes.

use serde::Deserialize;

use super::Content;
use crate::text::Foreign;
use crate::wire::Json;

/// A prompt of a server: a text for a model, with gaps.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// The name the server knows it by.
    pub name: Foreign,
    /// A name for people.
    pub title: Option<Foreign>,
    /// What it is for, in the server's words.
    pub description: Option<Foreign>,
    /// What fills its gaps.
    pub arguments: Vec<PromptArgument>,
    /// The whole definition, byte for byte.
    pub raw: Json,
}

/// What fills a gap of a prompt: always text.
#[derive(Clone, Debug)]
pub struct PromptArgument {
    /// Its name.
    pub name: Foreign,
    /// A name for people.
    pub title: Option<Foreign>,
    /// What it is for.
    pub description: Option<Foreign>,
    /// Whether the prompt cannot do without.
    pub required: bool,
}

/// One message of a filled prompt.
#[derive(Clone, Debug)]
pub struct PromptMessage {
    /// Who says it, as the server says: `user` or `assistant`.
    pub role: Foreign,
    /// What is said.
    pub content: Content,
    /// The whole message, byte for byte.
    pub raw: Json,
}

/// How many gaps a prompt may have: somebody has to fill them in.
const MAX_ARGUMENTS: usize = 256;
/// The longest name of a prompt, as of a tool.
const MAX_NAME: usize = crate::names::TOOL_NAME_MAX;

impl Prompt {
    /// Reads one definition of a list. An error names what makes it unusable.
    pub fn read(raw: Json) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Shape {
            name: String,
            title: Option<String>,
            description: Option<String>,
            arguments: Option<Vec<Argument>>,
        }
        #[derive(Deserialize)]
        struct Argument {
            name: String,
            title: Option<String>,
            description: Option<String>,
            required: Option<bool>,
        }
        let shape: Shape = raw.to().map_err(|e| format!("its definition cannot be read: {e}"))?;
        let arguments = shape.arguments.unwrap_or_default();
        if shape.name.is_empty() || shape.name.len() > MAX_NAME {
            return Err(format!("its name is empty, or longer than {MAX_NAME} bytes"));
        }
        if arguments.len() > MAX_ARGUMENTS {
            return Err(format!("it has {} arguments, more than {MAX_ARGUMENTS}", arguments.len()));
        }
        let argument = |argument: Argument| PromptArgument {
            name: argument.name.into(),
            title: argument.title.map(Foreign::from),
            description: argument.description.map(Foreign::from),
            required: argument.required.unwrap_or(false),
        };
        Ok(Self {
            name: shape.name.into(),
            title: shape.title.map(Foreign::from),
            description: shape.description.map(Foreign::from),
            arguments: arguments.into_iter().map(argument).collect(),
            raw,
        })
    }
}

impl PromptMessage {
    /// Reads one message. An error names what makes it unusable; content of an unknown kind is kept as it is.
    pub fn read(raw: Json) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Shape {
            role: String,
            content: Json,
        }
        let shape: Shape = raw.to().map_err(|e| format!("it cannot be read: {e}"))?;
        if !matches!(shape.role.as_str(), "user" | "assistant") {
            return Err("its `role` is neither `user` nor `assistant`".into());
        }
        Ok(Self { role: shape.role.into(), content: Content::read(shape.content), raw })
    }
}
