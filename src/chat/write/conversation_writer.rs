//! Writer of one conversation: runs commands in their order, persists their effects, then publishes
//! them.

use std::sync::Arc;

use super::command::pin::PinDraft;
use super::command::reaction::{EMOJI_PATH, ReactionDraft};
use super::command::revision::RevisionDraft;
use super::outgoing::{OutgoingEvents, Publication};
use super::unknown_outcome::retry_until_known;
use super::write_context::WriteContext;
use crate::chat::error::{Error, Result};
use crate::chat::history::{PinnedMessages, is_active};
use crate::chat::in_flight_ids::IdLease;
use crate::model::{Change, ChangeKind, ConversationId, Emoji, Event, Message, UserId};
use crate::store::Revised;

/// At most one writer of a conversation exists in a process: that of its queue.
pub(crate) struct ConversationWriter {
    context: Arc<WriteContext>,
    conversation: ConversationId,
}

impl ConversationWriter {
    pub(crate) fn new(context: Arc<WriteContext>, conversation: ConversationId) -> Self {
        Self {
            context,
            conversation,
        }
    }

    pub(crate) fn context(&self) -> &Arc<WriteContext> {
        &self.context
    }

    pub(crate) fn conversation(&self) -> ConversationId {
        self.conversation
    }

    /// Checks again whether the user takes part, if any user has left a conversation since the
    /// command was accepted. A silence since then refuses the next command.
    async fn check_still_in(&self, user: &UserId, leave_epoch: u64) -> Result<()> {
        let access = &self.context.access;
        if access.leave_epoch().current() != leave_epoch {
            access.require_conversation(user, self.conversation).await?;
        }
        Ok(())
    }

    /// Edits or deletes a message. Returns it, with the events for the other servers.
    pub(crate) async fn revise(
        &self,
        user: UserId,
        draft: RevisionDraft,
    ) -> Result<(Arc<Message>, Option<OutgoingEvents>)> {
        self.check_still_in(&user, draft.leave_epoch).await?;
        let WriteContext {
            store,
            access,
            history,
            in_flight,
            ..
        } = self.context().as_ref();
        let present = history
            .require_message(self.conversation, draft.message)
            .await?;
        // The role may have changed while the command waited. Few commands need it.
        let role = match draft.needs_role(&present, &user) {
            true => Some(
                access
                    .participation(&user, self.conversation)
                    .await?
                    .membership
                    .role,
            ),
            false => None,
        };
        let lease = in_flight.allocate(self.conversation, 1).await?;
        let Some(revision) = draft.revision(&present, &user, role, lease.newest().moment())? else {
            let kind = match present.deleted_at {
                Some(_) => ChangeKind::MessageDeleted,
                None => ChangeKind::MessageEdited,
            };
            let is_changed = present.deleted_at.is_some() || is_edited(&present);
            let repeated = is_changed.then(|| self.context.repeated(kind, &present));
            return Ok((present, repeated.flatten()));
        };
        let change = Change {
            id: lease.newest(),
            kind: revision.kind(),
            message: present.id,
            user,
        };
        let (lease, revised) = retry_until_known(&self.context().unsettled, lease, || {
            store.revise_message(self.conversation, &revision, &change)
        })
        .await?;
        let Revised { message, audience } = revised.ok_or(Error::NotFound("the message"))?;
        let mut publication = self.publication(&lease);
        let event = Event::MessageChanged(change.kind, Arc::clone(&message));
        publication.event(change.id, event);
        publication.audience(change.id, &audience);
        Ok((message, publication.finish()))
    }

    /// Puts a reaction on or off. Returns the message, with the events for the other servers.
    pub(crate) async fn react(
        &self,
        user: UserId,
        draft: ReactionDraft,
    ) -> Result<(Arc<Message>, Option<OutgoingEvents>)> {
        let ReactionDraft {
            message,
            emoji,
            is_on,
            leave_epoch,
        } = draft;
        self.check_still_in(&user, leave_epoch).await?;
        let WriteContext {
            store,
            history,
            in_flight,
            ..
        } = self.context().as_ref();
        let present = history.require_message(self.conversation, message).await?;
        if present.deleted_at.is_some() && is_on {
            return Err(Error::bad_input(
                &["input", "messageId"],
                "the message is deleted",
            ));
        }
        if present.deleted_at.is_some()
            || !self
                .changes_reaction(&present, &user, &emoji, is_on)
                .await?
        {
            let kind = ChangeKind::ReactionsChanged;
            let may_repeat = present.deleted_at.is_none() && present.has_reactions;
            let repeated = may_repeat.then(|| self.context.repeated(kind, &present));
            return Ok((present, repeated.flatten()));
        }
        let lease = in_flight.allocate(self.conversation, 1).await?;
        let change = Change {
            id: lease.newest(),
            kind: ChangeKind::ReactionsChanged,
            message,
            user,
        };
        let (lease, reacted) = retry_until_known(&self.context().unsettled, lease, || {
            store.react(self.conversation, &emoji, is_on, &change)
        })
        .await?;
        let message = reacted.ok_or(Error::NotFound("the message"))?;
        let mut publication = self.publication(&lease);
        let event = Event::MessageChanged(change.kind, Arc::clone(&message));
        publication.event(change.id, event);
        Ok((message, publication.finish()))
    }

    /// Pins or unpins a message. Returns it, with the events for the other servers.
    pub(crate) async fn pin(
        &self,
        user: UserId,
        draft: PinDraft,
    ) -> Result<(Arc<Message>, Option<OutgoingEvents>)> {
        self.check_still_in(&user, draft.leave_epoch).await?;
        let WriteContext {
            store,
            access,
            history,
            in_flight,
            ..
        } = self.context().as_ref();
        // The role may have changed while the command waited.
        let participation = access.participation(&user, self.conversation).await?;
        let is_large = participation.conversation.is_large;
        draft.check_role(is_large.then_some(participation.membership.role))?;
        let present = history
            .require_message(self.conversation, draft.message)
            .await?;
        let kind = ChangeKind::PinsChanged;
        if !draft.changes(&present)? {
            let was_pinned = present.deleted_at.is_none() && present.pin.is_some();
            let repeated = was_pinned.then(|| self.context.repeated(kind, &present));
            return Ok((present, repeated.flatten()));
        }
        if draft.is_on {
            let PinnedMessages { messages, kept } = history.pinned(self.conversation).await?;
            PinDraft::check_room(messages.len(), kept)?;
        }
        // The later change of a pin must have the greater id.
        let earlier = present.pin.as_ref().map(|pin| pin.change);
        in_flight.observe(self.conversation, earlier);
        let lease = in_flight.allocate(self.conversation, 1).await?;
        let change = Change {
            id: lease.newest(),
            kind,
            message: present.id,
            user,
        };
        let (lease, pinned) = retry_until_known(&self.context().unsettled, lease, || {
            store.pin_message(self.conversation, draft.is_on, &change)
        })
        .await?;
        let message = pinned.ok_or(Error::NotFound("the message"))?;
        let mut publication = self.publication(&lease);
        let event = Event::MessageChanged(kind, Arc::clone(&message));
        publication.event(change.id, event);
        Ok((message, publication.finish()))
    }

    /// Whether the reaction would change anything. An error if a bound forbids it.
    async fn changes_reaction(
        &self,
        present: &Message,
        user: &UserId,
        emoji: &Emoji,
        is_on: bool,
    ) -> Result<bool> {
        if !present.has_reactions {
            return Ok(is_on);
        }
        let all = self
            .context
            .store
            .reactions(user, &[(self.conversation, present.id)])
            .await?
            .pop()
            .unwrap_or_default();
        let kind = all.iter().find(|reaction| reaction.emoji == *emoji);
        if kind.is_some_and(|kind| kind.has_viewer) == is_on {
            return Ok(false);
        }
        if is_on
            && !kind.is_some_and(is_active)
            && all.iter().filter(|reaction| is_active(reaction)).count() >= Emoji::KINDS_MAX
        {
            let message = format!(
                "a message has at most {} kinds of reactions",
                Emoji::KINDS_MAX
            );
            return Err(Error::bad_input(EMOJI_PATH, message));
        }
        if kind.is_none() && all.len() >= Emoji::KINDS_EVER_MAX {
            let message = format!(
                "this message has had {} kinds of reactions, and takes no other",
                Emoji::KINDS_EVER_MAX
            );
            return Err(Error::bad_input(EMOJI_PATH, message));
        }
        Ok(true)
    }

    /// Begins to publish the events of a batch.
    pub(crate) fn publication<'a>(&'a self, lease: &'a IdLease) -> Publication<'a> {
        Publication::new(&self.context, self.conversation, lease)
    }
}

fn is_edited(message: &Message) -> bool {
    let content = message.content.as_ref();
    content.is_some_and(|content| content.edited_at.is_some())
}
