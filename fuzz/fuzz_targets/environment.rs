//! Any bytes as an environment. What must hold of it is in `checks/environment.rs`, where the tests find it too.
#![no_main]

#[path = "../checks/environment.rs"]
mod environment;

libfuzzer_sys::fuzz_target!(|data: &[u8]| environment::check(data));
