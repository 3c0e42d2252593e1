//! The usage examples of the five designs that Wharf grew out of, one module each, with the same meaning.
//!
//! Their command lines stand as they are written there. `npx`, `uvx` and `python` are found on a shelf of ours, where the
//! name of a package leads to a server of the same tools.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail loudly, in its scenery too")]

mod converser;
#[rustfmt::skip]
mod generated;
mod lionpride;
mod llmgine;
mod llmgine_formats;
mod model;
mod nexus3;
mod nexus3_agents;
mod weakincentives;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;
use wharf::Host;
use wharf::config::{self, Config, ServerConfig, Sources, Stdio, Transport};
use wharf::host::HostBuilder;
use wharf::names::ServerName;
use wharf::secret::Secret;
use wharf_testkit::{Puppet, Step, puppet_path};

/// Where the programs are found that the examples start.
pub(crate) struct Shelf {
    folder: TempDir,
    variables: Vec<(String, String)>,
}

impl Shelf {
    /// A shelf with servers by what their command lines call them.
    pub(crate) fn with(servers: &[(&str, Puppet)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut found = String::from("#!/bin/sh\nfor arg; do\n  case \"$arg\" in\n");
        for (number, (name, script)) in servers.iter().enumerate() {
            let file = folder.path().join(format!("{number}.json"));
            std::fs::write(&file, serde_json::to_string(&script.script).unwrap()).unwrap();
            let (puppet, file) = (puppet_path(), file.display().to_string());
            found.push_str(&format!("    {name}|*/{name}) exec {} --file {file};;\n", puppet.display()));
        }
        found.push_str("  esac\ndone\necho \"no such package: $*\" >&2\nexit 1\n");
        for program in ["npx", "uvx", "python", "my-runner", "my-mcp-server"] {
            let file = folder.path().join(program);
            std::fs::write(&file, &found).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { folder, variables: Vec::new() }
    }

    /// The same in a world that has this variable.
    pub(crate) fn and(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Nothing but the shelf is on the `PATH`: what is not there is not found, and never fetched from anywhere.
    pub(crate) fn env(&self) -> BTreeMap<String, String> {
        let mut env: BTreeMap<String, String> = std::env::vars().collect();
        env.insert("PATH".into(), self.folder.path().display().to_string());
        env.extend(self.variables.iter().cloned());
        env
    }

    /// A host with the strict policy, in a world where the shelf stands. It must stand as long as the host.
    pub(crate) fn builder(&self) -> HostBuilder {
        let policy = wharf::Policy::strict().with_sandbox(false);
        Host::builder().policy(policy).environment(self.env())
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// Reads a configuration as a file of that name.
    pub(crate) fn config(&self, file: &str, text: &str) -> Config {
        let path = self.folder.path().join(file);
        config::edit::write_atomically(&path, text).unwrap();
        let config =
            config::load(&Sources { explicit: vec![path], env: self.env(), ..Sources::default() }).unwrap();
        assert!(config.problems.is_empty(), "{:#?}", config.problems);
        config
    }
}

/// A program with its arguments, as the designs write it: one list.
pub(crate) fn program(name: &str, command: &[&str]) -> ServerConfig {
    ServerConfig::stdio(ServerName::parse(name).unwrap(), command[0], command[1..].iter().copied())
}

pub(crate) fn stdio(config: &mut ServerConfig) -> &mut Stdio {
    match &mut config.transport {
        Transport::Stdio(stdio) => stdio,
        _ => panic!("it is a program"),
    }
}

/// The same, with a variable.
pub(crate) fn with_env(mut config: ServerConfig, name: &str, value: &str) -> ServerConfig {
    stdio(&mut config).env.insert(name.into(), Secret::new(value));
    config
}

/// A tool whose fields are text, `*` marks those that must be there, `#` those that are whole numbers.
pub(crate) fn tool(name: &str, description: &str, fields: &[&str]) -> Value {
    let name_of = |field: &str| field.trim_start_matches(['*', '#']).to_owned();
    let kind = |field: &str| json!({"type": if field.contains('#') { "integer" } else { "string" }});
    let properties: serde_json::Map<String, Value> = fields.iter().map(|f| (name_of(f), kind(f))).collect();
    let required: Vec<String> = fields.iter().filter(|f| f.contains('*')).map(|f| name_of(f)).collect();
    json!({"name": name, "description": description,
        "inputSchema": {"type": "object", "properties": properties, "required": required}})
}

pub(crate) fn text(text: &str) -> Step {
    Step::Reply(json!({"content": [{"type": "text", "text": text}]}))
}

pub(crate) fn github() -> Puppet {
    Puppet::new()
        .tool(tool("create_issue", "Create a new issue in a repository", &["*owner", "*repo", "*title"]))
        .tool(tool("list_issues", "List issues with optional filters", &["*owner", "*repo"]))
        .tool(tool("get_issue", "Get details of a specific issue", &["*owner", "*repo", "*#number"]))
        .tool(tool("list_repos", "List repositories", &["*owner"]))
        .tool(tool("delete_repo", "Delete a repository", &["*owner", "*repo"]))
}

pub(crate) fn search() -> Puppet {
    Puppet::new().tool(tool("exa_search", "Search with Exa", &["*query", "#limit"])).tool(tool(
        "web_search",
        "Search the web",
        &["*query"],
    ))
}

pub(crate) fn filesystem() -> Puppet {
    Puppet::new().tool(tool("read_file", "Read contents of a file", &["*path"])).tool(tool(
        "write_file",
        "Write contents to a file",
        &["*path", "*content"],
    ))
}

pub(crate) fn names(names: &[std::sync::Arc<str>]) -> Vec<&str> {
    names.iter().map(|name| &**name).collect()
}

pub(crate) async fn listed(host: &Host) -> Vec<String> {
    let listing = host.tools().await;
    assert!(listing.failed.is_empty(), "{:?}", listing.failed);
    listing.snapshot.tools().iter().map(|route| route.public.to_string()).collect()
}
