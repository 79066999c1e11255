//! Changes of pins: one LOGGED batch of the pin and the change log, beside the list of the conversation.

use std::sync::Arc;

use super::Sends;
use crate::model::{Change, ConversationId, Message, OutboxEvent, Pin};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::{Error, Result};

impl Sends {
    pub(crate) async fn pin_message(
        &self,
        conversation: ConversationId,
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
        let pin = Pin {
            change: change.id,
            by: change.user.clone(),
            is_on,
        };
        let listed = [(present.id, pin.clone())];
        if is_on {
            self.messages.list_pins(conversation, &listed).await?;
        }
        let mut writes = Writes::logged();
        writes.put_pin((conversation, present.id), bucket, &pin);
        writes.put_change(conversation, change);
        let row = self
            .outbox
            .row(conversation, || vec![OutboxEvent::of_change(change)]);
        self.outbox.write_all(writes, row).await?;
        if !is_on {
            let ended = self.messages.list_pins(conversation, &listed).await;
            ended.map_err(Error::after_write)?;
        }
        Ok(Some(Arc::new(Message {
            pin: Some(Box::new(pin)),
            ..present
        })))
    }
}
