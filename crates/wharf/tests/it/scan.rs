//! The scan: what attacks look like is found, what honest servers say is left alone, and the place is exact.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wharf::Json;
use wharf::catalog::ListKind;
use wharf::catalog::scan::{self, Finding, Neighbours, Severity, Subject};
use wharf::names::ServerName;

fn server(name: &str) -> ServerName {
    ServerName::parse(name).unwrap()
}

/// Everything that is found in one definition, with these other servers beside it.
fn findings(tool: &Value, others: &[(&str, &[&str])]) -> Vec<Finding> {
    let own = server("own");
    let name = tool["name"].as_str().unwrap();
    let mut neighbours = Neighbours::new();
    neighbours.add(&own, name);
    let others: Vec<(ServerName, &str)> =
        others.iter().flat_map(|(of, tools)| tools.iter().map(|tool| (server(of), *tool))).collect();
    others.iter().for_each(|(of, tool)| neighbours.add(of, tool));
    let mut found = scan::definition(&own, (ListKind::Tools, name), &Json::of(tool), &neighbours);
    let names = std::iter::once((&own, name)).chain(others.iter().map(|(of, tool)| (of, *tool)));
    found.extend(scan::look_alikes(names).into_iter().filter(|finding| finding.server == own));
    found
}

fn described(words: &str) -> Value {
    json!({"name": "thing", "description": words, "inputSchema": {"type": "object"}})
}

fn rules(found: &[Finding]) -> Vec<&'static str> {
    found.iter().map(|finding| finding.rule).collect()
}

fn corpus(name: &str) -> Vec<Value> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/");
    let text = std::fs::read_to_string(format!("{folder}{name}")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// How grave the gravest finding of an attack is.
fn gravest(attack: &Value) -> Option<Severity> {
    if let Some(text) = attack["result"].as_str() {
        let raw = Json::of(&json!({"content": [{"type": "text", "text": text}]}));
        return scan::result(&server("own"), "thing", &raw).iter().map(|finding| finding.severity).max();
    }
    let others: Vec<(String, Vec<String>)> = attack["others"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|other| {
            let tools = other["tools"].as_array().unwrap().iter().map(|t| t.as_str().unwrap().to_owned());
            (other["server"].as_str().unwrap().to_owned(), tools.collect())
        })
        .collect();
    let tools: Vec<Vec<&str>> =
        others.iter().map(|(_, tools)| tools.iter().map(String::as_str).collect()).collect();
    let others: Vec<(&str, &[&str])> =
        others.iter().zip(&tools).map(|((of, _), tools)| (of.as_str(), tools.as_slice())).collect();
    findings(&attack["tool"], &others).iter().map(|finding| finding.severity).max()
}

/// How many attacks are found at least so grave, and those that are not.
fn caught(attacks: &[Value], least: Severity) -> (usize, Vec<String>) {
    let mut missed = Vec::new();
    for attack in attacks {
        if gravest(attack) < Some(least) {
            missed.push(format!(
                "{} ({})",
                attack["id"].as_str().unwrap(),
                attack["shape"].as_str().unwrap()
            ));
        }
    }
    (attacks.len() - missed.len(), missed)
}

/// How many tools of honest servers there are, and what is found in them that is at least so grave. All servers of a part
/// stand side by side, as they do for a person who has many.
fn false_alarms(servers: &[Value], least: Severity) -> (usize, BTreeMap<String, String>) {
    let mut neighbours = Neighbours::new();
    let mut names = Vec::new();
    let name_of = |one: &Value| {
        let plain: String =
            one["package"].as_str().unwrap().chars().filter(char::is_ascii_alphanumeric).collect();
        server(&format!("s{}", plain.chars().rev().take(28).collect::<String>()))
    };
    for one in servers {
        for tool in one["tools"].as_array().unwrap() {
            let tool = tool["name"].as_str().unwrap();
            neighbours.add(&name_of(one), tool);
            names.push((name_of(one), tool));
        }
    }
    let (mut tools, mut alarms) = (0, BTreeMap::new());
    let alike = scan::look_alikes(names.iter().map(|(of, tool)| (of, *tool)));
    for one in servers {
        for tool in one["tools"].as_array().unwrap() {
            tools += 1;
            let name = tool["name"].as_str().unwrap();
            let raw = Json::of(tool);
            let found = scan::definition(&name_of(one), (ListKind::Tools, name), &raw, &neighbours);
            let is_it = |finding: &&Finding| {
                finding.server == name_of(one)
                    && finding.subject == Subject::Definition(ListKind::Tools, name.into())
            };
            if let Some(worst) =
                found.iter().chain(alike.iter().filter(is_it)).max_by_key(|finding| finding.severity)
                && worst.severity >= least
            {
                alarms.insert(format!("{} {name}", one["package"].as_str().unwrap()), worst.to_string());
            }
        }
    }
    (tools, alarms)
}

#[test]
fn l20_rates_on_the_part_that_the_rules_were_not_written_from() {
    for part in ["known", "held-out"] {
        let attacks = corpus(&format!("attacks-{part}.json"));
        let honest = corpus(&format!("harmless-{part}.json"));
        for least in [Severity::Medium, Severity::High] {
            let (found, missed) = caught(&attacks, least);
            let (tools, alarms) = false_alarms(&honest, least);
            println!(
                "{part}, {} and graver: {found} of {} attacks found, {} of {tools} honest tools reported",
                least.as_str(),
                attacks.len(),
                alarms.len()
            );
            println!("  missed: {}", missed.join(", "));
            alarms.iter().for_each(|(tool, finding)| println!("  reported: {tool}: {finding}"));
        }
    }
}
