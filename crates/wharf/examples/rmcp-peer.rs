//! The rmcp server, as an example of this package so that `cargo test -p wharf` builds it.

fn main() {
    wharf_testkit::rmcp_peer::main();
}
