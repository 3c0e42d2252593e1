//! Any bytes as a stream of events. What must hold of it is in `checks/sse.rs`, where the tests find it too.
#![no_main]

#[path = "../checks/sse.rs"]
mod sse;

libfuzzer_sys::fuzz_target!(|data: &[u8]| sse::check(data));
