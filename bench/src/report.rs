//! Figures become a table in Markdown, and a verdict.
//!
//! In: what was measured in each round. Out: medians with their spread, beside what is to be reached.

use std::time::Duration;

/// One line of the table.
pub(crate) struct Row {
    pub(crate) case: String,
    /// Whose figures they are.
    pub(crate) of: String,
    pub(crate) figures: Figures,
    /// How long the gateway was on a core for a call.
    pub(crate) on_core: Option<Duration>,
    pub(crate) bar: Option<Bar>,
    /// What else is to be said.
    pub(crate) note: String,
    /// How much of the time through the gateway the load client was on a core itself.
    pub(crate) client: Option<f64>,
}

/// What was measured.
pub(crate) enum Figures {
    /// Direct and through the gateway, in seconds, in each round.
    Times(Vec<(f64, f64)>),
    /// Direct and through the gateway, in answers a second, in each round.
    Rates(Vec<(f64, f64)>),
    /// Something that has no direct counterpart: how often it was looked at, and its unit.
    Plain(Vec<f64>, &'static str),
    /// Nothing: what went wrong.
    Failed(String),
}

/// What is to be reached: of the ratio, or of the plain figure.
#[derive(Clone, Copy)]
pub(crate) enum Bar {
    AtMost(f64),
    AtLeast(f64),
}

/// The heading of the table.
pub(crate) const HEADING: &str = "| case | gateway | direct | through it | ratio | rounds | on a core | bar | |\n|---|---|---|---|---|---|---|---|---|";

// === impl Bar ===

impl Bar {
    fn is_reached(self, figure: f64) -> bool {
        match self {
            Self::AtMost(bar) => figure <= bar,
            Self::AtLeast(bar) => figure >= bar,
        }
    }

    fn shown(self) -> String {
        match self {
            Self::AtMost(bar) => format!("at most {bar}"),
            Self::AtLeast(bar) => format!("at least {bar}"),
        }
    }
}

// === impl Row ===

impl Row {
    /// The figure that is judged, and how it differs between rounds: median, least and most.
    pub(crate) fn judged(&self) -> (f64, f64, f64) {
        let mut all: Vec<f64> = match &self.figures {
            Figures::Times(rounds) | Figures::Rates(rounds) => {
                rounds.iter().map(|(direct, through)| through / direct).collect()
            }
            Figures::Plain(looks, _) => looks.clone(),
            Figures::Failed(_) => vec![f64::NAN],
        };
        all.sort_by(f64::total_cmp);
        (all[all.len() / 2], all[0], all[all.len() - 1])
    }

    /// Whether nothing could be measured.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.figures, Figures::Failed(_))
    }

    /// Of a way over HTTP with many calls in flight: the ratio, and how busy the load client was.
    pub(crate) fn crowded(&self) -> Option<(f64, f64)> {
        matches!(self.figures, Figures::Rates(_)).then(|| Some((self.judged().0, self.client?))).flatten()
    }

    /// Whether it reaches its bar, if it has one.
    pub(crate) fn is_reached(&self) -> bool {
        !self.has_failed() && self.bar.is_none_or(|bar| bar.is_reached(self.judged().0))
    }

    pub(crate) fn shown(&self) -> String {
        if let Figures::Failed(why) = &self.figures {
            let why: String =
                why.lines().collect::<Vec<_>>().join(" ").replace('|', " ").chars().take(200).collect();
            return format!("| {} | {} | | | | | | | **failed**: {why} |", self.case, self.of);
        }
        let (median, least, most) = self.judged();
        let (direct, through, ratio) = match &self.figures {
            Figures::Times(rounds) => {
                let (direct, through) = medians(rounds);
                (time(direct), time(through), short(median))
            }
            Figures::Rates(rounds) => {
                let (direct, through) = medians(rounds);
                (rate(direct), rate(through), short(median))
            }
            Figures::Plain(_, unit) => ("–".to_owned(), format!("{median:.1} {unit}"), "–".to_owned()),
            Figures::Failed(_) => Default::default(),
        };
        let spread = match &self.figures {
            Figures::Plain(looks, _) if looks.len() == 1 => "one look".to_owned(),
            Figures::Plain(..) => format!("{least:.1} to {most:.1}"),
            _ => format!("{} to {}", short(least), short(most)),
        };
        let bar = self.bar.map_or_else(String::new, Bar::shown);
        let missed = if self.is_reached() { "" } else { "**missed** " };
        let on_core = self.on_core.map_or_else(String::new, |on| time(on.as_secs_f64()));
        format!(
            "| {} | {} | {direct} | {through} | {ratio} | {spread} | {on_core} | {bar} | {missed}{} |",
            self.case, self.of, self.note
        )
    }
}

fn medians(rounds: &[(f64, f64)]) -> (f64, f64) {
    let (direct, through) = rounds.iter().copied().unzip();
    (median(direct), median(through))
}

pub(crate) fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// A ratio, with as many digits as tell something.
fn short(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.3}") } else { format!("{ratio:.2}") }
}

fn rate(rate: f64) -> String {
    if rate < 1e4 { format!("{rate:.0}/s") } else { format!("{:.1}k/s", rate / 1e3) }
}

fn time(seconds: f64) -> String {
    if seconds < 1e-3 { format!("{:.1} µs", seconds * 1e6) } else { format!("{:.2} ms", seconds * 1e3) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(figures: Figures, bar: Bar) -> Row {
        Row {
            case: "a".into(),
            of: "g".into(),
            figures,
            on_core: Some(Duration::from_micros(21)),
            bar: Some(bar),
            note: String::new(),
            client: None,
        }
    }

    #[test]
    fn ratios_are_of_rounds_and_bars_of_their_median() {
        let rounds = vec![(10e-6, 30e-6), (10e-6, 10e-6), (20e-6, 30e-6)];
        let good = row(Figures::Times(rounds.clone()), Bar::AtMost(1.5));
        assert!(good.is_reached());
        assert_eq!(
            good.shown(),
            "| a | g | 10.0 µs | 30.0 µs | 1.50 | 1.00 to 3.00 | 21.0 µs | at most 1.5 |  |"
        );
        let bad = row(Figures::Times(rounds), Bar::AtMost(1.4));
        assert!(!bad.is_reached() && bad.shown().contains("**missed**"));
        let rates = |bar| row(Figures::Rates(vec![(100e3, 40e3)]), Bar::AtLeast(bar)).is_reached();
        assert!(rates(0.4) && !rates(0.5));
        let plain = |bar| row(Figures::Plain(vec![14.0, 16.0, 15.0], "MB"), Bar::AtMost(bar)).is_reached();
        assert!(plain(15.0) && !plain(14.9));
    }
}
