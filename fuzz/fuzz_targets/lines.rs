//! Any bytes as a stream of lines. What must hold of it is in `checks/lines.rs`, where the tests find it too.
#![no_main]

#[path = "../checks/lines.rs"]
mod lines;

libfuzzer_sys::fuzz_target!(|data: &[u8]| lines::check(data));
