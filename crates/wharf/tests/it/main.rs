//! What Wharf promises, proved from outside.

mod names;
mod outcome;
mod schema;
