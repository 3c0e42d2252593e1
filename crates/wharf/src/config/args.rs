//! No credential in an argument: every process on the machine can read the arguments of every other.
//!
//! In: one argument, or a flag and its neighbour. Out: whether it carries a credential. Refused are values in the
//! shape of a known token, `--token=x`, `--api-key x`, `API_KEY=x`, `Authorization: x`, and an address with a
//! password. Not refused, since they are how a credential is kept out of the arguments: a path after such a flag
//! (`--private-key /run/key.pem`), a flag that names a file or variable (`--token-file`, `--token-env`), the bare
//! name of a variable (`docker run -e GITHUB_TOKEN`), and a literal `${VAR}` that the server itself will fill in.

use url::Url;

use crate::secret::{is_credential_name, is_credential_value};

/// The words that name a credential when they end a flag's or a variable's name.
const LAST_WORDS: [&str; 11] = [
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "credential",
    "credentials",
    "key",
    "pat",
    "auth",
    "authorization",
];

/// Which argument carries a credential, by its position.
pub(super) fn find_credential(args: &[String]) -> Option<usize> {
    args.iter().enumerate().position(|(at, arg)| {
        let after_flag = at > 0 && is_credential_flag(&args[at - 1]) && is_worth_hiding(arg);
        after_flag || carries_credential(arg)
    })
}

/// Whether an argument carries a credential by itself.
pub(super) fn carries_credential(arg: &str) -> bool {
    let pieces = arg.split(|c: char| c.is_whitespace() || matches!(c, '=' | ',' | ':' | '"' | '\''));
    if is_credential_value(arg) || pieces.clone().any(is_credential_value) {
        return true;
    }
    let named = |separator: char| {
        arg.split_once(separator).is_some_and(|(name, value)| {
            let name = name.trim_start_matches('-');
            let is_name =
                !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
            is_name && names_credential(name) && is_worth_hiding(value)
        })
    };
    named('=') || named(':') || address_carries_credential(arg)
}

/// Whether an argument is a flag whose value is a credential.
pub(super) fn is_credential_flag(arg: &str) -> bool {
    arg.starts_with('-') && !arg.contains('=') && names_credential(arg.trim_start_matches('-'))
}

/// Whether a name says that its value is a credential, and not where one is kept or how many there are.
pub(super) fn names_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let last = name.rsplit(['-', '_', '.']).next().unwrap_or_default();
    is_credential_name(&name) && LAST_WORDS.iter().any(|word| last.ends_with(word))
}

/// Whether a value could be a credential: not another flag, a path, or a reference that somebody else fills in.
fn is_worth_hiding(value: &str) -> bool {
    let value = value.trim();
    let is_path = ["/", "./", "../", "~/", "\\"].iter().any(|start| value.starts_with(start))
        || value.get(1..3).is_some_and(|drive| drive == ":\\" || drive == ":/");
    let is_reference = value.starts_with("${") && value.ends_with('}');
    !(value.is_empty() || value.starts_with('-') || is_path || is_reference)
}

fn address_carries_credential(arg: &str) -> bool {
    if !arg.contains("://") {
        return false;
    }
    // `--url=https://…` carries an address as well as `https://…` does.
    let address =
        arg.split_once('=').filter(|(name, _)| !name.contains("://")).map_or(arg, |(_, value)| value);
    Url::parse(address).is_ok_and(|url| {
        let mut query = url.query_pairs();
        url.password().is_some() || query.any(|(name, value)| names_credential(&name) && !value.is_empty())
    })
}
