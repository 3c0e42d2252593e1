//! The private parts of policy: how a package is read, and which servers other rules concern.

use super::Policy;
use super::package::{Package, Registry};
use crate::config::ServerConfig;
use crate::names::ServerName;

#[test]
fn a_package_is_read_with_its_name_and_whether_its_version_is_exact() {
    let read =
        |registry, spec| Package::parse(registry, spec).map(|package| (package.name, package.pinned)).ok();
    assert_eq!(read(Registry::Npm, "@s/p@1.2.3"), Some(("@s/p", true)));
    assert_eq!(read(Registry::Npm, "p@1.2.3 || 2"), Some(("p", false)));
    assert_eq!(read(Registry::Npm, "p@1.x"), Some(("p", false)));
    assert_eq!(read(Registry::Npm, "p@"), Some(("p", false)));
    assert_eq!(read(Registry::Npm, "s/p"), None);
    assert_eq!(read(Registry::PyPi, "p[x]==1.0"), Some(("p", true)));
    assert_eq!(read(Registry::PyPi, "p===1.0"), Some(("p", true)));
    assert_eq!(read(Registry::PyPi, "p==1.0,<2"), Some(("p", false)));
    assert_eq!(read(Registry::PyPi, "p==1.0,q"), None);
    assert_eq!(read(Registry::PyPi, "p q"), None);
    assert_eq!(read(Registry::Image, "reg.io:5000/a/b"), Some(("reg.io:5000/a/b", false)));
    assert_eq!(read(Registry::Image, "reg.io:5000/a/b:1.0"), Some(("reg.io:5000/a/b", true)));
    assert_eq!(read(Registry::Image, "a/b:latest"), Some(("a/b", false)));
    assert_eq!(read(Registry::Image, "a/b@sha256:00"), Some(("a/b", true)));
    assert_eq!(read(Registry::Image, "https://a/b"), None);
}

#[test]
fn other_address_rules_concern_only_servers_with_an_address() {
    let at = |url: &str| ServerConfig::http(ServerName::parse("s").unwrap(), url).unwrap();
    let (rules, remote) = (Policy::strict(), at("https://example.org/mcp"));
    assert!(rules.reaches_like(&rules.with_commands(["x"]).with_sandbox(false), &remote));
    assert!(!rules.reaches_like(&rules.with_private_networks(true), &remote), "it may be dialled elsewhere");
    let refused = at("http://10.0.0.1/mcp");
    assert!(rules.reaches_like(&rules.with_commands(["x"]), &refused), "as before, it is not reached");
    assert!(!rules.reaches_like(&rules.with_private_networks(true), &refused));
}
