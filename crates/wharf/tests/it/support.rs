//! What the tests share: a host over puppets.

use wharf::config::{Origin, ServerConfig};
use wharf::host::HostBuilder;
use wharf::names::ServerName;
use wharf::{Host, policy::Policy};
use wharf_testkit::{Puppet, puppet_path};

/// A server that is a puppet with this script.
pub(crate) fn puppet(name: &str, script: &Puppet) -> ServerConfig {
    let path = puppet_path().display().to_string();
    let mut config = ServerConfig::stdio(ServerName::parse(name).unwrap(), path, script.args());
    config.origin = Origin::Given;
    config
}

/// A builder that may start puppets and nothing else out of the ordinary.
pub(crate) fn builder() -> HostBuilder {
    let policy = Policy::strict().with_commands([puppet_path().display().to_string()]);
    Host::builder().policy(policy).environment(std::env::vars())
}

/// A host with these servers.
pub(crate) async fn host(servers: impl IntoIterator<Item = ServerConfig>) -> Host {
    builder().servers(servers).start().await.unwrap()
}
