//! Somebody's yes: from whoever is there to be asked, or from the queue of approvals.
//!
//! In: what policy says to a call. Out: a permit and who gave it, a refusal, or the number by which the call is answered
//! later. What may be asked about, and how far a yes may reach, is policy's.

use std::sync::Arc;

use super::Host;
use super::server::Server;
use crate::ask::{self, Asker, Consented};
use crate::error::{Error, Light, Result};
use crate::event::{Arguments, Entry, Event, Fact, Kind, Redacted, Verdict};
use crate::names::ToolName;
use crate::policy::{CallPermit, Decision, Reach, Subject, Tainted, Wanted};
use crate::store::{Approvals, Request, Standing};
use crate::wire::Json;

/// A permit, and who gave it if somebody was asked.
type Permitted<'a> = (CallPermit<'a>, Option<String>);

impl Host {
    /// A permit for a call, from whoever can give one. `again` judges once more, after others were asked; `caller` is
    /// asked instead of the scope's own asker.
    pub(super) async fn permit<'a>(
        &self,
        decision: Decision<'a>,
        again: impl FnOnce() -> Light<Decision<'a>>,
        arguments: impl FnOnce() -> Redacted,
        caller: Option<&Arc<dyn Asker>>,
    ) -> Light<Permitted<'a>> {
        match decision {
            Decision::Permit(permit) => Ok((permit, None)),
            // Put aside: most calls do not come this way, and should not be larger for it.
            decision => Box::pin(self.permit_asked(decision, again, arguments, caller)).await,
        }
    }

    async fn permit_asked<'a>(
        &self,
        decision: Decision<'a>,
        again: impl FnOnce() -> Light<Decision<'a>>,
        arguments: impl FnOnce() -> Redacted,
        caller: Option<&Arc<dyn Asker>>,
    ) -> Light<Permitted<'a>> {
        let agent = match (decision, &self.scope.agent) {
            (Decision::Permit(permit), _) => return Ok((permit, None)),
            (Decision::Ask(wanted), None) => {
                return Ok(self.ask_or_refuse(&self.scope.asker, wanted, arguments()).await?);
            }
            (Decision::Ask(_), Some(agent)) => agent,
        };
        // One answer of an agent's person serves everyone who waits for it. A caller is asked about each of its calls.
        let _one_at_a_time = match caller {
            None => Some(agent.asking.lock().await),
            Some(_) => None,
        };
        let wanted = match again()? {
            Decision::Permit(permit) => return Ok((permit, None)),
            Decision::Ask(wanted) => wanted,
        };
        let shown = arguments();
        let Some(queue) = &self.core.approvals else {
            return Ok(self.ask_or_refuse(caller.unwrap_or(&self.scope.asker), wanted, shown).await?);
        };
        let fact = self.asked_about(&wanted, &shown);
        let session = queue.session(agent.owner.0);
        let request = Request::new(session, &wanted, &shown);
        if let Some(standing) = queue.claim(&request).await? {
            return Ok(self.by_queue(wanted, standing, fact).await?);
        }
        let asker = match caller {
            Some(caller) => queue.options().now().callers.then_some(caller),
            None => Some(&self.scope.asker),
        };
        let (wanted, fact) = match asker {
            Some(asker) => match self.ask_now(asker, wanted, shown, fact).await {
                Ok(permitted) => return Ok(permitted?),
                Err(unanswered) => unanswered,
            },
            None => (wanted, fact),
        };
        Ok(self.queued(queue, &request, wanted, fact).await?)
    }

    /// The same for what is no tool call.
    pub(super) async fn permit_use(&self, server: &Server, method: &'static str) -> Result<Option<Entry>> {
        let used = self.fact(Kind::Use, &self.scope.caller).of(&server.config.name);
        let method = ToolName::parse(method).map_err(|e| Error::Internal(e.to_string()))?;
        let used = used.tool(&method);
        match self.judge_use(server, &method).await {
            Ok(rule) => self.trail().begin(|| Fact { rule, ..used.allowed() }).await,
            Err(error) => {
                self.trail().note(|| used.failed(&error)).await;
                Err(error)
            }
        }
    }

    async fn judge_use(&self, server: &Server, method: &ToolName) -> Result<Option<String>> {
        let policy = self.core.policy.now();
        let subject =
            Subject::Server { config: &server.config, identity: &server.identity, definition: None };
        let judge = || self.scope.standing(|standing| policy.judge_use(standing, &subject, method));
        let taint = || self.scope.taint.get();
        let of_program = || policy.judge_program_use(&self.scope.caller, &subject, method, taint());
        let judge = || Ok(judge().unwrap_or_else(|| Ok(of_program()))?);
        let arguments = || Redacted::new(Json::empty_object(), server.redactor.clone());
        let decision = judge().map_err(|error: Box<Error>| *error)?;
        let permitted = self.permit(decision, judge, arguments, None).await;
        let (_, rule) = permitted.map_err(|error| *error)?;
        if policy.taints(&server.config.name, None) {
            let (server, tool) = (server.config.name.clone(), method.clone());
            self.scope.taint.set(|| Tainted { server, tool });
        }
        Ok(rule)
    }

    /// Asks whoever is there. If nobody is, the answer is no.
    async fn ask_or_refuse<'a>(
        &self,
        asker: &Arc<dyn Asker>,
        wanted: Box<Wanted<'a>>,
        shown: Redacted,
    ) -> Result<Permitted<'a>> {
        let fact = self.asked_about(&wanted, &shown);
        match self.ask_now(asker, wanted, shown, fact).await {
            Ok(permitted) => permitted,
            Err((wanted, fact)) => {
                let fact = Fact { verdict: Some(Verdict::Deny), rule: Some("consent".into()), ..fact };
                self.note_answer(fact, "nobody was there to be asked").await;
                Err(wanted.refused())
            }
        }
    }

    /// Asks whoever is there. An error: nobody was.
    async fn ask_now<'a>(
        &self,
        asker: &Arc<dyn Asker>,
        wanted: Box<Wanted<'a>>,
        shown: Redacted,
        fact: Fact,
    ) -> Result<Result<Permitted<'a>>, (Box<Wanted<'a>>, Fact)> {
        let (identity, server, tool) =
            (wanted.identity().clone(), wanted.server().clone(), wanted.tool().clone());
        let flows = wanted.flow().is_some();
        let (permit, reach) = match ask::consent(asker, wanted, shown).await {
            Consented::Said(permit, reach) => (permit, reach),
            Consented::Nothing(wanted) => return Err((wanted, fact)),
        };
        if let (Ok(_), Some(reach), Some(agent)) = (&permit, reach, &self.scope.agent) {
            agent.remember(|grants| match reach {
                Reach::Tool if flows => grants.with_flow(&identity, &tool),
                reach => grants.with(&identity, &tool, reach),
            });
        }
        let verdict = if permit.is_ok() { Verdict::Allow } else { Verdict::Deny };
        let fact = Fact { verdict: Some(verdict), rule: Some("consent".into()), ..fact };
        self.note_answer(fact, reach.map_or("no", Reach::words)).await;
        let caller = self.scope.caller.clone();
        self.core.events.publish(|| Event::Consent { caller, server, tool, allowed: permit.is_ok() });
        Ok(permit.map(|permit| (permit, Some("consent".into()))))
    }

    /// Puts a call into the queue, and waits there as long as calls may.
    async fn queued<'a>(
        &self,
        queue: &Approvals,
        request: &Request,
        wanted: Box<Wanted<'a>>,
        fact: Fact,
    ) -> Result<Permitted<'a>> {
        let standing = queue.ask(request).await?;
        self.by_queue(wanted, standing, fact).await
    }

    /// What the queue says.
    async fn by_queue<'a>(
        &self,
        wanted: Box<Wanted<'a>>,
        standing: Standing,
        fact: Fact,
    ) -> Result<Permitted<'a>> {
        let (id, verdict, words) = match standing {
            Standing::Allowed(id) => (id, Some(Verdict::Allow), "an operator said yes"),
            Standing::Denied(id) => (id, Some(Verdict::Deny), "an operator said no"),
            Standing::Waiting(id) => (id, None, "it waits for an operator"),
        };
        let rule = format!("approval {id}");
        self.note_answer(Fact { verdict, rule: Some(rule.clone()), ..fact }, words).await;
        match standing {
            Standing::Allowed(_) => wanted.allowed(Reach::Once).map(|permit| (permit, Some(rule))),
            Standing::Denied(_) => Err(Error::Denied {
                what: format!("tool `{}` of `{}`", wanted.tool(), wanted.server()),
                rule,
                hint: "an operator said no to this call; ask for something else".into(),
            }),
            Standing::Waiting(id) => {
                let (server, tool) = (wanted.server().clone(), wanted.tool().clone());
                Err(Error::Unapproved { server, tool, id })
            }
        }
    }

    fn asked_about(&self, wanted: &Wanted<'_>, shown: &Redacted) -> Fact {
        let fact = self.fact(Kind::Ask, &self.scope.caller).of(wanted.server()).tool(wanted.tool());
        Fact { arguments: Some(Arguments::new(shown.clone())), ..fact }
    }

    async fn note_answer(&self, fact: Fact, words: &str) {
        self.trail().note(|| fact.because(words)).await;
    }
}
