//! Wharf docks MCP servers for agents: it starts or reaches every Model Context Protocol server, decides what may run
//! and who may call what, and gives all their tools one registry. This is the library; the `wharf` binary is built on it.
//!
//! ```no_run
//! use serde_json::json;
//! use wharf::Host;
//! use wharf::config::{self, Sources};
//! use wharf::policy::Policy;
//! use wharf::sandbox::Sandbox;
//!
//! # async fn run() -> wharf::Result<()> {
//! let sources = Sources { explicit: vec![".mcp.json".into()], env: std::env::vars().collect(), ..Sources::default() };
//! let config = config::load(&sources)?;
//! let host = Host::builder()
//!     .policy(Policy::from(&config.policy))
//!     .servers(config.servers.into_values())
//!     .environment(std::env::vars())
//!     .sandbox(Sandbox::new("/usr/local/bin/wharf"))
//!     .start()
//!     .await?;
//! let outcome = host.call("github_create_issue", json!({"owner": "me", "repo": "boat", "title": "It leaks"})).await;
//! println!("{}", outcome.into_result()?.to_text());
//! host.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! The library never prints, never reads the environment or the home folder, and never exits: the world is passed in.
//!
//! # The rooms
//!
//! They stand in the order of the data, and each uses only the rooms above it. Reading order, dependency order and the
//! way of a call are one list: the vocabulary ([`text`] to [`linger`]), the way in ([`config`] to [`connect`]), the way
//! through ([`catalog`] to [`outcome`]), for whom ([`session`] to [`render`]), and the whole ([`host`] and [`gateway`]).

pub mod text;
pub mod names;
pub mod secret;
pub mod wire;
pub mod error;
pub mod mcp;
pub mod event;
pub mod linger;
pub mod config;
pub mod policy;
pub mod net;
pub mod sandbox;
pub mod connect;
pub mod catalog;
pub mod registry;
pub mod ask;
pub mod call;
pub mod outcome;
pub mod session;
pub mod provider;
pub mod render;
pub mod store;
pub mod host;
pub mod gateway;

pub use config::ServerConfig;
pub use error::{Error, Result, Side};
pub use event::Event;
pub use host::{CallOptions, Callable, Context, Docking, Host, LocalTool, NoArguments, Reply, Session};
pub use names::ServerName;
pub use outcome::Outcome;
pub use policy::{Permission, Policy};
pub use wire::Json;
