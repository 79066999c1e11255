//! Entry notices: a changed entry on its way to the viewer's other devices, on the servers that they
//! are on, under the late rule (`chat::late_rule`).

use futures_util::future::BoxFuture;

use super::InboxService;
use crate::chat::error::Result;
use crate::chat::in_flight_ids::IdLease;
use crate::chat::late_rule::{EventAge, LateEvents, notify_in_time};
use crate::chat::publisher::Origin;
use crate::cluster::Cluster;
use crate::model::{ChangeId, ConversationId, Flags, InboxRow, ReadMarker, UserId};
use crate::store::{self, MarkerMove};

/// The parts of an entry that its viewer can change, as they were delivered.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct EntryState {
    viewer: UserId,
    conversation: ConversationId,
    marker: ReadMarker,
    flags: Flags,
}

impl EntryState {
    fn of(viewer: &UserId, row: &InboxRow) -> Self {
        Self {
            viewer: viewer.clone(),
            conversation: row.conversation,
            marker: row.marker,
            flags: row.flags,
        }
    }
}

struct EntryNotice<'a> {
    inbox: &'a InboxService,
    viewer: &'a UserId,
    row: &'a InboxRow,
    change: ChangeId,
}

impl LateEvents for EntryNotice<'_> {
    fn notify<'a>(&'a mut self, _: &'a Cluster) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let users = std::slice::from_ref(self.viewer);
            let publisher = &self.inbox.publisher;
            publisher
                .notify_inboxes(users, self.row.conversation, self.change)
                .await;
        })
    }

    /// Writes the marker once more, which changes nothing.
    fn log_again<'a>(&'a mut self, _: &'a Cluster) -> BoxFuture<'a, store::Result<EventAge>> {
        Box::pin(async move {
            let (inbox, row) = (self.inbox, self.row);
            let lease = inbox.in_flight.allocate_late(row.conversation, 1);
            self.change = lease.newest();
            let again = MarkerMove {
                conversation: row.conversation,
                marker: row.marker,
                read_up_to: None,
                is_by_service: false,
                change: self.change,
            };
            inbox.store.move_read_marker(self.viewer, &again).await?;
            let origin = Origin::Own(&lease);
            inbox.publisher.publish_to_inboxes(
                [self.viewer],
                row.conversation,
                self.change,
                origin,
            );
            Ok(EventAge::of(&lease))
        })
    }
}

impl InboxService {
    /// Notifies the servers of the viewer's other devices that an entry has changed, as it is now.
    pub(super) async fn notify_devices(
        &self,
        viewer: &UserId,
        row: &InboxRow,
        lease: IdLease,
    ) -> Result<()> {
        if !lease.is_shared() {
            return Ok(());
        }
        let (age, change) = (EventAge::of(&lease), lease.newest());
        // It is published: no position waits for the notices.
        drop(lease);
        self.deliver_entry(viewer, row, Some(age), change).await
    }

    /// The same for a command that finds its change done already. The server that persisted it may
    /// have died before it notified the others, so it counts as late.
    pub(super) async fn notify_repeated(&self, viewer: &UserId, row: &InboxRow) -> Result<()> {
        let Some(delivered) = &self.delivered else {
            return Ok(());
        };
        let is_untouched = row.marker == ReadMarker::default() && row.flags == Flags::default();
        if is_untouched {
            return Ok(());
        }
        if delivered.lock().contains(&EntryState::of(viewer, row)) {
            return Ok(());
        }
        // Any id will do: the change gets a fresh one.
        let change = row
            .last_message
            .unwrap_or(ChangeId::first_after(row.marker.up_to));
        self.deliver_entry(viewer, row, None, change).await
    }

    async fn deliver_entry(
        &self,
        viewer: &UserId,
        row: &InboxRow,
        age: Option<EventAge>,
        change: ChangeId,
    ) -> Result<()> {
        let mut notice = EntryNotice {
            inbox: self,
            viewer,
            row,
            change,
        };
        notify_in_time(&self.in_flight, age, &mut notice).await?;
        if let Some(delivered) = &self.delivered {
            delivered.lock().insert(EntryState::of(viewer, row));
        }
        Ok(())
    }
}
