//! Outgoing creation: the entries of a new conversation, delivered to the servers of its
//! participants under the late rule (`chat::late_rule`).
//!
//! Inbox streams find a creation in the log of each participant. A late one is logged again under a
//! fresh id, as a late message that does not exist: inboxes show the entry, and streams of the
//! conversation pass over it.

use futures_util::TryFutureExt as _;
use futures_util::future::BoxFuture;

use crate::chat::late_rule::{EventAge, LateEvents, notify_in_time};
use crate::chat::publisher::Origin;
use crate::chat::write::unknown_outcome::retry_until_known;
use crate::chat::write::write_context::WriteContext;
use crate::cluster::Cluster;
use crate::model::{
    Change, ChangeId, ChangeKind, Conversation, ConversationId, OutboxEvent, TimeUuid, UserId,
};
use crate::store::{self, LateChange};

/// Age of a conversation whose creation a repeated command may deliver.
const REPEATED_MICROS: i64 = 15 * 60 * 1_000_000;

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

impl WriteContext {
    /// Notes that this server has delivered the creation of a conversation.
    pub(crate) fn note_creation(&self, conversation: &Conversation) {
        if let Some(delivered) = &self.delivered {
            let id = creation_id(conversation);
            delivered.lock().insert((id, ChangeKind::MessageLate));
        }
    }

    /// Whether a command that finds a conversation delivers its creation once more: once on each
    /// server, while the conversation is young.
    pub(crate) fn may_repeat_creation(&self, conversation: &Conversation) -> bool {
        let age = self.in_flight.now().micros() - conversation.created_at.micros();
        let id = creation_id(conversation);
        age < REPEATED_MICROS && !self.has_delivered(id, ChangeKind::MessageLate)
    }

    /// Delivers the creation of a conversation that a command finds there. The server that
    /// persisted it may have died before it notified the others, so it counts as late.
    pub(crate) async fn repeat_creation(
        &self,
        conversation: &Conversation,
        users: Vec<UserId>,
    ) -> store::Result<()> {
        let creation = OutgoingCreation {
            conversation: conversation.id,
            change: creation_id(conversation),
            users,
            age: None,
        };
        creation.deliver(self).await?;
        self.note_creation(conversation);
        Ok(())
    }
}

/// Id that stands for the creation of a conversation, and is that of no message.
fn creation_id(conversation: &Conversation) -> TimeUuid {
    let (_, rest) = conversation.id.0.as_u64_pair();
    TimeUuid::new(conversation.created_at, rest.to_be_bytes())
}

impl LateEvents for CreationDelivery<'_> {
    fn notify<'a>(&'a mut self, _: &'a Cluster) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let OutgoingCreation {
                conversation,
                users,
                ..
            } = self.creation;
            let publisher = &self.context.publisher;
            publisher
                .notify_inboxes(users, *conversation, self.change)
                .await;
        })
    }

    fn log_again<'a>(&'a mut self, _: &'a Cluster) -> BoxFuture<'a, store::Result<EventAge>> {
        Box::pin(async move {
            let Self {
                context, creation, ..
            } = self;
            let (conversation, users) = (creation.conversation, &creation.users);
            let lease = context.in_flight.allocate_late(conversation, 1);
            let again = LateChange {
                change: Change {
                    id: lease.newest(),
                    kind: ChangeKind::MessageLate,
                    message: creation.change,
                    user: users[0].clone(),
                },
                event: OutboxEvent::conversation_created(creation.change),
            };
            // Refused, it is repeated too: without it, streams of other servers miss the creation.
            let log = || {
                let again = std::slice::from_ref(&again);
                let logged = context.store.log_late(conversation, again);
                logged.map_err(store::Error::after_write)
            };
            let (lease, ()) = retry_until_known(&context.unsettled, lease, log).await?;
            let (publisher, origin) = (&context.publisher, Origin::Own(&lease));
            publisher.publish_to_inboxes(users, conversation, again.change.id, origin);
            let age = EventAge::of(&lease);
            self.change = again.change.id;
            Ok(age)
        })
    }
}
