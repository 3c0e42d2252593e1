//! A server built on rmcp, the official SDK: somebody else's idea of MCP, to test Wharf's against.
//!
//! In: nothing for standard input and output, `--http` for Streamable HTTP on a free loopback port, which is the first
//! line it prints. Out: a server of both eras with the tools `echo`, `add`, `ask` and `progress`, a resource that changes as
//! soon as somebody watches it, and a prompt whose argument it completes.

use std::sync::Arc;

use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rmcp::handler::server::tool::{InputResponses as ToolInputResponses, RequestState};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult, ContentBlock, ElicitRequest,
    ElicitRequestParams, GetPromptRequestParams, GetPromptResponse, GetPromptResult, InputRequest,
    InputRequests, InputRequiredResult, ListPromptsResult, ListResourcesResult, PaginatedRequestParams,
    ProgressNotificationParam, Prompt, PromptArgument, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, Resource, ResourceContents, ServerCapabilities, ServerConfig,
    SubscriptionFilter,
};
use rmcp::service::{RequestContext, RoleServer, ServiceExt, SubscriptionContext};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, ServerHandler, tool, tool_handler, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// The one resource.
const TIDE: &str = "rmcp://tide";

/// The server.
#[derive(Clone, Copy, Debug, Default)]
struct Peer;

#[derive(Deserialize, JsonSchema)]
struct Echo {
    message: String,
}

#[derive(Deserialize, JsonSchema)]
struct Add {
    a: i64,
    b: i64,
}

#[derive(Deserialize, JsonSchema)]
struct Progress {
    steps: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

rmcp::elicit_safe!(Name);

/// Runs the server of this process's arguments until it ends.
pub fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        if std::env::args().any(|a| a == "--http") {
            serve_http().await;
        } else {
            let running = Peer.serve(rmcp::transport::stdio()).await.expect("a client that begins well");
            let _ = running.waiting().await;
        }
    });
}

#[expect(clippy::print_stdout, reason = "the test reads the port there")]
async fn serve_http() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    println!("{}", listener.local_addr().expect("a listener has an address").port());
    let service = StreamableHttpService::new(
        || Ok(Peer),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    while let Ok((stream, _)) = listener.accept().await {
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

#[tool_router]
impl Peer {
    #[tool(description = "Says a message again")]
    fn echo(&self, Parameters(Echo { message }): Parameters<Echo>) -> String {
        message
    }

    #[tool(description = "Adds two whole numbers")]
    fn add(&self, Parameters(Add { a, b }): Parameters<Add>) -> String {
        a.saturating_add(b).to_string()
    }

    #[tool(description = "Reports its progress step by step")]
    async fn progress(
        &self,
        Parameters(Progress { steps }): Parameters<Progress>,
        context: RequestContext<RoleServer>,
    ) -> String {
        if let Some(token) = context.meta.get_progress_token() {
            for step in 1..=steps {
                let params = ProgressNotificationParam::new(token.clone(), f64::from(step))
                    .with_total(f64::from(steps));
                let _ = context.peer.notify_progress(params).await;
            }
        }
        format!("{steps} steps")
    }

    #[tool(description = "Asks the user for a name")]
    async fn ask(
        &self,
        RequestState(state): RequestState,
        ToolInputResponses(responses): ToolInputResponses,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let modern = context.protocol_version().is_some_and(|v| v >= ProtocolVersion::V_2026_07_28);
        if !modern {
            let name = context.peer.elicit::<Name>("Who are you?").await;
            return Ok(greet(name.ok().flatten().map(|n| n.name)));
        }
        match state.as_deref() {
            None => Ok(question().into()),
            Some("asked") => {
                let name = responses.as_ref().and_then(|r| r.get("name"));
                let name = name.and_then(|r| r["content"]["name"].as_str());
                Ok(greet(name.map(str::to_owned)))
            }
            Some(_) => Err(ErrorData::invalid_params("this state was not given out", None)),
        }
    }
}

#[tool_handler]
impl ServerHandler for Peer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_prompts()
            .enable_completions();
        ServerConfig::new(capabilities.build())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(vec![Resource::new(TIDE, "tide")]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        match request.uri.as_str() {
            TIDE => Ok(ReadResourceResult::new(vec![ResourceContents::text("high", TIDE)]).into()),
            _ => Err(ErrorData::resource_not_found("there is no such resource", None)),
        }
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let _ = context.sink().notify_resource_updated(TIDE).await;
        context.cancelled().await;
        Ok(())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let who = PromptArgument::new("who").with_required(true);
        Ok(ListPromptsResult::with_all_items(vec![Prompt::new("greet", None::<String>, Some(vec![who]))]))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let who = request.arguments.as_ref().and_then(|a| a.get("who")).map(ToString::to_string);
        let text = format!("Greet {}.", who.unwrap_or_default());
        let messages = json!({"messages": [{"role": "user", "content": {"type": "text", "text": text}}]});
        let result: GetPromptResult = serde_json::from_value(messages).expect("a prompt's result");
        Ok(result.into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let values: Vec<&str> =
            ["Ada", "Alan", "Grace"].into_iter().filter(|v| v.starts_with(&request.argument.value)).collect();
        let result = json!({"completion": {"values": values}});
        Ok(serde_json::from_value(result).expect("a completion's result"))
    }
}

fn greet(name: Option<String>) -> CallToolResponse {
    let text = name.map_or_else(|| "Hello, stranger".to_owned(), |name| format!("Hello, {name}"));
    CallToolResult::success(vec![ContentBlock::text(text)]).into()
}

fn question() -> InputRequiredResult {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    let params = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: "Who are you?".to_owned(),
        requested_schema: serde_json::from_value(schema).expect("a schema for a form"),
    };
    let mut requests = InputRequests::new();
    requests.insert("name".to_owned(), InputRequest::Elicitation(ElicitRequest::new(params)));
    InputRequiredResult::new(Some(requests), Some("asked".into()))
}
