//! Any bytes as the tools of servers. What must hold of it is in `checks/public_names.rs`, where the tests find it too.
#![no_main]

#[path = "../checks/public_names.rs"]
mod public_names;

libfuzzer_sys::fuzz_target!(|data: &[u8]| public_names::check(data));
