//! The fixture as a binary of its own: see `wharf_testkit::fixture`.

fn main() {
    wharf_testkit::fixture::main();
}
