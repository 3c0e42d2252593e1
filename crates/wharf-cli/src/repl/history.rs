//! What may be remembered of the lines that were typed.
//!
//! In: a line. Out: whether it may be kept in a file. A line that may hold a secret is not kept, though that is sometimes
//! a line too many.

use std::borrow::Cow;

use wharf::secret::{Redactor, is_credential_name, is_credential_value};

/// Knows the secrets of the configured servers.
pub(super) struct Discretion(Vec<Redactor>);

impl Discretion {
    pub(super) fn new(secrets: Vec<Redactor>) -> Self {
        Self(secrets)
    }

    /// Whether a line may be remembered.
    pub(super) fn may_keep(&self, line: &str) -> bool {
        let is_known = self.0.iter().any(|secrets| matches!(secrets.redact(line), Cow::Owned(_)));
        !is_known && !line.split_whitespace().any(is_address_with_user) && !names_or_shows_a_secret(line)
    }
}

/// `https://user:password@…`.
fn is_address_with_user(word: &str) -> bool {
    let address = word.split_once("://").map(|(_, address)| address);
    address.is_some_and(|address| address.split('/').next().is_some_and(|host| host.contains('@')))
}

/// `token=…`, `"token": …`, and whatever looks like a credential by itself.
fn names_or_shows_a_secret(line: &str) -> bool {
    let is_between = |c: char| c.is_whitespace() || "\"'{}[],=:\\".contains(c);
    let mut rest = line;
    loop {
        rest = rest.trim_start_matches(is_between);
        if rest.is_empty() {
            return false;
        }
        let (word, behind) = rest.split_at(rest.find(is_between).unwrap_or(rest.len()));
        let next = behind.trim_start_matches(|c: char| c.is_whitespace() || "\"'\\".contains(c));
        let is_given = next.starts_with(['=', ':']);
        // Some credentials have a space within: `Bearer …`.
        if is_credential_value(word) || is_credential_value(rest) || (is_given && is_credential_name(word)) {
            return true;
        }
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wharf::secret::Secret;

    #[test]
    fn l101_lines_with_secrets_are_not_kept() {
        let discretion = Discretion::new(vec![Redactor::new([Secret::new("hunter2-of-the-server")])]);
        for line in [
            "api.login token=abc",
            "api.login password:=\"abc\"",
            "api.login {\"apiKey\": 1, \"api_key\": \"abc\"}",
            "api.login 'password=two words'",
            "api.say text=ghp_0123456789abcdef0123",
            "api.say text='Bearer 0123456789abcdef'",
            "api.get url=https://me:secret@example.com/x",
            "api.say text=hunter2-of-the-server",
        ] {
            assert!(!discretion.may_keep(line), "{line}");
        }
        for line in [
            "/mcp connect demo --allow-all",
            "demo.echo message=hello",
            "demo.get_token name=x",
            "demo.echo message='what is a token'",
            "demo.get url=https://example.com/a@b",
        ] {
            assert!(discretion.may_keep(line), "{line}");
        }
    }
}
