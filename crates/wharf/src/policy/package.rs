//! In: what a person wrote where a launcher expects a package. Out: the package's name and whether its version is
//! exact, or the reason why it is no package of a registry. What may be fetched is for [`PackageRule`] to say.

use super::PackageRule;

/// Where a package comes from, which decides how its version is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registry {
    Npm,
    PyPi,
    Image,
}

/// A package of a registry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Package<'a> {
    pub(crate) name: &'a str,
    /// What stands behind the name, with its comparison.
    pub(crate) version: Option<&'a str>,
    pub(crate) pinned: bool,
    spec: &'a str,
    registry: Registry,
}

const ARCHIVES: [&str; 6] = [".tgz", ".tar", ".tar.gz", ".whl", ".zip", ".git"];

// === impl Package ===

impl<'a> Package<'a> {
    /// Reads a package as it is written for a registry. A path, an address, a repository or an archive is none.
    pub(crate) fn parse(registry: Registry, spec: &'a str) -> Result<Self, String> {
        let (name, version) = match registry {
            Registry::Npm => split_npm(spec),
            Registry::PyPi => split_pypi(spec),
            Registry::Image => split_image(spec),
        }
        .ok_or_else(|| no_package(spec))?;
        let pinned = version.is_some_and(|version| is_exact(registry, version));
        Ok(Self { name, version, pinned, spec, registry })
    }

    /// Whether the rule lets it be fetched, and what a person should know if so.
    pub(super) fn judge(&self, rule: &PackageRule, launcher: &str) -> Result<Option<String>, String> {
        let name = self.name;
        let example = match self.registry {
            Registry::Npm => format!("{name}@1.2.3"),
            Registry::PyPi => format!("{name}==1.2.3"),
            Registry::Image => format!("{name}:1.2.3"),
        };
        match rule {
            PackageRule::Pinned if !self.pinned => {
                return Err(format!(
                    "package `{name}` has no exact version, and the policy wants one, like `{example}`"
                ));
            }
            PackageRule::Listed(list) if !list.iter().any(|entry| self.is_listed_as(entry)) => {
                return Err(format!("package `{name}` is not among the packages that the policy lists"));
            }
            _ => {}
        }
        let warning =
            || format!("`{launcher}` will run whatever version of `{name}` is newest; pin it: `{example}`");
        Ok((!self.pinned).then(warning))
    }

    fn is_listed_as(&self, entry: &str) -> bool {
        let same_name = match self.registry {
            Registry::PyPi => normal(entry) == normal(self.name),
            Registry::Npm | Registry::Image => entry == self.name,
        };
        same_name || entry == self.spec
    }
}

/// PyPI takes `My_Pkg` and `my-pkg` for the same.
fn normal(name: &str) -> String {
    name.to_ascii_lowercase().replace(['_', '.'], "-")
}

fn split_npm(spec: &str) -> Option<(&str, Option<&str>)> {
    let at = spec.char_indices().skip(1).find(|(_, c)| *c == '@').map(|(at, _)| at);
    let (name, version) = match at {
        Some(at) => (&spec[..at], Some(&spec[at + 1..])),
        None => (spec, None),
    };
    let plain = match name.strip_prefix('@') {
        Some(scoped) => scoped.split_once('/').is_some_and(|(scope, name)| is_word(scope) && is_word(name)),
        None => is_word(name),
    };
    let range =
        |version: &str| version.chars().all(|c| c.is_ascii_alphanumeric() || "._+-^~<>=*| ".contains(c));
    // npm takes these for the value of the switch before them, and the next argument for the package.
    let is_value = ["true", "false", "null"].contains(&name);
    (plain && !is_value && !is_archive(name) && version.is_none_or(range)).then_some((name, version))
}

fn split_pypi(spec: &str) -> Option<(&str, Option<&str>)> {
    let end = spec.find(|c: char| !(c.is_ascii_alphanumeric() || "._-".contains(c))).unwrap_or(spec.len());
    let (name, mut rest) = spec.split_at(end);
    if !is_word(name) || is_archive(spec) {
        return None;
    }
    if let Some(extras) = rest.strip_prefix('[') {
        let (extras, after) = extras.split_once(']')?;
        if !extras.split(',').all(|extra| is_word(extra.trim())) {
            return None;
        }
        rest = after;
    }
    let rest = rest.trim();
    if rest.is_empty() {
        return Some((name, None));
    }
    // `name@1.2` is how `uvx` writes a version; `name @ https://…` does not get past the characters.
    let version =
        rest.strip_prefix('@').or_else(|| rest.starts_with(['=', '<', '>', '!', '~']).then_some(rest))?;
    let plain = |part: &str| {
        let part = part.trim().trim_start_matches(['=', '<', '>', '!', '~']).trim();
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || ".*+!-".contains(c))
    };
    // Every part after a comma must be a comparison, or `--with a,b` would bring a second package along.
    let compares = |part: &str| part.trim().starts_with(['=', '<', '>', '!', '~']);
    let mut parts = version.split(',');
    (parts.next().is_some_and(plain) && parts.all(|part| compares(part) && plain(part)))
        .then_some((name, Some(version)))
}

fn split_image(spec: &str) -> Option<(&str, Option<&str>)> {
    let image = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
    if !spec.starts_with(|c: char| c.is_ascii_alphanumeric())
        || !spec.chars().all(image)
        || spec.contains("://")
    {
        return None;
    }
    if let Some((name, digest)) = spec.split_once('@') {
        return Some((name, Some(digest)));
    }
    // A colon before the last slash belongs to the registry's port.
    match spec.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => Some((name, Some(tag))),
        _ => Some((spec, None)),
    }
}

fn is_exact(registry: Registry, version: &str) -> bool {
    let starts_with_digit = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    match registry {
        Registry::Npm => {
            let core = version.split(['-', '+']).next().unwrap_or_default();
            let numbers: Vec<&str> = core.split('.').collect();
            let digits = |n: &&str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
            numbers.len() == 3 && numbers.iter().all(digits) && !version.contains([' ', '|', '*'])
        }
        Registry::PyPi => {
            let exact = version.trim_start_matches('=').trim();
            let comparison = version.starts_with(['<', '>', '!', '~']) || version.starts_with("= ");
            !comparison && starts_with_digit(exact) && !exact.contains([',', '*'])
        }
        Registry::Image => {
            version.starts_with("sha256:") || (starts_with_digit(version) && version.contains('.'))
        }
    }
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

fn is_archive(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    ARCHIVES.iter().any(|ending| text.ends_with(ending))
}

/// Says what it is instead, without repeating an address that may carry a password.
fn no_package(spec: &str) -> String {
    let kind = if spec.is_empty() {
        "an empty text"
    } else if spec.contains("://") || spec.contains("git+") || spec.starts_with("git@") {
        "an address"
    } else if spec.contains(':') {
        "a reference to somewhere else"
    } else if is_archive(spec) {
        "an archive"
    } else if spec.contains('/') || spec.contains('\\') || spec.starts_with('.') {
        "a path or a repository"
    } else {
        "no package name"
    };
    format!("where a package of a registry belongs stands {kind}")
}
