//! The server for the conformance suite, as an example of this package so that `cargo test -p wharf` builds it.

fn main() {
    wharf_testkit::fixture::main();
}
