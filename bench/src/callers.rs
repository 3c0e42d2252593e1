//! Callers that wait for each answer before they ask again, over a pipe or HTTP.
//!
//! In: what is asked. Out: how long it took. One thread, system calls and nothing else: what they cost is in the figures
//! of the direct calls too.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use crate::bytes::{Http, header, payload};
use crate::process::Kept;
use crate::speech::{Address, Ask, Era, Speech, names};

/// Whoever is asked, one question at a time.
pub(crate) trait Peer {
    /// Asks, and waits for the answer, which is checked after the clock was stopped.
    fn ask(&mut self, ask: &Ask) -> Result<Duration, String>;

    /// The answer that came last.
    fn last(&self) -> &[u8];

    /// Connects anew if it was not used for long: a server may have closed the connection by now.
    fn refresh(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// Over HTTP.
pub(crate) struct Web {
    pub(crate) stream: TcpStream,
    pub(crate) http: Http,
    pub(crate) speech: Speech,
    pub(crate) out: Vec<u8>,
    last: Vec<u8>,
    address: Address,
    used: Instant,
}

/// Over a pipe.
pub(crate) struct Pipe {
    pub(crate) input: Option<ChildStdin>,
    pub(crate) output: ChildStdout,
    pub(crate) held: Vec<u8>,
    pub(crate) speech: Speech,
    filled: usize,
    child: Kept,
}

/// So long a connection may wait for its next use.
pub(crate) const IDLE: Duration = Duration::from_secs(3);
/// Nothing that is measured takes so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

// === impl Web ===

impl Web {
    /// Connects, and shakes hands where the era wants it.
    pub(crate) fn connect(address: &Address, era: Era) -> Result<Self, String> {
        let mut web = Self::open(address, Speech::new(era, address.clone()))?;
        if web.speech.greeting(Some(&mut web.out)).is_some() {
            web.stream.write_all(&web.out).map_err(|e| e.to_string())?;
            let (head, body) = web.receive()?;
            if !head.starts_with(b"HTTP/1.1 200") {
                return Err(format!("no handshake: {}", String::from_utf8_lossy(head)));
            }
            let session = header(head, "mcp-session-id").map(str::to_owned);
            let answer = payload(body).to_vec();
            web.speech.greeted(&answer, session.as_deref(), Some(&mut web.out));
            web.stream.write_all(&web.out).map_err(|e| e.to_string())?;
            web.receive()?;
        }
        Ok(web)
    }

    /// Only connects.
    pub(crate) fn open(address: &Address, speech: Speech) -> Result<Self, String> {
        let failed = |e| format!("{}: {e}", address.authority);
        let stream = TcpStream::connect(&address.authority).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let (address, used) = (address.clone(), Instant::now());
        Ok(Self { stream, http: Http::default(), speech, out: Vec::new(), last: Vec::new(), address, used })
    }

    fn receive(&mut self) -> Result<(&[u8], &[u8]), String> {
        // Two steps, because what is found is borrowed from what is searched. What comes in one piece needs no clock.
        let mut since = None;
        while !self.http.is_ready() {
            if since.is_some_and(|since: Instant| since.elapsed() > PATIENCE) {
                return Err(format!("no answer within {} s, only signs of life", PATIENCE.as_secs()));
            }
            if !self.http.read(&mut self.stream) {
                return Err("the connection was closed, or nothing came".to_owned());
            }
            if !self.http.is_ready() {
                since.get_or_insert_with(Instant::now);
            }
        }
        Ok(self.http.next().unwrap_or_default())
    }
}

impl Peer for Web {
    fn ask(&mut self, ask: &Ask) -> Result<Duration, String> {
        let started = Instant::now();
        self.speech.post(ask, &mut self.out);
        self.stream.write_all(&self.out).map_err(|e| e.to_string())?;
        let id = self.speech.id;
        let (head, body) = self.receive()?;
        let took = started.elapsed();
        let answer = payload(body);
        if !head.starts_with(b"HTTP/1.1 200") {
            return Err(format!("{}{}", String::from_utf8_lossy(head), String::from_utf8_lossy(body)));
        }
        ask.check(id, answer)?;
        if matches!(ask, Ask::List(_)) {
            self.last = answer.to_vec();
        }
        self.used = started + took;
        Ok(took)
    }

    fn last(&self) -> &[u8] {
        &self.last
    }

    fn refresh(&mut self) -> Result<(), String> {
        if self.used.elapsed() > IDLE {
            *self = Self::open(&self.address, self.speech.clone())?;
        }
        Ok(())
    }
}

// === impl Pipe ===

impl Pipe {
    /// Speaks with a program that was started, and shakes hands where the era wants it.
    pub(crate) fn with(mut child: Child, era: Era) -> Result<Self, String> {
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let speech = Speech::new(era, Address::local(0));
        let (held, child) = (vec![0; 1 << 21], Kept::new(child));
        let mut pipe = Self { input, output: output.unwrap(), held, speech, filled: 0, child };
        if let Some(line) = pipe.speech.greeting(None).map(<[u8]>::to_vec) {
            pipe.write(line)?;
            pipe.receive()?;
            let answer = pipe.held[..pipe.filled].to_vec();
            let line = pipe.speech.greeted(&answer, None, None).to_vec();
            pipe.write(line)?;
        }
        Ok(pipe)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }

    fn write(&mut self, mut line: Vec<u8>) -> Result<(), String> {
        line.push(b'\n');
        self.input.as_mut().unwrap().write_all(&line).map_err(|e| e.to_string())
    }

    fn receive(&mut self) -> Result<(), String> {
        self.filled = 0;
        loop {
            if self.filled == self.held.len() {
                self.held.resize(self.held.len() * 2, 0);
            }
            let read = self.output.read(&mut self.held[self.filled..]).map_err(|e| e.to_string())?;
            if read == 0 {
                return Err("the pipe was closed".to_owned());
            }
            self.filled += read;
            // One question at a time: nothing comes behind the answer.
            if self.held[self.filled - 1] == b'\n' {
                return Ok(());
            }
        }
    }
}

impl Peer for Pipe {
    fn ask(&mut self, ask: &Ask) -> Result<Duration, String> {
        let started = Instant::now();
        self.speech.say(ask).push(b'\n');
        self.input.as_mut().unwrap().write_all(&self.speech.message).map_err(|e| e.to_string())?;
        self.receive()?;
        let took = started.elapsed();
        ask.check(self.speech.id, &self.held[..self.filled])?;
        Ok(took)
    }

    fn last(&self) -> &[u8] {
        &self.held[..self.filled]
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // Its input ends, and so does the program.
        drop(self.input.take());
        self.child.end();
    }
}

/// The median time of one question.
pub(crate) fn one_at_a_time(peer: &mut dyn Peer, ask: &Ask, calls: usize) -> Result<Duration, String> {
    peer.refresh()?;
    let mut times: Vec<Duration> = (0..calls).map(|_| peer.ask(ask)).collect::<Result<_, _>>()?;
    times.sort();
    Ok(times[calls / 2])
}

/// The name of the first tool that ends in these words.
pub(crate) fn tool(peer: &mut dyn Peer, end: &str) -> Result<String, String> {
    peer.ask(&Ask::List(0))?;
    let names = names(peer.last());
    let found = names.iter().find(|name| name.ends_with(end)).cloned();
    found.ok_or_else(|| format!("there is no tool whose name ends in `{end}` among {names:?}"))
}
