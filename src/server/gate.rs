//! How often, and how many: the rates of users and addresses, and the connections, sockets and streams that each may have open.
//!
//! Here is what costs this server; what costs other users (a send, a new conversation with somebody) has its rate in the chat, which
//! knows whether it is one. An operation pays before it is executed, so that who is refused can be told that nothing was done. While no
//! user is known the address pays: for opening a socket, for a token that is none, and for what is asked without one.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard};

use async_graphql::parser::types::OperationType;
use tokio::time::Instant;

use super::address::Address;
use super::answer::Problem;
use super::networks::{AddressBuckets, AddressCounts, CountedAddress, NetworkFactors};
use crate::graphql::Cost;
use crate::metrics::{IntCounter, IntCounterVec, Metrics};
use crate::model::UserId;
use crate::rate::{Buckets, Rate, TooFast};

/// How often one user or one address may ask for something, and how much they may have open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateBounds {
    /// Off: none of what is below holds.
    pub is_on: bool,
    /// Queries and starts of subscriptions. A small one counts one, a large one as many as its answer may be large.
    pub queries_per_second: u32,
    pub queries_burst: u32,
    /// Root fields of mutations.
    pub mutations_per_second: u32,
    pub mutations_burst: u32,
    /// Of one address, before a user is known.
    pub address_per_second: u32,
    pub address_burst: u32,
    pub user_sockets: usize,
    pub address_sockets: usize,
    /// Connections that are not WebSockets. Those of a trusted proxy are not counted.
    pub address_connections: usize,
    /// The same of the wider networks of IPv6.
    pub networks: NetworkFactors,
    /// Subscriptions over HTTP of one user.
    pub user_streams: usize,
    /// Answers of one user that are under way, from admission until the last byte was written.
    pub user_answers: usize,
    /// Bytes of them, and of events of subscriptions.
    pub user_answer_bytes: usize,
}

impl Default for RateBounds {
    fn default() -> Self {
        Self {
            is_on: true,
            queries_per_second: 50,
            queries_burst: 200,
            mutations_per_second: 20,
            mutations_burst: 60,
            address_per_second: 50,
            address_burst: 200,
            user_sockets: 10,
            address_sockets: 100,
            address_connections: 1_000,
            networks: NetworkFactors::default(),
            user_streams: 100,
            user_answers: 32,
            user_answer_bytes: 16 << 20,
        }
    }
}

/// Fields of an answer that come with one token.
const FIELDS_A_TOKEN: usize = 200;

/// Who asks: a user, once one is known.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) viewer: Option<UserId>,
    pub(super) address: Address,
}

/// One address has too many connections for one more, which is not even read.
pub(super) struct TooMany;

pub(super) struct Gate {
    bounds: RateBounds,
    queries: Buckets,
    mutations: Buckets,
    addresses: AddressBuckets,
    user_sockets: Counts<UserId>,
    address_sockets: AddressCounts,
    address_connections: AddressCounts,
    user_streams: Counts<UserId>,
}

impl Gate {
    pub(super) fn new(bounds: RateBounds, refusals: IntCounterVec) -> Self {
        let refused = |what| refusals.with_label_values(&[what]);
        Self {
            queries: Buckets::new("queries", Rate::per_second(bounds.queries_per_second, bounds.queries_burst)),
            mutations: Buckets::new("mutations", Rate::per_second(bounds.mutations_per_second, bounds.mutations_burst)),
            addresses: AddressBuckets::new("address", Rate::per_second(bounds.address_per_second, bounds.address_burst), bounds.networks),
            user_sockets: Counts::new(bounds.user_sockets, refused("user_sockets")),
            address_sockets: AddressCounts::new(bounds.address_sockets, bounds.networks, &refused("address_sockets")),
            address_connections: AddressCounts::new(bounds.address_connections, bounds.networks, &refused("address_connections")),
            user_streams: Counts::new(bounds.user_streams, refused("user_streams")),
            bounds,
        }
    }

    pub(super) fn register(&self, metrics: &Metrics) {
        [&self.queries, &self.mutations].iter().for_each(|buckets| buckets.register(metrics));
        self.addresses.register(metrics);
    }

    /// Lets an operation be executed, for its price.
    pub(super) fn admit(&self, caller: &Caller, operation: OperationType, cost: Cost) -> Result<(), Problem> {
        if !self.bounds.is_on {
            return Ok(());
        }
        let tokens = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        match (&caller.viewer, operation) {
            (Some(viewer), OperationType::Mutation) => paid(self.mutations.take(viewer, tokens(cost.roots), Instant::now())),
            _ => self.pay(caller, tokens(1 + cost.fields / FIELDS_A_TOKEN)),
        }
    }

    /// What is refused had to be read too, and is paid for. The answer is why it is refused, or that it was one too many.
    pub(super) fn refusal(&self, caller: &Caller, why: Problem) -> Problem {
        self.pay(caller, 1).err().unwrap_or(why)
    }

    fn pay(&self, caller: &Caller, tokens: u32) -> Result<(), Problem> {
        match &caller.viewer {
            _ if !self.bounds.is_on => Ok(()),
            Some(viewer) => paid(self.queries.take(viewer, tokens, Instant::now())),
            None => paid(self.addresses.take(&caller.address, tokens, Instant::now())),
        }
    }

    /// A place for a connection of this address.
    pub(super) fn connection_at(&self, address: Address) -> Result<Option<CountedAddress>, TooMany> {
        if !self.bounds.is_on {
            return Ok(None);
        }
        self.address_connections.take(address).map(Some).ok_or(TooMany)
    }

    /// A place for a socket of this address.
    pub(super) fn socket_at(&self, address: Address) -> Result<Option<CountedAddress>, Problem> {
        if !self.bounds.is_on {
            return Ok(None);
        }
        paid(self.addresses.take(&address, 1, Instant::now()))?;
        let counted = self.address_sockets.take(address);
        counted.map(Some).ok_or_else(|| Problem::too_many(format!("An address has at most {} open sockets.", self.bounds.address_sockets)))
    }

    /// A place for a socket of this user. `Err` holds how many there may be.
    pub(super) fn socket_of(&self, user: &UserId) -> Result<Option<Counted<UserId>>, usize> {
        if !self.bounds.is_on {
            return Ok(None);
        }
        self.user_sockets.take(user.clone()).map(Some).ok_or(self.bounds.user_sockets)
    }

    /// A place for a stream of this user.
    pub(super) fn stream_of(&self, user: &UserId) -> Result<Option<Counted<UserId>>, Problem> {
        if !self.bounds.is_on {
            return Ok(None);
        }
        let counted = self.user_streams.take(user.clone());
        counted.map(Some).ok_or_else(|| Problem::too_many(format!("A user has at most {} open streams.", self.bounds.user_streams)))
    }
}

fn paid(taken: Result<(), TooFast>) -> Result<(), Problem> {
    taken.map_err(|TooFast { retry_after }| Problem::too_fast("Too fast: try again in a while.", retry_after))
}

/// How many of something each has, of those who have any.
pub(super) struct Counts<K> {
    counts: Arc<Mutex<HashMap<K, usize>>>,
    most: usize,
    refused: IntCounter,
}

/// One that counts until it is dropped.
pub(super) struct Counted<K: Eq + Hash> {
    counts: Arc<Mutex<HashMap<K, usize>>>,
    key: K,
}

impl<K: Eq + Hash + Clone> Counts<K> {
    pub(super) fn new(most: usize, refused: IntCounter) -> Self {
        Self { counts: Arc::default(), most, refused }
    }

    pub(super) fn take(&self, key: K) -> Option<Counted<K>> {
        let mut counts = lock(&self.counts);
        let count = counts.get(&key).copied().unwrap_or(0);
        if count >= self.most {
            self.refused.inc();
            return None;
        }
        counts.insert(key.clone(), count + 1);
        Some(Counted { counts: Arc::clone(&self.counts), key })
    }
}

impl<K: Eq + Hash> Drop for Counted<K> {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts);
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while the counts are held")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics;

    #[test]
    fn who_has_nothing_open_is_not_remembered() {
        let counts = Counts::new(2, metrics::counter("refused", "In a test."));
        let held: Vec<_> = (0..3).map(|_| counts.take("alice")).collect();
        assert_eq!(held.iter().filter(|taken| taken.is_some()).count(), 2);
        assert!(counts.take("bob").is_some());
        assert_eq!(lock(&counts.counts).len(), 1);
        drop(held);
        assert!(lock(&counts.counts).is_empty());
    }
}
