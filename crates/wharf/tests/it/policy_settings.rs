//! What the configuration says becomes what the policy does.

use wharf::config::PolicySettings;
use wharf::policy::{DEFAULT_COMMANDS, Policy};

fn texts(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_owned()).collect()
}

fn commands(settings: &PolicySettings) -> Vec<String> {
    Policy::from(settings).commands().map(str::to_owned).collect()
}

#[test]
fn l11_what_is_not_said_is_strict() {
    let policy = Policy::from(&PolicySettings::default());
    assert!(policy.is_strict());
    assert_eq!(policy.commands().collect::<Vec<_>>(), DEFAULT_COMMANDS);
}

#[test]
fn l11_commands_add_to_the_defaults_or_replace_them() {
    let more = PolicySettings { commands: Some(texts(&["mine"])), ..PolicySettings::default() };
    assert_eq!(commands(&more).len(), DEFAULT_COMMANDS.len() + 1);
    let only = PolicySettings { extend_defaults: false, ..more };
    assert_eq!(commands(&only), ["mine"]);
}

#[test]
fn cfg_11_an_empty_allowlist_means_none() {
    let none =
        PolicySettings { commands: Some(Vec::new()), extend_defaults: false, ..PolicySettings::default() };
    assert!(commands(&none).is_empty());
    let unsaid = PolicySettings { extend_defaults: false, ..PolicySettings::default() };
    assert!(commands(&unsaid).is_empty());
    let by_project = PolicySettings { commands_within: Some(Vec::new()), ..PolicySettings::default() };
    assert!(commands(&by_project).is_empty());
}

#[test]
fn cfg_12_a_project_takes_away_and_never_adds() {
    let narrowed =
        PolicySettings { commands_within: Some(texts(&["node", "theirs"])), ..PolicySettings::default() };
    assert_eq!(commands(&narrowed), ["node"]);
    // Even where the user lets any command start.
    let open = PolicySettings { strict: Some(false), ..PolicySettings::default() };
    assert!(!Policy::from(&open).is_strict());
    let narrowed = PolicySettings { strict: Some(false), ..narrowed };
    assert!(Policy::from(&narrowed).is_strict());
}
