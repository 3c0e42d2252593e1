//! The way through the person's browser: a page to open, a door to come back through, or an address to paste.
//!
//! In: a page that the library has checked. Out: the address that the person came back with. The page is handed to the
//! desktop's own opener as one argument; no shell sees it.

use std::io::BufRead as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::sync::oneshot;
use wharf::connect::{Loopback, Page, Visiting, Visitor};
use wharf::secret::Secret;
use wharf::text::Escaped;
use wharf::{Error, Result};

use crate::app::App;
use crate::world::World;

/// Somebody at this terminal.
pub(crate) struct AtBrowser<'a> {
    app: &'a App,
    door: Loopback,
    /// The program that opens pages, if one is to.
    opener: Option<PathBuf>,
    /// Whether an address may be pasted.
    paste: bool,
}

/// How long somebody may take to log in.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

impl<'a> AtBrowser<'a> {
    pub(crate) async fn new(app: &'a App, port: Option<u16>, no_browser: bool) -> Result<Self> {
        let opener = if no_browser { None } else { opener(&app.world) };
        let paste = opener.is_none() || app.world.terminals.stdin;
        Ok(Self { app, door: Loopback::open(port).await?, opener, paste })
    }

    fn invite(&self, page: &Page) {
        let ui = &self.app.ui;
        let issuer = Escaped(page.issuer());
        let opened = self.opener.as_ref().is_some_and(|opener| open(opener, page.url().as_str()).is_ok());
        match opened {
            true => ui.say(format_args!("log in at {issuer} in your browser; if it did not open, go to:")),
            false => ui.say(format_args!("log in at {issuer}: open this address in a browser:")),
        }
        ui.say(format_args!("\n  {}\n", page.url()));
        if self.paste {
            ui.say(
                "if the browser is on another machine, its last page cannot be shown: copy that page's address and paste it here",
            );
        }
    }
}

impl Visitor for AtBrowser<'_> {
    fn returns_to(&self) -> url::Url {
        self.door.url()
    }

    fn visit<'v>(&'v self, page: &'v Page) -> Visiting<'v> {
        Box::pin(async move {
            self.invite(page);
            self.app.ui.hold(true);
            let pasted = async {
                match self.paste {
                    true => line().await,
                    false => std::future::pending().await,
                }
            };
            let returned = tokio::select! {
                returned = self.door.wait(page) => returned,
                pasted = pasted => Ok(pasted),
                () = tokio::time::sleep(PATIENCE) => {
                    Err(Error::Cancelled { reason: format!("nobody logged in within {PATIENCE:?}"), sent: false })
                }
            };
            self.app.ui.hold(false);
            returned
        })
    }
}

/// A line that somebody types, if anybody ever does.
async fn line() -> Secret {
    let (tell, told) = oneshot::channel();
    // A thread of its own: one that waits for the keyboard must not keep the command from ending.
    let reading = std::thread::Builder::new().spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
            if !line.trim().is_empty() {
                let _ = tell.send(Secret::new(line));
                return;
            }
        }
    });
    match (reading, told.await) {
        (Ok(_), Ok(line)) => line,
        _ => std::future::pending().await,
    }
}

/// The desktop's opener, if there is a desktop.
fn opener(world: &World) -> Option<PathBuf> {
    let (name, has_desktop) = match cfg!(target_os = "macos") {
        true => ("open", true),
        false => {
            ("xdg-open", ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| world.env.contains_key(*name)))
        }
    };
    let folders = world.env.get("PATH").into_iter().flat_map(|path| path.split(':'));
    // A folder without a leading slash is wherever one happens to be.
    let mut places =
        folders.filter(|folder| folder.starts_with('/')).map(|folder| PathBuf::from(folder).join(name));
    places.find(|place| has_desktop && place.is_file())
}

fn open(opener: &PathBuf, page: &str) -> std::io::Result<()> {
    #[expect(
        clippy::disallowed_methods,
        reason = "not a server: the desktop's own opener, with a checked address"
    )]
    let mut child = Command::new(opener)
        .arg(page)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    std::thread::Builder::new().spawn(move || child.wait())?;
    Ok(())
}
