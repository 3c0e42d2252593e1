//! Any bytes as a body of chunks. What must hold of it is in `checks/chunks.rs`, where the tests find it too.
#![no_main]

#[path = "../checks/chunks.rs"]
mod chunks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| chunks::check(data));
