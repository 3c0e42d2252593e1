//! The private parts of the proxy: what the first bytes of a tunnel are taken for.
