//! The counters by themselves.

use super::*;
use crate::error::StderrTail;

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

/// What is told of calls that took so long.
fn told(nanos: impl IntoIterator<Item = u64>) -> Reading {
    let tally = Tally::default();
    nanos.into_iter().for_each(|nanos| tally.end(OK, Some(Duration::from_nanos(nanos))));
    tally.read(Label::Others)
}

#[test]
fn l96_nothing_is_told_as_slower_than_it_was() {
    assert_eq!(told([]).durations.within(50), None);
    let second = 1_000_000_000;
    for nanos in [1_500_000_000, 30 * second, 30 * second + 1, 420, 77 * second, 900 * second, 9000 * second]
    {
        let durations = told([nanos; 256]).durations;
        let took = Duration::from_nanos(nanos);
        for shown in [50, 99, 100].map(|part| durations.within(part).unwrap()) {
            assert!(shown <= took && (shown >= took * 8 / 9 || nanos < 1_000), "{shown:?} of {took:?}");
        }
    }
}

#[test]
fn l96_any_part_of_any_calls_is_told_to_within_an_eighth() {
    let mut random = fastrand::Rng::with_seed(96);
    for round in 0..200 {
        let most = 2_f64.powf(11.0 + f64::from(round % 31));
        let mut nanos: Vec<u64> = (0..500).map(|_| 1_000 + (most * random.f64().powi(4)) as u64).collect();
        let durations = told(nanos.iter().copied()).durations;
        nanos.sort_unstable();
        for hundredths in [1, 50, 90, 99, 100] {
            let took = nanos[hundredths * 5 - 1] as f64;
            let shown = durations.within(hundredths as u64).unwrap().as_nanos() as f64;
            // The first parts have a microsecond, whatever that is of their time.
            let off = (took / 8.0).max(1_000.0) + 1.0;
            assert!((shown - took).abs() <= off, "{hundredths} of {most}: {shown} for {took}");
        }
    }
}

#[test]
fn l96_what_came_between_two_looks_is_told_by_itself() {
    let tally = Tally::default();
    (0..1000).for_each(|_| tally.end(OK, Some(Duration::from_millis(3))));
    let before = tally.read(Label::Others).durations;
    (0..10).for_each(|_| tally.end(OK, Some(Duration::from_millis(1500))));
    let now = tally.read(Label::Others).durations;
    let between = now.since(&before);
    for shown in [50, 99].map(|part| between.within(part).unwrap()) {
        assert!(shown > Duration::from_millis(1375) && shown <= Duration::from_millis(1500), "{between:?}");
    }
    assert_eq!(now.since(&now).within(50), None);
    // As it is told to others and read there.
    assert_eq!(Durations::of(now.counts(), now.longest()), now);
}

#[test]
fn l96_a_call_is_sorted_by_its_time_to_the_nanosecond() {
    let tally = Tally::default();
    for nanos in [0, 50_000, 50_001, 300_000_000_000, 300_000_000_001] {
        tally.end(OK, Some(Duration::from_nanos(nanos)));
    }
    let reading = tally.read(Label::Others);
    assert_eq!((reading.buckets[0], reading.buckets[1]), (2, 1));
    assert_eq!((reading.buckets[BOUNDS.len() - 1], reading.buckets[BOUNDS.len()]), (1, 1));
    for (n, bound) in BOUNDS.into_iter().enumerate() {
        let buckets = told([bound, bound + 1]).buckets;
        assert_eq!((buckets[n], buckets[n + 1]), (1, 1), "at {bound}");
    }
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
    let (meter, place) = (Meter::default(), TallyPlace::default());
    let (server, tool) = (ServerName::parse("a").unwrap(), ToolName::parse("t").unwrap());
    let stderr = StderrTail::default;
    let late =
        |sent| Error::Timeout { server: server.clone(), after: Duration::ZERO, sent, stderr: stderr() };
    let left = |sent| Error::Cancelled { reason: "r".into(), sent };
    let refused =
        || Error::Unavailable { server: server.clone(), reason: "r".into(), retry_after: Duration::ZERO };
    let end = |error: Option<&Error>| {
        let counted = meter.begin(&place, (&server, &tool), Instant::now());
        counted.end(error.is_none(), error, Duration::from_secs(1));
    };
    for error in [refused(), denied("approval 7"), late(false), left(false)] {
        end(Some(&error));
    }
    assert_eq!(meter.read()[0].buckets.iter().sum::<u64>(), 0);
    // The twin: what was sent does, however it ended; also where only an earlier attempt was.
    for error in [late(true), left(true), Error::Begun(refused().into())] {
        end(Some(&error));
    }
    end(None);
    let now = &meter.read()[0];
    assert_eq!((now.buckets.iter().sum::<u64>(), now.ended()), (4, 8));
}
