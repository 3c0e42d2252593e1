//! What a gateway keeps in memory while nobody calls it. By what the system says of the real program.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::desk::{Desk, WHARF};
use crate::reload::Pipe;

/// More than the time after which it is quiet, less than any machine needs for anything else.
const STEADY: Duration = Duration::from_secs(7);
/// How long anything may take before the test is lost.
const LONG: Duration = Duration::from_secs(60);

/// How much of the program's file is in memory, in kilobytes.
fn mapped(pipe: &Pipe) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", pipe.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn call(pipe: &mut Pipe, number: usize) {
    let message = format!("the {number}. time");
    let params = json!({"name": "all_echo", "arguments": {"message": message}});
    let answer = pipe.ask("tools/call", params);
    assert_eq!(answer["result"]["content"][0]["text"], message, "{answer}");
}

/// Waits until much less of it is in memory than there was.
fn until_at_rest(pipe: &Pipe, before: u64) -> u64 {
    let since = Instant::now();
    loop {
        let now = mapped(pipe);
        if now < before * 3 / 4 {
            return now;
        }
        assert!(since.elapsed() < LONG, "{now} kB are mapped, of {before}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn l96_a_gateway_gives_back_what_it_does_not_need_when_nobody_calls_and_not_before() {
    let desk = Desk::new();
    desk.user(&format!(
        "[policy]\ncommands = [{WHARF:?}]\n\n[mcp.all]\ncommand = {WHARF:?}\nargs = [\"test-server\"]\n"
    ));
    let mut pipe = Pipe::open(&desk);
    assert!(pipe.tools().contains(&"all_echo".to_owned()));
    (0..100).for_each(|number| call(&mut pipe, number));
    let busy = mapped(&pipe);
    let since = Instant::now();
    for number in 0.. {
        call(&mut pipe, number);
        let now = mapped(&pipe);
        assert!(now > busy * 9 / 10, "{now} of {busy} kB are left while it is called");
        if since.elapsed() > STEADY {
            break;
        }
    }
    until_at_rest(&pipe, busy);
    // What is called needs its code again, and only that; then it rests again.
    pipe.tools();
    (0..100).for_each(|number| call(&mut pipe, number));
    let again = mapped(&pipe);
    assert!(again < busy, "{again} of {busy} kB");
    until_at_rest(&pipe, again);
    call(&mut pipe, 0);
}
