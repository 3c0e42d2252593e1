//! One file a command. The doc comments of its arguments are its help.

pub(crate) mod add;
pub(crate) mod approve;
pub(crate) mod audit;
pub(crate) mod call;
pub(crate) mod check;
pub(crate) mod codegen;
pub(crate) mod completions;
pub(crate) mod diff;
pub(crate) mod init;
pub(crate) mod keys;
pub(crate) mod login;
mod learn;
pub(crate) mod lock;
mod offered;
pub(crate) mod place;
pub(crate) mod prompts;
pub(crate) mod remove;
pub(crate) mod render;
pub(crate) mod resources;
pub(crate) mod repl;
pub(crate) mod sandbox;
mod scan;
pub(crate) mod serve;
pub(crate) mod servers;
pub(crate) mod test_server;
pub(crate) mod tools;
pub(crate) mod trust;
