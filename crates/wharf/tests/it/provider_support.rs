//! Tools for the tests of providers.

use std::sync::Arc;

use serde_json::{Value, json};
use wharf::config::ServerConfig;
use wharf::mcp::Tool;
use wharf::names::ServerName;
use wharf::provider::{Compiled, Compiler, Loss, Provider, Strict};
use wharf::registry::{NAME_MAX_WIDE, NameRules, Naming, Registry, ServerTools, Snapshot};
use wharf::wire::Json;

use super::provider_checker::{problems, sent};

/// A server's tools, under public names of any length that the registry gives.
pub(crate) fn snapshot(server: &str, tools: Vec<Value>) -> Arc<Snapshot> {
    let registry = Registry::new(NameRules { naming: Naming::Prefixed, max_len: NAME_MAX_WIDE }, []);
    let name = ServerName::parse(server).unwrap();
    let config = Arc::new(ServerConfig::stdio(name, "true", Vec::<String>::new()));
    let tools = tools.into_iter().map(|tool| Arc::new(Tool::read(Json::from(tool)).unwrap())).collect();
    registry.replace(ServerTools { config, tools, fingerprint: [0; 32], ttl: None })
}

pub(crate) fn tool(name: &str, schema: Value) -> Value {
    json!({ "name": name, "description": format!("Does {name}."), "inputSchema": schema })
}

/// A tool with one argument, `x`, that is required.
pub(crate) fn with_argument(schema: Value) -> Value {
    json!({ "type": "object", "properties": { "x": schema }, "required": ["x"] })
}

pub(crate) fn compile(provider: Provider, snapshot: &Snapshot) -> Compiled {
    Compiler::new().compile(provider, snapshot.tools())
}

/// What came of one schema when nobody asks for strict tools: the schema as sent and what it lost, or why it was left out.
pub(crate) fn one(provider: Provider, schema: Value) -> Result<(Value, Vec<Loss>), String> {
    one_with(Strict::Never, provider, schema)
}

pub(crate) fn one_with(
    strict: Strict,
    provider: Provider,
    schema: Value,
) -> Result<(Value, Vec<Loss>), String> {
    let snapshot = snapshot("s", vec![tool("t", schema)]);
    let compiled = Compiler::new().with_strict(strict).compile(provider, snapshot.tools());
    if let Some(left) = compiled.left_out.first() {
        return Err(left.reason.clone());
    }
    let tools = compiled.tools.to::<Value>().unwrap();
    assert_eq!(problems(provider, &tools), [""; 0], "{tools}");
    let schema = sent(provider, &tools).remove(0).schema.unwrap_or_else(|| json!({ "type": "object" }));
    let losses = compiled.losses.first().map(|tool| tool.losses.to_vec()).unwrap_or_default();
    Ok((schema, losses))
}

/// What became of the one argument.
pub(crate) fn argument(provider: Provider, schema: Value) -> (Value, Vec<Loss>) {
    let (schema, losses) = one(provider, with_argument(schema)).unwrap();
    (schema["properties"]["x"].clone(), losses)
}
