//! What was typed becomes what is meant.

use std::path::PathBuf;
use std::time::Duration;

use crate::echo::{Malice, Manner};
use crate::place::{Other, Transport, beside};
use crate::requests::Requests;
use crate::speech::Era;

/// What this program is to be.
pub(crate) enum Command {
    Measure(Options),
    EchoStdio(Manner),
    EchoHttp(Manner, u16),
    Relay { port: u16, words: Vec<String>, busy: Duration },
    Requests(Requests),
    Help,
}

/// What is to be measured.
pub(crate) struct Options {
    pub(crate) quick: bool,
    pub(crate) judge: bool,
    pub(crate) list: bool,
    pub(crate) relay: bool,
    pub(crate) cases: Vec<String>,
    pub(crate) rounds: Option<usize>,
    pub(crate) calls: Option<usize>,
    pub(crate) busy: Duration,
    pub(crate) wharf: Option<PathBuf>,
    pub(crate) without_wharf: bool,
    pub(crate) others: Vec<Other>,
    pub(crate) tool: Option<String>,
    pub(crate) behind: Transport,
    pub(crate) eras: Vec<Era>,
}

pub(crate) const USAGE: &str = "\
usage: wharf-bench [options]                    measure; `bench/run` builds everything first
       wharf-bench echo stdio [--tools N]       be the echo server, over a pipe
       wharf-bench echo http [--port P]         be the echo server, over HTTP; the port is printed
       wharf-bench requests --from T --to T --era E --calls N [--wharf PROGRAM] -- WORDS
                                                make calls through a Wharf that runs under another program, for a profiler
       wharf-bench relay --port P -- COMMAND    be the least that a gateway can be

  --quick             three rounds with a tenth of the calls
  --judge             fail when a bar is missed
  --case WORDS        only cases that have these words in their names; may be given again
  --list              print the names of the cases
  --rounds N, --calls N
  --wharf PROGRAM     the Wharf to measure; by default the one that was built beside this program
  --relay             measure a bare relay too, which does nothing that a gateway is for
  --gateway COMMAND   measure this gateway too. In the command line {port} is where it must listen (without it, it speaks
                      over its standard input and output), {config} a file in the form of mcp.json with the echo server
                      in it, {command} the echo server's command line, {url} where the echo server listens
  --url URL           measure the gateway that runs there, with the echo server behind it
  --behind stdio|http how the gateway of --url reaches the echo server; stdio by default
  --era legacy|modern|both   how other gateways are spoken with; legacy by default
  --tool NAME         the tool to call there, if its name does not end in `echo`
  --without-wharf     measure only the others
  --busy MICROSECONDS the echo server works so long on each call, to see that it shows";

impl Options {
    /// Whether a case of this name is to be measured.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.cases.is_empty() || self.cases.iter().any(|word| name.contains(word))
    }
}

/// Reads the command line.
pub(crate) fn parse(args: impl Iterator<Item = String>) -> Result<Command, String> {
    let mut args = args.peekable();
    if args.next_if(|arg| arg == "echo").is_some() {
        return echo(args);
    }
    if args.next_if(|arg| arg == "relay").is_some() {
        return relay(args);
    }
    if args.next_if(|arg| arg == "requests").is_some() {
        return requests(args);
    }
    let mut options = Options {
        quick: false,
        judge: false,
        list: false,
        relay: false,
        cases: Vec::new(),
        rounds: None,
        calls: None,
        busy: Duration::ZERO,
        wharf: None,
        without_wharf: false,
        others: Vec::new(),
        tool: None,
        behind: Transport::Stdio,
        eras: vec![Era::Legacy],
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("`{arg}` needs a value\n{USAGE}"));
        match arg.as_str() {
            "--quick" => options.quick = true,
            "--judge" => options.judge = true,
            "--relay" => options.relay = true,
            "--help" | "-h" => return Ok(Command::Help),
            "--list" => options.list = true,
            "--without-wharf" => options.without_wharf = true,
            "--case" => options.cases.push(value()?),
            "--rounds" => options.rounds = Some(number(&value()?)?.max(1)),
            "--calls" => options.calls = Some(number(&value()?)?),
            "--busy" => options.busy = Duration::from_micros(number(&value()?)? as u64),
            "--wharf" => options.wharf = Some(value()?.into()),
            "--gateway" => options.others.push(Other::Command(value()?)),
            "--url" => options.others.push(Other::Url(value()?)),
            "--tool" => options.tool = Some(value()?),
            "--behind" => options.behind = transport(&value()?)?,
            "--era" => {
                options.eras = match value()?.as_str() {
                    "legacy" => vec![Era::Legacy],
                    "modern" => vec![Era::Modern],
                    "both" => vec![Era::Legacy, Era::Modern],
                    other => return Err(format!("there is no era `{other}`")),
                }
            }
            _ => return Err(format!("`{arg}` is not known\n{USAGE}")),
        }
    }
    Ok(Command::Measure(options))
}

fn echo(mut args: impl Iterator<Item = String>) -> Result<Command, String> {
    let kind = args.next().unwrap_or_default();
    let (mut manner, mut port) = (Manner { tools: 3, ..Manner::default() }, 0);
    while let Some(arg) = args.next() {
        let value = args.next().unwrap_or_default();
        match arg.as_str() {
            "--tools" => manner.tools = number(&value)?,
            "--busy" => manner.busy = Duration::from_micros(number(&value)? as u64),
            "--core" => manner.core = Some(number(&value)?),
            "--hostile" => {
                let malice = Malice::parse(&value);
                manner.malice = Some(malice.ok_or_else(|| format!("no server is hostile by `{value}`"))?);
            }
            "--port" => port = value.parse().map_err(|_| format!("`{value}` is not a port"))?,
            _ => return Err(format!("`{arg}` is not known\n{USAGE}")),
        }
    }
    match kind.as_str() {
        "stdio" => Ok(Command::EchoStdio(manner)),
        "http" => Ok(Command::EchoHttp(manner, port)),
        _ => Err(USAGE.to_owned()),
    }
}

fn relay(mut args: impl Iterator<Item = String>) -> Result<Command, String> {
    let (mut port, mut busy) = (0, Duration::ZERO);
    while let Some(arg) = args.next() {
        let mut value = || number(&args.next().unwrap_or_default());
        match arg.as_str() {
            "--port" => port = u16::try_from(value()?).map_err(|e| e.to_string())?,
            "--busy" => busy = Duration::from_micros(value()? as u64),
            "--" => return Ok(Command::Relay { port, words: args.collect(), busy }),
            _ => break,
        }
    }
    Err(USAGE.to_owned())
}

fn requests(mut args: impl Iterator<Item = String>) -> Result<Command, String> {
    let (from, to) = (Transport::Http, Transport::Stdio);
    let (wharf, under) = (beside("wharf"), Vec::new());
    let mut requests = Requests { wharf, from, to, era: Era::Modern, calls: 1, under };
    while let Some(arg) = args.next() {
        if arg == "--" {
            requests.under = args.collect();
            break;
        }
        let value = args.next().unwrap_or_default();
        match arg.as_str() {
            "--from" => requests.from = transport(&value)?,
            "--to" => requests.to = transport(&value)?,
            "--era" if value == "legacy" => requests.era = Era::Legacy,
            "--era" => requests.era = Era::Modern,
            "--calls" => requests.calls = number(&value)?,
            "--wharf" => requests.wharf = value.into(),
            _ => return Err(format!("`{arg}` is not known\n{USAGE}")),
        }
    }
    Ok(Command::Requests(requests))
}

fn transport(name: &str) -> Result<Transport, String> {
    match name {
        "stdio" => Ok(Transport::Stdio),
        "http" => Ok(Transport::Http),
        other => Err(format!("nothing is reached by `{other}`")),
    }
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}
