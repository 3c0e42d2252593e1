//! `wharf approve`: calls that wait for somebody's yes, and the yes or no to them.

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use wharf::event::{Fact, Kind, Named, Verdict};
use wharf::names::{CallerName, ServerName};
use wharf::store::{Approvals, Reaching, Said, Waiting};
use wharf::text::{Escaped, EscapedLines};

use crate::app::{App, Setup};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::terminal;

/// List the calls that wait for somebody's yes, and answer them
///
/// Which calls wait is said by `ask` in `[policy]` and `[callers.NAME]`. A yes counts for the caller that asked and for
/// its server as it is configured, once and for exactly these arguments unless `--for` says more; the caller then makes
/// the same call again. At a terminal the call is shown first, and you are asked.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  wharf approve
  wharf approve --show 12
  wharf approve 12
  wharf approve 12 --for tool --expires 8h
  wharf approve 12 --deny")]
pub(crate) struct ApproveArgs {
    /// Which; without any, those that wait are listed
    ids: Vec<u64>,
    /// Only show it, with all its arguments
    #[arg(long, requires = "ids")]
    show: bool,
    /// Say no: this very call is refused until the answer expires
    #[arg(long, requires = "ids", conflicts_with = "reach")]
    deny: bool,
    /// How far the yes reaches
    #[arg(long = "for", value_name = "WHAT", requires = "ids")]
    reach: Option<ReachArg>,
    /// For how long the answer counts: 30m, 8h, 7d; an hour unless `[approvals]` says otherwise
    #[arg(long, value_name = "TIME", requires = "ids", value_parser = super::keys::lifetime)]
    expires: Option<Duration>,
    /// Do not ask at the terminal
    #[arg(long, short)]
    yes: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ReachArg {
    /// Exactly this call, one time
    Once,
    /// Calls of this tool whose arguments have the same names and kinds of value
    Shape,
    /// Every call of this tool
    Tool,
    /// Everything that the caller asks about in this session
    Session,
}

impl ApproveArgs {
    pub(crate) async fn run(self, app: &App) -> Result<()> {
        let setup = app.setup()?;
        let Some(queue) = app.approvals(&setup)? else {
            return Err(Failure::general("there is no home folder with a queue of approvals")
                .hint("set HOME, or name a file with `path` in `[audit]`"));
        };
        if self.ids.is_empty() {
            return list(app, &queue.waiting()?);
        }
        let mut answered = Vec::new();
        for id in &self.ids {
            let Some(waiting) = queue.get(*id)? else { return Err(gone(*id)) };
            if self.show {
                show(app, &waiting)?;
            } else if let Some(said) = self.decide(app, &waiting) {
                self.answer(app, (&setup, &queue), &waiting, said).await?;
                answered.push(
                    json!({ "id": id, "decision": word(said), "for": reach(said).map(Reaching::as_str) }),
                );
            } else {
                return Err(Failure::Said(Exit::General));
            }
        }
        if app.ui.json && !self.show {
            app.ui.document(&json!({ "answered": answered }))?;
        }
        Ok(())
    }

    /// What is said: at a terminal by the person who sees the call, elsewhere by the command itself.
    fn decide(&self, app: &App, waiting: &Waiting) -> Option<Said> {
        let reach = match self.reach.unwrap_or(ReachArg::Once) {
            ReachArg::Once => Reaching::Once,
            ReachArg::Shape => Reaching::Shape,
            ReachArg::Tool => Reaching::Tool,
            ReachArg::Session => Reaching::Session,
        };
        if self.deny {
            return Some(Said::Deny);
        }
        if app.world.can_ask() && !app.ui.json && !self.yes {
            describe(app, waiting);
            let question = format!("Allow {}?", reach.words());
            return terminal::confirm(&app.ui, &question).then_some(Said::Allow(reach));
        }
        Some(Said::Allow(reach))
    }

    /// On record first: what cannot be written down is not allowed.
    async fn answer(
        &self,
        app: &App,
        (setup, queue): (&Setup, &Approvals),
        waiting: &Waiting,
        said: Said,
    ) -> Result<()> {
        if let Some(audit) = app.audit(setup)? {
            audit.trail().record(|| fact(waiting, said));
            audit.flush().await?;
        }
        if !queue.answer(waiting.id, said, self.expires)? {
            return Err(gone(waiting.id));
        }
        if !app.ui.json {
            let (id, tool, server) = (waiting.id, Escaped(&waiting.tool), &waiting.server);
            app.ui.note(match said {
                Said::Allow(reach) => format!("{id}: `{tool}` of `{server}` is allowed: {}", reach.words()),
                Said::Deny => format!("{id}: `{tool}` of `{server}` is refused"),
            });
        }
        Ok(())
    }
}

fn fact(waiting: &Waiting, said: Said) -> Fact {
    let mut fact = Fact::new(Kind::Answer);
    fact.caller = CallerName::parse(&waiting.caller).ok();
    fact.server = ServerName::parse(&waiting.server).ok();
    fact.tool = Some(Named::Raw(waiting.tool.clone().into()));
    fact.rule = Some(format!("approval {}", waiting.id));
    match said {
        Said::Allow(reach) => Fact { verdict: Some(Verdict::Allow), ..fact }.because(reach.words()),
        Said::Deny => Fact { verdict: Some(Verdict::Deny), ..fact },
    }
}

fn list(app: &App, waiting: &[Waiting]) -> Result<()> {
    if app.ui.json {
        return Ok(app.ui.document(&json!({ "waiting": waiting.iter().map(shape).collect::<Vec<_>>() }))?);
    }
    if waiting.is_empty() {
        app.ui.note("no call waits for an answer");
    }
    let row = |one: &Waiting| {
        let tool = Escaped(&one.tool).to_string();
        let arguments: String = one.arguments.chars().take(80).collect();
        vec![
            one.id.to_string(),
            super::audit::local(one.created),
            one.caller.clone(),
            one.server.clone(),
            tool,
            Escaped(&arguments).to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = waiting.iter().map(row).collect();
    Ok(app.ui.rows(&["id", "since", "caller", "server", "tool", "arguments"], &rows)?)
}

fn show(app: &App, waiting: &Waiting) -> Result<()> {
    if app.ui.json {
        return Ok(app.ui.document(&shape(waiting))?);
    }
    Ok(app.ui.data(format!("{}\n", words(waiting)).as_bytes())?)
}

fn describe(app: &App, waiting: &Waiting) {
    app.ui.say(words(waiting));
}

/// Everything of the call, readable and safe to show.
fn words(waiting: &Waiting) -> String {
    let pretty = serde_json::from_str::<Value>(&waiting.arguments)
        .and_then(|value| serde_json::to_string_pretty(&value));
    let arguments = pretty.unwrap_or_else(|_| waiting.arguments.clone());
    format!(
        "{}: `{}` wants to call `{}` of `{}`, since {}, with\n{}",
        waiting.id,
        Escaped(&waiting.caller),
        Escaped(&waiting.tool),
        waiting.server,
        super::audit::local(waiting.created),
        EscapedLines(&arguments),
    )
}

fn shape(waiting: &Waiting) -> Value {
    let arguments =
        serde_json::from_str::<Value>(&waiting.arguments).unwrap_or_else(|_| json!(waiting.arguments));
    json!({
        "id": waiting.id,
        "since": super::audit::utc(waiting.created),
        "expires": super::audit::utc(waiting.expires),
        "caller": waiting.caller,
        "server": waiting.server,
        "tool": waiting.tool,
        "arguments": arguments,
    })
}

fn word(said: Said) -> &'static str {
    match said {
        Said::Allow(_) => "allow",
        Said::Deny => "deny",
    }
}

fn reach(said: Said) -> Option<Reaching> {
    match said {
        Said::Allow(reach) => Some(reach),
        Said::Deny => None,
    }
}

fn gone(id: u64) -> Failure {
    let failure =
        Failure::general(format!("no call {id} waits: there is none, or it was answered, or it is too old"));
    failure.hint("see what waits: wharf approve")
}
