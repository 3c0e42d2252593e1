//! A stranger's words as literals and comments. In: any text. Out: an escaped literal, or lines of a doc comment that
//! can neither end the comment, nor hide anything, nor become a doctest, a link or HTML in what rustdoc makes of it.

use crate::text::is_unsafe_to_show;

/// The most characters of one description.
const CHARS_MAX: usize = 4000;
/// The most characters of a name in a sentence.
const SPAN_MAX: usize = 80;

/// A string literal. All that is not plain ASCII is escaped, so that what is seen is what is meant.
pub(super) fn literal(text: &str) -> String {
    format!("\"{}\"", escaped(text, &['"', '\\']))
}

/// A name in a sentence: in backticks, which it cannot leave.
pub(super) fn span(text: &str) -> String {
    let cut: String = text.chars().take(SPAN_MAX).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    let inner = escaped(&cut, &['`']);
    let inner =
        if inner.trim().len() < inner.len() || inner.is_empty() { format!("\"{inner}\"") } else { inner };
    format!("`{inner}{more}`")
}

/// Lines for a doc comment, without the slashes. Simple prose stays prose; anything else becomes a block of text, in
/// which Markdown means nothing.
pub(super) fn lines(text: &str) -> Vec<String> {
    let cut: String = text.chars().take(CHARS_MAX).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    let mut lines: Vec<String> = format!("{cut}{more}").lines().map(clean).collect();
    let blank = |line: &String| line.trim().is_empty();
    while lines.last().is_some_and(blank) {
        lines.pop();
    }
    let first = lines.iter().position(|line| !blank(line)).unwrap_or(lines.len());
    lines.drain(..first);
    if lines.iter().all(|line| blank(line) || is_prose(line.trim_start())) {
        return lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    }
    let fence = "`".repeat(longest_run(&lines, '`').max(2) + 1);
    let open = format!("{fence}text");
    [open].into_iter().chain(lines).chain([fence]).collect()
}

/// A line without what cannot be seen, and without spaces at its end.
fn clean(line: &str) -> String {
    let mut clean = String::new();
    for c in line.chars() {
        match c {
            '\t' => clean.push_str("    "),
            c if is_unsafe_to_show(c) => {}
            c if c.is_whitespace() => clean.push(' '),
            c => clean.push(c),
        }
    }
    clean.truncate(clean.trim_end().len());
    clean
}

/// Whether a line means the same with and without Markdown, but for emphasis: it opens like a sentence, and holds
/// nothing that links, quotes, fences or tags.
fn is_prose(line: &str) -> bool {
    let opens = line.starts_with(|c: char| c.is_alphabetic() || matches!(c, '`' | '"' | '('));
    let plain = |c: char| !matches!(c, '<' | '[' | ']' | '\\' | '|' | '~');
    opens && line.chars().all(plain) && !line.contains("```") && !line.contains("://")
}

fn longest_run(lines: &[String], of: char) -> usize {
    let runs = lines.iter().flat_map(|line| line.split(|c| c != of));
    runs.map(str::len).max().unwrap_or(0)
}

fn escaped(text: &str, special: &[char]) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '"' | '\\' if special.contains(&c) => escaped.extend(['\\', c]),
            '\n' => escaped.push_str("\\n"),
            ' '..='~' if !special.contains(&c) => escaped.push(c),
            _ => escaped.extend(c.escape_unicode()),
        }
    }
    escaped
}
