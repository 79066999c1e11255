//! Outgoing creation: the entries of a new conversation, delivered to the servers of its
//! participants under the late rule (`chat::late_rule`).
//!
//! Inbox streams find a creation in the log of each participant. A late one is logged again under a
//! fresh id, as a late message that does not exist: inboxes show the entry, and streams of the
//! conversation pass over it.

use async_trait::async_trait;

use super::unknown_outcome::retry_until_known;
use super::write_context::WriteContext;
use crate::chat::late_rule::{EventAge, LateEvents, notify_in_time};
use crate::chat::publisher::Origin;
use crate::cluster::Cluster;
use crate::model::{Change, ChangeId, ChangeKind, ConversationId, UserId};
use crate::store;

pub(crate) struct OutgoingCreation {
    pub(crate) conversation: ConversationId,
    /// Id of the creation.
    pub(crate) change: ChangeId,
    pub(crate) users: Vec<UserId>,
    /// `None` if it counts as late however fast it is delivered, because another server may have
    /// persisted it.
    pub(crate) age: Option<EventAge>,
}

/// Delivery of a creation, under its id or a fresh one.
struct CreationDelivery<'a> {
    context: &'a WriteContext,
    creation: &'a OutgoingCreation,
    change: ChangeId,
}

impl OutgoingCreation {
    /// Delivers a creation that is published here, however long that takes.
    pub(crate) async fn deliver(&self, context: &WriteContext) -> store::Result<()> {
        let mut delivery = CreationDelivery {
            context,
            creation: self,
            change: self.change,
        };
        notify_in_time(&context.in_flight, self.age, &mut delivery).await
    }
}

#[async_trait]
impl LateEvents for CreationDelivery<'_> {
    async fn notify(&mut self, _: &Cluster) {
        let OutgoingCreation {
            conversation,
            users,
            ..
        } = self.creation;
        let publisher = &self.context.publisher;
        publisher
            .notify_inboxes(users, *conversation, self.change)
            .await;
    }

    async fn log_again(&mut self, _: &Cluster) -> store::Result<EventAge> {
        let Self {
            context, creation, ..
        } = self;
        let (conversation, users) = (creation.conversation, &creation.users);
        let lease = context.in_flight.allocate_late(conversation, 1);
        let again = Change {
            id: lease.newest(),
            kind: ChangeKind::MessageLate,
            message: creation.change,
            user: users[0].clone(),
        };
        let log = || {
            let again = std::slice::from_ref(&again);
            context.store.log_late(conversation, again)
        };
        let (lease, ()) = retry_until_known(&context.unsettled, lease, log).await?;
        let (publisher, origin) = (&context.publisher, Origin::Own(&lease));
        publisher.publish_to_inboxes(users, conversation, again.id, origin);
        let age = EventAge::of(&lease);
        self.change = again.id;
        Ok(age)
    }
}
