//! `uv run`, `uvx`, `pipx run`, and `pdm`, `poetry` and `rye run`: launchers of Python commands, which are judged in turn.

use super::super::package::Registry;
use super::walk::{Options, Takes, Walk, has_scheme};
use super::{Judged, file_name, inner, python};

const UV: Options = &[
    (&["--directory"], Takes::Folder),
    (&["--project"], Takes::Folder),
    (
        &[
            "-q",
            "--quiet",
            "--offline",
            "-n",
            "--no-cache",
            "--no-config",
            "--no-progress",
        ],
        Takes::Nothing,
    ),
    (&["--native-tls", "--system-certs"], Takes::Nothing),
];

const UV_RUN: Options = &[
    (&["--directory"], Takes::Folder),
    (&["--project"], Takes::Folder),
    (
        &[
            "-q",
            "--quiet",
            "--offline",
            "-n",
            "--no-cache",
            "--no-config",
            "--no-progress",
        ],
        Takes::Nothing,
    ),
    (&["--native-tls", "--system-certs"], Takes::Nothing),
    (&["-p", "--python"], Takes::Checked(is_version)),
    (&["--with"], Takes::Package(Registry::PyPi)),
    (&["-s", "--script"], Takes::Nothing),
    (
        &[
            "--frozen",
            "--locked",
            "--no-sync",
            "--no-project",
            "--isolated",
            "--active",
            "--exact",
        ],
        Takes::Nothing,
    ),
    (
        &[
            "--no-dev",
            "--all-extras",
            "--no-editable",
            "--managed-python",
            "--no-managed-python",
        ],
        Takes::Nothing,
    ),
    (
        &["--extra", "--group", "--package", "--prerelease", "--no-group"],
        Takes::Checked(is_word),
    ),
];

const UVX: Options = &[
    (&["--from"], Takes::Package(Registry::PyPi)),
    (&["--with"], Takes::Package(Registry::PyPi)),
    (&["-p", "--python"], Takes::Checked(is_version)),
    (
        &[
            "-q",
            "--quiet",
            "--offline",
            "-n",
            "--no-cache",
            "--no-config",
            "--no-progress",
            "--isolated",
        ],
        Takes::Nothing,
    ),
    (
        &["--native-tls", "--system-certs", "--refresh", "--managed-python"],
        Takes::Nothing,
    ),
    (&["--prerelease"], Takes::Checked(is_word)),
];

const PIPX: Options = &[
    (&["--spec"], Takes::Package(Registry::PyPi)),
    (&["--python"], Takes::Checked(is_version)),
    (&["-q", "--quiet", "--no-cache"], Takes::Nothing),
];

const PDM: Options = &[
    (&["-p", "--project"], Takes::Folder),
    (&["-q", "--quiet", "-s"], Takes::Nothing),
];

const POETRY: Options = &[
    (&["-C", "--directory"], Takes::Folder),
    (&["-P", "--project"], Takes::Folder),
    (&["-q", "--quiet", "-n", "--no-interaction"], Takes::Nothing),
];

const RYE: Options = &[(&["-q", "--quiet"], Takes::Nothing)];

/// `uv [options] run [options] script.py | -m module | command` and `uv tool run`.
pub(super) fn uv(walk: &mut Walk<'_>) -> Judged {
    let met = walk.options(UV, &[])?;
    walk.enter(met.value("--directory"));
    match walk.take() {
        Some("run") => {}
        Some("tool") if walk.take() == Some("run") => return tool(walk),
        _ => return Err("only `uv run` and `uv tool run` start a server".into()),
    }
    let met = walk.options(UV_RUN, &["-m", "--module"])?;
    walk.enter(met.value("--directory"));
    match walk.peek() {
        Some("-m" | "--module") => python::module(walk),
        _ if met.value("-s").is_some() => walk.script(),
        Some(target) if has_scheme(target) || target == "-" => walk.script(),
        _ => inner(walk),
    }
}

/// `uvx [options] package …`, or with `--from` the name of one of its commands.
pub(super) fn tool(walk: &mut Walk<'_>) -> Judged {
    let met = walk.options(UVX, &[])?;
    if met.value("--from").is_some() {
        return inner(walk);
    }
    // `uvx python` is the interpreter and fetches no package.
    if walk
        .peek()
        .is_some_and(|name| super::is_python(&file_name(name.split('@').next().unwrap_or(name))))
    {
        walk.take();
        return python::judge(walk);
    }
    let name = file_name(walk.package(Registry::PyPi)?);
    walk.program(&name)
}

/// `pipx run [options] package …` or a script of one's own.
pub(super) fn pipx(walk: &mut Walk<'_>) -> Judged {
    if walk.take() != Some("run") {
        return Err("only `pipx run` starts a server".into());
    }
    let met = walk.options(PIPX, &[])?;
    match walk.peek() {
        Some(target) if target.ends_with(".py") || has_scheme(target) => walk.script(),
        _ if met.value("--spec").is_some() => inner(walk),
        _ => {
            let name = file_name(walk.package(Registry::PyPi)?);
            walk.program(&name)
        }
    }
}

/// `pdm run`, `poetry run` and `rye run`: a command in the project's environment.
pub(super) fn project(walk: &mut Walk<'_>, name: &str) -> Judged {
    let table = match name {
        "pdm" => PDM,
        "poetry" => POETRY,
        _ => RYE,
    };
    let before = walk.options(table, &[])?;
    walk.enter(before.value("-C"));
    if walk.take() != Some("run") {
        return Err(format!("only `{name} run` starts a server"));
    }
    let after = walk.options(table, &[])?;
    walk.enter(after.value("-C"));
    let folder = ["-C", "-P", "-p"]
        .into_iter()
        .find_map(|option| before.value(option).or(after.value(option)));
    if folder.is_none() {
        walk.needs_folder(&format!("`{name} run`"))?;
    }
    inner(walk)
}

/// A version, or the name of an implementation: never a path to an interpreter.
fn is_version(text: &str) -> bool {
    let name = text
        .trim_start_matches("python")
        .trim_start_matches("cpython")
        .trim_start_matches(['@', '-']);
    name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_digit() || c == '.' || c == 't')
}

fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}
