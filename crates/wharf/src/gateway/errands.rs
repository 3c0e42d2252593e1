//! What callers ask of prompts and resources, passed on to the server that has them.
//!
//! In: parameters as the caller wrote them. Out: the server's answer as it wrote it. Only names and addresses that are
//! other here than there are translated, both ways.

use std::sync::Arc;

use serde_json::json;

use super::addresses;
use super::capabilities;
use super::desk::{Desk, invalid, told, unknown};
use super::lists::renamed;
use super::offers::{Kind, Place};
use super::visit::Visit;
use crate::catalog::Part;
use crate::connect::Progress;
use crate::error::Error;
use crate::host::{CallOptions, Session};
use crate::mcp::{code, method};
use crate::names::ServerName;
use crate::wire::{Json, Members, RpcError};

/// Members of the parameters that are not passed on as they are: what names the thing, and what is between neighbours.
const OWN: [&str; 6] = ["name", "uri", "ref", "_meta", "inputResponses", "requestState"];

// === impl Desk ===

impl Desk {
    /// Answers what is about prompts, resources, templates and completion.
    pub(super) async fn offered(
        &self,
        scope: &Session,
        method: &str,
        params: Option<&Json>,
        visit: &Visit<'_>,
    ) -> Result<Json, RpcError> {
        let listed = match method {
            method::PROMPTS_LIST => Some(Kind::Prompts),
            method::RESOURCES_LIST => Some(Kind::Resources),
            method::TEMPLATES_LIST => Some(Kind::Templates),
            _ => None,
        };
        if let Some(kind) = listed {
            // A server that nobody has seen is waited for once, not for each of the two.
            let page = self.offers.page(scope, kind, params);
            let (required, page) = futures_util::join!(self.require(scope, method), page);
            return required.and(page);
        }
        self.require(scope, method).await?;
        match method {
            method::PROMPTS_GET => self.prompt(scope, params, visit).await,
            method::RESOURCES_READ => self.read(scope, params, visit).await,
            method::COMPLETE => self.complete(scope, params, visit).await,
            method::TASKS_GET | method::TASKS_UPDATE | method::TASKS_CANCEL => {
                self.task(scope, method, params, visit).await
            }
            _ => Err(unknown(method)),
        }
    }

    /// What nobody behind the gateway has is no method here.
    pub(super) async fn require(&self, scope: &Session, method: &str) -> Result<(), RpcError> {
        let declared = self.capabilities.of(scope).await;
        capabilities::has(declared, method).then_some(()).ok_or_else(|| unknown(method))
    }

    async fn prompt(
        &self,
        scope: &Session,
        params: Option<&Json>,
        visit: &Visit<'_>,
    ) -> Result<Json, RpcError> {
        let (params, name) = named(params, "name")?;
        let place = self.place_of_prompt(scope, &name).await?;
        let mut passed = passed(&params);
        passed.text("name", &place.own);
        let what = (Part::Prompts, method::PROMPTS_GET, Some(&*place.own));
        let got = forward(self, scope, &place.server, what, (&passed, visit)).await?;
        let got =
            got.map_err(|error| if is_hidden(&error) { invalid("unknown prompt") } else { told(error) })?;
        Ok(self.led_back(scope, &place.server, got).await)
    }

    /// Where the name of a prompt leads. What may be new since an earlier run is looked for.
    async fn place_of_prompt(&self, scope: &Session, name: &str) -> Result<Place, RpcError> {
        let mut place = self.offers.prompt(scope, name).await;
        if place.is_none() && scope.look_for_prompt(name).await {
            self.offers.changed();
            place = self.offers.prompt(scope, name).await;
        }
        let missing = || scope.unreached_prompt(name).map_or_else(|| invalid("unknown prompt"), told);
        place.ok_or_else(missing)
    }

    async fn read(
        &self,
        scope: &Session,
        params: Option<&Json>,
        visit: &Visit<'_>,
    ) -> Result<Json, RpcError> {
        let (params, uri) = named(params, "uri")?;
        let place = self.offers.resource(scope, &uri).await.ok_or_else(|| not_found(&uri))?;
        let mut passed = passed(&params);
        passed.text("uri", &place.own);
        let what = (Part::Resources, method::RESOURCES_READ, Some(&*place.own));
        let read = forward(self, scope, &place.server, what, (&passed, visit)).await?;
        let read = read.map_err(|error| if is_hidden(&error) { not_found(&uri) } else { told(error) })?;
        self.apps.read(scope.agent(), &place.server, &place.own);
        Ok(if place.marked { with_marks(&read, &place) } else { read })
    }

    async fn complete(
        &self,
        scope: &Session,
        params: Option<&Json>,
        visit: &Visit<'_>,
    ) -> Result<Json, RpcError> {
        let params = params.ok_or_else(|| invalid("`completion/complete` needs parameters"))?;
        let reference =
            params.member("ref").filter(Json::is_object).ok_or_else(|| invalid("`ref` is missing"))?;
        let text = |value: Option<Json>| value.and_then(|value| value.to::<String>().ok());
        let [kind, name, uri] = reference.pick(["type", "name", "uri"]).map(text);
        let (key, public, place) = match (kind.as_deref(), name, uri) {
            (Some("ref/prompt"), Some(name), _) => {
                let place = self.place_of_prompt(scope, &name).await?;
                ("name", name, place)
            }
            (Some("ref/resource"), _, Some(uri)) => {
                let place = self.offers.template(scope, &uri).await;
                let place = place.ok_or_else(|| not_found(&uri))?;
                ("uri", uri, place)
            }
            _ => return Err(invalid("`ref` names neither a prompt nor a resource")),
        };
        let mut passed = passed(params);
        passed.json("ref", &renamed(&reference, key, (&public, &place.own)));
        let what = (Part::Completions, method::COMPLETE, None);
        match forward(self, scope, &place.server, what, (&passed, visit)).await? {
            // Others complete, so the whole does; this one has nothing to say.
            Err(Error::NotOffered { .. }) => {
                Ok(Json::of(&json!({ "completion": { "values": [], "hasMore": false } })))
            }
            Err(error) if is_hidden(&error) => Err(invalid("unknown reference")),
            ended => ended.map_err(told),
        }
    }
}

/// Passes a request on, and what is heard of it back. The outer error says that there is no room for it now.
pub(super) async fn forward(
    desk: &Desk,
    scope: &Session,
    server: &ServerName,
    what: (Part, &'static str, Option<&str>),
    (params, visit): (&Members, &Visit<'_>),
) -> Result<Result<Json, Error>, RpcError> {
    visit.goes_to(scope, server, None)?;
    let pass = desk.gate.enter(scope.agent(), Some(server), || scope.time_for(Some(server))).await?;
    let mut report = |progress: Progress| visit.line.progress(&progress);
    let relayed = Some(Arc::clone(&visit.relayed));
    let hard_timeout = pass.left();
    let options =
        CallOptions { on_progress: Some(&mut report), relayed, hard_timeout, ..CallOptions::default() };
    if let Some(trip) = &visit.trip {
        trip.goes_on();
    }
    let answer = scope.forward(server.as_str(), what, params, options).await;
    if let Some(trip) = &visit.trip {
        trip.came_back(Some(server), answer.as_ref().map(|_| None));
    }
    Ok(answer)
}

/// The parameters, and what they name.
fn named(params: Option<&Json>, key: &str) -> Result<(Json, String), RpcError> {
    let name = params.and_then(|params| params.member(key)).and_then(|name| name.to::<String>().ok());
    match (params, name) {
        (Some(params), Some(name)) => Ok((params.clone(), name)),
        _ => Err(invalid(&format!("`{key}` must be a string"))),
    }
}

/// What is passed on as it is.
pub(super) fn passed(params: &Json) -> Members {
    let mut passed = Members::new();
    passed.append_without(params, &OWN);
    passed
}

/// What may not be seen is not there.
fn is_hidden(error: &Error) -> bool {
    matches!(error, Error::UnknownServer { .. } | Error::Denied { .. } | Error::NotOffered { .. })
}

/// There is no such resource, in the modern era's words.
pub(super) fn not_found(uri: &str) -> RpcError {
    let data = Some(Json::of(&json!({ "uri": uri })));
    RpcError { data, ..RpcError::new(code::INVALID_PARAMS, "resource not found") }
}

/// What was read of a resource whose address names its server: so do the addresses of its parts.
fn with_marks(read: &Json, place: &Place) -> Json {
    let contents = read.member("contents").and_then(|contents| contents.to::<Vec<Json>>().ok());
    let Some(mut contents) = contents else { return read.clone() };
    for part in &mut contents {
        if let Some(own) = part.member("uri").and_then(|uri| uri.to::<String>().ok()) {
            *part = renamed(part, "uri", (&own, &addresses::marked(&place.server, &own)));
        }
    }
    let mut marked = Members::new();
    marked.append_without(read, &["contents"]).json("contents", &Json::of(&contents));
    marked.to_json()
}
