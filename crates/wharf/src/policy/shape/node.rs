//! `node script`, `npx package`, `npm exec|run`, `bun script|run|x` and `deno run script|npm:package`.

use super::super::package::Registry;
use super::walk::{Options, Takes, Walk, has_scheme, shown};
use super::{Judged, file_name};

pub(super) const NODE: Options = &[
    (&["--enable-source-maps"], Takes::Nothing),
    (&["--no-warnings"], Takes::Attached),
    (&["--no-deprecation", "--trace-warnings", "--trace-deprecation", "--trace-uncaught"], Takes::Nothing),
    (&["--unhandled-rejections", "--dns-result-order"], Takes::Checked(is_word)),
    (&["--max-old-space-size", "--stack-trace-limit", "--max-http-header-size"], Takes::Checked(is_number)),
    (
        &["--experimental-strip-types", "--experimental-transform-types", "--no-experimental-strip-types"],
        Takes::Nothing,
    ),
    (&["--experimental-sqlite", "--experimental-fetch", "--experimental-vm-modules"], Takes::Nothing),
    (&["--experimental-json-modules", "--experimental-wasm-modules", "--use-system-ca"], Takes::Nothing),
];

pub(super) const TYPESCRIPT: Options = &[
    (&["--esm", "--transpile-only", "-T", "--no-cache"], Takes::Nothing),
    (&["--enable-source-maps", "--no-warnings"], Takes::Nothing),
];

/// Only switches that npx knows as such: it takes the argument after an option it does not know for that option's
/// value, and then reads the server's arguments as its own.
const NPX: Options = &[
    (
        &["-y", "--yes", "-q", "--quiet", "--silent", "--no-install", "--prefer-offline", "--offline"],
        Takes::Nothing,
    ),
    (&["-p", "--package"], Takes::Package(Registry::Npm)),
];

/// For npm itself `-p` is something else.
const NPM_EXEC: Options = &[
    (&["-y", "--yes", "-q", "--quiet", "--silent", "--prefer-offline", "--offline"], Takes::Nothing),
    (&["--package"], Takes::Package(Registry::Npm)),
];

const BUNX: Options = &[
    (&["-y", "--yes", "--bun", "--silent", "--no-install"], Takes::Nothing),
    (&["-p", "--package"], Takes::Package(Registry::Npm)),
];

const NPM: Options =
    &[(&["-s", "--silent", "-q", "--quiet"], Takes::Nothing), (&["--prefix", "-C"], Takes::Folder)];

const BUN: Options =
    &[(&["--silent", "-b", "--bun", "--smol", "--no-install"], Takes::Nothing), (&["--cwd"], Takes::Folder)];

const DENO: Options = &[
    (
        &["-A", "--allow-all", "-P", "--no-prompt", "-q", "--quiet", "--no-lock", "--no-config"],
        Takes::Nothing,
    ),
    (&["--no-remote", "--cached-only", "--no-npm"], Takes::Nothing),
    (
        &[
            "-R",
            "-W",
            "-N",
            "-E",
            "-S",
            "--allow-*",
            "--deny-*",
            "--no-check",
            "--node-modules-dir",
            "--unstable-*",
        ],
        Takes::Attached,
    ),
];

const SCRIPT_ENDINGS: [&str; 8] = [".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx"];

pub(super) fn script(walk: &mut Walk<'_>, options: Options) -> Judged {
    walk.options(options, &[])?;
    match walk.peek() {
        Some(word @ ("inspect" | "debug" | "watch" | "test" | "repl")) => {
            Err(format!("`{word}` is a mode of the program, not a script"))
        }
        _ => walk.script(),
    }
}

/// `npx [options] package …`, or with `--package` the name of one of its commands.
pub(super) fn npx(walk: &mut Walk<'_>) -> Judged {
    package(walk, NPX)
}

pub(super) fn bunx(walk: &mut Walk<'_>) -> Judged {
    package(walk, BUNX)
}

fn package(walk: &mut Walk<'_>, options: Options) -> Judged {
    let met = walk.options(options, &[])?;
    let name = package_or_command(walk, met.value("-p").is_some())?;
    walk.program(&name)
}

pub(super) fn npm(walk: &mut Walk<'_>) -> Judged {
    let before = walk.options(NPM, &[])?;
    match walk.take() {
        Some("exec" | "x") => {
            let met = walk.options(NPM_EXEC, &[])?;
            let name = package_or_command(walk, met.value("--package").is_some())?;
            npm_rest(walk, met.ended_by_dashes(), &name)
        }
        Some("run" | "run-script") => {
            let met = walk.options(NPM, &[])?;
            if before.value("--prefix").or(met.value("--prefix")).is_none() {
                walk.needs_folder("`npm run`")?;
            }
            let name = walk.take().ok_or("`npm run` lacks the name of its script")?;
            if name.starts_with('-') {
                return Err("where the name of its script belongs stands an option".into());
            }
            walk.no_options_before_dashes()?;
            walk.take_rest();
            Ok(())
        }
        Some("start") => {
            if before.value("--prefix").is_none() {
                walk.needs_folder("`npm start`")?;
            }
            walk.no_options_before_dashes()?;
            walk.take_rest();
            Ok(())
        }
        _ => Err("only `npm exec`, `npm run` and `npm start` start a server".into()),
    }
}

pub(super) fn bun(walk: &mut Walk<'_>) -> Judged {
    let met = walk.options(BUN, &[])?;
    walk.enter(met.value("--cwd"));
    let in_folder = met.value("--cwd").is_some();
    match walk.peek() {
        Some("x") => {
            walk.take();
            bunx(walk)
        }
        Some("run") => {
            walk.take();
            let met = walk.options(BUN, &[])?;
            walk.enter(met.value("--cwd"));
            bun_target(walk, in_folder || met.value("--cwd").is_some())
        }
        Some(script) if is_script(script) => walk.script(),
        _ => Err("only `bun script.ts`, `bun run` and `bun x` start a server".into()),
    }
}

pub(super) fn deno(walk: &mut Walk<'_>) -> Judged {
    walk.options(DENO, &[])?;
    if walk.peek() == Some("run") {
        walk.take();
        walk.options(DENO, &[])?;
    }
    let target = walk.peek().unwrap_or_default();
    if let Some((registry @ ("npm" | "jsr"), spec)) = target.split_once(':') {
        let name = walk.check_package(Registry::Npm, spec.trim_start_matches('/'))?;
        if registry == "jsr" && !name.starts_with('@') {
            return Err("a package of jsr has a scope, like `@scope/name`".into());
        }
        walk.take();
        walk.take_rest();
        return Ok(());
    }
    if !has_scheme(target) && !is_script(target) {
        return Err("only `deno run script.ts` and `deno run npm:package` start a server".into());
    }
    walk.script()
}

/// The name of what `npx` will start: the package, or with `--package` a command of it.
fn package_or_command(walk: &mut Walk<'_>, is_command: bool) -> Result<String, String> {
    if !is_command {
        // A package with a scope keeps it here: `@team/git` is not the `git` that runs its arguments.
        return Ok(walk.package(Registry::Npm)?.to_ascii_lowercase());
    }
    let command = walk.take().ok_or("it names nothing to run")?;
    if command.starts_with('-') || !command.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) {
        return Err(format!("`{}` is not the plain name of a command", shown(command)));
    }
    Ok(file_name(command))
}

/// npm reads its own options everywhere, so that `npm exec package -c text` is `npm exec -c text package`.
fn npm_rest(walk: &mut Walk<'_>, behind_dashes: bool, name: &str) -> Judged {
    if !behind_dashes {
        walk.no_options_before_dashes()?;
    }
    walk.program(name)
}

fn bun_target(walk: &mut Walk<'_>, in_folder: bool) -> Judged {
    match walk.peek() {
        Some(script) if is_script(script) => walk.script(),
        Some(name) if !name.starts_with('-') && is_word(name) => {
            if !in_folder {
                walk.needs_folder("`bun run` with a script's name")?;
            }
            walk.take_rest();
            Ok(())
        }
        _ => Err("`bun run` lacks its script".into()),
    }
}

fn is_script(text: &str) -> bool {
    text.contains(['/', '\\']) || SCRIPT_ENDINGS.iter().any(|ending| text.ends_with(ending))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "._:-".contains(c))
}
