//! What a confined server may do. In: its profile. Out: the ways that are open to it.

pub mod egress;
pub mod packages;
