//! In: the packages that are wanted and the folder they go into. Out: the command lines that fetch them, and what the
//! package manager's words mean when it fails.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{PackageOptions, PackageSpec, Source, environment};
use crate::error::{Error, StderrTail};
use crate::names::ServerName;
use crate::secret::Secret;
use crate::text::Escaped;

/// A command that is part of fetching.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) tool: Tool,
    pub(crate) args: Vec<OsString>,
}

/// A program that fetches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    /// One of this name, beside the launcher or on `PATH`.
    Named(String),
    /// One that an earlier step made.
    At(PathBuf),
}

/// Parts of the folder that are not kept.
const TEMPORARY: [&str; 3] = ["home", "tmp", "cache"];

impl PackageSpec {
    /// Makes the folder ready, and says what is to be run in it.
    pub(crate) fn steps(&self, folder: &Path, options: &PackageOptions) -> std::io::Result<Vec<Step>> {
        for part in TEMPORARY {
            std::fs::create_dir(folder.join(part))?;
        }
        match self.source {
            Source::Npm => {
                std::fs::write(folder.join("package.json"), "{ \"private\": true }\n")?;
                Ok(vec![self.npm(folder, options)])
            }
            Source::Uv => {
                let wanted: Vec<String> = self.packages.iter().map(|p| format!("{}\n", p.text)).collect();
                std::fs::write(folder.join("wanted.txt"), wanted.concat())?;
                Ok(self.uv(folder, options))
            }
            Source::Pip => Ok(self.pip(folder, options)),
        }
    }

    /// Takes away what was only needed to fetch.
    pub(crate) fn tidy_up(folder: &Path) -> std::io::Result<()> {
        TEMPORARY.into_iter().try_for_each(|part| std::fs::remove_dir_all(folder.join(part)))
    }

    /// The environment of every step.
    pub(crate) fn environment(
        user: &BTreeMap<String, String>,
        folder: &Path,
        options: &PackageOptions,
    ) -> Vec<(String, Secret)> {
        environment::environment(user, options.home.as_deref(), folder, options.cache.join("python"))
    }

    fn npm(&self, folder: &Path, options: &PackageOptions) -> Step {
        // What comes from elsewhere than a registry is prepared by its own scripts, whatever is said about scripts. An npm
        // that does not know the rules about it finds no git.
        let scripts: &[&str] = match options.runs_scripts(self) {
            true => &["--ignore-scripts=false"],
            false => &[
                "--ignore-scripts=true",
                "--allow-git=none",
                "--allow-remote=none",
                "--allow-file=none",
                "--allow-directory=none",
                "--git=/bin/false",
            ],
        };
        let mut args = words(&["install", "--prefix"]);
        args.push(folder.into());
        args.extend(words(scripts));
        args.extend(words(&[
            "--global=false",
            "--package-lock=true",
            "--save=true",
            "--dry-run=false",
            "--omit=dev",
            "--audit=false",
            "--fund=false",
            "--update-notifier=false",
            "--progress=false",
            "--loglevel=error",
            "--fetch-retries=1",
            "--fetch-retry-mintimeout=1000",
        ]));
        args.extend(self.options.iter().map(OsString::from));
        args.push("--".into());
        args.extend(self.packages.iter().map(|package| OsString::from(&package.text)));
        Step { tool: Tool::Named("npm".into()), args }
    }

    fn uv(&self, folder: &Path, options: &PackageOptions) -> Vec<Step> {
        let (prerelease, global): (Vec<_>, Vec<_>) = self
            .options
            .iter()
            .map(OsString::from)
            .partition(|o| o.to_string_lossy().starts_with("--prerelease"));
        let uv = |args: Vec<OsString>| Step {
            tool: Tool::Named("uv".into()),
            args: args
                .into_iter()
                .chain(words(&["--quiet", "--no-progress"]))
                .chain(global.clone())
                .collect(),
        };
        let venv = folder.join("venv");
        let build = if options.runs_scripts(self) { &[][..] } else { &["--no-build"] };
        let python = [OsString::from("--python"), venv.join("bin/python").into()];

        let mut make = words(&["venv", "--no-project"]);
        if let Some(python) = &self.python {
            make.extend(["--python".into(), python.into()]);
        }
        make.push(venv.into());
        let mut resolve = words(&["pip", "compile", "--generate-hashes", "--no-header", "--no-annotate"]);
        resolve.extend(words(build).into_iter().chain(python.clone()).chain(prerelease));
        resolve.extend([
            folder.join("wanted.txt").into(),
            "--output-file".into(),
            folder.join("resolved.txt").into(),
        ]);
        let mut install = words(&["pip", "install", "--require-hashes", "--compile-bytecode"]);
        install.extend(words(build).into_iter().chain(python));
        install.extend(["--requirements".into(), folder.join("resolved.txt").into()]);
        vec![uv(make), uv(resolve), uv(install)]
    }

    fn pip(&self, folder: &Path, options: &PackageOptions) -> Vec<Step> {
        let venv = folder.join("venv");
        let python = self.python.as_deref().unwrap_or("3");
        let python = if python.starts_with("python") { python.to_owned() } else { format!("python{python}") };
        let mut make = words(&["-m", "venv"]);
        make.push(venv.clone().into());
        let mut install = words(&[
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-input",
            "--disable-pip-version-check",
            "--no-warn-script-location",
            "--report",
        ]);
        install.push(folder.join("report.json").into());
        if !options.runs_scripts(self) {
            install.push("--only-binary=:all:".into());
        }
        install.push("--".into());
        install.extend(self.packages.iter().map(|package| OsString::from(&package.text)));
        let make = Step { tool: Tool::Named(python), args: make };
        vec![make, Step { tool: Tool::At(venv.join("bin/python")), args: install }]
    }

    /// What a package manager's failure means, by its last words: whose fault it is, and what to do.
    pub(crate) fn failure(&self, server: &ServerName, status: &str, stderr: StderrTail) -> Error {
        let words: Vec<&str> = stderr.lines.iter().map(crate::text::Foreign::raw).collect();
        let said = words.join("\n");
        let says = |any: &[&str]| any.iter().any(|word| said.contains(word));
        let package = self.main();
        let users = |what: &str, hint: &str| Error::Config {
            message: format!("server `{server}`: {what}{stderr}"),
            hint: Some(hint.to_owned()),
        };
        if says(&["No space left", "ENOSPC", "EROFS", "Permission denied", "EACCES"]) {
            return Error::Internal(format!("package `{package}` cannot be kept: {status}{stderr}"));
        }
        if says(&["E401", "E403", "ENEEDAUTH", "401 ", "403 "]) {
            let what = format!("the registry does not let us have package `{package}`");
            return users(&what, "see to the registry's settings: `.npmrc`, or those of uv or pip");
        }
        let name = Escaped(&self.main().name).to_string();
        let allow = format!("`scripts = [\"{name}\"]` in `[packages]` of your own wharf.toml");
        if says(&["EALLOW", "git dep", "code ENOGIT"]) {
            let what = format!("package `{package}` needs one that is in no registry");
            return users(&what, &format!("choose another version; or allow it: {allow}"));
        }
        // Before what is missing: without a wheel there is also no matching distribution.
        if says(&[
            "building source distributions is disabled",
            "no usable wheels",
            "no wheels",
            "from versions: none",
        ]) {
            let what = format!("package `{package}` would have to run code of its own while it is installed");
            return users(&what, &format!("choose a version that has wheels; or let it: {allow}"));
        }
        if says(&[
            "ETARGET",
            "E404",
            "No matching distribution",
            "no version of",
            "not found in the package registry",
        ]) {
            let what = format!("there is no package `{package}`, or it needs one that is not there");
            return users(&what, "look at its name and version");
        }
        Error::Connection {
            server: server.clone(),
            transport: "stdio",
            reason: format!("package `{package}` could not be fetched: {status}"),
            stderr,
            retryable: true,
        }
    }
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}
