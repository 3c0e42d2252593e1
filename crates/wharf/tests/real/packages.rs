//! Packages fetched from their registries in a step of their own, and then run from the cache without any.

use std::path::Path;

use serde_json::json;
use tempfile::TempDir;
use tokio::sync::broadcast::Receiver;
use wharf::config::ServerConfig;
use wharf::event::Event;
use wharf::mcp::Era;
use wharf::sandbox::packages::{Entry, Fetched, PackageOptions, PackageSpec};
use wharf::{Host, Side};

use crate::node::everything;
use crate::process::installed;
use crate::walk::{Expected, SERVER, ordinary, program};

const EVERYTHING: &str = "@modelcontextprotocol/server-everything@2026.8.31";
const TIME: &str = "mcp-server-time==2026.10.19";

/// The cache of one test.
struct Cache(TempDir);

impl Cache {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn options(&self) -> PackageOptions {
        let mut options = PackageOptions::new(self.0.path().join("packages"));
        options.home = std::env::home_dir();
        options
    }

    /// A host whose launchers are found; by choice one that reaches no registry.
    async fn host(&self, server: ServerConfig, online: bool) -> Host {
        let bin = Path::new(&installed("launchers/bin/uv")).parent().unwrap().display().to_string();
        let mut environment: std::collections::BTreeMap<String, String> = std::env::vars().collect();
        environment.insert("PATH".into(), format!("{bin}:{}", environment["PATH"]));
        if !online {
            for name in ["npm_config_registry", "UV_INDEX_URL", "PIP_INDEX_URL"] {
                environment.insert(name.into(), "http://127.0.0.1:1/".into());
            }
        }
        Host::builder()
            .server(server)
            .environment(environment)
            .packages(self.options())
            .start()
            .await
            .unwrap()
    }

    fn found(&self, command: &str, args: &[&str]) -> Fetched {
        let spec = PackageSpec::read(Path::new("/").join(command).as_path(), args).unwrap().unwrap();
        spec.find(&self.options()).unwrap()
    }
}

fn fetched(events: &mut Receiver<Event>) -> Vec<(String, String, usize)> {
    let all = std::iter::from_fn(|| events.try_recv().ok());
    all.filter_map(|event| match event {
        Event::PackageFetched { package, version, integrity, others, .. } => {
            assert!(!integrity.is_empty());
            Some((package.raw().to_owned(), version.raw().to_owned(), others))
        }
        _ => None,
    })
    .collect()
}

fn time() -> Expected<'static> {
    let noon = json!({"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"});
    Expected {
        era: Era::Modern,
        tools: &["get_current_time", "convert_time"],
        good: ("convert_time", noon, "T21:00:00+09:00"),
        bad: ("get_current_time", json!({}), "missing required field `timezone`"),
    }
}

/// Connects with an empty cache, and again without a registry; the package is fetched once.
async fn twice(cache: &Cache, server: ServerConfig, expected: &Expected<'_>) -> (String, String, usize) {
    let host = cache.host(server.clone(), true).await;
    let mut events = host.events().subscribe();
    ordinary(&host, expected).await;
    host.close().await;
    let first = fetched(&mut events);
    assert_eq!(first.len(), 1);
    let host = cache.host(server, false).await;
    let mut events = host.events().subscribe();
    ordinary(&host, expected).await;
    host.close().await;
    assert_eq!(fetched(&mut events), []);
    first.into_iter().next().unwrap()
}

#[tokio::test]
async fn l17_npx_is_fetched_and_then_run_without_a_registry() {
    let cache = Cache::new();
    let args = ["-y", EVERYTHING, "stdio"];
    let (name, version, others) = twice(&cache, program("npx", &args, "npx"), &everything()).await;
    assert_eq!((name.as_str(), version.as_str()), ("@modelcontextprotocol/server-everything", "2026.8.31"));
    assert!(others > 20, "{others}");
    let found = cache.found("npx", &args);
    assert!(found.main().integrity[0].starts_with("sha512-"), "{:?}", found.main());
    assert!(
        matches!(&found.entry, Entry::Node(path) if path.ends_with("dist/index.js")),
        "{:?}",
        found.entry
    );
}

#[tokio::test]
async fn l17_uvx_is_fetched_and_then_run_without_a_registry() {
    let cache = Cache::new();
    let args = [TIME, "--local-timezone", "UTC"];
    let (name, version, _) = twice(&cache, program("uvx", &args, "uvx"), &time()).await;
    assert_eq!((name.as_str(), version.as_str()), ("mcp-server-time", "2026.10.19"));
    let found = cache.found("uvx", &args);
    assert!(found.main().integrity.iter().all(|hash| hash.starts_with("sha256:")));
    assert!(
        matches!(&found.entry, Entry::Python(path) if path.ends_with("mcp-server-time")),
        "{:?}",
        found.entry
    );
}

#[tokio::test]
async fn cmd_08_a_package_without_a_version_has_the_one_that_was_found() {
    let cache = Cache::new();
    let args = ["run", "mcp-server-time", "--local-timezone", "UTC"];
    let host = cache.host(program("pipx", &args, "pipx"), true).await;
    let mut events = host.events().subscribe();
    let listing = host.tools_of(SERVER).await.unwrap();
    assert_eq!(listing.snapshot.tools().len(), 2);
    host.close().await;
    let mut warned = false;
    let mut version = None;
    while let Ok(event) = events.try_recv() {
        match event {
            Event::Warning { message, .. } => warned |= message.contains("pin it"),
            Event::PackageFetched { version: found, .. } => version = Some(found),
            _ => {}
        }
    }
    assert!(warned, "it is never silent");
    let found = cache.found("pipx", &args);
    assert_eq!(version.unwrap().raw(), found.main().version);
    assert!(found.main().version.starts_with("20"), "{:?}", found.main());
    assert!(found.main().integrity[0].starts_with("sha256:"), "{:?}", found.main());
}

#[tokio::test]
async fn l12_a_version_that_does_not_exist_is_the_users_to_correct() {
    let cache = Cache::new();
    for (command, args) in [
        ("npx", ["-y", "@modelcontextprotocol/server-everything@1999.1.1"]),
        ("uvx", ["-q", "mcp-server-time==1999.1.1"]),
        ("pipx", ["run", "mcp-server-time==1999.1.1"]),
    ] {
        let host = cache.host(program(command, &args, "absent"), true).await;
        let error = host.berth(SERVER).unwrap().connection().await.expect_err(command);
        assert_eq!(error.side(), Side::Caller, "{command}: {error}");
        assert!(error.to_string().contains("there is no package"), "{command}: {error}");
        host.close().await;
    }
    assert_eq!(std::fs::read_dir(cache.options().cache).unwrap().count(), 0, "nothing is left of them");
}
