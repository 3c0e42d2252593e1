//! What the tests share: a host over puppets, and ways to wait for what another process does.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::broadcast;
use wharf::Error;
use wharf::config::{Origin, ServerConfig};
use wharf::event::{Event, State};
use wharf::host::{CallOptions, HostBuilder};
use wharf::names::ServerName;
use wharf::outcome::Outcome;
use wharf::{Host, policy::Policy};
use wharf_testkit::{Puppet, Step, held_path, puppet_path};

/// A server that is a puppet with this script.
pub(crate) fn puppet(name: &str, script: &Puppet) -> ServerConfig {
    let path = puppet_path().display().to_string();
    let mut config = ServerConfig::stdio(ServerName::parse(name).unwrap(), path, script.args());
    config.origin = Origin::Given;
    config
}

/// A builder that may start puppets and nothing else out of the ordinary.
pub(crate) fn builder() -> HostBuilder {
    let policy = Policy::strict().with_sandbox(false).with_commands([puppet_path().display().to_string()]);
    Host::builder().policy(policy).environment(std::env::vars())
}

/// A builder whose hosts lose patience soon: what is killed is killed after a moment, what is lost comes back at once.
pub(crate) fn quick() -> HostBuilder {
    builder().grace(Duration::from_millis(200)).retry_pause(Duration::from_millis(10))
}

/// A host in a process of its own, to be killed: with this puppet, and temporary files in this folder. It is ready.
pub(crate) fn held(script: &Puppet, scratch: &Path) -> Child {
    let mut held = Command::new(held_path())
        .arg(puppet_path())
        .args(script.args())
        .env("TMPDIR", scratch)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(held.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "ready");
    held
}

/// A host with these servers.
pub(crate) async fn host(servers: impl IntoIterator<Item = ServerConfig>) -> Host {
    builder().servers(servers).start().await.unwrap()
}

/// A host with one puppet, named `pup`, that loses patience soon.
pub(crate) async fn pup(script: &Puppet) -> Host {
    quick().server(puppet("pup", script)).start().await.unwrap()
}

/// A folder for the files by which a test and a puppet tell each other things.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// How long anything may take before the test is lost. Long, because machines that run tests are slow.
const LONG: Duration = Duration::from_secs(60);

/// Looks again and again until it is so.
pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let looking = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    };
    assert!(tokio::time::timeout(LONG, looking).await.is_ok(), "it never came to this: {what}");
}

/// Waits for something that must end.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.unwrap_or_else(|_| panic!("this did not end: {what}"))
}

/// Puts the clock forward; then it goes on as before.
pub(crate) async fn later(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// The number in a file, when it is there.
pub(crate) async fn pid_in(file: &Path) -> u32 {
    until("a process id is written", || file.exists()).await;
    std::fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

/// Whether a process is there and not a zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// What reached a puppet: the messages of its log.
pub(crate) fn received(log: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// How many of these messages have that method.
pub(crate) fn count(messages: &[Value], method: &str) -> usize {
    messages.iter().filter(|m| m["method"] == method).count()
}

/// How many bytes a file has: side effects of a puppet.
pub(crate) fn effects(file: &Path) -> u64 {
    file.metadata().map_or(0, |meta| meta.len())
}

/// Options with these limits.
pub(crate) fn within(timeout: Duration, hard: Option<Duration>) -> CallOptions<'static> {
    CallOptions { timeout: Some(timeout), hard_timeout: hard, ..CallOptions::default() }
}

/// Calls `pup_echo` with nothing, which must end.
pub(crate) async fn echo(host: &Host) -> Outcome {
    soon("a call", host.call("pup_echo", serde_json::json!({}))).await
}

/// The error of an outcome that has one.
pub(crate) fn error(outcome: &Outcome) -> &Error {
    outcome.error.as_deref().unwrap_or_else(|| panic!("an error was expected: {outcome:?}"))
}

/// An answer that is no honest one, once; then honest ones.
pub(crate) fn once(step: Step) -> Vec<Step> {
    vec![Step::Turns(vec![vec![step], vec![Step::Honest]])]
}

/// The next state that is told, with its reason.
pub(crate) async fn next_state(events: &mut broadcast::Receiver<Event>) -> (State, String) {
    soon("a change of state", async {
        loop {
            match events.recv().await {
                Ok(Event::State { state, reason, .. }) => return (state, reason.unwrap_or_default()),
                Ok(_) => {}
                Err(e) => panic!("no more events: {e}"),
            }
        }
    })
    .await
}

/// A file in a folder.
pub(crate) fn at(folder: &TempDir, name: &str) -> PathBuf {
    folder.path().join(name)
}
