//! Tables at terminals of any width: what gives way, and that no number is cut.

use super::{Giving, fitted};

const HEAD: [&str; 6] = ["server", "state", "calls", "p50", "busy", "trouble"];
const GIVING: Giving = Giving { words: "trouble", order: &["p50", "busy", "calls"], before_names: 1 };

fn rows() -> Vec<Vec<String>> {
    let row = |cells: [&str; 6]| cells.map(str::to_owned).to_vec();
    vec![
        row(["git", "connected", "123456789", "99.9ms", "1024", ""]),
        row([
            "a-name-of-twenty-four-ch",
            "left alone",
            "0",
            "-",
            "0",
            "it failed 5 times in a row, 那 at last",
        ]),
    ]
}

/// The lines at this width, without what makes the head bold.
fn lines(width: u16) -> Vec<String> {
    let text = anstream::adapter::strip_str(&fitted(&HEAD, &rows(), width, &GIVING)).to_string();
    text.lines().map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn no_number_is_cut_and_every_row_is_one_line() {
    for width in 40..=200 {
        let lines = lines(width);
        assert_eq!(lines.len(), 3, "{width}: {lines:#?}");
        for (at, number) in [("CALLS", "123456789"), ("P50", "99.9ms"), ("BUSY", "1024")] {
            assert_eq!(lines[0].contains(at), lines[1].contains(number), "{width}: {lines:#?}");
        }
        // One of its characters takes two columns.
        assert!(lines.iter().all(|line| line.chars().count() < usize::from(width)), "{width}: {lines:#?}");
    }
}

#[test]
fn words_give_way_first_then_columns_and_names_last() {
    let (mut whole_words, mut p50, mut whole_name, mut busy) = (0, 0, 0, 0);
    for width in 40..=200 {
        let lines = lines(width);
        let least = |seen: &mut u16, is_so: bool| {
            assert!(is_so || *seen == 0, "{width}: it goes and comes again: {lines:#?}");
            if is_so && *seen == 0 {
                *seen = width;
            }
        };
        least(&mut whole_words, lines[2].ends_with("at last"));
        least(&mut p50, lines[0].contains("P50"));
        least(&mut whole_name, lines[2].starts_with("a-name-of-twenty-four-ch "));
        least(&mut busy, lines[0].contains("BUSY"));
    }
    assert!(
        busy < whole_name && whole_name < p50 && p50 < whole_words,
        "{busy} {whole_name} {p50} {whole_words}"
    );
}
