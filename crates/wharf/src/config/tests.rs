//! Private parts: expansion never panics, masks never slip, carets stand where they should.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;

use super::edit::Format;
use super::expand::{self, expand};
use super::problem::nearest;
use super::source::Source;

fn env() -> BTreeMap<String, String> {
    [("A", "1"), ("B_2", "${A}")].into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

proptest! {
    #[test]
    fn expansion_never_panics_and_only_touches_references(text in "(\\$|\\{|\\}|:|-|A|B_2|env:|é|input:| ){0,24}") {
        for format in [Format::Toml, Format::Json] {
            let names = expand::names(&text, format);
            if let Ok(expanded) = expand(&text, &env(), format) {
                prop_assert_eq!(&names, &expanded.names);
                if !text.contains("${") && !text.starts_with("env:") {
                    prop_assert_eq!(&expanded.text, &text);
                }
            }
        }
    }

    #[test]
    fn an_escaped_text_comes_back_as_it_was(text in "[a-zA$}{:é-]{0,24}") {
        prop_assume!(!text.starts_with("env:") && !text.contains("$${"));
        let escaped = text.replace("${", "$${");
        prop_assert_eq!(expand(&escaped, &env(), Format::Json).ok().map(|e| e.text), Some(text));
    }

    #[test]
    fn no_text_makes_a_reader_panic(text in "\\PC{0,80}", line in "([\\[\\]{}=:,\"'#\\n\\\\ aé.]|mcp|command){0,40}") {
        for text in [text, line] {
            for format in [Format::Toml, Format::Json] {
                if let Err(problem) = Source::parse(Path::new("x"), format, text.clone()) {
                    prop_assert!(problem.to_string().contains("x:"), "{}", problem);
                }
            }
        }
    }

    #[test]
    fn a_value_on_a_broken_line_is_never_shown(secret in "[a-z0-9=+/é-]{8,20}", quoted: bool) {
        prop_assume!(!"true false null command token".contains(&secret) && secret.contains(|c: char| c.is_ascii_digit()));
        let value = if quoted { format!("\"{secret}\"") } else { secret.clone() };
        for (format, text) in [
            (Format::Toml, format!("token = {value} {value}\n")),
            (Format::Json, format!("{{\"token\": {value} {value}}}")),
        ] {
            if let Err(problem) = Source::parse(Path::new("x"), format, text) {
                let longest = secret.split('=').max_by_key(|part| part.len()).unwrap_or_default();
                prop_assert!(longest.len() < 4 || !problem.to_string().contains(longest), "{}", problem);
            }
        }
    }
}

#[test]
fn the_caret_stands_under_the_culprit_in_short_long_and_odd_lines() {
    let (source, _) =
        Source::parse(Path::new("x"), Format::Toml, "a = 1\n\t\"bé\" = \"x\u{200b}y\" # z\n".into()).unwrap();
    let at = 6 + 1;
    let place = source.problem(&(at..at + 5), "m").place.unwrap();
    assert_eq!((place.line, place.column, place.caret.clone()), (2, 2, 1..5));
    assert_eq!(place.source, " \"bé\" = \"x\u{fffd}y\" # z");
    let end = source.problem(&(10_000..10_001), "m").place.unwrap();
    assert_eq!((end.line, end.caret), (3, 0..1), "a place beyond the end is the end");

    let long = format!("{{\"a\": [{}, null]}}", vec!["1"; 5000].join(","));
    let at = long.find("null").unwrap();
    let (source, _) = Source::parse(Path::new("x"), Format::Json, long).unwrap();
    let place = source.problem(&(at..at + 4), "m").place.unwrap();
    assert!(place.source.chars().count() < 130 && place.column == at + 1);
    let under: String = place.source.chars().skip(place.caret.start).take(place.caret.len()).collect();
    assert_eq!(under, "null");
}

#[test]
fn names_that_are_near_are_suggested_and_others_are_not() {
    let known = ["command", "args", "enabled_tools"];
    assert_eq!(nearest("comand", known), Some("command"));
    assert_eq!(nearest("ARGS", known), Some("args"));
    assert_eq!(nearest("zebra", known), None);
    assert_eq!(nearest(&"c".repeat(1_000_000), known), None);
}
