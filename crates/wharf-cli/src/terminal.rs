//! Questions to the person at the terminal: yes or no, the forms that servers want filled in, and whether a tool may be
//! called.
//!
//! In: a question. Out: an answer, or none where nobody can be asked. A server's words are shown escaped, and it is
//! always said which server asks.

use std::io::BufRead as _;
use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::sync::oneshot;
use wharf::ask::{Answer, Answered, Asker, Consent, Field, Form, Kind, Offers, Question};
use wharf::names::ServerName;
use wharf::policy::Reach;
use wharf::text::{Escaped, Foreign};
use wharf::wire::Json;

use crate::output::Ui;

/// Where a person's answers come from.
pub(crate) trait Lines: Send + Sync {
    /// Shows a question and reads a line; `None` where the person closes it instead. It waits.
    fn ask(&self, question: &str) -> Option<String>;

    /// Whether a line is being edited at this moment.
    fn is_busy(&self) -> bool {
        false
    }
}

/// Asks questions at the terminal.
pub(crate) struct AtTerminal {
    ui: Arc<Ui>,
    /// `None` where there is no person.
    lines: Option<Arc<dyn Lines>>,
    /// One question at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// Lines as the terminal itself lets them be edited.
struct Plain(Arc<Ui>);

/// Lines for as long as somebody waits for the answer.
struct WhileAwaited<'a> {
    lines: &'a dyn Lines,
    tell: &'a oneshot::Sender<Answer>,
}

/// Tells the person, when it is dropped, that an open question has become idle.
struct Awaited {
    ui: Arc<Ui>,
    lines: Arc<dyn Lines>,
    answered: bool,
}

/// Asks for a yes. Anything else is a no.
pub(crate) fn confirm(ui: &Ui, question: &str) -> bool {
    ui.hold(true);
    ui.prompt(format_args!("{question} [y/N] "));
    let said = line().unwrap_or_default();
    ui.hold(false);
    is_yes(&said)
}

fn is_yes(said: &str) -> bool {
    matches!(said.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

fn line() -> Option<String> {
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line.trim_end_matches(['\n', '\r']).to_owned()),
    }
}

impl Lines for Plain {
    fn ask(&self, question: &str) -> Option<String> {
        self.0.prompt(question);
        let said = line();
        if said.is_none() {
            // The line of the question is still open.
            self.0.say("");
        }
        said
    }
}

impl Lines for WhileAwaited<'_> {
    fn ask(&self, question: &str) -> Option<String> {
        if self.tell.is_closed() { None } else { self.lines.ask(question) }
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        if !self.answered && self.lines.is_busy() {
            self.ui.say("(nobody waits for the answer any more: press Enter)");
        }
    }
}

// === impl AtTerminal ===

impl AtTerminal {
    /// Asks a line at a time, if there is somebody to ask.
    pub(crate) fn new(ui: Arc<Ui>, can_ask: bool) -> Self {
        let lines = can_ask.then(|| Arc::new(Plain(Arc::clone(&ui))) as _);
        Self::with(ui, lines)
    }

    /// Takes the answers from somewhere else.
    pub(crate) fn with(ui: Arc<Ui>, lines: Option<Arc<dyn Lines>>) -> Self {
        Self { ui, lines, turn: Arc::default() }
    }
}

impl Asker for AtTerminal {
    fn offers(&self) -> Offers {
        let can_ask = self.lines.is_some();
        Offers { forms: can_ask, urls: can_ask, ..Offers::default() }
    }

    fn ask(&self, server: &ServerName, question: Question) -> Answered {
        let Some(lines) = self.lines.clone() else {
            return Box::pin(std::future::ready(Answer::Decline));
        };
        let (ui, server, turn) = (Arc::clone(&self.ui), server.clone(), Arc::clone(&self.turn));
        Box::pin(async move {
            let _turn = turn.lock().await;
            let (tell, told) = oneshot::channel();
            let mut awaited = Awaited { ui: Arc::clone(&ui), lines: Arc::clone(&lines), answered: false };
            // A thread of its own: one that waits for the keyboard must not keep the command from ending.
            let asking = std::thread::Builder::new().spawn(move || {
                ui.hold(true);
                if lines.is_busy() {
                    ui.say("(press Enter to answer)");
                }
                let while_awaited = WhileAwaited { lines: &*lines, tell: &tell };
                let answer = answer(&ui, &while_awaited, &server, question);
                ui.hold(false);
                // Whoever asked may have gone.
                let _ = tell.send(answer);
            });
            let answer = match asking {
                Ok(_) => told.await.unwrap_or(Answer::Cancel),
                Err(_) => Answer::Cancel,
            };
            awaited.answered = true;
            answer
        })
    }
}

fn answer(ui: &Ui, lines: &dyn Lines, server: &ServerName, question: Question) -> Answer {
    match question {
        Question::Form(form) => fill_in(ui, lines, server, &form),
        Question::Url { message, url, .. } => {
            ui.say(format_args!("\nserver `{server}` asks you to visit a page: {message}\n  {url}"));
            accepts(lines, "Have you done so?")
        }
        Question::Consent(consent) => allow(ui, lines, server, &consent),
        _ => Answer::Decline,
    }
}

fn accepts(lines: &dyn Lines, question: &str) -> Answer {
    match lines.ask(&format!("{question} [y/N] ")) {
        Some(said) if is_yes(&said) => Answer::Accept(Json::empty_object()),
        _ => Answer::Decline,
    }
}

/// May a tool be called? Whatever is not a plain yes is a no.
fn allow(ui: &Ui, lines: &dyn Lines, server: &ServerName, consent: &Consent) -> Answer {
    let Consent { tool, arguments, reaches, reason, .. } = consent;
    ui.say(format_args!("`{tool}` of `{server}` is to be called with {arguments}"));
    if let Some(reason) = reason {
        ui.say(format_args!("{reason}"));
    }
    let offered: Vec<&str> = reaches.iter().map(|reach| keys(*reach).0).collect();
    let said = lines.ask(&format!("Allow it? {} [N]o: ", offered.join(" "))).unwrap_or_default();
    let said = said.trim().to_ascii_lowercase();
    let meant = reaches.iter().find(|reach| keys(**reach).1.contains(&said.as_str()));
    meant.map_or(Answer::Decline, |reach| Answer::Allow(*reach))
}

/// How an answer is offered, and how it may be typed.
fn keys(reach: Reach) -> (&'static str, &'static [&'static str]) {
    match reach {
        Reach::Once => ("[o]nce", &["o", "once", "y", "yes"]),
        Reach::Tool => ("[t]ool", &["t", "tool"]),
        Reach::Server => ("[s]erver", &["s", "server"]),
        Reach::Session => ("se[ss]ion", &["ss", "session"]),
        _ => ("", &[]),
    }
}

fn fill_in(ui: &Ui, lines: &dyn Lines, server: &ServerName, form: &Form) -> Answer {
    ui.say(format_args!("\nserver `{server}` asks: {}", form.message.lines()));
    if form.fields.is_empty() {
        return accepts(lines, "Yes?");
    }
    ui.say("(an empty line takes what is in brackets, or leaves the field out; Ctrl-D declines)");
    let mut content = Map::new();
    for (name, field) in &form.fields {
        loop {
            let Some(text) = lines.ask(&question(name, field)) else { return Answer::Decline };
            let text = text.trim();
            let value = if text.is_empty() { field.default.clone() } else { Some(read(text, &field.kind)) };
            match problem(form, name, field, value.as_ref()) {
                Some(problem) => ui.say(format_args!("  {problem}")),
                None => {
                    content.extend(value.map(|value| (name.clone(), value)));
                    break;
                }
            }
        }
    }
    Answer::Accept(Json::of(&content))
}

fn question(name: &str, field: &Field) -> String {
    let title = field.title.as_ref().map_or_else(|| Escaped(name).to_string(), Foreign::to_string);
    let about = field.description.as_ref().map(|d| format!(" ({d})")).unwrap_or_default();
    let names = |options: &[(String, Foreign)]| {
        let shown = |(value, title): &(String, Foreign)| match title.raw() == value {
            true => title.to_string(),
            false => format!("{} = {title}", Escaped(value)),
        };
        options.iter().map(shown).collect::<Vec<_>>().join(", ")
    };
    let kind = match &field.kind {
        Kind::Flag => " y/n".to_owned(),
        Kind::Choice(options) => format!(" one of: {}", names(options)),
        Kind::Choices { options, .. } => format!(" some of, with commas: {}", names(options)),
        _ => String::new(),
    };
    let default = match &field.default {
        Some(Value::String(text)) => format!(" [{}]", Escaped(text)),
        Some(value) => format!(" [{}]", Escaped(&value.to_string())),
        None if !field.required => " []".to_owned(),
        None => String::new(),
    };
    format!("  {title}{about}{kind}{default}: ")
}

fn read(text: &str, kind: &Kind) -> Value {
    match kind {
        Kind::Flag => match text.to_ascii_lowercase().as_str() {
            "y" | "yes" | "true" => Value::Bool(true),
            "n" | "no" | "false" => Value::Bool(false),
            _ => Value::from(text),
        },
        Kind::Number { .. } => {
            serde_json::from_str::<serde_json::Number>(text).map_or_else(|_| Value::from(text), Value::Number)
        }
        Kind::Choices { .. } => text.split(',').map(|part| Value::from(part.trim())).collect(),
        _ => Value::from(text),
    }
}

/// What the form says to this one field.
fn problem(form: &Form, name: &str, field: &Field, value: Option<&Value>) -> Option<String> {
    let only = Form { message: form.message.clone(), fields: [(name.to_owned(), field.clone())].into() };
    let content: Map<String, Value> = value.map(|v| (name.to_owned(), v.clone())).into_iter().collect();
    only.check(&Json::of(&content)).err().map(|problems| Escaped(&problems.join("; ")).to_string())
}
