//! One file a command. The doc comments of its arguments are its help.

pub(crate) mod add;
pub(crate) mod call;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod init;
pub(crate) mod place;
pub(crate) mod remove;
pub(crate) mod repl;
pub(crate) mod servers;
pub(crate) mod test_server;
pub(crate) mod tools;
pub(crate) mod trust;
