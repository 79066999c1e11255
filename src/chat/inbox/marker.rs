//! Read markers: `markRead` advances a marker, `markUnread` moves it back. Unread counts are
//! computed from markers, never stored.

use std::sync::Arc;

use futures_util::future::try_join;

use super::InboxService;
use super::mark_coalescer::MergeableMark;
use crate::chat::error::{Error, Result};
use crate::chat::publisher::Origin;
use crate::model::{
    Conversation, ConversationId, InboxRow, MessageId, OrderKey, ReadMarker, UserId, Viewer,
};
use crate::store::MarkerMove;

#[derive(Clone, Copy, PartialEq, Eq)]
enum MarkerDirection {
    Forward {
        /// The receipt, which does not go back with the marker.
        read_up_to: OrderKey,
        is_by_service: bool,
    },
    /// Without a receipt, which a blocked user would see.
    Quiet,
    Back,
}

/// Marks of a service in a user's name are written apart from the user's own.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct ReadMarkKey {
    user: UserId,
    conversation: ConversationId,
    is_by_service: bool,
}

/// Advance of a marker and its receipt. Both are maxima, each by itself: a marker of a later epoch may
/// have read less.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadMark {
    marker: ReadMarker,
    read_up_to: OrderKey,
}

impl MergeableMark for ReadMark {
    fn merge(&mut self, other: Self) {
        self.marker = self.marker.max(other.marker);
        self.read_up_to = self.read_up_to.max(other.read_up_to);
    }
}

impl InboxService {
    /// Advances the viewer's marker to this message, or to the newest one; never moves it back.
    /// Returns the entry after the write. An agent has no marker: nothing is written.
    pub async fn mark_read(
        self: &Arc<Self>,
        caller: impl Into<Viewer>,
        conversation: ConversationId,
        message: Option<MessageId>,
    ) -> Result<InboxRow> {
        let caller = &caller.into();
        let viewer = &caller.user;
        let (conversation, row) = self.visible_entry(caller, conversation).await?;
        let target = match message {
            // The newest message exists; most calls name it.
            Some(id) if row.visible_last_message() == Some(id) => Some(id),
            Some(id) => {
                let found = self.history.require_message(conversation.id, id, row.floor);
                Some(found.await?.id)
            }
            None => row.visible_last_message(),
        };
        if viewer.is_agent() {
            return Ok(row);
        }
        match target {
            // The marker advances even if a message of the viewer has advanced the effective
            // position: receipts depend on the marker.
            Some(target)
                if target.order_key() > row.marker.up_to
                    || self.was_read_by_service(caller, &row, target).await? =>
            {
                // The marker keeps the epoch that was read. A concurrent `markUnread` has a later
                // epoch, and wins.
                let marker = ReadMarker {
                    epoch: row.marker.epoch,
                    up_to: target.order_key(),
                };
                if self.access.is_hidden(viewer, &conversation).await? {
                    let direction = MarkerDirection::Quiet;
                    return self
                        .move_marker(viewer, conversation, row, marker, direction)
                        .await;
                }
                let is_by_service = caller.is_acted_for()
                    && !self
                        .relationships
                        .has_acted(viewer, conversation.id)
                        .await?;
                if self.coalesces_marks(&conversation) {
                    let key = ReadMarkKey {
                        user: viewer.clone(),
                        conversation: conversation.id,
                        is_by_service,
                    };
                    return self.join_mark(key, conversation, row, marker).await;
                }
                let direction = MarkerDirection::Forward {
                    read_up_to: marker.up_to,
                    is_by_service,
                };
                self.move_marker(viewer, conversation, row, marker, direction)
                    .await
            }
            _ => self.repeated(viewer, row).await,
        }
    }

    /// Moves the marker of a viewer who has cleared the history up to their floor, without receipts:
    /// a message that came after that position is visible, and unread. Returns the entry after the
    /// write.
    pub async fn settle_clear(
        self: &Arc<Self>,
        viewer: &UserId,
        conversation: ConversationId,
    ) -> Result<InboxRow> {
        let caller = Viewer::from(viewer);
        let (conversation, row) = self.visible_entry(&caller, conversation).await?;
        if viewer.is_agent() {
            return Ok(row);
        }
        let marker = ReadMarker {
            epoch: row.marker.epoch,
            up_to: row.floor.fixed,
        };
        if marker <= row.marker {
            return Ok(row);
        }
        self.move_marker(viewer, conversation, row, marker, MarkerDirection::Quiet)
            .await
    }

    /// Whether only a service has read this far in the viewer's name. The viewer's own mark at the same
    /// position is a consent, so it is written although it moves nothing.
    async fn was_read_by_service(
        &self,
        caller: &Viewer,
        row: &InboxRow,
        target: MessageId,
    ) -> Result<bool> {
        if caller.is_acted_for() || target.order_key() != row.marker.up_to {
            return Ok(false);
        }
        let key = (row.conversation, caller.user.clone());
        let found = self.store.participants_by_name(&[key]).await?.pop();
        Ok(found.flatten().is_some_and(|one| one.is_read_by_service))
    }

    /// Moves the viewer's marker back to just before this message. A marker at or before that
    /// position stays. An agent has no marker.
    pub async fn mark_unread(
        self: &Arc<Self>,
        caller: impl Into<Viewer>,
        conversation: ConversationId,
        message: MessageId,
    ) -> Result<InboxRow> {
        let caller = &caller.into();
        let viewer = &caller.user;
        let (conversation, row) = self.visible_entry(caller, conversation).await?;
        let message = self
            .history
            .require_message(conversation.id, message, row.floor)
            .await?;
        if viewer.is_agent() {
            return Ok(row);
        }
        let position = message.id.order_key().before();
        if row.read_up_to() <= position {
            return self.repeated(viewer, row).await;
        }
        let marker = ReadMarker {
            epoch: row.marker.epoch + 1,
            up_to: position,
        };
        self.move_marker(viewer, conversation, row, marker, MarkerDirection::Back)
            .await
    }

    /// The viewer's entry with its conversation, or the error that the conversation was not found.
    pub(super) async fn visible_entry(
        &self,
        caller: &Viewer,
        id: ConversationId,
    ) -> Result<(Arc<Conversation>, InboxRow)> {
        let viewer = &caller.user;
        let found = try_join(
            self.access.require_visible(viewer, id),
            self.entry(viewer, id),
        );
        let (visible, row) = match found.await {
            Ok(found) => found,
            Err(error) => return Err(self.access.refusal(caller, id, error).await),
        };
        let row = row.ok_or(Error::NotFound("the conversation"))?;
        let row = row.above(visible.floor);
        let conversation = visible.conversation;
        // The id of the next change is greater than all in the row, whatever clock has allocated
        // them.
        let newest = row.last_message.into_iter().chain(row.sent_up_to);
        self.in_flight.observe(conversation.id, newest);
        Ok((conversation, row))
    }

    /// Advances a marker together with other marks of the same user, and returns the entry once that is
    /// stored.
    async fn join_mark(
        self: &Arc<Self>,
        key: ReadMarkKey,
        conversation: Arc<Conversation>,
        row: InboxRow,
        marker: ReadMarker,
    ) -> Result<InboxRow> {
        let inbox = Arc::clone(self);
        let (viewer, is_by_service) = (key.user.clone(), key.is_by_service);
        let mark = ReadMark {
            marker,
            read_up_to: marker.up_to,
        };
        self.tasks
            .run_to_completion(async move {
                let write = async |ReadMark { marker, read_up_to }| {
                    let direction = MarkerDirection::Forward {
                        read_up_to,
                        is_by_service,
                    };
                    let written =
                        inbox.persist_marker(&viewer, &conversation, row, marker, direction);
                    written.await.map(drop)
                };
                let written = inbox.read_marks.write(key, mark, write).await?;
                Ok(InboxRow {
                    marker: row.marker.max(written.marker),
                    ..row
                })
            })
            .await
    }

    /// The entry of a command that changes nothing.
    async fn repeated(self: &Arc<Self>, viewer: &UserId, row: InboxRow) -> Result<InboxRow> {
        if !self.in_flight.is_shared() {
            return Ok(row);
        }
        let (inbox, viewer) = (Arc::clone(self), viewer.clone());
        self.tasks
            .run_to_completion(async move {
                inbox.notify_repeated(&viewer, &row).await?;
                Ok(row)
            })
            .await
    }

    async fn move_marker(
        self: &Arc<Self>,
        viewer: &UserId,
        conversation: Arc<Conversation>,
        row: InboxRow,
        marker: ReadMarker,
        direction: MarkerDirection,
    ) -> Result<InboxRow> {
        let (inbox, viewer) = (Arc::clone(self), viewer.clone());
        self.tasks
            .run_to_completion(async move {
                inbox
                    .persist_marker(&viewer, &conversation, row, marker, direction)
                    .await
            })
            .await
    }

    async fn persist_marker(
        &self,
        viewer: &UserId,
        conversation: &Conversation,
        row: InboxRow,
        mut marker: ReadMarker,
        direction: MarkerDirection,
    ) -> Result<InboxRow> {
        let lease = self.in_flight.allocate(row.conversation, 1).await?;
        let change = lease.newest();
        let (read_up_to, is_by_service) = match direction {
            MarkerDirection::Forward {
                read_up_to,
                is_by_service,
            } => (Some(read_up_to), is_by_service),
            MarkerDirection::Quiet | MarkerDirection::Back => (None, false),
        };
        if direction == MarkerDirection::Back {
            // The new epoch is later than all messages sent so far, so that none of the viewer's
            // own counts as read.
            marker.epoch = marker.epoch.max(change.moment().micros().cast_unsigned());
        }
        let to = MarkerMove {
            conversation: row.conversation,
            marker,
            read_up_to,
            is_by_service,
            change,
        };
        let written = self.store.move_read_marker(viewer, &to).await;
        let (lease, ()) = lease.if_persisted(written)?;
        let publisher = &self.publisher;
        publisher.publish_to_inboxes([viewer], row.conversation, change, Origin::Own(&lease));
        if read_up_to.is_some() {
            publisher.publish_marker(viewer, conversation, &lease);
        }
        let row = InboxRow {
            marker: row.marker.max(marker),
            ..row
        };
        self.notify_devices(viewer, &row, lease).await?;
        Ok(row)
    }
}
