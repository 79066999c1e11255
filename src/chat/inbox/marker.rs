//! Read markers: forward with `markRead`, back with `markUnread`. Unread is never counted, only computed from them.

use std::sync::Arc;

use futures_util::future::try_join;

use crate::bus::Signal;
use crate::chat::in_flight_ids::IdLease;
use crate::chat::{Chat, Error, Result};
use crate::model::{
    Conversation, ConversationId, Event, InboxRow, MessageId, Notice, ReadMarker, Topic, UserId,
};
use crate::store::MarkerMove;

impl Chat {
    /// Moves the viewer's marker forward to this message, or to the newest one; never back. Answers with the entry as it is then.
    pub async fn mark_read(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        message: Option<MessageId>,
    ) -> Result<InboxRow> {
        let (conversation, row) = self.place_of(viewer, conversation).await?;
        let target = match message {
            // The newest one is there, and is what is mostly named.
            Some(id) if row.last_message == Some(id) => Some(id),
            Some(id) => Some(self.message_of(conversation.id, id).await?.id),
            None => row.last_message,
        };
        match target {
            // Also where a message of one's own has moved the marker that counts: of that the receipts know nothing.
            Some(target) if target.order_key() > row.marker.up_to => {
                // Within the epoch that was seen: a `markUnread` that came meanwhile has a later one, and wins.
                let marker = ReadMarker {
                    epoch: row.marker.epoch,
                    up_to: target.order_key(),
                };
                self.move_marker(viewer, conversation, row, marker, true)
                    .await
            }
            _ => Ok(row),
        }
    }

    /// Moves the viewer's marker back to just before this message. Where it stands there or earlier, nothing changes.
    pub async fn mark_unread(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        message: MessageId,
    ) -> Result<InboxRow> {
        let (conversation, row) = self.place_of(viewer, conversation).await?;
        let place = self
            .message_of(conversation.id, message)
            .await?
            .id
            .order_key()
            .before();
        if row.read_up_to() <= place {
            return Ok(row);
        }
        let marker = ReadMarker {
            epoch: row.marker.epoch + 1,
            up_to: place,
        };
        self.move_marker(viewer, conversation, row, marker, false)
            .await
    }

    pub(crate) async fn entry_of(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
    ) -> Result<InboxRow> {
        Ok(self.place_of(viewer, conversation).await?.1)
    }

    async fn place_of(
        &self,
        viewer: &UserId,
        id: ConversationId,
    ) -> Result<(Arc<Conversation>, InboxRow)> {
        let (conversation, row) =
            try_join(self.conversation_of(viewer, id), self.entry(viewer, id)).await?;
        let row = row.ok_or(Error::NotFound("the conversation"))?;
        // What is set here is later than what stands there, whatever the clock of the server says that wrote it.
        self.seen(row.last_message.into_iter().chain(row.sent_up_to));
        Ok((conversation, row))
    }

    /// Tells those who listen to the conversation how far the viewer has come. A large one would do nothing else.
    pub(crate) fn tell_marker(&self, viewer: &UserId, conversation: &Conversation, ids: &IdLease) {
        if conversation.is_large {
            return;
        }
        self.0
            .bus
            .signal_peers(|| Signal::Marker(conversation.id, viewer.clone()));
        let topic = Topic::Conversation(conversation.id);
        if self.0.bus.has_subscribers(&topic) {
            let event = Event::MarkerMoved(conversation.id, viewer.clone());
            self.0
                .bus
                .publish(&topic, Notice::new(ids.newest(), ids.settled(), event));
        }
    }

    async fn move_marker(
        &self,
        viewer: &UserId,
        conversation: Arc<Conversation>,
        row: InboxRow,
        marker: ReadMarker,
        is_read: bool,
    ) -> Result<InboxRow> {
        let (chat, viewer) = (self.clone(), viewer.clone());
        self.to_the_end(async move {
            chat.keep_marker(&viewer, &conversation, row, marker, is_read)
                .await
        })
        .await
    }

    async fn keep_marker(
        &self,
        viewer: &UserId,
        conversation: &Conversation,
        row: InboxRow,
        mut marker: ReadMarker,
        is_read: bool,
    ) -> Result<InboxRow> {
        let ids = self.0.in_flight.begin(1);
        let change = ids.newest();
        if !is_read {
            // A new epoch is later than everything that was sent so far, so that none of it counts as read by having been sent.
            marker.epoch = marker.epoch.max(change.moment().micros().cast_unsigned());
        }
        let read_up_to = is_read.then_some(marker.up_to);
        let to = MarkerMove {
            conversation: row.conversation,
            marker,
            read_up_to,
            change,
        };
        let (ids, ()) = ids.if_kept(self.0.store.move_read_marker(viewer, &to).await)?;
        self.tell_inboxes(
            [viewer],
            row.conversation,
            (change, ids.settled()),
            Signal::Inbox,
        );
        if is_read {
            self.tell_marker(viewer, conversation, &ids);
        }
        Ok(InboxRow {
            marker: row.marker.max(marker),
            ..row
        })
    }
}
