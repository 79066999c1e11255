//! Erasure of a user from one conversation, with the right of the server itself. Deletions, reactions and
//! the leaving are events as ever; names are replaced without one.

use super::WriteService;
use super::command::erasure::{ERASURE_CHECK, ErasureCommand, ErasureTarget};
use super::command::group::GroupCommand;
use super::command::reaction::ReactionDraft;
use super::command::revision::RevisionDraft;
use super::conversation_queue::Work;
use crate::chat::access::authority::Authority;
use crate::chat::error::Result;
use crate::model::{ConversationId, Emoji, MessageId, UserId};

impl WriteService {
    /// Makes a user leave a conversation of any kind, without a SYSTEM message. Another OWNER succeeds.
    pub(crate) async fn withdraw(&self, user: &UserId, conversation: ConversationId) -> Result<()> {
        let (command, authority) = (GroupCommand::Withdraw, Authority::Membership);
        let work = |reply| Work::Group(command, authority, reply);
        self.queues.run(conversation, user, work).await?;
        self.participants.forget_pair(conversation);
        Ok(())
    }

    /// Deletes a message. The log of changes names no user.
    pub(crate) async fn delete_for_erasure(
        &self,
        conversation: ConversationId,
        message: MessageId,
    ) -> Result<()> {
        let draft = RevisionDraft::deletion(message, ERASURE_CHECK);
        let (work, erased) = (|reply| Work::Revise(draft, reply), UserId::erased());
        let deleted = self.queues.run(conversation, &erased, work);
        deleted.await.map(drop)
    }

    /// Takes back a reaction of a user.
    pub(crate) async fn take_reaction_back(
        &self,
        user: &UserId,
        conversation: ConversationId,
        message: MessageId,
        emoji: Emoji,
    ) -> Result<()> {
        let draft = ReactionDraft {
            message,
            emoji,
            is_on: false,
            check: ERASURE_CHECK,
        };
        let work = |reply| Work::React(draft, reply);
        self.queues.run(conversation, user, work).await.map(drop)
    }

    /// Replaces the name of a user in messages.
    pub(crate) async fn erase_from_messages(
        &self,
        user: &UserId,
        conversation: ConversationId,
        messages: Vec<MessageId>,
    ) -> Result<()> {
        self.run_erasure(user, conversation, ErasureTarget::Messages(messages))
            .await
    }

    /// Erases a user who has left from everything in a conversation but its messages.
    pub(crate) async fn erase_from_conversation(
        &self,
        user: &UserId,
        conversation: ConversationId,
    ) -> Result<()> {
        self.run_erasure(user, conversation, ErasureTarget::Participant)
            .await
    }

    async fn run_erasure(
        &self,
        user: &UserId,
        conversation: ConversationId,
        target: ErasureTarget,
    ) -> Result<()> {
        let user = user.clone();
        let erased = UserId::erased();
        let work = |reply| Work::Erase(ErasureCommand { user, target }, reply);
        self.queues.run(conversation, &erased, work).await
    }
}
