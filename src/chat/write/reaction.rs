//! Reactions: everyone in a conversation may react to its messages, SYSTEM ones too, with as many emoji as they like.
//!
//! A message has at most [`Emoji::KINDS_MAX`] kinds at a time. What is on already, or off, is not told again.

use std::sync::Arc;

use crate::chat::write::conversation_queue::{Work, Worker};
use crate::chat::{Chat, Error, Result};
use crate::model::{
    Change, ChangeKind, ConversationId, Emoji, Event, Message, MessageId, Reaction, UserId,
};

/// A reaction as a user wants it.
pub(crate) struct ReactionDraft {
    message: MessageId,
    emoji: Emoji,
    is_on: bool,
    /// How often somebody had left some conversation when its user was known to be there.
    leave_epoch: u64,
}

impl ReactionDraft {
    pub(crate) const BYTES: usize = 256;
}

impl Chat {
    /// Puts a reaction of the viewer on or off. Once more changes nothing. Answers with the message.
    pub async fn react(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        message: MessageId,
        emoji: &str,
        is_on: bool,
    ) -> Result<Arc<Message>> {
        let leave_epoch = self.leave_epoch();
        self.participation_to_write(viewer, conversation).await?;
        let emoji = Emoji::parse(emoji)
            .map_err(|error| Error::bad_input(EMOJI, format!("the emoji {error}")))?;
        let draft = ReactionDraft {
            message,
            emoji,
            is_on,
            leave_epoch,
        };
        self.work(conversation, viewer, |reply| Work::React(draft, reply))
            .await
    }

    /// The reactions that each message has now. The viewer's access was checked.
    pub async fn reactions(
        &self,
        viewer: &UserId,
        messages: &[(ConversationId, MessageId)],
    ) -> Result<Vec<Arc<[Reaction]>>> {
        let all = self.0.store.reactions(viewer, messages).await?;
        Ok(all
            .into_iter()
            .map(|of_one| of_one.into_iter().filter(is_there).collect())
            .collect())
    }
}

impl Worker {
    pub(crate) async fn react(&self, user: UserId, draft: ReactionDraft) -> Result<Arc<Message>> {
        let ReactionDraft {
            message,
            emoji,
            is_on,
            leave_epoch,
        } = draft;
        self.still_in(&user, leave_epoch).await?;
        let present = self.chat.message_of(self.conversation, message).await?;
        if present.deleted_at.is_some() && is_on {
            return Err(Error::bad_input(
                &["input", "messageId"],
                "the message is deleted",
            ));
        }
        if present.deleted_at.is_some() || !self.is_news(&present, &user, &emoji, is_on).await? {
            return Ok(present);
        }
        let ids = self.chat.begin(1)?;
        let change = Change {
            id: ids.newest(),
            kind: ChangeKind::ReactionsChanged,
            message,
            user,
        };
        let (ids, reacted) = self
            .chat
            .settled(ids, || {
                self.chat
                    .0
                    .store
                    .react(self.conversation, &emoji, is_on, &change)
            })
            .await?;
        self.log_late_change(&change).await?;
        let message = reacted.ok_or(Error::NotFound("the message"))?;
        self.tell(
            change.id,
            &ids,
            Event::MessageChanged(change.kind, Arc::clone(&message)),
        );
        Ok(message)
    }

    /// Whether it is otherwise now, and may be so.
    async fn is_news(
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
            .chat
            .0
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
            && !kind.is_some_and(is_there)
            && all.iter().filter(|reaction| is_there(reaction)).count() >= Emoji::KINDS_MAX
        {
            return Err(Error::bad_input(
                EMOJI,
                format!(
                    "a message has at most {} kinds of reactions",
                    Emoji::KINDS_MAX
                ),
            ));
        }
        if kind.is_none() && all.len() >= Emoji::KINDS_EVER_MAX {
            let message = format!(
                "this message has had {} kinds of reactions, and takes no other",
                Emoji::KINDS_EVER_MAX
            );
            return Err(Error::bad_input(EMOJI, message));
        }
        Ok(true)
    }
}

const EMOJI: &[&str] = &["input", "emoji"];

/// Whether anybody has it on. Where not all could be looked at, there may be one beyond.
fn is_there(reaction: &Reaction) -> bool {
    reaction.count > 0 || reaction.is_capped
}
