//! Writer cache: the state of conversations that this server writes to, so that a send reads nothing first.
//!
//! The cache is bounded and only a hint: after each write the sender checks the participants again, by the roster. A miss is read anew. The
//! state of a write with an unknown outcome is pinned until that write is settled, as its retry must use the same buckets.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::Arc;

use futures_util::future::try_join;
use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};

use super::Sends;
use crate::model::{
    Conversation, ConversationId, HistorySettings, MessageId, TimeUuid, Timestamp, UserId,
};
use crate::store::cql::inbox::writes::{HINT_LAG_MICROS, slot_of};
use crate::store::cql::message::bucket::choice::BucketChooser;
use crate::store::cql::message::bucket::last_message::LastMessage;
use crate::store::cql::message::bucket::{Bucket, Width};
use crate::store::cql::message::conversation::{Head, decode_history};
use crate::store::cql::participant::roster::RosterCells;
use crate::store::{Audience, Result};

const CONVERSATIONS_MAX: NonZeroUsize = NonZeroUsize::new(20_000).expect("it is not zero");
/// Conversations with a write that is in flight or has an unknown outcome.
const PINNED_MAX: NonZeroUsize = NonZeroUsize::new(20_000).expect("it is not zero");
/// Buckets that are remembered as indexed. A batch rarely has messages of more than two.
const INDEXED_MAX: usize = 8;

pub(super) struct WriterCache {
    states: Mutex<LruCache<ConversationId, Arc<ConversationWriteState>>>,
    pinned: Mutex<LruCache<ConversationId, Arc<ConversationWriteState>>>,
}

impl WriterCache {
    pub(super) fn new() -> Self {
        Self {
            states: Mutex::new(LruCache::new(CONVERSATIONS_MAX)),
            pinned: Mutex::new(LruCache::new(PINNED_MAX)),
        }
    }

    fn get(&self, conversation: ConversationId) -> Option<Arc<ConversationWriteState>> {
        let state = self.states.lock().get(&conversation).cloned();
        state.or_else(|| self.pinned.lock().get(&conversation).cloned())
    }

    /// Tells the state of a conversation of its newest message, which any server may have written.
    pub(super) fn follow(&self, conversation: ConversationId, last: &LastMessage) {
        let state = self.states.lock().peek(&conversation).cloned();
        if let Some(state) = state {
            state.lock().buckets.follow(last.id, last.bucket);
        }
    }

    /// Pins a state while a write is in flight: the buckets of its messages must not be forgotten.
    pub(super) fn pin(&self, conversation: ConversationId, state: &Arc<ConversationWriteState>) {
        self.pinned.lock().put(conversation, Arc::clone(state));
    }

    /// Unpins a state after its write was acknowledged.
    pub(super) fn unpin(&self, conversation: ConversationId) {
        self.pinned.lock().pop(&conversation);
    }

    /// Evicts a state that an import has made stale. The roster alone would not show that.
    pub(super) fn evict(&self, conversation: ConversationId) {
        self.states.lock().pop(&conversation);
    }
}

/// The state of one conversation that this server writes to.
pub(super) struct ConversationWriteState(Mutex<WriteState>);

pub(super) struct WriteState {
    pub(super) participants: Arc<CachedParticipants>,
    pub(super) buckets: BucketChooser,
    /// The newest message when the state was read. A message that is not newer may be stored already.
    pub(super) newest_when_read: Option<MessageId>,
    pub(super) last_activity: Timestamp,
    /// Buckets whose index row was acknowledged.
    indexed: VecDeque<Bucket>,
    /// The activity for which hints were acknowledged, and the participants that got them.
    hinted: Option<(Timestamp, Arc<CachedParticipants>)>,
}

impl ConversationWriteState {
    pub(super) fn lock(&self) -> MutexGuard<'_, WriteState> {
        self.0.lock()
    }

    pub(super) fn participants(&self) -> Arc<CachedParticipants> {
        Arc::clone(&self.lock().participants)
    }

    pub(super) fn set_participants(&self, participants: Arc<CachedParticipants>) {
        let mut state = self.lock();
        state
            .buckets
            .set_widest(Width::widest(participants.ttl_seconds));
        state.participants = participants;
    }
}

impl WriteState {
    pub(super) fn is_indexed(&self, bucket: Bucket) -> bool {
        self.indexed.contains(&bucket)
    }

    pub(super) fn note_indexed(&mut self, bucket: Bucket) {
        if !self.is_indexed(bucket) {
            self.indexed.push_back(bucket);
            if self.indexed.len() > INDEXED_MAX {
                self.indexed.pop_front();
            }
        }
    }

    /// The hint that an activity needs. An activity before the last one needs none.
    pub(super) fn needed_hint(
        &self,
        participants: &Arc<CachedParticipants>,
        activity: Timestamp,
    ) -> Option<HintUpdate> {
        let slot = slot_of(activity);
        let is_hinted = self.hinted.as_ref().is_some_and(|(hinted, of)| {
            slot_of(*hinted) == slot
                && activity <= hinted.plus_micros(HINT_LAG_MICROS)
                && Arc::ptr_eq(of, participants)
        });
        if participants.is_large || activity < self.last_activity || is_hinted {
            return None;
        }
        let obsolete_slot = Some(slot_of(self.last_activity))
            .filter(|obsolete| *obsolete < slot && self.last_activity > Timestamp::ZERO);
        Some(HintUpdate {
            activity,
            obsolete_slot,
        })
    }

    pub(super) fn note_hinted(&mut self, hint: HintUpdate, participants: &Arc<CachedParticipants>) {
        self.hinted = Some((hint.activity, Arc::clone(participants)));
    }
}

/// An activity hint to write for each participant.
#[derive(Debug, Clone, Copy)]
pub(super) struct HintUpdate {
    pub(super) activity: Timestamp,
    /// The slot of the previous hint, which is deleted.
    pub(super) obsolete_slot: Option<i32>,
}

/// The participants of a conversation, as this server knows them.
#[derive(Debug)]
pub(super) struct CachedParticipants {
    /// The roster as it was read before them. Every change of the participants, also an import, changes it. `None` if it is unknown.
    pub(super) roster: Option<Vec<u8>>,
    /// The settings of the history, as they were read with it. `None`: those of the conversation's row count.
    pub(super) history: Option<Vec<u8>>,
    /// The settings in the row of the conversation. Every change of them writes the cell, too.
    pub(super) row_history: HistorySettings,
    /// Expiry of new messages.
    pub(super) ttl_seconds: Option<u32>,
    pub(super) is_large: bool,
    /// Empty for a large conversation.
    pub(super) joined: Arc<[UserId]>,
    /// Participants of a conversation that has become large, until their servers were told so.
    pub(super) growing: Option<Arc<[UserId]>>,
}

impl CachedParticipants {
    pub(super) fn audience(&self) -> Audience {
        let users = match &self.growing {
            Some(growing) => Some(growing),
            None => (!self.is_large).then_some(&self.joined),
        };
        Audience {
            users: users.map(Arc::clone),
        }
    }

    /// The participants that are not among others.
    pub(super) fn missing_from<'a>(&'a self, others: &'a Self) -> impl Iterator<Item = &'a UserId> {
        self.joined
            .iter()
            .filter(|user| !others.joined.contains(user))
    }
}

impl Sends {
    /// The newest message or change of each conversation. Later writes of this server follow the newest message to its bucket.
    pub(crate) async fn newest_events(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<TimeUuid>>> {
        let heads = self.messages.heads_now(conversations).await?;
        for (conversation, head) in conversations.iter().zip(&heads) {
            if let Some(last) = &head.last {
                self.writers.follow(*conversation, last);
            }
        }
        Ok(heads.iter().map(Head::newest).collect())
    }

    /// The write state of a conversation, from the cache or read anew. `None` if there is no such conversation.
    pub(super) async fn write_state(
        &self,
        conversation: ConversationId,
    ) -> Result<Option<Arc<ConversationWriteState>>> {
        if let Some(state) = self.writers.get(conversation) {
            return Ok(Some(state));
        }
        let (head, roster) = try_join(
            self.messages.head(conversation),
            self.participants.roster_cells(conversation),
        )
        .await?;
        if !head.exists {
            return Ok(None);
        }
        let participants = self
            .participants_under(conversation, roster, head.is_large, head.history)
            .await?;
        let mut buckets = BucketChooser::from(head.last.as_ref().map(|last| last.bucket));
        buckets.set_widest(Width::widest(participants.ttl_seconds));
        let state = WriteState {
            participants: Arc::new(participants),
            buckets,
            newest_when_read: head.last.map(|last| last.id),
            last_activity: head.last_activity.unwrap_or(Timestamp::ZERO),
            indexed: VecDeque::new(),
            hinted: None,
        };
        let state = Arc::new(ConversationWriteState(Mutex::new(state)));
        // A concurrent task may have inserted one first, and written by it: that one stays.
        let mut states = self.writers.states.lock();
        Ok(Some(Arc::clone(
            states.get_or_insert(conversation, || state),
        )))
    }

    /// The participants as they are now, if they differ from the known ones.
    pub(super) async fn changed_participants(
        &self,
        conversation: ConversationId,
        known: &CachedParticipants,
    ) -> Result<Option<Arc<CachedParticipants>>> {
        // A conversation stays large for good, and becomes large only by a change of the roster, whose writer sets the flag last.
        let may_grow = !known.is_large && known.joined.len() > Conversation::FAN_OUT_MAX;
        let is_large = async {
            if may_grow {
                Ok(self.messages.head(conversation).await?.is_large)
            } else {
                Ok(known.is_large)
            }
        };
        let (seen, is_large) =
            try_join(self.participants.roster_cells(conversation), is_large).await?;
        let has_settled = known.growing.is_some() && seen.is_settled();
        let is_same = (&seen.bytes, &seen.history) == (&known.roster, &known.history);
        if is_same && is_large == known.is_large && !has_settled {
            return Ok(None);
        }
        let is_large = is_large || self.messages.head(conversation).await?.is_large;
        Ok(Some(Arc::new(
            self.participants_under(conversation, seen, is_large, known.row_history)
                .await?,
        )))
    }

    /// Reads the participants after their roster: if they are newer than it, the next check of the roster shows that.
    async fn participants_under(
        &self,
        conversation: ConversationId,
        seen: RosterCells,
        is_large: bool,
        row_history: HistorySettings,
    ) -> Result<CachedParticipants> {
        let is_growing = is_large && !seen.is_settled() && self.is_growing(conversation).await?;
        let joined: Arc<[UserId]> = if is_large && !is_growing {
            Arc::default()
        } else {
            let present = self.participants.present_under(conversation, &seen);
            present.await?.into()
        };
        let (joined, growing) = if is_growing {
            (Arc::default(), Some(joined))
        } else {
            (joined, None)
        };
        let history = match &seen.history {
            Some(cell) => decode_history(Some(cell))?,
            None => row_history,
        };
        Ok(CachedParticipants {
            roster: seen.bytes,
            history: seen.history,
            row_history,
            ttl_seconds: self.ttl_seconds(&history),
            is_large,
            joined,
            growing,
        })
    }

    /// Whether the last change, which is not settled, made the conversation large.
    async fn is_growing(&self, conversation: ConversationId) -> Result<bool> {
        let pending = self.pending(conversation).await?;
        Ok(pending.is_some_and(|pending| !pending.was_large))
    }

    /// The users whose streams and inboxes receive an event that is stored already.
    pub(crate) async fn recipients(&self, conversation: ConversationId) -> Result<Audience> {
        let Some(state) = self.write_state(conversation).await? else {
            return Ok(Audience {
                users: Some(Arc::default()),
            });
        };
        let known = state.participants();
        let Some(now) = self.changed_participants(conversation, &known).await? else {
            return Ok(known.audience());
        };
        state.set_participants(Arc::clone(&now));
        Ok(now.audience())
    }
}
