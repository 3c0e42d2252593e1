//! Any bytes as a command line. What must hold of it is in `checks/argv.rs`, where the tests find it too.
#![no_main]

#[path = "../checks/argv.rs"]
mod argv;

libfuzzer_sys::fuzz_target!(|data: &[u8]| argv::check(data));
