//! Any lines as a command and its arguments: a command line that may be started is the one that was written, but for paths
//! made absolute, and runs no code that stands in it.

use std::collections::BTreeMap;
use std::path::Path;

use wharf::config::{Origin, Stdio};
use wharf::names::ServerName;
use wharf::policy::{DEFAULT_COMMANDS, LaunchRequest, Policy};
use wharf::text::is_unsafe_to_show;

/// Flags behind which code stands as text, for the launchers and interpreters of the list.
const CODE: [&str; 7] = ["-c", "-e", "--eval", "-p", "--print", "--call", "-yc"];

pub(crate) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut words = text.split('\n').map(str::to_owned);
    let stdio = Stdio {
        command: words.next().unwrap_or_default(),
        args: words.collect(),
        base: Some("/project".into()),
        cwd: Some("/project".into()),
        ..Stdio::default()
    };
    let server = ServerName::parse("srv").unwrap();
    let request = LaunchRequest {
        server: &server,
        stdio: &stdio,
        origin: &Origin::Given,
        program: Some(Path::new("/usr/bin/found")),
        sandbox: None,
        program_hash: None,
        host_env: &BTreeMap::new(),
    };
    let permit = match Policy::strict().permit_launch(&request) {
        Ok(permit) => permit,
        Err(error) => {
            let shown = error.to_string();
            assert!(!shown.chars().any(|c| is_unsafe_to_show(c) && c != '\n'), "{shown:?}");
            return;
        }
    };
    assert!(DEFAULT_COMMANDS.contains(&stdio.command.as_str()), "{}", stdio.command);
    assert_eq!(permit.program(), Path::new("/usr/bin/found"));
    assert_eq!(permit.args().len(), stdio.args.len());
    for (started, written) in permit.args().iter().zip(&stdio.args) {
        let started = started.to_str().expect("text stays text");
        // Paths are compared part by part: one that is made absolute loses what says nothing, such as a second slash.
        let absolute = || Path::new(started) == Path::new("/project").join(written);
        assert!(started == written || absolute(), "{started:?} for {written:?}");
        assert!(!started.contains('\0'));
    }
    let own = stdio.args.iter().take_while(|arg| arg.starts_with('-'));
    // A flag that takes the next word as its own is followed by a plain one, so what is looked at are flags.
    for flag in own {
        let code = CODE.contains(&flag.as_str()) && !is_harmless(&stdio.command, flag);
        assert!(!code, "{} {:?}", stdio.command, stdio.args);
    }
}

/// Some launchers mean other things by the same letters.
fn is_harmless(command: &str, flag: &str) -> bool {
    matches!(
        (command, flag),
        ("npx" | "npm" | "uv" | "uvx" | "pipx" | "poetry" | "pdm" | "yarn" | "pnpm" | "bunx", "-p")
    )
}
