//! Any bytes as the frames of a WebSocket. What must hold of it is in `checks/websocket.rs`, where the tests find it too.
#![no_main]

#[path = "../checks/websocket.rs"]
mod websocket;

libfuzzer_sys::fuzz_target!(|data: &[u8]| websocket::check(data));
