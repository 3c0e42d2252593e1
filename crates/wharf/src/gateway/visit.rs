//! One request of a caller, on its way through: what it says beside the matter itself, and the way back.

use std::sync::{Arc, OnceLock};

use super::line::Line;
use super::mirrored::Mirrored;
use super::seal;
use super::trace::{self, Carried, Trip};
use crate::ask::Asker;
use crate::call::{OnLog, Relayed};
use crate::connect::Told;
use crate::host::Session;
use crate::mcp::trace::TraceParent;
use crate::mcp::{LogLevel, extension, meta, method};
use crate::names::{ServerName, ToolName};
use crate::wire::{Json, Members, Place, RpcError, Sorted};

/// A request on its way through.
#[derive(Debug)]
pub(super) struct Visit<'a> {
    pub(super) line: &'a Line,
    /// Whether the caller hears of progress, or may want to when it comes back with an answer.
    pub(super) reports: bool,
    pub(super) relayed: Arc<Relayed>,
    /// Where traces are made of it.
    pub(super) trip: Option<Arc<Trip>>,
    /// Headers that repeat its arguments, if they are still to be compared with them.
    pub(super) mirrored: Option<&'a Mirrored>,
    /// What it is for, and its arguments.
    pub(super) name: Option<Json>,
    pub(super) arguments: Option<Json>,
    /// Whether what is structured must be an object.
    pub(super) objects: bool,
    /// The server whose state it brings.
    bound: Option<ServerName>,
}

/// Where everything is in the parameters of a request: looked for once.
#[derive(Debug, Default)]
pub(super) struct Aside {
    pub(super) version: Option<Place>,
    pub(super) capabilities: Option<Place>,
    pub(super) log_level: Option<Place>,
    token: Option<Place>,
    /// What it is for.
    pub(super) name: Option<Place>,
    pub(super) uri: Option<Place>,
    arguments: Option<Place>,
    /// What few requests have.
    rare: Option<Box<Rare>>,
    /// Whether the parameters have members that nobody here knows.
    has_more: bool,
}

/// What a caller said last in `_meta`, and where everything was in it: nearly every request of a caller says the same.
#[derive(Debug, Default)]
pub(super) struct Habit(Option<(Vec<u8>, Sorted<10>)>);

#[derive(Debug, Default)]
struct Rare {
    /// The members of a trace.
    trace: [Option<Place>; 3],
    /// `_meta` as a whole, where it has members that go on to the server.
    meta: Option<Place>,
    responses: Option<Place>,
    state: Option<Place>,
}

/// What a caller says beside the matter itself.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// The token under which it wants to hear of progress.
    pub(super) token: Option<Json>,
    /// Its capabilities, where they come with every request.
    pub(super) capabilities: Option<Json>,
    /// From which level on it wants the log, where that comes with every request.
    pub(super) log_level: Option<Json>,
    /// Members of `_meta` that go on to the server.
    pub(super) meta: Members,
    /// The trace that it is part of.
    pub(super) trace: Option<TraceParent>,
    /// What becomes one.
    pub(super) trip: Option<Arc<Trip>>,
    /// Answers to what was asked before.
    pub(super) responses: Option<Json>,
    /// What came with those questions.
    pub(super) state: Option<Json>,
    /// Whose state that is.
    pub(super) bound: Option<ServerName>,
    /// Members of the parameters that nobody here knows.
    more: Members,
    /// Headers that go on to a server.
    pub(super) headers: Vec<(String, String)>,
    /// What it is for, and its arguments.
    name: Option<Json>,
    arguments: Option<Json>,
}

/// Members of the parameters that have a meaning here, or on one side only.
const KNOWN: [&str; 7] = ["name", "uri", "arguments", "_meta", "inputResponses", "requestState", "task"];
/// Keys of `_meta` that are between two neighbours.
const BETWEEN_NEIGHBOURS: [&str; 7] = [
    meta::PROGRESS_TOKEN,
    meta::PROTOCOL_VERSION,
    meta::CLIENT_CAPABILITIES,
    meta::LOG_LEVEL,
    meta::CLIENT_INFO,
    meta::SERVER_INFO,
    meta::SUBSCRIPTION_ID,
];

/// What is longer than this in `_meta` is not kept.
const HABIT: usize = 2048;

// === impl Habit ===

impl Habit {
    /// Where everything is in the `_meta` that lies there.
    fn sort_out(&mut self, params: &Json, place: &Place) -> Sorted<10> {
        let text = &params.bytes()[place.clone()];
        if let Some((known, sorted)) = &self.0
            && known == text
        {
            return sorted.beginning_at(place.start);
        }
        let [a, b, c, d, e, f, g] = BETWEEN_NEIGHBOURS;
        let [h, i, j] = trace::KEYS;
        let sorted = params.sort_out_at(place, [a, b, c, d, e, f, g, h, i, j]);
        let moved = sorted.beginning_at(place.start);
        self.0 = (text.len() <= HABIT).then(|| (text.to_vec(), sorted));
        moved
    }
}

// === impl Aside ===

impl Aside {
    pub(super) fn of(params: Option<&Json>, habit: &mut Habit) -> Self {
        let Some(params) = params else { return Self::default() };
        let sorted = params.sort_out(KNOWN);
        let [name, uri, arguments, told, responses, state, _] = sorted.found;
        let mut aside = Self { name, uri, arguments, has_more: sorted.others, ..Self::default() };
        if responses.is_some() || state.is_some() {
            aside.rare = Some(Box::new(Rare { responses, state, ..Rare::default() }));
        }
        let Some(told) = told else { return aside };
        let sorted = habit.sort_out(params, &told);
        let [token, version, capabilities, log_level, _, _, _, parent, under, baggage] = sorted.found;
        let trace = [parent, under, baggage];
        if sorted.others || trace.iter().any(Option::is_some) {
            let rare = aside.rare.get_or_insert_default();
            (rare.trace, rare.meta) = (trace, Some(told));
        }
        Self { version, capabilities, log_level, token, ..aside }
    }
}

// === impl Said ===

impl Said {
    /// Of parameters, what they say beside the matter, and what their head does.
    pub(super) fn of(params: Option<&Json>, aside: &Aside, carried: Option<&Carried>) -> Self {
        let part = |place: &Option<Place>| Some(params?.at(place.as_ref()?));
        let mut more = Members::default();
        if let Some(params) = params.filter(|_| aside.has_more) {
            more.append_without(params, &KNOWN);
        }
        let rare = aside.rare.as_deref();
        let (meta, trace) = match (rare.and_then(|rare| part(&rare.meta)), carried) {
            (None, None) => (Members::default(), None),
            (told, carried) => {
                let told = told.unwrap_or_else(Json::empty_object);
                let trace = rare.map(|rare| rare.trace.each_ref().map(part)).unwrap_or_default();
                trace::passed_on(&told, &BETWEEN_NEIGHBOURS, trace, carried)
            }
        };
        Self {
            token: part(&aside.token),
            capabilities: part(&aside.capabilities),
            log_level: part(&aside.log_level),
            meta,
            trace,
            trip: None,
            responses: rare.and_then(|rare| part(&rare.responses)),
            state: rare.and_then(|rare| part(&rare.state)),
            bound: None,
            more,
            headers: Vec::new(),
            name: part(&aside.name),
            arguments: part(&aside.arguments),
        }
    }

    /// The log level, if it is one.
    pub(super) fn level(&self) -> Option<LogLevel> {
        LogLevel::parse(&self.log_level.as_ref()?.text()?)
    }
}

// === impl Visit ===

impl<'a> Visit<'a> {
    /// Of a modern caller: it answers questions with requests of its own.
    pub(super) fn modern(said: Said, line: &'a Line, asker: Arc<dyn Asker>) -> Self {
        let level = said.level();
        let is_asked = said.capabilities.as_ref().is_some_and(|all| *all != Json::empty_object());
        let reports = said.token.is_some() || is_asked;
        line.report_as(said.token);
        let on_log = level.map(|level| on_log(line, Some(level)));
        let (trace, trip) = (said.trace, said.trip);
        let told =
            Told { capabilities: said.capabilities, log_level: said.log_level, meta: said.meta, trace };
        let Said { responses, state, bound, more, headers, name, arguments, .. } = said;
        let (returns_questions, alone) = (true, true);
        let asking = OnceLock::new();
        let relayed = Relayed {
            told,
            asker,
            on_log,
            responses,
            state,
            more,
            headers,
            returns_questions,
            alone,
            asking,
        };
        let (relayed, mirrored, objects) = (Arc::new(relayed), None, false);
        Self { line, reports, relayed, trip, mirrored, name, arguments, objects, bound }
    }

    /// Of a legacy caller: it is asked by requests, and said once what it can and from which level on it wants the log.
    pub(super) fn legacy(said: Said, line: &'a Line, asker: Arc<dyn Asker>, level: Option<LogLevel>) -> Self {
        let reports = said.token.is_some();
        line.report_as(said.token);
        let log_level = level.map(|level| Json::of(level.as_str()));
        let (trace, trip) = (said.trace, said.trip);
        let told = Told { capabilities: Some(asker.capabilities()), log_level, meta: said.meta, trace };
        let on_log = Some(on_log(line, level));
        let (responses, state, more, headers) = (None, None, said.more, Vec::new());
        let (name, arguments) = (said.name, said.arguments);
        let (returns_questions, alone) = (false, false);
        let asking = OnceLock::new();
        let relayed = Relayed {
            told,
            asker,
            on_log,
            responses,
            state,
            more,
            headers,
            returns_questions,
            alone,
            asking,
        };
        let (relayed, mirrored, objects, bound) = (Arc::new(relayed), None, true, None);
        Self { line, reports, relayed, trip, mirrored, name, arguments, objects, bound }
    }

    /// Whether it brings what one server gave.
    pub(super) fn is_bound(&self) -> bool {
        self.bound.is_some()
    }

    /// Says to which server it goes. What one server wants back is not taken to another.
    pub(super) fn goes_to(
        &self,
        scope: &Session,
        server: &ServerName,
        tool: Option<&ToolName>,
    ) -> Result<(), RpcError> {
        self.line.is_for(scope, server, tool);
        match &self.bound {
            Some(bound) if bound != server => Err(seal::refused()),
            _ => Ok(()),
        }
    }
}

fn on_log(line: &Line, from: Option<LogLevel>) -> OnLog {
    let line = line.clone();
    Arc::new(move |params| line.log(from, params))
}

/// What of a caller's capabilities can be relayed to a modern server: what it says that it answers, and nothing that
/// only its own era has.
pub(super) fn for_modern(capabilities: &Json) -> Json {
    relayable(capabilities, |_| Json::empty_object())
}

/// The same for a legacy server. Only a legacy caller can tell that its roots have changed.
pub(super) fn for_legacy(capabilities: &Json) -> Json {
    relayable(capabilities, Json::clone)
}

/// Only the extensions that a caller knows.
pub(super) fn extensions(capabilities: Option<&Json>) -> Json {
    let mut all = Members::new();
    if let Some(extensions) = capabilities.and_then(|c| c.member("extensions")).filter(Json::is_object) {
        all.json("extensions", &extensions);
    }
    all.to_json()
}

/// The same capabilities without tasks: a caller of the legacy era could not ask for them.
pub(super) fn without_tasks(capabilities: Json) -> Json {
    if !extension::is_in(&capabilities, extension::TASKS) {
        return capabilities;
    }
    let (mut all, mut rest) = (Members::default(), Members::default());
    all.append_without(&capabilities, &["extensions"]);
    if let Some(extensions) = capabilities.member("extensions") {
        rest.append_without(&extensions, &[extension::TASKS]);
        all.object("extensions", &rest);
    }
    all.to_json()
}

fn relayable(capabilities: &Json, roots: impl Fn(&Json) -> Json) -> Json {
    if *capabilities == Json::empty_object() {
        return Json::empty_object();
    }
    let picked = capabilities.pick(["elicitation", "sampling", "roots", "experimental", "extensions"]);
    let [elicitation, sampling, folders, experimental, extensions] =
        picked.map(|value| value.filter(Json::is_object));
    let mut all = Members::new();
    for (key, value) in [("elicitation", elicitation), ("sampling", sampling)] {
        if let Some(value) = value {
            all.json(key, &value);
        }
    }
    if let Some(folders) = folders {
        all.json("roots", &roots(&folders));
    }
    for (key, value) in [("experimental", experimental), ("extensions", extensions)] {
        if let Some(value) = value {
            all.json(key, &value);
        }
    }
    all.to_json()
}

/// Whether a caller said that it answers this kind of question. Nobody is asked what they did not offer.
pub(super) fn offers(capabilities: &Json, name: &str, params: Option<&Json>) -> bool {
    let has = |key: &str| capabilities.member(key).filter(Json::is_object);
    match name {
        method::ROOTS_LIST => has("roots").is_some(),
        method::SAMPLING => has("sampling").is_some_and(|sampling| {
            let wants_tools =
                params.is_some_and(|p| p.pick(["tools", "toolChoice"]).iter().any(Option::is_some));
            !wants_tools || sampling.member("tools").is_some()
        }),
        method::ELICIT => has("elicitation").is_some_and(|modes| {
            let mode = params.and_then(|p| p.member("mode")).and_then(|mode| mode.to::<String>().ok());
            match mode.as_deref().unwrap_or("form") {
                // Before there were modes, to elicit was to ask for a form.
                "form" => modes.member("form").is_some() || Members::of(&modes).is_empty(),
                mode => modes.member(mode).is_some(),
            }
        }),
        _ => false,
    }
}
