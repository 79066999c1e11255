//! Introductions: users who are added to a conversation without consent, and the bounds that
//! protect them.
//!
//! Each user with whom the viewer has no relationship costs the viewer one token of an hourly
//! bucket, through any mutation. The number of a user's conversations is bounded. So is the number
//! of large ones; those created by others do not count until the user acts there.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use lru::LruCache;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::chat::access::Access;
use crate::chat::access::relationship::Relationships;
use crate::chat::bounds::Bounds;
use crate::chat::components::Components;
use crate::chat::error::{Error, Result};
use crate::chat::rate_limit::RateLimit;
use crate::chat::replay_limiter::ReplayLimiter;
use crate::metrics::Metrics;
use crate::model::{Conversation, ConversationId, UserId, Viewer};
use crate::rate::Rate;
use crate::store::Store;

/// Input path of a refusal: the username or usernames of the call.
pub(crate) type InputPath = &'static [&'static str];

/// Users whose number of conversations is cached.
const COUNTED_MAX: NonZeroUsize = NonZeroUsize::new(16_384).expect("it is not zero");
/// Lifetime of a cached count: other servers add users too.
const COUNT_LIFETIME: Duration = Duration::from_secs(3_600);
/// Lifetime of the count of a user at the bound, who may have left some conversations.
const FULL_LIFETIME: Duration = Duration::from_secs(60);
const CONCURRENCY: usize = 8;

pub(crate) struct Introductions {
    store: Arc<dyn Store>,
    access: Arc<Access>,
    relationships: Arc<Relationships>,
    replay_limiter: Arc<ReplayLimiter>,
    strangers: RateLimit,
    counts: ConversationCounts,
    conversations_max: usize,
    large_conversations_max: usize,
}

/// Cache of the number of conversations of each user. Joins on this server advance it; a departure
/// shows at the next scan.
struct ConversationCounts(Mutex<LruCache<UserId, ConversationCount>>);

#[derive(Clone, Copy)]
struct ConversationCount {
    count: usize,
    at: Instant,
}

impl ConversationCounts {
    fn new() -> Self {
        Self(Mutex::new(LruCache::new(COUNTED_MAX)))
    }

    /// The cached count, unless it has expired.
    fn get(&self, user: &UserId, max: usize) -> Option<usize> {
        let cached = *self.0.lock().get(user)?;
        let lifetime = if cached.count < max {
            COUNT_LIFETIME
        } else {
            FULL_LIFETIME
        };
        (cached.at.elapsed() < lifetime).then_some(cached.count)
    }

    fn put(&self, user: &UserId, count: ConversationCount) {
        self.0.lock().put(user.clone(), count);
    }
}

/// Tokens that were charged for strangers.
#[derive(Default)]
pub(crate) struct StrangerCharge(u32);

impl Introductions {
    pub(crate) fn new(components: &Components, bounds: &Bounds) -> Self {
        let rate = Rate::per_hour(bounds.rates.strangers_per_hour);
        Self {
            store: Arc::clone(&components.store),
            access: Arc::clone(&components.access),
            relationships: Arc::clone(&components.relationships),
            replay_limiter: Arc::clone(&components.replay_limiter),
            strangers: RateLimit::new("strangers", rate, bounds.rates.is_on),
            counts: ConversationCounts::new(),
            conversations_max: bounds.conversations_max,
            large_conversations_max: bounds.large_conversations_max,
        }
    }

    pub(crate) fn register(&self, metrics: &Metrics) {
        self.strangers.register(metrics);
    }

    /// Charges a token for each of these users who is a stranger to the viewer: for all of them, or
    /// for none. Agents cost none.
    pub(crate) async fn charge_strangers(
        &self,
        caller: &Viewer,
        users: &[UserId],
    ) -> Result<StrangerCharge> {
        let viewer = &caller.user;
        // An agent is no stranger: it would be one each time, as it has no inbox.
        let people = users.iter().filter(|user| !user.is_agent());
        let people: Vec<_> = people.cloned().collect();
        if caller.writes_at_service_rates()
            || !self.strangers.is_on()
            || people.iter().all(|user| user == viewer)
        {
            return Ok(StrangerCharge::default());
        }
        // A viewer with many groups causes many reads, so the limiter admits a few checks at a
        // time.
        let permit = self.replay_limiter.acquire(viewer).await?;
        let found = self.relationships.of(viewer, &people).await?;
        drop(permit);
        let strangers =
            u32::try_from(found.iter().filter(|found| found.is_none()).count()).unwrap_or(u32::MAX);
        self.strangers.take_all(viewer, strangers)?;
        Ok(StrangerCharge(strangers))
    }

    /// Refunds the charge of a conversation that existed already.
    pub(crate) fn refund(&self, viewer: &UserId, StrangerCharge(tokens): StrangerCharge) {
        self.strangers.refund(viewer, tokens);
    }

    /// Refuses if the viewer or one of these users takes part in the maximum number of
    /// conversations already.
    pub(crate) async fn check_conversation_bound(
        &self,
        viewer: &UserId,
        users: &[UserId],
        path: InputPath,
    ) -> Result<()> {
        let max = self.conversations_max;
        for users in users.chunks(CONCURRENCY) {
            let counts = try_join_all(users.iter().map(|user| self.conversation_count(user, max)));
            let counts = counts.await?;
            if let Some((user, _)) = users.iter().zip(counts).find(|(_, count)| *count >= max) {
                let message = if user == viewer {
                    format!(
                        "you take part in {max} conversations already, which is the most: leave some of them first"
                    )
                } else {
                    // The message does not name the user: that number is private.
                    format!(
                        "one of these users takes part in {max} conversations already, which is the most"
                    )
                };
                return Err(Error::bad_input(path, message));
            }
        }
        Ok(())
    }

    /// Scans a user's conversations at most once an hour, or once a minute for a user at the bound. Those of an
    /// agent are not counted: it may take part in any number.
    async fn conversation_count(&self, user: &UserId, max: usize) -> Result<usize> {
        if user.is_agent() {
            return Ok(0);
        }
        if let Some(cached) = self.counts.get(user, max) {
            return Ok(cached);
        }
        let at = Instant::now();
        let count = self.store.conversation_count(user, max).await?;
        self.counts.put(user, ConversationCount { count, at });
        Ok(count)
    }

    /// Call after these users have joined one more conversation.
    pub(crate) fn count_joiners<'a>(&self, users: impl IntoIterator<Item = &'a UserId>) {
        let mut counts = self.counts.0.lock();
        for user in users {
            if let Some(cached) = counts.peek_mut(user) {
                cached.count += 1;
            }
        }
    }

    /// Refuses if one of these users would exceed the bound of large conversations. `conversation`
    /// is the one that grows, with its creator; a creator alone is about to create one.
    ///
    /// Large conversations in which the user has acted, or which the user has created, count
    /// towards the bound. The bound of the others is the number that a store lists
    /// ([`Conversation::LARGE_LISTED_MAX`]).
    pub(crate) async fn check_large_bound(
        &self,
        conversation: Option<ConversationId>,
        creator: Option<&UserId>,
        users: &[UserId],
    ) -> Result<()> {
        let max = self.large_conversations_max;
        let unanswered_max = Conversation::LARGE_LISTED_MAX.saturating_sub(max);
        for user in users.iter().filter(|user| !user.is_agent()) {
            let large = self.store.large_conversations(user).await?;
            if large.len() < max.min(unanswered_max) {
                continue;
            }
            let rows = self.store.inbox_rows(user, &large).await?;
            let (answered, unanswered): (Vec<_>, Vec<_>) = rows
                .into_iter()
                .flatten()
                .partition(|row| row.is_answered());
            let is_full = if creator == Some(user) || self.has_acted(user, conversation).await? {
                let ids: Vec<_> = unanswered.iter().map(|row| row.conversation).collect();
                let created = self
                    .access
                    .conversations(user, &ids)
                    .await?
                    .into_iter()
                    .flatten()
                    .filter(|found| found.created_by.as_ref() == Some(user))
                    .count();
                answered.len() + created >= max
            } else {
                unanswered.len() >= unanswered_max
            };
            if is_full {
                // The message does not name the user: that number is private.
                let message = format!(
                    "one of these users takes part in {max} large conversations already, which is the most"
                );
                return Err(Error::bad_input(&["input", "usernames"], message));
            }
        }
        Ok(())
    }

    async fn has_acted(&self, user: &UserId, conversation: Option<ConversationId>) -> Result<bool> {
        let Some(conversation) = conversation else {
            return Ok(false);
        };
        let row = self.store.inbox_rows(user, &[conversation]).await?;
        Ok(row.into_iter().flatten().any(|row| row.is_answered()))
    }
}
