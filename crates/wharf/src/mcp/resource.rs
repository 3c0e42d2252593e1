//! Resources as their server lists them, and what is in one.

use base64::Engine as _;
use bytes::Bytes;
use serde::Deserialize;

use crate::text::Foreign;
use crate::wire::Json;

/// A resource of a server: something that can be read.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Its address, which only its server understands.
    pub uri: Foreign,
    /// Its name.
    pub name: Foreign,
    /// A name for people.
    pub title: Option<Foreign>,
    /// What it is, in the server's words.
    pub description: Option<Foreign>,
    /// What kind of content it has, as the server says.
    pub mime_type: Option<Foreign>,
    /// How many bytes it has, as the server says.
    pub size: Option<u64>,
    /// The whole definition, byte for byte.
    pub raw: Json,
}

/// A pattern of addresses: with its gaps filled, each is a resource.
#[derive(Clone, Debug)]
pub struct ResourceTemplate {
    /// The pattern, as RFC 6570 has it.
    pub uri_template: Foreign,
    /// Its name.
    pub name: Foreign,
    /// A name for people.
    pub title: Option<Foreign>,
    /// What it leads to, in the server's words.
    pub description: Option<Foreign>,
    /// What kind of content all of them have, as the server says.
    pub mime_type: Option<Foreign>,
    /// The whole definition, byte for byte.
    pub raw: Json,
}

/// One part of what was read.
#[derive(Clone, Debug)]
pub struct ResourceContents {
    /// Its address; one reading may give several.
    pub uri: Foreign,
    /// What it is, as the server says.
    pub mime_type: Option<Foreign>,
    /// What is in it.
    pub body: Body,
    /// The whole part, byte for byte.
    pub raw: Json,
}

/// What is in a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Text.
    Text(Foreign),
    /// Anything else.
    Blob(Bytes),
}

/// The longest address that is taken from a server.
const MAX_URI: usize = 8192;

impl Resource {
    /// Reads one definition of a list. An error names what makes it unusable.
    pub fn read(raw: Json) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Shape {
            uri: String,
            name: Option<String>,
            title: Option<String>,
            description: Option<String>,
            mime_type: Option<String>,
            size: Option<f64>,
        }
        let shape: Shape = raw.to().map_err(|e| format!("its definition cannot be read: {e}"))?;
        check_uri("uri", &shape.uri)?;
        Ok(Self {
            name: shape.name.unwrap_or_else(|| shape.uri.clone()).into(),
            uri: shape.uri.into(),
            title: shape.title.map(Foreign::from),
            description: shape.description.map(Foreign::from),
            mime_type: shape.mime_type.map(Foreign::from),
            size: shape.size.and_then(whole),
            raw,
        })
    }
}

impl ResourceTemplate {
    /// Reads one definition of a list. An error names what makes it unusable.
    pub fn read(raw: Json) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Shape {
            uri_template: String,
            name: Option<String>,
            title: Option<String>,
            description: Option<String>,
            mime_type: Option<String>,
        }
        let shape: Shape = raw.to().map_err(|e| format!("its definition cannot be read: {e}"))?;
        check_uri("uriTemplate", &shape.uri_template)?;
        Ok(Self {
            name: shape.name.unwrap_or_else(|| shape.uri_template.clone()).into(),
            uri_template: shape.uri_template.into(),
            title: shape.title.map(Foreign::from),
            description: shape.description.map(Foreign::from),
            mime_type: shape.mime_type.map(Foreign::from),
            raw,
        })
    }
}

impl ResourceContents {
    /// Reads one part of what a server gave. An error names what makes it unusable.
    pub fn read(raw: Json) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Shape {
            uri: String,
            mime_type: Option<String>,
            text: Option<String>,
            blob: Option<String>,
        }
        let shape: Shape = raw.to().map_err(|e| format!("it cannot be read: {e}"))?;
        let body = match (shape.text, shape.blob) {
            (Some(text), None) => Body::Text(text.into()),
            (None, Some(blob)) => Body::Blob(decode(&blob)?),
            (None, None) => return Err("it has neither `text` nor `blob`".into()),
            (Some(_), Some(_)) => return Err("it has both `text` and `blob`".into()),
        };
        Ok(Self { uri: shape.uri.into(), mime_type: shape.mime_type.map(Foreign::from), body, raw })
    }

    /// Its text, if it is text.
    pub fn text(&self) -> Option<&Foreign> {
        match &self.body {
            Body::Text(text) => Some(text),
            Body::Blob(_) => None,
        }
    }

    /// Its bytes, whatever it is.
    pub fn bytes(&self) -> &[u8] {
        match &self.body {
            Body::Text(text) => text.raw().as_bytes(),
            Body::Blob(bytes) => bytes,
        }
    }
}

/// Padded or not: both are in use.
fn decode(blob: &str) -> Result<Bytes, String> {
    let engine = &base64::engine::general_purpose::STANDARD_NO_PAD;
    let bare = blob.strip_suffix("==").or_else(|| blob.strip_suffix('=')).unwrap_or(blob);
    engine.decode(bare).map(Bytes::from).map_err(|e| format!("its `blob` is not base64: {e}"))
}

/// An address with characters that cannot be seen is no address, and would be shown as something that cannot be typed.
fn check_uri(key: &str, uri: &str) -> Result<(), String> {
    match uri {
        "" => Err(format!("its `{key}` is empty")),
        _ if uri.len() > MAX_URI => Err(format!("its `{key}` is longer than {MAX_URI} bytes")),
        _ if uri.chars().any(crate::text::is_unsafe_to_show) => {
            Err(format!("its `{key}` has control characters, or ones that cannot be seen"))
        }
        _ => Ok(()),
    }
}

/// A count that was spelt as any number. A claim of the server, so nothing depends on it.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in the range")]
fn whole(size: f64) -> Option<u64> {
    (0.0..9e15).contains(&size).then_some(size as u64)
}
