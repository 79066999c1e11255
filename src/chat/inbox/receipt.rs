//! Receipts: what reached whom. Maxima of the participants, from which the state of each message follows.

use std::sync::Arc;

use futures_util::future::try_join_all;

use crate::chat::{Chat, Result};
use crate::model::{
    Conversation, ConversationId, InboxRow, Message, MessageId, Page, PageRequest, Participant,
    UserId,
};

impl Chat {
    /// Notes that this message, or the newest one, and all before it reached one of the viewer's devices. Never goes back.
    pub async fn mark_delivered(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        message: Option<MessageId>,
    ) -> Result<InboxRow> {
        let row = self.entry_of(viewer, conversation).await?;
        let target = match message {
            Some(id) => Some(self.message_of(conversation, id).await?.id),
            None => row.last_message,
        };
        if let Some(target) = target {
            let (chat, viewer) = (self.clone(), viewer.clone());
            self.to_the_end(
                async move { chat.keep_delivered(&viewer, conversation, target).await },
            )
            .await?;
        }
        Ok(row)
    }

    async fn keep_delivered(
        &self,
        viewer: &UserId,
        id: ConversationId,
        target: MessageId,
    ) -> Result<()> {
        let up_to = target.order_key();
        let own = self
            .0
            .store
            .participants_by_name(&[(id, viewer.clone())])
            .await?
            .pop()
            .flatten();
        // What was read was delivered.
        if own.is_none_or(|own| own.delivered_up_to.max(own.read_up_to) >= up_to) {
            return Ok(());
        }
        // Read before the write: nothing may fail between what is kept and what is told.
        let conversation = self.conversation_of(viewer, id).await?;
        let ids = self.0.in_flight.begin(1);
        let (ids, ()) = ids.if_kept(self.0.store.mark_delivered(viewer, id, up_to).await)?;
        self.tell_marker(viewer, &conversation, &ids);
        Ok(())
    }

    /// Those who are in each conversation now, from whom the states of all its messages follow. `None` for a large one, whose messages
    /// have none, and for one that the viewer does not take part in.
    pub async fn all_participants(
        &self,
        viewer: &UserId,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<Arc<[Participant]>>>> {
        let conversations = self.conversations(viewer, conversations).await?;
        try_join_all(
            conversations
                .into_iter()
                .map(|conversation| self.all_of(conversation)),
        )
        .await
    }

    async fn all_of(
        &self,
        conversation: Option<Arc<Conversation>>,
    ) -> Result<Option<Arc<[Participant]>>> {
        let Some(conversation) = conversation.filter(|conversation| !conversation.is_large) else {
            return Ok(None);
        };
        let page = self
            .0
            .store
            .participants(
                conversation.id,
                &PageRequest::first(Conversation::FAN_OUT_MAX),
            )
            .await?;
        Ok(Some(page.items.into()))
    }

    /// A page of those whom a message was sent to, by username bytes. The viewer's access was checked.
    pub async fn receivers(
        &self,
        message: &Message,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        Ok(self
            .0
            .store
            .receivers(message.conversation, message.id, &message.sender, page)
            .await?)
    }
}
