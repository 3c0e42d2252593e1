//! The binary, from the outside.
fn main(){}
