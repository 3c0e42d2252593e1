//! The tools of every real server, in the form of every provider.

use serde_json::Value;
use wharf::config::ServerConfig;
use wharf::provider::{Compiler, Provider};

use crate::process::{python, reference};
use crate::provider_checker::{problems, sent};
use crate::walk::{SERVER, host, program};

/// Nothing is left out, the judge finds nothing, every name leads back, and what the model may send beyond what the
/// server takes is only what these providers cannot say.
async fn fits_every_provider(server: ServerConfig, at_least: usize) {
    let host = host(server).await;
    let listing = host.tools_of(SERVER).await.unwrap();
    let routes = listing.snapshot.tools();
    assert!(routes.len() >= at_least, "{} tools", routes.len());
    let compiler = Compiler::new();
    for provider in Provider::ALL {
        let compiled = compiler.compile(provider, routes);
        assert!(compiled.left_out.is_empty(), "{provider}: {:?}", compiled.left_out);
        let tools: Value = compiled.tools.to().unwrap();
        assert_eq!(problems(provider, &tools), [""; 0], "{tools}");
        let sent = sent(provider, &tools);
        assert_eq!(sent.len(), routes.len());
        for (sent, route) in sent.iter().zip(routes) {
            assert_eq!(compiled.toolset.route(&sent.name).unwrap().tool.name, route.tool.name);
            let described = route.tool.description.as_ref().map(|d| d.raw()).unwrap_or_default();
            assert!(sent.description.starts_with(described), "{provider}: {}", sent.description);
            properties_stay(provider, &route.tool.input_schema.to().unwrap(), sent.schema.as_ref());
        }
        let full = matches!(
            provider,
            Provider::OpenAiChat
                | Provider::OpenAiResponses
                | Provider::Anthropic
                | Provider::Mistral
                | Provider::Bedrock
        );
        let widened = compiled.losses.iter().flat_map(|tool| tool.losses.iter()).find(|loss| loss.widens);
        assert!(!full || widened.is_none(), "{provider}: {widened:?}");
    }
    host.close().await;
}

/// Every argument is still there, and what was required still is.
fn properties_stay(provider: Provider, original: &Value, sent: Option<&Value>) {
    let names = |schema: &Value| {
        let properties = schema["properties"].as_object().cloned().unwrap_or_default();
        let mut names: Vec<String> = properties.keys().cloned().collect();
        names.sort();
        let mut required: Vec<String> =
            schema["required"].as_array().into_iter().flatten().map(ToString::to_string).collect();
        required.sort();
        (names, required)
    };
    assert_eq!(names(original), names(sent.unwrap_or(&Value::Null)), "{provider}");
}

#[tokio::test]
async fn l71_everything() {
    fits_every_provider(program("node", &[&reference("everything"), "stdio"], "p-everything"), 10).await;
}

#[tokio::test]
async fn l71_filesystem() {
    let folder = tempfile::tempdir().unwrap();
    let allowed = folder.path().canonicalize().unwrap().display().to_string();
    fits_every_provider(program("node", &[&reference("filesystem"), &allowed], "p-filesystem"), 10).await;
}

#[tokio::test]
async fn l71_memory() {
    fits_every_provider(program("node", &[&reference("memory")], "p-memory"), 9).await;
}

#[tokio::test]
async fn l71_sequential_thinking() {
    fits_every_provider(program("node", &[&reference("sequential-thinking")], "p-thinking"), 1).await;
}

#[tokio::test]
async fn l71_git_time_and_fetch() {
    for (module, at_least) in [("mcp_server_git", 10), ("mcp_server_time", 2), ("mcp_server_fetch", 1)] {
        fits_every_provider(program(&python(), &["-m", module], &format!("p-{module}")), at_least).await;
    }
}
