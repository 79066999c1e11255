//! Pending change: the writes that follow a decided change of membership, by the server that decided it or by any later reader.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::try_join;

use super::Sends;
use super::append::Extra;
use super::writer_cache::KnownParticipants;
use crate::model::{
    Ban, Change, ChangeId, ChangeKind, Conversation, ConversationId, HistorySettings, Membership,
    Message, OutboxEvent, ReadMarker, TimeUuid, UserId,
};
use crate::store::cluster::CompletedChange;
use crate::store::cql::driver::error::{corrupt, unavailable};
use crate::store::cql::driver::executor::{Writes, concurrently};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::values;
use crate::store::cql::inbox::Inboxes;
use crate::store::cql::inbox::writes::InboxChangeKind;
use crate::store::cql::message::bucket::Bucket;
use crate::store::cql::message::conversation::Head;
use crate::store::cql::participant::ban;
use crate::store::cql::participant::roster::{RosterSnapshot, TABLE};
use crate::store::{
    BanChange, LastMembershipChange, MembershipChange, MembershipTransition, MembershipVersion,
    Result, TransitionKind,
};

/// The format of a change that a message announces, in its first byte.
const VERSION: u8 = 1;
/// The format of a change without a message, or with bans. Servers of the first version do not read it.
const VERSION_2: u8 = 2;
/// The format of a change of the settings of a history, which follow the second version.
const VERSION_3: u8 = 3;
/// First byte of one without a version, which earlier versions wrote: the length of the
/// conversation's id.
const UNVERSIONED: u8 = 16;

/// Turns that fit into the batch of the SYSTEM message.
const EXTRA_TRANSITIONS_MAX: usize = 8;
/// Turns that fit into a batch of their own, with the longest usernames.
const BATCH_TRANSITIONS_MAX: usize = 16;

statements! {
    SELECT_PENDING: Read "SELECT pending FROM participants_by_conversation WHERE conversation_id = ? LIMIT 1";
}

/// Everything that a decided change still has to write. It stays in the partition until the next change.
pub(super) struct PendingChange {
    conversation: ConversationId,
    pub(super) version: TimeUuid,
    announcement: Option<Announcement>,
    pub(super) was_large: bool,
    transitions: Vec<PendingTransition>,
    changes: Vec<(ChangeId, ChangeKind, UserId)>,
    bans: Vec<BanChange>,
    history: Option<HistorySettings>,
    /// The users who have cleared the history.
    cleared: Vec<UserId>,
}

/// The SYSTEM message of a change, and its bucket, whichever server writes it.
type Announcement = (Message, (i8, i64));

#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct PendingTransition {
    user: UserId,
    /// Whether the user joins or leaves; `None` if the user stays.
    joins: Option<bool>,
    membership: Membership,
}

/// Encoding of the first version.
#[derive(serde::Serialize, serde::Deserialize)]
struct AnnouncedChange {
    message: Message,
    bucket: (i8, i64),
    was_large: bool,
    transitions: Vec<PendingTransition>,
    changes: Vec<(ChangeId, ChangeKind, UserId)>,
}

/// Encoding of the second version.
#[derive(serde::Serialize, serde::Deserialize)]
struct ModerationChange {
    conversation: ConversationId,
    version: TimeUuid,
    announcement: Option<Announcement>,
    was_large: bool,
    transitions: Vec<PendingTransition>,
    changes: Vec<(ChangeId, ChangeKind, UserId)>,
    set_bans: Vec<Ban>,
    lifted_bans: Vec<UserId>,
}

/// Encoding of the third version.
type HistoryChange = (ModerationChange, Option<HistorySettings>, Vec<UserId>);

impl From<AnnouncedChange> for PendingChange {
    fn from(change: AnnouncedChange) -> Self {
        Self {
            conversation: change.message.conversation,
            version: change.message.id,
            announcement: Some((change.message, change.bucket)),
            was_large: change.was_large,
            transitions: change.transitions,
            changes: change.changes,
            bans: Vec::new(),
            history: None,
            cleared: Vec::new(),
        }
    }
}

impl From<ModerationChange> for PendingChange {
    fn from(change: ModerationChange) -> Self {
        let set = change.set_bans.into_iter().map(BanChange::Set);
        let lifted = change.lifted_bans.into_iter().map(BanChange::Lift);
        Self {
            conversation: change.conversation,
            version: change.version,
            announcement: change.announcement,
            was_large: change.was_large,
            transitions: change.transitions,
            changes: change.changes,
            bans: set.chain(lifted).collect(),
            history: None,
            cleared: Vec::new(),
        }
    }
}

impl PendingChange {
    pub(super) fn of(
        conversation: ConversationId,
        change: &MembershipChange,
        announcement: Option<(Message, Bucket)>,
        was_large: bool,
    ) -> Self {
        let transition = |transition: &MembershipTransition| PendingTransition {
            user: transition.user.clone(),
            joins: match transition.kind {
                TransitionKind::Joins => Some(true),
                TransitionKind::Leaves => Some(false),
                TransitionKind::Stays | TransitionKind::Clears => None,
            },
            membership: transition.membership,
        };
        let placed = |(message, bucket): (Message, Bucket)| {
            (message, (bucket.width.number(), bucket.start.micros()))
        };
        Self {
            conversation,
            version: change.version,
            announcement: announcement.map(placed),
            was_large,
            transitions: change.transitions.iter().map(transition).collect(),
            changes: change
                .changes
                .iter()
                .map(|change| (change.id, change.kind, change.user.clone()))
                .collect(),
            bans: change.bans.clone(),
            history: change.history,
            cleared: (change.transitions.iter())
                .filter(|transition| transition.kind == TransitionKind::Clears)
                .map(|transition| transition.user.clone())
                .collect(),
        }
    }

    /// A change that is not the last one of the conversation, in place of the last one.
    pub(super) fn forgotten(conversation: ConversationId, version: TimeUuid) -> Self {
        Self {
            conversation,
            version,
            announcement: None,
            was_large: false,
            transitions: Vec::new(),
            changes: Vec::new(),
            bans: Vec::new(),
            history: None,
            cleared: Vec::new(),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let (transitions, changes) = (self.transitions.clone(), self.changes.clone());
        let bytes = match (&self.announcement, self.bans.as_slice()) {
            (Some((message, bucket)), []) if !self.bounds_history() => {
                let change = AnnouncedChange {
                    message: message.clone(),
                    bucket: *bucket,
                    was_large: self.was_large,
                    transitions,
                    changes,
                };
                postcard::to_extend(&change, vec![VERSION])
            }
            (announcement, bans) => {
                let mut change = ModerationChange {
                    conversation: self.conversation,
                    version: self.version,
                    announcement: announcement.clone(),
                    was_large: self.was_large,
                    transitions,
                    changes,
                    set_bans: Vec::new(),
                    lifted_bans: Vec::new(),
                };
                for ban in bans {
                    match ban {
                        BanChange::Set(ban) => change.set_bans.push(ban.clone()),
                        BanChange::Lift(user) => change.lifted_bans.push(user.clone()),
                    }
                }
                if self.bounds_history() {
                    let change = (change, &self.history, &self.cleared);
                    postcard::to_extend(&change, vec![VERSION_3])
                } else {
                    postcard::to_extend(&change, vec![VERSION_2])
                }
            }
        };
        bytes.expect("plain data serialises")
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let broken = |error| corrupt(TABLE, error);
        let announced = match bytes.split_first() {
            Some((&VERSION, body)) => body,
            Some((&UNVERSIONED, _)) => bytes,
            Some((&VERSION_2, body)) => {
                let change = postcard::from_bytes::<ModerationChange>(body);
                return change.map(Self::from).map_err(broken);
            }
            Some((&VERSION_3, body)) => {
                let decoded = postcard::from_bytes::<HistoryChange>(body);
                let (change, history, cleared) = decoded.map_err(broken)?;
                return Ok(Self {
                    history,
                    cleared,
                    ..Self::from(change)
                });
            }
            Some((version, _)) if *version > VERSION_3 => {
                return Err(unavailable("a later version has to complete a change"));
            }
            Some(_) | None => {
                return Err(corrupt(TABLE, "a pending change begins with its version"));
            }
        };
        let change = postcard::from_bytes::<AnnouncedChange>(announced);
        change.map(Self::from).map_err(broken)
    }

    /// Whether it changes the settings of the history, or a user has cleared it.
    fn bounds_history(&self) -> bool {
        self.history.is_some() || !self.cleared.is_empty()
    }

    fn changes(&self) -> impl Iterator<Item = Change> {
        self.changes.iter().map(|(id, kind, user)| Change {
            id: *id,
            kind: *kind,
            message: self.announcement.as_ref().map_or(*id, |_| self.version),
            user: user.clone(),
        })
    }

    /// The users who join or leave.
    fn moved(&self) -> impl Iterator<Item = &UserId> {
        self.transitions
            .iter()
            .filter(|transition| transition.joins.is_some())
            .map(|transition| &transition.user)
    }
}

/// The participants among memberships.
pub(super) fn joined(all: &BTreeMap<UserId, Membership>) -> Vec<UserId> {
    all.iter()
        .filter(|(_, membership)| membership.is_joined())
        .map(|(user, _)| user.clone())
        .collect()
}

impl Sends {
    /// The version of the membership, by one statement. The last change is unnamed if this server cannot
    /// decode it.
    pub(crate) async fn membership_version(
        &self,
        id: ConversationId,
    ) -> Result<Option<MembershipVersion>> {
        let Some(cells) = self.participants.version_cells(id).await? else {
            return Ok(None);
        };
        let version = cells.roster.version;
        let pending = cells
            .pending
            .and_then(|bytes| PendingChange::decode(&bytes).ok())
            .filter(|pending| Some(pending.version) == version);
        let last_change = pending.map(|pending| LastMembershipChange {
            before: cells.roster.version_before(),
            moved: (pending.transitions.iter())
                .map(|transition| transition.user.clone())
                .collect(),
        });
        Ok(Some(MembershipVersion {
            conversation: cells.conversation,
            version,
            participant_count: u64::from(cells.roster.participants.joined),
            last_change,
        }))
    }

    pub(super) async fn pending(&self, id: ConversationId) -> Result<Option<PendingChange>> {
        let row = self
            .executor
            .read_one::<(Option<Vec<u8>>,)>(&SELECT_PENDING, values![id])
            .await?;
        let bytes = row.and_then(|(bytes,)| bytes);
        bytes.map(|bytes| PendingChange::decode(&bytes)).transpose()
    }

    /// The conversation and its roster, after completing the last change of membership.
    pub(super) async fn settled(
        &self,
        id: ConversationId,
    ) -> Result<Option<(Arc<Conversation>, RosterSnapshot)>> {
        let (found, seen) =
            try_join(self.messages.conversation(id), self.participants.roster(id)).await?;
        let Some(found) = found else { return Ok(None) };
        if seen.is_settled() || self.completions.is_growing(id, seen.roster.version) {
            return Ok(Some((found.conversation, seen)));
        }
        if let Some(pending) = self
            .pending(id)
            .await?
            .filter(|pending| seen.roster.version == Some(pending.version))
        {
            self.complete_for_another(id, &pending).await?;
        }
        let (found, seen) =
            try_join(self.messages.conversation(id), self.participants.roster(id)).await?;
        Ok(found.map(|found| (found.conversation, seen)))
    }

    /// Completes a change that another server decided. That server publishes it no more, so this one
    /// does.
    async fn complete_for_another(
        &self,
        id: ConversationId,
        pending: &PendingChange,
    ) -> Result<()> {
        self.complete(pending).await?;
        if let Some(handler) = self.completions.handler() {
            handler.on_change_completed(CompletedChange {
                conversation: id,
                changes: pending.changes().collect(),
                message: (pending.announcement.as_ref())
                    .map(|(message, _)| Arc::new(message.clone())),
                moved: pending.moved().cloned().collect(),
            });
        }
        Ok(())
    }

    /// Writes everything that follows from a decided change. A retry changes nothing.
    pub(super) async fn complete(&self, pending: &PendingChange) -> Result<()> {
        let PendingChange {
            conversation: id,
            version,
            announcement,
            was_large,
            transitions,
            bans,
            history,
            ..
        } = pending;
        let (id, version) = (*id, *version);
        let Some((message, (width, start))) = announcement else {
            return self.complete_unannounced(pending).await;
        };
        let state = self
            .write_state(id)
            .await?
            .ok_or_else(|| corrupt("conversations", "a conversation that was there"))?;
        // Read after the decision: it has every send that did not know of the change yet.
        let head = self.messages.head(id).await?;
        let joined = if *was_large {
            Vec::new()
        } else {
            joined(&self.participants.memberships(id).await?)
        };
        let is_large = *was_large || head.is_large || joined.len() > Conversation::FAN_OUT_MAX;
        let has_grown = is_large && !was_large;
        if has_grown {
            self.grow(message, &joined).await?;
        }
        let history_after = history.unwrap_or(head.history);
        state.set_participants(Arc::new(KnownParticipants {
            roster: None,
            history: None,
            row_history: history_after,
            ttl_seconds: self.ttl_seconds(&history_after),
            is_large,
            joined: if is_large {
                Arc::default()
            } else {
                joined.as_slice().into()
            },
            growing: None,
        }));
        let is_later = head.last.as_ref().is_some_and(|last| last.id > version)
            || head.last_activity > Some(version.moment());
        let effects = TurnEffects {
            inboxes: &self.inboxes,
            message,
            head: Some(&head).filter(|_| is_later),
            is_large,
        };
        let is_in_message_batch = transitions.len() <= EXTRA_TRANSITIONS_MAX;
        if !is_in_message_batch {
            let pieces = transitions.chunks(BATCH_TRANSITIONS_MAX).map(|piece| {
                let mut writes = Writes::logged();
                piece
                    .iter()
                    .for_each(|transition| effects.put(&mut writes, transition));
                self.executor.write_all(writes)
            });
            concurrently(pieces.collect()).await?;
        }
        // Growth is settled by its handler, after the servers of the participants were notified.
        let growth = self.completions.handler().filter(|_| has_grown);
        let changes: Vec<_> = pending.changes().collect();
        let put = |writes: &mut Writes| {
            transitions
                .iter()
                .filter(|_| is_in_message_batch)
                .for_each(|transition| effects.put(writes, transition));
            changes
                .iter()
                .for_each(|change| self.messages.put_change(writes, id, change));
            bans.iter()
                .for_each(|change| ban::put_change(writes, id, change, version));
            if let Some(history) = history {
                self.participants
                    .put_history(writes, id, history, version.moment().micros());
            }
            if growth.is_none() {
                self.participants
                    .put_settled(writes, id, version.order_key());
            }
        };
        // The decided bucket, as two servers may write the message: in two buckets it would exist twice.
        let extra = Extra {
            put: &put,
            changes: &changes,
        };
        self.append_with(message, Some(Bucket::from_row(*width, *start)?), extra)
            .await?;
        self.messages.observe_message(id, version);
        if let Some(handler) = growth {
            self.completions.begin_growth(id, version);
            handler.on_growth(id, version, joined);
        }
        Ok(())
    }

    /// The same for a change that no message announces: nobody joins by it, and no inbox shows it but those of
    /// users who leave, unless it raises the floor.
    async fn complete_unannounced(&self, pending: &PendingChange) -> Result<()> {
        let (id, version) = (pending.conversation, pending.version);
        let changes: Vec<_> = pending.changes().collect();
        let mut writes = Writes::logged();
        changes
            .iter()
            .for_each(|change| self.messages.put_change(&mut writes, id, change));
        (pending.bans.iter()).for_each(|change| ban::put_change(&mut writes, id, change, version));
        for transition in &pending.transitions {
            if transition.joins == Some(false) {
                let (user, at) = (&transition.user, version.moment().micros());
                let inboxes = &self.inboxes;
                inboxes.put_membership(&mut writes, user, id, &transition.membership, at);
                if pending.was_large {
                    inboxes.delete_large(&mut writes, user, id, at);
                }
                let kind = InboxChangeKind::MembershipChanged;
                inboxes.put_inbox_change(&mut writes, user, id, version, kind);
            }
        }
        for user in &pending.cleared {
            let kind = InboxChangeKind::MessageChanged;
            self.inboxes
                .put_inbox_change(&mut writes, user, id, version, kind);
        }
        if let Some(history) = &pending.history {
            let at = version.moment().micros();
            self.participants.put_history(&mut writes, id, history, at);
            let is_raise = |change: &Change| change.kind == ChangeKind::HistoryRaised;
            if changes.iter().any(is_raise) && !pending.was_large {
                let kind = InboxChangeKind::MessageChanged;
                for user in joined(&self.participants.memberships(id).await?) {
                    self.inboxes
                        .put_inbox_change(&mut writes, &user, id, version, kind);
                }
            }
        }
        self.participants
            .put_settled(&mut writes, id, version.order_key());
        let events = || changes.iter().map(OutboxEvent::of_change).collect();
        let row = self.outbox.row(id, events);
        self.outbox.write_all(writes, row).await?;
        if let Some(newest) = changes.last() {
            self.messages.observe_change(id, newest.id);
        }
        Ok(())
    }

    /// Settles a change by which a conversation became large, after its notices were delivered.
    pub(crate) async fn settle_growth(&self, id: ConversationId, change: ChangeId) -> Result<()> {
        let mut writes = Writes::of_one_partition();
        self.participants
            .put_settled(&mut writes, id, change.order_key());
        self.executor.write_all(writes).await?;
        self.completions.end_growth(id, change);
        Ok(())
    }

    /// Makes a conversation large: first the lists of its participants, then the flag. The notices to
    /// their servers follow. From then on senders notify the listeners of the conversation itself.
    /// Until the change is settled, which is after the notices, senders notify all participants
    /// (`KnownParticipants::growing`): a server that dies in between leaves no subscriber out. A change
    /// of the membership before that counts as growth again.
    async fn grow(&self, message: &Message, joined: &[UserId]) -> Result<()> {
        let (id, version) = (message.conversation, message.id);
        let pieces = joined.chunks(2 * BATCH_TRANSITIONS_MAX).map(|piece| {
            let mut writes = Writes::logged();
            for user in piece {
                self.inboxes
                    .put_large(&mut writes, user, id, version.moment().micros());
                self.inboxes.put_inbox_change(
                    &mut writes,
                    user,
                    id,
                    version,
                    InboxChangeKind::MembershipChanged,
                );
            }
            self.executor.write_all(writes)
        });
        concurrently(pieces.collect()).await?;
        let mut flag = Writes::logged();
        self.participants.put_is_large(&mut flag, id);
        self.executor.write_all(flag).await
    }
}

/// The writes of transitions to inboxes.
struct TurnEffects<'a> {
    inboxes: &'a Inboxes,
    message: &'a Message,
    /// The head of the conversation, if it is later than the SYSTEM message.
    head: Option<&'a Head>,
    is_large: bool,
}

impl TurnEffects<'_> {
    /// Adds the writes of one user's transition.
    fn put(&self, writes: &mut Writes, transition: &PendingTransition) {
        let Self {
            inboxes, message, ..
        } = self;
        let (id, at, user) = (message.conversation, message.id.moment(), &transition.user);
        let Some(joins) = transition.joins else {
            return;
        };
        inboxes.put_membership(writes, user, id, &transition.membership, at.micros());
        if joins {
            inboxes.put_marker(writes, user, id, ReadMarker::at_joining(message.id));
            // Earlier mentions of everyone are in no maximum of this user.
            inboxes.put_mentioned_up_to(writes, user, id, message.id);
            if self.is_large {
                inboxes.put_large(writes, user, id, at.micros());
            }
            if let Some(head) = self.head {
                let activity = head.last_activity.unwrap_or(at);
                inboxes.put_entry(writes, user, id, head.last.as_ref(), Some(activity), None);
                inboxes.put_hint(writes, user, id, activity);
            }
        } else if self.is_large {
            inboxes.delete_large(writes, user, id, at.micros());
        }
        inboxes.put_inbox_change(
            writes,
            user,
            id,
            message.id,
            InboxChangeKind::MembershipChanged,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{MessageKind, Role, Timestamp};

    #[test]
    fn a_pending_change_is_read_with_and_without_its_version() {
        let id = TimeUuid::new(Timestamp::from_micros(7), [0; 8]);
        let user = UserId::parse("anna").unwrap();
        let announced = AnnouncedChange {
            message: Message {
                conversation: ConversationId::random(),
                id,
                sender: user.clone(),
                kind: MessageKind::System,
                content: None,
                reply_to: None,
                client_key: None,
                deleted_at: None,
                has_reactions: false,
                pin: None,
            },
            bucket: (1, 2),
            was_large: false,
            transitions: vec![PendingTransition {
                user: user.clone(),
                joins: Some(true),
                membership: Membership::joined(Role::Member),
            }],
            changes: vec![(id, ChangeKind::ParticipantAdded, user.clone())],
        };
        let earlier = postcard::to_stdvec(&announced).unwrap();
        let pending = PendingChange::from(announced);
        let present = pending.encode();
        assert_eq!(present[0], VERSION);
        assert_eq!(earlier[0], UNVERSIONED);
        for bytes in [&present, &earlier] {
            let read = PendingChange::decode(bytes).unwrap();
            assert_eq!(read.encode(), present);
        }
        let mut later = present;
        later[0] = VERSION_3 + 1;
        assert!(matches!(
            PendingChange::decode(&later),
            Err(crate::store::Error::Unavailable(_))
        ));
        assert!(PendingChange::decode(&[]).is_err());

        let set = BanChange::Set(Ban {
            user: user.clone(),
            by: user.clone(),
            at: Timestamp::from_micros(7),
            until: None,
            reason: Some("spam".to_owned()),
        });
        let with_bans = PendingChange {
            announcement: None,
            bans: vec![set, BanChange::Lift(user)],
            ..pending
        };
        let bytes = with_bans.encode();
        assert_eq!(bytes[0], VERSION_2);
        let read = PendingChange::decode(&bytes).unwrap();
        assert_eq!((read.bans, read.version), (with_bans.bans, id));
    }
}
