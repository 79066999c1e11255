//! Outgoing creation: the entries of a new conversation, delivered to the servers of its
//! participants.
//!
//! Invariant (late rule): as for events of a conversation (`outgoing`). Inbox streams find a
//! creation in the log of each participant. A late one is logged again under a fresh id, as a late
//! message that does not exist: inboxes show the entry, and streams of the conversation pass over
//! it.

use super::unknown_outcome::retry_until_known;
use super::write_context::WriteContext;
use crate::chat::in_flight_ids::IdLease;
use crate::chat::publisher::Origin;
use crate::model::{Change, ChangeId, ChangeKind, ConversationId, UserId};
use crate::store;

pub(crate) struct OutgoingCreation {
    pub(crate) conversation: ConversationId,
    /// Id of the creation.
    pub(crate) change: ChangeId,
    pub(crate) users: Vec<UserId>,
    /// Whether it counts as late however fast it is delivered, because another server may have persisted
    /// it.
    pub(crate) is_late: bool,
}

impl OutgoingCreation {
    /// Delivers a creation that is published here, however long that takes. The lease is that of its id,
    /// or a fresh one for a late creation.
    pub(crate) async fn deliver(
        &self,
        context: &WriteContext,
        mut lease: IdLease,
    ) -> store::Result<()> {
        let (mut is_late, mut change) = (self.is_late, self.change);
        loop {
            if is_late {
                let again = Change {
                    id: lease.newest(),
                    kind: ChangeKind::MessageLate,
                    message: self.change,
                    user: self.users[0].clone(),
                };
                let log = || {
                    let again = std::slice::from_ref(&again);
                    context.store.log_late(self.conversation, again)
                };
                (lease, ()) = retry_until_known(lease, log).await?;
                change = again.id;
                let origin = Origin::Own(&lease);
                let publisher = &context.publisher;
                publisher.publish_to_inboxes(&self.users, self.conversation, change, origin);
            }
            let allocated_at = lease.allocated_at();
            drop(lease);
            context
                .publisher
                .notify_inboxes(&self.users, self.conversation, change)
                .await;
            if !context.in_flight.is_late(change, allocated_at) {
                return Ok(());
            }
            is_late = true;
            lease = context.in_flight.allocate_late(self.conversation, 1);
        }
    }
}
