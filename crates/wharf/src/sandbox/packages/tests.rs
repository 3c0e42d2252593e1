//! The private parts of packages.
