//! Changes of reactions: one LOGGED batch of the reaction and the change log.

use std::sync::Arc;

use super::Sends;
use crate::model::{Change, ConversationId, Emoji, Message, OutboxEvent};
use crate::store::Result;
use crate::store::cql::driver::executor::batch::Writes;

impl Sends {
    pub(crate) async fn react(
        &self,
        conversation: ConversationId,
        emoji: &Emoji,
        is_on: bool,
        change: &Change,
    ) -> Result<Option<Arc<Message>>> {
        let found = self.find_message(conversation, change.message).await?;
        let Some((present, bucket)) = found else {
            return Ok(None);
        };
        if present.deleted_at.is_some() {
            return Ok(Some(Arc::new(present)));
        }
        let mut writes = Writes::logged();
        writes.put_reaction(&present, bucket, emoji, is_on, change);
        writes.put_change(conversation, change);
        let row = self
            .outbox
            .row(conversation, || vec![OutboxEvent::of_change(change)]);
        self.outbox.write_all(writes, row).await?;
        Ok(Some(Arc::new(Message {
            has_reactions: true,
            ..present
        })))
    }
}
