//! A call's way on record: once before it is made, once when it has ended, or once if it is refused.
//!
//! In: what the way of a call finds out. Out: facts on the host's trail. Without one this costs nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Host;
use super::scope::Target;
use crate::error::{Error, Result};
use crate::event::{Arguments, End, Entry, Event, Fact, Kind, Named, Redacted, Refusal, Trail};
use crate::names::CallerName;
use crate::outcome::Outcome;
use crate::registry::Route;
use crate::text::Foreign;
use crate::wire::Json;

/// A call, and its place on record once it is there.
pub(super) struct Errand<'a> {
    pub(super) route: &'a Route,
    pub(super) arguments: &'a Json,
    pub(super) started: Instant,
    /// Who allowed it, if somebody was asked.
    pub(super) rule: Option<String>,
    pub(super) entry: Option<Entry>,
}

impl Host {
    /// Where it is kept what is decided and done.
    pub(crate) fn trail(&self) -> &Trail {
        &self.scope.pool.dock().trail
    }

    /// A fact about what a caller does here.
    pub(super) fn fact(&self, kind: Kind, caller: &CallerName) -> Fact {
        Fact::new(kind).by(caller, self.scope.agent.as_ref().map(|agent| agent.owner.0))
    }

    /// Puts a call on record that may be made, before it is.
    pub(super) async fn begin(
        &self,
        caller: &CallerName,
        errand: &mut Errand<'_>,
        arguments: impl FnOnce() -> Redacted,
    ) -> Result<()> {
        let fact = || {
            let mut fact = self.fact(Kind::Call, caller).of(&errand.route.server);
            fact.arguments = Some(Arguments::new(arguments()));
            fact.rule = errand.rule.take();
            fact.tool(&errand.route.tool.name).allowed()
        };
        errand.entry = self.trail().begin(fact).await?;
        Ok(())
    }

    /// Puts the end of a call on record, or the call if it was refused.
    pub(super) async fn on_record(
        &self,
        (caller, target): (&CallerName, Option<&Target>),
        errand: Errand<'_>,
        outcome: &Outcome,
    ) {
        match errand.entry {
            Some(entry) => entry.end(End {
                outcome: word(outcome),
                took: Some(outcome.took),
                reason: outcome.reason.clone(),
            }),
            None => {
                let refused = || {
                    let redactor = match target {
                        Some(Target::Server(server)) => server.redactor.clone(),
                        _ => self.scope.redactor(),
                    };
                    let shown = Redacted::new(errand.arguments.clone(), redactor);
                    let fact = self.fact(Kind::Call, caller).of(&errand.route.server);
                    ended_by(fact.tool(&errand.route.tool.name), outcome, shown)
                };
                self.trail().note(refused).await;
            }
        }
    }

    /// Puts a call on record that was refused before it came here.
    pub(crate) async fn refuse(&self, route: &Route, error: &Error) {
        let of = (&route.server, &route.tool.name);
        self.core.meter.begin(&route.tally, of, Instant::now()).end(false, Some(error), Duration::ZERO);
        let fact = || self.fact(Kind::Call, &self.scope.caller).of(&route.server);
        self.trail().note(|| fact().tool(&route.tool.name).failed(error)).await;
    }

    /// A call for which no tool was found, or none that may be seen: an outcome, and on record.
    pub(super) async fn not_found(
        &self,
        name: Foreign,
        arguments: &Json,
        caller: CallerName,
        error: Error,
    ) -> Outcome {
        self.core.meter.refuse_unknown(&error);
        let outcome = Outcome::not_found(error);
        let refused = || {
            let shown = Redacted::new(arguments.clone(), self.scope.redactor());
            let fact = Fact { tool: Some(Named::Raw(name)), ..self.fact(Kind::Call, &caller) };
            ended_by(fact, &outcome, shown)
        };
        if let Some(error) = &outcome.error {
            self.tell_refused(&caller, &outcome, error);
        }
        self.trail().note(refused).await;
        outcome
    }

    /// Tells whoever listens that a rule said no.
    pub(super) fn tell_refused(&self, caller: &CallerName, outcome: &Outcome, error: &Error) {
        let is_rule = matches!(
            error.cause(),
            Error::Denied { .. }
                | Error::Unapproved { .. }
                | Error::CommandNotAllowed { .. }
                | Error::Sandbox { .. }
                | Error::Audit { .. }
        );
        if is_rule {
            self.core.events.publish(|| {
                let (server, tool) = (outcome.server.clone(), outcome.tool.clone());
                let (caller, kind, reason) = (caller.clone(), error.kind(), error.to_string());
                Event::Refused(Arc::new(Refusal { caller, server, tool, kind, reason }))
            });
        }
    }
}

/// Puts the end of something on record.
pub(super) async fn ended<T>(entry: Option<Entry>, work: impl Future<Output = Result<T>>) -> Result<T> {
    let started = Instant::now();
    let done = work.await;
    if let Some(entry) = entry {
        let (outcome, reason) = match &done {
            Ok(_) => ("ok", None),
            Err(error) => (error.kind(), Some(error.to_string())),
        };
        entry.end(End { outcome, took: Some(started.elapsed()), reason });
    }
    done
}

fn ended_by(fact: Fact, outcome: &Outcome, shown: Redacted) -> Fact {
    let arguments = Some(Arguments::new(shown));
    let (outcome_word, took) = (Some(word(outcome)), Some(outcome.took));
    let fact = match &outcome.error {
        Some(error) => fact.failed(error),
        None => fact,
    };
    Fact { arguments, outcome: outcome_word, took, ..fact }
}

/// How a call ended, in a word.
fn word(outcome: &Outcome) -> &'static str {
    match &outcome.error {
        Some(error) => error.kind(),
        None if outcome.success => "ok",
        None => "tool_failed",
    }
}
