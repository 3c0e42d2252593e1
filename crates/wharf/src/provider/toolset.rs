//! The names that a provider was given, and where each leads.

use std::collections::HashMap;

use crate::registry::Route;

/// The tools that one provider was given: a map both ways. Names are looked up here and never taken apart.
#[derive(Clone, Debug, Default)]
pub struct Toolset {
    routes: HashMap<String, Route>,
    /// Server, tool: the name that the provider was given.
    names: HashMap<(String, String), String>,
}

impl Toolset {
    /// Where a name leads that the model used.
    pub fn route(&self, name: &str) -> Option<&Route> {
        self.routes.get(name)
    }

    /// The name that the provider was given for a tool.
    pub fn name(&self, server: &str, tool: &str) -> Option<&str> {
        self.names.get(&(server.to_owned(), tool.to_owned())).map(String::as_str)
    }

    /// The names that the provider was given, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.routes.keys().map(String::as_str)
    }

    /// How many tools there are.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }
}

impl FromIterator<(String, Route)> for Toolset {
    fn from_iter<I: IntoIterator<Item = (String, Route)>>(pairs: I) -> Self {
        let routes: HashMap<String, Route> = pairs.into_iter().collect();
        let identity =
            |route: &Route| (route.server.as_str().to_owned(), route.tool.name.as_str().to_owned());
        let names = routes.iter().map(|(name, route)| (identity(route), name.clone())).collect();
        Self { routes, names }
    }
}
