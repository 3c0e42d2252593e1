//! What a gateway that nobody calls gives back: the pages of its program that it does not need to wait.
//!
//! In: a gateway. Out: nothing but a smaller resident size. Most of a program runs once, when it starts; the system keeps
//! all of that mapped until it is short of memory. Told that it is not needed, it maps anew what is touched next, from its
//! cache. What was ever written to is left alone (`docs/decisions/0023-a-gateway-at-rest.md`).

use std::fs::File;
use std::io::{BufRead, BufReader, Result};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use wharf::gateway::{Gateway, Pace};

use crate::memory;

/// A stretch of this process's memory, as the system describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Mapping {
    start: usize,
    end: usize,
    /// Like `r-xp`.
    mode: [u8; 4],
    /// Device and number of the file that it is of, as written; `None` of none.
    file: Option<String>,
    /// How much of it was written to, so that the file does not have it, in memory and in swap; `None`: nobody says.
    written: [Option<usize>; 2],
    /// The system says that it must stay, or that it is of no ordinary kind.
    special: bool,
}

/// A thread that gives back what is not needed whenever nothing was asked for a while, until this is dropped. What it
/// wakes is mapped again, so it wakes nobody: neither the runtime nor whoever serves.
pub(crate) struct Resting {
    /// Nothing is said there; that nobody is left to say something is the end.
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What was seen and done so far.
#[derive(Default)]
struct Rest {
    /// At the last look, and at how many looks before it.
    still: (Pace, u32),
    seen: Vec<Mapping>,
    /// How much was resident one look after giving back, at the least: what it takes to wait.
    least: Option<usize>,
    /// It was given back at the last look.
    given: bool,
}

/// How often is looked.
const LOOK: Duration = Duration::from_secs(1);
/// After how many looks it is called quiet, if nothing was asked since the first of them.
const QUIET: u32 = 5;
/// How much more than it takes to wait may be resident, in pages: what is done by itself now and then brings some back.
const SLACK: usize = 128;
/// What the system calls memory that is locked, huge, or a device's.
const SPECIAL: [&str; 6] = ["lo", "ht", "io", "pf", "mm", "de"];

/// What can be given back, and was there before as it is now.
fn settled<'a>(all: &'a [Mapping], seen: &[Mapping]) -> impl Iterator<Item = &'a Mapping> {
    givable(all).filter(|mapping| seen.contains(mapping))
}

/// What the system says of this process's memory.
fn mappings() -> Result<Vec<Mapping>> {
    read(BufReader::new(File::open("/proc/self/smaps")?))
}

/// How many pages are resident.
fn resident() -> Option<usize> {
    std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()
}

/// Takes apart what the system says of each mapping: a line about it, then a line for each figure. Line by line: all of it
/// would be memory that is taken in order to give some back.
fn read(mut told: impl BufRead) -> Result<Vec<Mapping>> {
    let mut all = Vec::new();
    let mut line = String::new();
    while told.read_line(&mut line)? > 0 {
        note(&line, &mut all);
        line.clear();
    }
    Ok(all)
}

fn note(line: &str, all: &mut Vec<Mapping>) {
    let mut words = line.split_ascii_whitespace();
    let Some(first) = words.next() else { return };
    let Some(figure) = first.strip_suffix(':') else {
        all.push(Mapping::named(first, words).unwrap_or(Mapping { special: true, ..Mapping::default() }));
        return;
    };
    let Some(mapping) = all.last_mut() else { return };
    match figure {
        "Anonymous" => mapping.written[0] = words.next().and_then(|size| size.parse().ok()),
        "Swap" => mapping.written[1] = words.next().and_then(|size| size.parse().ok()),
        "VmFlags" => mapping.special |= words.any(|flag| SPECIAL.contains(&flag)),
        _ => {}
    }
}

/// Those that can be read again, of programs: of files that are run, whose parts lie side by side and are mapped until the
/// process ends. Files that are only read may be unmapped by whoever reads them, at any moment.
fn givable(all: &[Mapping]) -> impl Iterator<Item = &Mapping> {
    // Every process has written something. A system that knows of nothing does not know.
    let is_told = all.iter().any(|mapping| mapping.written[0] > Some(0));
    let are_one = |a: &Mapping, b: &Mapping| a.file.is_some() && a.file == b.file && a.end == b.start;
    let is_run = move |parts: &&[Mapping]| is_told && parts.iter().any(|part| part.mode[2] == b'x');
    all.chunk_by(are_one).filter(is_run).flatten().filter(|mapping| mapping.can_be_read_again())
}

// === impl Resting ===

impl Resting {
    pub(crate) fn begin(gateway: Gateway) -> Result<Self> {
        let (end, ended) = mpsc::channel();
        let resting = move || {
            let mut rest = Rest { seen: mappings().unwrap_or_default(), ..Rest::default() };
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                rest.look(gateway.pace(), resident());
            }
        };
        let thread = std::thread::Builder::new().name("wharf-rest".into()).spawn(resting)?;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Resting {
    /// Waits for it: what it knows the gateway by goes with it.
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

// === impl Rest ===

impl Rest {
    /// Gives back what is not needed, if nothing was asked for a while and there is something to give.
    fn look(&mut self, pace: Pace, resident: Option<usize>) {
        if self.is_due(pace, resident) {
            memory::give_back();
            self.give_back();
        }
    }

    /// What it takes to wait is known one look after giving back, and is learnt anew after every call. What is done by itself,
    /// or was left to do after the last call, brings back more than that.
    fn is_due(&mut self, pace: Pace, resident: Option<usize>) -> bool {
        let looks = if pace == self.still.0 { self.still.1.saturating_add(1) } else { 0 };
        self.still = (pace, looks);
        let is_quiet = pace.calls == 0 && looks >= QUIET;
        self.least = match resident {
            Some(now) if is_quiet && self.given => Some(self.least.unwrap_or(now).min(now)),
            _ => self.least.filter(|_| is_quiet),
        };
        let takes_more = |least| resident.is_some_and(|now| now > least + SLACK);
        self.given = is_quiet && self.least.is_none_or(takes_more);
        self.given
    }

    /// Lets the system take the unchanged pages of the program and of its libraries, as far as they were seen at the last
    /// look: a library that is just being loaded looks like one that is there, for a moment.
    fn give_back(&mut self) {
        let Ok(all) = mappings() else { return };
        settled(&all, &self.seen).for_each(forget);
        self.seen = all;
    }
}

// === impl Mapping ===

impl Mapping {
    /// `55c6b48c1000-55c6b518a000 r--p 00000000 fe:01 1234 /usr/bin/wharf`, of which the first word is taken already.
    fn named<'a>(range: &str, mut words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let (start, end) = range.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        let mode = words.next()?.as_bytes().try_into().ok()?;
        let (device, inode) = (words.nth(1)?, words.next()?);
        let file = (inode != "0").then(|| format!("{device} {inode}"));
        Some(Self { start: number(start)?, end: number(end)?, mode, file, ..Self::default() })
    }

    /// Whether the file has every byte of it, and nobody can write another one into it.
    fn can_be_read_again(&self) -> bool {
        let [read, write, _, private] = self.mode;
        [read, write, private] == *b"r-p" && self.written == [Some(0); 2] && !self.special
    }
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the program's own pages, which come back as they were when they are touched")]
fn forget(mapping: &Mapping) {
    let from = std::ptr::with_exposed_provenance_mut(mapping.start);
    // SAFETY: the range is a part of this program or of one of its libraries, and nothing here ever closes one: it is
    // mapped until the process ends. It was the same at the last look, seconds ago, so no loader is at work on it. It cannot be written to, and nothing in it ever was: neither in memory nor in swap
    // is there a page that the file does not have. So whoever reads it next reads the same bytes, from the file. A failure
    // changes nothing.
    let _ =
        unsafe { rustix::mm::madvise(from, mapping.end - mapping.start, rustix::mm::Advice::LinuxDontNeed) };
}

#[cfg(not(target_os = "linux"))]
fn forget(_: &Mapping) {}

#[cfg(test)]
mod tests;
