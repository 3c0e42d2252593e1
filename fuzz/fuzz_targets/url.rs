//! Any bytes as the address of a server. What must hold of it is in `checks/url.rs`, where the tests find it too.
#![no_main]

#[path = "../checks/url.rs"]
mod url;

libfuzzer_sys::fuzz_target!(|data: &[u8]| url::check(data));
