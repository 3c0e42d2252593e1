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

pub use error::{Error, Result, Side};
