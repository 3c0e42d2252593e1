//! `wharf keys`: who may call the gateway. The keys themselves are shown once and kept by nobody here.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use clap_complete::engine::CompletionCandidate;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use wharf::config::{KeyStore, StoredKey};
use wharf::gateway::Key;
use wharf::names::CallerName;

use crate::app::App;
use crate::failure::{Failure, Result};
use crate::world::World;

/// Make, list and remove the keys that callers of `wharf serve` have
///
/// As soon as there is a key, `wharf serve` lets in only callers that have one: `Authorization: Bearer KEY`. Changes
/// count at once, also for a gateway that runs. Only hashes of the keys are kept.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wharf keys add alice --expires 90d
  claude mcp add --transport http wharf http://127.0.0.1:7420/mcp -H 'Authorization: Bearer KEY'
  wharf keys remove alice")]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    command: KeysCommand,
    /// Keep the keys in this file instead of your own
    #[arg(long = "keys", global = true, value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum KeysCommand {
    /// Make a key, and show it this once
    Add {
        /// Who will call with it
        name: String,
        /// When it ends: 12h, 90d, 1y
        #[arg(long, value_name = "TIME", value_parser = lifetime)]
        expires: Option<Duration>,
    },
    /// List who has a key
    List,
    /// Take a caller's key away
    Remove {
        /// Whose
        #[arg(add = ArgValueCandidates::new(callers))]
        name: String,
    },
}

impl KeysArgs {
    pub(crate) fn run(self, app: &App) -> Result<()> {
        let path = match (&self.file, &app.world.own) {
            (Some(file), _) => app.world.cwd.join(file),
            (None, Some(own)) => own.keys.clone(),
            (None, None) => {
                return Err(Failure::general("there is no home folder to keep keys in")
                    .hint("set HOME, or say --keys FILE"));
            }
        };
        let store = KeyStore::open(path)?;
        match self.command {
            KeysCommand::Add { name, expires } => add(app, store, &name, expires),
            KeysCommand::List => list(app, &store),
            KeysCommand::Remove { name } => remove(app, store, &name),
        }
    }
}

fn add(app: &App, mut store: KeyStore, name: &str, expires: Option<Duration>) -> Result<()> {
    let caller = caller(name)?;
    let key = Key::make().ok_or_else(|| Failure::general("the system has no random numbers"))?;
    let created = SystemTime::now();
    let expires = expires.map(|time| created + time);
    store.add(StoredKey { caller, hash: Key::hash(key.expose()), created, expires })?;
    if app.ui.json {
        let until = expires.and_then(second);
        let document = json!({ "caller": name, "key": key.expose(), "expires": until, "file": store.path() });
        return Ok(app.ui.document(&document)?);
    }
    app.ui.data(format!("{}\n", key.expose()).as_bytes())?;
    app.ui.note("this is the only time it is shown; the caller sends it as `Authorization: Bearer KEY`");
    Ok(())
}

fn list(app: &App, store: &KeyStore) -> Result<()> {
    let now = SystemTime::now();
    if app.ui.json {
        let keys: Vec<Value> = store.keys().iter().map(|key| shape(key, now)).collect();
        return Ok(app.ui.document(&json!({ "keys": keys, "file": store.path() }))?);
    }
    if store.keys().is_empty() {
        app.ui.note("there is no key; `wharf keys add NAME` makes one");
    }
    let row = |key: &StoredKey| {
        let end = match key.expires {
            Some(_) if key.has_expired(now) => "expired".to_owned(),
            Some(end) => day(end),
            None => "never".to_owned(),
        };
        vec![key.caller.as_str().to_owned(), day(key.created), end]
    };
    let rows: Vec<Vec<String>> = store.keys().iter().map(row).collect();
    Ok(app.ui.rows(&["caller", "created", "expires"], &rows)?)
}

fn remove(app: &App, mut store: KeyStore, name: &str) -> Result<()> {
    let caller = caller(name)?;
    if !store.remove(&caller)? {
        let failure = Failure::general(format!("`{caller}` has no key"));
        return Err(failure.hint("see who has one: wharf keys list"));
    }
    let document = json!({ "removed": name, "file": store.path() });
    app.ui.done(&document, format_args!("removed the key of `{caller}`"))?;
    if store.keys().is_empty() {
        let path = app.world.typed(store.path());
        app.ui.note(format_args!(
            "it was the last one: no caller has a key now, and none is let in; without keys at all: rm {path}"
        ));
    }
    Ok(())
}

fn caller(name: &str) -> Result<CallerName> {
    CallerName::parse(name).map_err(|bad| Failure::usage(bad.to_string()))
}

fn shape(key: &StoredKey, now: SystemTime) -> Value {
    json!({
        "caller": key.caller.as_str(),
        "created": second(key.created),
        "expires": key.expires.and_then(second),
        "expired": key.has_expired(now),
    })
}

/// A time for a program.
fn second(time: SystemTime) -> Option<String> {
    let time = Timestamp::try_from(time).ok()?;
    Timestamp::from_second(time.as_second()).ok().map(|time| time.to_string())
}

/// A day for a person.
fn day(time: SystemTime) -> String {
    match Timestamp::try_from(time) {
        Ok(time) => time.to_zoned(TimeZone::system()).date().to_string(),
        Err(_) => "?".to_owned(),
    }
}

/// `12h`, `90d`, `4w`, `1y`.
pub(super) fn lifetime(text: &str) -> Result<Duration, String> {
    const DAY: u64 = 24 * 60 * 60;
    let wrong = || "write it like 12h, 90d or 1y".to_owned();
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        'm' => 60,
        'h' => 60 * 60,
        'd' => DAY,
        'w' => 7 * DAY,
        'y' => 365 * DAY,
        _ => return Err(wrong()),
    };
    let number: u32 = text.strip_suffix(unit).and_then(|n| n.parse().ok()).ok_or_else(wrong)?;
    match u64::from(number).checked_mul(seconds) {
        Some(seconds) if (1..=1000 * 365 * DAY).contains(&seconds) => Ok(Duration::from_secs(seconds)),
        _ => Err("it must be longer than nothing, and end one day".into()),
    }
}

/// Who has a key, for a shell.
fn callers() -> Vec<CompletionCandidate> {
    let names = || {
        let store = KeyStore::open(World::look().ok()?.own?.keys).ok()?;
        Some(store.keys().iter().map(|key| CompletionCandidate::new(key.caller.as_str())).collect())
    };
    names().unwrap_or_default()
}
