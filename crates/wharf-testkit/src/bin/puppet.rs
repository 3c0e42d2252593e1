//! The puppet as a binary of its own: see `wharf_testkit::puppet`.

fn main() {
    wharf_testkit::puppet::main();
}
