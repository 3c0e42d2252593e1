//! Files as written become what was meant.
//!
//! In: `wharf.toml` and `.mcp.json` files of the user and the project, the environment to expand from, the hashes of
//! trusted project files. Out: a [`Config`] in which nothing is optional that need not be, and every problem with
//! its file and line. Nothing is started or contacted here, and nothing is read that was not named by the caller.

mod server;

pub use server::{Connect, Origin, Remote, ServerConfig, Share, Stdio, Transport};
