//! What a tool gave back, shown.
//!
//! In: an outcome. Out: its text, escaped at a terminal and byte for byte in a pipe; its structured result where there
//! is no text; pictures and other bytes described, written out with `--raw`, or kept in a folder with `--save`.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use wharf::Outcome;
use wharf::mcp::Content;
use wharf::text::{Escaped, EscapedLines, Foreign};

use super::{Ui, json};
use crate::failure::{Failure, Result};

/// How a result is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish<'a> {
    /// Nothing escaped, nothing added, bytes as bytes.
    pub(crate) raw: bool,
    /// The folder that bytes are kept in.
    pub(crate) save: Option<&'a Path>,
    /// Whether `--save` could have been given.
    pub(crate) can_save: bool,
}

/// Bytes within a result.
struct Bytes<'a> {
    what: &'static str,
    mime: &'a str,
    base64: &'a Foreign,
}

/// Shows a result. Whether the tool failed is not looked at here.
pub(crate) fn show(ui: &Ui, outcome: &Outcome, wish: Wish<'_>) -> Result<()> {
    let content = outcome.content();
    if let Some(folder) = wish.save {
        save_all(ui, outcome, &content, folder)?;
    }
    if ui.json {
        return document(ui, outcome);
    }
    for block in &content {
        show_block(ui, block, wish)?;
    }
    let has_text = content.iter().any(|block| matches!(block, Content::Text { .. }));
    match outcome.structured() {
        Some(structured) if !has_text => show_structured(ui, structured.as_str(), wish.raw),
        _ => Ok(()),
    }
}

fn document(ui: &Ui, outcome: &Outcome) -> Result<()> {
    let text = outcome.raw.as_str();
    let text = if ui.terminals.stdout { json::safe(text) } else { text.to_owned() };
    Ok(ui.data(format!("{text}\n").as_bytes())?)
}

fn show_block(ui: &Ui, block: &Content, wish: Wish<'_>) -> Result<()> {
    if let Content::Text { text, .. } | Content::Resource { text: Some(text), .. } = block {
        return Ok(ui.data(&as_text(ui, text.raw(), wish.raw))?);
    }
    let bytes = bytes_of(block);
    if let (Some(bytes), true) = (&bytes, wish.raw) {
        return Ok(ui.data(&bytes.decode()?)?);
    }
    if bytes.is_some() && wish.save.is_some() {
        return Ok(());
    }
    let how = match (block, bytes) {
        (_, Some(_)) if wish.can_save => "; --save DIR keeps it",
        (Content::Unknown { .. }, _) => "; --json shows it",
        _ => "",
    };
    let described = format!("[{}{how}]", described(block));
    // In a pipe it would be taken for data.
    match ui.terminals.stdout {
        true => Ok(ui.data(format!("{described}\n").as_bytes())?),
        false => {
            ui.note(described);
            Ok(())
        }
    }
}

/// What a block that is no text is, in words.
pub(crate) fn described(block: &Content) -> String {
    match (block, bytes_of(block)) {
        (_, Some(bytes)) => {
            let (what, mime, size) = (bytes.what, Escaped(bytes.mime), size(bytes.len()));
            format!("{what} {mime}, {size}")
        }
        (Content::ResourceLink { uri, name, .. }, _) if name.raw().is_empty() => format!("link {uri}"),
        (Content::ResourceLink { uri, name, .. }, _) => format!("link {name}: {uri}"),
        (Content::Unknown { kind, .. }, _) => format!("a block of the unknown kind `{kind}`"),
        _ => "an empty block".to_owned(),
    }
}

fn as_text(ui: &Ui, text: &str, raw: bool) -> Vec<u8> {
    if raw {
        return text.as_bytes().to_vec();
    }
    let mut shown = if ui.terminals.stdout { EscapedLines(text).to_string() } else { text.to_owned() };
    if !shown.ends_with('\n') {
        shown.push('\n');
    }
    shown.into_bytes()
}

fn show_structured(ui: &Ui, text: &str, raw: bool) -> Result<()> {
    if raw || !ui.terminals.stdout {
        return Ok(ui.data(format!("{text}\n").as_bytes())?);
    }
    let value: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    Ok(ui.document(&value)?)
}

// === impl Bytes ===

impl Bytes<'_> {
    fn len(&self) -> usize {
        self.base64.raw().trim_end_matches('=').len() * 3 / 4
    }

    fn decode(&self) -> Result<Vec<u8>> {
        let decoded = base64::engine::general_purpose::STANDARD.decode(self.base64.raw());
        decoded.map_err(|_| Failure::general(format!("the server's {} is not valid base64", self.what)))
    }

    fn extension(&self) -> &'static str {
        match self.mime.split(';').next().unwrap_or_default().trim() {
            "image/png" => "png",
            "image/jpeg" => "jpg",
            "image/gif" => "gif",
            "image/webp" => "webp",
            "image/svg+xml" => "svg",
            "audio/wav" | "audio/x-wav" => "wav",
            "audio/mpeg" => "mp3",
            "audio/ogg" => "ogg",
            "application/pdf" => "pdf",
            "application/zip" => "zip",
            _ => "bin",
        }
    }
}

fn bytes_of(block: &Content) -> Option<Bytes<'_>> {
    match block {
        Content::Image { data, mime_type, .. } => {
            Some(Bytes { what: "image", mime: mime_type.raw(), base64: data })
        }
        Content::Audio { data, mime_type, .. } => {
            Some(Bytes { what: "audio", mime: mime_type.raw(), base64: data })
        }
        Content::Resource { blob: Some(blob), mime_type, .. } => {
            let mime = mime_type.as_ref().map_or("of no known type", Foreign::raw);
            Some(Bytes { what: "resource", mime, base64: blob })
        }
        _ => None,
    }
}

fn save_all(ui: &Ui, outcome: &Outcome, content: &[Content], folder: &Path) -> Result<()> {
    let tool = outcome.tool.as_ref().map_or("result", |tool| tool.as_str());
    // A server chooses its tools' names, and must not choose where files go.
    let stem: String = tool
        .chars()
        .take(60)
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' })
        .collect();
    for bytes in content.iter().filter_map(bytes_of) {
        let path = save(folder, &stem, &bytes)?;
        let path = path.to_string_lossy();
        ui.note(format_args!("saved {} ({}, {})", Escaped(&path), Escaped(bytes.mime), size(bytes.len())));
    }
    Ok(())
}

/// Writes to the first free name: no file is ever replaced.
fn save(folder: &Path, stem: &str, bytes: &Bytes<'_>) -> Result<PathBuf> {
    let failed = |error: std::io::Error| {
        Failure::general(format!("cannot save into {}: {error}", Escaped(&folder.to_string_lossy())))
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    let content = bytes.decode()?;
    for number in 1.. {
        let path = folder.join(format!("{stem}-{number}.{}", bytes.extension()));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                file.write_all(&content).map_err(failed)?;
                return Ok(path);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Err(Failure::general("there is no free name for the file"))
}

pub(crate) fn size(count: usize) -> String {
    match count {
        0..1024 => format!("{count} bytes"),
        1024..1_048_576 => format!("{} KB", count.div_ceil(1024)),
        _ => format!("{:.1} MB", count as f64 / 1_048_576.0),
    }
}
