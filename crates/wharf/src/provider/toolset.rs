//! The names that a provider was given, and where each leads.

use std::collections::HashMap;

use crate::registry::Route;

/// The tools that one provider was given. Names are looked up here and never taken apart.
#[derive(Clone, Debug, Default)]
pub struct Toolset {
    routes: HashMap<String, Route>,
}

impl Toolset {
    /// Where a name leads that the model used.
    pub fn route(&self, name: &str) -> Option<&Route> {
        self.routes.get(name)
    }

    /// The names that the model was given, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.routes.keys().map(String::as_str)
    }
}

impl FromIterator<(String, Route)> for Toolset {
    fn from_iter<I: IntoIterator<Item = (String, Route)>>(named: I) -> Self {
        Self { routes: named.into_iter().collect() }
    }
}
