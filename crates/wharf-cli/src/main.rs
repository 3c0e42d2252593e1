//! The `wharf` command.

mod demo;

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["test-server"] => demo::run_stdio().await,
        ["test-server", "--http", addr] => match addr.parse() {
            Ok(addr) => demo::run_http(addr, |at| anstream::eprintln!("listening on http://{at}/mcp")).await,
            Err(e) => Err(std::io::Error::other(e)),
        },
        _ => Err(std::io::Error::other("usage: wharf test-server [--http ADDR]")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            anstream::eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}
