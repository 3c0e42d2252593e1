//! Any bytes as a name. What must hold of it is in `checks/names.rs`, where the tests find it too.
#![no_main]

#[path = "../checks/names.rs"]
mod names;

libfuzzer_sys::fuzz_target!(|data: &[u8]| names::check(data));
