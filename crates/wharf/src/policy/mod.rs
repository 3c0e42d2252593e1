//! What may start, what may be reached, what may be called.
//!
//! In: a request described by plain values. Out: a permit, which only this room can make and which the next room
//! demands, or an error that names the rule and how to allow it. Pure: no IO, no async, no clock.

mod permit;

pub use permit::{CallPermit, ConnectPermit, LaunchPermit};
