//! Private parts of the gateway, by themselves.

mod barred;
mod bell;
mod lists;
mod names;
mod telemetry;
mod turns;

use super::addresses::{Gap, fits, marked, unmarked};
use crate::names::ServerName;

#[test]
fn a_template_stands_for_what_its_gaps_can_be_filled_with() {
    let cases = [
        ("x://{id}", "x://a", true, true),
        ("x://{id}", "x://a/b", false, true),
        ("x://{id}", "x://", false, false),
        ("x://{id}", "y://a", false, false),
        ("x://{a}/mid/{b}.txt", "x://1/mid/2.txt", true, true),
        ("x://{a}/mid/{b}.txt", "x://1/mid/2.md", false, false),
        ("x://{a}{b}", "x://12", true, true),
        ("x://{+path}", "x://a/b/c", true, true),
        ("x://a{?q,r}", "x://a?q=1", true, true),
        ("x://a{?q,r}", "x://a", true, true),
        ("x://plain", "x://plain", true, true),
        ("x://plain", "x://plain2", false, false),
        ("x://{broken", "x://a", false, false),
        ("x://{broken", "x://", false, false),
        ("x://bro}ken", "x://bro}ken", false, false),
        ("x://é{a}é", "x://éüé", true, true),
    ];
    for (template, address, step, anything) in cases {
        assert_eq!(fits(template, address, Gap::Step), step, "{template} {address}");
        assert_eq!(fits(template, address, Gap::Anything), anything, "{template} {address}");
    }
}

#[test]
fn a_marked_address_gives_its_parts_back() {
    let server = ServerName::parse("a-b").unwrap();
    assert_eq!(unmarked(&marked(&server, "x://y:1")), Some(("a-b", "x://y:1")));
    assert_eq!(unmarked("x://y"), None);
}
