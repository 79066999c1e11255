//! Completed changes: events of changes that this server has finished for a server that died. No
//! other server publishes them, so this one does, as late events.

use std::sync::Arc;

use super::outgoing::Publication;
use super::outgoing::creation::OutgoingCreation;
use super::write_context::WriteContext;
use crate::chat::publisher::Origin;
use crate::cluster::{Recipients, RemoteNotice};
use crate::model::{Change, ChangeId, ChangeKind, ConversationId, Event, Topic, UserId};
use crate::store::Audience;
use crate::store::cluster::{CompletedChange, CompletionHandler};

pub(crate) struct CompletedChanges(Arc<WriteContext>);

impl CompletedChanges {
    /// Takes over the events of the changes that the store completes.
    pub(crate) fn watch(context: &Arc<WriteContext>) -> Option<Arc<Self>> {
        let cluster = context.in_flight.cluster()?;
        let this = Arc::new(Self(Arc::clone(context)));
        let handler: Arc<dyn CompletionHandler> = Arc::clone(&this) as Arc<_>;
        cluster.set_completion_handler(Arc::downgrade(&handler));
        Some(this)
    }
}

impl CompletionHandler for CompletedChanges {
    /// The streams of this server become listeners too: they began when the conversation was small.
    /// The queue of the conversation does not wait for the notices.
    fn on_growth(&self, conversation: ConversationId, change: ChangeId, participants: Vec<UserId>) {
        let context = &self.0;
        let Some(cluster) = context.in_flight.cluster().cloned() else {
            return;
        };
        let publisher = &context.publisher;
        publisher.invalidate(&Topic::Conversation(conversation));
        let origin = Origin::Remote { oldest: None };
        publisher.publish_to_inboxes(&participants, conversation, change, origin);
        context.tasks.spawn(async move {
            let notice = RemoteNotice::Growth {
                conversation,
                change,
                users: Vec::new(),
            };
            let recipients = Recipients::Users(participants.into());
            cluster.deliver(&notice, &recipients).await;
            cluster.settle_growth(conversation, change).await;
        });
    }

    fn on_change_completed(&self, change: CompletedChange) {
        let context = Arc::clone(&self.0);
        self.0.tasks.spawn(async move {
            let Some(cluster) = context.in_flight.cluster() else {
                return;
            };
            let conversation = change.conversation;
            let recipients = cluster.recipients(conversation).await;
            let is_large = matches!(recipients, Recipients::Listeners(_));
            let audience = Audience {
                users: (!is_large).then(|| recipients.users().into()),
            };
            let outgoing = {
                let lease = context.in_flight.allocate_late(conversation, 1);
                let mut publication = Publication::new(&context, conversation, &lease);
                let ends_rights = |kind| {
                    matches!(
                        kind,
                        ChangeKind::ParticipantRemoved
                            | ChangeKind::ParticipantUpdated
                            | ChangeKind::HistoryRaised
                    )
                };
                if change.changes.iter().any(|change| ends_rights(change.kind)) {
                    context.access.leave_epoch().advance();
                }
                let is_raise = |change: &Change| change.kind == ChangeKind::HistoryRaised;
                let raised = change.changes.iter().find(|change| is_raise(change));
                if let Some(raised) = raised.filter(|_| change.message.is_none()) {
                    publication.audience(raised.id, &audience);
                }
                for one in change.changes {
                    publication.event(one.id, Event::Changed(conversation, one));
                }
                if let Some(message) = change.message {
                    let id = message.id;
                    publication.event(id, Event::MessageAdded(message));
                    publication.audience(id, &audience);
                    publication.inboxes(id, &change.moved);
                }
                publication.finish()
            };
            if let Some(mut outgoing) = outgoing {
                outgoing.mark_late();
                context.deliver_then(Some(outgoing), |delivered| {
                    if let Err(error) = delivered {
                        tracing::warn!(%error, "the server failed to log a completed change a second time; resumed streams may miss the change");
                    }
                });
            }
        });
    }

    fn on_creation_completed(
        &self,
        conversation: ConversationId,
        change: ChangeId,
        participants: Vec<UserId>,
    ) {
        let context = Arc::clone(&self.0);
        self.0.tasks.spawn(async move {
            let creation = OutgoingCreation {
                conversation,
                change,
                users: participants,
                age: None,
            };
            if let Err(error) = creation.deliver(&context).await {
                tracing::warn!(%error, "the server failed to log a completed creation a second time; resumed streams may miss the creation");
            }
        });
    }
}
