//! stub
use crate::config::*;
use crate::error::*;
use crate::names::*;
use crate::policy::*;
use std::collections::BTreeMap;
use std::path::Path;
#[derive(Clone, Debug, Default)]
pub struct Policy;
pub struct LaunchRequest<'a> {
    pub server: &'a ServerName,
    pub stdio: &'a Stdio,
    pub origin: &'a Origin,
    pub program: Option<&'a Path>,
    pub host_env: &'a BTreeMap<String, String>,
}
impl Policy {
    pub fn strict() -> Self {
        Self
    }
    pub fn permit_connect(&self, server: &ServerName, remote: &Remote, _: &Origin) -> Result<ConnectPermit> {
        Ok(ConnectPermit::stub(server.clone(), remote.url.clone()))
    }

    pub fn permit_launch(&self, _: &LaunchRequest<'_>) -> Result<LaunchPermit> {
        Err(Error::Internal(String::new()))
    }
}
