//! Any bytes as the head of a request. What must hold of it is in `checks/request_head.rs`, where the tests find it too.
#![no_main]

#[path = "../checks/request_head.rs"]
mod request_head;

libfuzzer_sys::fuzz_target!(|data: &[u8]| request_head::check(data));
