//! Membership and name of a conversation.
//!
//! A lightweight transaction on the participants' partition decides a change of membership: it writes the participants, the roster and the
//! pending change, which lists all other writes. These follow: the inbox entries of users who join or leave, and the SYSTEM message. A server
//! that dies before leaves a roster that is not settled; the next reader of the membership completes it first (see `pending_change`). Sends
//! need not wait for that, as they write to everybody in the partition.

use std::sync::Arc;

use scylla::value::Row;

use super::Sends;
use super::append::Extra;
use super::pending_change::PendingChange;
use crate::model::{Conversation, ConversationId, Membership, Role, TimeUuid, UserId};
use crate::store::cql::driver::error::{corrupt, unavailable};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::values;
use crate::store::cql::message::bucket::Bucket;
use crate::store::cql::participant::present;
use crate::store::cql::participant::roster::{Roster, RosterSnapshot};
use crate::store::rules::succession::Succession;
use crate::store::{Audience, Error, MembershipChange, MembershipSnapshot, Renaming, Result};

/// Attempts to decide a change while other servers change the same membership.
const TRIES_MAX: usize = 8;
/// Estimated bytes of a SYSTEM message.
const SYSTEM_MESSAGE_BYTES: usize = 1_024;

statements! {
    DECIDE: Conditional "UPDATE participants_by_conversation SET members_version = ?, roster = ?, pending = ?, present = ? WHERE conversation_id = ? IF roster = ?";
    DECIDE_FIRST: Conditional "UPDATE participants_by_conversation SET members_version = ?, roster = ?, pending = ?, present = ? WHERE conversation_id = ? IF roster = null";
}

/// The encoded roster of a change, and the names of the participants under it.
struct RosterAfter {
    bytes: Vec<u8>,
    /// `None` for a large conversation.
    present: Option<Vec<u8>>,
}

fn is_owner(membership: &Membership) -> bool {
    membership.is_joined() && membership.role == Role::Owner
}

fn count(memberships: impl Iterator<Item = bool>) -> u32 {
    memberships.map(u32::from).sum()
}

fn contended() -> crate::store::Error {
    unavailable("the participants of a conversation change all the time")
}

impl Sends {
    pub(crate) async fn membership_snapshot(
        &self,
        id: ConversationId,
        users: &[UserId],
    ) -> Result<Option<MembershipSnapshot>> {
        for _ in 0..TRIES_MAX {
            let Some((conversation, seen)) = self.settled(id).await? else {
                return Ok(None);
            };
            let Some(stored) = self
                .participants
                .memberships_of(id, users.iter(), &seen)
                .await?
            else {
                continue;
            };
            let successor =
                if seen.roster.participants.owners > count(stored.values().map(is_owner)) {
                    None
                } else {
                    let Some(all) = self.participants.present_memberships(id, &seen).await? else {
                        continue;
                    };
                    let others = all.iter().filter(|(user, _)| !users.contains(user));
                    Succession::of(conversation.kind, others).successor
                };
            let effective = |user: &UserId| {
                stored
                    .get(user)
                    .map(|stored| seen.roster.effective(user, *stored))
            };
            return Ok(Some(MembershipSnapshot {
                version: seen.roster.version,
                participant_count: u64::from(seen.roster.participants.joined),
                memberships: users.iter().map(effective).collect(),
                successor,
                conversation,
            }));
        }
        Err(contended())
    }

    pub(crate) async fn change_membership(
        &self,
        id: ConversationId,
        change: &MembershipChange,
    ) -> Result<Option<Audience>> {
        let version = change.version;
        for _ in 0..TRIES_MAX {
            let Some((conversation, seen)) = self.settled(id).await? else {
                return Err(corrupt(
                    "conversations",
                    "a change of a conversation that does not exist",
                ));
            };
            if seen.roster.has_seen(version) {
                let decided = self
                    .pending(id)
                    .await?
                    .filter(|pending| pending.version == version);
                let was_large = decided.map_or(conversation.is_large, |pending| pending.was_large);
                return self.audience(id, change, was_large).await.map(Some);
            }
            if seen.roster.version != change.seen {
                return Ok(None);
            }
            if change.message.is_none() && !seen.is_settled() {
                // It would settle a growth whose notices are not delivered yet.
                return Err(unavailable("a conversation is becoming large"));
            }
            let Some(after) = self.roster_after(&conversation, &seen, change).await? else {
                continue;
            };
            let announcement = match &change.message {
                Some(message) => {
                    Some(((**message).clone(), self.system_bucket(id, version).await?))
                }
                None => None,
            };
            // While the notices of growth are delivered, the conversation is not large for its senders.
            let was_large = conversation.is_large && seen.is_settled();
            let pending = PendingChange::of(id, change, announcement, was_large);
            if self.decide(id, &seen, after, change, &pending).await? {
                self.complete(&pending).await.map_err(Error::after_write)?;
                return self
                    .audience(id, change, pending.was_large)
                    .await
                    .map_err(Error::after_write)
                    .map(Some);
            }
        }
        Err(contended())
    }

    /// The bucket of the SYSTEM message, whichever server writes it.
    async fn system_bucket(&self, id: ConversationId, version: TimeUuid) -> Result<Bucket> {
        let state = self
            .write_state(id)
            .await?
            .ok_or_else(|| corrupt("conversations", "a conversation that was there"))?;
        let bucket = state.lock().buckets.choose(version, SYSTEM_MESSAGE_BYTES);
        bucket.ok_or_else(|| unavailable("a conversation has too many messages in one minute"))
    }

    /// The roster after a change. `None` if it has changed since it was read.
    async fn roster_after(
        &self,
        conversation: &Conversation,
        seen: &RosterSnapshot,
        change: &MembershipChange,
    ) -> Result<Option<RosterAfter>> {
        let version = Some(change.version);
        if conversation.is_large {
            let users = change.transitions.iter().map(|transition| &transition.user);
            let Some(stored) = self
                .participants
                .memberships_of(conversation.id, users, seen)
                .await?
            else {
                return Ok(None);
            };
            let after = || {
                change
                    .transitions
                    .iter()
                    .map(|transition| &transition.membership)
            };
            let was = |of: fn(&Membership) -> bool| count(stored.values().map(of));
            let is = |of: fn(&Membership) -> bool| count(after().map(of));
            let before = &seen.roster.participants;
            let owners = (before.owners + is(is_owner)).saturating_sub(was(is_owner));
            if owners > 0 {
                let joined = (before.joined + is(Membership::is_joined))
                    .saturating_sub(was(Membership::is_joined));
                let roster = Roster::counted(version, joined, owners);
                return Ok(Some(RosterAfter {
                    bytes: roster.followed_by(&seen.roster).encode(),
                    present: None,
                }));
            }
        }
        let present = self.participants.present_memberships(conversation.id, seen);
        let Some(mut all) = present.await? else {
            return Ok(None);
        };
        all.extend(
            change
                .transitions
                .iter()
                .map(|transition| (transition.user.clone(), transition.membership)),
        );
        let roster = Roster::of(conversation.kind, version, all.iter());
        let bytes = roster.followed_by(&seen.roster).encode();
        let present = present::encode(&bytes, present::joined(&all).iter());
        Ok(Some(RosterAfter { bytes, present }))
    }

    /// Decides a change by compare-and-set of the roster. False if another change was decided first.
    async fn decide(
        &self,
        id: ConversationId,
        seen: &RosterSnapshot,
        after: RosterAfter,
        change: &MembershipChange,
        pending: &PendingChange,
    ) -> Result<bool> {
        let mut values = values![
            change.version,
            after.bytes,
            pending.encode(),
            after.present,
            id
        ];
        let mut writes = Writes::of_one_partition();
        match &seen.bytes {
            Some(bytes) => {
                values.extend(values![bytes.clone()]);
                writes.push(&DECIDE, values);
            }
            None => writes.push(&DECIDE_FIRST, values),
        }
        for transition in &change.transitions {
            writes.swap_membership(id, &transition.user, &transition.membership);
        }
        Ok(self.executor.write_all_if::<Row>(writes).await?.is_none())
    }

    /// The participants now; `None` in the audience of a conversation that was large before the change.
    /// Nobody for a change without a message, unless it raises the floor.
    async fn audience(
        &self,
        id: ConversationId,
        change: &MembershipChange,
        was_large: bool,
    ) -> Result<Audience> {
        if change.message.is_none() && !change.raises_history_unannounced() {
            let users = Some(Arc::default());
            return Ok(Audience { users });
        }
        if was_large {
            return Ok(Audience { users: None });
        }
        Ok(Audience {
            users: Some(self.participants.present(id).await?.into()),
        })
    }

    /// Renames a conversation in the batch of its SYSTEM message. The name of the later message wins, so nothing is read first.
    pub(crate) async fn rename_conversation(
        &self,
        id: ConversationId,
        to: &Renaming,
    ) -> Result<Audience> {
        let put = |writes: &mut Writes| {
            writes.put_name(id, &to.name, to.message.id.moment());
            writes.put_change(id, &to.change);
        };
        let extra = Extra {
            put: &put,
            changes: std::slice::from_ref(&to.change),
        };
        self.append_with(&to.message, None, extra).await
    }
}
