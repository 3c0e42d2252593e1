//! The matrix: every kind of caller with every kind of server, feature by feature.
//!
//! Each cell is tried against the complete server of the testkit. What comes out is the table in `docs/matrix.md`:
//! this test fails where the table says another thing; `WHARF_WRITE=1` writes it anew. A cell is `yes`, or it has a
//! reason why it cannot be, from a list that stands here. A reason that is not needed any more is a failure too.

mod caller;
mod features;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use wharf::Host;
use wharf::config::{Origin, Remote, ServerConfig, Transport};
use wharf::names::ServerName;
use wharf::policy::Policy;
use wharf::secret::SecretUrl;
use wharf_testkit::{Era, Fixture, Kind, Place, Puppet, fixture_path, puppet_path};

use self::caller::Caller;
use super::{Door, open};
use crate::support::puppet;

/// How many tools the server has that makes our own lists long.
const MANY: usize = 1000;
/// How long one feature may take. Long, because machines that run tests are slow.
const LONG: Duration = Duration::from_secs(30);

/// What cannot be, and why: caller, server, feature, reason. `None` stands for all of them.
type Reason = (Option<caller::Kind>, Option<Kind>, &'static str, &'static str);
const IMPOSSIBLE: [Reason; 0] = [];

fn shown(kind: Kind) -> &'static str {
    match kind {
        Kind::LegacyStdio => "legacy stdio",
        Kind::ModernStdio => "modern stdio",
        Kind::LegacyHttp => "legacy HTTP",
        Kind::ModernHttp => "modern HTTP",
        Kind::Sse => "SSE",
        Kind::BothHttp => "both",
    }
}

/// A gateway with the fixture behind it, in pages of two, and a server with very many tools.
async fn gateway(kind: Kind, fixture: &Fixture) -> Door {
    let name = ServerName::parse("fx").unwrap();
    let remote =
        |url: &str| Remote { url: SecretUrl::new(url.parse().unwrap()), headers: Default::default() };
    let mut server = match fixture.place() {
        Place::Command { program, args } => ServerConfig::stdio(name, program.display().to_string(), args),
        Place::Url(url) if kind == Kind::Sse => ServerConfig::new(name, Transport::Sse(remote(&url))),
        Place::Url(url) => ServerConfig::http(name, &url).unwrap(),
    };
    server.origin = Origin::Given;
    let many = puppet("many", &Puppet::of(Era::Modern).with(|s| s.many_tools = MANY));
    let ours = [fixture_path(), puppet_path()].map(|path| path.display().to_string());
    let policy = Policy::strict().with_sandbox(false).with_commands(ours);
    let host = Host::builder().policy(policy).environment(std::env::vars()).servers([server, many]);
    let host = host.start().await.unwrap();
    // Both are there before anybody is in a hurry.
    host.tools().await;
    open(host).await
}

/// Tries one kind of caller with one kind of server.
async fn cells(from: caller::Kind, to: Kind) -> Vec<Result<(), String>> {
    let fixture = Fixture::paged(to, Some(2));
    let door = Arc::new(gateway(to, &fixture).await);
    let mut caller = Caller::of(from, &door).await;
    let is_legacy = !matches!(to, Kind::ModernStdio | Kind::ModernHttp);
    let mut checked = Vec::new();
    for feature in features::ALL {
        let one = tokio::time::timeout(LONG, features::check(feature, &mut caller, is_legacy)).await;
        checked.push(one.unwrap_or_else(|_| Err(format!("it did not end; heard was {:?}", caller.heard))));
    }
    door.host.close().await;
    checked
}

#[tokio::test(flavor = "multi_thread")]
async fn l31_every_kind_of_caller_has_every_feature_of_every_kind_of_server() {
    // A gateway does not wait for ever for a server that starts: all the pairs at once would make each other late.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let room = Arc::new(Semaphore::new(2 * cores));
    let mut running = JoinSet::new();
    for from in caller::Kind::ALL {
        for to in Kind::FIVE {
            let room = Arc::clone(&room);
            running.spawn(async move {
                let _place = room.acquire_owned().await.unwrap();
                (from, to, cells(from, to).await)
            });
        }
    }
    let all = running.join_all().await;
    let mut wrong = String::new();
    let mut table = Table::default();
    for from in caller::Kind::ALL {
        for (row, feature) in features::ALL.into_iter().enumerate() {
            for to in Kind::FIVE {
                let (.., cells) = all.iter().find(|(f, t, _)| (*f, *t) == (from, to)).unwrap();
                let reason = IMPOSSIBLE.into_iter().position(|(f, t, what, _)| {
                    f.is_none_or(|f| f == from) && t.is_none_or(|t| t == to) && what == feature
                });
                let complaint = match (&cells[row], reason) {
                    (Ok(()), None) | (Err(_), Some(_)) => None,
                    (Ok(()), Some(_)) => Some("it works, and is said to be impossible"),
                    (Err(why), None) => Some(why.as_str()),
                };
                if let Some(why) = complaint {
                    writeln!(wrong, "{} -> {}: {feature}: {why}", from.name(), shown(to)).unwrap();
                }
                table.cell(from, feature, reason);
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/matrix.md");
    let written = table.finish();
    if std::env::var_os("WHARF_WRITE").is_some() {
        std::fs::write(&path, &written).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == written, "docs/matrix.md is out of date: write it with WHARF_WRITE=1");
}

/// The page with the table, as it is written.
#[derive(Default)]
struct Table {
    rows: String,
    caller: Option<caller::Kind>,
    feature: &'static str,
}

// === impl Table ===

impl Table {
    fn cell(&mut self, from: caller::Kind, feature: &'static str, reason: Option<usize>) {
        if self.caller != Some(from) {
            self.caller = Some(from);
            self.feature = "";
            let servers: Vec<&str> = Kind::FIVE.into_iter().map(shown).collect();
            let line = "|---".repeat(servers.len() + 1);
            write!(
                self.rows,
                "\n\n## A {} caller\n\n| feature | {} |\n{line}|",
                from.name(),
                servers.join(" | ")
            )
            .unwrap();
        }
        if self.feature != feature {
            self.feature = feature;
            write!(self.rows, "\n| {feature} |").unwrap();
        }
        match reason {
            None => self.rows.push_str(" yes |"),
            Some(at) => write!(self.rows, " no[^{}] |", at + 1).unwrap(),
        }
    }

    fn finish(self) -> String {
        let notes: String = IMPOSSIBLE
            .iter()
            .enumerate()
            .map(|(at, (.., reason))| format!("\n[^{}]: {reason}", at + 1))
            .collect();
        format!(
            "# Who can do what with whom\n\n\
             MCP has two eras and several transports. A caller of any kind reaches a server of any kind through the\n\
             gateway; the columns are the kinds of server. `crates/wharf/tests/it/gateway/matrix/mod.rs` tries every\n\
             cell and writes this page.{}\n{notes}",
            self.rows
        )
    }
}
