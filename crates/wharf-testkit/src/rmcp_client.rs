//! A client built on rmcp, the official SDK, to test what Wharf serves.
//!
//! In: a command or an address. Out: what rmcp understood of the server behind it. A question by the server is answered
//! with the name Ada.

use std::path::Path;

use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult,
    ElicitationAction, GetPromptRequestParams, Implementation, ProtocolVersion, ReadResourceRequestParams,
};
use rmcp::service::{RequestContext, RoleClient, RunningService};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData};
use serde_json::{Value, json};

/// Which wire the client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// With `initialize`, asking for 2025-11-25.
    Legacy,
    /// With `server/discover`, 2026-07-28.
    Modern,
}

/// A connected client.
#[derive(Debug)]
pub struct RmcpClient(RunningService<RoleClient, Handler>);

/// What rmcp understood.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedAndCalled {
    /// The names of the tools, in their order.
    pub tools: Vec<String>,
    /// The result as rmcp would write it.
    pub result: Value,
}

#[derive(Clone, Debug)]
struct Handler(Wire);

/// Starts a server, lists its tools, calls one, ends it.
///
/// # Panics
/// If rmcp is not content with the server.
pub async fn list_and_call(
    wire: Wire,
    command: &Path,
    args: &[&str],
    tool: &str,
    arguments: Value,
) -> ListedAndCalled {
    let client = RmcpClient::start(wire, command, args).await;
    let tools = client.tools().await;
    let result = client.call(tool, arguments).await.expect("a call that rmcp is content with");
    client.close().await;
    ListedAndCalled { tools, result }
}

// === impl Wire ===

impl Wire {
    fn lifecycle(self) -> ClientLifecycleMode {
        match self {
            Self::Legacy => ClientLifecycleMode::Initialize,
            Self::Modern => {
                ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
            }
        }
    }
}

// === impl RmcpClient ===

impl RmcpClient {
    /// Starts a server and greets it.
    pub async fn start(wire: Wire, command: &Path, args: &[&str]) -> Self {
        let mut command = tokio::process::Command::new(command);
        command.args(args);
        let process = TokioChildProcess::new(command).expect("a command that starts");
        let running = Handler(wire).serve_with_lifecycle(process, wire.lifecycle()).await;
        Self(running.expect("a server that rmcp is content with"))
    }

    /// Greets a server at an address.
    pub async fn over_http(wire: Wire, url: &str) -> Self {
        let transport = StreamableHttpClientTransport::from_uri(url.to_owned());
        let running = Handler(wire).serve_with_lifecycle(transport, wire.lifecycle()).await;
        Self(running.expect("a server that rmcp is content with"))
    }

    /// The names of the tools, in their order.
    pub async fn tools(&self) -> Vec<String> {
        let tools = self.0.list_all_tools().await.expect("a list that rmcp is content with");
        tools.into_iter().map(|t| t.name.into_owned()).collect()
    }

    /// Calls a tool, answering what the server asks; an error is what rmcp says of it.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<Value, String> {
        let mut params = CallToolRequestParams::new(tool.to_owned());
        params.arguments = arguments.as_object().cloned();
        let result = self.0.call_tool(params).await.map_err(|e| e.to_string())?;
        serde_json::to_value(result).map_err(|e| e.to_string())
    }

    /// The addresses of the resources, in their order.
    pub async fn resources(&self) -> Vec<String> {
        let all = self.0.list_all_resources().await.expect("a list that rmcp is content with");
        all.into_iter().map(|resource| resource.uri.clone()).collect()
    }

    /// Reads a resource.
    pub async fn read(&self, uri: &str) -> Result<Value, String> {
        let read = self.0.read_resource(ReadResourceRequestParams::new(uri)).await;
        serde_json::to_value(read.map_err(|e| e.to_string())?).map_err(|e| e.to_string())
    }

    /// The names of the prompts, in their order.
    pub async fn prompts(&self) -> Vec<String> {
        let all = self.0.list_all_prompts().await.expect("a list that rmcp is content with");
        all.into_iter().map(|prompt| prompt.name).collect()
    }

    /// Fills a prompt in.
    pub async fn prompt(&self, name: &str, arguments: Value) -> Result<Value, String> {
        let mut params = GetPromptRequestParams::new(name);
        params.arguments = arguments.as_object().cloned();
        let got = self.0.get_prompt(params).await;
        serde_json::to_value(got.map_err(|e| e.to_string())?).map_err(|e| e.to_string())
    }

    /// Says good-bye.
    pub async fn close(self) {
        let _ = self.0.cancel().await;
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_elicitation().build();
        let mut info = ClientConfig::new(capabilities, Implementation::new("rmcp-client", "1"));
        info.protocol_version = match self.0 {
            Wire::Legacy => ProtocolVersion::V_2025_11_25,
            Wire::Modern => ProtocolVersion::V_2026_07_28,
        };
        info
    }

    async fn create_elicitation(
        &self,
        _request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(json!({"name": "Ada"})))
    }
}
