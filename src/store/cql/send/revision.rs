//! Edits and deletions: one LOGGED batch of the message, the change log and the inboxes that show it.
//!
//! The content is one cell, which an edit replaces with the microsecond of its change. A deletion sets `deleted_at`, which wins for every
//! reader, and replaces the content by an empty one. A later edit by a server with a faster clock is stored and never shown.

use std::sync::Arc;

use futures_util::future::try_join;

use super::Sends;
use super::mention::MentionRevision;
use super::writer_cache::{CachedParticipants, ConversationWriteState};
use crate::model::{
    Change, ChangeKind, ConversationId, MessageKind, OutboxEvent, OutboxRow, Pin, Revision, UserId,
};
use crate::store::cql::driver::error::{corrupt, unavailable};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::inbox::writes::InboxChangeKind;
use crate::store::cql::message::pin::end_of;
use crate::store::{Audience, ConversationProfileChange, Error, LateChange, Result, Revised};

/// How often the membership may change while a change checks the participants.
const TRIES_MAX: usize = 16;

impl Sends {
    pub(crate) async fn revise_message(
        &self,
        conversation: ConversationId,
        revision: &Revision,
        change: &Change,
    ) -> Result<Option<Revised>> {
        let Some(state) = self.write_state(conversation).await? else {
            return Ok(None);
        };
        let guess = state.lock().buckets.bucket_of(change.message);
        let found = self
            .messages
            .find_message(conversation, change.message, guess);
        let (found, head) = try_join(found, self.messages.head(conversation)).await?;
        let Some((present, bucket)) = found else {
            return Ok(None);
        };
        // A deletion by this very change had an unknown outcome: the retry settles it.
        let is_retry =
            *revision == Revision::Deletion && present.deleted_at == Some(change.id.moment());
        if present.deleted_at.is_some() && !is_retry {
            let users = (!state.participants().is_large).then(Arc::default);
            return Ok(Some(Revised {
                message: Arc::new(present),
                audience: Audience { users },
            }));
        }
        let pin = present.current_pin().cloned();
        let unpins = *revision == Revision::Deletion && present.pin.is_some();
        let message = revision.apply(present.clone(), change.id.moment());
        let mentions = MentionRevision::of(&present, &message);
        let is_edit = *revision != Revision::Deletion;
        if is_edit && mentions.changes() {
            self.check_mentioned_room((conversation, message.id), bucket, &mentions)
                .await?;
        }
        let mut writes = Writes::logged();
        writes.put_content(&message, bucket, change.id.moment());
        if let (Some(pin), Revision::Deletion) = (pin, revision) {
            // No read shows it any more, and so no erasure would find a name in it.
            let end = Pin {
                by: UserId::erased(),
                ..end_of(&pin, change.id)
            };
            writes.put_pin((conversation, message.id), bucket, &end);
        }
        let participants = state.participants();
        let joined = (!participants.is_large).then_some(&*participants.joined);
        self.put_revised_mentions(&mut writes, &message, bucket, &mentions, (change, joined));
        writes.put_change(conversation, change);
        // A deletion may change the unread count, as an edit may change mentions. Any other edit shows in inboxes only if the message is
        // the last one.
        let is_last = head.last.is_some_and(|last| last.id == message.id);
        let shown = (is_last || !is_edit || mentions.changes())
            .then_some((change, InboxChangeKind::MessageChanged));
        let row = self.outbox.row(conversation, || {
            vec![OutboxEvent::of_revision(change, revision)]
        });
        let audience = self
            .write_change(&state, conversation, (writes, row), shown)
            .await?;
        if unpins {
            let unlisted = self
                .messages
                .change_pin_list(conversation, |list| list.remove(message.id));
            unlisted.await.map_err(Error::after_write)?;
        }
        if message.kind == MessageKind::Text {
            self.settle_mentions(&message, bucket, &mentions, change)
                .await
                .map_err(Error::after_write)?;
        }
        Ok(Some(Revised {
            message: Arc::new(message),
            audience,
        }))
    }

    /// Sets the slow mode of a conversation, in the batch of its change. No inbox shows it.
    pub(crate) async fn set_slow_mode(
        &self,
        conversation: ConversationId,
        seconds: u32,
        change: &Change,
    ) -> Result<()> {
        if !self.messages.head(conversation).await?.exists {
            return Err(corrupt(
                "conversations",
                "a setting of a conversation that does not exist",
            ));
        }
        let mut writes = Writes::logged();
        let at = change.id.moment().micros();
        writes.put_slow_mode(conversation, seconds, at);
        writes.put_change(conversation, change);
        let row = self
            .outbox
            .row(conversation, || vec![OutboxEvent::of_change(change)]);
        self.outbox.write_all(writes, row).await?;
        self.messages.observe_change(conversation, change.id);
        Ok(())
    }

    /// Changes the profile of a conversation, in the batch of its change, which the inboxes of a small one show.
    pub(crate) async fn change_conversation_profile(
        &self,
        conversation: ConversationId,
        to: &ConversationProfileChange,
        change: &Change,
    ) -> Result<Audience> {
        let state = self.write_state(conversation).await?;
        let state = state.ok_or_else(|| {
            corrupt(
                "conversations",
                "a profile of a conversation that does not exist",
            )
        })?;
        let mut writes = Writes::logged();
        let at = change.id.moment().micros();
        writes.put_conversation_profile(conversation, to, at);
        writes.put_change(conversation, change);
        let row = self
            .outbox
            .row(conversation, || vec![OutboxEvent::of_change(change)]);
        let shown = Some((change, InboxChangeKind::MessageChanged));
        self.write_change(&state, conversation, (writes, row), shown)
            .await
    }

    pub(crate) async fn log_late(
        &self,
        conversation: ConversationId,
        late: &[LateChange],
    ) -> Result<()> {
        let changes = || late.iter().map(|late| &late.change);
        let Some(newest) = changes().max_by_key(|change| change.id) else {
            return Ok(());
        };
        let state = self.write_state(conversation).await?;
        let state = state.ok_or_else(|| {
            corrupt(
                "conversations",
                "a change of a conversation that does not exist",
            )
        })?;
        let mut writes = Writes::logged();
        changes().for_each(|change| writes.put_change(conversation, change));
        let is_message = changes().any(|change| change.kind == ChangeKind::MessageLate);
        let kind = if is_message {
            InboxChangeKind::MessageLate
        } else {
            InboxChangeKind::MessageChanged
        };
        // An inbox subscription delivers states, so the newest change stands for all.
        let row = self.outbox.row(conversation, || {
            late.iter().map(|late| late.event.clone()).collect()
        });
        // The row stands under the fresh id, which readers have yet to pass.
        let row = row.map(|row| OutboxRow {
            id: newest.id,
            ..row
        });
        self.write_change(&state, conversation, (writes, row), Some((newest, kind)))
            .await?;
        Ok(())
    }

    /// Writes a change, also to the inboxes that show it, and returns whose these are.
    async fn write_change(
        &self,
        state: &ConversationWriteState,
        conversation: ConversationId,
        (mut writes, row): (Writes, Option<OutboxRow>),
        shown: Option<(&Change, InboxChangeKind)>,
    ) -> Result<Audience> {
        let mut participants = state.participants();
        let put = |writes: &mut Writes, user: &UserId| {
            if let Some((change, kind)) = shown {
                writes.put_inbox_change(user, conversation, change.id, kind);
            }
        };
        participants
            .joined
            .iter()
            .for_each(|user| put(&mut writes, user));
        self.outbox.write_all(writes, row).await?;
        if let Some((change, _)) = shown {
            self.messages.observe_change(conversation, change.id);
        }
        for _ in 0..TRIES_MAX {
            let Some(now) = self
                .changed_participants(conversation, &participants)
                .await
                .map_err(Error::after_write)?
            else {
                return Ok(audience(&participants, shown.is_some()));
            };
            let mut writes = Writes::logged();
            now.missing_from(&participants)
                .for_each(|user| put(&mut writes, user));
            self.executor
                .write_all(writes)
                .await
                .map_err(Error::after_write)?;
            state.set_participants(Arc::clone(&now));
            participants = now;
        }
        Err(Error::after_write(unavailable(
            "the participants of a conversation change all the time",
        )))
    }
}

fn audience(participants: &CachedParticipants, is_shown: bool) -> Audience {
    if is_shown || participants.is_large {
        participants.audience()
    } else {
        Audience {
            users: Some(Arc::default()),
        }
    }
}
