//! Any bytes as the head of a server's answer. What must hold of it is in `checks/answer_head.rs`, where the tests find it too.
#![no_main]

#[path = "../checks/answer_head.rs"]
mod answer_head;

libfuzzer_sys::fuzz_target!(|data: &[u8]| answer_head::check(data));
