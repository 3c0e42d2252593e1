//! What Wharf costs while nothing, or always the same, happens: its start, its memory.
//!
//! In: Wharf and how many servers it has. Out: rows without a direct counterpart.

use std::time::{Duration, Instant};

use crate::callers::{Peer as _, Web};
use crate::cases::LIST;
use crate::crowd::{Many as _, WebCrowd};
use crate::place::{Listening, Place, Server, Wharf};
use crate::process::{children, resident, written};
use crate::report::{Bar, Figures, Row};
use crate::speech::{Ask, Era};
use crate::{Settings, Subject};

/// What is looked at: its name, and how.
type Look = (String, fn(&Wharf, &Settings, &str) -> Row);

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
        (cold(1), |wharf, settings, name| cold_start(wharf, settings, name, 1)),
        (cold(10), |wharf, settings, name| cold_start(wharf, settings, name, 10)),
        (cold(50), |wharf, settings, name| cold_start(wharf, settings, name, 50)),
        ("memory, 10 servers attached and idle".to_owned(), |wharf, _, name| attached(wharf, name)),
        ("memory of each of 1,000 idle callers, modern".to_owned(), |wharf, _, name| {
            idle_callers(wharf, name, Era::Modern)
        }),
        ("memory of each of 1,000 idle callers, legacy".to_owned(), |wharf, _, name| {
            idle_callers(wharf, name, Era::Legacy)
        }),
        ("memory growth after the first 10,000 calls of 100,000".to_owned(), growth),
    ]
}

/// Measures one.
pub(crate) fn measure(look: &Look, settings: &Settings) -> Vec<Row> {
    let of = |subject: &Subject| match subject {
        Subject::Wharf(wharf) => Some(look.1(wharf, settings, &look.0)),
        Subject::Other { .. } => None,
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
    let mut row = row(name, vec![megabytes(resident(pid(&gateway)))], "MB", Some(Bar::AtMost(15.0)));
    let (before, written) = (megabytes(before), megabytes(written(pid(&gateway))));
    row.note = format!("{before:.1} MB before it rested; {written:.1} MB are not the program's file");
    row
}

fn idle_callers(wharf: &Wharf, name: &str, era: Era) -> Row {
    let place = wharf.place(&[("up".to_owned(), Server::new(3, Duration::ZERO))], "");
    let gateway = place.serve();
    let caller = || {
        let mut web = Web::connect(&gateway.address, era).unwrap();
        web.ask(&Ask::Echo("up_echo".to_owned())).unwrap();
        web
    };
    let mut callers: Vec<Web> = (0..10).map(|_| caller()).collect();
    std::thread::sleep(REST);
    let before = resident(pid(&gateway));
    callers.extend((0..IDLE).map(|_| caller()));
    std::thread::sleep(REST);
    let more = resident(pid(&gateway)).saturating_sub(before);
    row(name, vec![more as f64 / IDLE as f64], "KB", None)
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
    let mut row = row(name, vec![percent], "%", Some(Bar::AtMost(5.0)));
    let (first, last) = (after[0], after[steps - 1]);
    row.note = format!("{first:.1} MB after 10,000, {last:.1} MB after {steps}0,000");
    row
}
