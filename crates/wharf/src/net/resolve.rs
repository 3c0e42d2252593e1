//! In: a host name. Out: its addresses, not yet judged.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;

/// Turns names into addresses.
pub trait Resolve: Send + Sync {
    /// The addresses of a host, in the order in which they should be tried.
    fn resolve<'a>(
        &'a self,
        host: &'a str,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;
}

/// The resolver of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

// === impl SystemResolver ===

impl Resolve for SystemResolver {
    fn resolve<'a>(
        &'a self,
        host: &'a str,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>> {
        Box::pin(async move {
            Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect())
        })
    }
}
