//! In: a launcher and its arguments, as policy let them pass. Out: the packages it would fetch. Only what is understood
//! whole is taken apart: an option that is not known here is an error, not a guess.

use std::ffi::OsStr;
use std::path::Path;

use super::{PackageSpec, Requirement, Source};
use crate::policy::{Package, Registry};
use crate::text::Escaped;

/// What a launcher's options mean.
struct Grammar {
    source: Source,
    /// Said in vain: they are how it is done anyway.
    idle: &'static [&'static str],
    /// The package manager is told, too.
    passed: &'static [&'static str],
    /// The same, with a value.
    passed_values: &'static [&'static str],
    /// The package that the command is in.
    from: &'static [&'static str],
    /// Further packages.
    with: &'static [&'static str],
    python: &'static [&'static str],
    forbids: &'static [&'static str],
}

const NPM: Grammar = Grammar {
    source: Source::Npm,
    idle: &["-y", "--yes", "-q", "--quiet", "--silent"],
    passed: &["--prefer-offline", "--offline"],
    passed_values: &[],
    from: &["-p", "--package"],
    with: &[],
    python: &[],
    forbids: &["--no-install"],
};

const UV: Grammar = Grammar {
    source: Source::Uv,
    idle: &["-q", "--quiet", "-n", "--no-cache", "--no-progress", "--isolated", "--refresh"],
    passed: &["--offline", "--no-config", "--native-tls", "--system-certs", "--managed-python"],
    passed_values: &["--prerelease"],
    from: &["--from"],
    with: &["--with"],
    python: &["-p", "--python"],
    forbids: &[],
};

const PIPX: Grammar = Grammar {
    source: Source::Pip,
    idle: &["-q", "--quiet", "--no-cache"],
    passed: &[],
    passed_values: &[],
    from: &["--spec"],
    with: &[],
    python: &["--python"],
    forbids: &[],
};

/// What the options said.
#[derive(Default)]
struct Said<'a> {
    from: Vec<&'a str>,
    with: Vec<&'a str>,
    python: Option<&'a str>,
    passed: Vec<String>,
}

pub(super) fn read<A: AsRef<OsStr>>(program: &Path, args: &[A]) -> Result<Option<PackageSpec>, String> {
    let name = program.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let texts: Option<Vec<&str>> = args.iter().map(|arg| arg.as_ref().to_str()).collect();
    let args = texts.ok_or("its arguments are not UTF-8")?;
    let (grammar, args) = match (name, &args[..]) {
        ("npx", rest) => (&NPM, rest),
        ("npm", ["exec" | "x", rest @ ..]) => (&NPM, rest),
        ("uvx", rest) | ("uv", ["tool", "run", rest @ ..]) => (&UV, rest),
        ("pipx", ["run", rest @ ..]) => (&PIPX, rest),
        ("bunx", _) | ("bun", ["x", ..]) => {
            return Err(format!("`{name}` cannot fetch in a step of its own; use `npx`"));
        }
        _ => return Ok(None),
    };
    let (said, rest) = options(grammar, args)?;
    // A script of one's own, or the interpreter without a package: nothing is fetched.
    let first = rest.first().copied().unwrap_or_default();
    if said.from.is_empty() && grammar.source != Source::Npm && (first.ends_with(".py") || is_python(first)) {
        return Ok(None);
    }
    let (packages, command, rest) = match (said.from.is_empty(), rest) {
        (_, []) => return Err("it names nothing to run".into()),
        (true, [package, rest @ ..]) => (vec![*package], None, rest),
        (false, [command, rest @ ..]) => (said.from.clone(), Some((*command).to_owned()), rest),
    };
    if let Some(command) = command.as_deref().filter(|command| !is_plain(command)) {
        let shown: String = command.chars().take(60).collect();
        return Err(format!("`{}` is not the plain name of a command", Escaped(&shown)));
    }
    // npm takes a `--` after the package for itself; npx hands it on.
    let rest = if name == "npm" { rest.strip_prefix(&["--"]).unwrap_or(rest) } else { rest };
    let packages = packages.into_iter().chain(said.with).map(|text| requirement(grammar.source, text));
    Ok(Some(PackageSpec {
        source: grammar.source,
        packages: packages.collect::<Result<_, _>>()?,
        command,
        python: said.python.map(str::to_owned),
        options: said.passed,
        args: rest.iter().map(|&arg| arg.to_owned()).collect(),
    }))
}

fn options<'a>(grammar: &Grammar, args: &'a [&'a str]) -> Result<(Said<'a>, &'a [&'a str]), String> {
    let mut said = Said::default();
    let mut rest = args;
    while let [arg, after @ ..] = rest {
        if *arg == "--" {
            return Ok((said, after));
        }
        if !arg.starts_with('-') || *arg == "-" {
            break;
        }
        let (name, attached) = match arg.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (*arg, None),
        };
        rest = after;
        if grammar.forbids.contains(&name) {
            return Err(format!("with `{name}` nothing may be fetched"));
        }
        if attached.is_none() && grammar.idle.contains(&name) {
            continue;
        }
        if attached.is_none() && grammar.passed.contains(&name) {
            said.passed.push(name.to_owned());
            continue;
        }
        let all = [grammar.from, grammar.with, grammar.python, grammar.passed_values];
        if !all.iter().any(|names| names.contains(&name)) {
            let shown: String = name.chars().take(60).collect();
            return Err(format!("what its option `{}` means for fetching is not known", Escaped(&shown)));
        }
        let value = match (attached, after) {
            (Some(value), _) => value,
            (None, [value, after @ ..]) => {
                rest = after;
                value
            }
            (None, []) => return Err(format!("its option `{name}` lacks a value")),
        };
        if grammar.from.contains(&name) {
            said.from.push(value);
        } else if grammar.with.contains(&name) {
            said.with.push(value);
        } else if grammar.python.contains(&name) {
            said.python = Some(value);
        } else {
            said.passed.push(format!("{name}={value}"));
        }
    }
    Ok((said, rest))
}

fn requirement(source: Source, text: &str) -> Result<Requirement, String> {
    let registry = if source == Source::Npm { Registry::Npm } else { Registry::PyPi };
    let package = Package::parse(registry, text)?;
    let exact =
        package.version.filter(|_| package.pinned).map(|version| version.trim_start_matches('=').trim());
    let told = match text.split_once('@') {
        // Of a launcher's two ways to write a version the package manager knows one.
        Some((name, "latest")) if source != Source::Npm => name.to_owned(),
        Some((name, version)) if source != Source::Npm => format!("{name}=={version}"),
        _ => text.to_owned(),
    };
    Ok(Requirement { name: package.name.to_owned(), version: exact.map(str::to_owned), text: told })
}

fn is_plain(command: &str) -> bool {
    command.starts_with(|c: char| c.is_ascii_alphanumeric())
        && command.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

fn is_python(name: &str) -> bool {
    let name = name.split('@').next().unwrap_or(name);
    name.strip_prefix("python").is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'))
}
