//! Lists that were built before, and when they are forgotten.

use std::sync::Arc;

use crate::event::Bus;
use crate::gateway::lists::{Lists, View};
use crate::registry::Snapshot;

const PLAIN: View = View { apps: false, objects: false, headers: false };

#[test]
fn a_list_is_kept_as_long_as_somebody_asks_for_it_between_two_looks() {
    let (lists, snapshot) = (Lists::new(Bus::default()), Arc::new(Snapshot::default()));
    let asked = || lists.tools(&snapshot, (PLAIN, Vec::new()), None).unwrap();
    // The same bytes, and not only equal ones: those were not built anew.
    let is_same =
        |a: &crate::wire::Json, b: &crate::wire::Json| std::ptr::eq(a.bytes().as_ptr(), b.bytes().as_ptr());
    let first = asked();
    assert!(is_same(&first, &asked()));
    lists.recycle();
    assert!(is_same(&first, &asked()), "it was asked for again since it was built");
    lists.recycle();
    lists.recycle();
    let later = asked();
    assert!(!is_same(&first, &later), "nobody asked for it between two looks");
    assert_eq!(first.as_str(), later.as_str());
}
