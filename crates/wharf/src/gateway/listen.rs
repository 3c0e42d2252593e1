//! `subscriptions/listen`: a request of a modern caller that stays open, and what it hears.
//!
//! In: what the caller wants to hear of. Out: first the part of it that it will hear, then the news, each with the id of
//! the request. It ends with the request, or at the gateway's stop with a result.

use std::sync::Arc;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;

use super::desk::{Desk, invalid};
use super::ending::Shift;
use super::line::Line;
use super::modern::Asked;
use super::news::{Ear, Topic};
use super::tasks::Watched;
use super::watching::MOST;
use crate::host::Session;
use crate::mcp::{extension, meta, method};
use crate::names::CallerName;
use crate::wire::{Json, Members, RpcError, notification};

/// The ear of one request.
#[derive(Debug)]
struct Listener {
    caller: CallerName,
    scope: Session,
    topics: Vec<Topic>,
    heard: mpsc::UnboundedSender<Topic>,
}

/// What a caller wants to hear of.
#[derive(Debug, Default)]
struct Wanted {
    topics: Vec<Topic>,
    /// If it said any at all, even none.
    resources: Option<Vec<String>>,
    /// The same for tasks, if it knows of them.
    tasks: Option<Vec<String>>,
}

/// How many tasks one request may listen to. For each there is a request to its server.
const MOST_TASKS: usize = 100;

impl Asked {
    /// Tells a caller what it wants to hear, until the gateway stops. Dropped, everything is let go.
    pub(super) async fn listen(
        &self,
        desk: &Shift,
        caller: &CallerName,
        line: &Line,
    ) -> Result<Json, RpcError> {
        let scope = self.scope(desk, caller)?;
        let mut wanted = Wanted::read(self.params.as_ref())?.honoured(desk, &scope).await;
        if !self.said().capabilities.is_some_and(|c| extension::is_in(&c, extension::TASKS)) {
            wanted.tasks = None;
        }
        let (heard, mut news) = mpsc::unbounded_channel();
        let listener: Arc<dyn Ear> = Arc::new(Listener {
            caller: caller.clone(),
            scope: scope.clone(),
            topics: wanted.topics.clone(),
            heard,
        });
        // Before anything is promised, so that nothing is missed after that.
        desk.news.add(Arc::downgrade(&listener));
        let say = |method: &str, params: &Members| {
            let mut tagged = params.clone();
            tagged.object("_meta", &self.tag());
            line.say(notification(method, &tagged));
        };
        let asked = wanted.resources.clone().unwrap_or_default();
        let mut subscribing: FuturesUnordered<_> =
            asked.iter().map(|uri| async { (uri.clone(), desk.watch(&scope, uri).await) }).collect();
        let (mut honoured, mut watching) = (Vec::new(), FuturesUnordered::new());
        while let Some((uri, subscribed)) = subscribing.next().await {
            if let Ok(subscribed) = subscribed {
                honoured.push(uri);
                watching.push(subscribed.tell(|params| say(method::RESOURCE_UPDATED, &params)));
            }
        }
        drop(subscribing);
        honoured.sort_by_key(|uri| asked.iter().position(|wanted| wanted == uri));
        let asked = wanted.tasks.iter().flatten().map(|id| desk.watch_task(&scope, id));
        let tasks: Vec<_> = join_all(asked).await.into_iter().flatten().collect();
        let told: Vec<&str> = tasks.iter().map(Watched::id).collect();
        let mut acknowledged = Members::new();
        acknowledged.object("notifications", &wanted.written(&honoured, &told));
        say(method::LISTEN_ACKNOWLEDGED, &acknowledged);
        let tell = |state: &Json| {
            line.say(notification(method::TASK_CHANGED, &self.tagged(state)));
        };
        let mut telling: FuturesUnordered<_> = tasks.into_iter().map(|task| task.tell(desk, tell)).collect();
        let stopped = desk.until_stopping();
        tokio::pin!(stopped);
        loop {
            tokio::select! {
                () = &mut stopped => break,
                Some(topic) = news.recv() => say(topic.method(), &Members::default()),
                Some(()) = watching.next() => {}
                Some(()) = telling.next() => {}
            }
        }
        let mut result = Members::new();
        result.text("resultType", "complete").object("_meta", &self.tag());
        Ok(result.to_json())
    }

    /// What a server said, with this request's id in the place of that of ours to the server.
    fn tagged(&self, said: &Json) -> Members {
        let (mut all, mut tag) = (Members::new(), Members::new());
        if let Some(told) = said.member("_meta").filter(Json::is_object) {
            tag.append_without(&told, &[meta::SUBSCRIPTION_ID, meta::SERVER_INFO]);
        }
        tag.json(meta::SUBSCRIPTION_ID, &self.id);
        all.append_without(said, &["_meta"]).object("_meta", &tag);
        all
    }

    /// What everything that belongs to this request carries: its id, as it was written.
    fn tag(&self) -> Members {
        let mut tag = Members::new();
        tag.json(meta::SUBSCRIPTION_ID, &self.id);
        tag
    }
}

// === impl Wanted ===

impl Wanted {
    fn read(params: Option<&Json>) -> Result<Self, RpcError> {
        let wanted = params.and_then(|params| params.member("notifications")).filter(Json::is_object);
        let wanted = wanted.ok_or_else(|| invalid("`notifications` must be an object"))?;
        let is_wanted = |topic: &Topic| wanted.member(topic.key()).is_some_and(|w| w.as_str() == "true");
        let topics = [Topic::Tools, Topic::Prompts, Topic::Resources].into_iter().filter(is_wanted).collect();
        let list = |key: &str, what: &str, most: usize| -> Result<Option<Vec<String>>, RpcError> {
            let Some(list) = wanted.member(key).filter(|list| !list.is_null()) else { return Ok(None) };
            let list: Result<indexmap::IndexSet<String>, _> = list.to();
            let list = list.map_err(|_| invalid(&format!("`{key}` must be a list of {what}")))?;
            if list.len() > most {
                return Err(invalid(&format!("`{key}` has more than {most} {what}")));
            }
            Ok(Some(list.into_iter().collect()))
        };
        let (resources, tasks) =
            (list("resourceSubscriptions", "addresses", MOST)?, list("taskIds", "ids", MOST_TASKS)?);
        Ok(Self { topics, resources, tasks })
    }

    /// The part that somebody behind the gateway can tell of.
    async fn honoured(mut self, desk: &Desk, scope: &Session) -> Self {
        let declared = desk.capabilities.of(scope).await;
        self.topics.retain(|topic| match topic {
            Topic::Tools => true,
            Topic::Prompts => declared.prompts,
            Topic::Resources => declared.resources,
        });
        self.resources = self.resources.filter(|_| declared.subscriptions);
        self.tasks = self.tasks.filter(|_| declared.tasks);
        self
    }

    fn written(&self, resources: &[String], tasks: &[&str]) -> Members {
        let mut all = Members::new();
        for topic in &self.topics {
            all.json(topic.key(), &Json::of(&true));
        }
        if self.resources.is_some() {
            all.json("resourceSubscriptions", &Json::of(resources));
        }
        if self.tasks.is_some() {
            all.json("taskIds", &Json::of(tasks));
        }
        all
    }
}

// === impl Listener ===

impl Ear for Listener {
    fn caller(&self) -> &CallerName {
        &self.caller
    }

    fn scope(&self) -> Option<Session> {
        Some(self.scope.clone())
    }

    fn hear(&self, topic: Topic) {
        if self.topics.contains(&topic) {
            // An error means that the request is just ending.
            let _ = self.heard.send(topic);
        }
    }
}
