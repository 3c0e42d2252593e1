//! Promises, proved at the boundary of the library.

mod calls;
mod config;
mod config_edit;
mod config_trust;
mod policy_env;
mod policy_launch;
mod policy_remote;
mod support;
