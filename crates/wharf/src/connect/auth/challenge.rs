//! In: the `WWW-Authenticate` headers of a refusal. Out: what its Bearer challenge asks for.

use http::HeaderMap;
use http::header::WWW_AUTHENTICATE;

/// What a server said when it refused a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Challenge {
    /// Where the server says who hands out tokens for it.
    pub(super) resource_metadata: Option<String>,
    /// What the token must be good for.
    pub(super) scopes: Option<Vec<String>>,
    /// Why it refused.
    pub(super) error: Option<String>,
}

/// More scopes, or longer ones, are nobody's.
const MOST_SCOPES: usize = 100;
const LONGEST_SCOPE: usize = 256;
/// A longer header is not read.
const LONGEST: usize = 16 * 1024;

impl Challenge {
    /// The first Bearer challenge of a response.
    pub(crate) fn read(headers: &HeaderMap) -> Option<Self> {
        let values = headers.get_all(WWW_AUTHENTICATE).into_iter().filter_map(|value| value.to_str().ok());
        let params = values.filter(|text| text.len() <= LONGEST).find_map(bearer)?;
        let get = |name: &str| {
            let found = params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.clone())
        };
        Some(Self {
            resource_metadata: get("resource_metadata"),
            scopes: get("scope").map(|text| scopes(&text)).filter(|scopes| !scopes.is_empty()),
            error: get("error"),
        })
    }

    /// Whether the token was good, but not for this.
    pub(crate) fn wants_more(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }
}

/// The scopes in a text, each once, without what is none.
pub(super) fn scopes(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for scope in text.split_ascii_whitespace().filter(|scope| is_scope(scope)) {
        if all.len() < MOST_SCOPES && !all.iter().any(|known| known == scope) {
            all.push(scope.to_owned());
        }
    }
    all
}

/// The letters that RFC 6749 has for a scope.
pub(super) fn is_scope(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= LONGEST_SCOPE
        && text.bytes().all(|b| matches!(b, 0x21 | 0x23..=0x5b | 0x5d..=0x7e))
}

/// The parameters of the first Bearer challenge in a header's text.
fn bearer(text: &str) -> Option<Vec<(String, String)>> {
    let mut rest = text;
    let mut found: Option<Vec<(String, String)>> = None;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let (word, after) = token(rest);
        if word.is_empty() {
            return found;
        }
        match after.trim_start().strip_prefix('=') {
            Some(value) => {
                let (value, after) = value_of(value.trim_start());
                if let Some(params) = &mut found {
                    params.push((word.to_owned(), value));
                }
                rest = after;
            }
            // A word without a value begins the next challenge.
            None if found.is_some() => return found,
            None => {
                found = word.eq_ignore_ascii_case("bearer").then(Vec::new);
                rest = after;
            }
        }
    }
}

fn token(text: &str) -> (&str, &str) {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~/".contains(c);
    text.split_at(text.find(|c| !is_letter(c)).unwrap_or(text.len()))
}

fn value_of(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        // Not every server quotes an address.
        let (word, rest) = text.split_at(text.find([',', ' ']).unwrap_or(text.len()));
        return (word.to_owned(), rest);
    };
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(letters.next().map(|(_, letter)| letter)),
            letter => value.push(letter),
        }
    }
    (value, "")
}
