//! The converser's design: clients, discovery into ensembles, invokers beside local ones.

use std::time::Duration;

use serde_json::json;
use wharf::config::{Remote, ServerConfig, Transport};
use wharf::host::{Ensemble, NoArguments};
use wharf::names::ServerName;
use wharf::provider::{Part, Provider};
use wharf::registry::Route;
use wharf::secret::{Secret, SecretUrl};
use wharf::{CallOptions, Error, Host, LocalTool};
use wharf_testkit::http::honest_modern;
use wharf_testkit::{HttpPuppet, Puppet, Step};

use super::model::Model;
use super::{Shelf, filesystem, program, stdio, text, tool, with_env};
use crate::support::{at, error, folder, is_alive, pid_in, soon};

fn weather() -> Puppet {
    Puppet::new()
        .tool(tool("get_weather", "The weather now", &["*city"]))
        .tool(tool("get_forecast", "The weather to come", &["*city"]))
        .on("tool:get_weather", [text("Sunny in NYC")])
}

fn weather_client(shelf: &Shelf) -> ServerConfig {
    let mut config = program("mcp-weather", &["python", "-m", "weather_mcp_server"]);
    stdio(&mut config).cwd = Some(shelf.folder());
    config
}

fn http_client(name: &str, server: &HttpPuppet, token: &str) -> ServerConfig {
    let headers = [("Authorization".to_owned(), Secret::new(token))].into();
    let remote = Remote { url: SecretUrl::new(server.url().parse().unwrap()), headers };
    ServerConfig::new(ServerName::parse(name).unwrap(), Transport::Http(remote))
}

fn invokers(ensemble: &Ensemble) -> Vec<&str> {
    ensemble.tools().map(|tool| tool.name.as_str()).collect()
}

/// The tools of these ensembles and of nobody else.
fn of(host: &Host, ensembles: &[&Ensemble]) -> Vec<Route> {
    let is_one = |route: &&Route| ensembles.iter().any(|ensemble| route.is_of(&ensemble.config().name));
    host.snapshot().tools().iter().filter(is_one).cloned().collect()
}

#[tokio::test]
async fn connection_configuration() {
    let shelf = Shelf::with(&[("weather_mcp_server", weather())])
        .and("WEATHER_API_KEY", "weather-0123456789")
        .and("DATABASE_TOKEN", "database-0123456789");
    let config = shelf.config(
        "wharf.toml",
        r#"
        [mcp.weather]
        transport = "stdio"
        command = ["python", "-m", "weather_mcp_server"]
        cwd = "."
        environment = {WEATHER_API_KEY = "env:WEATHER_API_KEY"}

        [mcp.database]
        transport = "http"
        url = "http://localhost:8080/mcp"
        headers = {Authorization = "env:DATABASE_TOKEN"}
        "#,
    );
    let mut weather = config.servers["weather"].clone();
    assert_eq!(stdio(&mut weather).env["WEATHER_API_KEY"].expose(), "weather-0123456789");
    let Transport::Http(remote) = &config.servers["database"].transport else { panic!("it is an address") };
    assert_eq!(remote.headers["Authorization"].expose(), "database-0123456789");
    let host = shelf.builder().server(weather).start().await.unwrap();
    assert_eq!(invokers(&host.ensemble("weather").await.unwrap()), ["get_weather", "get_forecast"]);
    host.close().await;
}

#[tokio::test]
async fn complete_flow_example() {
    let files = folder();
    let pid = at(&files, "pid");
    let shelf = Shelf::with(&[("weather_mcp_server", weather().pid(&pid))]);
    let host = shelf.builder().server(weather_client(&shelf)).start().await.unwrap();
    // Discover the tools, as an ensemble.
    let ensemble = host.ensemble("mcp-weather").await.unwrap();
    assert_eq!(invokers(&ensemble), ["get_weather", "get_forecast"], "by their own names");
    assert_eq!(ensemble.config().name.as_str(), "mcp-weather");
    assert!(ensemble.connection().is_open());
    // The model asks for a tool, which is found and called.
    let invoker = ensemble.tool("get_weather").unwrap();
    let result = invoker.call(json!({"city": "NYC"})).await;
    assert_eq!(result.to_text(), "Sunny in NYC");
    assert!(ensemble.tool("get_tides").is_none());
    // Cleanup.
    ensemble.disconnect().await.unwrap();
    assert!(!is_alive(pid_in(&pid).await) && !ensemble.connection().is_open());
}

#[tokio::test]
async fn invoker_adapter_pattern_beside_local_tools() {
    let shelf = Shelf::with(&[("weather_mcp_server", weather())]);
    let host = shelf.builder().server(weather_client(&shelf)).start().await.unwrap();
    let clock = LocalTool::new("clock", "The time", async |_: NoArguments, _| Ok::<_, String>("noon"));
    host.register(clock).unwrap();
    let schema = host.find("mcp-weather", "get_weather").await.unwrap().tool.input_schema.clone();
    assert!(schema.as_str().contains("city"), "the server's schema is the invoker's");
    for (server, name, arguments, said) in [
        ("mcp-weather", "get_weather", json!({"city": "NYC"}), "Sunny in NYC"),
        ("local", "clock", json!({}), "noon"),
    ] {
        let invoker = host.callable(server, name).await.unwrap();
        assert_eq!(invoker.call(arguments).await.to_text(), said, "the same way for both");
    }
    host.close().await;
}

#[tokio::test]
async fn error_handling() {
    let script = weather()
        .tool(tool("fails", "", &[]))
        .tool(tool("slow", "", &[]))
        .tool(tool("babbles", "", &[]))
        .on("tool:fails", [Step::ReplyError { code: 1, message: "no station".into(), data: None }])
        .on("tool:slow", [Step::Hang])
        .on("tool:babbles", [Step::Raw(r#"{"jsonrpc":"2.0","id":$ID,"result":7}"#.into())]);
    let shelf = Shelf::with(&[("weather_mcp_server", script)]);
    let config = weather_client(&shelf);
    let mut unreachable = program("unreachable", &["python", "-m", "nobody"]);
    stdio(&mut unreachable).cwd = Some(shelf.folder());
    let host = shelf.builder().servers([config, unreachable]).start().await.unwrap();
    // Whatever goes wrong is a result that says so, and never the end of the conversation.
    assert!(matches!(host.ensemble("unreachable").await, Err(Error::Connection { .. })));
    for (tool, kind) in [("fails", "tool"), ("slow", "timeout"), ("babbles", "protocol")] {
        // Only the one that never answers is hurried.
        let hurry = (tool == "slow").then_some(Duration::from_millis(50));
        let options = CallOptions { timeout: hurry, ..CallOptions::default() };
        let outcome = soon("a call", host.call_tool("mcp-weather", tool, json!({}), options)).await;
        assert_eq!(error(&outcome).kind(), kind);
        assert!(outcome.reason.is_some_and(|reason| reason.contains("mcp-weather")));
    }
    assert!(host.call("mcp-weather_get_weather", json!({"city": "NYC"})).await.success);
    host.close().await;
}

#[tokio::test]
async fn example_1_stdio_mcp_server() {
    let shelf = Shelf::with(&[("@modelcontextprotocol/server-filesystem", filesystem())]);
    let config = program("mcp-filesystem", &["npx", "-y", "@modelcontextprotocol/server-filesystem"]);
    let config = with_env(config, "ALLOWED_PATHS", "/data,/tmp");
    let host = shelf.builder().server(config).start().await.unwrap();
    assert_eq!(invokers(&host.ensemble("mcp-filesystem").await.unwrap()), ["read_file", "write_file"]);
    host.close().await;
}

#[tokio::test]
async fn example_2_http_mcp_server() {
    let server = HttpPuppet::start(honest_modern(vec![tool("query", "Query", &["*sql"])]));
    let host = Host::builder()
        .server(http_client("mcp-api", &server, "Bearer token-0123456789"))
        .start()
        .await
        .unwrap();
    let ensemble = host.ensemble("mcp-api").await.unwrap();
    assert!(ensemble.call("query", json!({"sql": "select 1"})).await.success);
    assert_eq!(server.requests()[0].header("authorization"), Some("Bearer token-0123456789"));
    host.close().await;
}

#[tokio::test]
async fn example_3_multiple_mcp_servers() {
    let database = HttpPuppet::start(honest_modern(vec![tool("read_file", "A row, really", &["*path"])]));
    let shelf = Shelf::with(&[
        ("weather_mcp_server", weather()),
        ("@modelcontextprotocol/server-filesystem", filesystem()),
    ]);
    let files = program("mcp-filesystem", &["npx", "-y", "@modelcontextprotocol/server-filesystem"]);
    let servers =
        [weather_client(&shelf), files, http_client("mcp-database", &database, "secret-0123456789")];
    let host = shelf.builder().servers(servers).start().await.unwrap();
    let mut ensembles = Vec::new();
    for name in ["mcp-weather", "mcp-filesystem", "mcp-database"] {
        ensembles.push(host.ensemble(name).await.unwrap());
    }
    // Two servers have a tool of one name, and each ensemble means its own.
    for ensemble in &ensembles[1..] {
        let outcome = ensemble.call("read_file", json!({"path": "/x"})).await;
        assert_eq!(outcome.server.as_ref(), Some(&ensemble.config().name));
    }
    for ensemble in &ensembles {
        ensemble.disconnect().await.unwrap();
        assert!(!ensemble.connection().is_open());
    }
}

#[tokio::test]
async fn complete_flow_example_in_a_conversation() {
    let shelf = Shelf::with(&[("weather_mcp_server", weather())]);
    let host = shelf.builder().server(weather_client(&shelf)).start().await.unwrap();
    let weather = host.ensemble("mcp-weather").await.unwrap();
    let invoked = weather.tool("get_weather").unwrap().public_name().to_owned();
    for name in ["gpt-5", "claude-opus-4-5", "gemini-2.5-pro"] {
        let mut model = Model::named(name)
            .calls(&[("c1", &invoked, json!({"city": "NYC"})), ("c2", &invoked, json!({"town": "NYC"}))])
            .says("It is sunny in New York.");
        let tools = of(&host, &[&weather]);
        let conversation = model.converse(&host, &tools, "What's the weather in NYC?");
        assert_eq!(soon("a conversation", conversation).await, "It is sunny in New York.");
        assert_eq!(model.heard[0]["role"], "user", "{name}");
        // What the tools came to, in a message that is no provider's own.
        let [sunny, wrong] = &model.results[..] else { panic!("{name}: {:?}", model.results) };
        assert_eq!((sunny.call_id.as_deref(), sunny.name.as_str()), (Some("c1"), invoked.as_str()));
        let (server, tool) = sunny.tool.as_ref().unwrap();
        assert_eq!((server.as_str(), tool.as_str()), ("mcp-weather", "get_weather"));
        assert_eq!(sunny.arguments.as_ref().unwrap().as_str(), r#"{"city":"NYC"}"#);
        assert_eq!((sunny.is_error, &sunny.parts[..]), (false, &[Part::Text("Sunny in NYC".into())][..]));
        assert!(wrong.is_error && wrong.to_text().contains("city"), "{wrong:?}");
        // And the same message in any provider's words, whoever the model is.
        for provider in Provider::ALL {
            let words = provider.messages(std::slice::from_ref(sunny));
            assert!(words[0].as_str().contains("Sunny in NYC"), "{provider}: {words:?}");
        }
    }
    weather.disconnect().await.unwrap();
    host.close().await;
}

#[tokio::test]
async fn example_3_all_ensembles_in_one_conversation() {
    let database = HttpPuppet::start(honest_modern(vec![tool("query", "Query", &["*sql"])]));
    let shelf = Shelf::with(&[
        ("weather_mcp_server", weather()),
        ("@modelcontextprotocol/server-filesystem", filesystem()),
    ]);
    let files = program("mcp-filesystem", &["npx", "-y", "@modelcontextprotocol/server-filesystem"]);
    let servers =
        [weather_client(&shelf), files, http_client("mcp-database", &database, "secret-0123456789")];
    let host = shelf.builder().servers(servers).start().await.unwrap();
    let weather = host.ensemble("mcp-weather").await.unwrap();
    let files = host.ensemble("mcp-filesystem").await.unwrap();
    let database = host.ensemble("mcp-database").await.unwrap();
    let all = [&weather, &files, &database];
    let public = |ensemble: &Ensemble, tool: &str| ensemble.tool(tool).unwrap().public_name().to_owned();
    let (sky, file, rows) =
        (public(&weather, "get_weather"), public(&files, "read_file"), public(&database, "query"));
    let calls = [
        ("c1", sky.as_str(), json!({"city": "NYC"})),
        ("c2", &file, json!({"path": "/data/notes"})),
        ("c3", &rows, json!({"sql": "select 1"})),
    ];
    let mut model = Model::named("claude-opus-4-5").calls(&calls).says("All three answered.");
    assert_eq!(model.converse(&host, &of(&host, &all), "Ask everyone").await, "All three answered.");
    assert_eq!(model.tools.as_array().unwrap().len(), 5, "{}", model.tools);
    assert!(model.results.iter().all(|result| !result.is_error), "{:?}", model.results);
    let servers: Vec<&str> = model.results.iter().map(|r| r.tool.as_ref().unwrap().0.as_str()).collect();
    assert_eq!(servers, ["mcp-weather", "mcp-filesystem", "mcp-database"]);
    // An ensemble that is not in the conversation cannot be called from it.
    let mut model = Model::named("claude-opus-4-5").calls(&calls[2..]).says("No.");
    model.converse(&host, &of(&host, &[&weather]), "Ask the database").await;
    assert!(model.results[0].is_error && model.results[0].tool.is_none(), "{:?}", model.results);
    for ensemble in all {
        ensemble.disconnect().await.unwrap();
        assert!(!ensemble.connection().is_open());
    }
}
