//! What servers have beside tools: resources, prompts, completion, logs. One line a room, as for tools.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::known::shown;
use super::patience::Patience;
use super::server::Server;
use super::trace::ended;
use super::{CallOptions, Host, STARTING};
use crate::call::{self, Asked, Completing, PromptFetched, ResourceRead};
use crate::catalog::{self, Offered, Part, Subscription, TaskNews};
use crate::connect::Connection;
use crate::error::{Error, Result};
use crate::mcp::{
    Completion, Era, ListKind, LogLevel, Prompt, Reference, Resource, ResourceTemplate, method,
};
use crate::names::ServerName;
use crate::wire::{Json, Members};

/// What was found when every server was asked for its resources, or its prompts.
#[derive(Clone, Debug)]
pub struct Everywhere<T> {
    /// What each server that has any offers, in the order of the configuration.
    pub offered: Vec<(ServerName, Offered<T>)>,
    /// Servers that could not be asked, and why. The others are not affected.
    pub failed: Vec<(ServerName, Error)>,
}

/// Word of one task, as long as it is held.
pub(crate) struct TaskWatch {
    news: TaskNews,
    server: Arc<Server>,
}

impl TaskWatch {
    /// Waits until the server tells how far the task is. What it may not show when it is asked, it does not show so either.
    pub(crate) async fn next(&mut self) -> Option<Json> {
        loop {
            let state = self.news.next().await?;
            if let Ok(state) = self.server.scanned_result(method::TASKS_GET, state) {
                return Some(state);
            }
        }
    }
}

impl Host {
    /// The resources of a server.
    pub async fn resources(&self, server: &str) -> Result<Offered<Resource>> {
        self.reach(server, &Mutex::default(), |s, c| async move {
            let list = catalog::resources(&c, s.config.timeout).await?;
            Ok(shown(&s, list))
        })
        .await
    }

    /// The resources of every server, asked side by side. Those that have none are left out.
    pub async fn all_resources(&self) -> Everywhere<Resource> {
        self.everywhere(|server| async move { self.resources(&server).await }).await
    }

    /// The templates of a server's resources.
    pub async fn resource_templates(&self, server: &str) -> Result<Offered<ResourceTemplate>> {
        self.reach(server, &Mutex::default(), |s, c| async move {
            let list = catalog::resource_templates(&c, s.config.timeout).await?;
            Ok(shown(&s, list))
        })
        .await
    }

    /// The templates of every server, asked side by side.
    pub async fn all_resource_templates(&self) -> Everywhere<ResourceTemplate> {
        self.everywhere(|server| async move { self.resource_templates(&server).await }).await
    }

    /// Reads a resource of a server.
    pub async fn read_resource(&self, server: &str, uri: &str) -> Result<ResourceRead> {
        self.read_resource_with(server, uri, CallOptions::default()).await
    }

    /// The same, with options.
    pub async fn read_resource_with(
        &self,
        server: &str,
        uri: &str,
        options: CallOptions<'_>,
    ) -> Result<ResourceRead> {
        let options = &Mutex::new(options);
        let read = |s: Arc<Server>, c| async move {
            call::read_resource(&c, uri, self.asked(&s, &mut *options.lock().await)).await
        };
        self.use_server(server, (method::RESOURCES_READ, options), read).await
    }

    /// Hears when a resource changes, as long as the subscription is held. It outlives lost connections.
    pub async fn subscribe(&self, server: &str, uri: &str) -> Result<Subscription> {
        let watch = |s: Arc<Server>, c| async move {
            let peer = &self.scope.home(&s).peer;
            let subscription = peer.watchers.subscribe(&c, uri, s.config.timeout).await?;
            Ok(match s.hold()? {
                Some(hold) => subscription.keeping(hold),
                None => subscription,
            })
        };
        self.use_server(server, (method::SUBSCRIBE, &Mutex::default()), watch).await
    }

    /// Hears how far a task of a modern server is, as long as this is held.
    pub(crate) async fn watch_task(&self, server: &str, id: &str) -> Result<TaskWatch> {
        let watch = |server: Arc<Server>, connection| async move {
            let tasks = self.scope.home(&server).peer.tasks.clone();
            let news = tasks.watch(&connection, id, server.config.timeout).await?;
            Ok(TaskWatch { news, server })
        };
        self.use_server(server, (method::LISTEN, &Mutex::default()), watch).await
    }

    /// The prompts of a server.
    pub async fn prompts(&self, server: &str) -> Result<Offered<Prompt>> {
        self.reach(server, &Mutex::default(), |s, c| async move {
            let list = catalog::prompts(&c, s.config.timeout).await?;
            Ok(shown(&s, list))
        })
        .await
    }

    /// The prompts of every server, asked side by side. Those that have none are left out.
    pub async fn all_prompts(&self) -> Everywhere<Prompt> {
        self.everywhere(|server| async move { self.prompts(&server).await }).await
    }

    /// A prompt of a server with its gaps filled. Arguments that it needs and does not get are an error, before anything
    /// but the list of prompts is asked for.
    pub async fn prompt(
        &self,
        server: &str,
        name: &str,
        arguments: &BTreeMap<String, String>,
    ) -> Result<PromptFetched> {
        self.prompt_with(server, name, arguments, CallOptions::default()).await
    }

    /// The same, with options.
    pub async fn prompt_with(
        &self,
        server: &str,
        name: &str,
        arguments: &BTreeMap<String, String>,
        options: CallOptions<'_>,
    ) -> Result<PromptFetched> {
        let options = &Mutex::new(options);
        let fill = |s: Arc<Server>, c| async move {
            let patience = patience_for(&s, &*options.lock().await);
            let prompt = patience.wait(&s, call::find_prompt(&c, name, s.config.timeout)).await?;
            s.permit(ListKind::Prompts, name, &prompt.raw)?;
            options.lock().await.hard_timeout = Some(patience.rest(&s)?);
            call::prompt(&c, &prompt, arguments, self.asked(&s, &mut *options.lock().await)).await
        };
        self.use_server(server, (method::PROMPTS_GET, options), fill).await
    }

    /// What may be meant by the beginning of an argument; `context` holds those that are settled.
    pub async fn complete(
        &self,
        server: &str,
        reference: &Reference,
        (argument, value): (&str, &str),
        context: &BTreeMap<String, String>,
    ) -> Result<Completion> {
        let completing = &Completing { reference, argument, value, context };
        let ask = |s: Arc<Server>, c| async move { call::complete(&c, completing, s.config.timeout).await };
        self.use_server(server, (method::COMPLETE, &Mutex::default()), ask).await
    }

    /// Asks a server for log messages of this level and graver ones; they come as events. Later connections to the same
    /// server are asked for the same.
    pub async fn set_log_level(&self, server: &str, level: LogLevel) -> Result<()> {
        let set = |s: Arc<Server>, c| async move {
            call::set_log_level(&c, level, s.config.timeout).await?;
            self.scope.home(&s).peer.remember_level(&s.config.name, level);
            Ok(())
        };
        self.use_server(server, (method::SET_LEVEL, &Mutex::default()), set).await
    }

    /// The folders that the asker names are others now: legacy servers that are connected are told. Modern ones ask
    /// each time.
    pub fn roots_changed(&self) {
        if !self.scope.asker.offers().roots {
            return;
        }
        for server in self.scope.servers.load().values() {
            let connection = server.berth.live().filter(|c| c.info().revision.era() == Era::Legacy);
            if let Some(connection) = connection {
                connection.notify(method::ROOTS_CHANGED, &Members::new());
            }
        }
    }

    /// Passes a request of a caller on to a server, with its parameters as they came.
    pub(crate) async fn forward(
        &self,
        server: &str,
        (part, method, about): (Part, &'static str, Option<&str>),
        params: &Members,
        mut options: CallOptions<'_>,
    ) -> Result<Json> {
        let server = self.scope.whole_server(server)?;
        let entry = self.permit_use(&server, method).await?;
        let patience = patience_for(&server, &options);
        let forwarding = async {
            let _on_duty = server.duty().enter().ok_or_else(|| left(&server))?;
            // Looked at where it is about to be asked for, and nowhere else.
            let prompt = about.filter(|_| method == method::PROMPTS_GET && server.is_locked());
            let relayed = options.relayed.take();
            let mut way = patience.wait(&server, self.scope.way(&server, relayed.as_deref())).await?;
            let private = way.private;
            let asker = relayed.as_ref().map_or(&self.scope.asker, |relayed| &relayed.asker);
            let relayed = relayed.as_ref();
            patience.wait(&server, permit_prompt(&server, &way.connection, prompt)).await?;
            options.hard_timeout = Some(patience.rest(&server)?);
            let asked = Asked { asker, relayed, private, ..self.asked(&server, &mut options) };
            let ended = match call::forward(&way.connection, (part, method, about), params, asked).await {
                Err(error) if error.is_retryable() && !way.connection.is_open() => {
                    patience.wait(&server, way.again(&server, true)).await?;
                    patience.wait(&server, permit_prompt(&server, &way.connection, prompt)).await?;
                    options.hard_timeout = Some(patience.rest(&server)?);
                    let asked = Asked { asker, relayed, private, ..self.asked(&server, &mut options) };
                    call::forward(&way.connection, (part, method, about), params, asked).await
                }
                ended => ended,
            };
            ended.and_then(|raw| server.scanned_result(about.unwrap_or(method), raw))
        };
        ended(entry, forwarding).await
    }

    /// The same for what an agent may do only with somebody's consent.
    async fn use_server<T, F>(
        &self,
        server: &str,
        (method, options): (&'static str, &Mutex<CallOptions<'_>>),
        ask: impl Fn(Arc<Server>, Connection) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let known = self.scope.whole_server(server)?;
        let entry = self.permit_use(&known, method).await?;
        ended(entry, self.reach(server, options, ask)).await
    }

    /// The one way to a server for everything that is no tool call: a server that is there and may be used, connected.
    /// What was lost on the way without an effect is asked once more over a fresh connection. What is waited for before it is
    /// asked counts: the options then have what is left.
    async fn reach<T, F>(
        &self,
        server: &str,
        options: &Mutex<CallOptions<'_>>,
        ask: impl Fn(Arc<Server>, Connection) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let known = self.scope.whole_server(server)?;
        let patience = patience_for(&known, &*options.lock().await);
        let settled = self.scope.settled(Arc::clone(&known));
        let server = patience.wait(&known, async { Ok::<_, Error>(settled.await) }).await?;
        let _on_duty = server.duty().enter().ok_or_else(|| left(&server))?;
        let _held = server.hold()?;
        let connection = patience.wait(&server, server.any_connection()).await?;
        options.lock().await.hard_timeout = Some(patience.rest(&server)?);
        if server.is_unconfirmed(server.is_locked()) {
            let (host, server) = (self.clone(), Arc::clone(&server));
            // What fails is found out when somebody needs a tool.
            tokio::spawn(async move { drop(host.confirm(&server).await) });
        }
        match ask(Arc::clone(&server), connection.clone()).await {
            Err(error) if error.is_retryable() && !connection.is_open() => {
                let connection = patience.wait(&server, server.any_connection()).await?;
                options.lock().await.hard_timeout = Some(patience.rest(&server)?);
                ask(Arc::clone(&server), connection).await
            }
            ended => ended,
        }
    }

    fn asked<'a>(&'a self, server: &Server, options: &'a mut CallOptions<'_>) -> Asked<'a> {
        Asked {
            asker: &self.scope.asker,
            timeout: options.timeout.unwrap_or(server.config.timeout),
            hard_timeout: options.hard_timeout,
            usual: server.config.timeout,
            on_progress: options.on_progress.as_mut().map(|listener| &mut **listener as _),
            relayed: None,
            private: false,
        }
    }

    async fn everywhere<T, F>(&self, ask: impl Fn(String) -> F) -> Everywhere<T>
    where
        F: Future<Output = Result<Offered<T>>>,
    {
        let servers = self.scope.whole_servers().into_iter().filter(|s| s.config.enabled);
        let asked = futures_util::stream::iter(servers).map(|server| {
            let answer = ask(server.config.name.to_string());
            async move { (server.config.name.clone(), answer.await) }
        });
        let mut found = Everywhere { offered: Vec::new(), failed: Vec::new() };
        let mut answers = asked.buffered(STARTING);
        while let Some((server, answer)) = answers.next().await {
            match answer {
                Ok(offered) => found.offered.push((server, offered)),
                Err(Error::NotOffered { .. }) => {}
                Err(error) => found.failed.push((server, error)),
            }
        }
        found
    }
}

/// The time of something that is asked from now on.
fn patience_for(server: &Server, options: &CallOptions<'_>) -> Patience {
    let timeout = options.timeout.unwrap_or(server.config.timeout);
    Patience::new(Instant::now(), options.hard_timeout, timeout)
}

/// Whether a prompt is what was accepted of its server, by whoever is about to be asked for it. `None`: whatever it is.
async fn permit_prompt(server: &Server, connection: &Connection, name: Option<&str>) -> Result<()> {
    let Some(name) = name else { return Ok(()) };
    let prompt = call::find_prompt(connection, name, server.config.timeout).await?;
    server.permit(ListKind::Prompts, name, &prompt.raw)
}

/// A server that was there when it was looked up.
fn left(server: &Server) -> Error {
    Error::UnknownServer {
        name: server.config.name.to_string(),
        hint: "it was there and is not any more".into(),
    }
}
