//! How long: seconds in `wharf.toml`, milliseconds in `.mcp.json`, or a text with its unit in either.
//!
//! In: a value. Out: a duration between a millisecond and a day, or why it makes no sense in that unit. A bare
//! number is held to what is sensible, because the two files differ by a factor of a thousand.

use std::time::Duration;

use super::edit::Format;
use super::node::{Node, Value};

const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// A bare number of seconds beyond an hour is more likely one of milliseconds.
const LONGEST_BARE_SECONDS: f64 = 3600.0;
/// A bare number of milliseconds below a second is more likely one of seconds.
const SHORTEST_BARE_MILLIS: f64 = 1000.0;

/// Reads a duration. The error is the reason and the next step.
pub(super) fn read(node: &Node, format: Format) -> Result<Duration, (String, String)> {
    match (&node.value, format) {
        (Value::Text(text), _) => with_unit(text),
        (Value::Number(seconds, spelling), Format::Toml) => {
            if *seconds > LONGEST_BARE_SECONDS {
                return Err((
                    format!(
                        "{spelling} seconds is more than an hour; in `wharf.toml` a bare number is in seconds"
                    ),
                    format!("write \"{spelling}ms\" for milliseconds, or \"2h\" if it is meant to be long"),
                ));
            }
            positive(*seconds, spelling)
        }
        (Value::Number(millis, spelling), Format::Json) => {
            if *millis > 0.0 && *millis < SHORTEST_BARE_MILLIS {
                return Err((
                    format!(
                        "{spelling} milliseconds is less than a second; in `.mcp.json` a bare number is in milliseconds"
                    ),
                    format!(
                        "write {} for seconds, or \"{spelling}ms\" if it is meant to be short",
                        millis * 1000.0
                    ),
                ));
            }
            positive(millis / 1000.0, spelling)
        }
        _ => Err((
            format!("a duration is a number or a text such as \"30s\", not {}", node.kind()),
            HINT.into(),
        )),
    }
}

const HINT: &str = "write \"500ms\", \"30s\", \"2m\" or \"1h\"";

fn with_unit(text: &str) -> Result<Duration, (String, String)> {
    let text = text.trim();
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let factor = match unit.trim() {
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => {
            return Err(("this is not a duration: it needs a number and a unit".into(), HINT.into()));
        }
    };
    let number: f64 = number.parse().map_err(|_| ("this is not a duration".to_owned(), HINT.to_owned()))?;
    positive(number * factor, text)
}

fn positive(seconds: f64, spelling: &str) -> Result<Duration, (String, String)> {
    let spelling: String = spelling.chars().take(24).collect();
    // Written so that a NaN is refused too.
    if !(seconds >= 0.001 && seconds.is_finite()) {
        return Err((format!("{spelling} is no time to wait"), HINT.into()));
    }
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if duration <= LONGEST => Ok(duration),
        _ => Err((format!("{spelling} is more than a day"), HINT.into())),
    }
}
