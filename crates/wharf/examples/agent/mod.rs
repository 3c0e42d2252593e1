//! What the three agents share: the question and the servers from the command line, a provider's address and key from
//! the environment, and one way to ask it. The loop itself is in each agent, in full.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use http::Request;
use http_body_util::Full;
use serde::Serialize;
use wharf::config::{self, Origin, Remote, ServerConfig, Sources};
use wharf::names::ServerName;
use wharf::net::{Endpoint, HttpClient, NetOptions, read_body};
use wharf::policy::Policy;
use wharf::provider::{Answer, Stop};
use wharf::sandbox::Sandbox;
use wharf::secret::{Secret, SecretUrl};
use wharf::text::{Escaped, EscapedLines};
use wharf::wire::Json;
use wharf::{Host, host::Listing};

pub(crate) type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// How often a model may call tools before the agent gives up.
pub(crate) const TURNS: usize = 20;
/// How long a model may think.
const PATIENCE: Duration = Duration::from_secs(600);
/// The longest answer.
const ANSWER_MAX: usize = 16 * 1024 * 1024;

/// A model provider: where it is, and who we are there.
pub(crate) struct Model {
    /// Its name there.
    pub(crate) name: String,
    base: String,
    endpoint: Endpoint,
    headers: Vec<(&'static str, Secret)>,
}

/// Docks the servers, lets the agent answer the question that is the first argument, and closes everything again.
pub(crate) fn run(answer: impl AsyncFn(&Host, &str) -> Result<String>) -> ExitCode {
    // Servers run in a sandbox, and what prepares it is this program, started once more.
    if let Some(code) = wharf::sandbox::stage(std::env::args_os()) {
        return code;
    }
    match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime.block_on(work(answer)),
        Err(error) => finish(Err(error.into())),
    }
}

async fn work(answer: impl AsyncFn(&Host, &str) -> Result<String>) -> ExitCode {
    let Some(question) = std::env::args().nth(1) else {
        return finish(Err("usage: agent-… QUESTION [CONFIG]".into()));
    };
    match dock().await {
        Ok(host) => {
            let answered = answer(&host, &question).await;
            host.close().await;
            finish(answered)
        }
        Err(error) => finish(Err(error)),
    }
}

/// A host with the servers of the file that is the second argument; without one, with Wharf's own demo server.
async fn dock() -> Result<Host> {
    let sandbox = Sandbox::new(std::env::current_exe()?);
    let builder = Host::builder().environment(std::env::vars()).sandbox(sandbox);
    let builder = match std::env::args().nth(2) {
        Some(file) => {
            let env = std::env::vars().collect();
            let config = config::load(&Sources { explicit: vec![file.into()], env, ..Sources::default() })?;
            builder.policy(Policy::from(&config.policy)).servers(config.servers.into_values())
        }
        None => {
            let demo = ServerConfig::stdio(ServerName::parse("demo")?, "wharf", ["test-server"]);
            builder.policy(Policy::strict().with_commands(["wharf"])).server(demo)
        }
    };
    Ok(builder.start().await?)
}

/// What the servers offer. Those that fail are reported; the agent works with the rest.
pub(crate) async fn tools(host: &Host) -> Listing {
    let listing = host.tools().await;
    for (_, error) in &listing.failed {
        eprintln!("{}", EscapedLines(&error.to_string()));
    }
    listing
}

/// What a model said at last.
pub(crate) fn said(answer: &Answer) -> Result<String> {
    match &answer.stop {
        Stop::Done => Ok(answer.text.lines().to_string()),
        stop => Err(format!("the model stopped early ({stop:?}): {}", answer.text.lines()).into()),
    }
}

/// Prints the answer, or what went wrong and what to do about it.
fn finish(answered: Result<String>) -> ExitCode {
    let error = match answered {
        Ok(answer) => {
            println!("{answer}");
            return ExitCode::SUCCESS;
        }
        Err(error) => error,
    };
    eprintln!("error: {}", EscapedLines(&error.to_string()));
    if let Some(hint) = error.downcast_ref::<wharf::Error>().and_then(wharf::Error::hint) {
        eprintln!("hint: {}", EscapedLines(&hint));
    }
    ExitCode::FAILURE
}

/// A variable that must be set.
pub(crate) fn variable(name: &str) -> Result<String> {
    std::env::var(name).map_err(|_| format!("set {name}").into())
}

impl Model {
    /// The provider at the address in `{PREFIX}_BASE_URL` or at its usual one, and the model in `{PREFIX}_MODEL`.
    pub(crate) fn new(prefix: &str, usual: &str, headers: Vec<(&'static str, Secret)>) -> Result<Self> {
        let base = std::env::var(format!("{prefix}_BASE_URL")).unwrap_or_else(|_| usual.into());
        let base = base.trim_end_matches('/').to_owned();
        // The same rules as for servers: names resolved once, no redirects elsewhere, no plain http but on loopback.
        let remote = Remote { url: SecretUrl::new(base.parse()?), headers: Default::default() };
        let permit =
            Policy::strict().permit_connect(&ServerName::parse("provider")?, &remote, &Origin::Given)?;
        let endpoint = HttpClient::new(NetOptions::default())?.for_permit(&permit);
        Ok(Self { name: variable(&format!("{prefix}_MODEL"))?, base, endpoint, headers })
    }

    /// Sends a request and reads the answer.
    pub(crate) async fn ask(&self, path: &str, body: &impl Serialize) -> Result<Json> {
        let mut request =
            Request::post(format!("{}{path}", self.base)).header("content-type", "application/json");
        for (name, value) in &self.headers {
            request = request.header(*name, value.expose());
        }
        let request = request.body(Full::from(serde_json::to_vec(body)?))?;
        let asking = async {
            let response = self.endpoint.send(request).await?;
            let status = response.status();
            Ok::<_, wharf::net::NetError>((status, read_body(response.into_body(), ANSWER_MAX).await?))
        };
        let (status, body) = tokio::time::timeout(PATIENCE, asking).await??;
        if !status.is_success() {
            let said: String = String::from_utf8_lossy(&body).chars().take(500).collect();
            return Err(format!("the provider answered {status}: {}", Escaped(&said)).into());
        }
        Ok(Json::parse(body, 127)?)
    }
}
