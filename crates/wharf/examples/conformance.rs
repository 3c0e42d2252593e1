//! The client that the conformance suite drives: a host over one address.
//!
//! In: the address as the last argument, the scenario and its context in `MCP_CONFORMANCE_SCENARIO` and
//! `MCP_CONFORMANCE_CONTEXT`. Out: what the scenario wants a client to do, done through the library as any program
//! would; the status is 0 if it went as it should. It judges nothing itself, the suite does.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::expect_used,
    reason = "a driver, not the product"
)]

use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use url::Url;
use wharf::ask::AcceptDefaults;
use wharf::config::{Remote, ServerConfig, Transport};
use wharf::connect::{Page, Request, Visiting, Visitor};
use wharf::host::Listing;
use wharf::names::ServerName;
use wharf::secret::{Secret, SecretUrl};
use wharf::wire::{Json, Members};
use wharf::{CallOptions, Error, Host, Outcome, Result};

const SERVER: &str = "suite";
/// The document that the suite knows.
const DOCUMENT: &str = "https://conformance-test.local/client-metadata.json";
const TIMEOUT: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() -> ExitCode {
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    let Some(address) = std::env::args().nth(1) else {
        eprintln!("usage: conformance ADDRESS");
        return ExitCode::from(2);
    };
    match drive(&scenario, &context, &address).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{scenario}: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn drive(scenario: &str, context: &str, address: &str) -> Result<()> {
    let host = host(scenario, context, address).await?;
    let done = match scenario.starts_with("auth/") {
        true => log_in_and_play(&host, scenario, context).await,
        false => play(&host, scenario, context).await,
    };
    host.close().await;
    done
}

/// Plays, and logs in whenever the server asks for it, as a person would; a few times.
async fn log_in_and_play(host: &Host, scenario: &str, context: &str) -> Result<()> {
    let mut played = play(host, scenario, context).await;
    for _ in 0..5 {
        let Err(Error::Auth { reason, .. }) = &played else { break };
        println!("asked to log in: {reason}");
        let outline = host.login(SERVER, &Somebody, &[]).await?;
        println!("logged in: {outline:?}");
        played = play(host, scenario, context).await;
    }
    played
}

/// Somebody who consents to everything without looking.
struct Somebody;

impl Visitor for Somebody {
    fn returns_to(&self) -> Url {
        Url::parse("http://127.0.0.1:3333/callback").expect("an address")
    }

    fn visit<'a>(&'a self, page: &'a Page) -> Visiting<'a> {
        Box::pin(async move {
            let url = page.url();
            let lost = |error: std::io::Error| Error::Internal(format!("{url}: {error}"));
            let place = (url.host_str().unwrap_or_default(), url.port().unwrap_or(80));
            let mut stream = TcpStream::connect(place).await.map_err(lost)?;
            let wanted = format!("{}?{}", url.path(), url.query().unwrap_or_default());
            let request = format!(
                "GET {wanted} HTTP/1.1\r\nhost: {}:{}\r\nconnection: close\r\n\r\n",
                place.0, place.1
            );
            stream.write_all(request.as_bytes()).await.map_err(lost)?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.map_err(lost)?;
            let location = answer.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("location").then(|| value.trim().to_owned())
            });
            location.map(Secret::new).ok_or_else(|| Error::Internal(format!("{url} leads nowhere")))
        })
    }
}

async fn host(scenario: &str, context: &str, address: &str) -> Result<Host> {
    let url = address.parse().map_err(|e| Error::config(format!("{address}: {e}")))?;
    let name = ServerName::parse(SERVER).map_err(|e| Error::config(e.to_string()))?;
    let remote = Remote { url: SecretUrl::new(url), headers: Default::default() };
    let mut server = ServerConfig::new(name, Transport::Http(remote));
    let context: Value = serde_json::from_str(context).unwrap_or_default();
    server.oauth.client_id = context["client_id"].as_str().map(str::to_owned);
    server.oauth.client_secret = context["client_secret"].as_str().map(Secret::new);
    if scenario == "auth/basic-cimd" {
        server.oauth.client_metadata_url = Url::parse(DOCUMENT).ok();
    }
    Host::builder().server(server).asker(AcceptDefaults).start().await
}

async fn play(host: &Host, scenario: &str, context: &str) -> Result<()> {
    let listing = host.tools_of(SERVER).await?;
    match scenario {
        "tools_call" => call(host, "add_numbers", json!({"a": 5, "b": 3})).await,
        "elicitation-sep1034-client-defaults" => {
            call(host, "test_client_elicitation_defaults", json!({})).await
        }
        "sse-retry" => call(host, "test_reconnection", json!({})).await,
        "sep-2322-client-request-state" => answers(host).await,
        "http-standard-headers" => names(host, &listing).await,
        "http-custom-headers" => given_calls(host, context).await,
        "http-invalid-tool-headers" => all(host, &listing).await,
        "json-schema-2020-12-preservation" => send_back(host, &listing).await,
        other if other.starts_with("auth/") => call(host, "test-tool", json!({})).await,
        // Listing the tools is all they want.
        "initialize" | "request-metadata" | "json-schema-ref-no-deref" => Ok(()),
        other => Err(Error::config(format!("no such scenario: `{other}`"))),
    }
}

async fn call(host: &Host, tool: &str, arguments: Value) -> Result<()> {
    let outcome = host.call_tool(SERVER, tool, arguments, CallOptions::default()).await;
    println!("{tool}: {}", outcome.to_text());
    outcome.into_result().map(drop)
}

/// Calls that ask back run beside one that does not: what one is asked must not reach the other.
async fn answers(host: &Host) -> Result<()> {
    let (with, without, other) = tokio::join!(
        call(host, "test_mrtr_echo_state", json!({})),
        call(host, "test_mrtr_no_state", json!({})),
        call(host, "test_mrtr_unrelated", json!({})),
    );
    with.and(without).and(other)?;
    call(host, "test_mrtr_no_result_type", json!({})).await
}

/// Every tool, every resource, every prompt: each has a name that belongs in a header.
async fn names(host: &Host, listing: &Listing) -> Result<()> {
    all(host, listing).await?;
    for (list, plural, get, key) in [
        ("resources/list", "resources", "resources/read", "uri"),
        ("prompts/list", "prompts", "prompts/get", "name"),
    ] {
        let found: Value = ask(host, list, None).await?.to().map_err(|e| Error::Internal(e.to_string()))?;
        for item in found[plural].as_array().into_iter().flatten() {
            if let Some(name) = item[key].as_str() {
                ask(host, get, Some((key, name))).await?;
            }
        }
    }
    Ok(())
}

async fn ask(host: &Host, method: &str, named: Option<(&'static str, &str)>) -> Result<Json> {
    let mut params = Members::new();
    if let Some((key, name)) = named {
        params.text(key, name);
    }
    let mut request = Request::new(method, params, TIMEOUT);
    request.name = named.map(|(_, name)| name);
    host.berth(SERVER)?.connection().await?.request(request).await
}

/// The calls that the suite writes out. A `null` where the tool wants a boolean is left out: the library refuses
/// arguments that do not fit the tool, and the suite takes a missing value as the same.
async fn given_calls(host: &Host, context: &str) -> Result<()> {
    let context: Value = serde_json::from_str(context).map_err(|e| Error::config(format!("context: {e}")))?;
    for given in context["toolCalls"].as_array().into_iter().flatten() {
        let (Some(tool), Some(arguments)) = (given["name"].as_str(), given["arguments"].as_object()) else {
            return Err(Error::config("a call in the context has no name or no arguments"));
        };
        let fitting: Map<String, Value> =
            arguments.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), v.clone())).collect();
        call(host, tool, Value::Object(fitting)).await?;
    }
    Ok(())
}

/// Calls every tool that was listed, with a text for each argument it needs.
async fn all(host: &Host, listing: &Listing) -> Result<()> {
    for route in listing.snapshot.tools() {
        let schema: Value = route.tool.input_schema.to().map_err(|e| Error::Internal(e.to_string()))?;
        let needed = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let arguments: Map<String, Value> = needed.map(|name| (name.to_owned(), json!("text"))).collect();
        call(host, route.tool.name.as_str(), Value::Object(arguments)).await?;
    }
    for (_, rejected) in &listing.rejected {
        println!("left out `{}`: {}", rejected.name, rejected.reason);
    }
    Ok(())
}

/// Sends a schema back as it came.
async fn send_back(host: &Host, listing: &Listing) -> Result<()> {
    let route = listing.snapshot.find(SERVER, "json_schema_2020_12_tool");
    let schema =
        route.map(|route| &route.tool.input_schema).ok_or_else(|| Error::config("the tool is not listed"))?;
    let mut arguments = Members::new();
    arguments.json("schema", schema);
    let outcome: Outcome =
        host.call_tool(SERVER, "json_schema_echo", arguments.to_json(), CallOptions::default()).await;
    outcome.into_result().map(drop)
}
