//! Files as written become what was meant.
//!
//! In: `wharf.toml` and `.mcp.json` files of the user and the project, the environment to expand from, the hashes of
//! trusted project files. Out: a [`Config`] in which nothing is optional that need not be, and every problem with
//! its file and line. Nothing is started or contacted here, and nothing is read that was not named by the caller.
//!
//! The way of a file: `read` (bytes) → `format_toml` or `format_json` (a tree with places) → `file` (its parts) →
//! `fields` and `transport` (one server) → `layers` (all files together).

mod approvals;
mod args;
mod audit;
mod callers;
pub(crate) mod domain;
mod duration;
pub mod edit;
mod expand;
mod fields;
mod file;
mod flow;
mod folders;
mod format_json;
mod format_toml;
mod gateway;
mod keys;
mod known;
mod layers;
mod limits;
mod node;
mod oauth;
mod packages;
mod pending;
mod policy;
mod problem;
mod read;
mod resilience;
mod sandbox;
mod server;
mod source;
mod telemetry;
mod transport;
mod trust;

pub use approvals::ApprovalSettings;
pub use audit::AuditSettings;
pub use callers::{CallerRules, CallerTable, ToolPattern};
pub use edit::Format;
pub use flow::{FlowLabel, FlowSettings};
pub use folders::find_folders;
pub use gateway::{CallLimits, GatewaySettings, JwtSettings};
pub use keys::{KeyStore, StoredKey};
pub use layers::{Config, Sources, load};
pub use packages::PackageSettings;
pub use policy::{PackageRule, PolicySettings, ScanRule};
pub use problem::{Place, Problem};
pub use resilience::{Balance, BreakerSettings, HealthCheck, Resilience};
pub use sandbox::{Profile, SandboxSetting};
pub use server::{Connect, OAuth, Origin, Remote, ServerConfig, Share, Stdio, Transport, UnixSocket};
pub use telemetry::TelemetrySettings;
pub use trust::{PendingFile, PendingServer, TrustStore};

#[cfg(test)]
mod tests;
