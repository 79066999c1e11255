//! Who is in a conversation, for its streams: read once for all of them, and looked at again as one.
//!
//! A conversation that few listen to costs each of them a read of their own place in it. Where many do, the whole list is read, which its
//! version then stands for: as long as that is the same, so is the list.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::chat::access::membership_guard::LOOK_EVERY;
use crate::chat::{Chat, Error, Result};
use crate::model::{
    Conversation, ConversationId, Page, PageRequest, Participant, TimeUuid, Topic, UserId,
};
use crate::store::MembershipSnapshot;

/// Fewer than these each look for themselves.
const LISTENERS_MIN: usize = 4;
/// Lists that are remembered.
const CACHED_MAX: NonZeroUsize = NonZeroUsize::new(256).expect("it is not zero");
/// How long one waits for another one's look.
const OTHERS_MAX: Duration = Duration::from_secs(1);
/// The list may change while it is read.
const TRIES_MAX: usize = 3;

pub(crate) struct ParticipantCache(Mutex<LruCache<ConversationId, Arc<Desk>>>);

/// One conversation's. Held while it is read, so that one reads and the others wait.
type Desk = tokio::sync::Mutex<State>;

#[derive(Default)]
struct State {
    seen: Option<ParticipantSnapshot>,
    /// When it could last not be read, and why: for those who waited for it.
    failed: Option<(Instant, Error)>,
    /// When it was last found to be too long for so many, or not to be there.
    too_long_at: Option<Instant>,
}

/// A list, and how old it is.
#[derive(Clone)]
pub(crate) struct ParticipantSnapshot {
    pub(crate) conversation: Arc<Conversation>,
    joined: Arc<HashSet<UserId>>,
    version: Option<TimeUuid>,
    /// Of this process, before it was looked at.
    pub(crate) leave_epoch: u64,
    pub(crate) looked_at: Instant,
}

impl Default for ParticipantCache {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(CACHED_MAX)))
    }
}

impl ParticipantCache {
    fn desk(&self, conversation: ConversationId) -> Arc<Desk> {
        let mut desks = self.0.lock();
        Arc::clone(desks.get_or_insert(conversation, Arc::default))
    }

    /// The same, where there is one.
    fn known(&self, conversation: ConversationId) -> Option<Arc<Desk>> {
        self.0.lock().peek(&conversation).map(Arc::clone)
    }
}

impl ParticipantSnapshot {
    /// A list of a moment ago that shows this viewer in it. It reads nothing and waits for nothing, so that it tells a stranger nothing.
    pub(crate) fn at_hand(chat: &Chat, viewer: &UserId, id: ConversationId) -> Option<Self> {
        let desk = chat.0.participant_cache.known(id)?;
        let state = desk.try_lock().ok()?;
        state
            .seen
            .as_ref()
            .filter(|seen| seen.is_fresh(chat) && seen.joined.contains(viewer))
            .cloned()
    }

    /// Where many listen to the conversation: a list that shows this viewer in it. `None`: one has to look for oneself.
    pub(crate) async fn with(
        chat: &Chat,
        viewer: &UserId,
        id: ConversationId,
    ) -> Result<Option<Self>> {
        let listeners = chat.0.bus.subscriber_count(&Topic::Conversation(id));
        if listeners < LISTENERS_MIN {
            return Ok(None);
        }
        let asked_at = Instant::now();
        let desk = chat.0.participant_cache.desk(id);
        // Whoever looks for all goes on only as far as its reader does, and nobody else must wait for that.
        let Ok(mut state) = timeout(OTHERS_MAX, desk.lock()).await else {
            return Ok(None);
        };
        if let Some((at, error)) = &state.failed
            && *at >= asked_at
        {
            return Err(error.clone());
        }
        if state
            .too_long_at
            .is_some_and(|at| at.elapsed() < LOOK_EVERY)
        {
            return Ok(None);
        }
        // What took long to look at was not old when it was asked for.
        let is_new = |seen: &Self| {
            seen.is_fresh(chat)
                || (seen.leave_epoch == chat.leave_epoch() && seen.looked_at >= asked_at)
        };
        if !state.seen.as_ref().is_some_and(is_new) {
            match Self::look(chat, id, state.seen.take(), listeners).await {
                Ok(seen) => {
                    let too_long_at = seen.is_none().then(Instant::now);
                    *state = State {
                        seen,
                        failed: None,
                        too_long_at,
                    };
                }
                Err(error) => {
                    state.failed = Some((Instant::now(), error.clone()));
                    return Err(error);
                }
            }
        }
        // Who is not in it may have come a moment ago.
        Ok(state
            .seen
            .clone()
            .filter(|seen| seen.joined.contains(viewer)))
    }

    pub(crate) fn is_fresh(&self, chat: &Chat) -> bool {
        self.leave_epoch == chat.leave_epoch() && self.looked_at.elapsed() < LOOK_EVERY
    }

    /// The list, or `None` where there is no such conversation, and where it is too long for so many.
    async fn look(
        chat: &Chat,
        id: ConversationId,
        before: Option<Self>,
        listeners: usize,
    ) -> Result<Option<Self>> {
        for _ in 0..TRIES_MAX {
            let (leave_epoch, looked_at) = (chat.leave_epoch(), Instant::now());
            let Some(members) = chat.0.store.membership_snapshot(id, &[]).await? else {
                return Ok(None);
            };
            let MembershipSnapshot {
                conversation,
                version,
                participant_count,
                ..
            } = members;
            if let Some(before) = before.as_ref().filter(|before| before.version == version) {
                return Ok(Some(Self {
                    conversation,
                    leave_epoch,
                    looked_at,
                    ..before.clone()
                }));
            }
            let pages = usize::try_from(participant_count).unwrap_or(usize::MAX)
                / PageRequest::<()>::COUNT_MAX
                + 1;
            if pages > listeners {
                return Ok(None);
            }
            let joined = Arc::new(joined(chat, id).await?);
            let is_same = chat
                .0
                .store
                .membership_snapshot(id, &[])
                .await?
                .is_some_and(|after| after.version == version);
            if is_same {
                return Ok(Some(Self {
                    conversation,
                    joined,
                    version,
                    leave_epoch,
                    looked_at,
                }));
            }
        }
        Ok(None)
    }
}

async fn joined(chat: &Chat, id: ConversationId) -> Result<HashSet<UserId>> {
    let mut joined = HashSet::new();
    let mut request = PageRequest::first(PageRequest::<()>::COUNT_MAX);
    loop {
        let Page {
            items, has_next, ..
        } = chat.0.store.participants(id, &request).await?;
        let last = items
            .last()
            .map(|participant: &Participant| participant.user.clone());
        joined.extend(items.into_iter().map(|participant| participant.user));
        match last.filter(|_| has_next) {
            Some(last) => request = PageRequest::first(PageRequest::<()>::COUNT_MAX).after(last),
            None => return Ok(joined),
        }
    }
}
