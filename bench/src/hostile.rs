//! What one hostile server among ten costs the callers of the others.
//!
//! In: Wharf. Out: the time within which 99 of 100 calls of the healthy nine are answered, with a tenth that behaves and
//! with one that does not, in turns. Both tenths are called all the time, each by callers of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::callers::{Peer as _, Web};
use crate::crowd::{Many as _, WebCrowd};
use crate::echo::Malice;
use crate::place::{Listening, Place, Server, Wharf};
use crate::report::{Bar, Figures, Row};
use crate::speech::{Address, Ask, Era};
use crate::{Settings, Subject};

/// Ten servers behind Wharf.
struct Ten {
    crowd: WebCrowd,
    stop: Arc<AtomicBool>,
    callers: Vec<JoinHandle<()>>,
    _gateway: Listening,
    _place: Place,
}

/// Callers of the tenth server.
const CALLERS: usize = 4;
/// How often each of them calls.
const PAUSE: Duration = Duration::from_millis(5);
/// Calls of the nine in a round.
const CALLS: usize = 5000;

pub(crate) fn name(malice: &str) -> String {
    format!("99 of 100 calls of nine servers, while a tenth {malice}")
}

/// How much longer the slow calls of the others may take for it: P3 in `docs/reliability.md`.
fn factor(malice: Malice) -> f64 {
    match malice {
        Malice::Flood | Malice::DieAgain => 10.0,
        Malice::Hang | Malice::Die => 2.0,
    }
}

/// Measures what this costs.
pub(crate) fn measure(malice: (&str, Malice), settings: &Settings) -> Vec<Row> {
    let of = |subject: &Subject| match subject {
        Subject::Wharf(wharf) => Some(one(wharf, malice, settings)),
        Subject::Other { .. } => None,
    };
    settings.subjects.iter().filter_map(of).collect()
}

fn one(wharf: &Wharf, (word, malice): (&str, Malice), settings: &Settings) -> Row {
    let mut good = Ten::start(wharf, None);
    let mut bad = Ten::start(wharf, Some(malice));
    let calls = (CALLS / settings.divisor).max(1000);
    let mut round = |calls| -> Result<(f64, f64), String> {
        let tail = |ten: &mut Ten| Ok::<_, String>(ten.crowd.run(calls)?.within(0.99).as_secs_f64());
        Ok((tail(&mut good)?, tail(&mut bad)?))
    };
    let rounds = round(calls / 10).and_then(|_| (0..settings.rounds).map(|_| round(calls)).collect());
    Row {
        case: name(word),
        of: "Wharf".to_owned(),
        figures: rounds.map_or_else(Figures::Failed, Figures::Times),
        on_core: None,
        bar: Some(Bar::AtMost(factor(malice))),
        note: "direct: while it behaves".to_owned(),
        client: None,
    }
}

// === impl Ten ===

impl Ten {
    fn start(wharf: &Wharf, malice: Option<Malice>) -> Self {
        let server =
            |number| Server { malice: malice.filter(|_| number == 9), ..Server::new(3, Duration::ZERO) };
        let servers: Vec<_> = (0..10).map(|number| (format!("s{number}"), server(number))).collect();
        let place = wharf.place(&servers, "");
        let gateway = place.serve();
        let asks = (0..9).map(|number| Ask::Echo(format!("s{number}_echo"))).collect();
        let crowd = WebCrowd::connect(&gateway.address, Era::Modern, asks).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let caller = |_| {
            let (address, stop) = (gateway.address.clone(), stop.clone());
            std::thread::spawn(move || pester(&address, &stop))
        };
        let callers = (0..CALLERS).map(caller).collect();
        Self { crowd, stop, callers, _gateway: gateway, _place: place }
    }
}

impl Drop for Ten {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // One that waits for an answer that never comes ends with its connection.
        if let Some(child) = &mut self._gateway.child {
            child.terminate();
        }
        self.callers.drain(..).for_each(|caller| drop(caller.join()));
    }
}

/// Calls the tenth server again and again, whatever comes of it.
fn pester(address: &Address, stop: &AtomicBool) {
    let ask = Ask::Echo("s9_echo".to_owned());
    while !stop.load(Ordering::Relaxed) {
        if let Ok(mut web) = Web::connect(address, Era::Modern) {
            while web.ask(&ask).is_ok() && !stop.load(Ordering::Relaxed) {
                std::thread::sleep(PAUSE);
            }
        }
        std::thread::sleep(PAUSE);
    }
}
