//! `wharf status`: how a gateway that runs is, and its servers.

use clap::Args;
use serde_json::Value;

use crate::app::App;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output::Giving;
use crate::watched::Where;

/// Show how a running gateway and its servers are
///
/// Asks the gateway that `wharf serve` started; nothing is started or called. Exits with 0 if it is ready, with 1 if it
/// is not, and with 4 if nobody answers.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wharf status
  wharf status http://127.0.0.1:8000 --json
  WHARF_KEY=whf_… wharf status https://tools.example.org/mcp")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    at: Where,
}

pub(crate) const HEAD: [&str; 10] =
    ["server", "state", "calls", "errors", "p50", "p99", "busy", "waiting", "refused", "trouble"];
const GIVING: Giving = Giving {
    words: "trouble",
    order: &["p50", "waiting", "refused", "busy", "p99", "errors", "calls"],
    before_names: 3,
};

impl StatusArgs {
    pub(crate) async fn run(self, app: &App) -> Result<()> {
        let gateway = self.at.find(app)?;
        let status = app.ui.wait("asking the gateway".into(), gateway.status()).await?;
        if app.ui.json {
            app.ui.document(&status)?;
        } else {
            app.ui.rows_giving(&HEAD, &servers(&status).map(row).collect::<Vec<_>>(), &GIVING)?;
            app.ui.note(summary(&status));
            obstacles(&status).for_each(|obstacle| app.ui.trouble(obstacle));
        }
        if status["ready"] == true { Ok(()) } else { Err(Failure::Said(Exit::General)) }
    }
}

pub(crate) fn servers(status: &Value) -> impl Iterator<Item = &Value> {
    status["servers"].as_array().into_iter().flatten()
}

/// One server in words.
pub(crate) fn row(server: &Value) -> Vec<String> {
    let number = |key: &str| server[key].as_u64().unwrap_or_default().to_string();
    vec![
        text(&server["name"]),
        state(server),
        number("calls"),
        number("errors"),
        time(&server["p50Us"]),
        time(&server["p99Us"]),
        number("inFlight"),
        number("waiting"),
        refused(server),
        trouble(server),
    ]
}

/// What is the matter with it, or with one of its instances while others go on.
fn trouble(server: &Value) -> String {
    // The first line says what is the matter; the last words of a program follow it.
    let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    if let Some(trouble) = server["trouble"].as_str() {
        // Which server it is stands at the beginning of the line already.
        let own = format!("server `{}` (", text(&server["name"]));
        let rest = trouble.strip_prefix(&own).and_then(|rest| rest.split_once("): "));
        return first(rest.map_or(trouble, |(_, rest)| rest));
    }
    let mut of_one =
        instances(server).enumerate().filter_map(|(n, one)| Some((n + 1, one["trouble"].as_str()?)));
    of_one.next().map(|(n, trouble)| format!("instance {n}: {}", first(trouble))).unwrap_or_default()
}

fn instances(server: &Value) -> impl Iterator<Item = &Value> {
    let all = server["instances"].as_array().map_or(&[][..], Vec::as_slice);
    // Where there is but one, it is the server.
    if all.len() > 1 { all } else { &[] }.iter()
}

/// What it is doing, or how many of its instances take calls.
pub(crate) fn state(server: &Value) -> String {
    let (all, well) =
        (instances(server).count(), instances(server).filter(|one| one["trouble"].is_null()).count());
    match server["circuit"].as_str() {
        _ if server["enabled"] == false => "disabled".to_owned(),
        // Its connection may live; nobody is let through to it.
        Some("open") => "left alone".to_owned(),
        // The next call, or one that is under way, says whether it is well again.
        Some("half-open") => "on trial".to_owned(),
        _ if well > 0 && (well < all || server["state"] == "connected") => format!("{well} of {all}"),
        _ => text(&server["state"]),
    }
}

/// How many calls the limits refused, since it runs.
pub(crate) fn refused(server: &Value) -> String {
    let count = |reason: &str| server["refused"][reason].as_u64().unwrap_or_default();
    (count("queue") + count("rate")).to_string()
}

/// Whether it is ready, and since when it runs.
pub(crate) fn summary(status: &Value) -> String {
    let ready = if status["ready"] == true { "ready" } else { "not ready" };
    let seconds = status["uptimeMs"].as_u64().unwrap_or_default() / 1000;
    let up = match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    };
    format!("wharf {} is {ready}, and up for {up}", wharf::text::Escaped(&text(&status["version"])))
}

/// What keeps it from being ready.
pub(crate) fn obstacles(status: &Value) -> impl Iterator<Item = String> {
    status["reasons"].as_array().into_iter().flatten().map(|reason| {
        let what = reason["server"].as_str().or(reason["what"].as_str()).unwrap_or_default();
        let why = text(&reason["reason"]);
        let why = why.lines().next().unwrap_or_default();
        format!("{}: {}", wharf::text::Escaped(what), wharf::text::Escaped(why))
    })
}

/// A time as short as it can be said.
pub(crate) fn time(micros: &Value) -> String {
    match micros.as_u64() {
        None => "-".to_owned(),
        Some(micros @ 0..=999) => format!("{micros}µs"),
        Some(micros @ 1_000..=99_999) => format!("{:.1}ms", micros as f64 / 1e3),
        Some(micros @ 100_000..=999_999) => format!("{}ms", micros / 1000),
        Some(micros) => format!("{:.1}s", micros as f64 / 1e6),
    }
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
