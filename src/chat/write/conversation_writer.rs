//! Writer of one conversation: runs commands in their order, persists their effects, then publishes
//! them.

use std::sync::Arc;

use super::command::erasure::{ErasureCommand, ErasureTarget};
use super::command::pin::PinDraft;
use super::command::reaction::{EMOJI_PATH, ReactionDraft};
use super::command::revision::RevisionDraft;
use super::command::{WriterCheck, require_everyone, require_send_role};
use super::outgoing::{OutgoingEvents, Publication};
use super::unknown_outcome::retry_until_known;
use super::write_context::WriteContext;
use crate::chat::access::authority::Authority;
use crate::chat::access::silenced;
use crate::chat::error::{Error, Result};
use crate::chat::history::{PinnedMessages, is_active};
use crate::chat::in_flight_ids::IdLease;
use crate::model::{
    Change, ChangeKind, ConversationId, Emoji, Event, Floor, Message, MessageId, OwnFloor, UserId,
};
use crate::store::{Participation, Revised};

/// Outcome of a command, with the events for the other servers.
pub(crate) type CommandResult<T> = Result<(T, Option<OutgoingEvents>)>;

/// Write to one conversation, which its queue runs alone.
pub(crate) trait ConversationCommand: Send + 'static {
    type Outcome: Send + 'static;

    /// Approximate size in a queue.
    fn bytes(&self) -> usize {
        256
    }

    fn run(
        self,
        writer: &ConversationWriter,
        user: UserId,
    ) -> impl Future<Output = CommandResult<Self::Outcome>> + Send;
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

    pub(crate) fn context(&self) -> &Arc<WriteContext> {
        &self.context
    }

    pub(crate) fn conversation(&self) -> ConversationId {
        self.conversation
    }

    /// Refuses a caller whom a suspension or a revocation since the command was accepted concerns.
    pub(super) fn check_admission(&self, check: &WriterCheck) -> Result<()> {
        match &check.accepted {
            Some(accepted) => (self.context.restrictions).require_admitted(&accepted.admitted),
            None => Ok(()),
        }
    }

    /// Whether the rights of the caller may have changed since the command was accepted.
    pub(super) fn may_have_changed(&self, check: &WriterCheck) -> bool {
        let WriteContext {
            access, in_flight, ..
        } = self.context.as_ref();
        check.authority == Authority::Membership
            && check.accepted.as_ref().is_some_and(|accepted| {
                let epoch = access.leave_epoch();
                !epoch.has_rights_of(accepted.rights, in_flight.is_shared())
            })
    }

    /// Checks a caller again. Returns the participation, if it may have changed.
    async fn check_writer(
        &self,
        user: &UserId,
        check: &WriterCheck,
    ) -> Result<Option<Participation>> {
        self.check_admission(check)?;
        let accepted = check.accepted.as_ref();
        let Some(accepted) = accepted.filter(|_| self.may_have_changed(check)) else {
            return Ok(None);
        };
        let access = &self.context.access;
        let own = access.participation(user, self.conversation).await?;
        if !check.is_deletion {
            let caller = accepted.admitted.caller();
            access.require_writer(caller, &own).await?;
        }
        Ok(Some(own))
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
        let own = all.iter().filter(|reaction| reaction.has_viewer).count();
        if is_on && own >= Emoji::KINDS_OF_USER_MAX {
            let message = format!(
                "a user has at most {} kinds of reactions to a message: remove one of yours first",
                Emoji::KINDS_OF_USER_MAX
            );
            return Err(Error::bad_input(EMOJI_PATH, message));
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
        if is_on {
            self.require_few_ended(present.id, user).await?;
        }
        Ok(true)
    }

    /// An error if a user took back too many kinds of reactions to a message.
    async fn require_few_ended(&self, message: MessageId, user: &UserId) -> Result<()> {
        let (key, max) = ((self.conversation, message), Emoji::ENDED_OF_USER_MAX);
        let store = &self.context.store;
        if store.ended_reaction_count(user, key, max).await? < max {
            return Ok(());
        }
        let text = format!(
            "a user takes back at most {max} kinds of reactions to a message in 35 days: add no other one to it"
        );
        Err(Error::bad_input(EMOJI_PATH, text))
    }

    /// Begins to publish the events of a batch.
    pub(crate) fn publication<'a>(&'a self, lease: &'a IdLease) -> Publication<'a> {
        Publication::new(&self.context, self.conversation, lease)
    }
}

/// An edit or a deletion of a message. Its outcome is the message.
impl ConversationCommand for RevisionDraft {
    type Outcome = Arc<Message>;

    fn bytes(&self) -> usize {
        self.bytes()
    }

    async fn run(self, writer: &ConversationWriter, user: UserId) -> CommandResult<Arc<Message>> {
        let authority = self.check.authority;
        if let Some(own) = writer.check_writer(&user, &self.check).await? {
            require_everyone(&own, self.mentions_everyone())?;
            if self.is_edit() {
                require_send_role(&own)?;
            }
        }
        let WriteContext {
            store,
            access,
            history,
            in_flight,
            index,
            ..
        } = writer.context().as_ref();
        let present = history
            .require_message(writer.conversation, self.message, Floor::NONE)
            .await?;
        // The role may have changed while the command waited. Few commands need it.
        let role = match self.needs_role(&present, &user) {
            true => {
                let own = access.governing(&user, authority, writer.conversation);
                let own = own.await?.membership;
                if access.is_silenced(&own) {
                    return Err(silenced());
                }
                Some(own.role)
            }
            false => None,
        };
        index
            .prepare_change(writer.conversation, present.id)
            .await?;
        let lease = in_flight.allocate(writer.conversation, 1).await?;
        let Some(revision) = self.revision(&present, &user, role, lease.newest().moment())? else {
            let kind = match present.deleted_at {
                Some(_) => ChangeKind::MessageDeleted,
                None => ChangeKind::MessageEdited,
            };
            let is_changed = present.deleted_at.is_some() || is_edited(&present);
            let repeated = is_changed.then(|| writer.context.repeated(kind, &present));
            return Ok((present, repeated.flatten()));
        };
        let change = Change {
            id: lease.newest(),
            kind: revision.kind(),
            message: present.id,
            user,
        };
        let (lease, revised) = retry_until_known(&writer.context().unsettled, lease, || {
            store.revise_message(writer.conversation, &revision, &change)
        })
        .await?;
        let Revised { message, audience } = revised.ok_or(Error::NotFound("the message"))?;
        let mut publication = writer.publication(&lease);
        let event = Event::MessageChanged(change.kind, Arc::clone(&message));
        publication.event(change.id, event);
        publication.mention(revision.newly_mentioned());
        publication.audience(change.id, &audience);
        Ok((message, publication.finish()))
    }
}

/// A reaction, or its end. Its outcome is the message.
impl ConversationCommand for ReactionDraft {
    type Outcome = Arc<Message>;

    async fn run(self, writer: &ConversationWriter, actor: UserId) -> CommandResult<Arc<Message>> {
        let ReactionDraft {
            message,
            emoji,
            user,
            is_on,
            check,
        } = self;
        let authority = check.authority;
        writer.check_writer(&actor, &check).await?;
        if user != actor {
            // The role may have changed while the command waited.
            let access = &writer.context.access;
            let own = access.governing(&actor, authority, writer.conversation);
            ReactionDraft::check_role(own.await?.membership.role)?;
        }
        let WriteContext {
            store,
            history,
            in_flight,
            ..
        } = writer.context().as_ref();
        let present = history
            .require_message(writer.conversation, message, Floor::NONE)
            .await?;
        if present.deleted_at.is_some() && is_on {
            return Err(Error::bad_input(
                &["input", "messageId"],
                "the message is deleted",
            ));
        }
        if present.deleted_at.is_some()
            || !writer
                .changes_reaction(&present, &user, &emoji, is_on)
                .await?
        {
            let kind = ChangeKind::ReactionsChanged;
            let may_repeat = present.deleted_at.is_none() && present.has_reactions;
            let repeated = may_repeat.then(|| writer.context.repeated(kind, &present));
            return Ok((present, repeated.flatten()));
        }
        let lease = in_flight.allocate(writer.conversation, 1).await?;
        let change = Change {
            id: lease.newest(),
            kind: ChangeKind::ReactionsChanged,
            message,
            user,
        };
        let (lease, reacted) = retry_until_known(&writer.context().unsettled, lease, || {
            store.react(writer.conversation, &emoji, is_on, &change)
        })
        .await?;
        let message = reacted.ok_or(Error::NotFound("the message"))?;
        let mut publication = writer.publication(&lease);
        let event = Event::MessageChanged(change.kind, Arc::clone(&message));
        publication.event(change.id, event);
        Ok((message, publication.finish()))
    }
}

/// A pin, or its end. Its outcome is the message.
impl ConversationCommand for PinDraft {
    type Outcome = Arc<Message>;

    async fn run(self, writer: &ConversationWriter, user: UserId) -> CommandResult<Arc<Message>> {
        let authority = self.check.authority;
        writer.check_writer(&user, &self.check).await?;
        let WriteContext {
            store,
            access,
            history,
            in_flight,
            ..
        } = writer.context().as_ref();
        // The role may have changed while the command waited.
        let participation = access
            .governing(&user, authority, writer.conversation)
            .await?;
        let floor = access.floor_of(&participation);
        PinDraft::check_role(&participation)?;
        let present = history
            .require_message(writer.conversation, self.message, floor)
            .await?;
        let kind = ChangeKind::PinsChanged;
        if !self.changes(&present)? {
            let was_pinned = present.deleted_at.is_none() && present.pin.is_some();
            let repeated = was_pinned.then(|| writer.context.repeated(kind, &present));
            return Ok((present, repeated.flatten()));
        }
        if self.is_on {
            let for_all = access.floor_above(&participation.conversation, OwnFloor::NONE);
            let PinnedMessages { messages, kept } =
                history.pinned(writer.conversation, for_all).await?;
            PinDraft::check_room(messages.len(), kept)?;
        }
        // The later change of a pin must have the greater id.
        let earlier = present.pin.as_ref().map(|pin| pin.change);
        in_flight.observe(writer.conversation, earlier);
        let lease = in_flight.allocate(writer.conversation, 1).await?;
        let change = Change {
            id: lease.newest(),
            kind,
            message: present.id,
            user,
        };
        let (lease, pinned) = retry_until_known(&writer.context().unsettled, lease, || {
            store.pin_message(writer.conversation, self.is_on, &change)
        })
        .await?;
        let message = pinned.ok_or(Error::NotFound("the message"))?;
        let mut publication = writer.publication(&lease);
        let event = Event::MessageChanged(kind, Arc::clone(&message));
        publication.event(change.id, event);
        Ok((message, publication.finish()))
    }
}

/// An erasure of a user from a part of the conversation. Nothing is published.
impl ConversationCommand for ErasureCommand {
    type Outcome = ();

    fn bytes(&self) -> usize {
        self.bytes()
    }

    async fn run(self, writer: &ConversationWriter, _: UserId) -> CommandResult<()> {
        let WriteContext {
            store, in_flight, ..
        } = writer.context().as_ref();
        let Self { user, target } = &self;
        let lease = in_flight.allocate(writer.conversation, 1).await?;
        let (id, change) = (writer.conversation, lease.newest());
        let (_lease, ()) = retry_until_known(&writer.context().unsettled, lease, || async move {
            match target {
                ErasureTarget::Messages(messages) => {
                    store.erase_messages(id, user, messages, change).await
                }
                ErasureTarget::Participant => store.erase_participant(id, user, change).await,
            }
        })
        .await?;
        Ok(((), None))
    }
}

fn is_edited(message: &Message) -> bool {
    let content = message.content.as_ref();
    content.is_some_and(|content| content.edited_at.is_some())
}
