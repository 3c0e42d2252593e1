//! What the gateway costs: `wharf serve`, a real process, against direct calls of the same servers.
//!
//! `cargo bench -p wharf-cli --bench gateway`. Direct and through Wharf take turns in the same minutes, and only their
//! ratios mean something. The floor of a way is what the direct calls of its two hops take together. A word as an
//! argument measures only the cases that have it in their names.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark, not the product"
)]

mod bytes;
mod echo;
mod load;
mod place;

use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use echo::Echo;
use load::{Ask, Era, Peer, Web, in_flight, one_at_a_time};
use place::{Listening, Place, Server, echo_pipe};

/// How often direct and through Wharf take turns.
const ROUNDS: usize = 9;
/// How many calls are under way at a time, where it is not one.
const FLIGHT: usize = 128;
/// A large result.
const LARGE: usize = 1_000_000;

/// What a case measured in each round: the floor, or the direct rate; and through Wharf.
struct Measured {
    name: String,
    rounds: Vec<(f64, f64)>,
    bar: Bar,
}

/// What is to be reached.
#[derive(Clone, Copy)]
enum Bar {
    /// At most so many times the floor, in seconds.
    Time(f64),
    /// At least so much of the direct rate.
    Rate(f64),
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if let [kind, tools] = &args[..]
        && let (true, Ok(tools)) = (kind.starts_with("--echo-"), tools.parse())
    {
        match kind.as_str() {
            "--echo-stdio" => Echo::new(tools).over_pipe(),
            _ => Echo::new(tools).over_http(),
        }
        return;
    }
    let wanted = |name: &str| args.first().is_none_or(|word| name.contains(word.as_str()));
    let all = sched_getaffinity(None).unwrap();
    println!(
        "{:<52} {:>10} {:>10} {:>7} {:>15} {:>9}",
        "way", "direct", "Wharf", "ratio", "of the rounds", "bar"
    );
    for (name, cores, measure) in cases() {
        if wanted(name) {
            sched_setaffinity(None, &if cores == 1 { last_of(&all) } else { all }).unwrap();
            measure(name).print();
        }
    }
    sched_setaffinity(None, &all).unwrap();
    if wanted("cold start, idle") {
        cold_start_and_memory();
    }
}

type Case = (&'static str, usize, fn(&str) -> Measured);

/// Every case, on how many cores, and how it is measured.
fn cases() -> Vec<Case> {
    vec![
        ("HTTP to stdio", 2, |name| http_to_stdio(name, Era::Modern, 0.8)),
        ("HTTP to stdio, legacy caller", 2, |name| http_to_stdio(name, Era::Legacy, 0.8)),
        ("HTTP to stdio, one core", 1, |name| http_to_stdio(name, Era::Modern, 1.4)),
        ("HTTP to stdio, one core, legacy caller", 1, |name| http_to_stdio(name, Era::Legacy, 1.4)),
        ("HTTP to stdio, 128 in flight", 2, |name| many_to_stdio(name, Era::Modern)),
        ("HTTP to stdio, 128 in flight, legacy caller", 2, |name| many_to_stdio(name, Era::Legacy)),
        ("HTTP to HTTP", 2, |name| http_to_http(name, Era::Modern)),
        ("HTTP to HTTP, legacy caller", 2, |name| http_to_http(name, Era::Legacy)),
        ("HTTP to HTTP, 128 in flight", 2, many_to_http),
        ("stdio to stdio, one core", 1, |name| stdio_to_stdio(name, Era::Modern)),
        ("stdio to stdio, one core, legacy caller", 1, |name| stdio_to_stdio(name, Era::Legacy)),
        ("HTTP to stdio, 1,000,000 bytes", 2, |name| large(name, Era::Modern)),
        ("HTTP to stdio, 1,000,000 bytes, legacy caller", 2, |name| large(name, Era::Legacy)),
        ("tools/list, 1,000 tools of 10 servers", 2, |name| list(name, Era::Modern)),
        ("tools/list, 1,000 tools of 10 servers, legacy caller", 2, |name| list(name, Era::Legacy)),
    ]
}

fn last_of(all: &CpuSet) -> CpuSet {
    let last = (0..CpuSet::MAX_CPU).rev().find(|cpu| all.is_set(*cpu)).unwrap();
    let mut one = CpuSet::new();
    one.set(last);
    one
}

/// One server behind the gateway: its tools are named after it.
fn one_server(server: Server) -> Place {
    Place::new(&[("up".to_owned(), server)])
}

fn own(tool: &str) -> String {
    format!("up_{tool}")
}

fn http_to_stdio(name: &str, era: Era, bar: f64) -> Measured {
    let (place, direct) = (one_server(Server::Program(3)), Listening::echo(3));
    let gateway = place.serve();
    let mut hops: [Box<dyn Peer>; 2] = [Box::new(Web::connect(direct.port, era)), Box::new(echo_pipe(era))];
    let mut through = Web::connect(gateway.port, era);
    let asks = (Ask::Echo("echo".into()), Ask::Echo(own("echo")));
    times(name, (&mut hops, &mut through), &asks, 3000, bar)
}

fn http_to_http(name: &str, era: Era) -> Measured {
    let direct = Listening::echo(3);
    let gateway = one_server(Server::Port(direct.port));
    let gateway = gateway.serve();
    let mut hops: [Box<dyn Peer>; 2] =
        [Box::new(Web::connect(direct.port, era)), Box::new(Web::connect(direct.port, era))];
    let mut through = Web::connect(gateway.port, era);
    let asks = (Ask::Echo("echo".into()), Ask::Echo(own("echo")));
    times(name, (&mut hops, &mut through), &asks, 2000, 1.2)
}

fn stdio_to_stdio(name: &str, era: Era) -> Measured {
    let place = one_server(Server::Program(3));
    let mut hops: [Box<dyn Peer>; 2] = [Box::new(echo_pipe(era)), Box::new(echo_pipe(era))];
    let mut through = place.serve_pipe(era);
    let asks = (Ask::Echo("echo".into()), Ask::Echo(own("echo")));
    times(name, (&mut hops, &mut through), &asks, 3000, 2.0)
}

fn large(name: &str, era: Era) -> Measured {
    let (place, direct) = (one_server(Server::Program(3)), Listening::echo(3));
    let gateway = place.serve();
    let mut hops: [Box<dyn Peer>; 2] = [Box::new(Web::connect(direct.port, era)), Box::new(echo_pipe(era))];
    let mut through = Web::connect(gateway.port, era);
    let asks = (Ask::Blob("blob".into(), LARGE), Ask::Blob(own("blob"), LARGE));
    times(name, (&mut hops, &mut through), &asks, 150, 1.1)
}

fn list(name: &str, era: Era) -> Measured {
    let direct = Listening::echo(1000);
    let servers: Vec<_> = (0..10).map(|number| (format!("s{number}"), Server::Program(100))).collect();
    let place = Place::new(&servers);
    let gateway = place.serve();
    let mut hops: [Box<dyn Peer>; 1] = [Box::new(Web::connect(direct.port, era))];
    let mut through = Web::connect(gateway.port, era);
    let asks = (Ask::List(500_000), Ask::List(500_000));
    times(name, (&mut hops, &mut through), &asks, 200, 1.3)
}

/// Direct calls of each hop and calls through Wharf, in turns.
fn times(
    name: &str,
    (hops, through): (&mut [Box<dyn Peer>], &mut dyn Peer),
    (direct, own): &(Ask, Ask),
    calls: usize,
    bar: f64,
) -> Measured {
    let mut round = |calls: usize| {
        let floor: Duration = hops.iter_mut().map(|hop| one_at_a_time(&mut **hop, direct, calls)).sum();
        (floor.as_secs_f64(), one_at_a_time(through, own, calls).as_secs_f64())
    };
    round(calls / 10);
    let rounds = (0..ROUNDS).map(|_| round(calls)).collect();
    Measured { name: name.to_owned(), rounds, bar: Bar::Time(bar) }
}

fn many_to_stdio(name: &str, era: Era) -> Measured {
    let (place, direct) = (one_server(Server::Program(3)), Listening::echo(3));
    let gateway = place.serve();
    rates(name, (direct.port, gateway.port), era, 0.4)
}

fn many_to_http(name: &str) -> Measured {
    let direct = Listening::echo(3);
    let place = one_server(Server::Port(direct.port));
    let gateway = place.serve();
    rates(name, (direct.port, gateway.port), Era::Modern, 0.3)
}

fn rates(name: &str, (direct, through): (u16, u16), era: Era, bar: f64) -> Measured {
    let (plain, named) = (Ask::Echo("echo".into()), Ask::Echo(own("echo")));
    let round = |calls| {
        let direct = in_flight(direct, era, &plain, (FLIGHT, calls));
        (direct, in_flight(through, era, &named, (FLIGHT, calls)))
    };
    round(1000);
    let rounds = (0..ROUNDS).map(|_| round(15_000)).collect();
    Measured { name: name.to_owned(), rounds, bar: Bar::Rate(bar) }
}

/// With ten servers that were seen before, and with ten that are attached.
fn cold_start_and_memory() {
    let servers: Vec<_> = (0..10).map(|number| (format!("s{number}"), Server::Program(100))).collect();
    let place = Place::new(&servers);
    let (ask, mut resident) = (Ask::List(500_000), 0);
    {
        let gateway = place.serve();
        let mut web = Web::connect(gateway.port, Era::Modern);
        web.ask(&ask);
        (0..10).for_each(|number| web.ask(&Ask::Echo(format!("s{number}_echo"))));
        assert!(gateway.children() >= 10, "{} servers run", gateway.children());
        std::thread::sleep(Duration::from_secs(1));
        resident = resident.max(gateway.resident());
    }
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let started = Instant::now();
        let gateway = place.serve();
        Web::connect(gateway.port, Era::Modern).ask(&ask);
        times.push(started.elapsed());
        assert_eq!(gateway.children(), 0, "a server was started");
    }
    times.sort();
    println!(
        "cold start to the first tools/list, 10 servers: {:.1?} ({:.1?} to {:.1?}; bar 50 ms), no server started",
        times[ROUNDS / 2],
        times[0],
        times[ROUNDS - 1]
    );
    println!("idle with 10 servers attached: {:.1} MB resident (bar 15)", resident as f64 / 1024.0);
}

// === impl Measured ===

impl Measured {
    fn print(&self) {
        let median = |mut all: Vec<f64>| {
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let mut ratios: Vec<f64> = self.rounds.iter().map(|(direct, own)| own / direct).collect();
        ratios.sort_by(f64::total_cmp);
        let ratio = ratios[ratios.len() / 2];
        let (direct, own) = self.rounds.iter().copied().unzip();
        let (direct, own): (f64, f64) = (median(direct), median(own));
        let (bar, reached) = match self.bar {
            Bar::Time(bar) => (format!("<= {bar}"), ratio <= bar),
            Bar::Rate(bar) => (format!(">= {bar}"), ratio >= bar),
        };
        let shown = |value: f64| match self.bar {
            Bar::Time(_) => format!("{:.1} µs", value * 1e6),
            Bar::Rate(_) => format!("{:.1}k/s", value / 1e3),
        };
        println!(
            "{:<52} {:>10} {:>10} {ratio:>7.2} {:>15} {bar:>9} {}",
            self.name,
            shown(direct),
            shown(own),
            format!("{:.2} to {:.2}", ratios[0], ratios[ratios.len() - 1]),
            if reached { "" } else { "over" }
        );
    }
}
