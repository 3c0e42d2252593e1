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
use crate::output::json::second;
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
  wharf keys remove alice          # every key of alice's; or one, by its id in `wharf keys list`")]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    command: KeysCommand,
    /// Keep the keys in this file instead of your own
    #[arg(long = "keys", global = true, value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum KeysCommand {
    /// Make a key, and show it this once; a caller may have several
    Add {
        /// Who will call with it
        name: String,
        /// When it ends: 12h, 90d, 1y
        #[arg(long, value_name = "TIME", value_parser = lifetime)]
        expires: Option<Duration>,
    },
    /// List who has which keys
    List,
    /// Take a caller's keys away, or one key
    Remove {
        /// Whose, or the id of one
        #[arg(add = ArgValueCandidates::new(callers), value_name = "NAME|ID")]
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
    let stored = StoredKey { caller, hash: Key::hash(key.expose()), created, expires };
    let id = stored.id();
    store.add(stored)?;
    if app.ui.json {
        let until = expires.and_then(second);
        let document = json!({
            "caller": name, "id": id, "key": key.expose(), "expires": until, "file": store.path(),
        });
        return Ok(app.ui.document(&document)?);
    }
    app.ui.data(format!("{}\n", key.expose()).as_bytes())?;
    app.ui.note("this is the only time it is shown; the caller sends it as `Authorization: Bearer KEY`");
    if let Some(before) = store.keys().iter().rfind(|known| known.caller.as_str() == name && known.id() != id)
    {
        app.ui.note(format_args!(
            "`{name}` has an earlier key, which still counts: wharf keys remove {} takes it away",
            before.id()
        ));
    }
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
        vec![key.caller.as_str().to_owned(), day(key.created), end, key.id()]
    };
    let rows: Vec<Vec<String>> = store.keys().iter().map(row).collect();
    Ok(app.ui.rows(&["caller", "created", "expires", "id"], &rows)?)
}

fn remove(app: &App, mut store: KeyStore, name: &str) -> Result<()> {
    let caller = caller(name)?;
    let removed = store.remove(name)?;
    let Some(first) = removed.first() else {
        let failure = Failure::general(format!("`{caller}` has no key, and is the id of none"));
        return Err(failure.hint("see who has which: wharf keys list"));
    };
    let ids: Vec<String> = removed.iter().map(StoredKey::id).collect();
    let document = json!({ "removed": first.caller.as_str(), "ids": ids, "file": store.path() });
    let what = match ids.len() {
        1 => format!("the key {}", ids[0]),
        number => format!("{number} keys"),
    };
    app.ui.done(&document, format_args!("removed {what} of `{}`", first.caller))?;
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
        "id": key.id(),
        "created": second(key.created),
        "expires": key.expires.and_then(second),
        "expired": key.has_expired(now),
    })
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
