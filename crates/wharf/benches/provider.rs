//! What it costs to put 1,000 tools into a provider's form, the first time and from the cache.
//!
//! `cargo bench -p wharf --bench provider`. The tools are of the kinds that servers really have: a few plain arguments,
//! nested objects with lists, and what Pydantic and Zod write.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark, not the product")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wharf::config::ServerConfig;
use wharf::mcp::Tool;
use wharf::names::ServerName;
use wharf::provider::{Compiler, Provider};
use wharf::registry::{NameRules, Registry, ServerTools, Snapshot};
use wharf::wire::Json;

const TOOLS: usize = 1_000;
const ROUNDS: usize = 15;

fn main() {
    let snapshot = snapshot();
    let bytes: usize = snapshot.tools().iter().map(|route| route.tool.raw.bytes().len()).sum();
    println!("{TOOLS} tools, {} KiB as their servers wrote them", bytes / 1024);
    println!("{:<18} {:>12} {:>12} {:>8} {:>10} {:>8}", "form", "first", "again", "ratio", "KiB", "tools");
    for provider in Provider::ALL {
        let (mut first, mut again) = (Duration::MAX, Duration::MAX);
        let (mut sent, mut count) = (0, 0);
        for _ in 0..ROUNDS {
            let compiler = Compiler::new();
            first = first.min(time(&compiler, provider, &snapshot));
            again = again.min(time(&compiler, provider, &snapshot));
            let compiled = compiler.compile(provider, snapshot.tools());
            (sent, count) = (compiled.tools.bytes().len() / 1024, compiled.toolset.len());
        }
        let ratio = first.as_secs_f64() / again.as_secs_f64();
        println!("{:<18} {first:>12.1?} {again:>12.1?} {ratio:>8.1} {sent:>10} {count:>8}", provider.name());
    }
}

fn time(compiler: &Compiler, provider: Provider, snapshot: &Snapshot) -> Duration {
    let started = Instant::now();
    black_box(compiler.compile(provider, snapshot.tools()));
    started.elapsed()
}

fn snapshot() -> Arc<Snapshot> {
    let registry = Registry::new(NameRules::default(), []);
    let name = ServerName::parse("bench").unwrap();
    let config = Arc::new(ServerConfig::stdio(name, "true", Vec::<String>::new()));
    let tool = |i: usize| {
        let definition = json!({
            "name": format!("tool_{i}"),
            "description": "Searches the issues of a repository and returns those that match, newest first.",
            "inputSchema": schema(i),
        });
        Arc::new(Tool::read(Json::from(definition)).unwrap())
    };
    registry.replace(ServerTools {
        config,
        tools: (0..TOOLS).map(tool).collect(),
        fingerprint: [0; 32],
        ttl: None,
    })
}

fn schema(i: usize) -> Value {
    match i % 4 {
        0 => json!({"type": "object", "required": ["owner", "repo"], "properties": {
            "owner": {"type": "string", "description": "The owner of the repository"},
            "repo": {"type": "string", "description": "Its name", "minLength": 1},
            "page": {"type": "integer", "minimum": 1, "default": 1},
            "state": {"type": "string", "enum": ["open", "closed", "all"]},
        }}),
        // As Zod writes it.
        1 => {
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": false, "required": ["edits"], "properties": {
                "edits": {"type": "array", "minItems": 1, "items": {"type": "object", "additionalProperties": false, "required": ["old", "new"], "properties": {
                    "old": {"type": "string"}, "new": {"type": "string"}, "count": {"type": "integer", "exclusiveMinimum": 0},
                }}},
                "mode": {"anyOf": [{"const": "dry"}, {"const": "real"}]},
            }})
        }
        // As Pydantic writes it.
        2 => json!({"type": "object", "title": "Arguments", "required": ["query"], "properties": {
            "query": {"title": "Query", "type": "string"},
            "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": null, "title": "Limit"},
            "filter": {"anyOf": [{"$ref": "#/$defs/Filter"}, {"type": "null"}], "default": null},
            "order": {"allOf": [{"$ref": "#/$defs/Order"}], "default": "new"},
        }, "$defs": {
            "Filter": {"type": "object", "title": "Filter", "properties": {"label": {"type": "string"}, "order": {"$ref": "#/$defs/Order"}}},
            "Order": {"type": "string", "enum": ["new", "old"]},
        }}),
        _ => json!({"type": "object"}),
    }
}
