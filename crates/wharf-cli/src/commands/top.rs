//! `wharf top`: a running gateway, live.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::time::Duration;

use clap::Args;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use wharf::event::Durations;

use super::status;
use crate::app::{App, interrupted};
use crate::failure::Result;
use crate::output::Giving;
use crate::watched::{Watched, Where};

/// Watch a running gateway: which servers are called, how often, how fast
///
/// Redraws until you press q. Where the output is no terminal, or with `--once`, it measures for one interval and writes
/// the table once.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wharf top
  wharf top --interval 5s
  wharf top --once --json")]
pub(crate) struct TopArgs {
    #[command(flatten)]
    at: Where,
    /// How often to look: 1s, 500ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::cli::duration)]
    interval: Duration,
    /// Measure once, and end
    #[arg(long)]
    once: bool,
}

/// What was last seen: when, and each server's counters.
struct Seen {
    at: Instant,
    counts: HashMap<String, Counts>,
}

/// Calls, errors, and how many calls took how long, since the gateway started.
#[derive(Default)]
struct Counts {
    calls: u64,
    errors: u64,
    durations: Durations,
}

/// How a server's calls went since it was last looked at.
#[derive(Default)]
struct Pace {
    calls: f64,
    errors: f64,
    /// How long half of them took, and all but one in a hundred, in microseconds.
    within: [Value; 2],
}

/// A terminal that gives keys as they are pressed, on a screen of its own, until it is dropped.
struct Stage {
    before: Termios,
}

const HEAD: [&str; 11] =
    ["server", "state", "calls/s", "err/s", "p50", "p99", "busy", "waiting", "refused", "calls", "errors"];
/// What has no room on a narrow screen can be read with `wharf status`.
const GIVING: Giving = Giving {
    words: "",
    order: &["errors", "calls", "p50", "refused", "waiting", "err/s", "p99", "busy"],
    before_names: 3,
};
/// Another screen without a cursor, and back to the first.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H\x1b[2J";

impl TopArgs {
    pub(crate) async fn run(self, app: &App) -> Result<()> {
        let gateway = self.at.find(app)?;
        let first = gateway.status().await?;
        let live = !self.once && !app.ui.json && app.ui.terminals.stdout && app.ui.terminals.stdin;
        if live {
            return self.watch(&gateway, first).await;
        }
        let seen = Seen::of(&first);
        tokio::time::sleep(self.interval).await;
        let mut now = gateway.status().await?;
        let rates = seen.rates(&now);
        if app.ui.json {
            for server in now["servers"].as_array_mut().into_iter().flatten() {
                let Some(pace) = rates.get(&status::text(&server["name"])) else { continue };
                server["callsPerSecond"] = pace.calls.into();
                server["errorsPerSecond"] = pace.errors.into();
                [server["p50Us"], server["p99Us"]] = pace.within.clone();
            }
            return Ok(app.ui.document(&now)?);
        }
        let rows: Vec<_> = status::servers(&now).map(|server| row(server, &rates)).collect();
        Ok(app.ui.rows_giving(&HEAD, &rows, &GIVING)?)
    }

    async fn watch(&self, gateway: &Watched, mut now: Value) -> Result<()> {
        let stage = Stage::enter()?;
        let mut keys = keys();
        let mut seen = Seen::of(&now);
        let mut rates = HashMap::new();
        let mut looks = tokio::time::interval(self.interval);
        looks.tick().await;
        let ended = loop {
            stage.draw(&now, &rates)?;
            tokio::select! {
                key = keys.recv() => match key {
                    // Also what Ctrl-C and Ctrl-D are where keys come as they are, and the end of all input.
                    Some(b'q' | b'Q' | 3 | 4) | None => break Ok(()),
                    Some(_) => {}
                },
                () = interrupted() => break Ok(()),
                _ = looks.tick() => match gateway.status().await {
                    Ok(status) => {
                        rates = seen.rates(&status);
                        (seen, now) = (Seen::of(&status), status);
                    }
                    Err(failure) => break Err(failure),
                },
            }
        };
        drop(stage);
        ended
    }
}

// === impl Seen ===

impl Seen {
    fn of(status: &Value) -> Self {
        let counts =
            status::servers(status).map(|server| (status::text(&server["name"]), Counts::of(server)));
        Self { at: Instant::now(), counts: counts.collect() }
    }

    /// How it went since then, by server.
    fn rates(&self, now: &Value) -> HashMap<String, Pace> {
        let (now, nothing) = (Self::of(now), Counts::default());
        let time = now.at.duration_since(self.at).as_secs_f64().max(0.001);
        let rates = now.counts.into_iter().map(|(name, counts)| {
            let pace = counts.since(self.counts.get(&name).unwrap_or(&nothing), time);
            (name, pace)
        });
        rates.collect()
    }
}

// === impl Counts ===

impl Counts {
    fn of(server: &Value) -> Self {
        let count = |key: &str| server[key].as_u64().unwrap_or_default();
        let durations = server["durations"].as_array().into_iter().flatten();
        let durations = durations.filter_map(|part| Some((part[0].as_u64(), part[1].as_u64()?)));
        let longest = server["longestUs"].as_u64().map(Duration::from_micros);
        let durations = Durations::of(durations, longest);
        Self { calls: count("calls"), errors: count("errors"), durations }
    }

    /// One that was restarted begins anew.
    fn since(&self, before: &Self, time: f64) -> Pace {
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / time;
        let durations = self.durations.since(&before.durations);
        let within = |part| match durations.within(part) {
            Some(time) => u64::try_from(time.as_micros()).unwrap_or(u64::MAX).into(),
            None => Value::Null,
        };
        Pace {
            calls: rate(self.calls, before.calls),
            errors: rate(self.errors, before.errors),
            within: [within(50), within(99)],
        }
    }
}

fn row(server: &Value, rates: &HashMap<String, Pace>) -> Vec<String> {
    let name = status::text(&server["name"]);
    let (pace, nothing) = (rates.get(&name), Pace::default());
    let pace = pace.unwrap_or(&nothing);
    let number = |key: &str| server[key].as_u64().unwrap_or_default().to_string();
    let rate = |rate: f64| if rate >= 100.0 { format!("{rate:.0}") } else { format!("{rate:.1}") };
    vec![
        name,
        status::state(server),
        rate(pace.calls),
        rate(pace.errors),
        status::time(&pace.within[0]),
        status::time(&pace.within[1]),
        number("inFlight"),
        number("waiting"),
        status::refused(server),
        number("calls"),
        number("errors"),
    ]
}

// === impl Stage ===

impl Stage {
    fn enter() -> Result<Self> {
        let before = tcgetattr(std::io::stdin()).map_err(std::io::Error::from)?;
        let mut raw = before.clone();
        raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        tcsetattr(std::io::stdin(), OptionalActions::Now, &raw).map_err(std::io::Error::from)?;
        let stage = Self { before };
        std::io::stdout().write_all(ENTER)?;
        Ok(stage)
    }

    fn draw(&self, status: &Value, rates: &HashMap<String, Pace>) -> Result<()> {
        let size = tcgetwinsize(std::io::stdout()).ok();
        let (width, height) = room(size.map_or((0, 0), |size| (size.ws_col, size.ws_row)));
        let mut rows: Vec<_> = status::servers(status).map(|server| row(server, rates)).collect();
        // Whoever is called most stands first.
        rows.sort_by(|a, b| number(&b[2]).total_cmp(&number(&a[2])));
        rows.truncate(usize::from(height).saturating_sub(4));
        // Times are as wide as they can be from the beginning, so that no column comes and goes with them.
        let times = rows.iter_mut().flat_map(|row| &mut row[4..6]);
        times.for_each(|time| *time = format!("{time:<6}"));
        let table = crate::output::fitted(&HEAD, &rows, width, &GIVING);
        let mut screen = format!("{HOME}{}   q ends\n\n{table}", status::summary(status));
        for obstacle in status::obstacles(status) {
            screen.push_str(&format!("{obstacle}\n"));
        }
        let mut out = anstream::stdout().lock();
        out.write_all(screen.replace('\n', "\r\n").as_bytes())?;
        Ok(out.flush()?)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = std::io::stdout().write_all(LEAVE).and_then(|()| std::io::stdout().flush());
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// How many columns and rows there are to draw in. A terminal that does not know how large it is says 0.
fn room((columns, rows): (u16, u16)) -> (u16, u16) {
    let known = |size: u16, least: u16, usual: u16| if size == 0 { usual } else { size.max(least) };
    (known(columns, 20, 80), known(rows, 5, 24))
}

fn number(text: &str) -> f64 {
    text.parse().unwrap_or_default()
}

/// Keys as they are pressed. The thread that reads them goes with the program.
fn keys() -> mpsc::Receiver<u8> {
    let (pressed, keys) = mpsc::channel(16);
    std::thread::spawn(move || {
        for key in std::io::stdin().lock().bytes().map_while(std::result::Result::ok) {
            if pressed.blocking_send(key).is_err() {
                return;
            }
        }
    });
    keys
}
