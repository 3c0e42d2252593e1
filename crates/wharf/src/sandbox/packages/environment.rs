//! In: the user's environment and home folder. Out: what a package manager gets of them: where the registries are and how
//! to be let in there, and nothing else. Its home, its temporary files and its cache are in the folder it fetches into.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::secret::Secret;

/// Beside the settings of the package managers: how to find programs, and how to get to the network.
const PASSED: [&str; 18] = [
    "PATH",
    "LANG",
    "LC_ALL",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NETRC",
    "PYENV_VERSION",
];
/// The settings of the package managers, in capitals.
const SETTINGS: [&str; 3] = ["NPM_CONFIG_", "UV_", "PIP_"];
/// Settings that say where things go, or what runs meanwhile. That is ours to say.
const OURS: [&str; 21] = [
    "NPM_CONFIG_CACHE",
    "NPM_CONFIG_CALL",
    "NPM_CONFIG_GLOBAL",
    "NPM_CONFIG_LOCATION",
    "NPM_CONFIG_NODE_OPTIONS",
    "NPM_CONFIG_PREFIX",
    "NPM_CONFIG_SCRIPT_SHELL",
    "NPM_CONFIG_WORKSPACE",
    "NPM_CONFIG_WORKSPACES",
    "UV_CACHE_DIR",
    "UV_PROJECT",
    "UV_PROJECT_ENVIRONMENT",
    "UV_WORKING_DIRECTORY",
    "UV_WORKING_DIR",
    "PIP_CACHE_DIR",
    "PIP_PREFIX",
    "PIP_REPORT",
    "PIP_ROOT",
    "PIP_TARGET",
    "PIP_USER",
    "PIP_REQUIRE_VIRTUALENV",
];

/// Files of the user that say where registries are, and the variable that leads there. Of each variable the first
/// that is there.
const FILES: [(&str, &str); 6] = [
    ("npm_config_userconfig", ".npmrc"),
    ("UV_CONFIG_FILE", ".config/uv/uv.toml"),
    ("PIP_CONFIG_FILE", ".config/pip/pip.conf"),
    ("PIP_CONFIG_FILE", ".pip/pip.conf"),
    ("PIP_CONFIG_FILE", "Library/Application Support/pip/pip.conf"),
    ("NETRC", ".netrc"),
];

/// The environment of a package manager that works in a folder.
pub(super) fn environment(
    user: &BTreeMap<String, String>,
    home: Option<&Path>,
    folder: &Path,
    pythons: PathBuf,
) -> Vec<(String, Secret)> {
    let wanted = |name: &str| {
        let capitals = name.to_ascii_uppercase();
        PASSED.contains(&name)
            || (SETTINGS.iter().any(|start| capitals.starts_with(start))
                && !OURS.contains(&capitals.as_str()))
    };
    let passed = user.iter().filter(|(name, _)| wanted(name));
    let mut all: BTreeMap<String, String> =
        passed.map(|(name, value)| (name.clone(), value.clone())).collect();
    let told =
        |all: &BTreeMap<String, String>, name: &str| all.keys().any(|key| key.eq_ignore_ascii_case(name));
    for (name, file) in FILES {
        let file = home.map(|home| home.join(file)).filter(|file| file.is_file());
        if let Some(file) = file.filter(|_| !told(&all, name)) {
            all.insert(name.to_owned(), file.display().to_string());
        }
    }
    // Interpreters that uv manages outlive the folder; those that the user has are used.
    if !told(&all, "UV_PYTHON_INSTALL_DIR") {
        let users = home.map(|home| home.join(".local/share/uv/python")).filter(|folder| folder.is_dir());
        all.insert("UV_PYTHON_INSTALL_DIR".into(), users.unwrap_or(pythons).display().to_string());
    }
    let own = [
        ("HOME", "home"),
        ("TMPDIR", "tmp"),
        ("npm_config_cache", "cache"),
        ("UV_CACHE_DIR", "cache"),
        ("PIP_CACHE_DIR", "cache"),
    ];
    all.extend(own.map(|(name, part)| (name.to_owned(), folder.join(part).display().to_string())));
    all.into_iter().map(|(name, value)| (name, Secret::new(value))).collect()
}
