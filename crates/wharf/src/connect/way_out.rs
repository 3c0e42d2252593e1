//! In: a permit whose profile names domains. Out: a proxy that listens for that program alone, in a folder of its own; both
//! are gone when the program is. One that names none gets no proxy, and so no network.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use super::berth::Dock;
use crate::error::{Error, Result};
use crate::policy::{Confinement, EgressRules, LaunchPermit};
use crate::sandbox::WayOut;
use crate::sandbox::egress::{Egress, EgressLimits, EgressOptions};

/// A proxy and its folder.
#[derive(Debug)]
struct Keeper {
    /// First: its socket goes before the folder.
    _egress: Egress,
    _folder: OwnFolder,
}

#[derive(Debug)]
struct OwnFolder(PathBuf);

impl Dock {
    /// The way to the network for a program that is confined and may reach some of it.
    pub(super) fn way_out(&self, permit: &LaunchPermit) -> Result<Option<WayOut>> {
        let Confinement::Within(profile) = permit.confinement() else { return Ok(None) };
        if profile.domains.is_empty() {
            return Ok(None);
        }
        let rules = EgressRules::parse(&profile.domains)?;
        let folder = OwnFolder::new(&self.scratch)
            .map_err(|error| Error::Internal(format!("no folder for a proxy can be made: {error}")))?;
        let socket = folder.0.join("egress");
        let options = EgressOptions {
            server: permit.server().clone(),
            rules,
            net: self.net.options().clone(),
            limits: EgressLimits::default(),
            events: self.events.clone(),
        };
        let egress = Egress::listen(&socket, options)?;
        Ok(Some(WayOut { socket, _keeper: Arc::new(Keeper { _egress: egress, _folder: folder }) }))
    }
}

// === impl OwnFolder ===

impl OwnFolder {
    fn new(scratch: &std::path::Path) -> std::io::Result<Self> {
        let path = scratch.join(format!("wharf-out-{:016x}", fastrand::u64(..)));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        // There is nothing in it any more; failing to remove it harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
