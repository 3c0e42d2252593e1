//! What is given back, by what a system may say of a process, and by this very one.

use wharf::gateway::Pace;

use super::{Mapping, QUIET, Rest, SLACK, givable, mappings, settled};

fn read(told: &str) -> Vec<Mapping> {
    super::read(told.as_bytes()).unwrap()
}

/// A program, a file that is only read, a library that swap has a page of, and what a process writes.
const TOLD: &str = "\
1000-2000 r--p 00000000 fe:01 77    /usr/bin/wharf
Size:                  4 kB
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd mr mw me sd
2000-5000 r-xp 00001000 fe:01 77    /usr/bin/wharf
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me sd
5000-6000 r--p 00004000 fe:01 77    /usr/bin/wharf
Anonymous:             4 kB
Swap:                  0 kB
VmFlags: rd mr mw me ac sd
6000-7000 rw-p 00005000 fe:01 77    /usr/bin/wharf
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd wr mr mw me ac sd
8000-9000 r--p 00000000 fe:01 77    /usr/bin/wharf
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd mr mw me sd
a000-b000 r-xp 00000000 fe:01 78    /lib/one more.so (deleted)
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me sd
b000-c000 r--p 00000000 fe:01 78    /lib/one more.so (deleted)
Anonymous:             0 kB
Swap:                  4 kB
VmFlags: rd mr mw me sd
d000-e000 r-xp 00000000 fe:01 79    /lib/locked.so
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me lo sd
e000-f000 r-xs 00000000 fe:01 80    /lib/shared.so
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex sh mr mw me sd
f000-10000 r-xp 00000000 fe:01 81    /lib/untold.so
Anonymous:             0 kB
10000-11000 r-xp 00000000 00:00 0    [vdso]
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me de sd
";

#[test]
fn only_what_a_program_s_file_still_has_is_given_back() {
    let all = read(TOLD);
    assert_eq!(all.len(), 11);
    let given: Vec<_> = givable(&all).map(|mapping| (mapping.start, mapping.end)).collect();
    assert_eq!(given, [(0x1000, 0x2000), (0x2000, 0x5000), (0xa000, 0xb000)]);
}

#[test]
fn nothing_is_given_back_where_nobody_knows_what_was_written() {
    let all = read(&TOLD.replace("  4 kB", "  0 kB"));
    assert_eq!(givable(&all).count(), 0);
    assert_eq!(givable(&read("what is this\nit is nothing:\n")).count(), 0);
    assert_eq!(givable(&[]).count(), 0);
}

#[test]
fn what_was_not_there_before_as_it_is_now_is_not_given_back() {
    let all = read(TOLD);
    let given = |seen: &[Mapping]| settled(&all, seen).map(|mapping| mapping.start).collect::<Vec<_>>();
    assert_eq!(given(&all), [0x1000, 0x2000, 0xa000]);
    assert_eq!(given(&[]), [0; 0]);
    // A library whose last part was still to be mapped, and which is all there now.
    assert_eq!(given(&read(&TOLD.replace("a000-b000 r-xp", "a000-b800 r-xp"))), [0x1000, 0x2000]);
}

#[test]
#[cfg(target_os = "linux")]
fn this_very_process_goes_on_without_its_pages() {
    let all = mappings().unwrap();
    let runs = |mapping: &Mapping| mapping.mode[2] == b'x';
    assert!(givable(&all).any(runs), "{all:?}");
    assert!(givable(&all).all(|mapping| mapping.mode[1] == b'-'));
    let mut rest = Rest::default();
    rest.give_back();
    assert!(settled(&all, &rest.seen).any(runs));
    rest.give_back();
    // What reads it again, and compares, was given back itself.
    assert!(givable(&mappings().unwrap()).any(runs));
}

#[test]
fn it_is_done_when_nothing_was_asked_and_again_when_more_came_back_than_it_takes_to_wait() {
    let mut rest = Rest::default();
    let mut due = |(calls, moves), resident| rest.is_due(Pace { calls, moves }, Some(resident));
    assert!(!due((0, 1), 9000), "nobody knows yet whether it is quiet");
    (0..2 * QUIET).for_each(|_| assert!(!due((1, 2), 9000), "a call is under way"));
    (0..QUIET).for_each(|_| assert!(!due((0, 2), 9000), "something was asked a moment ago"));
    assert!(due((0, 2), 9000));
    assert!(!due((0, 2), 3000), "that is what it takes to wait");
    assert!(!due((0, 2), 3000 + SLACK));
    assert!(due((0, 2), 3001 + SLACK), "something was done by itself");
    assert!(due((0, 2), 4000), "and again, just before that look");
    assert!(!due((0, 2), 2900));
    assert!(due((0, 2), 2901 + SLACK), "the least counts");
    (0..QUIET).for_each(|_| assert!(!due((0, 3), 9000), "something was asked"));
    assert!(due((0, 3), 2900), "then it is learnt anew");
    assert!(!due((0, 3), 5000));
}
