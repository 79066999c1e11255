//! Heads of large conversations: where they stand, known to this server for a second.
//!
//! A send to a large conversation writes no inboxes but the sender's, so that each inbox with it reads its head. Those who read the same
//! one at the same time share a read. What this server itself has written is in every head that is asked for after it: `renew_head` and
//! `saw` see to it.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use lru::LruCache;
use tokio::sync::OnceCell;

use super::register::LastMessage;
use crate::model::{ChangeId, ConversationId, MessageId, TimeUuid, Timestamp};
use crate::store::Result;
use crate::store::cql::Inner;
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{cells, place};

const AGE_MAX: Duration = Duration::from_secs(1);
const HEADS_MAX: NonZeroUsize = NonZeroUsize::new(16_384).expect("it is not zero");
/// Reads under way at once for one answer.
const AT_ONCE: usize = 32;

statements! {
    /// The statements of this file.
    Statements {
        head: Read "SELECT last_message, newest_change, last_activity, created_at FROM conversations WHERE conversation_id = ?";
    }
}

type Columns = (Option<Vec<u8>>, Option<Vec<u8>>, Option<i64>, Option<i64>);

/// Of a conversation that is not there: the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Head {
    pub(crate) last_message: Option<MessageId>,
    /// What else changed in it.
    pub(crate) newest_change: Option<TimeUuid>,
    pub(crate) last_activity: Timestamp,
}

impl Head {
    pub(crate) fn newest(&self) -> Option<TimeUuid> {
        self.last_message.max(self.newest_change)
    }
}

fn has_message(id: MessageId) -> impl Fn(&Head) -> bool {
    move |head| head.last_message >= Some(id)
}

fn has_change(id: ChangeId) -> impl Fn(&Head) -> bool {
    move |head| head.newest_change >= Some(id)
}

struct Known {
    since: Instant,
    /// Empty while it is read.
    head: Arc<OnceCell<Head>>,
}

pub(crate) struct Heads(Mutex<LruCache<ConversationId, Known>>);

impl Heads {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(LruCache::new(HEADS_MAX)))
    }

    fn known(&self) -> MutexGuard<'_, LruCache<ConversationId, Known>> {
        self.0.lock().expect("no panic while holding heads")
    }

    /// What is known, or the place where it will be.
    fn of(&self, conversation: ConversationId, age_max: Duration) -> Arc<OnceCell<Head>> {
        let mut known = self.known();
        match known.get(&conversation) {
            Some(there) if there.since.elapsed() < age_max => there.head.clone(),
            Some(_) | None => {
                let head = Arc::new(OnceCell::new());
                known.put(conversation, Known { since: Instant::now(), head: head.clone() });
                head
            }
        }
    }

    /// This server has stored a message. What is known of the head is not older for it; what is being read may have missed it.
    fn renew(&self, conversation: ConversationId, last: MessageId, activity: Timestamp) {
        let mut known = self.known();
        let renewed = known.get(&conversation).and_then(|there| {
            let head = there.head.get()?;
            let last_message = head.last_message.max(Some(last));
            let head = Head { last_message, last_activity: head.last_activity.max(activity), ..*head };
            Some(Known { since: there.since, head: Arc::new(OnceCell::new_with(Some(head))) })
        });
        match renewed {
            Some(renewed) => known.put(conversation, renewed),
            None => known.pop(&conversation),
        };
    }

    /// There is something: a head that does not have it, or is being read, is read anew by whoever asks next.
    fn saw(&self, conversation: ConversationId, has_it: impl Fn(&Head) -> bool) {
        let mut known = self.known();
        if known.peek(&conversation).is_some_and(|there| !there.head.get().is_some_and(&has_it)) {
            known.pop(&conversation);
        }
    }
}

impl Inner {
    /// To be called when a message of a large conversation was stored, before that is acknowledged.
    pub(crate) fn renew_head(&self, conversation: ConversationId, last: &LastMessage, activity: Timestamp) {
        self.heads.renew(conversation, last.id, activity);
    }

    /// To be called when another server's message in a large conversation has become known. A head may have a later change, and not it.
    pub(crate) fn saw_message(&self, conversation: ConversationId, id: MessageId) {
        self.heads.saw(conversation, has_message(id));
    }

    /// To be called when a change of a large conversation was stored, and when another server's has become known.
    pub(crate) fn saw_change(&self, conversation: ConversationId, id: ChangeId) {
        self.heads.saw(conversation, has_change(id));
    }

    /// Heads that are a second old at most.
    pub(crate) async fn heads(&self, conversations: &[ConversationId]) -> Result<Vec<Head>> {
        self.heads_within(conversations, AGE_MAX).await
    }

    /// Heads as they are now.
    pub(crate) async fn fresh_heads(&self, conversations: &[ConversationId]) -> Result<Vec<Head>> {
        self.heads_within(conversations, Duration::ZERO).await
    }

    async fn heads_within(&self, conversations: &[ConversationId], age_max: Duration) -> Result<Vec<Head>> {
        let mut heads = Vec::with_capacity(conversations.len());
        for piece in conversations.chunks(AT_ONCE) {
            let each = piece.iter().map(async |conversation| {
                let head = self.heads.of(*conversation, age_max);
                head.get_or_try_init(|| self.read_head(*conversation)).await.copied()
            });
            heads.extend(try_join_all(each).await?);
        }
        Ok(heads)
    }

    async fn read_head(&self, conversation: ConversationId) -> Result<Head> {
        const TABLE: &str = "conversations";
        let columns = self.cluster.read_one::<Columns>(&self.statements.head.head, cells![conversation]).await?;
        let Some((last_message, newest_change, last_activity, created_at)) = columns else { return Ok(Head::default()) };
        let last_message = last_message.map(|bytes| LastMessage::decode(TABLE, &bytes)).transpose()?;
        if let Some(last) = &last_message {
            self.index.note_present(conversation, last.bucket);
        }
        let change = |bytes: Vec<u8>| {
            TimeUuid::from_order_key(place(TABLE, &bytes)?).ok_or_else(|| corrupt(TABLE, "a newest change is the order key of an id"))
        };
        Ok(Head {
            last_message: last_message.map(|last| last.id),
            newest_change: newest_change.map(change).transpose()?,
            last_activity: Timestamp::from_micros(last_activity.or(created_at).unwrap_or_default()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(micros: i64) -> MessageId {
        MessageId::new(Timestamp::from_micros(micros), [0; 8])
    }

    fn head(micros: i64) -> Head {
        Head { last_message: Some(id(micros)), newest_change: None, last_activity: Timestamp::from_micros(micros) }
    }

    #[test]
    fn a_head_is_known_until_it_is_too_old() {
        let (heads, room) = (Heads::new(), ConversationId::random());
        heads.of(room, AGE_MAX).set(head(5)).unwrap();
        assert_eq!(heads.of(room, AGE_MAX).get(), Some(&head(5)));
        assert_eq!(heads.of(room, Duration::ZERO).get(), None);
    }

    #[test]
    fn what_this_server_sent_is_in_the_head_at_once() {
        let (heads, room) = (Heads::new(), ConversationId::random());
        heads.of(room, AGE_MAX).set(head(5)).unwrap();
        heads.renew(room, id(9), Timestamp::from_micros(9));
        heads.renew(room, id(7), Timestamp::from_micros(7));
        assert_eq!(heads.of(room, AGE_MAX).get(), Some(&head(9)));
    }

    #[test]
    fn a_read_that_began_before_a_send_answers_nobody_who_asks_after_it() {
        let (heads, room) = (Heads::new(), ConversationId::random());
        let reading = heads.of(room, AGE_MAX);
        heads.renew(room, id(9), Timestamp::from_micros(9));
        reading.set(head(5)).unwrap();
        assert_eq!(heads.of(room, AGE_MAX).get(), None, "it is read anew");
    }

    #[test]
    fn a_head_that_is_older_than_what_was_seen_is_forgotten() {
        let (heads, room) = (Heads::new(), ConversationId::random());
        heads.of(room, AGE_MAX).set(head(5)).unwrap();
        heads.saw(room, has_message(id(5)));
        assert_eq!(heads.of(room, AGE_MAX).get(), Some(&head(5)));
        heads.saw(room, has_message(id(6)));
        assert_eq!(heads.of(room, AGE_MAX).get(), None);
    }

    #[test]
    fn a_later_change_does_not_stand_for_a_message_that_was_seen() {
        let (heads, room) = (Heads::new(), ConversationId::random());
        let changed = Head { newest_change: Some(id(9)), ..head(5) };
        let is_known = || heads.of(room, AGE_MAX).get().is_some();
        heads.of(room, AGE_MAX).set(changed).unwrap();
        heads.saw(room, has_change(id(9)));
        assert!(is_known());
        heads.saw(room, has_message(id(7)));
        assert!(!is_known(), "the message is not in it");
    }
}
