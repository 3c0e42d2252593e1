//! What is turned away goes on record, and does not fill it.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use tokio::time::sleep;

use crate::event::{Facts, Kind, News, Trail};
use crate::gateway::barred::{Bar, Barred, Whence};

const MINUTE: Duration = Duration::from_secs(61);

/// The reasons of what is on record by now.
fn told(facts: &Facts) -> Vec<String> {
    let batch = facts.take(Duration::ZERO, Some(Duration::ZERO));
    let facts = batch.news.into_iter().map(|news| match news {
        News::Fact(fact) => fact,
        other => panic!("{other:?}"),
    });
    facts
        .map(|fact| {
            assert_eq!(fact.kind, Kind::Barred);
            fact.reason.unwrap()
        })
        .collect()
}

fn host(number: u32) -> Whence {
    Whence::address(Some(IpAddr::from(Ipv4Addr::from(0x0A00_0000 + number))))
}

#[tokio::test(start_paused = true)]
async fn l95_the_first_refusal_is_told_at_once_and_the_others_as_a_number() {
    let (trail, facts) = Trail::new();
    let barred = Barred::new(trail);
    let bar = Bar::Identity("that key is not known here");
    for _ in 0..1000 {
        barred.note(host(1), bar);
    }
    assert_eq!(told(&facts), ["10.0.0.1: that key is not known here"]);
    sleep(MINUTE).await;
    assert_eq!(told(&facts), ["10.0.0.1: that key is not known here; 999 more within 60 s"]);
    // Afterwards it begins anew; a single one has no number.
    barred.note(host(1), bar);
    sleep(MINUTE).await;
    assert_eq!(told(&facts), ["10.0.0.1: that key is not known here"]);
}

#[tokio::test(start_paused = true)]
async fn l95_a_flood_from_everywhere_is_a_bounded_number_of_records() {
    let (trail, facts) = Trail::new();
    let barred = Barred::new(trail);
    for round in 0..5 {
        for number in 0..10_000 {
            barred.note(host(number), Bar::Identity("say who you are"));
        }
        let first = told(&facts);
        assert_eq!(first.len(), 33, "round {round}: {first:?}");
        assert_eq!(first.last().unwrap(), "others: say who you are");
        sleep(MINUTE).await;
        let counted = told(&facts);
        assert_eq!(counted, ["others: say who you are; 9967 more within 60 s"], "round {round}");
    }
    // What was counted is told when the gateway goes, too.
    barred.note(host(1), Bar::Limits);
    barred.note(host(1), Bar::Limits);
    drop(barred);
    assert_eq!(told(&facts).len(), 2);
}

#[test]
fn l95_neighbours_in_one_network_of_long_addresses_are_one_source() {
    let at = |text: &str| Whence::address(Some(text.parse().unwrap()));
    assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:2"));
    assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
    assert_eq!(at("::ffff:10.0.0.1"), host(1));
    assert_eq!(
        (at("2001:db8::1").to_string(), at("::1").to_string()),
        ("2001:db8::/64".into(), "::1".into())
    );
}
