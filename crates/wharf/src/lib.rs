//! Wharf docks MCP servers for agents.
//!
//! The rooms stand in the order of the data: each uses only the rooms above it.

pub mod config;
pub mod connect;
pub mod error;
pub mod event;
pub mod mcp;
pub mod names;
pub mod net;
pub mod policy;
pub mod secret;
pub mod text;
pub mod wire;

pub use error::{Error, Result, Side};
