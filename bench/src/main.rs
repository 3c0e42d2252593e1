//! Measures what an MCP gateway costs: `wharf serve` and any other, against direct calls of the same servers.
//!
//! Direct calls and calls through a gateway take turns in the same minutes, and only their ratios mean something. The
//! callers and the servers are this program's own, and as small as they can be. `bench/README.md` tells how to use it.
#![allow(
    clippy::unwrap_used,
    clippy::exit,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a benchmark, not the product"
)]

mod bytes;
mod callers;
mod cases;
mod crowd;
mod echo;
mod hostile;
mod options;
mod place;
mod process;
mod relay;
mod report;
mod requests;
mod speech;
mod standing;

use std::process::ExitCode;
use std::time::Duration;

use echo::{Echo, Malice};
use options::{Command, Options};
use place::{Other, Server, Transport, Wharf, beside};
use report::{HEADING, Row};
use speech::Era;

/// How and what is measured.
pub(crate) struct Settings {
    pub(crate) subjects: Vec<Subject>,
    pub(crate) rounds: usize,
    /// How many calls a round has, where every case is to have as many.
    pub(crate) calls: Option<usize>,
    /// How much less than usual is measured.
    pub(crate) divisor: usize,
    /// How long the echo server works on each call.
    pub(crate) busy: Duration,
    /// The tool to call, where it cannot be told by its name.
    pub(crate) tool: Option<String>,
}

/// A gateway that is measured.
pub(crate) enum Subject {
    Wharf(Wharf),
    Other { gateway: Other, behind: Transport, eras: Vec<Era> },
}

/// The name of the relay in the table.
const RELAY: &str = "bare relay";
/// The load client and the echo server alone must do so much more than they do through a gateway,
const LEAST_TIMES: f64 = 1.25;
/// and the client must have had to wait for it, or it is not the gateway that was measured.
const MOST_BUSY: f64 = 0.95;
/// Nothing takes longer.
const LIMIT: Duration = Duration::from_secs(3600);

fn main() -> ExitCode {
    let options = match options::parse(std::env::args().skip(1)) {
        Ok(Command::Measure(options)) => options,
        Ok(Command::EchoStdio(manner)) => {
            Echo::new(manner).over_pipe();
            return ExitCode::SUCCESS;
        }
        Ok(Command::EchoHttp(manner, port)) => {
            Echo::new(manner).over_http(port);
            return ExitCode::SUCCESS;
        }
        Ok(Command::Relay { port, words, busy }) => {
            let ended = relay::relay(port, &words, busy);
            eprintln!("{}", ended.unwrap_err());
            return ExitCode::FAILURE;
        }
        Ok(Command::Requests(requests)) => {
            let done = requests::send(&requests);
            done.iter().for_each(|()| println!("{} calls", requests.calls));
            return done.map_or_else(
                |why| {
                    eprintln!("{why}");
                    ExitCode::FAILURE
                },
                |()| ExitCode::SUCCESS,
            );
        }
        Ok(Command::Help) => {
            println!("{}", options::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    process::raise_files();
    process::end_after(LIMIT);
    let all = match measure(&options) {
        Ok(_) if options.list => return ExitCode::SUCCESS,
        Ok(all) => all,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    let is_sound = self_check(&all);
    let missed: Vec<&Row> = all.iter().filter(|row| !row.is_reached()).collect();
    if all.is_empty() {
        let why = match work().iter().any(|(name, _)| options.wants(name)) {
            true => {
                "no gateway that was given can be measured in these cases, or this machine has too few cores; see `--behind` and `--era`"
            }
            false => "no case has such a name; `--list` prints them",
        };
        eprintln!("{why}");
        return ExitCode::from(2);
    }
    let failed = missed.iter().any(|row| row.has_failed());
    println!("\n{} of {} rows miss their bar or failed.", missed.len(), all.len());
    if failed || (options.judge && (!missed.is_empty() || !is_sound)) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Measures whatever is wanted, and prints it row by row.
fn measure(options: &Options) -> Result<Vec<Row>, String> {
    let work = work().into_iter().filter(|(name, _)| options.wants(name));
    if options.list {
        work.for_each(|(name, _)| println!("{name}"));
        return Ok(Vec::new());
    }
    let settings = settings(options)?;
    println!("\n{HEADING}");
    let mut all = Vec::new();
    for (_, measure) in work {
        for row in measure(&settings) {
            println!("{}", row.shown());
            all.push(row);
        }
    }
    Ok(all)
}

type Work = (String, Box<dyn Fn(&Settings) -> Vec<Row>>);

/// Everything that can be measured, by name.
fn work() -> Vec<Work> {
    let ways = cases::all()
        .into_iter()
        .map(|case| -> Work { (case.name(), Box::new(move |settings: &Settings| case.measure(settings))) });
    let looks = standing::all().into_iter().map(|look| -> Work {
        (look.0.clone(), Box::new(move |settings: &Settings| standing::measure(&look, settings)))
    });
    let hostile = Malice::ALL.into_iter().map(|malice| -> Work {
        (hostile::name(malice.0), Box::new(move |settings: &Settings| hostile::measure(malice, settings)))
    });
    ways.chain(looks).chain(hostile).collect()
}

/// Prints what is measured, and on what.
fn settings(options: &Options) -> Result<Settings, String> {
    let mut subjects = Vec::new();
    if !options.without_wharf {
        let program = options.wharf.clone().unwrap_or_else(|| beside("wharf"));
        let (wharf, confined) = Wharf::at(program)?;
        let confined = if confined { "confined" } else { "**not confined**" };
        println!("{}: policy, checks and audit as by default; servers are {confined}.", wharf.version());
        subjects.push(Subject::Wharf(wharf));
    }
    if options.relay {
        let gateway =
            Other::Command(format!("{} relay --port {{port}} -- {{command}}", place::me().display()));
        let eras = vec![Era::Legacy, Era::Modern];
        subjects.push(Subject::Other { gateway, behind: Transport::Stdio, eras });
    }
    let server = Server::new(3, options.busy);
    for gateway in &options.others {
        let eras = options.eras.clone();
        subjects.push(Subject::Other { gateway: gateway.clone(), behind: options.behind, eras });
    }
    if !options.others.is_empty() {
        println!("The echo server for their configurations: as a command `{}`,", server.command_line());
        println!("over HTTP `http://127.0.0.1:9001/mcp` while `bench/run echo http --port 9001` runs.");
    }
    println!("{}", process::machine());
    Ok(Settings {
        subjects,
        rounds: options.rounds.unwrap_or(if options.quick { 3 } else { 9 }),
        calls: options.calls,
        divisor: if options.quick { 10 } else { 1 },
        busy: options.busy,
        tool: options.tool.clone(),
    })
}

/// Says whether the load client or the echo server could be what was measured. False if one of them was.
fn self_check(rows: &[Row]) -> bool {
    let gateways = rows.iter().filter(|row| row.of != RELAY);
    let crowded: Vec<(f64, f64)> = gateways.filter_map(Row::crowded).collect();
    let least = |all: &mut dyn Iterator<Item = f64>| all.fold(f64::INFINITY, f64::min);
    if crowded.is_empty() {
        return true;
    }
    let times = least(&mut crowded.iter().map(|(ratio, _)| 1.0 / ratio));
    let busy = -least(&mut crowded.iter().map(|(_, client)| -client));
    println!(
        "\nSelf check: with many calls in flight, the load client and the echo server alone did at least {times:.1} times what they \
         did through a gateway; there the client was on a core for at most {:.0} % of the time.",
        busy * 100.0
    );
    let is_sound = times >= LEAST_TIMES && busy <= MOST_BUSY;
    if !is_sound {
        println!("**They may be what was measured**, and not the gateway.");
    }
    is_sound
}

// === impl Subject ===

impl Subject {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Wharf(_) => "Wharf".to_owned(),
            Self::Other { gateway: Other::Url(url), .. } => url.clone(),
            Self::Other { gateway: Other::Command(line), .. } if line.contains("wharf-bench relay ") => {
                RELAY.to_owned()
            }
            Self::Other { gateway: Other::Command(line), .. } => {
                let program = line.split_whitespace().next().unwrap_or_default();
                program.rsplit('/').next().unwrap_or_default().to_owned()
            }
        }
    }
}
