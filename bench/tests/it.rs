//! That the benchmark measures what it says: what is slowed by a known amount is slower by it, there and nowhere else.
//!
//! The amounts are far above what a busy machine adds to a call, and what is compared is the median of many calls.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may fail loudly")]

use std::process::{Command, Output};

/// What was measured: the direct calls and those through the gateway, in milliseconds, and their ratio.
#[derive(Debug)]
struct Measured {
    direct: f64,
    through: f64,
    ratio: f64,
}

/// Slow, in microseconds.
const SLOW: &str = "50000";
const CASE: &str = "HTTP to stdio, 1 in flight, modern caller, all cores";

fn bench(args: &[&str]) -> Output {
    let always = ["--without-wharf", "--era", "both", "--rounds", "2", "--calls", "5"];
    Command::new(env!("CARGO_BIN_EXE_wharf-bench")).args(always).args(args).output().unwrap()
}

/// Measures a relay that is slowed by so much, with an echo server that is slowed by so much.
fn measure(relay: &str, echo: &str) -> Measured {
    let me = env!("CARGO_BIN_EXE_wharf-bench");
    let gateway = format!("{me} relay --port {{port}} --busy {relay} -- {{command}}");
    let output = bench(&["--gateway", &gateway, "--busy", echo, "--case", CASE]);
    let text = String::from_utf8(output.stdout).unwrap();
    let row = text.lines().find(|line| line.contains(CASE)).unwrap_or_else(|| panic!("{text}"));
    let columns: Vec<&str> = row.split('|').map(str::trim).collect();
    Measured { direct: millis(columns[3]), through: millis(columns[4]), ratio: columns[5].parse().unwrap() }
}

fn millis(shown: &str) -> f64 {
    let (number, unit) = shown.split_once(' ').unwrap_or_else(|| panic!("{shown}"));
    let number: f64 = number.parse().unwrap();
    if unit == "ms" { number } else { number / 1000.0 }
}

#[test]
fn a_slow_server_shows_in_both_figures_and_a_slow_gateway_in_its_own() {
    let plain = measure("0", "0");
    let gateway = measure(SLOW, "0");
    let server = measure("0", SLOW);
    // The floor is a direct call over each of the two hops, so it has the server's time twice.
    assert!(plain.direct < 50.0 && plain.through < 50.0, "{plain:?}");
    assert!(gateway.direct < 50.0 && gateway.through >= 50.0 && gateway.ratio > 1.0, "{gateway:?}");
    assert!(server.direct >= 100.0 && server.through >= 50.0 && server.ratio < 1.0, "{server:?}");
}

#[test]
fn many_in_flight_are_as_slow_as_the_one_thread_that_serves_them() {
    let me = env!("CARGO_BIN_EXE_wharf-bench");
    let gateway = format!("{me} relay --port {{port}} --busy 2000 -- {{command}}");
    let case = "HTTP to stdio, 32 in flight, modern caller, all cores";
    let output = bench(&["--gateway", &gateway, "--case", case, "--calls", "200"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let row = text.lines().find(|line| line.contains(case)).unwrap_or_else(|| panic!("{text}"));
    // 2 ms each, one after the other: 500 a second, and a few more that were begun while it warmed up.
    let rate: f64 = row.split('|').nth(4).unwrap().trim().trim_end_matches("/s").parse().unwrap();
    assert!(rate > 0.0 && rate <= 700.0, "{row}");
}

#[test]
fn a_gateway_that_does_not_answer_is_a_failure_and_no_figure() {
    let output = bench(&["--gateway", "false {port} {config}", "--case", CASE]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success() && text.contains("**failed**"), "{text}");
}

#[test]
fn a_case_that_is_not_there_is_said() {
    let output = bench(&["--case", "no such case"]);
    assert_eq!(output.status.code(), Some(2));
    let list = bench(&["--list"]);
    let names = String::from_utf8(list.stdout).unwrap();
    assert!(list.status.success() && names.lines().any(|name| name == CASE), "{names}");
}

#[test]
fn a_case_that_no_given_gateway_fits_is_not_said_to_be_none() {
    // One that is reached over a pipe by default cannot be measured with a server over HTTP behind it.
    let case = "HTTP to HTTP, 1 in flight, legacy caller, all";
    for (case, why) in [(case, "no gateway that was given"), ("no such case", "no case has such a name")] {
        let output = bench(&["--url", "http://127.0.0.1:9/mcp", "--case", case]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(why), "{said}");
    }
}
