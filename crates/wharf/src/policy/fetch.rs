//! In: a permit for a launcher that would fetch a package and run it. Out: the permits for the two steps apart: the
//! package manager that fetches, and the program that was fetched. Nothing else can be made of it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::LaunchPermit;
use crate::error::{Error, Result};
use crate::secret::Secret;

/// The package managers of each launcher. Python is one because it carries pip.
const TOOLS: [(&str, &[&str]); 5] =
    [("npx", &["npm"]), ("npm", &["npm"]), ("uvx", &["uv"]), ("uv", &["uv"]), ("pipx", &["python"])];

impl LaunchPermit {
    /// To run a package manager in a folder of its own, with nothing of the server's environment.
    ///
    /// # Errors
    /// If it is not the one that belongs to the launcher.
    pub(crate) fn to_fetch(
        &self,
        program: PathBuf,
        args: Vec<OsString>,
        env: Vec<(String, Secret)>,
        cwd: PathBuf,
    ) -> Result<Self> {
        let launcher = file_name(&self.program);
        let tools = TOOLS.into_iter().find(|(name, _)| *name == launcher).map_or(&[][..], |(_, tools)| tools);
        let tool = file_name(&program);
        let belongs = tools.iter().any(|name| {
            let version = tool.strip_prefix(name).filter(|rest| rest.is_empty() || *name == "python");
            version.is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'))
        });
        if !belongs || !program.is_absolute() {
            return Err(Error::Internal(format!("`{tool}` is no package manager of `{launcher}`")));
        }
        let server = self.server.clone();
        Ok(Self { server, program, args, env, cwd: Some(cwd), warnings: Vec::new() })
    }

    /// To run what was fetched into a folder: a file of it, or an interpreter with a file of it.
    ///
    /// # Errors
    /// If it is something else.
    pub(crate) fn into_fetched(self, folder: &Path, program: PathBuf, args: Vec<OsString>) -> Result<Self> {
        let inside = |path: &Path| path.starts_with(folder);
        let script = args.first().is_some_and(|script| inside(Path::new(script)));
        let interprets = file_name(&program) == "node" && script;
        if !program.is_absolute() || !(inside(&program) || interprets) {
            return Err(Error::Internal("what was fetched would run something else".into()));
        }
        Ok(Self { program, args, ..self })
    }
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}
