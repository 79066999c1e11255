//! How often, and how many: the rates of users and addresses, and the connections, sockets and streams that each may have open.
//!
//! Here is what costs this server; what costs other users (a send, a new conversation with somebody) has its rate in the chat, which
//! knows whether it is one. A request pays one token before anything in it is read, and so every refusal is paid; the rest of its price it
//! pays before it is executed, so that a client that is refused can be told that nothing was done. While no user is known the address pays:
//! for opening a socket, for a token whose signature is still to be verified, and for what is asked without a token.

mod address;
mod answer_quota;
mod concurrency;
mod networks;

use std::sync::Arc;
use std::time::Duration;

use async_graphql::parser::types::OperationType;
use tokio::time::Instant;

pub use self::address::TrustedProxies;
pub(crate) use self::address::{ClientAddress, Peer};
pub(crate) use self::answer_quota::{AnswerQuota, AnswerQuotas};
use self::concurrency::ConcurrencyLimit;
pub(crate) use self::concurrency::ConcurrencyPermit;
pub(crate) use self::networks::AddressPermit;
pub use self::networks::NetworkFactors;
use self::networks::{AddressBuckets, AddressConcurrency};
use crate::graphql::OperationCost;
use crate::metrics::{IntCounterVec, Metrics};
use crate::model::UserId;
use crate::rate::{Buckets, Pace, Pacing, Rate, TooFast};
use crate::server::answer::Problem;

/// How often one user or one address may ask for something, and how much they may have open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmissionBounds {
    /// Off: none of what is below holds.
    pub is_on: bool,
    /// Requests of any kind, and executions of subscription events. A small one counts one, a large one as many as its answer may be large.
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

impl Default for AdmissionBounds {
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
pub(crate) struct Caller {
    pub(crate) viewer: Option<UserId>,
    pub(crate) address: ClientAddress,
}

/// One address has too many connections for one more, which is not even read.
pub(crate) struct TooManyConnections;

pub(crate) struct Admission {
    bounds: AdmissionBounds,
    queries: Arc<Pacing>,
    mutations: Buckets,
    addresses: AddressBuckets,
    user_sockets: ConcurrencyLimit<UserId>,
    address_sockets: AddressConcurrency,
    address_connections: AddressConcurrency,
    user_streams: ConcurrencyLimit<UserId>,
}

impl Admission {
    pub(crate) fn new(bounds: AdmissionBounds, refusals: IntCounterVec) -> Self {
        let refused = |what| refusals.with_label_values(&[what]);
        Self {
            queries: Pacing::new(
                "queries",
                Buckets::new(
                    "queries",
                    Rate::per_second(bounds.queries_per_second, bounds.queries_burst),
                ),
            ),
            mutations: Buckets::new(
                "mutations",
                Rate::per_second(bounds.mutations_per_second, bounds.mutations_burst),
            ),
            addresses: AddressBuckets::new(
                "address",
                Rate::per_second(bounds.address_per_second, bounds.address_burst),
                bounds.networks,
            ),
            user_sockets: ConcurrencyLimit::new(bounds.user_sockets, refused("user_sockets")),
            address_sockets: AddressConcurrency::new(
                bounds.address_sockets,
                bounds.networks,
                &refused("address_sockets"),
            ),
            address_connections: AddressConcurrency::new(
                bounds.address_connections,
                bounds.networks,
                &refused("address_connections"),
            ),
            user_streams: ConcurrencyLimit::new(bounds.user_streams, refused("user_streams")),
            bounds,
        }
    }

    pub(crate) fn register(&self, metrics: &Metrics) {
        self.queries.register(metrics);
        self.mutations.register(metrics);
        self.addresses.register(metrics);
    }

    /// Takes the one token that each request costs, before anything in it is read.
    pub(crate) fn enter(&self, caller: &Caller) -> Result<(), Problem> {
        self.pay(caller, 1, Duration::ZERO)
    }

    /// Takes the rest of an operation's price, before it is executed.
    pub(crate) fn admit(
        &self,
        caller: &Caller,
        operation: OperationType,
        cost: OperationCost,
    ) -> Result<(), Problem> {
        if !self.bounds.is_on {
            return Ok(());
        }
        let (burst, token_every) = match &caller.viewer {
            Some(_) => (
                self.bounds.queries_burst,
                self.queries.buckets().token_every(),
            ),
            None => (self.bounds.address_burst, self.addresses.token_every()),
        };
        // A bucket holds no more than its burst, and one token of it is gone already.
        let rest = price(cost).min(burst.max(1)) - 1;
        if rest > 0 {
            // A client that comes back pays the first token again.
            self.pay(caller, rest, token_every)?;
        }
        match (&caller.viewer, operation) {
            (Some(viewer), OperationType::Mutation) => paid(
                self.mutations.take(
                    viewer,
                    u32::try_from(cost.roots).unwrap_or(u32::MAX),
                    Instant::now(),
                ),
                Duration::ZERO,
            ),
            _ => Ok(()),
        }
    }

    /// The pace at which the events of a subscription are executed, where nobody executes them for its user.
    pub(crate) fn pace(&self, viewer: Option<&UserId>, cost: OperationCost) -> Pace {
        match viewer {
            Some(viewer) if self.bounds.is_on => self.queries.pace(viewer, price(cost)),
            Some(_) | None => Pace::free(),
        }
    }

    fn pay(&self, caller: &Caller, tokens: u32, beside: Duration) -> Result<(), Problem> {
        match &caller.viewer {
            _ if !self.bounds.is_on => Ok(()),
            Some(viewer) => paid(
                self.queries.buckets().take(viewer, tokens, Instant::now()),
                beside,
            ),
            None => paid(
                self.addresses.take(&caller.address, tokens, Instant::now()),
                beside,
            ),
        }
    }

    /// A place for a connection of this address.
    pub(crate) fn connection_at(
        &self,
        address: ClientAddress,
    ) -> Result<Option<AddressPermit>, TooManyConnections> {
        if !self.bounds.is_on {
            return Ok(None);
        }
        self.address_connections
            .take(address)
            .map(Some)
            .ok_or(TooManyConnections)
    }

    /// A place for a socket of this address, which has paid already.
    pub(crate) fn socket_at(
        &self,
        address: ClientAddress,
    ) -> Result<Option<AddressPermit>, Problem> {
        if !self.bounds.is_on {
            return Ok(None);
        }
        let counted = self.address_sockets.take(address);
        counted.map(Some).ok_or_else(|| {
            Problem::too_many(format!(
                "An address has at most {} open sockets.",
                self.bounds.address_sockets
            ))
        })
    }

    /// A place for a socket of this user. `Err` holds how many there may be.
    pub(crate) fn socket_of(
        &self,
        user: &UserId,
    ) -> Result<Option<ConcurrencyPermit<UserId>>, usize> {
        if !self.bounds.is_on {
            return Ok(None);
        }
        self.user_sockets
            .take(user.clone())
            .map(Some)
            .ok_or(self.bounds.user_sockets)
    }

    /// A place for a stream of this user.
    pub(crate) fn stream_of(
        &self,
        user: &UserId,
    ) -> Result<Option<ConcurrencyPermit<UserId>>, Problem> {
        if !self.bounds.is_on {
            return Ok(None);
        }
        let counted = self.user_streams.take(user.clone());
        counted.map(Some).ok_or_else(|| {
            Problem::too_many(format!(
                "A user has at most {} open streams.",
                self.bounds.user_streams
            ))
        })
    }
}

/// Tokens of an operation, or of one execution of a subscription event.
fn price(cost: OperationCost) -> u32 {
    u32::try_from(1 + cost.fields / FIELDS_A_TOKEN).unwrap_or(u32::MAX)
}

/// `beside` is what is to be waited for in addition.
fn paid(taken: Result<(), TooFast>, beside: Duration) -> Result<(), Problem> {
    let too_fast = |wait: TooFast| {
        Problem::too_fast(
            "Too fast: try again in a while.",
            wait.retry_after.saturating_add(beside),
        )
    };
    taken.map_err(too_fast)
}
