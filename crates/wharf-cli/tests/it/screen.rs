//! A real terminal to type at: `wharf repl` in a tmux of its own, read by looking at the screen.
//!
//! Nothing waits for a fixed time: what is awaited is looked for until it is there, within a deadline.

use std::fs;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::desk::{Desk, WHARF};

pub(crate) const PROMPT: &str = "wharf>";
/// A slow machine gets that long.
const DEADLINE: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(30);

/// A terminal with the prompt in it.
pub(crate) struct Screen<'a> {
    desk: &'a Desk,
    /// Each terminal has a server of its own, and that has a socket in here.
    folder: tempfile::TempDir,
}

impl<'a> Screen<'a> {
    /// Starts the prompt and waits until it is there.
    pub(crate) fn open(desk: &'a Desk) -> Self {
        let screen = Self::start(desk, "repl");
        screen.prompt();
        screen
    }

    /// Starts a command.
    pub(crate) fn start(desk: &'a Desk, command: &str) -> Self {
        Self::start_after(desk, "true", command)
    }

    /// Starts a command after something else was done to the terminal.
    pub(crate) fn start_after(desk: &'a Desk, before: &str, command: &str) -> Self {
        Self::start_in(desk, 110, before, command)
    }

    /// The same, in a terminal with so many columns.
    pub(crate) fn start_in(desk: &'a Desk, columns: u16, before: &str, command: &str) -> Self {
        let screen = Self { desk, folder: tempfile::tempdir().unwrap() };
        let start = desk.home().join("start");
        // The shell stays, so that the end can be seen; it must survive the Ctrl-C that is meant for Wharf.
        let text = format!(
            "trap : INT\n{before}\ncd '{}'\nexport HOME='{}'\n\
             sh -c 'echo $$ > ~/wharf-pid; exec env -i HOME=\"$HOME\" PATH=/usr/bin:/bin TERM=screen \"{WHARF}\" {command}'\n\
             echo \"ended with $?\"\nstty -a | grep -o -- '-\\?icanon'\nexec sleep 1000\n",
            desk.project().display(),
            desk.home().display(),
        );
        fs::write(&start, text).unwrap();
        let start = format!("sh '{}'", start.display());
        screen.tmux(&["new-session", "-d", "-x", &columns.to_string(), "-y", "60", &start]);
        screen
    }

    /// Types a text.
    pub(crate) fn text(&self, text: &str) -> &Self {
        self.tmux(&["send-keys", "-l", "--", text]);
        self
    }

    /// Presses a key, by tmux's name for it.
    pub(crate) fn key(&self, key: &str) -> &Self {
        self.tmux(&["send-keys", key]);
        self
    }

    /// Types a line at the prompt, and waits for what it brings.
    pub(crate) fn line(&self, line: &str, wanted: &str) -> String {
        self.text(line).key("Enter").shows(wanted)
    }

    /// Types a line at the prompt, and waits until the next one can be typed.
    pub(crate) fn command(&self, line: &str, wanted: &str) -> String {
        self.line(line, wanted);
        self.prompt()
    }

    /// Waits until something is on the screen.
    pub(crate) fn shows(&self, wanted: &str) -> String {
        self.until(wanted, |screen| screen.contains(wanted))
    }

    /// Waits until the last line is this.
    pub(crate) fn ends_with(&self, wanted: &str) -> String {
        self.until(wanted, |screen| screen.lines().last() == Some(wanted))
    }

    /// Waits for an empty prompt.
    pub(crate) fn prompt(&self) -> String {
        self.ends_with(PROMPT)
    }

    /// Takes everything away but the prompt.
    pub(crate) fn clear(&self) {
        self.key("C-l");
        self.until("nothing", |screen| screen == PROMPT);
    }

    /// What is on the screen, without empty lines at the end.
    pub(crate) fn look(&self) -> String {
        let output = self.tmux(&["capture-pane", "-p"]);
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    pub(crate) fn until(&self, wanted: &str, is_there: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + DEADLINE;
        loop {
            let screen = self.look();
            if is_there(&screen) {
                return screen;
            }
            assert!(Instant::now() < end, "never there: {wanted}\n--- the screen:\n{screen}");
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn tmux(&self, args: &[&str]) -> Output {
        let output = Command::new("tmux")
            .args(["-f", "/dev/null", "-S"])
            .arg(self.folder.path().join("tmux"))
            .args(args)
            .env("LANG", "C.UTF-8")
            .env("HOME", self.desk.home())
            .env_remove("TMUX")
            .output()
            .expect("tmux is installed (proof/install does it)");
        assert!(output.status.success(), "tmux {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        // It is the server behind this one socket that goes, whatever state the test left it in.
        let _ =
            Command::new("tmux").arg("-S").arg(self.folder.path().join("tmux")).arg("kill-server").output();
    }
}
