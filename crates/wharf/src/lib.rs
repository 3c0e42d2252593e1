//! Wharf docks MCP servers for agents.
//!
//! The rooms stand in the order of the data: each uses only the rooms above it.

pub mod text;
pub mod names;
pub mod secret;
pub mod wire;
pub mod error;
pub mod mcp;
pub mod event;
pub mod config;
pub mod policy;
pub mod net;
pub mod connect;
pub mod catalog;
pub mod registry;
pub mod ask;
pub mod call;
pub mod outcome;
pub mod host;

pub use error::{Error, Result, Side};
pub use host::{CallOptions, Host};
pub use outcome::Outcome;
