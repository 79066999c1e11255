//! Cache of inbox indexes: which conversations the first pages of a user's inbox list, and by what activity.
//!
//! Every client reads the first page of its inbox when it opens. The committer's thread follows the lists. They move
//! seldom, because the activity of a busy or large conversation lies in its head.

use std::num::NonZeroUsize;
use std::sync::Arc;

use super::coherent::{CacheKey, CoherentCache, Mark};
use crate::model::{Conversation, ConversationId, InboxKey, PageRequest, UserId};
use crate::store::embedded::engine::key::Listing;

const SHARDS: usize = 16;
const SHARD_INDEXES_MAX: NonZeroUsize = NonZeroUsize::new(256).expect("it is not zero");
/// Active conversations of a cached index: those of the largest page, and one that shows whether more follow.
const ACTIVE_MAX: usize = PageRequest::<InboxKey>::COUNT_MAX + 1;
/// Busy and large conversations of a cached index. With more of them the inbox is read from disk: it hides
/// large conversations then.
const MERGED_MAX: usize = Conversation::LARGE_MERGED_MAX - 1;

impl CacheKey for UserId {
    fn shard(&self) -> u8 {
        let bytes = self.as_str().bytes();
        bytes.fold(0, |sum: u8, byte| sum.wrapping_mul(31).wrapping_add(byte))
    }
}

/// Row of a user's lists that a commit wrote or deleted.
pub(crate) struct ListingChange {
    pub(crate) user: UserId,
    pub(crate) conversation: ConversationId,
    pub(crate) listing: Listing,
    pub(crate) is_listed: bool,
}

pub(crate) type InboxIndexes = CoherentCache<UserId, Arc<InboxIndex>>;

impl InboxIndexes {
    pub(crate) fn of_users() -> Self {
        Self::new("inboxes", SHARDS, SHARD_INDEXES_MAX)
    }

    /// Inserts a loaded index, unless it is too large.
    pub(crate) fn put_index(&self, mark: Mark, user: &UserId, index: InboxIndex) {
        if index.merged.len() <= MERGED_MAX {
            self.put_loaded(mark, user.clone(), Arc::new(index));
        }
    }

    /// Follows a commit. Call it between commit and acknowledgement, in commit order.
    pub(crate) fn follow(&self, mut changes: Vec<ListingChange>) {
        // The changes of one user together: no reader finds a conversation in neither of two lists. It leaves
        // one of them before it enters the other.
        changes.sort_unstable_by(|one, other| {
            (&one.user, one.is_listed).cmp(&(&other.user, other.is_listed))
        });
        for of_user in changes.chunk_by(|one, other| one.user == other.user) {
            let mut is_kept = true;
            self.alter_written(&of_user[0].user, |index| {
                let index = Arc::make_mut(index);
                of_user.iter().for_each(|change| index.follow(change));
                is_kept = index.merged.len() <= MERGED_MAX;
            });
            if !is_kept {
                self.forget(&of_user[0].user);
            }
        }
    }
}

/// Lists of one user's conversations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InboxIndex {
    /// Conversations of the activity index in its order, from the latest activity on, without a gap.
    pub(crate) active: Vec<InboxKey>,
    /// Whether no other conversation is in the activity index.
    pub(crate) is_whole: bool,
    /// Busy and large conversations. Their heads hold the activity.
    pub(crate) merged: Vec<ConversationId>,
}

impl InboxIndex {
    fn follow(&mut self, change: &ListingChange) {
        match change.listing {
            Listing::Active(activity) => self.follow_active(
                InboxKey {
                    activity,
                    conversation: change.conversation,
                },
                change.is_listed,
            ),
            Listing::Busy | Listing::Large if change.is_listed => {
                if !self.merged.contains(&change.conversation) {
                    self.merged.push(change.conversation);
                }
            }
            Listing::Busy | Listing::Large => {
                self.merged.retain(|id| *id != change.conversation);
            }
        }
    }

    fn follow_active(&mut self, key: InboxKey, is_listed: bool) {
        match self.active.binary_search(&key) {
            Ok(place) if !is_listed => {
                self.active.remove(place);
            }
            Err(place) if is_listed && (self.is_whole || place < self.active.len()) => {
                self.active.insert(place, key);
                if self.active.len() > ACTIVE_MAX {
                    self.active.truncate(ACTIVE_MAX);
                    self.is_whole = false;
                }
            }
            Ok(_) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::model::Timestamp;

    fn user() -> UserId {
        UserId::parse("alice").expect("it is a name")
    }

    /// A conversation moves to another list, or begins, or ends.
    #[derive(Debug, Clone)]
    struct Move {
        conversation: u8,
        to: Option<Listing>,
    }

    fn moves() -> impl Strategy<Value = Vec<Move>> {
        let listing = prop_oneof![
            4 => (0..20_i64).prop_map(|micros| Listing::Active(Timestamp::from_micros(micros))),
            1 => Just(Listing::Busy),
            1 => Just(Listing::Large),
        ];
        let moved = (0..12_u8, prop::option::weighted(0.8, listing))
            .prop_map(|(conversation, to)| Move { conversation, to });
        prop::collection::vec(moved, 1..60)
    }

    fn id(number: u8) -> ConversationId {
        ConversationId(Uuid::from_u128(u128::from(number)))
    }

    fn change(conversation: u8, listing: Listing, is_listed: bool) -> ListingChange {
        ListingChange {
            user: user(),
            conversation: id(conversation),
            listing,
            is_listed,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn an_index_follows_every_move_of_its_conversations(moves in moves(), loaded_at in 0..30_usize, loaded in 0..8_usize) {
            let mut lists: Vec<Option<Listing>> = vec![None; 12];
            let indexes = InboxIndexes::of_users();
            let active = |lists: &[Option<Listing>]| -> Vec<InboxKey> {
                let keys: BTreeSet<_> = lists.iter().zip(0..).filter_map(|(listing, number)| match listing {
                    Some(Listing::Active(activity)) => Some(InboxKey { activity: *activity, conversation: id(number) }),
                    _ => None,
                }).collect();
                keys.into_iter().collect()
            };
            let merged = |lists: &[Option<Listing>]| -> BTreeSet<ConversationId> {
                lists.iter().zip(0..).filter_map(|(listing, number)| match listing {
                    Some(Listing::Busy | Listing::Large) => Some(id(number)),
                    _ => None,
                }).collect()
            };
            for (step, Move { conversation, to }) in moves.into_iter().enumerate() {
                if step == loaded_at {
                    let all = active(&lists);
                    let index = InboxIndex {
                        is_whole: all.len() < loaded,
                        active: all.into_iter().take(loaded).collect(),
                        merged: merged(&lists).into_iter().collect(),
                    };
                    indexes.put_index(indexes.mark(), &user(), index);
                }
                let from = std::mem::replace(&mut lists[usize::from(conversation)], to);
                if from != to {
                    let left = from.map(|listing| change(conversation, listing, false));
                    let entered = to.map(|listing| change(conversation, listing, true));
                    // A commit is a map: its rows come in any order.
                    let mut changes: Vec<_> = left.into_iter().chain(entered).collect();
                    if conversation % 2 == 0 {
                        changes.reverse();
                    }
                    indexes.follow(changes);
                }
                if let Some(index) = indexes.get(&user()) {
                    let all = active(&lists);
                    let held = index.active.len();
                    prop_assert_eq!(&index.active[..], &all[..held.min(all.len())]);
                    prop_assert!(!index.is_whole || held == all.len());
                    prop_assert_eq!(index.merged.iter().copied().collect::<BTreeSet<_>>(), merged(&lists));
                }
            }
        }
    }

    #[test]
    fn an_index_with_too_many_busy_conversations_is_forgotten() {
        let indexes = InboxIndexes::of_users();
        let empty = InboxIndex {
            active: Vec::new(),
            is_whole: true,
            merged: Vec::new(),
        };
        indexes.put_index(indexes.mark(), &user(), empty);
        let busy = |number: usize| ListingChange {
            user: user(),
            conversation: ConversationId(Uuid::from_u128(number as u128)),
            listing: Listing::Busy,
            is_listed: true,
        };
        indexes.follow((0..MERGED_MAX).map(busy).collect());
        assert_eq!(
            indexes.get(&user()).map(|index| index.merged.len()),
            Some(MERGED_MAX)
        );
        indexes.follow(vec![busy(MERGED_MAX)]);
        assert_eq!(indexes.get(&user()), None);
    }
}
