//! Cache of conversation states: what most writes and reads need of a conversation.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use super::coherent::{CacheKey, CoherentCache};
use crate::model::{ChangeId, Conversation, ConversationId, Direction, Membership, UserId};
use crate::store::embedded::engine::db::{InTable, MissingRow, View, corrupt};
use crate::store::embedded::engine::key::{self, Cell};
use crate::store::embedded::engine::record::{self, ConversationRecord, HeadRecord, RosterRecord};
use crate::store::rules::succession::{self, Succession};
use crate::store::{Audience, Result};

const SHARDS: usize = 64;
const SHARD_STATES_MAX: NonZeroUsize = NonZeroUsize::new(320).expect("it is not zero");

/// A conversation with its head, participants and membership version.
#[derive(Debug, Clone)]
pub(crate) struct ConversationState {
    pub(crate) conversation: Arc<Conversation>,
    pub(crate) head: HeadRecord,
    /// Bytes of the head on disk: the precondition of the next write.
    pub(crate) head_bytes: Vec<u8>,
    /// `None` for a large conversation: its memberships are read one by one.
    pub(crate) people: Option<Arc<People>>,
    pub(crate) roster: RosterRecord,
    /// Effective OWNER if no participant has the stored role.
    pub(crate) heir: Option<UserId>,
}

#[derive(Debug)]
pub(crate) struct People {
    /// Memberships of the present participants. The others are read by their keys: a conversation has any number of former
    /// and banned users.
    pub(crate) memberships: BTreeMap<UserId, Membership>,
    pub(crate) joined: Arc<[UserId]>,
}

impl People {
    /// The present participants among these users.
    pub(crate) fn new(mut memberships: BTreeMap<UserId, Membership>) -> Self {
        memberships.retain(|_, membership| membership.is_joined());
        let joined = memberships.keys().cloned().collect();
        Self {
            memberships,
            joined,
        }
    }
}

impl ConversationState {
    pub(crate) fn load(view: &View<'_>, id: ConversationId) -> Result<Option<Self>> {
        let stored = view.decoded(&key::conversation(id), ConversationRecord::decode)?;
        let Some(conversation) = stored else {
            return Ok(None);
        };
        let conversation = Arc::new(conversation.into_conversation(id));
        let head_key = key::head(id);
        let head_bytes = view
            .get(&head_key)?
            .ok_or_else(|| corrupt(head_key.table_name(), MissingRow))?
            .to_vec();
        let head = record::decode(&head_bytes).in_table(head_key.table_name())?;
        let roster: RosterRecord = view.record(&key::roster(id))?.unwrap_or_default();
        let people = if conversation.is_large {
            None
        } else {
            Some(Arc::new(People::new(memberships(view, id)?)))
        };
        let heir = match &people {
            Some(people) => Succession::of(conversation.kind, &people.memberships).heir(),
            // Only an import makes a large group without an OWNER; its first membership change ends that.
            None if roster.owner_count == 0 => {
                Succession::of(conversation.kind, &memberships(view, id)?).heir()
            }
            None => None,
        };
        Ok(Some(Self {
            conversation,
            head,
            head_bytes,
            people,
            roster,
            heir,
        }))
    }

    /// Copies the state with another head.
    pub(crate) fn with_head(&self, head: HeadRecord) -> Self {
        Self {
            head,
            head_bytes: record::encode(&head),
            ..self.clone()
        }
    }

    /// Copies the state with a newer change: a write that was planned on the state before is planned again.
    pub(crate) fn changed(&self, change: ChangeId) -> Self {
        let newest_change = self.head.newest_change.max(Some(change));
        self.with_head(HeadRecord {
            newest_change,
            ..self.head
        })
    }

    /// Users whose inboxes its messages reach.
    pub(crate) fn audience(&self) -> Audience {
        Audience {
            users: self.people.as_ref().map(|people| people.joined.clone()),
        }
    }

    /// Stored membership of a user. The view is as new as the state.
    pub(crate) fn given(&self, view: &View<'_>, user: &UserId) -> Result<Option<Membership>> {
        let people = self.people.as_ref();
        match people.and_then(|people| people.memberships.get(user)) {
            Some(present) => Ok(Some(*present)),
            None => view.decoded(
                &key::participant(self.conversation.id, user, Cell::Membership),
                record::decode_membership,
            ),
        }
    }

    /// Effective membership of a user, inherited OWNER role included.
    pub(crate) fn effective(&self, user: &UserId, stored: Membership) -> Membership {
        succession::effective(self.heir.as_ref(), user, stored)
    }
}

/// Reads all memberships of a conversation that is not large.
pub(crate) fn memberships(
    view: &View<'_>,
    id: ConversationId,
) -> Result<BTreeMap<UserId, Membership>> {
    let mut memberships = BTreeMap::new();
    for row in view.scan(key::participants(id), Direction::Forward) {
        let (bytes, value) = row?;
        let (user, cell) = key::participant_cell(&bytes).in_table("participants")?;
        if cell == Cell::Membership as u8 {
            memberships.insert(
                user,
                record::decode_membership(&value).in_table("participants")?,
            );
        }
    }
    Ok(memberships)
}

impl CacheKey for ConversationId {
    fn shard(&self) -> u8 {
        let bytes = self.0.as_bytes();
        bytes[15] ^ bytes[0]
    }
}

pub(crate) type States = CoherentCache<ConversationId, Arc<ConversationState>>;

impl States {
    pub(crate) fn of_conversations() -> Self {
        Self::new("conversations", SHARDS, SHARD_STATES_MAX)
    }

    /// A conversation in memory, with the membership of a user who is in it. To anyone else it answers as where there is none.
    pub(crate) fn get_with(
        &self,
        id: ConversationId,
        user: &UserId,
    ) -> Option<(Arc<ConversationState>, Membership)> {
        self.find(&id, |state| {
            let membership = *state.people.as_ref()?.memberships.get(user)?;
            Some((Arc::clone(state), membership))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::model::{MembershipState, Role, TimeUuid, Timestamp};
    use crate::store::embedded::engine::committer::{Op, Write};
    use crate::store::embedded::{Embedded, Options};
    use crate::store::{NewConversation, Store as _};

    #[tokio::test]
    async fn banned_users_take_no_room_in_memory_and_are_read_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            free_bytes_min: 0,
            ..Options::new(folder.path())
        };
        let clock = Arc::new(SystemClock);
        let store = Embedded::open(options, clock).await.unwrap();
        let user = |name: &str| UserId::parse(name).unwrap();
        let (ann, start) = (user("ann"), Timestamp::from_micros(1_767_225_600_000_000));
        let id = ConversationId::random();
        let conversation = Conversation {
            id,
            kind: crate::model::ConversationKind::Group,
            name: None,
            created_at: start,
            created_by: None,
            input_hash: None,
            slow_mode_seconds: 0,
            history: Default::default(),
            is_large: false,
        };
        let new = NewConversation {
            conversation,
            participants: vec![(ann.clone(), Role::Owner)],
            change: TimeUuid::new(start, [0; 8]),
            profile: Default::default(),
        };
        store.create_conversation(&new).await.unwrap();
        let banned = Membership {
            state: MembershipState::Banned,
            ..Membership::joined(Role::Member)
        };
        let bytes = record::encode_membership(&banned);
        let names = (0..10_000).map(|number| user(&format!("made-up-{number}")));
        let cell = |user: &UserId| key::participant(id, user, Cell::Membership);
        let ops = names.map(|user| Op::Put(cell(&user), bytes.clone()));
        let write = Write {
            ops: ops.collect(),
            ..Write::default()
        };
        store.inner.committer.commit(write).await.unwrap();
        let states = &store.inner.context.states;
        states.forget(&id);
        let of = async |user: &UserId| {
            let mut found = store.participations(user, &[id]).await.unwrap();
            found.pop().flatten().map(|found| found.membership.state)
        };
        assert_eq!(of(&ann).await, Some(MembershipState::Joined));
        let state = states.get(&id).expect("it is in memory");
        assert_eq!(state.people.as_ref().unwrap().memberships.len(), 1);
        let found = of(&user("made-up-9999")).await;
        assert_eq!(found, Some(MembershipState::Banned));
        assert_eq!(of(&user("nobody")).await, None);
    }
}
