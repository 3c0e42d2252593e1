//! Walks along a command line with a table of allowed options in hand, copying what it accepts.

use std::path::{Component, Path, PathBuf};

use super::super::package::{Package, Registry};
use super::{Accepted, Judged, Place};
use crate::text::Escaped;

/// A launcher inside a launcher inside a launcher has no honest reason.
const MAX_DEPTH: usize = 2;

/// What an option takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Takes {
    Nothing,
    /// Any text that does not look like an option.
    Word,
    /// A text that fits.
    Checked(fn(&str) -> bool),
    /// A package that may be fetched.
    Package(Registry),
    /// A folder: made absolute.
    Folder,
    /// Nothing, or a value after `=`.
    Attached,
}

/// The options a program may be given. Names of one meaning stand together; a name that ends in `*` stands for
/// all that begin so.
pub(super) type Options = &'static [(&'static [&'static str], Takes)];

/// The options that were met, with their values.
#[derive(Debug, Default)]
pub(super) struct Met {
    options: Vec<(&'static str, String)>,
    ended_by_dashes: bool,
}

/// The walk.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    pub(super) place: Place<'a>,
    command: &'a str,
    rest: &'a [String],
    base: Option<PathBuf>,
    out: Vec<String>,
    warnings: Vec<String>,
    packages: Vec<String>,
    depth: usize,
}

/// A text for an error: on one line, short, and without the value of an option.
pub(super) fn shown(text: &str) -> String {
    let short: String = text.chars().take(60).collect();
    Escaped(&short).to_string()
}

// === impl Met ===

impl Met {
    /// The value of an option, by the first of its names.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.options.iter().rev().find(|(met, _)| *met == name).map(|(_, value)| value.as_str())
    }

    /// Whether a `--` said that no more options follow.
    pub(super) fn ended_by_dashes(&self) -> bool {
        self.ended_by_dashes
    }
}

// === impl Walk ===

impl<'a> Walk<'a> {
    pub(super) fn new(command: &'a str, args: &'a [String], place: Place<'a>) -> Self {
        let base = place.base.map(Path::to_path_buf);
        let (out, warnings, packages) = (Vec::new(), Vec::new(), Vec::new());
        Self { place, command, rest: args, base, out, warnings, packages, depth: 0 }
    }

    pub(super) fn finish(self) -> Accepted {
        Accepted { args: self.out, warnings: self.warnings, packages: self.packages }
    }

    pub(super) fn peek(&self) -> Option<&'a str> {
        self.rest.first().map(String::as_str)
    }

    /// Accepts the next argument as it is.
    pub(super) fn take(&mut self) -> Option<&'a str> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        self.out.push(first.clone());
        Some(first)
    }

    /// Accepts the rest: it belongs to the server.
    pub(super) fn take_rest(&mut self) {
        self.out.extend_from_slice(self.rest);
        self.rest = &[];
    }

    /// Refuses what a program that looks for its own options everywhere before a `--` would take for one.
    pub(super) fn no_options_before_dashes(&self) -> Judged {
        let before = self.rest.iter().take_while(|arg| *arg != "--");
        if let Some(option) = before.into_iter().find(|arg| arg.starts_with('-')) {
            let option = option_name(option);
            return Err(format!(
                "`{option}` would be taken for an option of `{}`; put `--` before it",
                self.command
            ));
        }
        Ok(())
    }

    /// Accepts options as long as the table has them, and stops at the first argument that is none, after `--`, or
    /// before a name in `stop`.
    pub(super) fn options(&mut self, table: Options, stop: &[&str]) -> Result<Met, String> {
        let mut met = Met::default();
        while let Some(arg) =
            self.peek().filter(|arg| arg.starts_with('-') && arg.len() > 1 && !stop.contains(arg))
        {
            if arg == "--" {
                self.take();
                met.ended_by_dashes = true;
                break;
            }
            let (name, attached) = match arg.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (arg, None),
            };
            let known = |names: &[&str]| names.iter().any(|n| *n == name || is_prefix_of(n, name));
            let Some((names, takes)) = table.iter().find(|(names, _)| known(names)) else {
                return Err(format!(
                    "`{}` is not among the options that are known to be safe there",
                    option_name(arg)
                ));
            };
            let value = self.option_value(name, attached, *takes)?;
            met.options.push((names[0], value));
        }
        Ok(met)
    }

    fn option_value(&mut self, name: &str, attached: Option<&str>, takes: Takes) -> Result<String, String> {
        if let Takes::Nothing | Takes::Attached = takes {
            if attached.is_some() && matches!(takes, Takes::Nothing) {
                return Err(format!("`{name}` takes no value there"));
            }
            self.take();
            return Ok(attached.unwrap_or_default().to_owned());
        }
        if attached.is_some() && !name.starts_with("--") {
            return Err(format!("`{name}` must stand apart from its value"));
        }
        let value = match attached {
            Some(value) => value,
            None => {
                self.rest.get(1).map(String::as_str).ok_or_else(|| format!("`{name}` lacks its value"))?
            }
        };
        if value.starts_with('-') {
            return Err(format!("the value of `{name}` looks like an option"));
        }
        let value = match takes {
            Takes::Checked(fits) if !fits(value) => {
                return Err(format!("the value of `{name}` is not one that is known to be safe"));
            }
            Takes::Package(registry) => {
                self.check_package(registry, value)?;
                value.to_owned()
            }
            Takes::Folder => self.absolute(value)?,
            _ => value.to_owned(),
        };
        let (used, written) = match attached {
            Some(_) => (1, vec![format!("{name}={value}")]),
            None => (2, vec![name.to_owned(), value.clone()]),
        };
        self.rest = &self.rest[used..];
        self.out.extend(written);
        Ok(value)
    }

    /// Accepts the next argument as a script, made absolute, and the rest as its arguments.
    pub(super) fn script(&mut self) -> Judged {
        let script = match self.peek() {
            None => return Err("it names no script, so it would run what it reads".into()),
            Some("-") => return Err("`-` makes it run what it reads".into()),
            Some(option) if option.starts_with('-') => {
                return Err(format!("where its script belongs stands the option `{}`", option_name(option)));
            }
            Some(script) => script,
        };
        if has_scheme(script) {
            return Err("its script is an address, not a file".into());
        }
        let path = self.absolute(script)?;
        self.rest = &self.rest[1..];
        self.out.push(path);
        self.take_rest();
        Ok(())
    }

    /// Accepts the next argument as a package, and says its name.
    pub(super) fn package(&mut self, registry: Registry) -> Result<&'a str, String> {
        let spec = self.peek().ok_or("it names no package")?;
        let name = self.check_package(registry, spec)?;
        self.take();
        Ok(name)
    }

    pub(super) fn check_package<'p>(&mut self, registry: Registry, spec: &'p str) -> Result<&'p str, String> {
        let package = Package::parse(registry, spec)?;
        let warning = package.judge(self.place.packages, self.command)?;
        self.warnings.extend(warning);
        self.packages.push(spec.to_owned());
        Ok(package.name)
    }

    /// What follows is a command line of its own, of the program `name`.
    pub(super) fn program(&mut self, name: &str) -> Judged {
        if super::is_runner(name) {
            return Err(format!("it would start `{}`, which runs whatever its arguments say", shown(name)));
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("it starts launchers from launchers".into());
        }
        super::program(self, name)
    }

    /// Relative paths start in this folder from now on.
    pub(super) fn enter(&mut self, folder: Option<&str>) {
        if let Some(folder) = folder {
            self.base = Some(PathBuf::from(folder));
        }
    }

    /// Refuses what depends on files around it when it would start in an empty folder of ours.
    pub(super) fn needs_folder(&self, what: &str) -> Judged {
        if self.place.has_cwd {
            return Ok(());
        }
        Err(format!("{what} reads the folder it starts in; set `cwd` for the server"))
    }

    fn absolute(&self, path: &str) -> Result<String, String> {
        let path = Path::new(path);
        if path.is_absolute() {
            return Ok(path.to_string_lossy().into_owned());
        }
        let Some(base) = &self.base else {
            let path = shown(&path.to_string_lossy());
            return Err(format!("`{path}` is relative, and nothing says to which folder; write it in full"));
        };
        // `./` is dropped; `..` stays, because a link may stand before it.
        let parts = path.components().filter(|part| !matches!(part, Component::CurDir));
        let joined = base.join(parts.collect::<PathBuf>());
        joined.into_os_string().into_string().map_err(|_| "the folder of its file is not UTF-8".into())
    }
}

fn is_prefix_of(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').is_some_and(|start| name.starts_with(start))
}

/// The name of an option, never its value.
fn option_name(option: &str) -> String {
    shown(option.split_once('=').map_or(option, |(name, _)| name))
}

/// Whether a text is an address. One letter before the colon is a Windows drive.
pub(super) fn has_scheme(text: &str) -> bool {
    let Some((scheme, _)) = text.split_once(':') else {
        return false;
    };
    scheme.len() > 1 && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c))
}
