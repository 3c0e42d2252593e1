//! The connections of one session: the same configuration twice is the same connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::berth::WeakBerth;
use super::{Berth, Dock};
use crate::config::ServerConfig;

/// Places for servers, by configuration. A pool belongs to one session; nothing in it is seen by another.
#[derive(Debug)]
pub struct Pool {
    dock: Arc<Dock>,
    berths: Mutex<HashMap<[u8; 32], Berth>>,
    /// Those that nobody finds, as long as somebody uses them.
    unlisted: Mutex<Vec<WeakBerth>>,
}

impl Pool {
    /// An empty pool.
    pub fn new(dock: Arc<Dock>) -> Self {
        Self { dock, berths: Mutex::default(), unlisted: Mutex::default() }
    }

    /// What its connections are made with.
    pub fn dock(&self) -> &Dock {
        &self.dock
    }

    /// The place for this configuration. Nothing is started yet.
    pub fn berth(&self, config: &ServerConfig) -> Berth {
        self.lane(config, 0)
    }

    /// One of several places for the same configuration.
    pub(crate) fn lane(&self, config: &ServerConfig, number: usize) -> Berth {
        let key = key(config, number);
        let mut berths = self.berths.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Berth::new(Arc::new(config.clone()), Arc::clone(&self.dock));
        berths.entry(key).or_insert_with(new).clone()
    }

    /// The places of the instances that there are beside the first.
    pub(crate) fn others(&self, config: &ServerConfig) -> Vec<Berth> {
        let others = config.others().into_iter().enumerate();
        others.map(|(number, other)| self.lane(&other, INSTANCES + number)).collect()
    }

    /// A place that nobody else finds. Its connection closes with its last user.
    pub(crate) fn unlisted(&self, config: &ServerConfig) -> Berth {
        let berth = Berth::new(Arc::new(config.clone()), Arc::clone(&self.dock));
        let mut unlisted = self.unlisted.lock().unwrap_or_else(PoisonError::into_inner);
        unlisted.retain(WeakBerth::is_used);
        unlisted.push(berth.downgrade());
        berth
    }

    /// Every place that there is.
    pub(crate) fn berths(&self) -> Vec<Berth> {
        let unlisted = self.unlisted.lock().unwrap_or_else(PoisonError::into_inner);
        let berths = self.berths.lock().unwrap_or_else(PoisonError::into_inner);
        berths.values().cloned().chain(unlisted.iter().filter_map(WeakBerth::upgrade)).collect()
    }

    /// Closes every connection, side by side, and forgets them. Doing it twice is doing it once.
    pub async fn close(&self) {
        let berths: Vec<Berth> = {
            let mut berths = self.berths.lock().unwrap_or_else(PoisonError::into_inner);
            berths.drain().map(|(_, berth)| berth).collect()
        };
        futures_util::future::join_all(berths.iter().map(Berth::disconnect)).await;
        self.dock.leaving.all_gone().await;
    }

    /// This configuration is not used any more. Its connection closes with its last user.
    pub fn forget(&self, config: &ServerConfig) {
        self.forget_lane(config, 0);
        let others = config.others().into_iter().enumerate();
        others.for_each(|(number, other)| self.forget_lane(&other, INSTANCES + number));
    }

    /// The same for one of several places of one configuration.
    pub(crate) fn forget_lane(&self, config: &ServerConfig, number: usize) {
        let mut berths = self.berths.lock().unwrap_or_else(PoisonError::into_inner);
        berths.remove(&key(config, number));
    }
}

/// Further instances have numbers of their own.
const INSTANCES: usize = 100;

fn key(config: &ServerConfig, number: usize) -> [u8; 32] {
    let mut key = config.identity();
    key[0] ^= u8::try_from(number).unwrap_or(u8::MAX);
    key
}
