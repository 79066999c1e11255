//! Completion of a pending change: its writes are done by the server that decided it, or by any later
//! reader.

use std::sync::Arc;

use futures_util::future::try_join;

use super::{PendingChange, PendingTransition};
use crate::model::{
    Change, ChangeId, ChangeKind, Conversation, ConversationId, Message, OutboxEvent, ReadMarker,
    Timestamp, UserId,
};
use crate::store::cluster::CompletedChange;
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::values;
use crate::store::cql::inbox::writes::InboxChangeKind;
use crate::store::cql::message::bucket::Bucket;
use crate::store::cql::message::conversation::Head;
use crate::store::cql::participant::ban;
use crate::store::cql::participant::roster::RosterSnapshot;
use crate::store::cql::send::Sends;
use crate::store::cql::send::append::Extra;
use crate::store::cql::send::writer_cache::CachedParticipants;
use crate::store::{LastMembershipChange, MembershipVersion, Result};

/// Turns that fit into the batch of the SYSTEM message.
const EXTRA_TRANSITIONS_MAX: usize = 8;
/// Turns that fit into a batch of their own, with the longest usernames.
const BATCH_TRANSITIONS_MAX: usize = 16;

statements! {
    SELECT_PENDING: Read "SELECT pending FROM participants_by_conversation WHERE conversation_id = ? LIMIT 1";
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

    pub(in crate::store::cql::send) async fn pending(
        &self,
        id: ConversationId,
    ) -> Result<Option<PendingChange>> {
        let row = self
            .executor
            .read_one::<(Option<Vec<u8>>,)>(&SELECT_PENDING, values![id])
            .await?;
        let bytes = row.and_then(|(bytes,)| bytes);
        bytes.map(|bytes| PendingChange::decode(&bytes)).transpose()
    }

    /// The conversation and its roster, after completing the last change of membership.
    pub(in crate::store::cql::send) async fn settled(
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
    pub(in crate::store::cql::send) async fn complete(
        &self,
        pending: &PendingChange,
    ) -> Result<()> {
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
            self.participants.present(id).await?
        };
        let is_large = *was_large || head.is_large || joined.len() > Conversation::FAN_OUT_MAX;
        let has_grown = is_large && !was_large;
        if has_grown {
            self.grow(message, &joined).await?;
        }
        let history_after = history.unwrap_or(head.history);
        state.set_participants(Arc::new(CachedParticipants {
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
            message,
            head: Some(&head).filter(|_| is_later),
            last_activity: head.last_activity,
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
            concurrently(pieces).await?;
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
                .for_each(|change| writes.put_change(id, change));
            bans.iter()
                .for_each(|change| ban::put_change(writes, id, change, version));
            if let Some(history) = history {
                writes.put_history(id, history, version.moment().micros());
            }
            if growth.is_none() {
                writes.put_settled(id, version.order_key());
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
            .for_each(|change| writes.put_change(id, change));
        (pending.bans.iter()).for_each(|change| ban::put_change(&mut writes, id, change, version));
        for transition in &pending.transitions {
            if transition.joins == Some(false) && !transition.user.is_agent() {
                let (user, at) = (&transition.user, version.moment().micros());
                writes.put_entry_membership(user, id, &transition.membership, at);
                if pending.was_large {
                    writes.delete_large(user, id, at);
                }
                let kind = InboxChangeKind::MembershipChanged;
                writes.put_inbox_change(user, id, version, kind);
            }
        }
        for user in &pending.cleared {
            let kind = InboxChangeKind::MessageChanged;
            writes.put_inbox_change(user, id, version, kind);
        }
        if let Some(history) = &pending.history {
            let at = version.moment().micros();
            writes.put_history(id, history, at);
            let is_raise = |change: &Change| change.kind == ChangeKind::HistoryRaised;
            if changes.iter().any(is_raise) && !pending.was_large {
                let kind = InboxChangeKind::MessageChanged;
                for user in self.participants.present(id).await? {
                    writes.put_inbox_change(&user, id, version, kind);
                }
            }
        }
        writes.put_settled(id, version.order_key());
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
        writes.put_settled(id, change.order_key());
        self.executor.write_all(writes).await?;
        self.completions.end_growth(id, change);
        Ok(())
    }

    /// Makes a conversation large: first the lists of its participants, then the flag. The notices to
    /// their servers follow. From then on senders notify the listeners of the conversation itself.
    /// Until the change is settled, which is after the notices, senders notify all participants
    /// (`CachedParticipants::growing`): a server that dies in between leaves no subscriber out. A change
    /// of the membership before that counts as growth again.
    async fn grow(&self, message: &Message, joined: &[UserId]) -> Result<()> {
        let (id, version) = (message.conversation, message.id);
        let pieces = joined.chunks(2 * BATCH_TRANSITIONS_MAX).map(|piece| {
            let mut writes = Writes::logged();
            for user in piece {
                writes.put_large(user, id, version.moment().micros());
                writes.put_inbox_change(user, id, version, InboxChangeKind::MembershipChanged);
            }
            self.executor.write_all(writes)
        });
        concurrently(pieces).await?;
        let mut flag = Writes::logged();
        flag.put_is_large(id);
        self.executor.write_all(flag).await
    }
}

/// The writes of transitions to inboxes.
struct TurnEffects<'a> {
    message: &'a Message,
    /// The head of the conversation, if it is later than the SYSTEM message.
    head: Option<&'a Head>,
    /// The activity by whose hint the inboxes of users who leave list the conversation.
    last_activity: Option<Timestamp>,
    is_large: bool,
}

impl TurnEffects<'_> {
    /// Adds the writes of one user's transition.
    fn put(&self, writes: &mut Writes, transition: &PendingTransition) {
        let message = self.message;
        let (id, at, user) = (message.conversation, message.id.moment(), &transition.user);
        let Some(joins) = transition.joins.filter(|_| !user.is_agent()) else {
            return;
        };
        writes.put_entry_membership(user, id, &transition.membership, at.micros());
        if joins {
            writes.put_marker(user, id, ReadMarker::at_joining(message.id));
            // Earlier mentions of everyone are in no maximum of this user.
            writes.put_mentioned_up_to(user, id, message.id);
            if self.is_large {
                writes.put_large(user, id, at.micros());
            }
            if let Some(head) = self.head {
                let activity = head.last_activity.unwrap_or(at);
                writes.put_entry(user, id, head.last.as_ref(), Some(activity), None);
                // Newer than the tombstone that a page may have written for this activity.
                writes.put_hint_at(user, id, activity, activity.micros() + 1);
            }
        } else if self.is_large {
            writes.delete_large(user, id, at.micros());
        } else if let Some(activity) = self.last_activity {
            writes.end_hint(user, id, activity, at);
        }
        writes.put_inbox_change(user, id, message.id, InboxChangeKind::MembershipChanged);
    }
}
