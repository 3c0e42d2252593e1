//! Any bytes as a text that is shown. What must hold of it is in `checks/shown.rs`, where the tests find it too.
#![no_main]

#[path = "../checks/shown.rs"]
mod shown;

libfuzzer_sys::fuzz_target!(|data: &[u8]| shown::check(data));
