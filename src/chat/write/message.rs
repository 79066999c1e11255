//! Sending, and reading messages by their ids.

use std::sync::Arc;

use crate::chat::write::conversation_queue::Work;
use crate::chat::write::draft::Draft;
use crate::chat::{Chat, Error, Result};
use crate::model::{ConversationId, Message, MessageId, OrderKey, UserId};

impl Chat {
    /// Sends a message. It is kept when this returns, and then told.
    ///
    /// Under an idempotency key of the last 24 hours the answer is the message of the first try, or `Conflict` where that said something
    /// else.
    pub async fn send(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        mut draft: Draft,
    ) -> Result<Arc<Message>> {
        draft.leave_epoch = self.leave_epoch();
        self.participation_to_write(viewer, conversation).await?;
        self.pace(&self.0.sends, viewer)?;
        if let Some(reply_to) = draft.reply_to {
            self.message_of(conversation, reply_to).await?;
        }
        self.work(conversation, viewer, |reply| Work::Send(draft, reply))
            .await
    }

    /// Messages by id, `None` for those that are not there. The viewer's access was checked, or is at the same time.
    pub async fn messages(
        &self,
        keys: &[(ConversationId, MessageId)],
    ) -> Result<Vec<Option<Arc<Message>>>> {
        let messages = self.0.store.messages(keys).await?;
        self.seen(messages.iter().flatten().map(|message| message.id));
        Ok(messages)
    }

    /// The newest message at or before each place: where a marker stands. The viewer's access was checked.
    pub async fn messages_at(
        &self,
        places: &[(ConversationId, OrderKey)],
    ) -> Result<Vec<Option<Arc<Message>>>> {
        Ok(self.0.store.messages_at(places).await?)
    }

    /// The newest message of each conversation. The viewer's access was checked.
    pub async fn last_messages(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<MessageId>>> {
        Ok(self.0.store.last_messages(conversations).await?)
    }

    /// A message of this conversation, to which the viewer's access was checked.
    pub(crate) async fn message_of(
        &self,
        conversation: ConversationId,
        id: MessageId,
    ) -> Result<Arc<Message>> {
        let found = self
            .0
            .store
            .messages(&[(conversation, id)])
            .await?
            .pop()
            .flatten();
        self.seen(found.as_ref().map(|message| message.id));
        found.ok_or(Error::NotFound("the message"))
    }

    /// Others gave these ids: what is written here from now on lies after them, as it may be the answer.
    pub(crate) fn seen(&self, ids: impl IntoIterator<Item = MessageId>) {
        if self.is_shared()
            && let Some(newest) = ids.into_iter().max()
        {
            self.0.ids.observe(newest);
        }
    }
}
