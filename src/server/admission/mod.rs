//! Admission control: token buckets of users and addresses, and limits of their open connections, sockets and streams.
//!
//! These limits protect this server. The chat has the rates that protect other users (sends, new conversations).
//!
//! A request pays one token before the server reads it, so every refusal is paid. It pays the rest of its price before
//! the execution, so that a refusal always means "nothing was done". While no user is known the address pays: for
//! opening a socket, for verifying a signature, and for requests without a token. A service has rates and limits of its
//! own, and pays also for what it does in the name of a user.

mod address;
mod answer_quota;
mod concurrency;
mod networks;

use std::sync::Arc;
use std::time::Duration;

use async_graphql::parser::types::OperationType;
use tokio::time::Instant;

pub use self::address::TrustedProxies;
pub(crate) use self::address::{ClientAddress, Peer, is_forwarded};
pub(crate) use self::answer_quota::AnswerQuotas;
use self::concurrency::ConcurrencyLimit;
pub(crate) use self::concurrency::ConcurrencyPermit;
pub(crate) use self::networks::AddressPermit;
pub use self::networks::NetworkFactors;
use self::networks::{AddressBuckets, AddressConcurrency};
use crate::graphql::OperationCost;
use crate::metrics::{IntCounter, IntCounterVec, Metrics};
use crate::model::{UserId, Viewer};
use crate::rate::{Buckets, Pace, Pacing, Rate, TooFast};
use crate::server::answer::Problem;

/// Rates of one user and one address, and limits of what each has open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmissionBounds {
    /// False lifts every limit below.
    pub is_on: bool,
    /// Requests of any kind, and executions of subscription events. Each costs one token, and more in proportion to the
    /// largest possible answer.
    pub queries_per_second: u32,
    pub queries_burst: u32,
    /// Root fields of mutations.
    pub mutations_per_second: u32,
    pub mutations_burst: u32,
    /// Requests of one address while no user is known.
    pub address_per_second: u32,
    pub address_burst: u32,
    /// Requests, executions of subscription events and root fields of mutations of a service, whoever it acts for.
    pub service_per_second: u32,
    pub service_burst: u32,
    /// Live writes of a service, whoever it acts for.
    pub service_live_per_second: u32,
    /// WebSockets of a service, and its subscriptions over HTTP.
    pub service_sockets: usize,
    pub user_sockets: usize,
    pub address_sockets: usize,
    /// Connections that are not WebSockets. Connections of a trusted proxy do not count.
    pub address_connections: usize,
    /// Factors for the wider networks of IPv6.
    pub networks: NetworkFactors,
    /// Subscriptions over HTTP of one user.
    pub user_streams: usize,
    /// Answers of one user in flight, from admission until the last byte is written.
    pub user_answers: usize,
    /// Bytes of those answers and of subscription events.
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
            service_per_second: 200,
            service_burst: 800,
            service_live_per_second: 2_000,
            service_sockets: 1_000,
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

/// Fields of an answer that one token pays for.
const FIELDS_PER_TOKEN: usize = 200;
/// Live writes of a user.
const USER_LIVE: Rate = Rate::per_second(10, 20);
/// Root fields beyond the first one that a further token pays for.
const ROOTS_PER_TOKEN: usize = 5;

/// Sender of a request: the address, and the viewer if there is a valid token.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) viewer: Option<Viewer>,
    pub(crate) address: ClientAddress,
}

/// Refusal of a connection, before a byte of it is read: its address has too many.
pub(crate) struct TooManyConnections;

pub(crate) struct Admission {
    bounds: AdmissionBounds,
    users: SubjectLimits,
    services: SubjectLimits,
    addresses: AddressBuckets,
    address_sockets: AddressConcurrency,
    address_connections: AddressConcurrency,
}

/// Rates and limits of one kind of subjects: users or services.
struct SubjectLimits {
    queries: Arc<Pacing>,
    mutations: Buckets,
    live_writes: Buckets,
    sockets: ConcurrencyLimit<UserId>,
    streams: ConcurrencyLimit<UserId>,
}

impl SubjectLimits {
    fn of_users(bounds: &AdmissionBounds, refused: impl Fn(&str) -> IntCounter) -> Self {
        let queries = Rate::per_second(bounds.queries_per_second, bounds.queries_burst);
        let mutations = Rate::per_second(bounds.mutations_per_second, bounds.mutations_burst);
        Self {
            queries: Pacing::new("queries", Buckets::new("queries", queries)),
            mutations: Buckets::new("mutations", mutations),
            live_writes: Buckets::new("live_writes", USER_LIVE),
            sockets: ConcurrencyLimit::new(bounds.user_sockets, refused("user_sockets")),
            streams: ConcurrencyLimit::new(bounds.user_streams, refused("user_streams")),
        }
    }

    fn of_services(bounds: &AdmissionBounds, refused: impl Fn(&str) -> IntCounter) -> Self {
        let rate = Rate::per_second(bounds.service_per_second, bounds.service_burst);
        let max = bounds.service_sockets;
        let live_per_second = bounds.service_live_per_second;
        let live = Rate::per_second(live_per_second, live_per_second.saturating_mul(2));
        Self {
            queries: Pacing::new("service_queries", Buckets::new("service_queries", rate)),
            mutations: Buckets::new("service_mutations", rate),
            live_writes: Buckets::new("service_live_writes", live),
            sockets: ConcurrencyLimit::new(max, refused("service_sockets")),
            streams: ConcurrencyLimit::new(max, refused("service_streams")),
        }
    }

    fn register(&self, metrics: &Metrics) {
        self.queries.register(metrics);
        self.mutations.register(metrics);
        self.live_writes.register(metrics);
    }

    /// Takes the tokens of a mutation's root fields. One that only writes live messages gets the token of its request back: theirs
    /// is a rate of its own.
    fn take_mutation(&self, subject: &UserId, cost: OperationCost) -> Result<(), TooFast> {
        let (now, count) = (Instant::now(), |count| {
            u32::try_from(count).unwrap_or(u32::MAX)
        });
        if cost.live_writes > 0 {
            let live_writes = count(cost.live_writes);
            self.live_writes.take(subject, live_writes, now)?;
        }
        if cost.is_live_write() {
            self.queries.buckets().give_back(subject, 1);
            return Ok(());
        }
        let others = count(cost.roots - cost.live_writes);
        self.mutations.take(subject, others, now)
    }
}

impl Admission {
    pub(crate) fn new(bounds: AdmissionBounds, refusals: IntCounterVec) -> Self {
        let refused = |what: &str| refusals.with_label_values(&[what]);
        Self {
            users: SubjectLimits::of_users(&bounds, refused),
            services: SubjectLimits::of_services(&bounds, refused),
            addresses: AddressBuckets::new(
                "address",
                Rate::per_second(bounds.address_per_second, bounds.address_burst),
                bounds.networks,
            ),
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
            bounds,
        }
    }

    pub(crate) fn register(&self, metrics: &Metrics) {
        self.users.register(metrics);
        self.services.register(metrics);
        self.addresses.register(metrics);
    }

    /// Limits of the subject that pays for a viewer.
    fn limits_of(&self, viewer: &Viewer) -> &SubjectLimits {
        match viewer.service_name() {
            Some(_) => &self.services,
            None => &self.users,
        }
    }

    /// Rate of the live writes of a service, which is also that of the messages of its sockets.
    pub(crate) fn service_live_per_second(&self) -> u32 {
        self.bounds.service_live_per_second
    }

    /// Takes the one token that every request costs, before the server reads the request.
    pub(crate) fn enter(&self, caller: &Caller) -> Result<(), Problem> {
        self.pay(caller, 1, Duration::ZERO)
    }

    /// Takes the rest of an operation's price before the execution.
    pub(crate) fn admit(
        &self,
        caller: &Caller,
        operation: OperationType,
        cost: OperationCost,
    ) -> Result<(), Problem> {
        if !self.bounds.is_on {
            return Ok(());
        }
        let buckets = match &caller.viewer {
            Some(viewer) => self.limits_of(viewer).queries.buckets(),
            None => &self.addresses.own,
        };
        // A bucket holds at most its burst, and the request has taken one token already.
        let rest = price(cost).min(buckets.burst()) - 1;
        if rest > 0 {
            // A client that retries pays the first token again.
            self.pay(caller, rest, buckets.token_every())?;
        }
        match (&caller.viewer, operation) {
            (Some(viewer), OperationType::Mutation) => paid(
                self.limits_of(viewer).take_mutation(viewer.subject(), cost),
                Duration::ZERO,
            ),
            _ => Ok(()),
        }
    }

    /// Pace of the event executions that a subscription pays itself.
    pub(crate) fn pace(&self, viewer: Option<&Viewer>, cost: OperationCost) -> Pace {
        match viewer {
            Some(viewer) if self.bounds.is_on => {
                let queries = &self.limits_of(viewer).queries;
                queries.pace(viewer.subject(), price(cost))
            }
            Some(_) | None => Pace::free(),
        }
    }

    fn pay(&self, caller: &Caller, tokens: u32, extra_wait: Duration) -> Result<(), Problem> {
        if !self.bounds.is_on {
            return Ok(());
        }
        let now = Instant::now();
        let taken = match &caller.viewer {
            Some(viewer) => {
                let buckets = self.limits_of(viewer).queries.buckets();
                buckets.take(viewer.subject(), tokens, now)
            }
            None => self.addresses.take(&caller.address, tokens, now),
        };
        paid(taken, extra_wait)
    }

    /// Acquires a permit, unless admission control is off.
    fn permit<T, E>(
        &self,
        acquire: impl FnOnce() -> Option<T>,
        refusal: impl FnOnce() -> E,
    ) -> Result<Option<T>, E> {
        if !self.bounds.is_on {
            return Ok(None);
        }
        acquire().map(Some).ok_or_else(refusal)
    }

    /// Acquires a connection permit of an address.
    pub(crate) fn connection_at(
        &self,
        address: ClientAddress,
    ) -> Result<Option<AddressPermit>, TooManyConnections> {
        let acquire = || self.address_connections.take(address);
        self.permit(acquire, || TooManyConnections)
    }

    /// Acquires a socket permit of an address, which has paid its token.
    pub(crate) fn socket_at(
        &self,
        address: ClientAddress,
    ) -> Result<Option<AddressPermit>, Problem> {
        let most = self.bounds.address_sockets;
        let sentence = || format!("An address has at most {most} open sockets.");
        let acquire = || self.address_sockets.take(address);
        self.permit(acquire, || Problem::too_many(sentence()))
    }

    /// Acquires a socket permit of the viewer's subject. `Err` holds the limit.
    pub(crate) fn socket_of(
        &self,
        viewer: &Viewer,
    ) -> Result<Option<ConcurrencyPermit<UserId>>, usize> {
        let sockets = &self.limits_of(viewer).sockets;
        let acquire = || sockets.acquire(viewer.subject().clone());
        self.permit(acquire, || sockets.max)
    }

    /// Acquires a stream permit of the viewer's subject.
    pub(crate) fn stream_of(
        &self,
        viewer: &Viewer,
    ) -> Result<Option<ConcurrencyPermit<UserId>>, Problem> {
        let streams = &self.limits_of(viewer).streams;
        let sentence = || format!("A user has at most {} open streams.", streams.max);
        let acquire = || streams.acquire(viewer.subject().clone());
        self.permit(acquire, || Problem::too_many(sentence()))
    }
}

/// Tokens that an operation, or one execution of a subscription event, costs.
fn price(cost: OperationCost) -> u32 {
    let more_roots = cost.roots.saturating_sub(1) / ROOTS_PER_TOKEN;
    u32::try_from(1 + cost.fields / FIELDS_PER_TOKEN + more_roots).unwrap_or(u32::MAX)
}

/// Maps a refusal of a bucket to a problem. The client also waits for `extra_wait`.
fn paid(taken: Result<(), TooFast>, extra_wait: Duration) -> Result<(), Problem> {
    let too_fast = |wait: TooFast| {
        Problem::too_fast(
            "Too many requests: retry after the given wait.",
            wait.retry_after.saturating_add(extra_wait),
        )
    };
    taken.map_err(too_fast)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_pays_for_its_fields_and_for_its_root_fields() {
        for (fields, roots, tokens) in [
            (1, 1, 1),
            (199, 5, 1),
            (200, 1, 2),
            (40, 6, 2),
            (20, 20, 4),
            (1_000, 20, 9),
        ] {
            let cost = OperationCost {
                fields,
                roots,
                live_writes: 0,
            };
            assert_eq!(price(cost), tokens, "{cost:?}");
        }
    }
}
