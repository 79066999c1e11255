//! Participant cache: the participants of conversations with many streams, read once for all of
//! them (single-flight).
//!
//! In a conversation with few streams, each stream reads its viewer's own membership. With many,
//! one of them reads the whole list. The list is valid for its version, so a later read of an
//! unchanged version costs one row. After a single change, only the users whom it moved are read.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use super::leave_epoch::{LeaveEpoch, MEMBERSHIP_LIFETIME, ReadMoment};
use crate::bus::Bus;
use crate::chat::error::Result;
use crate::chat::single_flight::{ReadKey, SingleFlight};
use crate::model::{
    Conversation, ConversationId, OwnFloor, Page, PageRequest, Participant, TimeUuid, Topic, UserId,
};
use crate::store::{LastMembershipChange, MembershipVersion, Store};

/// Conversations with fewer subscribers are not cached.
const SUBSCRIBERS_MIN: usize = 4;
const SNAPSHOTS_MAX: NonZeroUsize = NonZeroUsize::new(256).expect("it is not zero");
/// Users of one change beyond whom the whole list is read.
const MOVED_MAX: usize = 8;
/// Attempts to read a list that changes meanwhile.
const TRIES_MAX: usize = 3;

pub(crate) struct ParticipantCache {
    store: Arc<dyn Store>,
    bus: Bus,
    leave_epoch: Arc<LeaveEpoch>,
    snapshots: Mutex<LruCache<ConversationId, ParticipantSnapshot>>,
    reads: SingleFlight<ParticipantsKey, Option<ParticipantSnapshot>>,
}

/// Participants of a conversation at one moment.
#[derive(Clone)]
pub(crate) struct ParticipantSnapshot {
    pub(crate) conversation: Arc<Conversation>,
    /// The participants, each with their own part of their floor.
    joined: Arc<HashMap<UserId, OwnFloor>>,
    pub(crate) version: Option<TimeUuid>,
    pub(crate) read: ReadMoment,
}

impl ParticipantSnapshot {
    /// The own part of a participant's floor.
    pub(crate) fn own_floor(&self, participant: &UserId) -> OwnFloor {
        let own = self.joined.get(participant);
        own.copied().unwrap_or(OwnFloor::NONE)
    }
}

/// A request shares reads of its own leave epoch only.
#[derive(Clone, PartialEq, Eq)]
struct ParticipantsKey {
    conversation: ConversationId,
    leave_epoch: u64,
}

impl ReadKey<Option<ParticipantSnapshot>> for ParticipantsKey {
    fn may_share(&self, started: &Self) -> bool {
        self == started
    }
}

impl ParticipantCache {
    pub(crate) fn new(store: Arc<dyn Store>, bus: Bus, leave_epoch: Arc<LeaveEpoch>) -> Self {
        Self {
            store,
            bus,
            leave_epoch,
            snapshots: Mutex::new(LruCache::new(SNAPSHOTS_MAX)),
            reads: SingleFlight::new(MEMBERSHIP_LIFETIME),
        }
    }

    /// A fresh snapshot with this viewer among the participants. It reads and waits for nothing, so
    /// its timing reveals nothing to a stranger.
    pub(crate) fn cached(
        &self,
        viewer: &UserId,
        id: ConversationId,
    ) -> Option<ParticipantSnapshot> {
        self.snapshots
            .lock()
            .peek(&id)
            .filter(|snapshot| {
                self.leave_epoch.is_current(snapshot.read)
                    && !snapshot.read.has_expired()
                    && snapshot.joined.contains_key(viewer)
            })
            .cloned()
    }

    /// A snapshot with this viewer among the participants. `None` if the caller must read the
    /// viewer's own membership.
    pub(crate) async fn snapshot(
        &self,
        viewer: &UserId,
        id: ConversationId,
    ) -> Result<Option<ParticipantSnapshot>> {
        let subscribers = self.bus.subscriber_count(&Topic::Conversation(id));
        if subscribers < SUBSCRIBERS_MIN {
            return Ok(None);
        }
        let key = ParticipantsKey {
            conversation: id,
            leave_epoch: self.leave_epoch.current(),
        };
        let read = |key: ParticipantsKey| self.read(key.conversation, subscribers);
        let Some(outcome) = self.reads.read_unless_stalled(key, read).await else {
            return Ok(None);
        };
        // A viewer who is not on the list may have joined a moment ago.
        Ok(outcome?
            .as_ref()
            .clone()
            .filter(|snapshot| snapshot.joined.contains_key(viewer)))
    }

    /// `None` if the conversation does not exist, or has too many participants for so few
    /// subscribers.
    async fn read(
        &self,
        id: ConversationId,
        subscribers: usize,
    ) -> Result<Option<ParticipantSnapshot>> {
        let cached = self.snapshots.lock().peek(&id).cloned();
        let snapshot = self.read_snapshot(id, subscribers, cached).await?;
        let mut snapshots = self.snapshots.lock();
        match &snapshot {
            Some(snapshot) => drop(snapshots.put(id, snapshot.clone())),
            None => drop(snapshots.pop(&id)),
        }
        Ok(snapshot)
    }

    async fn read_snapshot(
        &self,
        id: ConversationId,
        subscribers: usize,
        cached: Option<ParticipantSnapshot>,
    ) -> Result<Option<ParticipantSnapshot>> {
        for _ in 0..TRIES_MAX {
            let read = self.leave_epoch.read_moment();
            let Some(members) = self.store.membership_version(id).await? else {
                return Ok(None);
            };
            let MembershipVersion {
                conversation,
                version,
                participant_count,
                last_change,
            } = members;
            if let Some(cached) = &cached {
                let last = last_change
                    .filter(|last| last.before == cached.version && last.moved.len() <= MOVED_MAX);
                let joined = match last {
                    _ if cached.version == version => Some(Arc::clone(&cached.joined)),
                    Some(last) => Some(self.joined_after(id, &cached.joined, &last).await?),
                    None => None,
                };
                if let Some(joined) = joined {
                    return Ok(Some(ParticipantSnapshot {
                        conversation,
                        joined,
                        version,
                        read,
                    }));
                }
            }
            let pages = usize::try_from(participant_count).unwrap_or(usize::MAX)
                / PageRequest::<()>::COUNT_MAX
                + 1;
            if pages > subscribers {
                return Ok(None);
            }
            let joined = Arc::new(self.joined(id).await?);
            let is_unchanged = self
                .store
                .membership_version(id)
                .await?
                .is_some_and(|after| after.version == version);
            if is_unchanged {
                return Ok(Some(ParticipantSnapshot {
                    conversation,
                    joined,
                    version,
                    read,
                }));
            }
        }
        Ok(None)
    }

    /// The participants after a change of these. Each membership is at least as new as the change.
    async fn joined_after(
        &self,
        id: ConversationId,
        joined: &HashMap<UserId, OwnFloor>,
        last: &LastMembershipChange,
    ) -> Result<Arc<HashMap<UserId, OwnFloor>>> {
        let mut joined = joined.clone();
        for user in &last.moved {
            let own = self.store.participations(user, &[id]).await?.pop();
            match own.flatten().filter(|own| own.membership.is_joined()) {
                Some(own) => joined.insert(user.clone(), own.membership.own_floor()),
                None => joined.remove(user),
            };
        }
        Ok(Arc::new(joined))
    }

    async fn joined(&self, id: ConversationId) -> Result<HashMap<UserId, OwnFloor>> {
        let mut joined = HashMap::new();
        let mut request = PageRequest::first(PageRequest::<()>::COUNT_MAX);
        loop {
            let Page {
                items, has_next, ..
            } = self.store.participants(id, &request).await?;
            let last = items
                .last()
                .map(|participant: &Participant| participant.user.clone());
            let bound = |one: Participant| (one.user, one.membership.own_floor());
            joined.extend(items.into_iter().map(bound));
            match last.filter(|_| has_next) {
                Some(last) => {
                    request = PageRequest::first(PageRequest::<()>::COUNT_MAX).after(last);
                }
                None => return Ok(joined),
            }
        }
    }
}
