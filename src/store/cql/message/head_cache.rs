//! Head cache: heads of large conversations, at most one second old.
//!
//! A send to a large conversation writes no inbox but the sender's, so every inbox read merges in the heads of its large conversations.
//! Concurrent readers of one head share one read (single-flight). This server's own writes are in every head that is read after them:
//! `advance_head`, `observe_message` and `observe_change` see to it.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::OnceCell;

use super::Messages;
use super::bucket::last_message::LastMessage;
use super::conversation::Head;
use crate::model::{ChangeId, ConversationId, MessageId, TimeUuid, Timestamp};
use crate::store::Result;

const AGE_MAX: Duration = Duration::from_secs(1);
const HEADS_MAX: NonZeroUsize = NonZeroUsize::new(16_384).expect("it is not zero");
/// Concurrent reads for one answer.
const CONCURRENCY: usize = 32;

/// The parts of a head that an inbox shows; the default one for a conversation that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HeadSummary {
    pub(crate) last_message: Option<MessageId>,
    pub(crate) newest_change: Option<TimeUuid>,
    pub(crate) last_activity: Timestamp,
}

impl HeadSummary {
    fn of(head: &Head) -> Self {
        Self {
            last_message: head.last.as_ref().map(|last| last.id),
            newest_change: head.newest_change,
            last_activity: head.last_activity.or(head.created_at).unwrap_or_default(),
        }
    }

    pub(crate) fn newest(&self) -> Option<TimeUuid> {
        self.last_message.max(self.newest_change)
    }
}

fn has_message(id: MessageId) -> impl Fn(&HeadSummary) -> bool {
    move |head| head.last_message >= Some(id)
}

fn has_change(id: ChangeId) -> impl Fn(&HeadSummary) -> bool {
    move |head| head.newest_change >= Some(id)
}

struct CachedHead {
    since: Instant,
    /// Empty while a read is in flight.
    head: Arc<OnceCell<HeadSummary>>,
}

pub(crate) struct HeadCache(Mutex<LruCache<ConversationId, CachedHead>>);

impl HeadCache {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(LruCache::new(HEADS_MAX)))
    }

    fn heads(&self) -> MutexGuard<'_, LruCache<ConversationId, CachedHead>> {
        self.0.lock()
    }

    /// The cached head, or the cell that a read will fill.
    fn get(&self, conversation: ConversationId, age_max: Duration) -> Arc<OnceCell<HeadSummary>> {
        let mut heads = self.heads();
        match heads.get(&conversation) {
            Some(cached) if cached.since.elapsed() < age_max => cached.head.clone(),
            Some(_) | None => {
                let head = Arc::new(OnceCell::new());
                heads.put(
                    conversation,
                    CachedHead {
                        since: Instant::now(),
                        head: head.clone(),
                    },
                );
                head
            }
        }
    }

    /// Advances a cached head after this server has stored a message. A read in flight may miss the message, so its cell is evicted.
    fn advance(&self, conversation: ConversationId, last: MessageId, activity: Timestamp) {
        let mut heads = self.heads();
        let advanced = heads.get(&conversation).and_then(|cached| {
            let head = cached.head.get()?;
            let last_message = head.last_message.max(Some(last));
            let head = HeadSummary {
                last_message,
                last_activity: head.last_activity.max(activity),
                ..*head
            };
            Some(CachedHead {
                since: cached.since,
                head: Arc::new(OnceCell::new_with(Some(head))),
            })
        });
        match advanced {
            Some(advanced) => heads.put(conversation, advanced),
            None => heads.pop(&conversation),
        };
    }

    /// Evicts a head that lacks an event, or that is being read: the next reader reads it again.
    fn observe(&self, conversation: ConversationId, has_event: impl Fn(&HeadSummary) -> bool) {
        let mut heads = self.heads();
        if heads
            .peek(&conversation)
            .is_some_and(|cached| !cached.head.get().is_some_and(&has_event))
        {
            heads.pop(&conversation);
        }
    }
}

impl Messages {
    /// Call after a message of a large conversation was stored, before the send is acknowledged.
    pub(crate) fn advance_head(
        &self,
        conversation: ConversationId,
        last: &LastMessage,
        activity: Timestamp,
    ) {
        self.heads.advance(conversation, last.id, activity);
    }

    /// Call when another server's message of a large conversation was read. A cached head may have a later change, and still not this message.
    pub(crate) fn observe_message(&self, conversation: ConversationId, id: MessageId) {
        self.heads.observe(conversation, has_message(id));
    }

    /// Call when a change of a large conversation was stored, or another server's change was read.
    pub(crate) fn observe_change(&self, conversation: ConversationId, id: ChangeId) {
        self.heads.observe(conversation, has_change(id));
    }

    /// Heads that are at most a second old.
    pub(crate) async fn recent_heads(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<HeadSummary>> {
        self.heads_within(conversations, AGE_MAX).await
    }

    /// Heads as they are now.
    pub(crate) async fn current_heads(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<HeadSummary>> {
        self.heads_within(conversations, Duration::ZERO).await
    }

    async fn heads_within(
        &self,
        conversations: &[ConversationId],
        age_max: Duration,
    ) -> Result<Vec<HeadSummary>> {
        let mut heads = Vec::with_capacity(conversations.len());
        for piece in conversations.chunks(CONCURRENCY) {
            let each = piece.iter().map(async |conversation| {
                let head = self.heads.get(*conversation, age_max);
                head.get_or_try_init(async || Ok(HeadSummary::of(&self.head(*conversation).await?)))
                    .await
                    .copied()
            });
            heads.extend(try_join_all(each).await?);
        }
        Ok(heads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(micros: i64) -> MessageId {
        MessageId::new(Timestamp::from_micros(micros), [0; 8])
    }

    fn head(micros: i64) -> HeadSummary {
        HeadSummary {
            last_message: Some(id(micros)),
            newest_change: None,
            last_activity: Timestamp::from_micros(micros),
        }
    }

    #[test]
    fn a_head_is_cached_until_it_expires() {
        let (heads, conversation) = (HeadCache::new(), ConversationId::random());
        heads.get(conversation, AGE_MAX).set(head(5)).unwrap();
        assert_eq!(heads.get(conversation, AGE_MAX).get(), Some(&head(5)));
        assert_eq!(heads.get(conversation, Duration::ZERO).get(), None);
    }

    #[test]
    fn what_this_server_sent_is_in_the_head_concurrently() {
        let (heads, conversation) = (HeadCache::new(), ConversationId::random());
        heads.get(conversation, AGE_MAX).set(head(5)).unwrap();
        heads.advance(conversation, id(9), Timestamp::from_micros(9));
        heads.advance(conversation, id(7), Timestamp::from_micros(7));
        assert_eq!(heads.get(conversation, AGE_MAX).get(), Some(&head(9)));
    }

    #[test]
    fn a_read_that_began_before_a_send_is_not_shared_after_it() {
        let (heads, conversation) = (HeadCache::new(), ConversationId::random());
        let reading = heads.get(conversation, AGE_MAX);
        heads.advance(conversation, id(9), Timestamp::from_micros(9));
        reading.set(head(5)).unwrap();
        assert_eq!(
            heads.get(conversation, AGE_MAX).get(),
            None,
            "it is read again"
        );
    }

    #[test]
    fn a_head_that_lacks_an_observed_message_is_evicted() {
        let (heads, conversation) = (HeadCache::new(), ConversationId::random());
        heads.get(conversation, AGE_MAX).set(head(5)).unwrap();
        heads.observe(conversation, has_message(id(5)));
        assert_eq!(heads.get(conversation, AGE_MAX).get(), Some(&head(5)));
        heads.observe(conversation, has_message(id(6)));
        assert_eq!(heads.get(conversation, AGE_MAX).get(), None);
    }

    #[test]
    fn a_later_change_does_not_stand_for_an_observed_message() {
        let (heads, conversation) = (HeadCache::new(), ConversationId::random());
        let changed = HeadSummary {
            newest_change: Some(id(9)),
            ..head(5)
        };
        let is_known = || heads.get(conversation, AGE_MAX).get().is_some();
        heads.get(conversation, AGE_MAX).set(changed).unwrap();
        heads.observe(conversation, has_change(id(9)));
        assert!(is_known());
        heads.observe(conversation, has_message(id(7)));
        assert!(!is_known(), "the message is not in it");
    }
}
