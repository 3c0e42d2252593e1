//! What a thread reads for itself, as often as it may.

use std::io::{Write as _, pipe};

use bytes::BytesMut;

use super::{Allowance, For, allow, allowed, read};

#[test]
fn l36_what_has_come_is_read_as_often_as_it_is_allowed() {
    let (reads, mut writes) = pipe().unwrap();
    rustix::io::ioctl_fionbio(&reads, true).unwrap();
    let mut room = BytesMut::new();
    // Said before each, since on a crowded machine nothing is left after one.
    let once = Allowance { caller: 0, server: 1 };
    allow(once);
    assert_eq!(read(For::Server, &reads, &mut room), None, "nothing is there");
    writes.write_all(b"come").unwrap();
    assert_eq!(read(For::Server, &reads, &mut room), None, "it was used up");
    allow(once);
    assert_eq!(read(For::Caller, &reads, &mut room), None, "it is for servers");
    assert_eq!(read(For::Server, &reads, &mut room), Some(4));
    assert_eq!(&room[..], b"come");
    assert_eq!(allowed(), Allowance::default());
}

#[test]
fn l37_an_end_is_left_for_whoever_reads_in_the_ordinary_way() {
    let (reads, writes) = pipe().unwrap();
    drop(writes);
    let mut room = BytesMut::new();
    allow(Allowance { caller: 0, server: 1 });
    assert_eq!(read(For::Server, &reads, &mut room), None);
    assert!(room.is_empty());
}
