//! Characters that cannot be seen, reorder a line or drive a terminal, and text that is put where nobody looks.

use super::{Hit, Severity};

/// What kind of hiding a character does.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Tag,
    Bidi,
    Mark,
    ZeroWidth,
    Joiner,
    Variation,
    Terminal,
    Overwrite,
    Separator,
}

/// White space in a row that pushes what follows out of sight: spaces, or line breaks.
const FAR: usize = 100;
const FAR_LINES: usize = 20;
/// A run of base64 that is no word any more.
const LONG: usize = 80;
/// So many zero-width characters in one string are a message.
const MESSAGE: usize = 8;

pub(super) fn hits(text: &str) -> Vec<Hit> {
    let mut hits = Vec::new();
    if text.bytes().any(|b| !matches!(b, b' '..=b'~' | b'\n' | b'\t')) {
        characters(text, &mut hits);
    }
    if text.len() >= FAR_LINES {
        // Most texts have no such run of bytes, which is soon seen; whatever is not ASCII may be a space.
        if has_run(text, FAR_LINES, |b| b.is_ascii_whitespace() || b == 0x0b || !b.is_ascii()) {
            padding(text, &mut hits);
        }
        comments(text, &mut hits);
        if has_run(text, LONG, is_base64) {
            encoded(text, &mut hits);
        }
    }
    hits
}

/// Whether so many such bytes stand in a row.
fn has_run(text: &str, length: usize, is_it: impl Fn(u8) -> bool) -> bool {
    let mut run = 0;
    text.bytes().any(|b| {
        run = if is_it(b) { run + 1 } else { 0 };
        run >= length
    })
}

fn characters(text: &str, hits: &mut Vec<Hit>) {
    let all: Vec<(usize, char)> = text.char_indices().collect();
    let many = all.iter().filter(|(_, c)| matches!(kind(*c), Some(Kind::ZeroWidth | Kind::Joiner))).count();
    let mut at = 0;
    while at < all.len() {
        let (start, c) = all[at];
        let Some(found) = kind(c) else {
            at += 1;
            continue;
        };
        let run = all[at..].iter().take_while(|(_, c)| kind(*c) == Some(found)).count();
        let end = all.get(at + run).map_or(text.len(), |(end, _)| *end);
        let before = at.checked_sub(1).map(|before| all[before].1);
        let after = all.get(at + run).map(|(_, after)| *after);
        if let Some((rule, severity)) = judged(found, (before, after), run, many) {
            hits.push(Hit { rule, severity, range: start..end });
        }
        at += run;
    }
}

/// What a run of such characters means where it stands.
fn judged(
    kind: Kind,
    (before, after): (Option<char>, Option<char>),
    run: usize,
    many: usize,
) -> Option<(&'static str, Severity)> {
    let right_to_left = |c: Option<char>| c.is_some_and(is_right_to_left);
    match kind {
        // The flags of England, Scotland and Wales are written with tags.
        Kind::Tag if before == Some('\u{1f3f4}') && run <= 7 => None,
        Kind::Tag => Some(("hidden.tags", Severity::High)),
        Kind::Bidi => Some(("hidden.bidi", Severity::High)),
        Kind::Mark if right_to_left(before) || right_to_left(after) => Some(("hidden.bidi", Severity::Low)),
        Kind::Mark => Some(("hidden.bidi", Severity::Medium)),
        // Scripts and emoji that need them.
        Kind::Joiner if run == 1 && before.is_some_and(joins) && after.is_some_and(joins) => None,
        Kind::ZeroWidth | Kind::Joiner if many >= MESSAGE => Some(("hidden.zero-width", Severity::High)),
        Kind::ZeroWidth | Kind::Joiner => Some(("hidden.zero-width", Severity::Medium)),
        // One after a character that has forms is what they are for.
        Kind::Variation
            if run == 1 && before.is_some_and(|c| !c.is_ascii_alphanumeric() && !c.is_whitespace()) =>
        {
            None
        }
        Kind::Variation if run == 1 => Some(("hidden.variation", Severity::Medium)),
        Kind::Variation => Some(("hidden.variation", Severity::High)),
        Kind::Terminal => Some(("terminal.escape", Severity::High)),
        Kind::Overwrite if after == Some('\n') || after.is_none() => None,
        Kind::Overwrite => Some(("terminal.overwrite", Severity::Medium)),
        Kind::Separator => Some(("hidden.separator", Severity::Low)),
    }
}

fn kind(c: char) -> Option<Kind> {
    Some(match c {
        '\t' | '\n' => return None,
        '\r' => Kind::Overwrite,
        c if c.is_control() => Kind::Terminal,
        '\u{e0000}'..='\u{e007f}' => Kind::Tag,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}' => Kind::Bidi,
        '\u{200e}' | '\u{200f}' | '\u{61c}' => Kind::Mark,
        '\u{200c}' | '\u{200d}' => Kind::Joiner,
        '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}' | '\u{180b}'..='\u{180d}' | '\u{180f}' => {
            Kind::Variation
        }
        '\u{2028}' | '\u{2029}' => Kind::Separator,
        c if crate::text::is_unsafe_to_show(c) => Kind::ZeroWidth,
        _ => return None,
    })
}

fn is_right_to_left(c: char) -> bool {
    matches!(c, '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}')
}

/// Whether a joiner beside this character can be seen: emoji, and scripts whose letters join.
fn joins(c: char) -> bool {
    is_right_to_left(c)
        || matches!(c, '\u{900}'..='\u{dff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
            | '\u{2190}'..='\u{2bff}' | '\u{fe0f}' | '\u{1f000}'..='\u{1faff}')
}

/// Text far to the right, or far below.
fn padding(text: &str, hits: &mut Vec<Hit>) {
    let mut start = None;
    for (at, c) in text.char_indices().chain([(text.len(), 'x')]) {
        match (c.is_whitespace(), start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                let gap = &text[from..at];
                let lines = gap.matches('\n').count();
                if at < text.len() && (gap.len() >= FAR || lines >= FAR_LINES) {
                    hits.push(Hit { rule: "hidden.padding", severity: Severity::Medium, range: from..at });
                }
                start = None;
            }
            _ => {}
        }
    }
}

/// Comments, which a renderer leaves out and a model reads.
fn comments(text: &str, hits: &mut Vec<Hit>) {
    if memchr::memchr2(b'<', b'[', text.as_bytes()).is_none() {
        return;
    }
    for open in ["<!--", "[comment]: #", "[//]: #"] {
        if let Some(start) = text.find(open) {
            let range = start..start + open.len();
            hits.push(Hit { rule: "hidden.comment", severity: Severity::Medium, range });
        }
    }
}

/// A long run of base64, which a model can read and a person cannot.
fn encoded(text: &str, hits: &mut Vec<Hit>) {
    let in_run = |c: char| u8::try_from(c).is_ok_and(is_base64);
    let mut from = 0;
    while let Some(start) = text[from..].find(in_run).map(|at| from + at) {
        let end = text[start..].find(|c| !in_run(c)).map_or(text.len(), |at| start + at);
        let run = &text[start..end];
        let has = |test: fn(&u8) -> bool| run.as_bytes().iter().any(test);
        if run.len() >= LONG
            && has(u8::is_ascii_lowercase)
            && has(u8::is_ascii_uppercase)
            && has(u8::is_ascii_digit)
        {
            hits.push(Hit { rule: "hidden.encoded", severity: Severity::Medium, range: start..end });
        }
        from = end;
    }
}

fn is_base64(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=')
}
