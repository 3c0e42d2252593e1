//! The blocks of a tool's result.

use serde::Deserialize;

use crate::text::Foreign;
use crate::wire::Json;

/// One block of a result. A kind that Wharf does not know is kept whole.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Content {
    /// Text.
    Text {
        /// The text.
        text: Foreign,
        /// The block as it came.
        raw: Json,
    },
    /// A picture, base64.
    Image {
        /// The bytes, still base64.
        data: Foreign,
        /// What they are, as the server says.
        mime_type: Foreign,
        /// The block as it came.
        raw: Json,
    },
    /// Sound, base64.
    Audio {
        /// The bytes, still base64.
        data: Foreign,
        /// What they are, as the server says.
        mime_type: Foreign,
        /// The block as it came.
        raw: Json,
    },
    /// A resource with its contents: text or base64.
    Resource {
        /// Its address.
        uri: Foreign,
        /// What it is, as the server says.
        mime_type: Option<Foreign>,
        /// Its text, if it is text.
        text: Option<Foreign>,
        /// Its bytes in base64, if it is not.
        blob: Option<Foreign>,
        /// The block as it came.
        raw: Json,
    },
    /// A pointer to a resource. It is never followed by itself.
    ResourceLink {
        /// Its address.
        uri: Foreign,
        /// Its name.
        name: Foreign,
        /// The block as it came.
        raw: Json,
    },
    /// A kind of a later day, or a block that lacks something.
    Unknown {
        /// What it says it is.
        kind: Foreign,
        /// The block as it came.
        raw: Json,
    },
}

impl Content {
    /// Reads a block. What cannot be read is kept as [`Content::Unknown`], never dropped.
    pub fn read(raw: Json) -> Self {
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Shape {
            r#type: String,
            text: Option<String>,
            data: Option<String>,
            mime_type: Option<String>,
            uri: Option<String>,
            name: Option<String>,
            blob: Option<String>,
            resource: Option<Box<Self>>,
        }
        let shape: Shape = raw.to().unwrap_or_default();
        let kind = shape.r#type.clone();
        let own = |text: String| Foreign::from(text);
        match (kind.as_str(), shape) {
            ("text", Shape { text: Some(text), .. }) => Self::Text { text: own(text), raw },
            ("image", Shape { data: Some(data), mime_type: Some(mime), .. }) => {
                Self::Image { data: own(data), mime_type: own(mime), raw }
            }
            ("audio", Shape { data: Some(data), mime_type: Some(mime), .. }) => {
                Self::Audio { data: own(data), mime_type: own(mime), raw }
            }
            ("resource", Shape { resource: Some(inner), .. }) if inner.uri.is_some() => Self::Resource {
                uri: own(inner.uri.unwrap_or_default()),
                mime_type: inner.mime_type.map(own),
                text: inner.text.map(own),
                blob: inner.blob.map(own),
                raw,
            },
            ("resource_link", Shape { uri: Some(uri), name, .. }) => {
                Self::ResourceLink { uri: own(uri), name: own(name.unwrap_or_default()), raw }
            }
            _ => Self::Unknown { kind: own(kind), raw },
        }
    }

    /// The block as its server wrote it.
    pub fn raw(&self) -> &Json {
        match self {
            Self::Text { raw, .. }
            | Self::Image { raw, .. }
            | Self::Audio { raw, .. }
            | Self::Resource { raw, .. }
            | Self::ResourceLink { raw, .. }
            | Self::Unknown { raw, .. } => raw,
        }
    }
}
