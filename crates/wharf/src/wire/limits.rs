//! How much is accepted from outside before it is refused.

/// Bounds on what a server may send. Every reader has one of them; none is unlimited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest line on a pipe or Unix socket, without its line break, and longest message of a WebSocket. Defaults to 10 MiB (10,485,760 bytes).
    pub line: usize,
    /// Most data in one event of an SSE stream; what stands beside the data has a small bound of its own. Defaults to 10 MiB.
    pub event: usize,
    /// Largest JSON body of an HTTP answer. Defaults to 10 MiB.
    pub body: usize,
    /// Deepest nesting of a message. Defaults to 127, the most that `serde_json` reads back; more is not possible.
    pub depth: usize,
    /// Notifications that nobody wants, while a call waits, before the connection is ended. Defaults to 100.
    pub unexpected_notifications: usize,
    /// Lines on standard output that are not JSON, before the first message, that are taken as a banner. Defaults to 50.
    pub banner_lines: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const TEN_MIB: usize = 10 * 1024 * 1024;
        Self {
            line: TEN_MIB,
            event: TEN_MIB,
            body: TEN_MIB,
            depth: 127,
            unexpected_notifications: 100,
            banner_lines: 50,
        }
    }
}
