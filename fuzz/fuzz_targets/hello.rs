//! Any bytes as the first of a TLS connection. What must hold of it is in `checks/hello.rs`, where the tests find it too.
#![no_main]

#[path = "../checks/hello.rs"]
mod hello;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hello::check(data));
