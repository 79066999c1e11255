//! Restrictions: suspended users and revoked tokens, held in memory, so that no request reads the store for them.
//!
//! The store's restrictions are read whole at the start. On a shared store a poller then reads what any server
//! has changed, every two seconds. While the store cannot be read the last known state serves; a metric says how
//! old it is.
//!
//! A revocation has no expiry but that of the tokens that it refuses. Where tokens have a longest life, one that
//! is older than it is dropped. Otherwise the number of held revocations is the bound; revoking everyone's tokens
//! replaces all of them. One that a clock ahead has made is not corrected: which of two clocks is wrong nobody can tell,
//! and a revocation is never undone. It refuses every token until the clock has passed it.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::future::try_join_all;
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;

use super::blocks::BlockLists;
use super::restriction_state::RestrictionState;
use crate::chat::bounds::Bounds;
use crate::chat::error::{Error, Result};
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::model::{Ban, Restriction, ServiceRight, Suspension, Timestamp, UserId, Viewer};
use crate::store::cluster::{SKEW_MAX, WRITE_ATTEMPT_MAX};
use crate::store::{self, LoggedRestriction, Restricted, RestrictionChange, Store};

/// Interval of the polls: with the time of a write, a change is known everywhere within four seconds.
const POLL_EVERY: Duration = Duration::from_secs(2);
/// Reads in a row, of which each but the last one was overtaken by a change on this server.
const READS_MAX: usize = 8;
/// Time before the last read from which a poll reads again: the longest write, and the skew of the clocks.
const OVERLAP_MICROS: i64 = 15 * 1_000_000;
const _: () =
    assert!(OVERLAP_MICROS as u128 >= WRITE_ATTEMPT_MAX.as_micros() + 2 * SKEW_MAX.as_micros());
/// Time after which every server knows of a change, where the store answers: two polls.
pub(crate) const KNOWN_WITHIN: Duration = Duration::from_secs(2 * POLL_EVERY.as_secs());
/// Age of a change of a block, at the last poll that succeeded, up to which a poll publishes it, unless this server did.
const BLOCKS_SINCE_MICROS: i64 = 10 * 60 * 1_000_000;
const BLOCKS_AT_ONCE: usize = 16;
const REVOCATIONS_MAX: usize = 100_000;
const SUSPENSIONS_MAX: usize = 1_000_000;
const SECOND_MICROS: i64 = 1_000_000;

/// Reason why a caller with a valid token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The token was revoked. A new token helps.
    Revoked,
    /// The user, or the service that acts for the user, is suspended.
    Suspended,
}

/// Caller of an admitted request, for a check before its write: the request may have waited since.
#[derive(Debug, Clone)]
pub(crate) struct AdmittedCaller {
    caller: Viewer,
    /// Moment of issue that a token of the caller's needed then.
    tokens_from: Option<Timestamp>,
}

impl AdmittedCaller {
    pub(crate) fn caller(&self) -> &Viewer {
        &self.caller
    }
}

/// Receives a signal after each change of a restriction.
pub struct RestrictionWatch(Option<watch::Receiver<()>>);

impl RestrictionWatch {
    /// Receives no signal, ever.
    pub fn none() -> Self {
        Self(None)
    }

    /// Waits for the next change.
    pub async fn changed(&mut self) {
        let is_changed = match &mut self.0 {
            Some(receiver) => receiver.changed().await.is_ok(),
            None => false,
        };
        if !is_changed {
            // The chat is closing: nothing changes any more.
            std::future::pending::<()>().await;
        }
    }
}

pub struct Restrictions {
    known: Arc<KnownRestrictions>,
    poller: Option<AbortOnDropHandle<()>>,
}

/// Restrictions as this server knows them, and where changes come from and go to.
struct KnownRestrictions {
    store: Weak<dyn Store>,
    clock: Arc<dyn Clock>,
    state: RwLock<RestrictionState>,
    changed: watch::Sender<()>,
    /// Longest life of a token. An older revocation refuses no token that is still valid.
    token_life: Option<Duration>,
    /// Block lists of this server, which the poller tells of changes.
    blocks: OnceLock<Weak<BlockLists>>,
}

impl KnownRestrictions {
    /// Wakes those who watch if somebody else is restricted than before.
    fn tell(&self, is_new: bool) {
        if is_new {
            self.changed.send_replace(());
        }
    }

    /// Reads the restrictions of these users. Returns false if changes on this server overtook each answer.
    async fn read_users(&self, store: &dyn Store, users: &[UserId]) -> store::Result<bool> {
        for _ in 0..READS_MAX {
            let changes = self.state.read().changes();
            let restrictions = store.restrictions_of(users).await?;
            let read: Vec<_> = users.iter().zip(restrictions).collect();
            let is_new = self.state.write().put_read(changes, &read);
            if let Some(is_new) = is_new {
                self.tell(is_new);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Restrictions {
    /// Reads all restrictions, and polls for changes on a shared store.
    pub(crate) async fn open(
        store: &Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        bounds: &Bounds,
    ) -> Result<Self, store::Error> {
        let is_shared = store.overlap_micros() > 0;
        // The log is read from before the whole: a change between the two is found by one of them.
        let since = clock.now();
        let state = RestrictionState::new(store.restrictions().await?);
        let known = Arc::new(KnownRestrictions {
            store: Arc::downgrade(store),
            clock,
            state: RwLock::new(state),
            changed: watch::Sender::new(()),
            token_life: bounds.token_life_max,
            blocks: OnceLock::new(),
        });
        let poller = RestrictionPoller {
            known: Arc::clone(&known),
            read_from: since,
            seen: HashSet::new(),
        };
        let poller = is_shared.then(|| AbortOnDropHandle::new(tokio::spawn(poller.run())));
        let restrictions = Self { known, poller };
        restrictions.prune();
        Ok(restrictions)
    }

    /// Makes the poller tell these lists of the changes that it reads.
    pub(crate) fn tell_blocks(&self, blocks: &Arc<BlockLists>) {
        // A chat has one.
        let _ = self.known.blocks.set(Arc::downgrade(blocks));
    }

    /// Adds the age of the known state to the metrics of the process.
    pub(crate) fn register(&self, metrics: &Metrics) {
        let known = Arc::clone(&self.known);
        let is_polled = self.poller.is_some();
        metrics.read(
            "wideroom_restrictions_age_seconds",
            "Seconds since suspensions and revocations were last read from a shared store.",
            move || {
                if is_polled {
                    known.state.read().read_at.elapsed().as_secs_f64()
                } else {
                    0.0
                }
            },
        );
    }

    /// Whether a caller with a valid token is refused, and why. Reads memory alone.
    pub fn check(&self, viewer: &Viewer, issued_at: Option<Timestamp>) -> Result<(), Refusal> {
        let now = self.known.clock.now();
        let state = self.known.state.read();
        if state.is_caller_suspended(viewer, now) {
            return Err(Refusal::Suspended);
        }
        if state.is_revoked(viewer.subject(), issued_at) {
            return Err(Refusal::Revoked);
        }
        Ok(())
    }

    /// The caller of a request that was admitted just now.
    pub(crate) fn admitted(&self, caller: &Viewer) -> AdmittedCaller {
        AdmittedCaller {
            caller: caller.clone(),
            tokens_from: self.known.state.read().tokens_from(caller.subject()),
        }
    }

    /// Refuses a caller whom a restriction since the admission of the request concerns. Reads memory alone.
    pub(crate) fn require_admitted(&self, admitted: &AdmittedCaller) -> Result<()> {
        let (now, state) = (self.known.clock.now(), self.known.state.read());
        if state.is_caller_suspended(&admitted.caller, now) {
            return Err(Error::Forbidden("the user is suspended"));
        }
        // The next try shows whether the revocation concerns the token.
        if state.tokens_from(admitted.caller.subject()) > admitted.tokens_from {
            return Err(Error::Busy);
        }
        Ok(())
    }

    /// The rule of every service field, before any look at its target.
    pub fn require(&self, caller: &Viewer, right: ServiceRight) -> Result<()> {
        require(caller, right)
    }

    /// The restrictions of these users, for a service with the right. Everyone else sees none.
    pub async fn of_users(&self, caller: &Viewer, users: &[UserId]) -> Result<Vec<Restriction>> {
        if !caller.may(ServiceRight::Users) {
            return Ok(vec![Restriction::default(); users.len()]);
        }
        let store = self.known.store.upgrade().ok_or(Error::Busy)?;
        let now = self.known.clock.now();
        let mut found = store.restrictions_of(users).await?;
        for restriction in &mut found {
            restriction.suspension = restriction
                .suspension
                .take()
                .filter(|one| one.holds_at(now));
        }
        Ok(found)
    }

    pub fn watch(&self) -> RestrictionWatch {
        RestrictionWatch(Some(self.known.changed.subscribe()))
    }

    /// Whether a user is suspended now.
    pub(crate) fn is_suspended(&self, user: &UserId) -> bool {
        let now = self.known.clock.now();
        self.known.state.read().is_suspended(user, now)
    }

    /// Suspends a user. A second suspension replaces the first.
    pub async fn suspend(
        &self,
        caller: &Viewer,
        user: &UserId,
        until: Option<Timestamp>,
        reason: Option<String>,
    ) -> Result<()> {
        require(caller, ServiceRight::Users)?;
        let now = self.known.clock.now();
        check_until(until, now)?;
        if let Some(reason) = &reason {
            check_reason(reason)?;
        }
        self.prune();
        {
            let state = self.known.state.read();
            if !state.suspended.contains_key(user) && state.suspended.len() >= SUSPENSIONS_MAX {
                return Err(Error::Full(
                    "too many users are suspended: restore some of them first",
                ));
            }
        }
        let suspension = Suspension {
            since: now,
            until,
            reason: reason.filter(|reason| !reason.is_empty()),
        };
        self.change(&Some(user.clone()), &RestrictionChange::Suspend(suspension))
            .await
    }

    /// Ends the suspension of a user. Without one, nothing changes.
    pub async fn restore(&self, caller: &Viewer, user: &UserId) -> Result<()> {
        require(caller, ServiceRight::Users)?;
        self.change(&Some(user.clone()), &RestrictionChange::Restore)
            .await
    }

    /// Refuses the tokens of a user, or of everyone, that were issued before a moment: now, if none is given.
    /// Returns the moment, rounded up to a whole second.
    pub async fn revoke_tokens(
        &self,
        caller: &Viewer,
        user: Option<&UserId>,
        issued_before: Option<Timestamp>,
    ) -> Result<Timestamp> {
        require(caller, ServiceRight::Users)?;
        let now = self.known.clock.now();
        let moment = issued_before.unwrap_or(now);
        if moment > now {
            return Err(Error::bad_input(
                &["input", "issuedBefore"],
                "issuedBefore must not be in the future",
            ));
        }
        // Tokens count whole seconds: one of the very second of a revocation is refused.
        let seconds = moment.micros().div_euclid(SECOND_MICROS)
            + i64::from(moment.micros().rem_euclid(SECOND_MICROS) != 0);
        let moment = Timestamp::from_micros(seconds.saturating_mul(SECOND_MICROS));
        if let Some(user) = user {
            self.prune();
            let state = self.known.state.read();
            if !state.tokens_from.contains_key(user) && state.tokens_from.len() >= REVOCATIONS_MAX {
                return Err(Error::Full(
                    "too many revocations are held: shorten the life of tokens, or revoke everyone's",
                ));
            }
        }
        self.change(&user.cloned(), &RestrictionChange::RevokeTokens(moment))
            .await?;
        Ok(moment)
    }

    /// Persists a change, and then applies it on this server. The other servers poll.
    async fn change(&self, restricted: &Restricted, change: &RestrictionChange) -> Result<()> {
        let store = self.known.store.upgrade().ok_or(Error::Busy)?;
        let after = store.restrict(restricted, change).await?;
        let is_new = self.known.state.write().put_change(restricted, &after);
        self.known.tell(is_new);
        if let Some(user) = restricted {
            // The answer to the earlier of two changes may come last, and the store knows their order. The change is persisted whatever
            // this read finds.
            let read = self
                .known
                .read_users(&*store, std::slice::from_ref(user))
                .await;
            if let Err(error) = read {
                tracing::warn!(%error, "the server failed to read the restrictions of a user again after it changed them");
            }
        }
        Ok(())
    }

    fn prune(&self) {
        let now = self.known.clock.now();
        self.known.state.write().prune(now, self.known.token_life);
    }
}

/// Polls the log of a shared store for changes by any server.
struct RestrictionPoller {
    known: Arc<KnownRestrictions>,
    /// Start of the last read that succeeded.
    read_from: Timestamp,
    /// Entries that were applied, as each is read several times.
    seen: HashSet<LoggedRestriction>,
}

impl RestrictionPoller {
    async fn run(mut self) {
        let mut ticks = interval(POLL_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(store) = self.known.store.upgrade() else {
                return;
            };
            if let Err(error) = self.poll(&*store).await {
                tracing::warn!(%error, "the server failed to read suspensions and revocations; it uses the last known ones and retries");
            }
        }
    }

    async fn poll(&mut self, store: &dyn Store) -> store::Result<()> {
        let now = self.known.clock.now();
        let since = self.read_from.plus_micros(-OVERLAP_MICROS);
        let logged = store.restriction_log(since).await?;
        let new: Vec<_> = logged
            .into_iter()
            .filter(|entry| !self.seen.contains(entry))
            .collect();
        if new.iter().any(|entry| entry.restricted.is_none()) {
            // Revocations of everyone are rare: one read of all finds them.
            for (restricted, restriction) in store.restrictions().await? {
                if restricted.is_none() {
                    let is_new = self.known.state.write().put(&restricted, &restriction);
                    self.known.tell(is_new);
                }
            }
        }
        let users: HashSet<_> = new
            .iter()
            .filter_map(|entry| entry.restricted.clone())
            .collect();
        let users: Vec<_> = users.into_iter().collect();
        // Otherwise the next poll reads these users again.
        if self.known.read_users(store, &users).await? {
            self.follow_blocks(&users).await?;
            self.seen.extend(new);
            self.seen
                .retain(|entry| entry.at >= since.plus_micros(-OVERLAP_MICROS));
            self.read_from = now;
            self.known.state.write().read_at = Instant::now();
        }
        Ok(())
    }

    /// A logged user has changed a block, or has another restriction.
    async fn follow_blocks(&self, users: &[UserId]) -> store::Result<()> {
        let Some(blocks) = self.known.blocks.get().and_then(Weak::upgrade) else {
            return Ok(());
        };
        let since = self.read_from.plus_micros(-BLOCKS_SINCE_MICROS);
        for some in users.chunks(BLOCKS_AT_ONCE) {
            try_join_all(some.iter().map(|user| blocks.on_logged(user, since))).await?;
        }
        Ok(())
    }
}

/// The rule of every service field, before any look at its target.
pub(crate) fn require(caller: &Viewer, right: ServiceRight) -> Result<()> {
    if caller.may(right) {
        return Ok(());
    }
    Err(Error::Forbidden(match right {
        ServiceRight::Outbox => "only a service with the scope `wideroom:outbox` may do this",
        ServiceRight::Read => "only a service with the scope `wideroom:read` may do this",
        ServiceRight::Act => "only a service with the scope `wideroom:act` may do this",
        ServiceRight::Moderate => "only a service with the scope `wideroom:moderate` may do this",
        ServiceRight::Users => "only a service with the scope `wideroom:users` may do this",
        ServiceRight::Erase => "only a service with the scope `wideroom:erase` may do this",
    }))
}

/// The rule of the ends of suspensions, bans and silences.
pub(crate) fn check_until(until: Option<Timestamp>, now: Timestamp) -> Result<()> {
    if until.is_some_and(|until| until <= now) {
        let message = "until must be in the future";
        return Err(Error::bad_input(&["input", "until"], message));
    }
    Ok(())
}

/// The rule of the reasons of suspensions and bans.
pub(crate) fn check_reason(reason: &str) -> Result<()> {
    const BYTES_MAX: usize = Suspension::REASON_BYTES_MAX;
    const _: () = assert!(BYTES_MAX == Ban::REASON_BYTES_MAX);
    if reason.len() > BYTES_MAX || reason.chars().any(char::is_control) {
        let message = format!("a reason has at most {BYTES_MAX} bytes and no control characters");
        return Err(Error::bad_input(&["input", "reason"], message));
    }
    Ok(())
}
