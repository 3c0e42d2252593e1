//! A permitted call on its way: sent once, kept alive by progress, asked back as often as the server may ask.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Relayed;
use super::held;
use super::rounds::Errand;
use crate::ask::Asker;
use crate::connect::{Connection, Progress};
use crate::error::Light;
use crate::mcp::{Era, HeaderRule, Tool, method};
use crate::policy::CallPermit;
use crate::wire::{Json, Members};

/// What is sent: a tool and its arguments, already checked.
#[derive(Debug)]
pub struct Call<'a> {
    /// Proof that the call is allowed.
    pub permit: &'a CallPermit<'a>,
    /// The tool.
    pub tool: &'a Tool,
    /// Its arguments, the very bytes that were checked.
    pub arguments: &'a Json,
    /// How long to wait without a sign of life.
    pub timeout: Duration,
    /// How long to wait whatever the signs; `None` leaves it to the connection.
    pub hard_timeout: Option<Duration>,
    /// How long its server may be silent by its own settings: whoever waits for less learns nothing of it.
    pub usual: Duration,
    /// Since when its time runs; `None` from the moment it is sent.
    pub since: Option<Instant>,
    /// Whoever it is made for, if not for the program itself.
    pub relayed: Option<&'a Arc<Relayed>>,
    /// Whether nobody else's calls go over the connection.
    pub private: bool,
}

/// Who hears of progress.
pub type OnProgress<'a> = &'a mut (dyn FnMut(Progress) + Send);

/// Sends a call and gives the server's result. A tool that may have run is never sent again by this function;
/// the rounds in which a server asks back are its own invitation to go on.
pub async fn send(
    connection: &Connection,
    call: &Call<'_>,
    asker: &Arc<dyn Asker>,
    on_progress: Option<OnProgress<'_>>,
) -> Light<Json> {
    let modern = connection.info().revision.era() == Era::Modern;
    let errand = Errand {
        method: method::TOOLS_CALL,
        name: Some(call.tool.name.as_str()),
        tool: Some(&call.tool.name),
        headers: if modern { headers(call) } else { Vec::new() },
        timeout: call.timeout,
        hard_timeout: call.hard_timeout,
        usual: call.usual,
        since: call.since,
        relayed: call.relayed,
        private: call.private,
    };
    if !held::is_needed(connection, call) {
        return errand.run(connection, || params(call), asker, on_progress).await;
    }
    let limit = call.hard_timeout.unwrap_or(call.timeout.saturating_mul(HARD_FACTOR));
    let since = Instant::now();
    let as_task = || {
        let mut params = params(call);
        held::ask_for(&mut params, limit);
        params
    };
    let begun = errand.run(connection, as_task, asker, on_progress).await?;
    Ok(held::wait(connection, call, begun, limit.saturating_sub(since.elapsed())).await?)
}

/// How far the hard limit lies behind the timeout, unless the caller says otherwise.
pub(crate) const HARD_FACTOR: u32 = 20;

fn params(call: &Call<'_>) -> Members {
    let mut params = Members::new();
    params.text("name", call.tool.name.as_str()).json("arguments", call.arguments);
    if let Some(relayed) = call.relayed {
        params.append(&relayed.more);
    }
    params
}

/// The arguments that the tool wants repeated as headers, and such headers of the caller's that it says nothing about.
fn headers(call: &Call<'_>) -> Vec<(String, String)> {
    let Ok(rules) = &call.tool.headers else { return Vec::new() };
    let theirs = call.relayed.map_or(&[][..], |relayed| &relayed.headers);
    if rules.is_empty() && theirs.is_empty() {
        return Vec::new();
    }
    let arguments: serde_json::Value = call.arguments.to().unwrap_or_default();
    let value = |rule: &HeaderRule| Some((named(&rule.name), rule.value(&arguments)?));
    let is_unknown = |name: &str| !rules.iter().any(|rule| rule.name.eq_ignore_ascii_case(name));
    let theirs = theirs.iter().filter(|(name, _)| is_unknown(name));
    rules.iter().filter_map(value).chain(theirs.map(|(name, value)| (named(name), value.clone()))).collect()
}

fn named(param: &str) -> String {
    format!("Mcp-Param-{param}")
}
