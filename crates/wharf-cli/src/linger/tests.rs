//! When it is worth while to stay awake, under a clock of the test's own.

use std::time::{Duration, Instant};

use wharf::gateway::Pace;
use wharf::linger::Allowance;

use super::{Habit, MOMENT, TURNS};

const QUICK: Duration = Duration::from_micros(30);
const SLOW: Duration = Duration::from_millis(5);

/// Somebody calls one server, one call at a time.
struct Day {
    habit: Habit,
    pace: Pace,
    now: Instant,
}

impl Day {
    fn new(cores: usize) -> Self {
        let (pace, now) = (Pace::default(), Instant::now());
        Self { habit: Habit::new(cores, pace, now), pace, now }
    }

    /// So much later there are so many calls: whether the thread stays awake then.
    fn after(&mut self, wait: Duration, calls: usize) -> bool {
        self.now += wait;
        self.pace = Pace { calls, moves: self.pace.moves + 1 };
        self.habit.stays(self.pace, self.now, false)
    }

    /// Whether it stays awake after some quick calls.
    fn is_quick(&mut self) -> bool {
        self.after(QUICK, 1);
        self.after(QUICK, 0);
        self.after(QUICK, 1)
    }

    /// Others needed the core for some time: whether it stays awake then.
    fn is_crowded(&mut self) -> bool {
        self.now += SLOW;
        self.habit.stays(self.pace, self.now, true)
    }

    /// So much later nothing has happened.
    fn nothing(&mut self, wait: Duration) -> bool {
        self.now += wait;
        self.habit.stays(self.pace, self.now, false)
    }
}

#[test]
fn it_stays_awake_for_a_server_that_was_quick_the_last_time() {
    let mut day = Day::new(2);
    assert!(!day.after(SLOW, 1), "nothing is known of it");
    assert!(!day.after(QUICK, 0), "whoever calls took long");
    assert!(day.after(SLOW, 1), "the server was quick");
    assert!(day.nothing(QUICK), "it still may be");
    assert!(!day.after(QUICK, 0), "whoever calls took long");
}

#[test]
fn it_stays_awake_for_a_caller_that_was_quick_the_last_time() {
    let mut day = Day::new(2);
    day.after(QUICK, 1);
    assert!(day.after(SLOW, 0), "the caller was quick");
    assert!(!day.after(QUICK, 1), "the server was not");
}

#[test]
fn it_sleeps_when_the_moment_is_over_and_does_not_begin_again_by_itself() {
    let mut day = Day::new(2);
    day.after(QUICK, 1);
    day.after(QUICK, 0);
    assert!(day.after(QUICK, 1));
    assert!(day.nothing(MOMENT), "at its very end");
    assert!(!day.nothing(Duration::from_nanos(1)), "it is over");
    assert!(!day.nothing(Duration::ZERO));
    assert!(day.after(SLOW, 0), "the caller was quick");
    assert!(!day.after(QUICK, 1), "the server took long the last time");
}

#[test]
fn it_sleeps_while_calls_could_keep_every_other_core_busy() {
    for (cores, calls, stays) in [(2, 1, true), (2, 2, false), (8, 7, true), (8, 8, false)] {
        let mut day = Day::new(cores);
        day.after(QUICK, 1);
        day.after(QUICK, 0);
        assert_eq!(day.after(QUICK, calls), stays, "{calls} calls on {cores} cores");
    }
}

#[test]
fn it_sleeps_for_a_while_where_others_need_the_core() {
    let mut day = Day::new(2);
    assert!(day.is_quick());
    assert!(day.nothing(QUICK));
    for pause in [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10_000, 10_000] {
        assert!(!day.is_crowded(), "somebody computes");
        assert_eq!(day.habit.allowance(), Allowance::default());
        assert!(!day.nothing(Duration::ZERO));
        day.now += Duration::from_millis(pause) - SLOW;
        assert!(!day.is_quick(), "less than {pause} ms ago somebody did");
        day.now += SLOW;
        assert!(day.is_quick(), "it is tried again after {pause} ms");
    }
    day.now += Duration::from_secs(30);
    assert!(!day.is_crowded(), "after a long time");
    day.now += Duration::from_millis(10);
    assert!(day.is_quick(), "the first pause is short again");
}

#[test]
fn waits_may_linger_by_themselves_for_whoever_was_quick() {
    let mut day = Day::new(1);
    assert_eq!(day.habit.allowance(), Allowance::default(), "nothing is known");
    day.after(SLOW, 1);
    assert!(!day.after(QUICK, 0), "there is one core");
    assert_eq!(day.habit.allowance(), Allowance { caller: 0, server: TURNS }, "the server was quick");
    assert!(!day.after(QUICK, 1));
    assert_eq!(day.habit.allowance(), Allowance { caller: TURNS, server: TURNS }, "the caller too");
    day.pace.moves += 7;
    assert!(!day.after(8 * QUICK, 1));
    assert_eq!(day.habit.allowance(), Allowance { caller: TURNS, server: TURNS }, "eight waits together");
    assert!(!day.after(QUICK, 2));
    assert_eq!(day.habit.allowance(), Allowance::default(), "more than one call is under way");
    day.after(SLOW, 0);
    assert_eq!(day.habit.allowance(), Allowance { caller: TURNS, server: 0 }, "the server took long");
}
