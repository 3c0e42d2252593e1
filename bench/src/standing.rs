//! What a gateway costs while nothing, or always the same, happens: its start, its memory.
//!
//! In: Wharf and how many servers it has, or another gateway with one. Out: rows without a direct counterpart. Another one
//! is started by its command line, which knows of one server.

use std::time::{Duration, Instant};

use crate::callers::{Peer as _, Web, tool};
use crate::cases::LIST;
use crate::crowd::{Many as _, WebCrowd};
use crate::place::{Listening, Other, Place, Server, Transport, Wharf};
use crate::process::{children, resident, written};
use crate::report::{Bar, Figures, Row};
use crate::speech::{Ask, Era};
use crate::{Settings, Subject};

/// What is looked at, and its name.
type Look = (String, Kind);

/// What is looked at.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// From the start to the first list, with so many servers.
    Cold(usize),
    Attached,
    IdleCallers(Era),
    Growth,
}

/// How often is looked at what is resident at rest: once a second, for as long as it takes until everything that is done
/// by itself was done.
const LOOKS: usize = 60;
/// How many callers wait for nothing.
const IDLE: usize = 1000;
/// How long everything that is started may take to come to rest.
const REST: Duration = Duration::from_secs(1);
/// How long it takes until a gateway that nobody calls is at rest: it has given back what it does not need, and done what
/// was left to do after the last call.
const AT_REST: Duration = Duration::from_secs(60);

/// Every look.
pub(crate) fn all() -> Vec<Look> {
    let cold = |servers: usize| {
        let plural = if servers == 1 { "" } else { "s" };
        format!("cold start to the first tools/list, {servers} server{plural} seen before")
    };
    vec![
        (cold(1), Kind::Cold(1)),
        (cold(10), Kind::Cold(10)),
        (cold(50), Kind::Cold(50)),
        ("memory, 10 servers attached and idle".to_owned(), Kind::Attached),
        ("memory of each of 1,000 idle callers, modern".to_owned(), Kind::IdleCallers(Era::Modern)),
        ("memory of each of 1,000 idle callers, legacy".to_owned(), Kind::IdleCallers(Era::Legacy)),
        ("memory growth after the first 10,000 calls of 100,000".to_owned(), Kind::Growth),
    ]
}

/// Measures one.
pub(crate) fn measure((name, kind): &Look, settings: &Settings) -> Vec<Row> {
    let of = |subject: &Subject| match (subject, *kind) {
        (Subject::Wharf(wharf), Kind::Cold(servers)) => Some(cold_start(wharf, settings, name, servers)),
        (Subject::Wharf(wharf), Kind::Attached) => Some(attached(wharf, name)),
        (Subject::Wharf(wharf), Kind::IdleCallers(era)) => Some(idle_callers(wharf, name, era)),
        (Subject::Wharf(wharf), Kind::Growth) => Some(growth(wharf, settings, name)),
        (Subject::Other { gateway, eras, .. }, kind) => {
            // One that runs already, or is spoken with over a pipe, has no start and no callers.
            let is_ours = matches!(gateway, Other::Command(_)) && gateway.transport() == Transport::Http;
            let figures = match kind {
                Kind::Cold(1) if is_ours => cold_start_of(gateway, eras[0], settings),
                Kind::IdleCallers(era) if is_ours && eras.contains(&era) => idle_callers_of(gateway, era),
                _ => return None,
            };
            let figures = figures.unwrap_or_else(Figures::Failed);
            Some(Row { of: subject.name(), figures, ..row(name, Vec::new(), "", None) })
        }
    };
    settings.subjects.iter().filter_map(of).collect()
}

fn row(name: &str, looks: Vec<f64>, unit: &'static str, bar: Option<Bar>) -> Row {
    Row {
        case: name.to_owned(),
        of: "Wharf".to_owned(),
        figures: Figures::Plain(looks, unit),
        on_core: None,
        bar,
        note: String::new(),
        client: None,
    }
}

/// Servers with ten times a hundred tools, or with as many as make the list as long.
fn with_servers(wharf: &Wharf, servers: usize) -> Place {
    let server = Server::new(1000 / servers, Duration::ZERO);
    let servers: Vec<_> = (0..servers).map(|number| (format!("s{number}"), server)).collect();
    wharf.place(&servers, "")
}

fn pid(gateway: &Listening) -> u32 {
    gateway.pid().unwrap()
}

/// From the start of the program to the whole list, while no server is started: it was seen in an earlier run.
fn cold_start(wharf: &Wharf, settings: &Settings, name: &str, servers: usize) -> Row {
    let place = with_servers(wharf, servers);
    {
        let gateway = place.serve();
        let mut web = Web::connect(&gateway.address, Era::Modern).unwrap();
        web.ask(&Ask::List(LIST)).unwrap();
    }
    let mut times = Vec::new();
    for _ in 0..settings.rounds {
        let started = Instant::now();
        let gateway = place.serve();
        let mut web = Web::connect(&gateway.address, Era::Modern).unwrap();
        web.ask(&Ask::List(LIST)).unwrap();
        times.push(started.elapsed().as_secs_f64() * 1e3);
        let started = children(pid(&gateway));
        assert!(started.is_empty(), "a server was started: {started:?}");
    }
    let mut row = row(name, times, "ms", (servers == 10).then_some(Bar::AtMost(50.0)));
    row.note = "no server started".to_owned();
    row
}

fn attached(wharf: &Wharf, name: &str) -> Row {
    let place = with_servers(wharf, 10);
    let gateway = place.serve();
    let mut web = Web::connect(&gateway.address, Era::Modern).unwrap();
    web.ask(&Ask::List(LIST)).unwrap();
    for number in 0..10 {
        web.ask(&Ask::Echo(format!("s{number}_echo"))).unwrap();
    }
    let run = children(pid(&gateway)).len();
    assert!(run >= 10, "only {run} servers run");
    std::thread::sleep(REST);
    let before = resident(pid(&gateway));
    std::thread::sleep(AT_REST);
    let megabytes = |kilobytes: u64| kilobytes as f64 / 1024.0;
    // What is done by itself now and then takes more for a moment, so one look would tell of chance.
    let look = |_| {
        std::thread::sleep(REST);
        megabytes(resident(pid(&gateway)))
    };
    let mut row = row(name, (0..LOOKS).map(look).collect(), "MB", Some(Bar::AtMost(15.0)));
    let (before, written) = (megabytes(before), megabytes(written(pid(&gateway))));
    row.note = format!("{before:.1} MB before it rested; {written:.1} MB are not the program's file");
    row
}

fn idle_callers(wharf: &Wharf, name: &str, era: Era) -> Row {
    let place = wharf.place(&[("up".to_owned(), Server::new(3, Duration::ZERO))], "");
    let gateway = place.serve();
    row(name, vec![memory_of_callers(&gateway, "up_echo", era).unwrap()], "KB", None)
}

/// What each of many callers takes, who called once and stay.
fn memory_of_callers(gateway: &Listening, echo: &str, era: Era) -> Result<f64, String> {
    let caller = || {
        let mut web = Web::connect(&gateway.address, era)?;
        web.ask(&Ask::Echo(echo.to_owned()))?;
        Ok::<_, String>(web)
    };
    let mut callers = (0..10).map(|_| caller()).collect::<Result<Vec<Web>, String>>()?;
    std::thread::sleep(REST);
    let before = resident(pid(gateway));
    for _ in 0..IDLE {
        callers.push(caller()?);
    }
    std::thread::sleep(REST);
    let more = resident(pid(gateway)).saturating_sub(before);
    Ok(more as f64 / IDLE as f64)
}

/// The echo server behind another gateway: one that it starts, or one that listens.
fn behind(gateway: &Other, tools: usize) -> (Server, Option<Listening>) {
    let server = Server::new(tools, Duration::ZERO);
    let echo = matches!(gateway, Other::Command(line) if line.contains("{url}")).then(|| server.listen());
    (Server { port: echo.as_ref().map(Listening::port), ..server }, echo)
}

fn idle_callers_of(gateway: &Other, era: Era) -> Result<Figures, String> {
    let (server, _echo) = behind(gateway, 3);
    let gateway = gateway.serve(&server, era)?;
    let echo = tool(&mut Web::connect(&gateway.address, era)?, "echo")?;
    Ok(Figures::Plain(vec![memory_of_callers(&gateway, &echo, era)?], "KB"))
}

/// From the start of the program until it has a tool to call: whether it starts its server for that is its own affair.
fn cold_start_of(gateway: &Other, era: Era, settings: &Settings) -> Result<Figures, String> {
    let (server, _echo) = behind(gateway, 1000);
    let times = (0..settings.rounds).map(|_| {
        let started = Instant::now();
        let gateway = gateway.serve(&server, era)?;
        Web::connect(&gateway.address, era)?.ask(&Ask::List(LIST))?;
        Ok(started.elapsed().as_secs_f64() * 1e3)
    });
    Ok(Figures::Plain(times.collect::<Result<_, String>>()?, "ms"))
}

/// How much more memory is resident than after the first 10,000 calls, at the most.
fn growth(wharf: &Wharf, settings: &Settings, name: &str) -> Row {
    let place = wharf.place(&[("up".to_owned(), Server::new(3, Duration::ZERO))], "");
    let gateway = place.serve();
    let asks = vec![Ask::Echo("up_echo".to_owned()); 32];
    let mut crowd = WebCrowd::connect(&gateway.address, Era::Modern, asks).unwrap();
    let steps = if settings.divisor > 1 { 3 } else { 10 };
    let mut after = Vec::new();
    for _ in 0..steps {
        // A sixth of them is to warm up, which does not matter here.
        crowd.run(10_000 * 5 / 6).unwrap();
        after.push(resident(pid(&gateway)) as f64 / 1024.0);
    }
    let most = after.iter().copied().fold(0.0, f64::max);
    let percent = (most / after[0] - 1.0) * 100.0;
    // A quick run has fewer, and says so.
    let name = name.replace("100,000", &format!("{steps}0,000"));
    let mut row = row(&name, vec![percent], "%", Some(Bar::AtMost(5.0)));
    let (first, last) = (after[0], after[steps - 1]);
    row.note = format!("{first:.1} MB after 10,000, {last:.1} MB after {steps}0,000");
    row
}
