//! A host that is held open until somebody kills it: `held PROGRAM ARGUMENT…` starts that server, prints `ready`, waits.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a program for tests may fail loudly, and speaks by its standard output"
)]

use wharf::config::ServerConfig;
use wharf::names::ServerName;
use wharf::{Host, policy::Policy};

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let program = args.next().unwrap();
    let policy = Policy::strict().with_sandbox(false).with_commands([program.clone()]);
    let server = ServerConfig::stdio(ServerName::parse("held").unwrap(), program, args);
    let host =
        Host::builder().policy(policy).environment(std::env::vars()).server(server).start().await.unwrap();
    host.berth("held").unwrap().connect().await.unwrap();
    println!("ready");
    std::future::pending::<()>().await;
}
