//! Lines of source as `rustfmt` leaves them, in the style of 2024: what is too long is broken where it would break it.
//! Knows the few shapes that a generated module has, and nothing of what stands in them.

use super::comment;

/// The width that `rustfmt` keeps to.
const WIDTH: usize = 100;
/// The longest chain of calls that stays on one line.
const CHAIN: usize = 60;

/// Source in the making.
#[derive(Debug, Default)]
pub(super) struct Source(String);

// === impl Source ===

impl Source {
    /// A line, so many levels in.
    pub(super) fn line(&mut self, level: usize, text: &str) {
        if !text.is_empty() {
            self.0.extend(std::iter::repeat_n("    ", level));
        }
        self.0.push_str(text);
        self.0.push('\n');
    }

    /// A text of several lines that is formatted already.
    pub(super) fn block(&mut self, text: &str) {
        self.0.push_str(text);
    }

    /// Paragraphs of a doc comment; a stranger's words among them were made harmless before.
    pub(super) fn doc(&mut self, level: usize, paragraphs: &[Vec<String>]) {
        let mut first = true;
        for paragraph in paragraphs.iter().filter(|paragraph| !paragraph.is_empty()) {
            if !std::mem::take(&mut first) {
                self.line(level, "///");
            }
            for text in paragraph {
                let line = format!("/// {text}");
                self.line(level, line.trim_end());
            }
        }
    }

    /// `#[serde(rename = "…")]` before a variant.
    pub(super) fn rename_variant(&mut self, name: &str) {
        self.rename(name, WIDTH);
    }

    /// `#[serde(rename = "…")]` before a field, which `rustfmt` keeps one short of the width.
    pub(super) fn rename_field(&mut self, name: &str) {
        self.rename(name, WIDTH - 1);
    }

    fn rename(&mut self, name: &str, width: usize) {
        let inner = format!("rename = {}", comment::literal(name));
        let line = format!("#[serde({inner})]");
        if 4 + line.len() <= width {
            self.line(1, &line);
        } else {
            self.line(1, "#[serde(");
            self.line(2, &inner);
            self.line(1, ")]");
        }
    }

    /// `pub name: Type,`.
    pub(super) fn field(&mut self, name: &str, of: &str) {
        let line = format!("pub {name}: {of},");
        if fits(1, &line) {
            self.line(1, &line);
        } else {
            self.line(1, &format!("pub {name}:"));
            self.line(2, &format!("{of},"));
        }
    }

    /// `Name(Type),`.
    pub(super) fn variant(&mut self, name: &str, of: &str) {
        let line = format!("{name}({of}),");
        if fits(1, &line) {
            self.line(1, &line);
        } else {
            self.line(1, &format!("{name}("));
            self.line(2, &format!("{of},"));
            self.line(1, "),");
        }
    }

    /// The head of a function, up to its brace.
    pub(super) fn function(&mut self, name: &str, arguments: Option<&str>, gives: &str) {
        let more = arguments.map(|of| format!("arguments: &{of}"));
        let parameters = more.as_ref().map(|more| format!(", {more}")).unwrap_or_default();
        let line = format!("pub async fn {name}(&self{parameters}) -> {gives} {{");
        if fits(1, &line) {
            self.line(1, &line);
            return;
        }
        self.line(1, &format!("pub async fn {name}("));
        self.line(2, "&self,");
        if let Some(more) = more {
            self.line(2, &format!("{more},"));
        }
        self.line(1, &format!(") -> {gives} {{"));
    }

    /// `self.call("tool", arguments).await`, the last line of a function.
    pub(super) fn call(&mut self, method: &str, tool: &str) {
        let literal = comment::literal(tool);
        let line = format!("self.{method}({literal}, arguments).await");
        if line.len() <= CHAIN {
            self.line(2, &line);
            return;
        }
        let same_line = format!("let tool = {literal};");
        let next_line = format!("{literal};");
        if !fits(2, &same_line) && fits(3, &next_line) {
            self.line(2, "let tool =");
            self.line(3, &next_line);
        } else {
            self.line(2, &same_line);
        }
        self.line(2, &format!("self.{method}(tool, arguments).await"));
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

fn fits(level: usize, text: &str) -> bool {
    4 * level + text.chars().count() <= WIDTH
}
