//! a wall clock that jumps, and a gateway that was suspended. Deadlines go by the clock that only goes forward.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wharf_testkit::{Puppet, Step, puppet_path, shim};

use crate::desk::Desk;
use crate::reload::Pipe;

/// How long a call of the server `pup`, whose one tool never answers, may take. The other server, `slow`, has the thirty
/// seconds that each has: more than any machine needs, and less than a clock jumps.
const TIME: Duration = Duration::from_secs(3);
const DAY: i64 = 86_400;

/// A gateway whose wall clock can be set, before a server whose one tool never answers and one that works.
struct Jumping {
    desk: Desk,
    pipe: Pipe,
    tools: tempfile::TempDir,
}

impl Jumping {
    fn new() -> Self {
        let (desk, tools) = (Desk::new(), tempfile::tempdir().unwrap());
        let never = Puppet::new().plain_tool("never").on("tool:never", [Step::Hang]).args();
        let slow = Puppet::new().plain_tool("slow").on("tool:slow", [Step::Sleep(700), Step::Honest]).args();
        let puppet = puppet_path();
        desk.user(&format!(
            "[policy]\ncommands = [{puppet:?}]\n\n\
             [mcp.pup]\ncommand = {puppet:?}\nargs = {never:?}\ntimeout = \"{}s\"\n\n\
             [mcp.slow]\ncommand = {puppet:?}\nargs = {slow:?}\n",
            TIME.as_secs()
        ));
        let mut command = desk.command(&["serve", "--stdio"]);
        command.env("LD_PRELOAD", shim::build(tools.path())).env("SHIM_CLOCK", tools.path().join("offset"));
        fs::write(tools.path().join("offset"), "0").unwrap();
        let mut jumping = Self { desk, pipe: Pipe::open_as(command), tools };
        let tools = jumping.pipe.tools();
        assert!(
            ["pup_never", "slow_slow"].iter().all(|tool| tools.contains(&(*tool).to_owned())),
            "{tools:?}"
        );
        jumping
    }

    /// Calls a tool, and does something in the middle of it.
    fn during(&mut self, tool: &str, what: impl FnOnce(&Self)) -> (Value, Duration) {
        let since = Instant::now();
        let id = self.pipe.send("tools/call", json!({"name": tool, "arguments": {}}));
        std::thread::sleep(Duration::from_millis(200));
        what(self);
        (self.pipe.answer(id), since.elapsed())
    }

    fn jump(&self, seconds: i64) {
        // Renamed into place: whoever looks finds one whole number.
        let (new, file) = (self.tools.path().join("new"), self.tools.path().join("offset"));
        fs::write(&new, seconds.to_string()).unwrap();
        fs::rename(new, file).unwrap();
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.pipe.pid().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

#[test]
fn r_11_a_clock_that_jumps_moves_no_deadline() {
    let mut at = Jumping::new();
    for seconds in [DAY, -DAY, 400 * DAY] {
        let (answer, _) = at.during("slow_slow", |at| at.jump(seconds));
        assert!(answer["result"]["content"].is_array(), "{seconds}: nobody lost patience: {answer}");
        let (answer, took) = at.during("pup_never", |at| at.jump(0));
        assert!(answer.to_string().contains("did not answer within"), "{seconds}: {answer}");
        assert!(took >= TIME && took < 10 * TIME, "{seconds}: {took:?}");
    }
    // The times on record are those of the wall clock, and jump with it. The chain is whole all the same.
    at.pipe.close();
    let told = at.desk.run(&["audit", "--json", "--kind", "call"]).ok();
    assert_eq!(told.out.lines().count(), 6, "{told:?}");
    let years: Vec<&str> = told.out.split("\"time\":\"").skip(1).map(|rest| &rest[..4]).collect();
    assert!(years.iter().any(|year| *year != years[0]), "the clock did jump: {years:?}");
    at.desk.run(&["audit", "verify"]).ok();
}

#[test]
fn r_11_a_gateway_that_was_suspended_goes_on() {
    let mut at = Jumping::new();
    let (answer, _) = at.during("slow_slow", |at| {
        at.signal("-STOP");
        std::thread::sleep(Duration::from_millis(1500));
        at.signal("-CONT");
    });
    assert!(answer["result"]["content"].is_array(), "the answer was there when it woke up: {answer}");
    let (answer, took) = at.during("pup_never", |at| {
        at.signal("-STOP");
        std::thread::sleep(2 * TIME);
        at.signal("-CONT");
    });
    assert!(answer.to_string().contains("did not answer within"), "{answer}");
    assert!(took < 10 * TIME, "{took:?}");
    at.pipe.close();
}
