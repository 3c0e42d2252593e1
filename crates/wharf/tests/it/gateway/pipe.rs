//! A caller over a pipe: one message a line, in either direction.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use wharf::Host;
use wharf::gateway::Gateway;

use crate::support::soon;

/// A caller at one end of a pipe; the gateway is at the other.
pub(crate) struct Caller {
    input: WriteHalf<DuplexStream>,
    output: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
}

impl Caller {
    /// Calls a host through a gateway of its own.
    pub(crate) fn of(host: &Host) -> Self {
        Self::at(Gateway::builder(host.clone()).build().unwrap(), std::future::pending())
    }

    /// Calls through this gateway, until it is told to stop.
    pub(crate) fn at(gateway: Gateway, stop: impl Future<Output = ()> + Send + 'static) -> Self {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let (read, write) = tokio::io::split(far);
        tokio::spawn(async move { gateway.serve_stdio(BufReader::new(read), write, stop).await });
        let (output, input) = tokio::io::split(near);
        Self { input, output: BufReader::new(output).lines() }
    }

    /// Shakes hands in the legacy way, with these capabilities.
    pub(crate) async fn greet(&mut self, capabilities: Value) -> Value {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "t", "version": "1"}});
        self.ask(0, "initialize", params).await;
        let hello = self.next().await;
        self.say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        hello
    }

    pub(crate) async fn ask(&mut self, id: u64, method: &str, params: Value) {
        self.say(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
    }

    pub(crate) async fn say(&mut self, message: Value) {
        self.write(format!("{message}\n").as_bytes()).await;
    }

    /// Writes bytes as they are.
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.input.write_all(bytes).await.unwrap();
    }

    /// Says nothing more, and goes on reading.
    pub(crate) async fn hush(&mut self) {
        self.input.shutdown().await.unwrap();
    }

    /// The next message of the gateway.
    pub(crate) async fn next(&mut self) -> Value {
        self.last().await.expect("the gateway hung up")
    }

    /// The same; `None` if it hung up.
    pub(crate) async fn last(&mut self) -> Option<Value> {
        let line = soon("the gateway says something", self.output.next_line()).await.unwrap();
        line.map(|line| serde_json::from_str(&line).unwrap())
    }
}
