//! Any lines as variables: what a server is given is what its configuration names and the safe part of ours, word for
//! word, and nothing that changes what programs load.

use std::collections::BTreeMap;
use std::path::Path;

use wharf::config::{Origin, Stdio};
use wharf::names::ServerName;
use wharf::policy::{EnvRules, LaunchRequest, Policy, filter_environment};
use wharf::secret::{Secret, is_credential_name};

/// Names by which a loader or an interpreter runs something else, and beginnings of such names.
const LOADERS: [&str; 4] = ["NODE_OPTIONS", "PYTHONPATH", "BASH_ENV", "ENV"];
const OF_LOADERS: [&str; 3] = ["LD_", "DYLD_", "GIT_SSH"];

pub(crate) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // `+NAME=VALUE` is the configuration's, `?NAME` is passed on, all else is ours.
    let (mut stdio, mut ours) =
        (Stdio { command: "node".into(), args: vec!["/s.js".into()], ..Stdio::default() }, BTreeMap::new());
    for line in text.split('\n') {
        let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        match (line.strip_prefix('+'), line.strip_prefix('?')) {
            (Some(given), _) => stdio.env.extend(pair(given).map(|(name, value)| (name, Secret::new(value)))),
            (_, Some(name)) => stdio.env_passthrough.push(name.to_owned()),
            _ => ours.extend(pair(line)),
        }
    }
    let filtered = filter_environment(&ours, &EnvRules::default());
    assert_eq!(filtered.kept.len() + filtered.dropped.len(), ours.len());
    for (name, value) in &filtered.kept {
        assert_eq!(ours.get(name), Some(value));
        assert!(!is_loader(name), "{name}");
    }
    let server = ServerName::parse("srv").unwrap();
    let request = LaunchRequest {
        server: &server,
        stdio: &stdio,
        origin: &Origin::Given,
        program: Some(Path::new("/usr/bin/node")),
        sandbox: None,
        program_hash: None,
        host_env: &ours,
    };
    let Ok(permit) = Policy::strict().permit_launch(&request) else { return };
    for (name, value) in permit.env() {
        assert!(
            !name.is_empty() && !name.contains(['=', '\0']) && !value.expose().contains('\0'),
            "{name:?}"
        );
        assert!(!is_loader(name), "{name}");
        if let Some(given) = stdio.env.get(name) {
            assert_eq!(value.expose(), given.expose());
            continue;
        }
        let named = stdio.env_passthrough.contains(name);
        assert!(named || !is_credential_name(name), "{name} was not asked for");
        let inherited = ours.get(name).expect("it comes from somewhere");
        if name == "PATH" {
            assert!(value.expose().split(':').all(|part| part.is_empty() || part.starts_with('/')));
        } else {
            assert_eq!(value.expose(), inherited);
        }
    }
}

fn is_loader(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    LOADERS.contains(&name.as_str()) || OF_LOADERS.iter().any(|start| name.starts_with(start))
}
