//! The definition of a tool as it is at the other end.
//!
//! In: a route, and the server or the very connection that its call goes to. Out: what that offers under the name, where
//! what is known of it may be from an earlier run, or from another connection of a server that is held to what was accepted.

use std::sync::Arc;

use futures_util::FutureExt as _;

use super::Host;
use super::lanes::Way;
use super::patience::Patience;
use super::run::about;
use super::server::Server;
use crate::error::Light;
use crate::event::Redacted;
use crate::mcp::Tool;
use crate::names::CallerName;
use crate::registry::Route;
use crate::wire::Json;

/// A call that was judged, and is judged again by the definition that it meets.
#[derive(Clone, Copy)]
pub(super) struct Judged<'a> {
    pub(super) caller: &'a CallerName,
    pub(super) route: &'a Route,
    pub(super) arguments: &'a Json,
}

impl Host {
    /// A tool's definition as its server gives it now, where what is known may be from an earlier run. `None`: the route's.
    pub(super) async fn confirmed(
        &self,
        (server, patience): (&Arc<Server>, &Patience),
        route: &Route,
        locked: bool,
    ) -> Light<Option<Arc<Tool>>> {
        if server.is_unconfirmed(locked) || (locked && self.scope.has_changed(route)) {
            let seen = patience.wait(server, self.confirm(server)).boxed().await?;
            return Ok(Some(seen.definition(route)?));
        }
        // A route may be older than what its server was last seen to offer.
        match locked.then(|| server.last_tools()).flatten() {
            Some(seen) => Ok(Some(seen.definition(route)?)),
            None => Ok(None),
        }
    }

    /// The same for a call that has its way, over another connection than the one that was looked at. If the definition
    /// there is one that may not be called, or that the arguments do not fit, nothing is sent.
    pub(super) async fn confirmed_over(
        &self,
        (server, way, patience): (&Arc<Server>, &Way, &Patience),
        call: Judged<'_>,
    ) -> Light<Option<Arc<Tool>>> {
        let locked = server.is_locked();
        let mut definition = self.confirmed((server, patience), call.route, locked).await?;
        if locked && way.is_unseen(server) {
            let seen = patience.wait(server, way.tools(server)).boxed().await?;
            definition = Some(seen.definition(call.route)?);
        }
        let tool = definition.as_ref().unwrap_or(&call.route.tool);
        self.judge(call.caller, &server.subject(tool), &tool.name)?;
        let shown = || Redacted::new(call.arguments.clone(), server.redactor.clone());
        self.check(server, tool, call.arguments).await.map_err(|error| about(error, shown))?;
        Ok(definition)
    }
}
