//! Promises, proved at the boundary of the library.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test may fail loudly"
)]

mod agents;
mod approvals;
mod ask;
mod audit;
mod audit_tampering;
mod ask_rules;
mod asked_again;
mod calls;
mod catalog;
mod codegen;
mod config;
mod config_callers;
mod config_edit;
mod config_trust;
mod egress;
mod ensembles;
mod era_answers;
mod eras;
mod events;
mod flow;
mod frames;
mod gateway;
mod http;
mod interleavings;
mod known;
mod lifecycle;
mod lingering;
mod lockfile;
mod load;
mod local_tools;
mod names;
mod names_secret;
mod net;
mod net_answers;
mod oauth;
mod outcome;
mod packages;
mod planted;
mod policy_env;
mod policy_launch;
mod policy_remote;
mod policy_settings;
mod processes;
mod prompts;
mod resilience;
mod proofs;
mod resources;
mod results;
mod provider_calls;
mod provider_checker;
mod provider_forms;
mod provider_generated;
mod provider_hostile;
mod provider_results;
mod provider_schema;
mod provider_support;
mod reading;
mod reload;
mod render;
mod sandbox;
mod scan;
mod scan_policy;
mod schema;
mod seeds;
mod sessions;
mod sockets;
mod sse;
mod subscriptions;
mod state;
mod support;
mod tidy;
mod visibility;
mod wire;
