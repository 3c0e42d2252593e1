//! Many questions under way at a time: over HTTP each on a connection of its own, over a pipe one behind the other.
//!
//! In: what is asked, and how many at a time. Out: how many a second were answered, and how long each took. One thread
//! that waits for whatever comes first; every answer is checked.

use std::io::{ErrorKind, Read as _, Write as _};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::fs::OFlags;

use crate::bytes::payload;
use crate::callers::{IDLE, PATIENCE, Pipe, Web};
use crate::speech::{Address, Ask, Era, Speech, id_of};

/// Whoever is asked, many questions at a time.
pub(crate) trait Many {
    /// Has so many questions answered, after a fifth of them to warm up.
    fn run(&mut self, calls: usize) -> Result<Load, String>;
}

/// What came of it.
pub(crate) struct Load {
    /// Answers a second.
    pub(crate) rate: f64,
    /// How long each took, the shortest first.
    pub(crate) times: Vec<Duration>,
}

/// Many connections.
pub(crate) struct WebCrowd {
    callers: Vec<(Web, Ask, Instant)>,
    epoll: std::os::fd::OwnedFd,
    address: Address,
    used: Instant,
    /// Ids of one session must differ as long as they are in use.
    id: u64,
}

/// One pipe.
pub(crate) struct PipeCrowd {
    pipe: Pipe,
    ask: Ask,
    flight: usize,
    filled: usize,
    out: Vec<u8>,
}

/// What is measured of a run.
struct Tally {
    warm: usize,
    calls: usize,
    done: usize,
    started: Instant,
    took: Duration,
    times: Vec<Duration>,
}

// === impl Load ===

impl Load {
    /// So much of the answers took at most so long.
    pub(crate) fn within(&self, share: f64) -> Duration {
        self.times[((self.times.len() - 1) as f64 * share) as usize]
    }
}

// === impl Tally ===

impl Tally {
    fn new(calls: usize) -> Self {
        let (started, took) = (Instant::now(), Duration::ZERO);
        Self { warm: calls / 5, calls, done: 0, started, took, times: Vec::with_capacity(calls) }
    }

    /// An answer came; true as long as more is to be asked.
    fn answered(&mut self, now: Instant, asked: Instant) -> bool {
        self.done += 1;
        match self.done {
            done if done == self.warm => self.started = now,
            done if done > self.warm && done <= self.warm + self.calls => {
                self.times.push(now - asked);
                self.took = now - self.started;
            }
            _ => {}
        }
        self.done < self.warm + self.calls
    }

    fn load(mut self) -> Load {
        self.times.sort();
        Load { rate: self.calls as f64 / self.took.as_secs_f64(), times: self.times }
    }
}

// === impl WebCrowd ===

impl WebCrowd {
    /// Connects a caller for each question. They are all of one session: an agent with many calls.
    pub(crate) fn connect(address: &Address, era: Era, asks: Vec<Ask>) -> Result<Self, String> {
        let speech = Web::connect(address, era)?.speech;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| e.to_string())?;
        let used = Instant::now();
        let mut crowd = Self { callers: Vec::new(), epoll, address: address.clone(), used, id: 0 };
        for ask in asks {
            let web = crowd.open(speech.clone(), crowd.callers.len())?;
            crowd.callers.push((web, ask, used));
        }
        Ok(crowd)
    }

    fn open(&self, speech: Speech, number: usize) -> Result<Web, String> {
        let web = Web::open(&self.address, speech)?;
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(&self.epoll, &web.stream, data, epoll::EventFlags::IN).map_err(|e| e.to_string())?;
        Ok(web)
    }

    /// Opens connections anew that were not used for long: a server may have closed them by now.
    fn reopen(&mut self) -> Result<(), String> {
        if self.used.elapsed() > IDLE {
            for number in 0..self.callers.len() {
                self.callers[number].0 = self.open(self.callers[number].0.speech.clone(), number)?;
            }
        }
        Ok(())
    }

    fn send(&mut self, number: usize) -> Result<(), String> {
        let (web, ask, asked) = &mut self.callers[number];
        web.speech.id = self.id;
        self.id += 1;
        *asked = Instant::now();
        web.speech.post(ask, &mut web.out);
        web.stream.write_all(&web.out).map_err(|e| e.to_string())
    }
}

impl Many for WebCrowd {
    fn run(&mut self, calls: usize) -> Result<Load, String> {
        self.reopen()?;
        let mut tally = Tally::new(calls);
        (0..self.callers.len()).try_for_each(|number| self.send(number))?;
        let mut under_way = self.callers.len();
        let mut events = Vec::with_capacity(under_way);
        while under_way > 0 {
            events.clear();
            let patience = patience();
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&patience))
                .map_err(|e| e.to_string())?;
            if events.is_empty() {
                return Err(format!("no answer came for {PATIENCE:?}, {under_way} are awaited"));
            }
            for event in &events {
                let number = event.data.u64() as usize;
                let (web, ask, asked) = &mut self.callers[number];
                if !web.http.read(&mut web.stream) {
                    return Err("the connection was closed".to_owned());
                }
                let id = web.speech.id;
                let Some((head, body)) = web.http.next() else { continue };
                let more = tally.answered(Instant::now(), *asked);
                if !head.starts_with(b"HTTP/1.1 200") {
                    return Err(format!(
                        "{}{}",
                        String::from_utf8_lossy(head),
                        String::from_utf8_lossy(body)
                    ));
                }
                ask.check(id, payload(body))?;
                if more {
                    self.send(number)?;
                } else {
                    under_way -= 1;
                }
            }
        }
        self.used = Instant::now();
        Ok(tally.load())
    }
}

// === impl PipeCrowd ===

impl PipeCrowd {
    pub(crate) fn new(pipe: Pipe, ask: Ask, flight: usize) -> Self {
        // Who only writes while the other only writes waits for ever.
        rustix::fs::fcntl_setfl(pipe.input.as_ref().unwrap(), OFlags::NONBLOCK).unwrap();
        rustix::fs::fcntl_setfl(&pipe.output, OFlags::NONBLOCK).unwrap();
        Self { pipe, ask, flight, filled: 0, out: Vec::new() }
    }

    fn say(&mut self) {
        self.pipe.speech.say(&self.ask).push(b'\n');
        self.out.extend_from_slice(&self.pipe.speech.message);
    }

    /// Writes what fits.
    fn write(&mut self) -> Result<(), String> {
        match self.pipe.input.as_mut().unwrap().write(&self.out) {
            Ok(written) => drop(self.out.drain(..written)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => return Err(e.to_string()),
        }
        Ok(())
    }

    /// Waits until something can be read, or written if there is something to write; true if read.
    fn wait(&mut self) -> Result<bool, String> {
        let mut fds = vec![PollFd::new(&self.pipe.output, PollFlags::IN)];
        if !self.out.is_empty() {
            fds.push(PollFd::new(self.pipe.input.as_ref().unwrap(), PollFlags::OUT));
        }
        if poll(&mut fds, Some(&patience())).map_err(|e| e.to_string())? == 0 {
            return Err(format!("no answer came for {PATIENCE:?}"));
        }
        Ok(!fds[0].revents().is_empty())
    }
}

impl Many for PipeCrowd {
    fn run(&mut self, calls: usize) -> Result<Load, String> {
        let mut tally = Tally::new(calls);
        let base = self.pipe.speech.id + 1;
        let mut asked = Vec::with_capacity(calls + calls / 5 + self.flight);
        for _ in 0..self.flight {
            self.say();
            asked.push(Instant::now());
        }
        let mut under_way = self.flight;
        while under_way > 0 {
            if !self.out.is_empty() {
                self.write()?;
            }
            if !self.wait()? {
                continue;
            }
            if self.filled == self.pipe.held.len() {
                self.pipe.held.resize(self.filled * 2, 0);
            }
            let read =
                self.pipe.output.read(&mut self.pipe.held[self.filled..]).map_err(|e| e.to_string())?;
            if read == 0 {
                return Err("the pipe was closed".to_owned());
            }
            self.filled += read;
            let (now, mut from, mut more) = (Instant::now(), 0, 0);
            while let Some(end) = memchr::memchr(b'\n', &self.pipe.held[from..self.filled]) {
                let answer = &self.pipe.held[from..from + end];
                from += end + 1;
                let Some(id) = id_of(answer) else { continue };
                self.ask.check(id, answer)?;
                under_way -= 1;
                if tally.answered(now, asked[(id - base) as usize]) {
                    more += 1;
                }
            }
            self.pipe.held.copy_within(from..self.filled, 0);
            self.filled -= from;
            under_way += more;
            for _ in 0..more {
                self.say();
                asked.push(now);
            }
        }
        Ok(tally.load())
    }
}

fn patience() -> Timespec {
    Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 }
}
