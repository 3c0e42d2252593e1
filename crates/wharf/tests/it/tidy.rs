//! The tree's own rules: the order of the rooms, short files, papers that tell the truth, licences.
//!
//! Everything is read relative to this package, so the tests run wherever the tree lies.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Licences that code in the binary or its tests may have.
const LICENCES: [&str; 14] = [
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "0BSD",
    "BSL-1.0",
    "Unlicense",
    "Unicode-3.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "OpenSSL",
];
/// Packages whose licence is not in the list and which were looked at one by one: (package, licence).
const EXCEPTIONS: [(&str, &str); 0] = [];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Every Rust file below a folder, in a steady order.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut files = Vec::new();
    for path in entries.map(|entry| entry.expect("a readable folder").path()) {
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn crates() -> [PathBuf; 3] {
    ["wharf", "wharf-cli", "wharf-testkit"].map(|name| root().join("crates").join(name))
}

fn all_files() -> Vec<PathBuf> {
    let others = ["fuzz/fuzz_targets", "fuzz/checks", "bench/src", "bench/tests"];
    let others = others.map(|folder| root().join(folder));
    let parts =
        crates().into_iter().flat_map(|c| ["src", "tests", "benches", "examples"].map(|part| c.join(part)));
    parts.chain(others).flat_map(|folder| rust_files(&folder)).collect()
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs")
}

fn lib_rs() -> String {
    read(&root().join("crates/wharf/src/lib.rs"))
}

/// The rooms in the order of `lib.rs`.
fn rooms() -> Vec<String> {
    let lib = lib_rs();
    let declared = lib.lines().filter_map(|line| line.strip_prefix("pub mod ").or(line.strip_prefix("mod ")));
    let rooms: Vec<String> = declared.filter_map(|rest| rest.strip_suffix(';')).map(str::to_owned).collect();
    assert!(rooms.len() >= 9, "lib.rs is not read as it is written: {rooms:?}");
    rooms
}

fn files_of(room: &str) -> Vec<PathBuf> {
    let src = root().join("crates/wharf/src");
    let mut files = rust_files(&src.join(room));
    files.extend(Some(src.join(format!("{room}.rs"))).filter(|file| file.exists()));
    files
}

/// The names that stand right behind `crate::` in a text, comments left out: `use crate::{a::B, c}` gives a and c.
fn crate_names(text: &str) -> BTreeSet<String> {
    let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let after = &code[at + "crate::".len()..];
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        match after.strip_prefix('{') {
            Some(group) => names.extend(names_of_group(group)),
            None => names.extend(first_word(after)),
        }
    }
    names
}

fn first_word(text: &str) -> Option<String> {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    Some(text[..end].to_owned()).filter(|word| !word.is_empty())
}

fn names_of_group(group: &str) -> Vec<String> {
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => parts.push(String::new()),
            _ if depth == 0 => parts.last_mut().expect("never empty").push(c),
            _ => {}
        }
    }
    parts.iter().filter_map(|part| first_word(part.trim())).collect()
}

/// The room that a name behind `crate::` leads to: itself, or where `lib.rs` re-exports it from.
fn room_of(name: &str, rooms: &[String]) -> Option<String> {
    if rooms.iter().any(|room| room == name) {
        return Some(name.to_owned());
    }
    let lib = lib_rs();
    let statements = lib.split(';').filter_map(|statement| statement.trim().strip_prefix("pub use "));
    let words =
        |statement: &str| statement.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|w| w == name);
    let reexport = statements.into_iter().find(|statement| words(statement))?;
    first_word(reexport)
}

#[test]
fn a_room_uses_only_the_rooms_above_it() {
    let rooms = rooms();
    let place = |room: &str| rooms.iter().position(|r| r == room);
    for room in &rooms {
        let files = files_of(room);
        assert!(!files.is_empty(), "`{room}` has no files");
        for file in files {
            for name in crate_names(&read(&file)) {
                let used = room_of(&name, &rooms);
                let above = used.as_deref().and_then(place).is_some_and(|used| Some(used) <= place(room));
                assert!(
                    above,
                    "{} uses `crate::{name}`, which does not stand above `{room}`",
                    file.display()
                );
            }
        }
    }
}

#[test]
fn the_reader_of_paths_reads_them() {
    let text = "use crate::names::{ServerName, ToolName};\nuse crate::{wire::{Json, Line}, text,\n error};\n\
                // crate::host\nlet x = crate::mcp::method::PING; mycrate::no; crate::Result";
    let names: Vec<String> = crate_names(text).into_iter().collect();
    assert_eq!(names, ["Result", "error", "mcp", "names", "text", "wire"]);
    let rooms = ["text".to_owned(), "error".to_owned()];
    assert_eq!(room_of("text", &rooms).as_deref(), Some("text"));
    assert_eq!(room_of("Error", &rooms).as_deref(), Some("error"));
    assert_eq!(room_of("nothing", &rooms), None);
}

#[test]
fn files_are_short_and_say_what_they_are() {
    for file in all_files() {
        let text = read(&file);
        assert!(text.starts_with("//!"), "{} does not open with `//!`", file.display());
        let lines = text.lines().count();
        assert!(lines <= 500 || is_test(&file), "{} has {lines} lines", file.display());
    }
}

#[test]
fn nothing_is_ignored_or_left_to_do() {
    // Put together here, so that this file does not find itself.
    let banned = [["#[", "ignore"].concat(), ["todo", "!("].concat(), ["unimplemented", "!("].concat()];
    for file in all_files() {
        let text = read(&file);
        for word in &banned {
            assert!(!text.contains(word.as_str()), "{} has `{word}`", file.display());
        }
    }
}

#[test]
fn permits_are_made_in_policy_only() {
    let policy = root().join("crates/wharf/src/policy");
    let makes = |line: &str| {
        let line = line.trim();
        let made =
            ["LaunchPermit {", "ConnectPermit {", "CallPermit {"].iter().any(|permit| line.contains(permit));
        made && !line.starts_with("impl") && !line.contains("->") && !line.starts_with("//")
    };
    assert!(makes("Ok(CallPermit { caller, server, tool })") && !makes("impl CallPermit {"));
    for file in
        all_files().into_iter().filter(|file| !file.starts_with(&policy) && !file.ends_with("tidy.rs"))
    {
        let text = read(&file);
        let line = text.lines().find(|line| makes(line));
        assert!(line.is_none(), "{} makes a permit: {line:?}", file.display());
    }
}

#[test]
fn every_integration_test_is_declared() {
    for folder in crates().map(|c| c.join("tests/it")).iter().filter(|folder| folder.exists()) {
        let main = read(&folder.join("main.rs"));
        for entry in fs::read_dir(folder).expect("a folder of tests") {
            let path = entry.expect("a readable folder").path();
            let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a plain name").to_owned();
            let is_module = path.extension().is_some_and(|e| e == "rs") || path.join("mod.rs").exists();
            let declared = main.lines().any(|line| line.trim() == format!("mod {name};"));
            assert!(
                declared || name == "main" || !is_module,
                "{} is not declared in main.rs",
                path.display()
            );
        }
    }
}

#[test]
fn the_map_shows_every_room_in_order_and_no_file_that_is_gone() {
    let map = read(&root().join("ARCHITECTURE.md"));
    let places: Vec<usize> = rooms()
        .iter()
        .map(|room| {
            map.find(&format!("| `{room}` |")).unwrap_or_else(|| panic!("ARCHITECTURE.md lacks `{room}`"))
        })
        .collect();
    assert!(places.is_sorted(), "ARCHITECTURE.md has the rooms in another order than lib.rs");

    let named: Vec<&str> = map.split('`').skip(1).step_by(2).filter(|word| is_file_name(word)).collect();
    assert!(named.len() > 20, "the file names of the map are not found: {named:?}");
    let bases = [root(), root().join("crates/wharf"), root().join("crates/wharf/src")];
    for name in named {
        assert!(
            bases.iter().any(|base| base.join(name).exists()),
            "ARCHITECTURE.md names `{name}`, which is gone"
        );
    }
}

fn is_file_name(word: &str) -> bool {
    let plain = word.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./".contains(&b));
    plain && [".rs", ".md", ".toml"].iter().any(|end| word.ends_with(end) && word.len() > end.len())
}

#[test]
fn the_readme_is_short() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap_or_default();
    assert!(readme.lines().count() <= 150, "README.md has {} lines", readme.lines().count());
}

// --- licences ---

/// Whether a licence expression can be met with the licences of the list.
fn is_met(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (met, rest) = either(&words);
    met && rest.is_empty()
}

fn either<'w>(words: &'w [&'w str]) -> (bool, &'w [&'w str]) {
    let (mut met, mut rest) = both(words);
    while let Some(after) = rest.strip_prefix(&["OR"]) {
        let (other, end) = both(after);
        (met, rest) = (met | other, end);
    }
    (met, rest)
}

fn both<'w>(words: &'w [&'w str]) -> (bool, &'w [&'w str]) {
    let (mut met, mut rest) = single(words);
    while let Some(after) = rest.strip_prefix(&["AND"]) {
        let (other, end) = single(after);
        (met, rest) = (met & other, end);
    }
    (met, rest)
}

fn single<'w>(words: &'w [&'w str]) -> (bool, &'w [&'w str]) {
    match words {
        ["(", inner @ ..] => {
            let (met, rest) = either(inner);
            rest.strip_prefix(&[")"]).map_or((false, rest), |rest| (met, rest))
        }
        // An exception only gives more rights.
        [licence, "WITH", _, rest @ ..] | [licence, rest @ ..] => (LICENCES.contains(licence), rest),
        [] => (false, words),
    }
}

#[test]
fn licence_expressions_are_understood() {
    for good in
        ["MIT", "MIT/GPL-3.0", "(GPL-3.0 OR MIT) AND ISC", "Apache-2.0 WITH LLVM-exception", "MPL-2.0 OR ISC"]
    {
        assert!(is_met(good), "{good}");
    }
    for bad in [
        "",
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "MPL-2.0",
        "(MIT",
        "MIT MIT",
        "MIT AND",
        "(MIT OR ISC) AND MPL-2.0",
    ] {
        assert!(!is_met(bad), "{bad}");
    }
}

#[test]
fn every_dependency_has_a_licence_of_the_list() {
    let host = cargo(&["-vV"]);
    let host =
        host.lines().find_map(|line| line.strip_prefix("host: ")).expect("cargo names its host").to_owned();
    // Offline and for this platform: the packages of other platforms may not be on this machine.
    let metadata =
        cargo(&["metadata", "--offline", "--locked", "--format-version", "1", "--filter-platform", &host]);
    let metadata: serde_json::Value = serde_json::from_str(&metadata).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    assert!(packages.len() > 50, "only {} packages were seen", packages.len());
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let licence = package["license"].as_str().unwrap_or_default();
        let excepted = EXCEPTIONS.contains(&(name, licence));
        assert!(excepted || is_met(licence), "`{name}` has the licence `{licence}`");
    }
}

#[expect(clippy::disallowed_methods, reason = "asks cargo about the tree; nothing of Wharf is started")]
fn cargo(args: &[&str]) -> String {
    let output = std::process::Command::new(env!("CARGO"))
        .args(args)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo writes UTF-8")
}
