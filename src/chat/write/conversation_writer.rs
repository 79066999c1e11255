//! Writer of one conversation: runs commands in their order, persists their effects, then publishes
//! them.

use std::sync::Arc;

use super::command::reaction::{EMOJI_PATH, ReactionDraft};
use super::command::revision::RevisionDraft;
use super::introduction::Introductions;
use super::unknown_outcome::retry_until_known;
use crate::chat::access::Access;
use crate::chat::error::{Error, Result};
use crate::chat::history::{HistoryService, is_active};
use crate::chat::in_flight_ids::{IdLease, InFlightIds};
use crate::chat::publisher::Publisher;
use crate::model::{Change, ChangeKind, ConversationId, Emoji, Event, Message, TimeUuid, UserId};
use crate::store::{Audience, Revised, Store};

/// Services that a write needs.
pub(crate) struct WriteContext {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) access: Arc<Access>,
    pub(crate) history: Arc<HistoryService>,
    pub(crate) in_flight: InFlightIds,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) introductions: Introductions,
}

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

    pub(crate) fn context(&self) -> &WriteContext {
        &self.context
    }

    pub(crate) fn conversation(&self) -> ConversationId {
        self.conversation
    }

    /// Checks again whether the user takes part, if any user has left a conversation since the
    /// command was accepted.
    async fn check_still_in(&self, user: &UserId, leave_epoch: u64) -> Result<()> {
        let access = &self.context.access;
        if access.leave_epoch().current() != leave_epoch {
            access.require_conversation(user, self.conversation).await?;
        }
        Ok(())
    }

    /// Edits or deletes a message.
    pub(crate) async fn revise(&self, user: UserId, draft: RevisionDraft) -> Result<Arc<Message>> {
        self.check_still_in(&user, draft.leave_epoch).await?;
        let WriteContext {
            store,
            access,
            history,
            in_flight,
            ..
        } = self.context();
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
        let lease = in_flight.allocate_near_clock(1)?;
        let Some(revision) = draft.revision(&present, &user, role, lease.newest().moment())? else {
            return Ok(present);
        };
        let change = Change {
            id: lease.newest(),
            kind: revision.kind(),
            message: present.id,
            user,
        };
        let (lease, revised) = retry_until_known(lease, || {
            store.revise_message(self.conversation, &revision, &change)
        })
        .await?;
        self.log_late_change(&change).await?;
        let Revised { message, audience } = revised.ok_or(Error::NotFound("the message"))?;
        self.publish(
            change.id,
            &lease,
            Event::MessageChanged(change.kind, Arc::clone(&message)),
        );
        self.publish_to_audience(change.id, &audience, &lease);
        Ok(message)
    }

    /// Puts a reaction on or off.
    pub(crate) async fn react(&self, user: UserId, draft: ReactionDraft) -> Result<Arc<Message>> {
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
        } = self.context();
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
            return Ok(present);
        }
        let lease = in_flight.allocate_near_clock(1)?;
        let change = Change {
            id: lease.newest(),
            kind: ChangeKind::ReactionsChanged,
            message,
            user,
        };
        let (lease, reacted) = retry_until_known(lease, || {
            store.react(self.conversation, &emoji, is_on, &change)
        })
        .await?;
        self.log_late_change(&change).await?;
        let message = reacted.ok_or(Error::NotFound("the message"))?;
        self.publish(
            change.id,
            &lease,
            Event::MessageChanged(change.kind, Arc::clone(&message)),
        );
        Ok(message)
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

    /// Publishes an event of this conversation.
    pub(crate) fn publish(&self, id: TimeUuid, lease: &IdLease, event: Event) {
        self.context
            .publisher
            .publish_event(self.conversation, id, event, lease);
    }

    pub(crate) fn publish_to_audience(&self, id: TimeUuid, audience: &Audience, lease: &IdLease) {
        self.context
            .publisher
            .publish_to_audience(self.conversation, id, audience, lease);
    }
}
