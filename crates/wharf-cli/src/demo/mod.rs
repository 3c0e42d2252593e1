//! `wharf test-server`: a small honest MCP server of both eras, to try a client with.
//!
//! In: requests on standard input, or over HTTP on a loopback address. Out: answers. It is a server like any other:
//! it shares the wire layer with Wharf and nothing else.

mod answer;
mod conversation;
mod http;
mod http_legacy;
mod http_modern;
mod offers;
mod state;
mod stdio;
mod tools;

pub(crate) use http::run_http;
pub(crate) use stdio::run_stdio;
