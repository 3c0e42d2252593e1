//! What is done about what the scan finds.
//!
//! In: a rule, how grave it is, and where it was found. Out: a refusal, where what is grave is to be kept back. Finding
//! is `catalog`'s.

use super::{Policy, ScanRule};
use crate::error::{Error, Result};
use crate::names::ServerName;

impl Policy {
    /// The same, with this done about what the scan finds, in results too. `None` is the default: what servers offer is
    /// scanned and reported.
    #[must_use]
    pub fn with_scan(&self, scan: Option<ScanRule>) -> Self {
        self.with(|rules| rules.scan = scan)
    }

    /// What is done about what is found in what servers offer.
    pub fn scan(&self) -> ScanRule {
        self.rules.scan.unwrap_or(ScanRule::Warn)
    }

    /// What is done about what is found in results. They are only looked at if somebody said so: looking costs time.
    pub fn scan_results(&self) -> ScanRule {
        self.rules.scan.unwrap_or(ScanRule::Off)
    }

    /// May something be used in which a rule found something? Only what is grave is ever kept back.
    pub fn permit_finding(&self, server: &ServerName, what: &str, rule: &str, grave: bool) -> Result<()> {
        if !grave || self.scan() != ScanRule::Block {
            return Ok(());
        }
        Err(Error::Denied {
            what: format!("{what} of server `{server}`"),
            rule: format!("`scan.{rule}`: its words are not what they seem"),
            hint: "look at it with `wharf check --scan`; if it is harmless, set `scan = \"warn\"` in `[policy]` of \
                   your `wharf.toml`"
                .into(),
        })
    }
}
