//! Introductions: users who are brought into a conversation without having been asked, and the bounds that protect them.
//!
//! Each user with whom the viewer has no relationship costs the viewer one token of an hourly bucket, through whichever mutation. A user is in
//! a bounded number of conversations, and in a bounded number of large ones, in which conversations that others made do not count until the
//! user acts there.

use std::num::NonZeroUsize;

use std::time::Duration;

use futures_util::future::try_join_all;
use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::chat::{Chat, Error, Result};
use crate::model::{Conversation, ConversationId, UserId};

/// Input path of a refusal: the username or usernames of the call.
pub(crate) type InputPath = &'static [&'static str];

/// Users whose number of conversations is remembered.
const COUNTED_MAX: NonZeroUsize = NonZeroUsize::new(16_384).expect("it is not zero");
/// Lifetime of a cached count: other servers add users too.
const COUNT_LIFETIME: Duration = Duration::from_secs(3_600);
/// Lifetime of the count of a user at the bound, who may have left some conversations.
const FULL_LIFETIME: Duration = Duration::from_secs(60);
const COUNTS_AT_ONCE: usize = 8;

/// Cache of the number of conversations of each user, raised by what this server adds. A departure shows at the next scan.
pub(crate) struct ConversationCounts(Mutex<LruCache<UserId, Counted>>);

#[derive(Clone, Copy)]
struct Counted {
    count: usize,
    at: Instant,
}

impl Default for ConversationCounts {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(COUNTED_MAX)))
    }
}

impl ConversationCounts {
    fn users(&self) -> MutexGuard<'_, LruCache<UserId, Counted>> {
        self.0.lock()
    }

    /// Remembered count, unless it has expired.
    fn get(&self, user: &UserId, max: usize) -> Option<usize> {
        let counted = *self.users().get(user)?;
        let lifetime = if counted.count < max {
            COUNT_LIFETIME
        } else {
            FULL_LIFETIME
        };
        (counted.at.elapsed() < lifetime).then_some(counted.count)
    }
}

/// Tokens that were taken for strangers.
#[derive(Default)]
pub(crate) struct Fee(u32);

impl Chat {
    /// Takes a token for each of these users who is a stranger to the viewer: all of them, or none.
    pub(crate) async fn pay_for_strangers(&self, viewer: &UserId, users: &[UserId]) -> Result<Fee> {
        if !self.0.bounds.rates.is_on || users.iter().all(|user| user == viewer) {
            return Ok(Fee::default());
        }
        // It reads much for somebody with many groups: a few of these at a time.
        let turn = self.0.replay_limiter.turn(viewer).await?;
        let found = self.relationships(viewer, users).await?;
        drop(turn);
        let strangers =
            u32::try_from(found.iter().filter(|found| found.is_none()).count()).unwrap_or(u32::MAX);
        if strangers > 0 {
            self.0
                .strangers
                .take_all(viewer, strangers, Instant::now())?;
        }
        Ok(Fee(strangers))
    }

    /// Nobody was brought in: it was there already.
    pub(crate) fn give_back(&self, viewer: &UserId, Fee(tokens): Fee) {
        if tokens > 0 {
            self.0.strangers.give_back(viewer, tokens);
        }
    }

    /// Refuses where the viewer, or one of these users, would be in more conversations than one may be.
    pub(crate) async fn check_room_for_one_more(
        &self,
        viewer: &UserId,
        users: &[UserId],
        path: InputPath,
    ) -> Result<()> {
        let max = self.0.bounds.conversations_max;
        for users in users.chunks(COUNTS_AT_ONCE) {
            let counts =
                try_join_all(users.iter().map(|user| self.conversation_count(user, max))).await?;
            if let Some((user, _)) = users.iter().zip(counts).find(|(_, count)| *count >= max) {
                let message = if user == viewer {
                    format!(
                        "you take part in {max} conversations already, which is the most: leave some of them first"
                    )
                } else {
                    // Not who: that one is in so many is theirs to tell.
                    format!(
                        "one of these takes part in {max} conversations already, which is the most"
                    )
                };
                return Err(Error::bad_input(path, message));
            }
        }
        Ok(())
    }

    /// At most one scan of a user's keys an hour, or a minute where the user is at the bound.
    async fn conversation_count(&self, user: &UserId, max: usize) -> Result<usize> {
        if let Some(known) = self.0.counts.get(user, max) {
            return Ok(known);
        }
        let at = Instant::now();
        let count = self.0.store.conversation_count(user, max).await?;
        self.0
            .counts
            .users()
            .put(user.clone(), Counted { count, at });
        Ok(count)
    }

    /// These users are in one more conversation.
    pub(crate) fn joined_one_more<'a>(&self, users: impl IntoIterator<Item = &'a UserId>) {
        let mut counted = self.0.counts.users();
        for user in users {
            if let Some(known) = counted.peek_mut(user) {
                known.count += 1;
            }
        }
    }

    /// Refuses where one of these users would be in more large conversations than one may be. `conversation` is the one that grows, with its
    /// maker; a maker alone is about to make one.
    ///
    /// Those in which the user acted, or that the user made, count towards the bound. Others do not; of them there are so many that a store
    /// lists all ([`Conversation::LARGE_LISTED_MAX`]).
    pub(crate) async fn check_room_for_a_large_one(
        &self,
        conversation: Option<ConversationId>,
        maker: Option<&UserId>,
        users: &[UserId],
    ) -> Result<()> {
        let max = self.0.bounds.large_conversations_max;
        let unasked_max = Conversation::LARGE_LISTED_MAX.saturating_sub(max);
        for user in users {
            let larges = self.0.store.large_conversations(user).await?;
            if larges.len() < max.min(unasked_max) {
                continue;
            }
            let rows = self.0.store.inbox_rows(user, &larges).await?;
            let (own, unasked): (Vec<_>, Vec<_>) = rows
                .into_iter()
                .flatten()
                .partition(|row| row.is_answered());
            let is_full = if maker == Some(user) || self.has_acted(user, conversation).await? {
                let ids: Vec<_> = unasked.iter().map(|row| row.conversation).collect();
                let made = self.conversations(user, &ids).await?;
                let made = made
                    .into_iter()
                    .flatten()
                    .filter(|one| one.created_by.as_ref() == Some(user))
                    .count();
                own.len() + made >= max
            } else {
                unasked.len() >= unasked_max
            };
            if is_full {
                // Not who: that one is in so many is theirs to tell.
                let message = format!(
                    "one of these takes part in {max} large conversations already, which is the most"
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
        Ok(self
            .entry(user, conversation)
            .await?
            .is_some_and(|row| row.is_answered()))
    }
}
