//! What a gateway that nobody calls gives back: the pages of its program that it does not need to wait.
//!
//! In: a gateway. Out: nothing but a smaller resident size. Most of a program runs once, when it starts; the system keeps
//! all of that mapped until it is short of memory. Told that it is not needed, it maps anew what is touched next, from its
//! cache. What was ever written to is left alone (`docs/decisions/0023-a-gateway-at-rest.md`).

use std::time::Duration;

use wharf::gateway::Gateway;

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

/// How long nothing may be asked before it is called quiet.
const QUIET: Duration = Duration::from_secs(5);
/// In the end it is done at every so many looks: that often is also looked at what nobody uses any more.
const AT_LENGTH: u64 = 8;
/// What the system calls memory that is locked, huge, or a device's.
const SPECIAL: [&str; 6] = ["lo", "ht", "io", "pf", "mm", "de"];

/// Gives back what is not needed whenever nothing was asked for a while. Never ends. For a task of its own: what it wakes
/// is mapped again.
pub(crate) async fn whenever_quiet(gateway: Gateway) {
    let (mut asked, mut looks, mut seen) = (None, 0, Vec::new());
    loop {
        let now = Some(gateway.quiet_for(QUIET).await);
        looks = if asked == now { looks + 1 } else { 0 };
        asked = now;
        if is_due(looks) {
            memory::give_back();
            give_back(&mut seen);
        }
    }
}

/// Whether it is time, after so many looks at which it was quiet since the last question. What still had to be done then,
/// or is done by itself, has brought back some of it.
fn is_due(looks: u64) -> bool {
    looks.is_multiple_of(AT_LENGTH) || looks.is_power_of_two()
}

/// Lets the system take the unchanged pages of the program and of its libraries, as far as they were `seen` at the last
/// look: a library that is just being loaded looks like one that is there, for a moment.
fn give_back(seen: &mut Vec<Mapping>) {
    let Ok(told) = std::fs::read_to_string("/proc/self/smaps") else { return };
    let all = read(&told);
    settled(&all, seen).for_each(forget);
    *seen = all;
}

/// What can be given back, and was there before as it is now.
fn settled<'a>(all: &'a [Mapping], seen: &[Mapping]) -> impl Iterator<Item = &'a Mapping> {
    givable(all).filter(|mapping| seen.contains(mapping))
}

/// Takes apart what the system says of each mapping: a line about it, then a line for each figure.
fn read(told: &str) -> Vec<Mapping> {
    let mut all: Vec<Mapping> = Vec::new();
    for line in told.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(first) = words.next() else { continue };
        let Some(figure) = first.strip_suffix(':') else {
            all.push(Mapping::named(first, words).unwrap_or(Mapping { special: true, ..Mapping::default() }));
            continue;
        };
        let Some(mapping) = all.last_mut() else { continue };
        match figure {
            "Anonymous" => mapping.written[0] = words.next().and_then(|size| size.parse().ok()),
            "Swap" => mapping.written[1] = words.next().and_then(|size| size.parse().ok()),
            "VmFlags" => mapping.special |= words.any(|flag| SPECIAL.contains(&flag)),
            _ => {}
        }
    }
    all
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
