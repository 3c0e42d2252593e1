//! Any lines as `server` and `tool`, with a space between: every public name is valid, belongs to one tool, leads to it,
//! and does not depend on the order in which servers are listed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::json;
use wharf::config::ServerConfig;
use wharf::mcp::Tool;
use wharf::names::ServerName;
use wharf::registry::{NAME_MAX, NameRules, Naming, Registry, ServerTools, Snapshot};
use wharf::wire::Json;

type Pairs = BTreeMap<ServerName, BTreeSet<String>>;

pub(crate) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut pairs = Pairs::new();
    for (server, tool) in text.split('\n').take(64).filter_map(|line| line.split_once(' ')) {
        if let Ok(server) = ServerName::parse(server) {
            pairs.entry(server).or_default().insert(tool.to_owned());
        }
    }
    for naming in [Naming::Prefixed, Naming::Mcp, Naming::Bare] {
        let one = names(&build(naming, pairs.iter()));
        assert_eq!(one, names(&build(naming, pairs.iter().rev())), "the order makes no difference");
    }
}

fn build<'a>(
    naming: Naming,
    pairs: impl Iterator<Item = (&'a ServerName, &'a BTreeSet<String>)>,
) -> Arc<Snapshot> {
    let registry = Registry::new(NameRules { naming, ..NameRules::default() }, []);
    for (server, tools) in pairs {
        let read = |name: &String| {
            let definition = json!({"name": name, "inputSchema": {"type": "object"}});
            Tool::read(Json::from(definition)).ok().map(Arc::new)
        };
        registry.replace(ServerTools {
            config: Arc::new(ServerConfig::stdio(server.clone(), "true", Vec::<String>::new())),
            tools: tools.iter().filter_map(read).collect(),
            fingerprint: [0; 32],
            ttl: None,
        });
    }
    registry.snapshot()
}

/// The name of each tool.
fn names(snapshot: &Snapshot) -> BTreeMap<(String, String), String> {
    let mut taken = BTreeSet::new();
    let mut names = BTreeMap::new();
    for route in snapshot.tools() {
        let name = route.public.to_string();
        assert!((1..=NAME_MAX).contains(&name.len()), "{name}");
        assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'), "{name}");
        assert!(!name.to_ascii_lowercase().starts_with("wharf_"), "{name} is reserved");
        assert!(taken.insert(name.to_ascii_lowercase()), "{name} is there twice");
        let (server, tool) = (route.server.to_string(), route.tool.name.as_str().to_owned());
        let found = snapshot.route(&name).expect("a name that is listed leads somewhere");
        assert_eq!((found.server.to_string(), found.tool.name.as_str()), (server.clone(), tool.as_str()));
        names.insert((server, tool), name);
    }
    names
}
