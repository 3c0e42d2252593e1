//! Any bytes as one frame. What must hold of it is in `checks/frame.rs`, where the tests find it too.
#![no_main]

#[path = "../checks/frame.rs"]
mod frame;

libfuzzer_sys::fuzz_target!(|data: &[u8]| frame::check(data));
