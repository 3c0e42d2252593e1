//! In: our own environment and what a server's config names. Out: the child's whole environment, which starts empty.
//! Variables that can change what a program loads or runs are refused by name wherever they come from. The values
//! are not judged, and the environment is never read here: it is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::config::Stdio;
use crate::error::{Error, Result};
use crate::names::ServerName;
use crate::secret::{Secret, is_credential_name, is_credential_value};
use crate::text::Escaped;

/// Names that every child inherits.
const SAFE_NAMES: [&str; 15] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TMP",
    "TEMP",
    "LANG",
    "LANGUAGE",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "NODE_ENV",
];

/// Without these no program starts on Windows.
const SAFE_NAMES_ON_WINDOWS: [&str; 11] = [
    "SYSTEMROOT",
    "SYSTEMDRIVE",
    "WINDIR",
    "COMSPEC",
    "PATHEXT",
    "USERPROFILE",
    "APPDATA",
    "LOCALAPPDATA",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "USERNAME",
];

const SAFE_PATTERNS: [&str; 3] = ["LC_*", "MCP_*", "FASTMCP_*"];

/// Variables that make programs load code, run commands, or trust and talk to somebody else.
#[rustfmt::skip]
const DANGEROUS: [&str; 83] = [
    "LD_*", "DYLD_*", "GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH", "NLSPATH", "NODE_OPTIONS", "NODE_PATH",
    "NODE_REPL_EXTERNAL_MODULE", "NODE_TLS_REJECT_UNAUTHORIZED", "NODE_EXTRA_CA_CERTS", "NPM_CONFIG_*",
    "BUN_CONFIG_*", "BUN_INSTALL*", "BUN_OPTIONS", "DENO_*", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP",
    "PYTHONUSERBASE", "PYTHONWARNINGS", "PYTHONBREAKPOINT", "PYTHONINSPECT", "PYTHONEXECUTABLE",
    "PYTHONPLATLIBDIR", "PYTHONPYCACHEPREFIX", "PYTHONCASEOK", "UV_*", "PIP_*", "PIPX_*", "PDM_*",
    "POETRY_*", "RYE_*", "BASH_ENV", "BASH_FUNC_*", "ENV", "SHELLOPTS", "BASHOPTS", "PROMPT_COMMAND",
    "PS4", "IFS", "ZDOTDIR", "GIT_SSH*", "GIT_CONFIG*", "GIT_EXTERNAL_DIFF", "GIT_PROXY_COMMAND",
    "GIT_ASKPASS", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_PAGER", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR",
    "GIT_DIR", "GIT_SSL_*", "GIT_ALLOW_PROTOCOL", "SSH_ASKPASS*", "OPENSSL_*", "SSL_CERT_*",
    "REQUESTS_CA_BUNDLE", "CURL_HOME", "CURL_CA_BUNDLE", "PERL5*", "PERLLIB", "RUBYOPT", "RUBYLIB",
    "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "BROWSER", "EDITOR", "VISUAL", "PAGER",
    "LESSOPEN", "LESSCLOSE", "DOCKER_HOST", "DOCKER_CONFIG", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY",
    "NO_PROXY", "FTP_PROXY", "WS_PROXY", "WSS_PROXY",
];

/// Variables that say where things are. Wharf sets them; a config may not, but may pass on our own.
const PLACES: [&str; 11] = [
    "PATH",
    "PATHEXT",
    "HOME",
    "USERPROFILE",
    "SHELL",
    "COMSPEC",
    "TMPDIR",
    "TMP",
    "TEMP",
    "SYSTEMROOT",
    "XDG_*",
];

/// What of an environment may be passed on.
#[derive(Clone, Debug)]
pub struct EnvRules {
    names: BTreeSet<String>,
    patterns: Vec<String>,
}

/// An environment after the rules.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Filtered {
    /// What was kept.
    pub kept: BTreeMap<String, String>,
    /// The names of what was dropped, in order.
    pub dropped: Vec<String>,
}

/// Keeps of an environment what the rules name.
///
/// ```
/// use std::collections::BTreeMap;
/// use wharf::policy::{EnvRules, filter_environment};
///
/// let env = BTreeMap::from([("HOME".into(), "/home/ada".into()), ("AWS_SECRET_ACCESS_KEY".into(), "x".into())]);
/// let filtered = filter_environment(&env, &EnvRules::default());
/// assert_eq!(filtered.kept.keys().collect::<Vec<_>>(), ["HOME"]);
/// assert_eq!(filtered.dropped, ["AWS_SECRET_ACCESS_KEY"]);
/// ```
pub fn filter_environment(env: &BTreeMap<String, String>, rules: &EnvRules) -> Filtered {
    let mut filtered = Filtered::default();
    for (name, value) in env {
        if rules.keep(name, value) {
            filtered.kept.insert(name.clone(), value.clone());
        } else {
            filtered.dropped.push(name.clone());
        }
    }
    filtered
}

/// Names and values, in order.
type Variables = Vec<(String, Secret)>;

/// The environment of a child, and what a person should know about it.
pub(super) fn child_environment(
    server: &ServerName,
    stdio: &Stdio,
    host_env: &BTreeMap<String, String>,
    allowed: &BTreeSet<String>,
) -> Result<(Variables, Vec<String>)> {
    let mut warnings = Vec::new();
    let mut env = filter_environment(host_env, &EnvRules::default()).kept;
    if let Some(path) = env.get_mut("PATH") {
        *path = absolute_only(path);
    }
    for name in &stdio.env_passthrough {
        check_name(server, name, "env_passthrough")?;
        // Where things are is inherited anyway, so naming it again changes nothing.
        if !matches_any(&PLACES, name) {
            check_danger(server, name, "env_passthrough", allowed)?;
        }
        match host_env.get(name).filter(|value| !value.contains('\0')) {
            Some(value) => {
                env.entry(name.clone()).or_insert_with(|| value.clone());
            }
            None => warnings.push(format!(
                "`env_passthrough` of server `{server}` names `{name}`, which is not set here"
            )),
        }
    }
    let mut env: BTreeMap<String, Secret> =
        env.into_iter().map(|(name, value)| (name, Secret::new(value))).collect();
    for (name, value) in &stdio.env {
        check_name(server, name, "env")?;
        check_danger(server, name, "env", allowed)?;
        if value.expose().contains('\0') {
            return Err(Error::config(format!(
                "server `{server}`: the value of `{name}` in `env` has a NUL character"
            )));
        }
        env.insert(name.clone(), value.clone());
    }
    Ok((env.into_iter().collect(), warnings))
}

// === impl EnvRules ===

impl EnvRules {
    /// Keeps these names, and what fits one of these patterns (`*` stands for anything). A pattern never lets
    /// through what is shaped like a credential or can change what a program runs; a name does.
    pub fn new<N: Into<String>, P: Into<String>>(
        names: impl IntoIterator<Item = N>,
        patterns: impl IntoIterator<Item = P>,
    ) -> Self {
        Self {
            names: names.into_iter().map(Into::into).collect(),
            patterns: patterns.into_iter().map(Into::into).collect(),
        }
    }

    fn keep(&self, name: &str, value: &str) -> bool {
        // No environment of a process has such a value; one that is handed to the library may.
        if !is_plain_name(name) || value.contains('\0') {
            return false;
        }
        let named =
            self.names.contains(name) || (cfg!(windows) && self.names.contains(&name.to_ascii_uppercase()));
        let fits = || self.patterns.iter().any(|pattern| glob(pattern, name));
        let risky =
            || is_credential_name(name) || is_credential_value(value) || matches_any(&DANGEROUS, name);
        named || (fits() && !risky())
    }
}

impl Default for EnvRules {
    fn default() -> Self {
        let windows = if cfg!(windows) { SAFE_NAMES_ON_WINDOWS.as_slice() } else { &[] };
        Self::new(SAFE_NAMES.iter().chain(windows).copied(), SAFE_PATTERNS)
    }
}

// === impl Filtered ===

impl std::fmt::Debug for Filtered {
    /// Names only: the values may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filtered")
            .field("kept", &self.kept.keys().collect::<Vec<_>>())
            .field("dropped", &self.dropped)
            .finish()
    }
}

/// The loader splits `LD_PRELOAD=/x.so:` at its own `=`, so a name must be a plain one before any rule reads it.
fn is_plain_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn check_name(server: &ServerName, name: &str, list: &str) -> Result<()> {
    if is_plain_name(name) {
        return Ok(());
    }
    Err(Error::Denied {
        what: format!("server `{server}`: variable `{}` in `{list}`", Escaped(name)),
        rule: "the rule that a variable's name has only letters, digits and `_`".into(),
        hint: format!("correct the name in `{list}` of server `{server}`"),
    })
}

fn check_danger(server: &ServerName, name: &str, list: &str, allowed: &BTreeSet<String>) -> Result<()> {
    let rule = if matches_any(&PLACES, name) {
        "the rule that Wharf itself says where things are"
    } else if matches_any(&DANGEROUS, name) {
        "the rule against variables that change what a program loads, runs or trusts"
    } else {
        return Ok(());
    };
    if allowed.contains(name) {
        return Ok(());
    }
    Err(Error::Denied {
        what: format!("server `{server}`: variable `{name}` in `{list}`"),
        rule: rule.into(),
        hint: format!("if you mean it, write in your `wharf.toml`:\n  [policy]\n  env_allow = [\"{name}\"]"),
    })
}

/// Some of these are read in either case (`http_proxy`, `npm_config_call`), so all are matched in either.
fn matches_any(patterns: &[&str], name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    patterns.iter().any(|pattern| glob(pattern, &name))
}

/// Whether a text fits a pattern in which `*` stands for anything.
fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// An empty or relative element would let the child find programs in whatever folder it stands in.
fn absolute_only(path: &str) -> String {
    let separator = if cfg!(windows) { ';' } else { ':' };
    let kept: Vec<&str> = path.split(separator).filter(|part| Path::new(part).is_absolute()).collect();
    kept.join(&separator.to_string())
}
