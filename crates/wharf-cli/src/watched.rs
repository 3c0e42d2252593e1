//! A gateway that runs, asked how it is.
//!
//! In: its address, and a key if it wants one. Out: what its `/status` says, or why nobody could be asked. It is reached
//! by the same rules as any server: a key does not travel where others can read it.

use std::time::Duration;

use clap::Args;
use http::Request;
use http::header::AUTHORIZATION;
use http_body_util::Full;
use serde_json::Value;
use url::Url;
use wharf::Error;
use wharf::config::{Origin, ServerConfig, Transport};
use wharf::names::ServerName;
use wharf::net::{Endpoint, HttpClient, NetOptions, read_body};
use wharf::secret::Secret;
use wharf::text::Escaped;

use crate::app::App;
use crate::failure::{Failure, Result};

/// Which gateway.
#[derive(Debug, Args)]
pub(crate) struct Where {
    /// Where the gateway is, as `wharf serve` says it
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:7420")]
    url: String,
    /// The variable that holds a key, for a gateway that asks for one
    #[arg(long, value_name = "VARIABLE", default_value = "WHARF_KEY")]
    key_env: String,
}

/// A gateway that can be asked.
#[derive(Debug)]
pub(crate) struct Watched {
    endpoint: Endpoint,
    name: ServerName,
    url: Url,
    key: Option<Secret>,
    patience: Duration,
}

/// The longest answer that is read.
const LONGEST: usize = 16 * 1024 * 1024;
const PATIENCE: Duration = Duration::from_secs(5);

impl Where {
    /// Looks whether it may be reached. Nobody is contacted.
    pub(crate) fn find(&self, app: &App) -> Result<Watched> {
        let name = ServerName::parse("gateway").map_err(|bad| Failure::usage(bad.to_string()))?;
        let bad = || {
            let text = format!("`{}` is no address of a gateway", Escaped(&self.url));
            Failure::usage(text).hint("write it like http://127.0.0.1:7420")
        };
        let mut url = Url::parse(&self.url).map_err(|_| bad())?;
        let path = url.path().trim_end_matches('/');
        let base = path.strip_suffix("/mcp").unwrap_or(path).to_owned();
        url.set_path(&format!("{base}/status"));
        let mut config = ServerConfig::http(name.clone(), url.as_str()).map_err(|_| bad())?;
        let key = app.world.env.get(&self.key_env).filter(|key| !key.is_empty());
        let key = key.map(|key| Secret::new(format!("Bearer {key}")));
        let Transport::Http(remote) = &mut config.transport else { return Err(bad()) };
        if let Some(key) = &key {
            remote.headers.insert("Authorization".into(), key.clone());
        }
        let permit = app.setup()?.policy.permit_connect(&name, remote, &Origin::Given)?;
        let endpoint = HttpClient::new(NetOptions::default())?.for_permit(&permit);
        let patience = app.globals.timeout.unwrap_or(PATIENCE);
        Ok(Watched { endpoint, name, url, key, patience })
    }
}

impl Watched {
    /// How it is.
    pub(crate) async fn status(&self) -> Result<Value> {
        let mut request = Request::get(self.url.as_str());
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key.expose());
        }
        let request = request.body(Full::default()).map_err(|_| Failure::usage("the key is no key"))?;
        let asking = async {
            let answer = self.endpoint.send(request).await?;
            let status = answer.status();
            Ok((status, read_body(answer.into_body(), LONGEST).await?))
        };
        let answered = tokio::time::timeout(self.patience, asking).await;
        let (status, body) = answered
            .map_err(|_| self.silent(&format!("no answer within {} s", self.patience.as_secs())))?
            .map_err(|error: wharf::net::NetError| match error.into_error(&self.name, "http") {
                Error::Connection { reason, .. } => self.silent(&reason),
                error => Failure::from(error),
            })?;
        let said = || Escaped(String::from_utf8_lossy(&body).trim()).to_string();
        match status.as_u16() {
            200 => serde_json::from_slice(&body).map_err(|_| self.no_gateway()),
            401 | 403 => {
                let hint = "put a caller's key into WHARF_KEY; see `operators` in `[gateway]`";
                Err(Failure::from(Error::Auth { server: self.name.clone(), reason: said() }).hint(hint))
            }
            _ => Err(self.no_gateway()),
        }
    }

    /// Nobody is there, or does not answer.
    fn silent(&self, why: &str) -> Failure {
        let mut at = self.url.clone();
        at.set_path("");
        let at = at.as_str().trim_end_matches('/');
        Failure::unreachable(format!("no gateway answers at {}: {}", Escaped(at), Escaped(why))).hint(
            "is `wharf serve` running? Its first line says where it listens; give that address: \
             wharf status http://127.0.0.1:PORT",
        )
    }

    fn no_gateway(&self) -> Failure {
        Failure::general(format!(
            "what answers at {} is no gateway that tells how it is",
            Escaped(self.url.as_str())
        ))
    }
}
