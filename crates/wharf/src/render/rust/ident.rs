//! Names that Rust takes. In: any text. Out: an identifier of ASCII letters, digits and `_`, which is no keyword and
//! which nothing else in its scope has. Two runs over the same texts give the same names.

use std::collections::HashSet;

/// The longest name that is made of a text, without the number that may follow.
const MAX: usize = 44;
/// What can be a name with `r#` before it.
const KEYWORDS: [&str; 48] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro",
    "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "static", "struct", "trait",
    "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];
/// What can be no name at all.
const NEVER: [&str; 3] = ["self", "super", "crate"];

/// Names that are taken in one scope.
#[derive(Debug, Default)]
pub(super) struct Scope(HashSet<String>);

// === impl Scope ===

impl Scope {
    /// A scope in which these names mean something already.
    pub(super) fn with(taken: &[&str]) -> Self {
        Self(taken.iter().map(|&name| name.to_owned()).collect())
    }

    /// A type or a variant: `CreateIssue`.
    pub(super) fn pascal(&mut self, text: &str, otherwise: &str) -> String {
        self.give(&[&pascal(text)[..], otherwise], |name| name)
    }

    /// A field or a function: `create_issue`, `r#type`.
    pub(super) fn snake(&mut self, text: &str, otherwise: &str) -> String {
        self.give(&[&snake(text)[..], otherwise], raw)
    }

    fn give(&mut self, wishes: &[&str], spell: impl Fn(String) -> String) -> String {
        let wish = wishes.iter().copied().find(|wish| !wish.is_empty()).unwrap_or("Unnamed");
        let mut wish: String = wish.chars().take(MAX).collect();
        while wish.ends_with('_') {
            wish.pop();
        }
        let mut name = spell(wish.clone());
        let mut number = 1;
        while !self.0.insert(name.clone()) {
            number += 1;
            name = spell(format!("{wish}{number}"));
        }
        name
    }
}

/// `create-issue` as `CreateIssue`; empty if nothing of the text can stand in a name.
pub(super) fn pascal(text: &str) -> String {
    let mut name = String::new();
    for word in words(text) {
        let mut chars = word.chars();
        name.extend(chars.next().map(|c| c.to_ascii_uppercase()));
        name.extend(chars);
    }
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("N{name}") } else { name }
}

fn snake(text: &str) -> String {
    let name = words(text).join("_");
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}

fn raw(name: String) -> String {
    if NEVER.contains(&name.as_str()) {
        format!("{name}_")
    } else if KEYWORDS.contains(&name.as_str()) {
        format!("r#{name}")
    } else {
        name
    }
}

/// The words of a text in lower case: cut where a character is no letter or digit, and before a capital that begins a
/// word.
fn words(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().take(4 * MAX).collect();
    let mut words = vec![String::new()];
    for (at, &c) in chars.iter().enumerate() {
        if !c.is_ascii_alphanumeric() {
            words.push(String::new());
            continue;
        }
        let before = at.checked_sub(1).map(|before| chars[before]);
        let after = chars.get(at + 1);
        let begins = c.is_ascii_uppercase()
            && before
                .is_some_and(|b| !b.is_ascii_uppercase() || after.is_some_and(|a| a.is_ascii_lowercase()));
        if begins {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push(c.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}
