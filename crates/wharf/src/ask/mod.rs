//! Questions in the middle of a call, and their answers.
//!
//! In: what a server asks, by a request (legacy) or in an `input_required` result (modern). Out: the answer of whoever
//! the host was given as [`Asker`], checked against what was asked. Who is asked is not decided here; without an asker
//! nothing is offered to servers, and everything is declined.

mod form;

use std::pin::Pin;
use std::sync::Arc;

use serde::Deserialize;

use crate::event::Redacted;
use crate::mcp::{code, method};
use crate::names::{CallerName, ServerName, ToolName};
use crate::policy::{CallPermit, Reach, Wanted};
use crate::text::Foreign;
use crate::wire::{Json, Members, RpcError};

pub use form::{Field, Form, Kind};

/// Something a server wants to know before it goes on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Question {
    /// Fill in a form.
    Form(Form),
    /// Visit a page, and say whether that was done. What is entered there never passes through Wharf.
    Url {
        /// Why.
        message: Foreign,
        /// Where. It is shown, never opened without a person.
        url: Foreign,
        /// The server's own id for it, by which a legacy server may tell that it was done
        /// ([`Event::PageVisited`](crate::event::Event::PageVisited)).
        id: Option<Foreign>,
    },
    /// Ask a model. The parameters are the protocol's `CreateMessageRequestParams`.
    Sample {
        /// What to ask.
        params: Json,
    },
    /// Which folders may be worked in?
    Roots,
    /// May an agent call a tool? This one is Wharf's own question, not a server's.
    Consent(Consent),
}

/// A call that somebody must allow.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Consent {
    /// Who wants to call.
    pub caller: CallerName,
    /// The tool, by its original name.
    pub tool: ToolName,
    /// The arguments, as they may be shown.
    pub arguments: Redacted,
    /// How far a yes may reach.
    pub reaches: &'static [Reach],
    /// Why it is asked for though the agent may call it otherwise, in words.
    pub reason: Option<String>,
}

/// What is said to a question.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Answer {
    /// Yes, with the content of the form, if it was one.
    Accept(Json),
    /// No.
    Decline,
    /// Neither: the question was closed.
    Cancel,
    /// What a model said, or the list of folders, in the protocol's own shape.
    Result(Json),
    /// Yes to a call, and how far it reaches.
    Allow(Reach),
}

/// Which kinds of question are answered at all. Servers are only told of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// Forms.
    pub forms: bool,
    /// Pages to visit.
    pub urls: bool,
    /// Models.
    pub sampling: bool,
    /// Folders.
    pub roots: bool,
}

/// A future that answers a question.
pub type Answered = Pin<Box<dyn Future<Output = Answer> + Send + 'static>>;

/// A future that gives the protocol's own answer to a question.
pub type Relaying = Pin<Box<dyn Future<Output = Result<Json, RpcError>> + Send + 'static>>;

/// Who answers.
pub trait Asker: Send + Sync + 'static {
    /// Which kinds of question it answers.
    fn offers(&self) -> Offers;
    /// Answers one. The server that asks is named, and should be shown.
    fn ask(&self, server: &ServerName, question: Question) -> Answered;

    /// What servers are told of it: the protocol's `ClientCapabilities`.
    fn capabilities(&self) -> Json {
        self.offers().capabilities()
    }

    /// The same for a legacy server, which may be told more.
    fn legacy_capabilities(&self) -> Json {
        self.offers().legacy_capabilities()
    }

    /// For someone who speaks the protocol: passes a question on as the server wrote it, and gives the protocol's own
    /// answer. What is neither understood nor checked here is theirs to check. Everybody else is asked by
    /// [`Asker::ask`].
    fn relay(&self, server: &ServerName, method: &str, params: Option<&Json>) -> Option<Relaying> {
        let _ = (server, method, params);
        None
    }

    /// For someone who speaks the protocol, and has the server to itself: hears what it logs that belongs to no request.
    fn log(&self, server: &ServerName, params: &Json) {
        let _ = (server, params);
    }
}

/// Offers nothing and declines everything: the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Decline;

/// Accepts every form with the defaults of its schema, and nothing else. For scripts and tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct AcceptDefaults;

impl Asker for Decline {
    fn offers(&self) -> Offers {
        Offers::default()
    }

    fn ask(&self, _: &ServerName, question: Question) -> Answered {
        let answer = match question {
            // Nobody is here: somebody elsewhere may say yes.
            Question::Consent(_) => Answer::Cancel,
            _ => Answer::Decline,
        };
        Box::pin(std::future::ready(answer))
    }
}

impl Asker for AcceptDefaults {
    fn offers(&self) -> Offers {
        Offers { forms: true, ..Offers::default() }
    }

    fn ask(&self, _: &ServerName, question: Question) -> Answered {
        let answer = match question {
            Question::Form(form) => Answer::Accept(form.with_defaults(&Json::empty_object())),
            _ => Answer::Decline,
        };
        Box::pin(std::future::ready(answer))
    }
}

// === impl Offers ===

impl Offers {
    /// The same in the protocol's words: `ClientCapabilities`.
    pub fn capabilities(self) -> Json {
        let mut all = Members::new();
        if self.forms || self.urls {
            let mut modes = Members::new();
            if self.forms {
                modes.object("form", &Members::new());
            }
            if self.urls {
                modes.object("url", &Members::new());
            }
            all.object("elicitation", &modes);
        }
        if self.sampling {
            all.object("sampling", &Members::new());
        }
        if self.roots {
            all.object("roots", &Members::new());
        }
        all.to_json()
    }

    /// The same for a legacy server, which may also hear that the folders changed.
    pub fn legacy_capabilities(self) -> Json {
        let mut all = Members::of(&Self { roots: false, ..self }.capabilities());
        if self.roots {
            let mut roots = Members::new();
            roots.json("listChanged", &Json::of(&true));
            all.object("roots", &roots);
        }
        all.to_json()
    }
}

/// Answers one question of a server, asked by method and parameters: the protocol's result, or its error.
pub async fn answer(
    asker: Arc<dyn Asker>,
    server: ServerName,
    method: String,
    params: Option<Json>,
) -> Result<Json, RpcError> {
    if let Some(relaying) = asker.relay(&server, &method, params.as_ref()) {
        return relaying.await;
    }
    let question = read(&method, params, asker.offers())?;
    let said = asker.ask(&server, question.clone()).await;
    match (question, said) {
        (Question::Form(form), Answer::Accept(content)) => {
            let content = form.with_defaults(&content);
            form.check(&content).map_err(|problems| RpcError::new(code::INTERNAL, problems.join("; ")))?;
            Ok(elicited("accept", Some(&content)))
        }
        (Question::Url { .. }, Answer::Accept(_)) => Ok(elicited("accept", None)),
        (Question::Form(_) | Question::Url { .. }, Answer::Cancel) => Ok(elicited("cancel", None)),
        (Question::Form(_) | Question::Url { .. }, _) => Ok(elicited("decline", None)),
        (question, Answer::Result(result)) => match unfit(&question, &result) {
            Some(reason) => Err(RpcError::new(code::INTERNAL, reason)),
            None => Ok(result),
        },
        (_, _) => Err(RpcError::new(REJECTED, "the user declined")),
    }
}

/// What came of asking whether a call may be made.
#[derive(Debug)]
pub enum Consented<'a> {
    /// Somebody said yes, so far, or no.
    Said(crate::error::Result<CallPermit<'a>>, Option<Reach>),
    /// Nobody was there to say anything.
    Nothing(Box<Wanted<'a>>),
}

/// Asks whether a call may be made. Everything but a plain yes is a no; a question that was closed is not answered.
pub async fn consent<'a>(
    asker: &Arc<dyn Asker>,
    wanted: Box<Wanted<'a>>,
    arguments: Redacted,
) -> Consented<'a> {
    let (caller, tool) = (wanted.caller().clone(), wanted.tool().clone());
    let question = Consent {
        caller,
        tool,
        arguments,
        reaches: wanted.reaches(),
        reason: wanted.flow().map(crate::policy::FlowReason::words),
    };
    match asker.ask(wanted.server(), Question::Consent(question)).await {
        Answer::Allow(reach) => Consented::Said(wanted.allowed(reach), Some(reach)),
        Answer::Cancel => Consented::Nothing(wanted),
        _ => Consented::Said(Err(wanted.refused()), None),
    }
}

/// What keeps an answer from being what the protocol wants there.
fn unfit(question: &Question, result: &Json) -> Option<String> {
    let lacks = |keys: &[&str]| {
        let missing = keys.iter().find(|key| result.member(key).is_none_or(|value| value.is_null()));
        missing.map(|key| format!("the answer lacks `{key}`"))
    };
    match question {
        Question::Sample { .. } => lacks(&["role", "content", "model"]),
        Question::Roots => lacks(&["roots"]).or_else(|| {
            #[derive(Deserialize)]
            struct Root {
                uri: String,
            }
            let roots = result.member("roots").and_then(|roots| roots.to::<Vec<Root>>().ok());
            match roots {
                None => Some("`roots` is a list of objects with a `uri`".into()),
                Some(roots) if !roots.iter().all(|root| root.uri.starts_with("file://")) => {
                    Some("the `uri` of a root starts with `file://`".into())
                }
                Some(_) => None,
            }
        }),
        _ => None,
    }
}

/// What servers expect when a person says no to a request that has no word for it.
const REJECTED: i64 = -1;

/// Whether a person can be sent to an address: a page of the web, with nothing in it that cannot be seen.
fn page(url: &str) -> Result<(), String> {
    let parsed = url::Url::parse(url).map_err(|e| format!("its `url` is no address: {e}"))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err("its `url` does not lead to a page of the web".into());
    }
    match url.chars().any(crate::text::is_unsafe_to_show) {
        true => Err("its `url` has control characters, or ones that cannot be seen".into()),
        false => Ok(()),
    }
}

fn elicited(action: &str, content: Option<&Json>) -> Json {
    let mut result = Members::new();
    result.text("action", action);
    if let Some(content) = content {
        result.json("content", content);
    }
    result.to_json()
}

fn read(name: &str, params: Option<Json>, offers: Offers) -> Result<Question, RpcError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Elicit {
        mode: Option<String>,
        #[serde(default)]
        message: String,
        requested_schema: Option<Json>,
        url: Option<String>,
        elicitation_id: Option<String>,
    }
    let not_offered = || RpcError::new(code::METHOD_NOT_FOUND, format!("`{name}` was not offered"));
    let unreadable = |e: serde_json::Error| RpcError::new(code::INVALID_PARAMS, format!("`{name}`: {e}"));
    let params = params.unwrap_or_else(Json::empty_object);
    match name {
        method::ELICIT if offers.forms || offers.urls => {
            let shape: Elicit = params.to().map_err(unreadable)?;
            let message = Foreign::from(shape.message);
            match (shape.mode.as_deref().unwrap_or("form"), shape.url, shape.requested_schema) {
                ("form", _, Some(schema)) if offers.forms => Form::read(message, &schema)
                    .map(Question::Form)
                    .map_err(|reason| RpcError::new(code::INVALID_PARAMS, reason)),
                ("url", Some(url), _) if offers.urls => match page(&url) {
                    Ok(()) => {
                        let id = shape.elicitation_id.map(Foreign::from);
                        Ok(Question::Url { message, url: url.into(), id })
                    }
                    Err(reason) => Err(RpcError::new(code::INVALID_PARAMS, reason)),
                },
                ("form", _, None) => Err(RpcError::new(code::INVALID_PARAMS, "`requestedSchema` is missing")),
                _ => Err(RpcError::new(code::INVALID_PARAMS, "this kind of elicitation was not offered")),
            }
        }
        // Tools for the model are a capability of their own, which is not offered.
        method::SAMPLING if offers.sampling && params.member("tools").is_some_and(|t| !t.is_null()) => {
            Err(RpcError::new(code::INVALID_PARAMS, "tools for the model were not offered"))
        }
        method::SAMPLING if offers.sampling => Ok(Question::Sample { params }),
        method::ROOTS_LIST if offers.roots => Ok(Question::Roots),
        _ => Err(not_offered()),
    }
}
