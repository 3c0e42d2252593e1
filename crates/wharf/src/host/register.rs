//! Registering the program's own functions.

use std::sync::{Arc, PoisonError};

use indexmap::IndexMap;

use super::Host;
use super::local::{Function, LOCAL_SET, LocalTool};
use super::scope::Functions;
use crate::error::{Error, Result};
use crate::mcp::Tool;
use crate::names::ServerName;
use crate::registry::Snapshot;

impl Host {
    /// Adds a tool of the program's own, and gives the name that callers use. Refuses one whose name is taken. In a
    /// session it is the session's own.
    pub fn register(&self, tool: LocalTool) -> Result<Arc<str>> {
        self.put(tool, false)
    }

    /// The same, in the place of the one of its name, if there is one.
    pub fn register_or_update(&self, tool: LocalTool) -> Result<Arc<str>> {
        self.put(tool, true)
    }

    /// Takes a local tool away. False if there is none of that name here.
    pub fn unregister(&self, name: &str) -> bool {
        self.unregister_from(LOCAL_SET, name)
    }

    /// Takes a local tool of another set away.
    pub fn unregister_from(&self, set: &str, name: &str) -> bool {
        let _one_at_a_time = self.scope.registering.lock().unwrap_or_else(PoisonError::into_inner);
        let mut functions = Functions::clone(&self.scope.functions.load());
        let place =
            functions.keys().position(|(in_set, known)| in_set.as_str() == set && known.as_str() == name);
        let Some((_, function)) = place.and_then(|place| functions.shift_remove_index(place)) else {
            return false;
        };
        self.publish(functions, &function.set, &function.prefix);
        true
    }

    fn put(&self, tool: LocalTool, update: bool) -> Result<Arc<str>> {
        self.scope.open()?;
        let function = Arc::new(tool.define()?);
        let _one_at_a_time = self.scope.registering.lock().unwrap_or_else(PoisonError::into_inner);
        let mut functions = Functions::clone(&self.scope.functions.load());
        let public = function.public();
        let taken = functions.values().find(|known| known.public().eq_ignore_ascii_case(&public));
        if let Some(taken) = taken.filter(|taken| !update || taken.key() != function.key()) {
            return Err(Error::Config {
                message: format!(
                    "the name `{public}` belongs to the local tool `{}` already",
                    taken.tool.name
                ),
                hint: Some("give it another name, or use `register_or_update` for the same one".into()),
            });
        }
        functions.insert(function.key(), Arc::clone(&function));
        let shown = self.publish(functions, &function.set, &function.prefix);
        let route = shown.find_local(function.set.as_str(), function.tool.name.as_str());
        Ok(route.map_or_else(|| public.into(), |route| Arc::clone(&route.public)))
    }

    /// The handlers first: a name that is shown can be called.
    fn publish(
        &self,
        functions: IndexMap<(ServerName, crate::names::ToolName), Arc<Function>>,
        set: &ServerName,
        prefix: &str,
    ) -> Arc<Snapshot> {
        let tools: Arc<[Arc<Tool>]> =
            functions.values().filter(|f| f.set == *set).map(|f| Arc::clone(&f.tool)).collect();
        self.scope.functions.store(Arc::new(functions));
        self.scope.registry.replace_local(set, prefix, tools)
    }
}

impl Function {
    fn public(&self) -> String {
        match self.prefix.as_str() {
            "" => self.tool.name.as_str().to_owned(),
            prefix => format!("{prefix}_{}", self.tool.name),
        }
    }
}
