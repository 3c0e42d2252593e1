//! What the guides show is what runs: `docs/library.md` quotes a program, and the commands of `docs/commands.md` end
//! well.

use std::process::{Command, Stdio};

use wharf_testkit::example_path;

use crate::desk::{Desk, WHARF};

const LIBRARY: &str = include_str!("../../../../docs/library.md");
const COMMANDS: &str = include_str!("../../../../docs/commands.md");
const PROGRAM: &str = include_str!("../../../wharf/examples/agent-local.rs");

/// The lines of the blocks of a language.
fn blocks<'a>(guide: &'a str, language: &str) -> Vec<Vec<&'a str>> {
    let mut found = Vec::new();
    let mut lines = guide.lines();
    let opening = format!("```{language}");
    while lines.by_ref().any(|line| line == opening) {
        found.push(lines.by_ref().take_while(|line| *line != "```").collect());
    }
    found
}

#[test]
fn l100_the_guide_to_the_library_quotes_a_program_that_runs() {
    let flat = |lines: &[&str]| lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join("\n");
    let program = flat(&PROGRAM.lines().collect::<Vec<_>>());
    let quoted = blocks(LIBRARY, "rust");
    assert!(quoted.len() >= 6, "{quoted:?}");
    for block in &quoted {
        assert!(program.contains(&flat(block)), "not in the program: {}", block.join("\n"));
    }
    let ran = Command::new(example_path("agent-local")).arg(WHARF).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{ran:?}");
    for line in [
        "{\"number\":1}",
        "tool `appoint` of `local`: denied by consent: nobody allowed `mate` to call it",
        "updates: true and true, 2 boats",
        "conflict: the tool ran; look at the state as it is now, then decide whether to call it again",
        "one master: true",
        "8 tools, the first is demo_echo",
        "Ahoy, Ada!",
        "mate: local.appoint conflict",
    ] {
        assert!(said.lines().any(|said| said == line), "`{line}` is not in {said}");
    }
}

#[test]
fn l100_the_commands_of_the_guide_run() {
    let desk = Desk::new();
    let mut commands = 0;
    for line in blocks(COMMANDS, "sh").concat() {
        let typed = line.split("  #").next().unwrap_or(line).trim();
        if typed.is_empty() {
            continue;
        }
        let mut shell = Command::new("/bin/sh");
        // A desk's own environment, and the command by its name.
        let script = format!("wharf() {{ {WHARF:?} \"$@\"; }}\n{typed}");
        shell.args(["-ec", &script]).current_dir(desk.project()).env_clear();
        shell.env("HOME", desk.home()).env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
        let ran = shell.output().unwrap();
        assert!(ran.status.success(), "{typed}: {ran:?}");
        commands += 1;
    }
    assert!(commands >= 15, "{commands}");
}
