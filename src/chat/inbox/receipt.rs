//! Delivery receipts: the position up to which messages have reached a device of each participant,
//! a maximum register.

use std::sync::Arc;

use super::InboxService;
use super::mark_coalescer::MergeableMark;
use crate::chat::error::Result;
use crate::model::{ConversationId, InboxRow, MessageId, UserId, Viewer};

/// Message up to which a device of the user has received everything.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeliveredMark(MessageId);

impl MergeableMark for DeliveredMark {
    fn merge(&mut self, other: Self) {
        if other.0.order_key() > self.0.order_key() {
            *self = other;
        }
    }
}

impl InboxService {
    /// Records that this message, or the newest one, and all before it have reached one of the
    /// viewer's devices. Never goes back.
    pub async fn mark_delivered(
        self: &Arc<Self>,
        caller: impl Into<Viewer>,
        conversation: ConversationId,
        message: Option<MessageId>,
    ) -> Result<InboxRow> {
        let caller = &caller.into();
        let viewer = &caller.user;
        let (entered, row) = self.visible_entry(caller, conversation).await?;
        let target = match message {
            Some(id) => {
                let found = self.history.require_message(conversation, id, row.floor);
                Some(found.await?.id)
            }
            None => row.visible_last_message(),
        };
        if viewer.is_agent() || self.access.is_hidden(viewer, &entered).await? {
            // An agent has no receipts, and a blocked user must see none.
            return Ok(row);
        }
        if let Some(target) = target {
            let (inbox, viewer) = (Arc::clone(self), viewer.clone());
            let is_coalesced = self.coalesces_marks(&entered);
            self.tasks
                .run_to_completion(async move {
                    if !is_coalesced {
                        return inbox.persist_delivered(&viewer, conversation, target).await;
                    }
                    let key = (viewer.clone(), conversation);
                    let write = async |DeliveredMark(target)| {
                        inbox.persist_delivered(&viewer, conversation, target).await
                    };
                    let mark = DeliveredMark(target);
                    inbox
                        .delivered_marks
                        .write(key, mark, write)
                        .await
                        .map(drop)
                })
                .await?;
        }
        Ok(row)
    }

    async fn persist_delivered(
        &self,
        viewer: &UserId,
        id: ConversationId,
        target: MessageId,
    ) -> Result<()> {
        let up_to = target.order_key();
        let own = self
            .store
            .participants_by_name(&[(id, viewer.clone())])
            .await?
            .pop()
            .flatten();
        // A message that was read was delivered.
        if own.is_none_or(|own| own.delivered_up_to.max(own.read_up_to) >= up_to) {
            return Ok(());
        }
        // Read before the write, because nothing may fail between persisting and publishing.
        let conversation = self.access.require_conversation(viewer, id).await?;
        let lease = self.in_flight.allocate(id, 1).await?;
        let written = self.store.mark_delivered(viewer, id, up_to).await;
        let (lease, ()) = lease.if_persisted(written)?;
        self.publisher.publish_marker(viewer, &conversation, &lease);
        Ok(())
    }
}
