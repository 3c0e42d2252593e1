//! TLS through a tunnel: whole, and only for the host of the tunnel.
