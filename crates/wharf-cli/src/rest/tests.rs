//! What is given back, by what a system may say of a process, and by this very one.

use super::*;

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
    let told = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let all = read(&told);
    let runs = |mapping: &Mapping| mapping.mode[2] == b'x';
    assert!(givable(&all).any(runs), "{told}");
    assert!(givable(&all).all(|mapping| mapping.mode[1] == b'-'));
    let mut seen = Vec::new();
    give_back(&mut seen);
    assert!(settled(&all, &seen).any(runs));
    give_back(&mut seen);
    // What reads it again, and compares, was given back itself.
    assert!(givable(&read(&std::fs::read_to_string("/proc/self/smaps").unwrap())).any(runs));
}

#[test]
fn the_longer_it_is_quiet_the_less_often_it_is_done() {
    let due: Vec<_> = (0..=40).filter(|looks| is_due(*looks)).collect();
    assert_eq!(due, [0, 1, 2, 4, 8, 16, 24, 32, 40]);
}
