//! `wharf audit`: what was decided and done, whether the record is whole, and what other rules would have decided.

mod replay;
mod when;

pub(super) use when::{local, utc};

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum as _};
use serde_json::{Value, json};
use wharf::store::{Log, Record, Search};
use wharf::text::Escaped;

use crate::app::{App, interrupted};
use crate::exit::Exit;
use crate::failure::{Failure, Result};

/// Show what was decided and done: calls, refusals, questions, starts and ends of servers
///
/// Each line is one record, the newest last. Arguments are kept without secrets, and large ones by their size and
/// SHA-256 alone. With `--json` each record is one line of JSON.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
Examples:
  wharf audit --server github --since 2h
  wharf audit --decision deny --follow
  wharf audit verify
  wharf audit export > audit.jsonl
  wharf audit replay --policy stricter.toml")]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    command: Option<AuditCommand>,
    #[command(flatten)]
    filter: Filter,
    /// Go on as more is written, until Ctrl-C
    #[arg(long)]
    follow: bool,
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// Look whether anything was changed, taken out or cut off
    Verify {
        #[command(flatten)]
        place: LogFile,
    },
    /// Write the records as lines of JSON, each with its hash
    Export {
        #[command(flatten)]
        filter: Filter,
    },
    /// Say which calls other rules would have decided otherwise
    Replay {
        /// A wharf.toml with the rules to try
        #[arg(long, value_name = "FILE")]
        policy: PathBuf,
        #[command(flatten)]
        filter: Filter,
    },
}

/// Which log.
#[derive(Clone, Debug, Args)]
struct LogFile {
    /// Look at this log instead of your own
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

/// Which records.
#[derive(Clone, Debug, Args)]
struct Filter {
    #[command(flatten)]
    place: LogFile,
    /// Only this server
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Only this tool, by its original name
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Only this caller
    #[arg(long, value_name = "NAME")]
    caller: Option<String>,
    /// Only this kind: call, ask, use, launch, stop, connect, lost, reject
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Only what was decided so
    #[arg(long, value_name = "DECISION")]
    decision: Option<Decision>,
    /// Only what ended so: ok, tool_failed, timeout, denied …
    #[arg(long, value_name = "WORD")]
    outcome: Option<String>,
    /// Not before: 2h, 3d, 2026-11-16, 2026-11-16T08:00:00Z
    #[arg(long, value_name = "TIME", value_parser = when::read)]
    since: Option<u64>,
    /// Before
    #[arg(long, value_name = "TIME", value_parser = when::read)]
    until: Option<u64>,
    /// Only so many, the newest; 100 unless they are exported or replayed
    #[arg(long, short = 'n', value_name = "NUMBER")]
    limit: Option<usize>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Decision {
    Allow,
    Deny,
}

/// How many are shown to a person who did not say.
const SHOWN: usize = 100;
/// How often is looked for more.
const LOOK: Duration = Duration::from_millis(200);

impl AuditArgs {
    pub(crate) async fn run(self, app: &App) -> Result<()> {
        match self.command {
            None => show(app, &self.filter, self.follow).await,
            Some(AuditCommand::Verify { place }) => verify(app, &place),
            Some(AuditCommand::Export { filter }) => export(app, &filter),
            Some(AuditCommand::Replay { policy, filter }) => {
                let records = filter.open(app)?.search(&filter.search(None))?;
                replay::run(app, &app.world.cwd.join(policy), &records)
            }
        }
    }
}

// === impl LogFile ===

impl LogFile {
    fn open(&self, app: &App) -> Result<Log> {
        let path = match &self.log {
            Some(file) => app.world.cwd.join(file),
            None => app.store(&app.setup()?).ok_or_else(|| {
                Failure::general("there is no home folder with an audit log").hint("say --log FILE")
            })?,
        };
        Ok(Log::open(path)?)
    }
}

// === impl Filter ===

impl Filter {
    fn open(&self, app: &App) -> Result<Log> {
        self.place.open(app)
    }

    fn search(&self, limit: Option<usize>) -> Search {
        let decision = self.decision.and_then(|decision| decision.to_possible_value());
        Search {
            kind: self.kind.clone(),
            caller: self.caller.clone(),
            server: self.server.clone(),
            tool: self.tool.clone(),
            decision: decision.map(|decision| decision.get_name().to_owned()),
            outcome: self.outcome.clone(),
            since: self.since,
            until: self.until,
            after: None,
            limit: self.limit.or(limit),
        }
    }
}

async fn show(app: &App, filter: &Filter, follow: bool) -> Result<()> {
    let log = filter.open(app)?;
    let mut search = filter.search(Some(SHOWN));
    let mut version = log.version()?;
    let found = log.search(&search)?;
    write(app, &found, true)?;
    if !follow {
        if found.is_empty() {
            app.ui.note("there is no such record");
        }
        return Ok(());
    }
    search.limit = None;
    search.after = Some(found.last().map_or(0, |record| record.seq));
    let following = async {
        loop {
            tokio::time::sleep(LOOK).await;
            let now = log.version()?;
            if now != version {
                version = now;
                let found = log.search(&search)?;
                search.after = found.last().map(|record| record.seq).or(search.after);
                write(app, &found, false)?;
            }
        }
    };
    tokio::select! {
        ended = following => ended,
        () = interrupted() => Ok(()),
    }
}

fn write(app: &App, records: &[Record], head: bool) -> Result<()> {
    let values: Vec<Value> = records.iter().map(value).collect();
    if app.ui.json {
        let lines = values.iter().map(|value| format!("{value}\n"));
        return Ok(app.ui.data(lines.collect::<String>().as_bytes())?);
    }
    // A beginning says nothing more once there is an end.
    let ended: HashSet<u64> = values.iter().filter_map(|value| value["began"].as_u64()).collect();
    let is_over = |value: &Value| {
        value["kind"] == "begin" && value["seq"].as_u64().is_some_and(|seq| ended.contains(&seq))
    };
    let rows: Vec<Vec<String>> = values.iter().filter(|value| !is_over(value)).map(row).collect();
    if head || !app.ui.terminals.stdout {
        return Ok(app.ui.rows(&HEAD, &rows)?);
    }
    let lines = rows.iter().map(|row| format!("{}\n", row.join("  ")));
    Ok(app.ui.data(lines.collect::<String>().as_bytes())?)
}

const HEAD: [&str; 9] = ["#", "time", "what", "caller", "server", "tool", "decision", "outcome", "why"];

fn row(value: &Value) -> Vec<String> {
    let text = |key: &str| Escaped(value[key].as_str().unwrap_or_default()).to_string();
    let outcome = match (value["outcome"].as_str(), value["took_us"].as_u64()) {
        (Some(outcome), Some(took)) => format!("{outcome} {}", when::took(took)),
        (Some(outcome), None) => outcome.to_owned(),
        (None, _) if value["kind"] == "begin" => "no end yet".to_owned(),
        (None, _) => String::new(),
    };
    let why = match (value["rule"].as_str(), value["reason"].as_str()) {
        (Some(rule), _) => rule,
        (None, reason) => reason.unwrap_or_default(),
    };
    vec![
        value["seq"].to_string(),
        when::local(value["at"].as_u64().unwrap_or_default()),
        text("kind"),
        text("caller"),
        text("server"),
        text("tool"),
        text("decision"),
        outcome,
        Escaped(why).to_string(),
    ]
}

/// A record for a program: with its time in words, and its hash.
fn value(record: &Record) -> Value {
    let mut value: Value = serde_json::from_str(&record.json).unwrap_or_default();
    if let (Some(at), Some(members)) = (value["at"].as_u64(), value.as_object_mut()) {
        members.insert("time".into(), when::utc(at).into());
        members.insert("hash".into(), record.hash.as_str().into());
    }
    value
}

fn export(app: &App, filter: &Filter) -> Result<()> {
    let log = filter.open(app)?;
    // As they were hashed, byte for byte.
    for record in log.search(&filter.search(None))? {
        app.ui.data(format!("{{\"hash\":\"{}\",\"record\":{}}}\n", record.hash, record.json).as_bytes())?;
    }
    Ok(())
}

fn verify(app: &App, place: &LogFile) -> Result<()> {
    let log = place.open(app)?;
    let seen = log.verify()?;
    let path = app.world.show(log.path());
    let findings: Vec<String> = seen.findings.iter().map(ToString::to_string).collect();
    if app.ui.json {
        let last = seen.last.as_ref().map(|(seq, hash)| json!({ "seq": seq, "hash": hash }));
        let whole = findings.is_empty();
        let document = json!({ "file": log.path(), "records": seen.records, "whole": whole, "last": last, "findings": findings });
        app.ui.document(&document)?;
    } else {
        let (seq, hash) = seen.last.unwrap_or_default();
        if findings.is_empty() {
            app.ui.data(
                format!("{path}: {} records, whole; the last is {seq} {hash}\n", seen.records).as_bytes(),
            )?;
        } else {
            let lines = findings.iter().map(|finding| format!("{path}: {}\n", Escaped(finding)));
            app.ui.data(lines.collect::<String>().as_bytes())?;
        }
    }
    match findings.len() {
        0 => Ok(()),
        _ if app.ui.json => Err(Failure::Said(Exit::General)),
        1 => Err(Failure::general("the log is not as it was written")),
        more => Err(Failure::general(format!("the log is not as it was written, in {more} places"))),
    }
}
