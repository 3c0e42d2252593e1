//! Calls through a Wharf that runs under another program, such as one that counts instructions.
//!
//! In: a way, and how many calls. Out: nothing but that they were made; what is learned is the other program's.

use std::path::PathBuf;
use std::time::Duration;

use crate::callers::{Peer, Web};
use crate::place::{Server, Transport, Wharf};
use crate::speech::{Ask, Era};

/// What is to be done.
pub(crate) struct Requests {
    pub(crate) wharf: PathBuf,
    pub(crate) from: Transport,
    pub(crate) to: Transport,
    pub(crate) era: Era,
    pub(crate) calls: usize,
    /// The words before Wharf's own on its command line.
    pub(crate) under: Vec<String>,
}

/// How long server and caller let a gateway wait: longer than it stays awake for them (decision 0025). What it does in such a
/// moment depends on what else the machine does.
const APART: Duration = Duration::from_millis(2);
/// One thread, whatever the machine has: otherwise the counts would depend on it.
const OPTIONS: [&str; 2] = ["--threads", "1"];

/// Makes the calls, one after the other, and lets Wharf end in peace.
pub(crate) fn send(requests: &Requests) -> Result<(), String> {
    // A server is started once, so how it is confined is in no call; and profilers do not follow into a sandbox.
    let wharf = Wharf { program: requests.wharf.clone(), sandbox: false };
    let echo = Server::new(3, APART).listen();
    let port = (requests.to == Transport::Http).then(|| echo.port());
    let server = Server { port, ..Server::new(3, APART) };
    let place = wharf.place(&[("up".to_owned(), server)], "");
    let ask = Ask::Echo("up_echo".to_owned());
    let call = |peer: &mut dyn Peer| {
        std::thread::sleep(APART);
        peer.ask(&ask).map(drop)
    };
    let calls = |peer: &mut dyn Peer| (0..requests.calls).try_for_each(|_| call(peer));
    if requests.from == Transport::Stdio {
        return calls(&mut place.pipe_under(&requests.under, &OPTIONS, requests.era)?);
    }
    let gateway = place.serve_under(&requests.under, &OPTIONS);
    calls(&mut Web::connect(&gateway.address, requests.era)?)
}
