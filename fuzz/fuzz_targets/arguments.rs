//! Any bytes as the arguments of a call. What must hold of it is in `checks/arguments.rs`, where the tests find it too.
#![no_main]

#[path = "../checks/arguments.rs"]
mod arguments;

libfuzzer_sys::fuzz_target!(|data: &[u8]| arguments::check(data));
