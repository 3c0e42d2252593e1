//! Where people keep what nobody else may have.
//!
//! In: a path that a server says it lacks. Out: whether secrets are usually kept there. Such a path is never proposed, by
//! nobody's word: a person who wants to give it writes the line without our help. What is really let in is not decided here.

use std::path::Path;

/// Files and folders, wherever they lie.
const PLACES: [&str; 34] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".password-store",
    ".mozilla",
    ".thunderbird",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".env",
    ".git-credentials",
    ".vault-token",
    ".terraform.d",
    ".bash_history",
    ".zsh_history",
    ".config/gcloud",
    ".config/gh",
    ".config/op",
    ".config/google-chrome",
    ".config/chromium",
    ".config/pip",
    ".config/uv",
    ".local/share/keyrings",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    "etc/shadow",
    "etc/gshadow",
    "etc/ssh",
    "etc/ssl/private",
];
/// What a key file is called.
const NAMES: [&str; 6] = ["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "credentials", "credentials.json"];
const ENDINGS: [&str; 6] = ["pem", "key", "p12", "pfx", "kdbx", "keystore"];

/// Whether a path is one of these, or within one.
pub(super) fn are_in(path: &Path) -> bool {
    let place = path.ancestors().any(|above| PLACES.iter().any(|place| above.ends_with(place)));
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    // `.env.local` and its relatives are the same as `.env`.
    place || NAMES.contains(&name) || ENDINGS.contains(&ending) || name.starts_with(".env.")
}

/// Whether a folder has one of these in it: what would be given with the folder.
pub(super) fn are_below(folder: &Path) -> bool {
    PLACES.iter().any(|place| folder.join(place).symlink_metadata().is_ok())
}
