//! A connection that is known and not kept: for whoever must not keep a server running by remembering it.

use std::sync::{Arc, Weak};

use super::connection::{Connection, Held};

/// A connection that others keep open, or do not any more.
#[derive(Clone)]
pub struct WeakConnection(Weak<Held>);

impl Connection {
    /// The same connection, without keeping it open.
    pub fn downgrade(&self) -> WeakConnection {
        WeakConnection(Arc::downgrade(&self.0))
    }
}

impl WeakConnection {
    /// The connection, if anybody keeps it.
    pub fn upgrade(&self) -> Option<Connection> {
        self.0.upgrade().map(Connection)
    }
}

impl std::fmt::Debug for WeakConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WeakConnection")
    }
}
