//! Times, as they are typed and shown.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

/// `2h` ago, a day, or an exact time: microseconds since 1970.
pub(super) fn read(text: &str) -> Result<u64, String> {
    let wrong = || "write it like 2h, 3d, 2026-11-16 or 2026-11-16T08:00:00Z".to_owned();
    let micros = |time: Timestamp| u64::try_from(time.as_microsecond()).map_err(|_| wrong());
    if let Some(ago) = ago(text) {
        return Ok(micros(Timestamp::now())?.saturating_sub(ago));
    }
    if let Ok(day) = text.parse::<Date>()
        && !text.contains(['T', ' '])
    {
        let start = day.to_zoned(TimeZone::system()).map_err(|_| wrong())?;
        return micros(start.timestamp());
    }
    micros(text.parse().map_err(|_| wrong())?)
}

fn ago(text: &str) -> Option<u64> {
    let unit = text.chars().last()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        'w' => 7 * 24 * 60 * 60,
        _ => return None,
    };
    let number: u32 = text.strip_suffix(unit)?.parse().ok()?;
    Some(u64::from(number) * seconds * 1_000_000)
}

fn time(micros: u64) -> Option<Timestamp> {
    Timestamp::from_microsecond(i64::try_from(micros).ok()?).ok()
}

/// For a program.
pub(in crate::commands) fn utc(micros: u64) -> String {
    time(micros).map(|time| time.to_string()).unwrap_or_default()
}

/// For a person.
pub(in crate::commands) fn local(micros: u64) -> String {
    let shown =
        time(micros).map(|time| time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string());
    shown.unwrap_or_default()
}

/// How long, no finer than a person reads it.
pub(super) fn took(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros}µs"),
        1_000..1_000_000 => format!("{}ms", micros / 1_000),
        _ => format!("{:.1}s", micros as f64 / 1e6),
    }
}
