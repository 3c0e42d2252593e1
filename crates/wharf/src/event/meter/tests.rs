//! The counters by themselves.

use super::*;

fn denied(rule: &str) -> Error {
    Error::Denied { what: "w".into(), rule: rule.into(), hint: String::new() }
}

#[test]
fn l96_a_denial_is_counted_by_the_kind_of_its_rule() {
    let meter = Meter::default();
    for rule in [
        "`lock.changed`: its definition is not the one that was accepted",
        "`scan.hidden.tags`: its words are not what they seem",
        "`flow.open-world`: x, and nobody allowed it",
        "consent: nobody allowed `a` to call it",
        "approval 7",
        "the rules of caller `a`, which do not give it",
        "the permission of `a`: it was given none",
        "the tool's own `visibility`: it is for apps alone",
        "`disabled_tools` of server `a`",
        "the address rules: it is private",
        "something that came later",
    ] {
        meter.refuse_unknown(&denied(rule));
    }
    meter.refuse_unknown(&Error::Internal("no rule".into()));
    let told: Vec<_> = meter.denials().collect();
    assert!(told.iter().all(|(kind, count)| *count == u64::from(*kind != "launch")), "{told:?}");
    assert_eq!(meter.read().last().map(Reading::ended), Some(12));
}

#[test]
fn l96_times_are_told_from_how_calls_are_sorted() {
    let mut buckets = [0; BOUNDS.len() + 1];
    assert_eq!(percentile(&buckets, 50), None);
    buckets[4] = 100;
    let half = percentile(&buckets, 50).unwrap();
    assert!(half > Duration::from_micros(500) && half <= Duration::from_millis(1), "{half:?}");
    buckets[13] = 2;
    assert!(percentile(&buckets, 99).unwrap() > Duration::from_millis(500));
    assert!(percentile(&buckets, 50).unwrap() <= Duration::from_millis(1));
    buckets = [0; BOUNDS.len() + 1];
    buckets[BOUNDS.len()] = 1;
    assert_eq!(percentile(&buckets, 99), Some(Duration::from_secs(300)), "the last bound that there is");
}

#[test]
fn l96_a_call_is_sorted_by_its_time_to_the_nanosecond() {
    let tally = Tally::default();
    for nanos in [0, 50_000, 50_001, 300_000_000_000, 300_000_000_001] {
        tally.end(OK, Duration::from_nanos(nanos));
    }
    let reading = tally.read(Label::Others);
    assert_eq!((reading.buckets[0], reading.buckets[1]), (2, 1));
    assert_eq!((reading.buckets[BOUNDS.len() - 1], reading.buckets[BOUNDS.len()]), (1, 1));
}

#[test]
fn l96_every_kind_of_error_is_an_outcome_of_its_own() {
    let source = include_str!("../../error.rs");
    let kinds =
        source.split("pub fn kind(").nth(1).and_then(|rest| rest.split("pub fn side(").next()).unwrap();
    let kinds: Vec<_> = kinds.lines().filter_map(|line| line.split('"').nth(1)).collect();
    assert!(kinds.len() > 25, "{kinds:?}");
    for kind in kinds {
        assert!(OUTCOMES.contains(&kind), "`{kind}` would be counted as `other`");
    }
}

#[test]
fn l96_what_was_not_sent_does_not_tell_how_long_calls_take() {
    let tally = Tally::default();
    let server = || ServerName::parse("a").unwrap();
    let refused = Error::Unavailable { server: server(), reason: "r".into(), retry_after: Duration::ZERO };
    let late =
        Error::Timeout { server: server(), after: Duration::ZERO, sent: true, stderr: Default::default() };
    (0..5).for_each(|_| tally.end(place_of(&refused), Duration::ZERO));
    tally.end(place_of(&denied("approval 7")), Duration::ZERO);
    assert_eq!(tally.read(Label::Unknown).buckets.iter().sum::<u64>(), 0);
    // The twin: what was sent does, however it ended.
    tally.end(OK, Duration::from_secs(1));
    tally.end(place_of(&late), Duration::from_secs(1));
    let now = tally.read(Label::Unknown);
    assert_eq!((now.buckets.iter().sum::<u64>(), now.ended()), (2, 8));
}
