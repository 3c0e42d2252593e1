//! Logging in at servers, by name.

use super::Host;
use crate::connect::{LoggedOut, LoginState, Outline, Visitor};
use crate::error::Result;

impl Host {
    /// Logs somebody in at a server, through a browser. From then on every connection to it shows the token, and renews
    /// it. `scopes` is what the token is to be good for beside what the server asks for.
    ///
    /// # Errors
    /// If there is no such server, it is not one to log in at, or something on the way is not as it must be.
    pub async fn login(&self, server: &str, visitor: &dyn Visitor, scopes: &[String]) -> Result<Outline> {
        let server = self.scope.server(server)?;
        self.scope.pool.dock().login(&server.config, visitor, scopes).await
    }

    /// Forgets the login at a server, and tells whoever made it.
    ///
    /// # Errors
    /// If there is no such server, it is not one to log in at, or the login cannot be removed.
    pub async fn logout(&self, server: &str) -> Result<LoggedOut> {
        let server = self.scope.server(server)?;
        self.scope.pool.dock().logout(&server.config).await
    }

    /// Whether somebody is logged in at a server. Nobody is contacted.
    ///
    /// # Errors
    /// If there is no such server.
    pub fn login_state(&self, server: &str) -> Result<LoginState> {
        let server = self.scope.server(server)?;
        Ok(self.scope.pool.dock().logins.state(&server.config))
    }
}
