//! What servers are known to offer, without starting any.
//!
//! In: the servers that can be seen from here. Out: their tools, prompts and resources: from memory where a server is
//! connected, as it was last seen where it is not. Only a server of which nothing is known is asked.

use super::{Everywhere, Host, Listing};
use crate::mcp::{Prompt, Resource, ResourceTemplate};

impl Host {
    /// Every tool that is known, from memory where a server is connected and as it was last seen where it is not.
    /// A server of which nothing is known is asked.
    pub async fn known_tools(&self) -> Listing {
        self.tools().await
    }

    /// The same for prompts. Servers that have none are left out.
    pub async fn known_prompts(&self) -> Everywhere<Prompt> {
        self.all_prompts().await
    }

    /// The same for resources.
    pub async fn known_resources(&self) -> Everywhere<Resource> {
        self.all_resources().await
    }

    /// The same for templates of resources.
    pub async fn known_resource_templates(&self) -> Everywhere<ResourceTemplate> {
        self.all_resource_templates().await
    }
}
