//! `wharf keys`, and `wharf serve` with them.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::desk::Desk;
use crate::serve::Serving;

impl Desk {
    fn keys_file(&self) -> std::path::PathBuf {
        self.config().with_file_name("keys.json")
    }

    /// A file that calls a gateway with a key.
    fn caller(&self, url: &str, key: &str) -> String {
        let headers = json!({ "Authorization": format!("Bearer {key}") });
        let file = self.home().join("caller.json");
        let config = json!({"mcpServers": {"all": {"type": "http", "url": url, "headers": headers}}});
        self.write(&file, &config.to_string());
        file.display().to_string()
    }
}

#[test]
fn l92_a_key_is_shown_once_and_kept_as_its_hash_in_a_private_file() {
    let desk = Desk::new();
    let made = desk.run(&["keys", "add", "alice", "--expires", "90d"]);
    let key = made.out.trim();
    assert_eq!(made.code, 0, "{made:?}");
    assert!(key.starts_with("whf_") && key.len() == 68, "{key}");
    let kept = std::fs::read_to_string(desk.keys_file()).unwrap();
    assert!(kept.contains("alice") && !kept.contains(&key[4..]), "{kept}");
    let mode = desk.keys_file().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let other = desk.run(&["keys", "add", "bob", "--json"]);
    let other: serde_json::Value = serde_json::from_str(&other.out).unwrap();
    assert_ne!(other["key"].as_str().unwrap(), key);
    assert!(other["expires"].is_null());

    let listed = desk.run(&["keys", "list"]);
    assert!(listed.out.starts_with("alice\t") && listed.out.contains("\nbob\t"), "{listed:?}");
    assert!(listed.out.contains("never") && !listed.out.contains(key), "{listed:?}");
    assert_eq!(desk.run(&["keys", "remove", "alice"]).code, 0);
    let gone = desk.run(&["keys", "remove", "alice"]);
    assert!(gone.code != 0 && gone.err.contains("has no key"), "{gone:?}");
    for odd in ["local", "*", ""] {
        assert_ne!(desk.run(&["keys", "add", odd]).code, 0, "{odd}");
    }
    for odd in ["0d", "soon", "d", "-1d", "5"] {
        assert_ne!(desk.run(&["keys", "add", "carl", "--expires", odd]).code, 0, "{odd}");
    }
}

#[test]
fn l92_where_there_is_a_key_a_caller_needs_one() {
    let desk = Desk::new();
    let alice = desk.run(&["keys", "add", "alice"]).out.trim().to_owned();
    let serving = Serving::start(&desk);
    let call = |key: &str| {
        let file = desk.caller(&serving.url, key);
        desk.run(&["--config", &file, "call", "all", "demo_echo", "message=hi"])
    };
    let said = call(&alice);
    assert_eq!((said.code, said.out.trim()), (0, "hi"), "{said:?}");
    let wrong = call("whf_0000");
    assert_ne!(wrong.code, 0, "{wrong:?}");
    assert!(!wrong.out.contains("hi"));

    // The gateway runs, and hears of it.
    let bob = desk.run(&["keys", "add", "bob"]).out.trim().to_owned();
    assert_eq!(desk.run(&["keys", "remove", "alice"]).code, 0);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while call(&bob).code != 0 {
        assert!(std::time::Instant::now() < deadline, "a new key never counted");
    }
    assert_ne!(call(&alice).code, 0, "a key that was taken away");
    assert_eq!(serving.stop(), 0);
}

#[test]
fn l92_a_key_follows_another_of_the_same_caller() {
    let desk = Desk::new();
    let old = desk.run(&["keys", "add", "alice"]).out.trim().to_owned();
    let serving = Serving::start(&desk);
    let call = |key: &str| {
        let file = desk.caller(&serving.url, key);
        desk.run(&["--config", &file, "call", "all", "demo_echo", "message=hi"]).code
    };
    let until = |what: &str, so: &dyn Fn() -> bool| {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !so() {
            assert!(std::time::Instant::now() < deadline, "it never came to this: {what}");
        }
    };
    let made = desk.run(&["keys", "add", "alice"]);
    assert_eq!(made.code, 0, "{made:?}");
    let new = made.out.trim().to_owned();
    until("the new key counts", &|| call(&new) == 0);
    assert_eq!(call(&old), 0, "and the old one still does");

    let listed = desk.run(&["keys", "list", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed.out).unwrap();
    let ids: Vec<&str> = (0..2).map(|at| listed["keys"][at]["id"].as_str().unwrap()).collect();
    assert!(ids[0] != ids[1] && ids.iter().all(|id| id.len() == 12), "{listed}");
    assert!(
        made.err.contains(&format!("wharf keys remove {}", ids[0])),
        "it says how to end the old one: {made:?}"
    );
    let rows = desk.run(&["keys", "list"]).out;
    assert!(ids.iter().all(|id| rows.contains(id)) && rows.matches("alice").count() == 2, "{rows}");
    let removed = desk.run(&["keys", "remove", ids[0]]);
    assert!(
        removed.code == 0 && removed.err.contains("alice") | removed.out.contains("alice"),
        "{removed:?}"
    );
    until("the old key does not count", &|| call(&old) != 0);
    assert_eq!(call(&new), 0, "the other is another");
    assert_eq!(serving.stop(), 0);

    // By the name all of them go, and nobody else's.
    for name in ["alice", "bob"] {
        assert_eq!(desk.run(&["keys", "add", name]).code, 0);
    }
    let removed = desk.run(&["keys", "remove", "alice", "--json"]);
    let removed: serde_json::Value = serde_json::from_str(&removed.out).unwrap();
    assert_eq!((&removed["removed"], removed["ids"].as_array().unwrap().len()), (&json!("alice"), 2));
    let rest = desk.run(&["keys", "list"]).out;
    assert!(rest.starts_with("bob\t") && rest.lines().count() == 1, "{rest}");
    for _ in 0..15 {
        assert_eq!(desk.run(&["keys", "add", "bob"]).code, 0);
    }
    let many = desk.run(&["keys", "add", "bob"]);
    assert!(many.code != 0 && many.err.contains("16 keys"), "{many:?}");
}

#[test]
fn l92_the_first_key_closes_a_gateway_that_was_open_and_a_lost_file_does_not_open_it() {
    let desk = Desk::new();
    let serving = Serving::start(&desk);
    let call = |key: &str| {
        let file = desk.caller(&serving.url, key);
        desk.run(&["--config", &file, "call", "all", "demo_echo", "message=hi"]).code
    };
    let until = |what: &str, so: &dyn Fn() -> bool| {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !so() {
            assert!(std::time::Instant::now() < deadline, "it never came to this: {what}");
        }
    };
    assert_eq!(call("none"), 0, "anybody on this machine");
    let alice = desk.run(&["keys", "add", "alice"]).out.trim().to_owned();
    until("a key is needed", &|| call("none") != 0);
    assert_eq!(call(&alice), 0);
    std::fs::remove_file(desk.keys_file()).unwrap();
    until("no key counts", &|| call(&alice) != 0);
    assert_ne!(call("none"), 0, "whoever takes the file away does not open the door");
    assert_eq!(serving.stop(), 0);
}

#[test]
fn gwy_04_with_keys_an_address_that_others_reach_may_be_served() {
    let desk = Desk::new();
    let refused = desk.run(&["serve", "--bind", "0.0.0.0", "--port", "0"]);
    assert!(refused.code != 0 && refused.err.contains("keys"), "{refused:?}");
    let missing = desk.run(&["serve", "--keys", "nowhere.json"]);
    assert!(missing.code != 0 && missing.err.contains("nowhere.json"), "{missing:?}");
    assert_eq!(desk.run(&["keys", "--keys", "team.json", "add", "alice"]).code, 0);
    let serving = Serving::start_with(&desk, &["--bind", "0.0.0.0", "--keys", "team.json"]);
    assert_eq!(serving.stop(), 0);

    // A file that others can write says nothing about who may call.
    let team = desk.project().join("team.json");
    std::fs::set_permissions(&team, std::fs::Permissions::from_mode(0o666)).unwrap();
    let open = desk.run(&["serve", "--keys", "team.json", "--port", "0"]);
    assert!(open.code != 0 && open.err.contains("written by every user"), "{open:?}");
}
