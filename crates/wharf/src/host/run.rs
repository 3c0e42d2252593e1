//! The way of a call, one line a room.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::again::Trip;
use super::confirmed::Judged;
use super::context::{Context, Report};
use super::local::Function;
use super::patience::Patience;
use super::scope::{Reducer, Target, gone};
use super::server::Server;
use super::trace::Errand;
use super::{CallOptions, Host};
use crate::call::{Call, HARD_FACTOR, Misfit, OnProgress};
use crate::error::{Error, Light, Result, StderrTail};
use crate::event::{Event, Exchange, Invocation, Redacted};
use crate::mcp::{Tool, method};
use crate::names::{CallerName, ServerName, ToolName};
use crate::outcome::Outcome;
use crate::policy::{Decision, Policy, ScanRule, Subject, Tainted};
use crate::registry::{Route, Snapshot, Source};
use crate::session::Transaction;
use crate::wire::Json;

/// How many reports of progress may wait for a slow listener.
const PROGRESS_WAITING: usize = 64;
/// A timeout that nobody reaches.
const FOREVER: Duration = Duration::from_secs(60 * 60 * 24 * 365);

impl Host {
    /// Calls a tool. What is remembered is as it was unless the call succeeds.
    pub(super) async fn run(&self, route: &Route, arguments: &Json, mut options: CallOptions<'_>) -> Outcome {
        let started = Instant::now();
        let counted = self.core.meter.begin(&route.tally, (&route.server, &route.tool.name), started);
        let mut errand = Errand { route, arguments, started, rule: None, entry: None };
        let reducers = self.scope.reducers.get();
        let transact = route.source == Source::Local || reducers.is_some();
        let transaction = transact.then(|| Arc::new(self.scope.memory.begin()));
        let target = self.scope.target(route);
        let ended = match (&target, &transaction) {
            (Ok(Target::Server(server)), _) => self.run_remote(server, &mut errand, &mut options).await,
            (Ok(Target::Function(function)), Some(transaction)) => {
                self.run_local(function, transaction, &mut errand, &mut options).await
            }
            (Ok(Target::Function(_)), None) => {
                Err(Error::Internal("a local tool needs a transaction".into()).into())
            }
            (Err(error), _) => Err(error.clone().into()),
        };
        let (server, tool) = (route.server.clone(), route.tool.name.clone());
        let mut outcome = match ended {
            Ok(raw) if options.relayed.as_ref().is_some_and(|relayed| relayed.returns(&raw)) => {
                Outcome::unfinished(server, tool, raw)
            }
            Ok(raw) => Outcome::from_result(server, tool, raw),
            Err(error) if options.relayed.as_ref().is_some_and(|relayed| relayed.goes_on()) => {
                Outcome::from_error(server, tool, error.once_begun(method::TOOLS_CALL))
            }
            Err(error) => Outcome::from_error(server, tool, *error),
        };
        if let (true, Some(transaction)) = (outcome.success, transaction)
            && let Err(error) =
                self.commit(&transaction, reducers.as_deref().map_or(&[], Vec::as_slice), &outcome)
        {
            let (server, tool) = (route.server.clone(), route.tool.name.clone());
            outcome = Outcome { raw: outcome.raw, ..Outcome::from_error(server, tool, error) };
        }
        // What a tool says of its failure becomes an error's words, where no secret may stand.
        if let (Ok(Target::Server(server)), Some(reason)) = (&target, &mut outcome.reason) {
            if let Cow::Owned(clean) = server.redactor.redact(reason) {
                *reason = clean;
            }
            if outcome.error.is_none() {
                self.scope.advise(server, reason);
            }
        }
        let outcome = outcome.after(started.elapsed());
        if outcome.error.is_none() {
            counted.carried(arguments.bytes().len(), outcome.raw.bytes().len());
        }
        counted.end(outcome.success, outcome.error.as_deref(), outcome.took);
        let (caller, target) = (self.caller(&options), target.as_ref().ok());
        self.on_record((caller, target), errand, &outcome).await;
        self.tell((caller, target), route, arguments, &outcome);
        outcome
    }

    /// Who calls: an agent is always itself; the program may speak for others.
    pub(super) fn caller<'a>(&'a self, options: &'a CallOptions<'_>) -> &'a CallerName {
        match (&self.scope.agent, &options.caller) {
            (None, Some(caller)) => caller,
            _ => &self.scope.caller,
        }
    }

    async fn run_remote(
        &self,
        server: &Arc<Server>,
        errand: &mut Errand<'_>,
        options: &mut CallOptions<'_>,
    ) -> Light<Json> {
        let (route, arguments) = (errand.route, errand.arguments);
        let _on_duty = server.duty().enter().ok_or_else(|| gone(route))?;
        let tool = &route.tool.name;
        let on_progress = options.on_progress.take();
        let caller = self.caller(options);
        // One look for all that is asked of it, until somebody has to be waited for.
        let (mut policy, mut times) = self.core.policy.look();
        let mut locked = policy.is_locked(&server.config.name);
        let mut decision = self.judge_by(&policy, caller, &server.subject(&route.tool), tool)?;
        server.admits()?;
        let shown = || Redacted::new(arguments.clone(), server.redactor.clone());
        let timeout = options.timeout.unwrap_or(server.config.timeout);
        let mut patience = Patience::new(errand.started, options.hard_timeout, timeout);
        let live = self.confirmed((server, &patience), route, locked).await?;
        let definition = live.as_ref().unwrap_or(&route.tool);
        let subject = server.subject(definition);
        if !Arc::ptr_eq(definition, &route.tool) {
            // What was judged may be another definition than the one that will be called.
            decision = self.judge(caller, &subject, tool)?;
        }
        self.check(server, definition, arguments).await.map_err(|error| about(error, shown))?;
        let relayed = options.relayed.as_ref();
        let again = || self.judge(&self.scope.caller, &subject, tool);
        let spent = live.as_ref().map_or(Duration::ZERO, |_| patience.spent());
        let (permit, rule) =
            self.permit(decision, again, shown, relayed.map(|relayed| &relayed.asker)).await?;
        // A server that was waited for is not silent yet; only the limit of the whole runs from the beginning.
        let mut since = (live.is_none() && rule.is_none()).then_some(errand.started);
        if rule.is_some() {
            // While a person is asked no time runs at all.
            patience.had_spent(spent);
            (policy, times) = self.core.policy.look();
            locked = policy.is_locked(&server.config.name);
        }
        errand.rule = rule;
        if self.trail().is_kept() {
            self.begin(caller, errand, shown).await?;
        }
        let mut way =
            match self.scope.short_way(server, route.owner.is_some(), relayed.map(|relayed| &**relayed)) {
                Some(way) => way,
                None => {
                    since = None;
                    let way = self.scope.way(server, relayed.map(|relayed| &**relayed));
                    patience.wait(server, way).boxed().await?
                }
            };
        let mut newer = None;
        let judged = Judged { caller, route, arguments };
        if server.is_unconfirmed(locked) || (locked && way.is_unseen(server)) {
            // It is another connection than the one that was looked at: an answer may take its time.
            since = None;
            newer = self.confirmed_over((server, &way, &patience), judged).boxed().await?;
        }
        let definition = newer.as_ref().unwrap_or(definition);
        let asker = relayed.map_or(&self.scope.asker, |relayed| &relayed.asker);
        let hard_timeout = match since {
            Some(_) => options.hard_timeout,
            None => Some(patience.rest(server)?),
        };
        let (permit, tool, private, usual) = (&permit, definition, way.private, server.config.timeout);
        let call = Call { permit, tool, arguments, timeout, hard_timeout, usual, since, relayed, private };
        self.taint(&policy, &server.config.name, &definition.name);
        let scans = policy.scan_results() != ScanRule::Off;
        drop(policy);
        let trip = Trip { server, way: &mut way, patience: &patience, judged };
        let raw = self.send(trip, &call, asker, on_progress).await?;
        if tool.output_schema.is_some() {
            self.check_output(server, tool, &raw).boxed().await?;
        }
        // By what holds now, which mostly is what held before.
        match scans || !self.core.policy.is_as_of(times) {
            true => Ok(server.scanned_result(tool.name.as_str(), raw).map_err(Error::of_a_result)?),
            false => Ok(raw),
        }
    }

    /// A structured result that is not what its server said it would be is no result. A schema that cannot be used
    /// promises nothing.
    async fn check_output(&self, server: &Server, tool: &Tool, raw: &Json) -> Result<()> {
        let Some(schema) = &tool.output_schema else { return Ok(()) };
        let [structured, is_error] = raw.pick(["structuredContent", "isError"]);
        let Some(structured) = structured.filter(|value| !value.is_null()) else { return Ok(()) };
        if is_error.is_some_and(|flag| flag.as_str() == "true") {
            return Ok(());
        }
        match self.core.validators.check_result(schema, &structured).await {
            Err(Misfit::Arguments { problems }) => {
                let problems = problems.join("; ");
                let problems = server.redactor.redact(&problems);
                Err(Error::Protocol {
                    server: server.config.name.clone(),
                    reason: format!(
                        "the structured result of `{}` does not fit its `outputSchema`: {problems}",
                        tool.name
                    ),
                    sent: true,
                    stderr: StderrTail::default(),
                })
            }
            _ => Ok(()),
        }
    }

    async fn run_local(
        &self,
        function: &Arc<Function>,
        transaction: &Arc<Transaction>,
        errand: &mut Errand<'_>,
        options: &mut CallOptions<'_>,
    ) -> Light<Json> {
        let arguments = errand.arguments;
        let tool = &function.tool.name;
        let caller = self.caller(options);
        let subject = Subject::Local { set: &function.set, ask: function.ask };
        let decision = self.judge(caller, &subject, tool)?;
        let shown = || Redacted::new(arguments.clone(), self.scope.redactor());
        let checked = self.check_for(&function.set, &function.tool, arguments).await;
        checked.map_err(|error| about(error, shown))?;
        let again = || self.judge(&self.scope.caller, &subject, tool);
        let asker = options.relayed.as_ref().map(|relayed| &relayed.asker);
        let (permit, rule) = self.permit(decision, again, shown, asker).await?;
        errand.rule = rule;
        self.begin(caller, errand, shown).await?;
        let (progress, reports) = mpsc::channel(PROGRESS_WAITING);
        let context = Context {
            host: self.clone(),
            caller: permit.caller().clone(),
            set: function.set.clone(),
            transaction: Arc::clone(transaction),
            reports: progress,
            asking: Arc::default(),
        };
        let idle = options.timeout.or(function.timeout).unwrap_or(FOREVER).min(FOREVER);
        let hard = options.hard_timeout.unwrap_or(idle.saturating_mul(HARD_FACTOR)).min(FOREVER);
        let times = Times { idle, hard, asking: Arc::clone(&context.asking) };
        self.core.policy.with(|policy| self.taint(policy, &function.set, tool));
        let running = function.run(arguments.clone(), context);
        let ended = watch(running, reports, options.on_progress.take(), &times).await;
        let server = function.set.clone();
        let ended = ended.unwrap_or_else(|after| {
            Err(Error::Timeout { server, after, sent: true, stderr: StderrTail::default() })
        });
        ended.map_err(|error| about(error.into(), shown))
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

    /// Whether arguments are what a tool wants, and what the program demands of them.
    pub(super) async fn check(&self, server: &Server, tool: &Tool, arguments: &Json) -> Light<()> {
        self.check_for(&server.config.name, tool, arguments).await?;
        Ok(server.demand(&tool.name, arguments)?)
    }

    async fn check_for(&self, server: &ServerName, tool: &Tool, arguments: &Json) -> Light<()> {
        let (validators, schema) = (&self.core.validators, &tool.input_schema);
        if validators.fit(schema, arguments) {
            return Ok(());
        }
        // Put aside: most calls do not come this way, and should not be larger for it.
        let checked = validators.check(schema, arguments).boxed().await;
        Ok(checked.map_err(|misfit| misfit.into_error(server.clone(), tool.name.clone()))?)
    }

    /// The program itself needs nobody's leave; an agent is judged by its standing.
    pub(super) fn judge<'a>(
        &'a self,
        caller: &'a CallerName,
        subject: &Subject<'a>,
        tool: &'a ToolName,
    ) -> Light<Decision<'a>> {
        self.core.policy.with(|policy| self.judge_by(policy, caller, subject, tool))
    }

    fn judge_by<'a>(
        &'a self,
        policy: &Policy,
        caller: &'a CallerName,
        subject: &Subject<'a>,
        tool: &'a ToolName,
    ) -> Light<Decision<'a>> {
        match self.scope.standing(|standing| policy.judge_call(standing, subject, tool)) {
            Some(decision) => Ok(decision?),
            None => Ok(policy.judge_program(caller, subject, tool, self.scope.taint.get())?),
        }
    }

    /// Marks this scope, if what is called now is private. Before it is sent: no answer of it can come before the mark.
    fn taint(&self, policy: &Policy, server: &ServerName, tool: &ToolName) {
        if policy.taints(server, Some(tool)) {
            self.scope.taint.set(|| Tainted { server: server.clone(), tool: tool.clone() });
        }
    }

    /// Why a tool that is there is not shown here, if permission is the reason.
    pub(super) fn why_hidden(&self, find: impl FnOnce(&Snapshot) -> Option<Route>) -> Result<()> {
        let Some(agent) = &self.scope.agent else { return Ok(()) };
        self.scope.open()?;
        if agent.permission.is_none() {
            // Whether the tool is there is not its business.
            let policy = self.core.policy.now();
            return self.scope.standing(|standing| policy.admit(standing, None)).unwrap_or(Ok(()));
        }
        let given =
            |route: &Route| self.scope.gives(|rules| rules.gives_tool(&route.server, &route.tool.name));
        let Some(route) = find(&agent.shared.registry.snapshot()).filter(given) else { return Ok(()) };
        match self.scope.target(&route)? {
            Target::Server(server) => {
                let subject = server.subject(&route.tool);
                self.judge(&self.scope.caller, &subject, &route.tool.name).map(drop).map_err(|error| *error)
            }
            Target::Function(function) => {
                let subject = Subject::Local { set: &function.set, ask: function.ask };
                self.judge(&self.scope.caller, &subject, &route.tool.name).map(drop).map_err(|error| *error)
            }
        }
    }

    fn tell(
        &self,
        (caller, target): (&CallerName, Option<&Target>),
        route: &Route,
        arguments: &Json,
        outcome: &Outcome,
    ) {
        if let Some(error) = &outcome.error {
            self.tell_refused(caller, outcome, error);
        }
        self.core.events.publish_call(|| {
            let redactor = match target {
                Some(Target::Server(server)) => server.redactor.clone(),
                // A function may pass on what any server said.
                _ => self.scope.redactor(),
            };
            Event::ToolInvoked(Arc::new(Invocation {
                caller: caller.clone(),
                server: route.server.clone(),
                tool: route.tool.name.clone(),
                local: route.source == Source::Local,
                success: outcome.success,
                error: outcome.error.as_deref().map(Error::kind),
                took: outcome.took,
                exchange: Exchange::new(arguments, &outcome.raw, redactor),
            }))
        });
    }
}

/// What is wrong with arguments, without what is secret in them.
pub(super) fn about(mut error: Box<Error>, arguments: impl FnOnce() -> Redacted) -> Box<Error> {
    if let Error::Arguments { problems, .. } = &mut *error {
        let arguments = arguments();
        problems.iter_mut().for_each(|problem| *problem = arguments.redact(problem));
    }
    error
}

/// How long a local tool may take: without a sign of life, and at all. While it asks somebody it is alive.
struct Times {
    idle: Duration,
    hard: Duration,
    asking: Arc<AtomicUsize>,
}

/// Waits for a local tool. Its reports of progress keep it alive; at the end of its time it is dropped.
async fn watch<T>(
    running: impl Future<Output = T>,
    mut reports: mpsc::Receiver<Report>,
    mut on_progress: Option<OnProgress<'_>>,
    times: &Times,
) -> Result<T, Duration> {
    let mut tell = |report: Report| {
        if let (Some(listener), Report::Progress(progress)) = (&mut on_progress, report) {
            listener(progress);
        }
    };
    tokio::pin!(running);
    let hard = tokio::time::sleep(times.hard);
    let idle = tokio::time::sleep(times.idle);
    tokio::pin!(hard, idle);
    loop {
        // The limit and the end come before the reports: a flood of them keeps neither from being seen.
        tokio::select! {
            biased;
            () = &mut hard => return Err(times.hard),
            ended = &mut running => {
                (0..PROGRESS_WAITING).map_while(|_| reports.try_recv().ok()).for_each(tell);
                return Ok(ended);
            }
            Some(report) = reports.recv() => {
                idle.as_mut().reset(Instant::now() + times.idle);
                tell(report);
            }
            () = &mut idle => {
                if times.asking.load(Ordering::Relaxed) == 0 {
                    return Err(times.idle);
                }
                idle.as_mut().reset(Instant::now() + times.idle);
            }
        }
    }
}
