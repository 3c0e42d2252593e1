//! Any bytes as JSON. What must hold of it is in `checks/json_strict.rs`, where the tests find it too.
#![no_main]

#[path = "../checks/json_strict.rs"]
mod json_strict;

libfuzzer_sys::fuzz_target!(|data: &[u8]| json_strict::check(data));
