//! Erasure of a user from one conversation, and of a banned user's reactions, with the right of the server itself. Deletions, reactions and
//! the leaving are events as ever; names are replaced without one.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};

use super::WriteService;
use super::command::WriterCheck;
use super::command::erasure::{ERASURE_CHECK, ErasureCommand, ErasureTarget};
use super::command::group::GroupCommand;
use super::command::reaction::ReactionDraft;
use super::command::revision::RevisionDraft;
use crate::chat::access::authority::Authority;
use crate::chat::error::{Error, Result};
use crate::model::{ConversationId, Cut, Message, MessageId, PageRequest, UserId};

/// Messages from which a ban removes reactions.
const BAN_MESSAGES_MAX: usize = 1_000;
/// Messages of one read.
const PAGE: usize = 64;
/// Writes in flight.
const WRITES_AT_ONCE: usize = 8;

impl WriteService {
    /// Makes a user leave a conversation of any kind, without a SYSTEM message. Another OWNER succeeds.
    pub(crate) async fn withdraw(&self, user: &UserId, conversation: ConversationId) -> Result<()> {
        let check = WriterCheck::of_server(Authority::Membership);
        let command = (GroupCommand::Withdraw, check);
        self.queues.run(conversation, user, command).await?;
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
        let erased = UserId::erased();
        let deleted = self.queues.run(conversation, &erased, draft);
        deleted.await.map(drop)
    }

    /// Takes the reactions of a user to the newest messages of a conversation back.
    pub(super) async fn take_newest_reactions_back(
        &self,
        user: &UserId,
        conversation: ConversationId,
    ) -> Result<()> {
        let (whole, mut request) = (Cut::default(), PageRequest::first(PAGE));
        for _ in 0..BAN_MESSAGES_MAX.div_ceil(PAGE) {
            let store = &self.context.store;
            let page = store.history(conversation, &whole, &request).await?;
            self.take_reactions_back(user, &page.items).await?;
            match page.items.last().filter(|_| page.has_next) {
                Some(last) => request = request.after(last.id.order_key()),
                None => break,
            }
        }
        Ok(())
    }

    /// Takes the reactions of a user to these messages back, each with its event.
    pub(crate) async fn take_reactions_back(
        &self,
        user: &UserId,
        messages: &[Arc<Message>],
    ) -> Result<()> {
        let reacted: Vec<_> = messages
            .iter()
            .filter(|message| message.has_reactions && message.deleted_at.is_none())
            .map(|message| (message.conversation, message.id))
            .collect();
        if reacted.is_empty() {
            return Ok(());
        }
        let reactions = self.context.store.reactions(user, &reacted).await?;
        let mut taking = Vec::new();
        for ((conversation, message), reactions) in reacted.into_iter().zip(reactions) {
            for reaction in reactions.into_iter().filter(|one| one.has_viewer) {
                let draft = ReactionDraft {
                    message,
                    emoji: reaction.emoji,
                    user: user.clone(),
                    is_on: false,
                    check: ERASURE_CHECK,
                };
                taking.push(self.queues.run(conversation, user, draft).boxed());
            }
        }
        done(taking).await
    }

    /// Replaces the name of a user in messages, or erases one who has left from everything in a conversation but its messages.
    pub(crate) async fn erase(
        &self,
        user: &UserId,
        conversation: ConversationId,
        target: ErasureTarget,
    ) -> Result<()> {
        let user = user.clone();
        let erased = UserId::erased();
        let command = ErasureCommand { user, target };
        self.queues.run(conversation, &erased, command).await
    }
}

/// Waits for writes, some at once. One that finds nothing to write to is done.
pub(crate) async fn done<T>(writes: Vec<BoxFuture<'_, Result<T>>>) -> Result<()> {
    let mut writes = stream::iter(writes).buffer_unordered(WRITES_AT_ONCE);
    while let Some(written) = writes.next().await {
        match written {
            Ok(_) | Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
