//! Any bytes as a schema and arguments for it. What must hold of it is in `checks/schema.rs`, where the tests find it too.
#![no_main]

#[path = "../checks/schema.rs"]
mod schema;

libfuzzer_sys::fuzz_target!(|data: &[u8]| schema::check(data));
