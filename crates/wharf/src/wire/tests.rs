//! Unit tests of the parts that only `wire` sees, and the properties that hold for any input.

mod finder;
mod http1;
mod properties;
mod sse_limits;
