//! Finding out which era a server speaks, and shaking hands in it.
//!
//! The order of `server/discover` and `initialize`, what each kind of answer means, and when to start a server anew,
//! follow the specification's rules for clients that speak both eras.

use std::time::{Duration, SystemTime};

use serde::Deserialize;
use tokio::time::Instant;

use super::company::Meta;
use super::connection::{Connection, Ended, Request, Wire};
use super::era::Verdict;
use super::inbox::Failure;
use super::link::LinkFailure;
use crate::error::{Error, Result, StderrTail};
use crate::mcp::{Era, Implementation, Revision, ServerInfo, code, meta, method};
use crate::text::Foreign;
use crate::wire::{self, Json, Members};

/// What a client says of itself.
#[derive(Clone, Debug)]
pub(super) struct Introduction {
    /// The protocol's `ClientCapabilities`.
    pub(super) capabilities: Json,
    /// The same for a legacy server.
    pub(super) legacy_capabilities: Json,
    /// Name and version of the program.
    pub(super) info: Json,
    /// When the server must be ready.
    pub(super) deadline: Instant,
    /// How long that was from the start.
    pub(super) time: Duration,
}

/// What the probe showed.
pub(super) enum Probe {
    /// It speaks the modern era, and this is what it said.
    Modern(ServerInfo),
    /// It answered as a legacy server does. Worth remembering.
    Legacy,
    /// It did not answer, or nothing that can be understood. Treated as legacy, not remembered.
    Silent,
    /// It went away: some servers leave at the first word they do not know. It must be started anew.
    Gone,
}

/// A handshake that failed.
pub(super) struct Turned {
    pub(super) error: Error,
    /// The server did not know the question, as opposed to having no answer.
    pub(super) refused: bool,
}

/// How much of the time to be ready a probe may take: a server that ignores it still has to shake hands.
const PROBE_SHARE: u32 = 3;
/// Slow interpreters need seconds to say their first word.
const PROBE_AT_LEAST: Duration = Duration::from_secs(10);

/// Asks a server which era it speaks.
pub(super) async fn probe(wire: &Wire, intro: &Introduction) -> Result<Probe> {
    let left = intro.deadline.saturating_duration_since(Instant::now());
    let time = (left / PROBE_SHARE).max(PROBE_AT_LEAST).min(left * 2 / 3);
    let mut ended = discover(wire, intro, Revision::NEWEST_MODERN, time).await;
    if let Some(revision) = offered_instead(&ended) {
        wire.link.agreed(revision);
        ended = discover(wire, intro, revision, time).await;
    }
    if let Some(revision) = offered_instead(&ended) {
        let reason = format!("it refuses the revisions that it offers itself, {revision} among them");
        return Err(Error::Protocol {
            server: wire.server.clone(),
            reason,
            sent: false,
            stderr: wire.link.stderr(),
        });
    }
    match ended {
        Ended::Answer(Ok(result)) => read_discover(wire, &result),
        Ended::Answer(Err(Failure::Rpc(rpc))) if rpc.code == code::UNSUPPORTED_VERSION => {
            match supported(rpc.data.as_ref()) {
                versions if versions.iter().any(|v| Revision::parse(v).is_some()) => Ok(Probe::Legacy),
                versions => Err(unknown_versions(wire, &versions)),
            }
        }
        Ended::Answer(Err(Failure::Rpc(rpc))) if code::is_modern(rpc.code) => {
            let reason = format!("it refused `server/discover`: {rpc}");
            Err(Error::Protocol {
                server: wire.server.clone(),
                reason,
                sent: false,
                stderr: wire.link.stderr(),
            })
        }
        // Any other error is how a server of the older era says that it does not know the question.
        Ended::Answer(Err(Failure::Rpc(_))) => Ok(Probe::Legacy),
        // It said something, but nothing that says what it is.
        Ended::Answer(Err(Failure::Malformed(_))) => Ok(Probe::Silent),
        Ended::Failed(LinkFailure::Status { status, .. }) if is_legacy_status(status) => Ok(Probe::Legacy),
        Ended::TimedOut { .. } if wire.link.is_stream() => Ok(Probe::Silent),
        Ended::Gone(closed, _) if !closed.protocol && wire.link.is_stream() => Ok(Probe::Gone),
        other => {
            let request = Request::new(method::DISCOVER, Members::new(), time);
            let error = wire.judge(other, &request).err();
            Err(error.map_or_else(|| Error::Internal("probe".into()), |error| *error))
        }
    }
}

async fn discover(wire: &Wire, intro: &Introduction, revision: Revision, time: Duration) -> Ended {
    let mut request = Request::new(method::DISCOVER, Members::new(), time);
    request.hard_timeout = time;
    wire.attempt(&mut request, Meta::Of(&modern_meta(intro, revision))).await
}

/// The modern revision that a server names when it refuses the one it was asked in.
fn offered_instead(ended: &Ended) -> Option<Revision> {
    match ended {
        Ended::Answer(Err(Failure::Rpc(rpc))) if rpc.code == code::UNSUPPORTED_VERSION => {
            let offered = supported(rpc.data.as_ref());
            let ours = offered.iter().filter_map(|v| Revision::parse(v));
            ours.filter(|r| r.era() == Era::Modern).max()
        }
        _ => None,
    }
}

/// A refusal that says nothing of who is asking. 401 and 403 are about the caller, 5xx about an outage: no evidence.
fn is_legacy_status(status: u16) -> bool {
    (400..500).contains(&status) && !matches!(status, 401 | 403 | 407 | 408 | 429)
}

/// Shakes hands with a legacy server.
pub(super) async fn initialize(wire: Wire, intro: &Introduction) -> Result<Connection> {
    try_initialize(wire, intro).await.map_err(|turned| turned.error)
}

/// Shakes hands with a server that may turn out to speak an older transport.
pub(super) async fn try_initialize(wire: Wire, intro: &Introduction) -> Result<Connection, Turned> {
    let mut params = Members::new();
    params
        .text("protocolVersion", Revision::NEWEST_LEGACY.as_str())
        .json("capabilities", &intro.legacy_capabilities)
        .json("clientInfo", &intro.info);
    let left = intro.deadline.saturating_duration_since(Instant::now());
    let mut request = Request::new(method::INITIALIZE, params, left);
    request.hard_timeout = left;
    let ended = wire.attempt(&mut request, Meta::None).await;
    let refused = match &ended {
        Ended::Failed(LinkFailure::Status { status, .. }) => is_legacy_status(*status),
        Ended::Answer(Err(Failure::Rpc(rpc))) => !code::is_modern(rpc.code),
        _ => false,
    };
    if let Ended::TimedOut { .. } = ended {
        return Err(Turned { error: not_ready(&wire, intro), refused: false });
    }
    let result = wire.judge(ended, &request).map_err(|error| Turned { error: *error, refused })?;
    let info = read_initialize(&wire, &result)?;
    if info.revision.has_batches() {
        wire.inbox.allow_batches();
    }
    wire.link.agreed(info.revision);
    let frame = wire::notification(method::INITIALIZED, &Members::new());
    let told = tokio::time::timeout_at(intro.deadline, wire.link.initialized(frame)).await;
    match told {
        Ok(Ok(())) => {
            let ours = (intro.info.clone(), intro.legacy_capabilities.clone());
            Ok(Connection::new(wire, info, ours, Members::new()))
        }
        Ok(Err(failure)) => Err(wire.failed(failure, &request).into()),
        Err(_) => Err(wire
            .judge(Ended::TimedOut { after: left, silence: left }, &request)
            .err()
            .map_or_else(|| Error::Internal("handshake".into()), |error| *error)
            .into()),
    }
}

/// A modern server needs no handshake: what it discovered is enough.
pub(super) fn modern(wire: Wire, info: ServerInfo, intro: &Introduction) -> Connection {
    let meta = modern_meta(intro, info.revision);
    wire.link.agreed(info.revision);
    Connection::new(wire, info, (intro.info.clone(), intro.capabilities.clone()), meta)
}

/// What to remember of a probe.
pub(super) fn verdict(era: Era) -> Verdict {
    Verdict { era, at: SystemTime::now() }
}

impl From<Error> for Turned {
    fn from(error: Error) -> Self {
        Self { error, refused: false }
    }
}

fn modern_meta(intro: &Introduction, revision: Revision) -> Members {
    let mut all = Members::new();
    all.text(meta::PROTOCOL_VERSION, revision.as_str())
        .json(meta::CLIENT_CAPABILITIES, &intro.capabilities)
        .json(meta::CLIENT_INFO, &intro.info);
    all
}

fn read_discover(wire: &Wire, result: &Json) -> Result<Probe> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Shape {
        supported_versions: Option<Vec<String>>,
        capabilities: Option<Json>,
        instructions: Option<String>,
        #[serde(rename = "_meta")]
        meta: Option<Meta>,
    }
    #[derive(Deserialize)]
    struct Meta {
        #[serde(rename = "io.modelcontextprotocol/serverInfo")]
        server_info: Option<Implementation>,
    }
    // Some legacy servers answer whatever they do not know with an empty result.
    let Ok(shape) = result.to::<Shape>() else {
        return Ok(Probe::Legacy);
    };
    // Some legacy servers answer any question with an empty result.
    let Some(offered) = shape.supported_versions else { return Ok(Probe::Legacy) };
    // Some list their legacy revisions too; only a modern one may be used on the modern wire.
    let ours = offered.iter().filter_map(|v| Revision::parse(v));
    let Some(revision) = ours.filter(|r| r.era() == Era::Modern).max() else {
        let any_legacy = offered.iter().any(|v| Revision::parse(v).is_some());
        return if any_legacy { Ok(Probe::Legacy) } else { Err(unknown_versions(wire, &offered)) };
    };
    Ok(Probe::Modern(ServerInfo {
        revision,
        implementation: shape.meta.and_then(|m| m.server_info).unwrap_or_default(),
        capabilities: shape.capabilities.unwrap_or_else(Json::empty_object),
        instructions: shape.instructions.map(Foreign::from),
    }))
}

fn read_initialize(wire: &Wire, result: &Json) -> Result<ServerInfo> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Shape {
        protocol_version: String,
        capabilities: Option<Json>,
        server_info: Option<Implementation>,
        instructions: Option<String>,
    }
    let shape: Shape = result.to().map_err(|e| broken(wire, method::INITIALIZE, &e))?;
    let revision = Revision::parse(&shape.protocol_version).filter(|r| r.era() == Era::Legacy);
    Ok(ServerInfo {
        revision: revision.ok_or_else(|| unknown_versions(wire, &[shape.protocol_version]))?,
        implementation: shape.server_info.unwrap_or_default(),
        capabilities: shape.capabilities.unwrap_or_else(Json::empty_object),
        instructions: shape.instructions.map(Foreign::from),
    })
}

fn not_ready(wire: &Wire, intro: &Introduction) -> Error {
    let mut reason = format!("it was not ready within {:?} (`start_timeout`)", intro.time);
    if let Some(wrong) = wire.inbox.untaken() {
        reason.push_str(&format!(", and sent what cannot be taken: {wrong}"));
    }
    Error::Connection {
        server: wire.server.clone(),
        transport: wire.transport,
        reason,
        stderr: wire.link.stderr(),
        retryable: false,
    }
}

fn broken(wire: &Wire, method: &str, error: &serde_json::Error) -> Error {
    let reason = format!("its answer to `{method}` cannot be read: {error}");
    Error::Protocol { server: wire.server.clone(), reason, sent: false, stderr: wire.link.stderr() }
}

fn supported(data: Option<&Json>) -> Vec<String> {
    data.and_then(|d| d.member("supported")).and_then(|s| s.to().ok()).unwrap_or_default()
}

fn unknown_versions(wire: &Wire, versions: &[String]) -> Error {
    let versions = Foreign::from(versions.join(", "));
    Error::Connection {
        server: wire.server.clone(),
        transport: wire.transport,
        reason: format!("it speaks no revision of the protocol that Wharf knows (it offers: {versions})"),
        stderr: StderrTail::default(),
        retryable: false,
    }
}
