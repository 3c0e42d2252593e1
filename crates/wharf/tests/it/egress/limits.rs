//! The bounds of the proxy, and its end.
