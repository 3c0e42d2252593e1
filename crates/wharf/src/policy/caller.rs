//! What a caller is given, judged: by server and by tool, under their original names.
//!
//! What is taken away stays away, whatever else gives it. What no rule gives is not there.

use crate::config::CallerRules;
use crate::names::{ServerName, ToolName};

impl CallerRules {
    /// Whether a server is given whole: its resources, its prompts, and its tools but for those that are taken away.
    pub fn gives_server(&self, server: &ServerName) -> bool {
        let named = |gives: bool| {
            self.servers.iter().any(|rule| rule.gives == gives && rule.server.fits(server.as_str()))
        };
        named(true) && !named(false)
    }

    /// Whether a tool is given.
    pub fn gives_tool(&self, server: &ServerName, tool: &ToolName) -> bool {
        let named = |gives: bool| {
            self.tools.iter().any(|rule| {
                rule.gives == gives && rule.server.fits(server.as_str()) && rule.tool.fits(tool.as_str())
            })
        };
        !self.withholds(server) && (self.gives_server(server) || named(true)) && !named(false)
    }

    /// Whether somebody must be asked before a tool is called.
    pub fn asks_for(&self, server: &ServerName, tool: &ToolName) -> bool {
        self.ask.iter().any(|pattern| pattern.fits(server.as_str(), tool.as_str()))
    }

    /// Whether anything of a server may be given, so that it is worth asking for its tools.
    pub fn may_give(&self, server: &ServerName) -> bool {
        let any = self.tools.iter().any(|rule| rule.gives && rule.server.fits(server.as_str()));
        !self.withholds(server) && (self.gives_server(server) || any)
    }

    fn withholds(&self, server: &ServerName) -> bool {
        self.servers.iter().any(|rule| !rule.gives && rule.server.fits(server.as_str()))
    }
}
