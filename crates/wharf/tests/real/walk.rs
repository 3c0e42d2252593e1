//! The walk that every server is taken on.

use std::time::Duration;

use rustix::process::Pid;
use serde_json::Value;
use tokio::sync::broadcast::Receiver;
use wharf::config::{Remote, ServerConfig, Transport};
use wharf::event::{Event, State};
use wharf::mcp::Era;
use wharf::names::ServerName;
use wharf::policy::Policy;
use wharf::secret::{Secret, SecretUrl};
use wharf::{CallOptions, Error, Host, Outcome};
use wharf_testkit::rmcp_peer_path;

use crate::process::{freeze, kill, python, sandbox, with_variable};

/// What is expected of a server.
pub(crate) struct Expected<'a> {
    pub(crate) era: Era,
    /// Its tools, in its order.
    pub(crate) tools: &'a [&'a str],
    /// A call, and what its answer says.
    pub(crate) good: (&'a str, Value, &'a str),
    /// A call whose arguments do not fit, and the words about it.
    pub(crate) bad: (&'a str, Value, &'a str),
}

/// The name that each test gives its one server.
pub(crate) const SERVER: &str = "real";

/// A server that is started as a program, with a variable by which its process is found.
pub(crate) fn program(command: &str, args: &[&str], mark: &str) -> ServerConfig {
    let mut config = ServerConfig::stdio(name(), command, args.iter().copied());
    config.debug = true;
    if let Transport::Stdio(stdio) = &mut config.transport {
        stdio.env.insert("WHARF_TEST".into(), Secret::new(unique(mark)));
    }
    config
}

/// The value of that variable: tests of several runs at a time must not meet.
fn unique(mark: &str) -> String {
    format!("{mark}-{}", std::process::id())
}

/// An endpoint.
pub(crate) fn endpoint(make: fn(Remote) -> Transport, url: &str) -> ServerConfig {
    let remote = Remote { url: SecretUrl::new(url.parse().unwrap()), headers: Default::default() };
    let mut config = ServerConfig::new(name(), make(remote));
    config.debug = true;
    config
}

fn name() -> ServerName {
    ServerName::parse(SERVER).unwrap()
}

/// A host with one server. Beside the ordinary commands it may start what the tests bring along.
pub(crate) async fn host(server: ServerConfig) -> Host {
    let ours = [python(), rmcp_peer_path().display().to_string()];
    let policy = Policy::strict().with_commands(ours);
    let builder = Host::builder().server(server).policy(policy).environment(std::env::vars());
    builder.sandbox(sandbox()).start().await.unwrap()
}

/// Connect, list, call, call wrongly.
pub(crate) async fn ordinary(host: &Host, expected: &Expected<'_>) {
    let listing = host.tools_of(SERVER).await.unwrap();
    assert!(listing.rejected.is_empty(), "{:?}", listing.rejected);
    let tools: Vec<&str> = listing.snapshot.tools().iter().map(|r| r.tool.name.as_str()).collect();
    assert_eq!(tools, expected.tools);
    let connection = host.berth(SERVER).unwrap().connection().await.unwrap();
    assert_eq!(connection.info().revision.era(), expected.era);

    works(host, expected).await;

    let mut heard = host.events().subscribe();
    let (tool, arguments, words) = &expected.bad;
    let outcome = call(host, tool, arguments).await;
    let error = outcome.into_result().unwrap_err();
    assert!(matches!(error, Error::Arguments { .. }), "{error:?}");
    assert!(error.to_string().contains(words), "{error}");
    while let Ok(event) = heard.try_recv() {
        assert!(!is_call(&event), "a call that does not fit was sent: {event:?}");
    }
}

/// The good call gives the expected answer.
pub(crate) async fn works(host: &Host, expected: &Expected<'_>) {
    let (tool, arguments, answer) = &expected.good;
    let outcome = call(host, tool, arguments).await;
    assert!(outcome.success, "{outcome:?}");
    assert!(outcome.to_text().contains(answer), "{}", outcome.to_text());
}

/// A call is under way, the process is killed: nobody knows whether it ran, and that is what is said.
///
/// The process is frozen first, so that it cannot answer; `arrived` ends when the call has reached it.
pub(crate) async fn killed_in_a_call(
    host: &Host,
    expected: &Expected<'_>,
    pid: Pid,
    arrived: impl Future<Output = ()>,
) {
    let (tool, arguments, _) = &expected.good;
    freeze(pid).await;
    let killing = async {
        arrived.await;
        kill(pid);
    };
    let limit = Duration::from_secs(60);
    let both = async { tokio::join!(call(host, tool, arguments), killing).0 };
    let outcome = tokio::time::timeout(limit, both).await.expect("the call ends when its server is killed");
    let error = outcome.into_result().unwrap_err();
    assert!(matches!(error, Error::UnknownOutcome { .. }), "{error:?}");
    assert!(!error.is_retryable());
}

/// The process is killed while nothing is under way: nobody is told of an error, it is noticed and made good.
async fn killed_between_calls(host: &Host, pid: Pid) {
    let mut heard = host.events().subscribe();
    kill(pid);
    let noticed = async {
        while !matches!(heard.recv().await.unwrap(), Event::State { state: State::Reconnecting, .. }) {}
    };
    tokio::time::timeout(Duration::from_secs(60), noticed).await.expect("the loss of a server is noticed");
}

/// The whole walk for a server that Wharf starts itself. `mark` is what [`program`] was given.
pub(crate) async fn whole(server: ServerConfig, mark: &str, expected: &Expected<'_>) {
    let host = host(server).await;
    ordinary(&host, expected).await;
    let variable = format!("WHARF_TEST={}", unique(mark));
    let first = with_variable(&variable).await;
    let heard = host.events().subscribe();
    killed_in_a_call(&host, expected, first, sent(heard)).await;
    works(&host, expected).await;
    let second = with_variable(&variable).await;
    assert_ne!(second, first, "it was started anew");
    killed_between_calls(&host, second).await;
    works(&host, expected).await;
    host.close().await;
}

pub(crate) async fn call(host: &Host, tool: &str, arguments: &Value) -> Outcome {
    host.call_tool(SERVER, tool, arguments.clone(), CallOptions::default()).await
}

/// Waits until a call has been written to the pipe.
async fn sent(mut heard: Receiver<Event>) {
    while !is_call(&heard.recv().await.unwrap()) {}
}

fn is_call(event: &Event) -> bool {
    matches!(event, Event::Traffic { sent: true, message, .. } if message.raw().contains("tools/call"))
}
