//! The ways through a gateway, and how each is measured: direct calls and calls through it take turns.
//!
//! In: a case, and the gateways to measure. Out: a row for each of them. The floor of a way is what the direct calls of
//! its two hops take together; rates are compared with the direct rate of the slower hop.

use std::time::{Duration, Instant};

use crate::callers::{Peer, Web, one_at_a_time, tool};
use crate::crowd::{Many, PipeCrowd, WebCrowd};
use crate::place::{Listening, Other, Place, Server, Transport, Wharf};
use crate::process::{Cores, on_core};
use crate::report::{Bar, Figures, Row};
use crate::speech::{Ask, Era};
use crate::{Settings, Subject};

/// One way, and what goes over it.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) from: Transport,
    pub(crate) to: Transport,
    pub(crate) what: What,
    pub(crate) flight: usize,
    pub(crate) era: Era,
    pub(crate) cores: Cores,
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Echo,
    Large,
    List,
}

/// Somebody to ask, and what.
enum Line {
    One(Box<dyn Peer>, Ask),
    Many(Box<dyn Many>, usize),
}

/// A gateway that runs. What is asked goes first, then the program, then its folder.
struct Running {
    line: Line,
    pid: Option<u32>,
    _listening: Option<Listening>,
    _place: Option<Place>,
    _folder: Option<tempfile::TempDir>,
}

/// What was seen of a gateway.
#[derive(Default)]
struct Seen {
    rounds: Vec<(f64, f64)>,
    calls: usize,
    on_core: Duration,
    own: Duration,
    took: Duration,
}

/// A large result.
const LARGE: usize = 1_000_000;
/// So many bytes has the list of 1,000 tools at least.
pub(crate) const LIST: usize = 500_000;
/// More than one caller may have under way at one server by default.
const LIMITS: &str = "[gateway.limits]\ncalls_per_caller = 4096\ncalls_per_server = 4096\nwaiting = 16384\n";

/// Every case.
pub(crate) fn all() -> Vec<Case> {
    use Transport::{Http, Stdio};
    let mut cases = Vec::new();
    for (from, to) in [(Http, Stdio), (Http, Http), (Stdio, Stdio), (Stdio, Http)] {
        for era in [Era::Modern, Era::Legacy] {
            for flight in [1, 32, 128, 1024] {
                for cores in [Cores::All, Cores::One, Cores::Apart] {
                    let usual = flight == 1 || flight == 128 && cores != Cores::Apart;
                    if usual || (era == Era::Modern && cores == Cores::All) {
                        cases.push(Case { from, to, what: What::Echo, flight, era, cores });
                    }
                }
            }
        }
    }
    let large = [(Http, Stdio), (Http, Http), (Stdio, Stdio), (Stdio, Http)].map(|way| (What::Large, way));
    let lists = [(Http, Stdio), (Stdio, Stdio)].map(|way| (What::List, way));
    for (what, (from, to)) in large.into_iter().chain(lists) {
        for era in [Era::Modern, Era::Legacy] {
            cases.push(Case { from, to, what, flight: 1, era, cores: Cores::All });
        }
    }
    cases
}

// === impl Case ===

impl Case {
    pub(crate) fn name(&self) -> String {
        let (from, to) = (self.from.name(), self.to.name());
        let what = match self.what {
            What::Echo => format!("{from} to {to}, {} in flight", self.flight),
            What::Large => format!("{from} to {to}, 1,000,000 bytes"),
            What::List => format!("{from}, tools/list of 1,000 tools"),
        };
        format!("{what}, {}, {}", self.era.name(), self.cores.name()).replace("1024", "1,024")
    }

    /// What is to be reached.
    fn bar(&self) -> Option<Bar> {
        use Transport::{Http, Stdio};
        match (self.what, self.from, self.to, self.flight, self.cores) {
            (What::Echo, Http, Stdio, 1, Cores::Apart) => Some(Bar::AtMost(0.8)),
            (What::Echo, Http, Stdio, 1, Cores::One) => Some(Bar::AtMost(1.4)),
            (What::Echo, Http, Stdio, 128, Cores::All) => Some(Bar::AtLeast(0.4)),
            (What::Echo, Http, Http, 1, Cores::Apart) => Some(Bar::AtMost(1.2)),
            (What::Echo, Http, Http, 128, Cores::All) => Some(Bar::AtLeast(0.3)),
            (What::Echo, Stdio, Stdio, 1, Cores::One) => Some(Bar::AtMost(2.0)),
            (What::Large, Http, Stdio, ..) => Some(Bar::AtMost(1.1)),
            (What::List, Http, ..) => Some(Bar::AtMost(1.3)),
            _ => None,
        }
    }

    /// How many tools the echo server has.
    fn tools(&self) -> usize {
        if self.what == What::List { 1000 } else { 3 }
    }

    /// How many questions a round has.
    fn calls(&self) -> usize {
        match (self.what, self.flight) {
            (What::Large, _) => 150,
            (What::List, _) => 200,
            (What::Echo, 1) => 3000,
            (What::Echo, _) => 15_000,
        }
    }

    /// Measures it. Direct calls and those through each gateway take turns.
    pub(crate) fn measure(&self, settings: &Settings) -> Vec<Row> {
        let subjects: Vec<_> = settings.subjects.iter().filter(|subject| self.suits(subject)).collect();
        if subjects.is_empty() || !self.cores.are_there() {
            return Vec::new();
        }
        self.cores.with(|| {
            let server = Server { core: self.cores.of_servers(), ..Server::new(self.tools(), settings.busy) };
            let echo = server.listen();
            let mut hops = self.hops(&echo, &server);
            let mut running: Vec<_> = subjects
                .iter()
                .map(|subject| (self.start(subject, &echo, settings), Seen::default()))
                .collect();
            self.cores.settle();
            // Fewer than some for each place in flight would tell how they begin and end.
            let usual =
                (self.calls() / settings.divisor).max(if self.flight > 1 { self.flight * 40 } else { 2 });
            let calls = settings.calls.unwrap_or(usual).max(2);
            for round in 0..=settings.rounds {
                // The first is to warm up.
                let calls = if round == 0 { (calls / 10).max(2) } else { calls };
                let direct: f64 = hops.iter_mut().map(|hop| hop.figure(calls).unwrap().0).sum();
                for (gateway, seen) in &mut running {
                    let Ok(own) = gateway else { continue };
                    match seen.round(own, calls, direct) {
                        Err(why) => *gateway = Err(why),
                        Ok(()) if round == 0 => *seen = Seen::default(),
                        Ok(()) => {}
                    }
                }
            }
            let rows = subjects.iter().zip(running);
            rows.map(|(subject, (gateway, seen))| self.row(subject, gateway.err(), seen)).collect()
        })
    }

    /// Whether this gateway can be measured in this case.
    fn suits(&self, subject: &Subject) -> bool {
        match subject {
            Subject::Wharf(_) => true,
            Subject::Other { gateway, behind, eras } => {
                let behind = match gateway {
                    Other::Command(line) if line.contains("{command}") => &[Transport::Stdio][..],
                    Other::Command(line) if line.contains("{url}") => &[Transport::Http],
                    Other::Command(line) if line.contains("{config}") => &[Transport::Stdio, Transport::Http],
                    _ => std::slice::from_ref(behind),
                };
                // One that runs already has its cores.
                let placed = self.cores == Cores::All || matches!(gateway, Other::Command(_));
                // A list is made by the gateway, whatever is behind it; one that runs already has its own.
                let fits = match self.what {
                    What::List => matches!(gateway, Other::Command(_)),
                    What::Echo | What::Large => behind.contains(&self.to),
                };
                placed && fits && self.from == gateway.transport() && eras.contains(&self.era)
            }
        }
    }

    fn hops(&self, echo: &Listening, server: &Server) -> Vec<Line> {
        let hop = |transport| {
            let ask = self.ask("echo", "blob");
            match transport {
                Transport::Http => self.web(echo, ask).unwrap(),
                Transport::Stdio => self.over_pipe(server.pipe(self.era), ask),
            }
        };
        match self.what {
            What::List => vec![hop(self.from)],
            // With many in flight the slower of the two is what bounds the whole.
            _ if self.flight > 1 && self.to == Transport::Http => vec![hop(Transport::Http)],
            _ if self.flight > 1 => vec![hop(self.from)],
            _ => vec![hop(self.from), hop(self.to)],
        }
    }

    fn ask(&self, echo: &str, blob: &str) -> Ask {
        match self.what {
            What::Echo => Ask::Echo(echo.to_owned()),
            What::Large => Ask::Blob(blob.to_owned(), LARGE),
            What::List => Ask::List(LIST),
        }
    }

    fn web(&self, at: &Listening, ask: Ask) -> Result<Line, String> {
        if self.flight == 1 {
            return Ok(Line::One(Box::new(Web::connect(&at.address, self.era)?), ask));
        }
        let asks = vec![ask; self.flight];
        Ok(Line::Many(Box::new(WebCrowd::connect(&at.address, self.era, asks)?), self.flight))
    }

    fn over_pipe(&self, pipe: crate::callers::Pipe, ask: Ask) -> Line {
        if self.flight == 1 {
            return Line::One(Box::new(pipe), ask);
        }
        Line::Many(Box::new(PipeCrowd::new(pipe, ask, self.flight)), self.flight)
    }

    /// Starts a gateway with the echo server behind it.
    fn start(&self, subject: &Subject, echo: &Listening, settings: &Settings) -> Result<Running, String> {
        let reached =
            matches!(subject, Subject::Other { gateway: Other::Command(line), .. } if line.contains("{url}"));
        let port = (self.to == Transport::Http || reached).then(|| echo.port());
        let core = self.cores.of_servers();
        let server = Server { port, core, ..Server::new(self.tools(), settings.busy) };
        let place = match subject {
            Subject::Wharf(wharf) => Some(self.place(wharf, server)),
            Subject::Other { .. } => None,
        };
        if self.from == Transport::Stdio {
            let (mut pipe, folder) = match (subject, &place) {
                (Subject::Other { gateway, .. }, _) => {
                    gateway.pipe(&server, self.era).map(|(p, f)| (p, Some(f)))?
                }
                (Subject::Wharf(_), place) => (place.as_ref().ok_or("no place")?.pipe(self.era)?, None),
            };
            let (ask, pid) = (self.named(&mut pipe, settings)?, Some(pipe.pid()));
            let line = self.over_pipe(pipe, ask);
            return Ok(Running { line, pid, _listening: None, _place: place, _folder: folder });
        }
        let at = match (subject, &place) {
            (Subject::Other { gateway, .. }, _) => gateway.serve(&server, self.era)?,
            (Subject::Wharf(_), place) => place.as_ref().ok_or("no place")?.serve(),
        };
        let ask = self.named(&mut Web::connect(&at.address, self.era)?, settings)?;
        let (line, pid) = (self.web(&at, ask)?, at.pid());
        Ok(Running { line, pid, _listening: Some(at), _place: place, _folder: None })
    }

    /// What is asked of a gateway, which has its own names for tools.
    fn named(&self, peer: &mut dyn Peer, settings: &Settings) -> Result<Ask, String> {
        match (self.what, &settings.tool) {
            (What::List, _) => Ok(self.ask("", "")),
            (What::Echo, Some(name)) => Ok(self.ask(name, "")),
            (What::Echo, None) => Ok(self.ask(&tool(peer, "echo")?, "")),
            (What::Large, _) => Ok(self.ask("", &tool(peer, "blob")?)),
        }
    }

    fn place(&self, wharf: &Wharf, server: Server) -> Place {
        if self.what == What::List {
            let server = Server::new(100, Duration::ZERO);
            let servers: Vec<_> = (0..10).map(|number| (format!("s{number}"), server)).collect();
            return wharf.place(&servers, "");
        }
        wharf.place(&[("up".to_owned(), server)], if self.flight > 128 { LIMITS } else { "" })
    }

    fn row(&self, subject: &Subject, failed: Option<String>, seen: Seen) -> Row {
        let raised = self.flight > 128 && matches!(subject, Subject::Wharf(_));
        let figures = match failed {
            Some(why) => Figures::Failed(why),
            None if self.flight > 1 => Figures::Rates(seen.rounds),
            None => Figures::Times(seen.rounds),
        };
        let took = seen.took.as_secs_f64();
        Row {
            case: self.name(),
            of: subject.name(),
            figures,
            on_core: Some(seen.on_core).filter(|on| !on.is_zero()).map(|on| on / seen.calls.max(1) as u32),
            bar: self.bar().filter(|_| matches!(subject, Subject::Wharf(_))),
            note: if raised { "limits of calls raised".to_owned() } else { String::new() },
            client: (took > 0.0).then(|| seen.own.as_secs_f64() / took),
        }
    }
}

// === impl Line ===

impl Line {
    /// The median time of so many questions, or how many a second were answered; and how many there were.
    fn figure(&mut self, calls: usize) -> Result<(f64, usize), String> {
        match self {
            Self::One(peer, ask) => Ok((one_at_a_time(&mut **peer, ask, calls)?.as_secs_f64(), calls)),
            Self::Many(many, flight) => Ok((many.run(calls)?.rate, calls + calls / 5 + *flight)),
        }
    }
}

// === impl Seen ===

impl Seen {
    fn round(&mut self, gateway: &mut Running, calls: usize, direct: f64) -> Result<(), String> {
        let pid = gateway.pid;
        let clocks = || (pid.map_or(Duration::ZERO, on_core), on_core(std::process::id()));
        let (before, started) = (clocks(), Instant::now());
        let (figure, answered) = gateway.line.figure(calls)?;
        self.took += started.elapsed();
        let after = clocks();
        self.on_core += after.0.saturating_sub(before.0);
        self.own += after.1.saturating_sub(before.1);
        self.calls += answered;
        self.rounds.push((direct, figure));
        Ok(())
    }
}
