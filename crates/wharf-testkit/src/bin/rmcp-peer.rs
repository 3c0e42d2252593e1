//! The rmcp server as a binary of its own: see `wharf_testkit::rmcp_peer`.

fn main() {
    wharf_testkit::rmcp_peer::main();
}
