//! The way of a call, one line a room.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::context::Context;
use super::local::Function;
use super::scope::{Reducer, Target};
use super::server::Server;
use super::{CallOptions, Host};
use crate::ask;
use crate::call::{self, Call, OnProgress};
use crate::connect::Progress;
use crate::error::{Error, Result, StderrTail};
use crate::event::{Event, Invocation, Redacted};
use crate::mcp::Tool;
use crate::names::{CallerName, ServerName, ToolName};
use crate::outcome::Outcome;
use crate::policy::{CallPermit, Decision, Subject};
use crate::registry::{Route, Snapshot, Source};
use crate::secret::Redactor;
use crate::session::Transaction;
use crate::wire::Json;

/// How many reports of progress may wait for a slow listener.
const PROGRESS_WAITING: usize = 64;
/// A timeout that nobody reaches.
const FOREVER: Duration = Duration::from_secs(60 * 60 * 24 * 365);

impl Host {
    /// Calls a tool. What is remembered is as it was unless the call succeeds.
    pub(super) async fn run(&self, route: &Route, arguments: &Json, options: CallOptions<'_>) -> Outcome {
        let started = Instant::now();
        let caller = options.caller.clone().unwrap_or_else(|| self.scope.caller.clone());
        let reducers = self.scope.reducers.load();
        let transact = route.source == Source::Local || !reducers.is_empty();
        let transaction = transact.then(|| Arc::new(self.scope.memory.begin()));
        let ended = match (self.scope.target(route), &transaction) {
            (Ok(Target::Server(server)), _) => self.run_remote(&server, route, arguments, options).await,
            (Ok(Target::Function(function)), Some(transaction)) => {
                self.run_local(&function, transaction, arguments, options).await
            }
            (Ok(Target::Function(_)), None) => {
                Err(Error::Internal("a local tool needs a transaction".into()))
            }
            (Err(error), _) => Err(error),
        };
        let (server, tool) = (route.server.clone(), route.tool.name.clone());
        let mut outcome = match ended {
            Ok(raw) => Outcome::from_result(server, tool, raw),
            Err(error) => Outcome::from_error(server, tool, error),
        };
        if let (true, Some(transaction)) = (outcome.success, transaction)
            && let Err(error) = self.commit(&transaction, &reducers, &outcome)
        {
            let (server, tool) = (route.server.clone(), route.tool.name.clone());
            outcome = Outcome { raw: outcome.raw, ..Outcome::from_error(server, tool, error) };
        }
        let outcome = outcome.after(started.elapsed());
        self.tell(caller, route, arguments, &outcome);
        outcome
    }

    async fn run_remote(
        &self,
        server: &Arc<Server>,
        route: &Route,
        arguments: &Json,
        options: CallOptions<'_>,
    ) -> Result<Json> {
        let tool = &route.tool.name;
        let caller = options.caller.as_ref().unwrap_or(&self.scope.caller);
        let subject = Subject::Server { config: &server.config, identity: &server.identity };
        let decision = self.judge(caller, &subject, tool)?;
        self.check(&server.config.name, &route.tool, arguments).await?;
        server.demand(tool, arguments)?;
        let shown = || Redacted::new(arguments.clone(), server.redactor.clone());
        let permit = self.permit(decision, &subject, tool, shown).await?;
        let connection = server.berth.connection().await?;
        let timeout = options.timeout.unwrap_or(server.config.timeout);
        let hard_timeout = options.hard_timeout;
        let call = Call { permit: &permit, tool: &route.tool, arguments, timeout, hard_timeout };
        let mut on_progress = options.on_progress;
        let first = on_progress.as_mut().map(|listener| &mut **listener as OnProgress<'_>);
        match call::send(&connection, &call, &self.scope.asker, first).await {
            // It certainly never reached the server, so it may go once more over a fresh connection.
            Err(error) if error.is_retryable() && !connection.is_open() => {
                let connection = server.berth.connection().await?;
                call::send(&connection, &call, &self.scope.asker, on_progress).await
            }
            ended => ended,
        }
    }

    async fn run_local(
        &self,
        function: &Arc<Function>,
        transaction: &Arc<Transaction>,
        arguments: &Json,
        options: CallOptions<'_>,
    ) -> Result<Json> {
        let tool = &function.tool.name;
        let caller = options.caller.as_ref().unwrap_or(&self.scope.caller);
        let subject = Subject::Local { set: &function.set, ask: function.ask };
        let decision = self.judge(caller, &subject, tool)?;
        self.check(&function.set, &function.tool, arguments).await?;
        let shown = || Redacted::new(arguments.clone(), Redactor::default());
        let permit = self.permit(decision, &subject, tool, shown).await?;
        let (progress, reports) = mpsc::channel(PROGRESS_WAITING);
        let context = Context {
            host: self.clone(),
            caller: permit.caller().clone(),
            set: function.set.clone(),
            transaction: Arc::clone(transaction),
            progress,
        };
        let times = Times {
            idle: options.timeout.or(function.timeout).unwrap_or(FOREVER),
            hard: options.hard_timeout.unwrap_or(FOREVER),
        };
        let running = function.run(arguments.clone(), context);
        let ended = watch(running, reports, options.on_progress, &times).await;
        let server = function.set.clone();
        ended.unwrap_or_else(|after| Err(Error::Timeout { server, after, stderr: StderrTail::default() }))
    }

    /// Makes the changes of a call that succeeded, with what is remembered of every outcome.
    fn commit(&self, transaction: &Transaction, reducers: &[Reducer], outcome: &Outcome) -> Result<()> {
        let change = || {
            reducers.iter().for_each(|reducer| reducer(transaction, outcome));
            self.scope.memory.commit(transaction)
        };
        match catch_unwind(AssertUnwindSafe(change)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(conflict)) => Err(Error::Conflict { reason: conflict.to_string() }),
            Err(_) => Err(Error::Internal("a change of the state panicked; nothing was changed".into())),
        }
    }

    async fn check(&self, server: &ServerName, tool: &Tool, arguments: &Json) -> Result<()> {
        let checked = self.core.validators.check(&tool.input_schema, arguments).await;
        checked.map_err(|misfit| misfit.into_error(server.clone(), tool.name.clone()))
    }

    /// The program itself needs nobody's leave; an agent is judged by its standing.
    fn judge(&self, caller: &CallerName, subject: &Subject<'_>, tool: &ToolName) -> Result<Decision> {
        let policy = &self.core.policy;
        match self.scope.standing(|standing| policy.judge_call(standing, subject, tool)) {
            Some(decision) => decision,
            None => policy.permit_subject(caller, subject, tool).map(Decision::Permit),
        }
    }

    /// A permit for a call, from whoever can give one.
    async fn permit(
        &self,
        decision: Decision,
        subject: &Subject<'_>,
        tool: &ToolName,
        arguments: impl FnOnce() -> Redacted,
    ) -> Result<CallPermit> {
        let again = || self.judge(&self.scope.caller, subject, tool);
        self.permit_after(decision, again, arguments).await
    }

    /// The same for what is no tool call.
    pub(super) async fn permit_use(&self, server: &Server, method: &'static str) -> Result<()> {
        let policy = &self.core.policy;
        let subject = Subject::Server { config: &server.config, identity: &server.identity };
        let method = ToolName::parse(method).map_err(|e| Error::Internal(e.to_string()))?;
        let judge = || self.scope.standing(|standing| policy.judge_use(standing, &subject, &method));
        let Some(decision) = judge() else { return Ok(()) };
        let again = || judge().unwrap_or_else(|| Err(Error::Internal("the agent is gone".into())));
        let arguments = || Redacted::new(Json::empty_object(), Redactor::default());
        self.permit_after(decision?, again, arguments).await.map(drop)
    }

    /// Asks if somebody must be asked. One answer serves everyone who waits for it.
    async fn permit_after(
        &self,
        decision: Decision,
        again: impl FnOnce() -> Result<Decision>,
        arguments: impl FnOnce() -> Redacted,
    ) -> Result<CallPermit> {
        let agent = match (decision, &self.scope.agent) {
            (Decision::Permit(permit), _) => return Ok(permit),
            (Decision::Ask(wanted), None) => return Err(wanted.refused()),
            (Decision::Ask(_), Some(agent)) => agent,
        };
        let _one_at_a_time = agent.asking.lock().await;
        let wanted = match again()? {
            Decision::Permit(permit) => return Ok(permit),
            Decision::Ask(wanted) => wanted,
        };
        let (identity, server, tool) =
            (wanted.identity().clone(), wanted.server().clone(), wanted.tool().clone());
        let (permit, reach) = ask::consent(&self.scope.asker, wanted, arguments()).await;
        if let (Ok(_), Some(reach)) = (&permit, reach) {
            agent.remember(|grants| grants.with(&identity, &tool, reach));
        }
        self.core.events.publish(|| Event::Consent {
            caller: self.scope.caller.clone(),
            server,
            tool,
            allowed: permit.is_ok(),
        });
        permit
    }

    /// Why a tool that is there is not shown here, if permission is the reason.
    pub(super) fn why_hidden(&self, find: impl FnOnce(&Snapshot) -> Option<Route>) -> Result<()> {
        let Some(agent) = &self.scope.agent else { return Ok(()) };
        let Some(route) = find(&agent.shared.registry.snapshot()) else { return Ok(()) };
        match self.scope.target(&route)? {
            Target::Server(server) => {
                let subject = Subject::Server { config: &server.config, identity: &server.identity };
                self.judge(&self.scope.caller, &subject, &route.tool.name).map(drop)
            }
            Target::Function(function) => {
                let subject = Subject::Local { set: &function.set, ask: function.ask };
                self.judge(&self.scope.caller, &subject, &route.tool.name).map(drop)
            }
        }
    }

    fn tell(&self, caller: CallerName, route: &Route, arguments: &Json, outcome: &Outcome) {
        self.core.events.publish(|| {
            let redactor = match self.scope.target(route) {
                Ok(Target::Server(server)) => server.redactor.clone(),
                _ => Redactor::default(),
            };
            let arguments = Redacted::new(arguments.clone(), redactor.clone());
            let (server, tool) = (route.server.clone(), route.tool.name.clone());
            let mut told = Invocation::of(caller, server, tool, arguments);
            told.local = route.source == Source::Local;
            told.result = Redacted::new(outcome.raw.clone(), redactor);
            told.success = outcome.success;
            told.error = outcome.error.as_ref().map(Error::kind);
            told.took = outcome.took;
            Event::ToolInvoked(Arc::new(told))
        });
    }
}

/// How long a local tool may take: without a sign of life, and at all.
struct Times {
    idle: Duration,
    hard: Duration,
}

/// Waits for a local tool. Its reports of progress keep it alive; at the end of its time it is dropped.
async fn watch<T>(
    running: impl Future<Output = T>,
    mut reports: mpsc::Receiver<Progress>,
    mut on_progress: Option<OnProgress<'_>>,
    times: &Times,
) -> Result<T, Duration> {
    tokio::pin!(running);
    let hard = tokio::time::sleep(times.hard);
    let idle = tokio::time::sleep(times.idle);
    tokio::pin!(hard, idle);
    loop {
        tokio::select! {
            biased;
            Some(report) = reports.recv() => {
                idle.as_mut().reset(Instant::now() + times.idle);
                if let Some(listener) = &mut on_progress {
                    listener(report);
                }
            }
            ended = &mut running => {
                while let (Ok(report), Some(listener)) = (reports.try_recv(), &mut on_progress) {
                    listener(report);
                }
                return Ok(ended);
            }
            () = &mut hard => return Err(times.hard),
            () = &mut idle => return Err(times.idle),
        }
    }
}
