//! `add`, `remove` and `init`: what they change, and what they leave alone (l100).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use wharf::config::edit::{self, Format, NewServer, add, remove, starter, write_atomically};

use super::config::{explicit, folder, server};

fn program() -> NewServer {
    NewServer {
        command: Some("npx".into()),
        args: vec!["-y".into(), "pkg@1.2.3".into()],
        env: vec![("KEY".into(), "${KEY}".into())],
        ..NewServer::default()
    }
}

fn endpoint() -> NewServer {
    NewServer {
        url: Some("https://h/mcp".into()),
        headers: vec![("X".into(), "env:KEY".into())],
        ..NewServer::default()
    }
}

fn loads(format: Format, text: &str, names: &[&str]) {
    let name = if format == Format::Toml { "wharf.toml" } else { ".mcp.json" };
    let config = explicit(&[(name, text)], &[("KEY", "k-value")]).unwrap();
    assert!(config.problems.is_empty() && config.warnings.is_empty(), "{text}\n{config:#?}");
    let found: Vec<&str> = config.servers.keys().map(|name| name.as_str()).collect();
    assert_eq!(found, names, "{text}");
}

#[test]
fn l100_the_starter_file_loads_as_it_is_and_with_every_example_uncommented() {
    loads(Format::Toml, starter(), &[]);
    let added = add(starter(), Format::Toml, "mine", &program()).unwrap();
    assert!(added.starts_with("# Wharf"), "the comments stay");
    loads(Format::Toml, &added, &["mine"]);
    // The examples must be true too: each comment that is TOML is switched on.
    let is_example = |line: &str| {
        line.starts_with('[') || line.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '))
    };
    let mut shown = String::new();
    for line in starter().lines() {
        let bare = line.trim_start_matches("# ");
        // What else a server can have is shown once, without a table of its own.
        let bare = if bare.starts_with("What else") { "[mcp.more]\ncommand = \"node\"" } else { bare };
        let repeats = ["transport = \"stdio\""];
        if bare.starts_with("[mcp.more]") || (is_example(bare) && !repeats.contains(&bare)) {
            shown.push_str(bare);
            shown.push('\n');
        }
    }
    let config = explicit(&[("wharf.toml", &shown)], &[("GITHUB_TOKEN", "t")]).unwrap();
    assert!(config.problems.is_empty() && config.warnings.is_empty(), "{shown}\n{:#?}", config.problems);
    assert_eq!(config.servers.len(), 5);
    assert_eq!(config.limits, wharf::wire::Limits::default(), "the limits shown are the defaults");
}

#[test]
fn l100_toml_keeps_every_comment() {
    let text = "# head of the file\n\n# about a\n[mcp.a] # beside a\ncommand = \"node\" # why\n\n# rules\n[policy]\nstrict = true\n\n# the end\n";
    let added = add(text, Format::Toml, "b", &program()).unwrap();
    for line in [
        "# head of the file",
        "# about a\n[mcp.a] # beside a\ncommand = \"node\" # why",
        "# rules\n[policy]",
        "# the end",
    ] {
        assert!(added.contains(line), "{line}\n{added}");
    }
    assert!(
        added.contains(
            "[mcp.b]\ncommand = \"npx\"\nargs = [\"-y\", \"pkg@1.2.3\"]\nenv = { KEY = \"${KEY}\" }\n"
        ),
        "{added}"
    );
    loads(Format::Toml, &added, &["a", "b"]);
    assert!(add(&added, Format::Toml, "B", &program()).unwrap_err().to_string().contains("there already"));

    let removed = remove(&added, Format::Toml, "a").unwrap().unwrap();
    assert!(
        removed.contains("# head of the file")
            && removed.contains("# rules")
            && removed.contains("# the end"),
        "{removed}"
    );
    assert!(
        !removed.contains("# about a") && !removed.contains("[mcp.a]"),
        "its own comment goes with it: {removed}"
    );
    loads(Format::Toml, &removed, &["b"]);
    assert_eq!(remove(&removed, Format::Toml, "a").unwrap(), None);

    let sub = "[mcp.a]\ncommand = \"node\"\n[mcp.a.env]\nX = \"1\"\n[mcp.b]\nurl = \"https://h\"\n";
    loads(Format::Toml, &remove(sub, Format::Toml, "a").unwrap().unwrap(), &["b"]);
    let last = remove("# head\n\n[mcp.a]\ncommand = \"node\"\n", Format::Toml, "a").unwrap().unwrap();
    assert_eq!(last.trim(), "# head");
    loads(
        Format::Toml,
        &add("mcp = { a = { command = \"node\" } }\n", Format::Toml, "b", &endpoint()).unwrap(),
        &["a", "b"],
    );
    loads(Format::Toml, &add("", Format::Toml, "b", &endpoint()).unwrap(), &["b"]);
    assert!(add("[mcp", Format::Toml, "b", &program()).is_err());
    assert!(add("", Format::Toml, "9", &program()).is_err());
}

#[test]
fn l100_json_keeps_comments_and_style() {
    let text =
        "{\n  // mine\n  \"mcpServers\": {\n    \"a\": { \"command\": \"node\" }, // beside a\n  },\n}\n";
    let added = add(text, Format::Json, "b", &program()).unwrap();
    assert!(added.contains("// mine") && added.contains("// beside a"), "{added}");
    loads(Format::Json, &added, &["a", "b"]);
    let removed = remove(&added, Format::Json, "A").unwrap().unwrap();
    assert!(removed.contains("// mine"));
    loads(Format::Json, &removed, &["b"]);
    assert_eq!(remove(text, Format::Json, "zzz").unwrap(), None);

    let strict = "{\n  \"servers\": {\n    \"a\": {\n      \"command\": [\"node\"]\n    }\n  }\n}\n";
    let added = add(strict, Format::Json, "b", &endpoint()).unwrap();
    serde_json::from_str::<serde_json::Value>(&added).expect("strict JSON stays strict");
    assert!(added.contains("\"type\": \"http\""), "other readers need it: {added}");
    loads(Format::Json, &added, &["a", "b"]);
    let removed = remove(&added, Format::Json, "b").unwrap().unwrap();
    serde_json::from_str::<serde_json::Value>(&removed).expect("strict JSON stays strict");
    let fresh = add("", Format::Json, "b", &program()).unwrap();
    serde_json::from_str::<serde_json::Value>(&fresh).unwrap();
    loads(Format::Json, &fresh, &["b"]);
    assert!(add(&fresh, Format::Json, "b", &program()).is_err());
    assert!(
        add("[]", Format::Json, "b", &program()).is_err() && add("{", Format::Json, "b", &program()).is_err()
    );
}

#[test]
fn l100_both_formats_write_the_same_server() {
    let both = [(Format::Toml, "wharf.toml"), (Format::Json, ".mcp.json")].map(|(format, name)| {
        let text = add("", format, "x", &program()).unwrap();
        let config = explicit(&[(name, &text)], &[("KEY", "k-value")]).unwrap();
        let server = server(&config, "x").clone();
        let wharf::config::Transport::Stdio(stdio) = server.transport else { panic!() };
        (stdio.command, stdio.args, stdio.env)
    });
    assert_eq!(both[0], both[1]);
}

#[cfg(unix)]
#[test]
fn writing_is_whole_or_not_at_all_and_keeps_the_mode() {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = folder(&[]);
    let path = folder.path().join("new/wharf.toml");
    write_atomically(&path, "a").unwrap();
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700), "a new file is for its owner");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let link = folder.path().join("link.toml");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    edit::write_atomically(&link, "b").unwrap();
    assert_eq!((std::fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("b", 0o640));
    assert!(link.is_symlink(), "a link stays a link");
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing temporary is left");
    let target = folder.path().join("occupied");
    std::fs::create_dir_all(target.join("x")).unwrap();
    assert!(write_atomically(&target, "c").is_err());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3, "nor after a failure");
}

#[test]
fn r_08_what_a_killed_writer_left_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let aged = |name: &str, seconds: u64| {
        let file = std::fs::File::create(at(name)).unwrap();
        let then = std::time::SystemTime::now() - std::time::Duration::from_secs(seconds);
        file.set_modified(then).unwrap();
    };
    aged(".wharf-0123456789abcdef.tmp", 120);
    // Somebody may still be writing this one, and those are not ours.
    aged(".wharf-fedcba9876543210.tmp", 5);
    aged("notes.tmp", 120);
    aged(".wharf-notes", 120);
    write_atomically(&at("wharf.toml"), "").unwrap();
    let mut left: Vec<_> =
        folder.path().read_dir().unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    assert_eq!(left, [".wharf-fedcba9876543210.tmp", ".wharf-notes", "notes.tmp", "wharf.toml"]);
}
