//! A result as text.

use crate::mcp::Content;
use crate::text::{Escaped, Foreign};
use crate::wire::Json;

/// Text blocks joined by line breaks, other blocks described; the structured result if there is no text at all.
pub(super) fn of(content: &[Content], structured: Option<Json>) -> String {
    let has_text = content.iter().any(|block| matches!(block, Content::Text { .. }));
    let mut parts: Vec<String> = content.iter().map(block).collect();
    if let Some(structured) = structured
        && !has_text
    {
        parts.push(structured.as_str().to_owned());
    }
    parts.join("\n")
}

fn block(block: &Content) -> String {
    match block {
        Content::Text { text, .. } => text.raw().to_owned(),
        Content::Image { data, mime_type, .. } => binary("image", mime_type, data),
        Content::Audio { data, mime_type, .. } => binary("audio", mime_type, data),
        Content::Resource { uri, text: Some(text), .. } => format!("[resource {uri}]\n{}", text.raw()),
        Content::Resource { uri, mime_type, blob, .. } => {
            let mime = mime_type.as_ref().map(|m| format!(" {m}")).unwrap_or_default();
            let size = blob.as_ref().map(|b| format!(", {}", size(b))).unwrap_or_default();
            format!("[resource {uri}{mime}{size}]")
        }
        Content::ResourceLink { uri, name, .. } if name.raw().is_empty() => format!("[link {uri}]"),
        Content::ResourceLink { uri, name, .. } => format!("[link {name}: {uri}]"),
        Content::Unknown { kind, raw } if kind.raw().is_empty() => {
            format!("[a block of no known kind, {}]", bytes(raw.bytes().len()))
        }
        Content::Unknown { kind, raw } => {
            let short: String = kind.raw().chars().take(40).collect();
            format!("[a block of the unknown kind `{}`, {}]", Escaped(&short), bytes(raw.bytes().len()))
        }
    }
}

fn binary(what: &str, mime_type: &Foreign, data: &Foreign) -> String {
    format!("[{what} {mime_type}, {}]", size(data))
}

/// How much base64 text stands for.
fn size(base64: &Foreign) -> String {
    let digits = base64.raw().trim_end_matches('=').len();
    bytes(digits * 3 / 4)
}

fn bytes(count: usize) -> String {
    match count {
        0..1024 => format!("{count} bytes"),
        1024..1_048_576 => format!("{} KB", count.div_ceil(1024)),
        _ => format!("{:.1} MB", count as f64 / 1_048_576.0),
    }
}
