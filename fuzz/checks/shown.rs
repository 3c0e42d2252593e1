//! Any text as it is shown and logged: nothing in it can drive a terminal, break a line or hide, and a secret in it is
//! erased. The first line is the secret, the rest the text.

use wharf::secret::{Redactor, Secret, erase_credentials};
use wharf::text::{Escaped, EscapedLines, Foreign, is_unsafe_to_show};

pub(crate) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let shown = Escaped(text).to_string();
    assert!(!shown.chars().any(is_unsafe_to_show), "{shown:?}");
    assert_eq!(Escaped(&shown).to_string(), shown, "what is safe stays as it is");
    assert_eq!(Foreign::from(text).to_string(), shown);
    assert_eq!(Foreign::from(text).raw(), text, "and nothing is lost to code");
    let lines = EscapedLines(text).to_string();
    assert!(!lines.chars().any(|c| is_unsafe_to_show(c) && c != '\n' && c != '\t'), "{lines:?}");
    assert_eq!(lines.matches('\n').count(), text.matches('\n').count());
    for debugged in [format!("{:?}", Foreign::from(text)), format!("{:?}", Escaped(text))] {
        assert!(!debugged.chars().any(is_unsafe_to_show), "{debugged:?}");
    }
    let erased = erase_credentials(text);
    assert!(erased.len() <= text.len() + 3 * (text.len() + 1), "it does not grow without end");

    let (secret, rest) = text.split_once('\n').unwrap_or((text, ""));
    let secret = secret.trim();
    // Shorter ones are words of every language; one with stars is like what it is replaced by.
    if secret.len() >= 6 && !secret.contains('*') {
        let redactor = Redactor::new([Secret::new(secret)]);
        let whole = format!("{rest}{secret}{rest}");
        assert!(!redactor.redact(&whole).contains(secret), "a secret is still there");
        for max in [0, 1, rest.len(), rest.len() + 3, whole.len()] {
            let beginning = redactor.redact_beginning(&whole, max);
            assert!(!beginning.contains(secret), "a secret is still there");
        }
    }
}
