//! `wharf prompts`: texts for models, and filling one in.

use std::collections::BTreeMap;
use std::path::Path;

use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use wharf::CallOptions;
use wharf::call::PromptFetched;
use wharf::host::Everywhere;
use wharf::mcp::{Content, Prompt};
use wharf::text::{Escaped, EscapedLines, Foreign};

use super::completions::server_names;
use super::offered::{Asking, Noun, document, in_a_line, only};
use crate::app::App;
use crate::failure::{Failure, Result};
use crate::output::{json as shapes, result};

/// List the prompts of all servers, or of one; fill one in
///
/// A server that fails is reported, and the others are listed all the same. Servers that are set to connect by hand
/// (`connect = "manual"`) are only asked when they are named.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    after_help = "\
Examples:
  wharf prompts
  wharf prompts get demo greet name=Ada tone=formal
  wharf prompts get demo greet name=@name.txt --json"
)]
pub(crate) struct PromptsArgs {
    /// Only this server
    #[arg(add = ArgValueCandidates::new(server_names))]
    server: Option<String>,
    #[command(subcommand)]
    command: Option<PromptsCommand>,
}

#[derive(Debug, Subcommand)]
enum PromptsCommand {
    Get(GetArgs),
}

/// Fill in a prompt of a server
///
/// The text of a prompt of one message is written alone; of several, each is written under the name of who says it.
#[derive(Debug, Args)]
struct GetArgs {
    /// The server, as `wharf servers` names it
    #[arg(add = ArgValueCandidates::new(server_names))]
    server: String,
    /// The prompt, as `wharf prompts SERVER` names it
    prompt: String,
    /// name=value, name=@file (its text)
    #[arg(value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

const NOUN: Noun = Noun("prompt", "prompts");

impl PromptsArgs {
    pub(crate) async fn run(self, app: &App) -> Result<()> {
        match self.command {
            Some(PromptsCommand::Get(get)) => get.run(app).await,
            None => list(app, self.server.as_deref()).await,
        }
    }
}

async fn list(app: &App, server: Option<&str>) -> Result<()> {
    let asking = Asking::prepare(app, server)?;
    let ask = async |host: &wharf::Host| match server {
        Some(server) => Ok(only(server, host.prompts(server).await?)),
        None => Ok::<_, wharf::Error>(host.all_prompts().await),
    };
    asking
        .with_host(app, async |host| {
            let found = app.ui.wait(asking.waiting.clone(), ask(host)).await?;
            show(app, &found)?;
            asking.report(app, found, NOUN)
        })
        .await
}

fn show(app: &App, found: &Everywhere<Prompt>) -> Result<()> {
    if app.ui.json {
        return Ok(app.ui.document(&document(found, NOUN, |prompt| &prompt.raw))?);
    }
    let rows: Vec<Vec<String>> = found
        .offered
        .iter()
        .flat_map(|(server, offered)| offered.items.iter().map(move |prompt| (server, prompt)))
        .map(|(server, prompt)| {
            let about = prompt.description.as_ref().or(prompt.title.as_ref()).map(Foreign::raw);
            vec![
                server.to_string(),
                prompt.name.raw().to_owned(),
                arguments_of(prompt),
                in_a_line(about.unwrap_or_default()),
            ]
        })
        .collect();
    Ok(app.ui.rows(&["server", "prompt", "arguments", "description"], &rows)?)
}

/// As in a usage line: what may be left out is in brackets.
fn arguments_of(prompt: &Prompt) -> String {
    let one = |argument: &wharf::mcp::PromptArgument| match argument.required {
        true => argument.name.raw().to_owned(),
        false => format!("[{}]", argument.name.raw()),
    };
    prompt.arguments.iter().map(one).collect::<Vec<_>>().join(" ")
}

// === impl GetArgs ===

impl GetArgs {
    async fn run(self, app: &App) -> Result<()> {
        let arguments = read(&self.arguments, &app.world.cwd)?;
        let asking = Asking::prepare(app, Some(&self.server))?;
        asking
            .with_host(app, async |host| {
                let timeout = app.globals.timeout;
                let options = CallOptions { timeout, hard_timeout: timeout, ..CallOptions::default() };
                let getting = host.prompt_with(&self.server, &self.prompt, &arguments, options);
                let filled = app.ui.wait(asking.waiting.clone(), getting).await?;
                self.show(app, &filled)
            })
            .await
    }

    fn show(&self, app: &App, filled: &PromptFetched) -> Result<()> {
        let ui = &app.ui;
        for rejected in &filled.rejected {
            ui.warn(format_args!(
                "a message of `{}` is left out: {}",
                Escaped(&self.prompt),
                rejected.reason
            ));
        }
        if ui.json {
            let text = filled.raw.as_str();
            let text = if ui.terminals.stdout { shapes::safe(text) } else { text.to_owned() };
            return Ok(ui.data(format!("{text}\n").as_bytes())?);
        }
        let alone = filled.messages.len() == 1;
        for (number, message) in filled.messages.iter().enumerate() {
            if !alone {
                let gap = if number == 0 { "" } else { "\n" };
                ui.data(format!("{gap}{}:\n", message.role).as_bytes())?;
            }
            ui.data(&shown(ui.terminals.stdout, &message.content))?;
        }
        if filled.messages.is_empty() {
            ui.note("the prompt has no messages");
        }
        Ok(())
    }
}

fn shown(terminal: bool, content: &Content) -> Vec<u8> {
    let mut text = match content {
        Content::Text { text, .. } | Content::Resource { text: Some(text), .. } => match terminal {
            true => EscapedLines(text.raw()).to_string(),
            false => text.raw().to_owned(),
        },
        other => format!("[{}; --json shows it]", result::described(other)),
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text.into_bytes()
}

fn read(words: &[String], folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut arguments = BTreeMap::new();
    for word in words {
        let wrong = || {
            // `:=` is for tools, whose arguments have types.
            Failure::usage(format!("`{}` is not an argument", Escaped(word)))
                .hint("a prompt takes texts: write name=value, or name=@file for the text of a file")
        };
        let (name, value) = word
            .split_once('=')
            .filter(|(name, _)| !name.is_empty() && !name.ends_with(':'))
            .ok_or_else(wrong)?;
        let value = match value.strip_prefix('@') {
            Some(file) => crate::arguments::read_file(&folder.join(file))?,
            None => value.to_owned(),
        };
        if arguments.insert(name.to_owned(), value).is_some() {
            return Err(Failure::usage(format!("`{}` is given twice", Escaped(name))));
        }
    }
    Ok(arguments)
}
