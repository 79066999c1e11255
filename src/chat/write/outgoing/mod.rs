//! Outgoing events: the events of one batch of a conversation's queue, published here and delivered
//! to the other servers.
//!
//! The queue goes on while they are delivered, and the callers of the batch wait for it. So a server
//! that is hard to reach delays an answer, and not the conversation. The late rule
//! (`chat::late_rule`) decides when they are logged again.

pub(crate) mod creation;

use std::sync::Arc;

use futures_util::TryFutureExt as _;
use futures_util::future::BoxFuture;

use super::unknown_outcome::retry_until_known;
use super::write_context::WriteContext;
use crate::chat::error::Result;
use crate::chat::in_flight_ids::IdLease;
use crate::chat::late_rule::{EventAge, LateEvents, notify_in_time};
use crate::chat::publisher::Origin;
use crate::cluster::{Cluster, Recipients, RemoteEvent, RemoteNotice};
use crate::model::{
    Change, ChangeKind, ConversationId, Event, Mentions, Message, MessageId, OrderKey, OutboxEvent,
    OutboxEventKind, TimeUuid, UserId,
};
use crate::store::cluster::KeyedSend;
use crate::store::{self, Audience, LateChange};

/// Changes after the beginning of a change of a group, among which its own are.
const REPEATED_PAGE: usize = 512;
const REPEATED_PAGES_MAX: usize = 8;
/// Age of a renaming that its repetition may deliver.
const RENAMED_MICROS: i64 = 15 * 60 * 1_000_000;

/// Batch of events that is published: to the subscribers of this server at once, to the others by
/// the [`OutgoingEvents`] events that it collects.
pub(crate) struct Publication<'a> {
    context: &'a WriteContext,
    conversation: ConversationId,
    lease: &'a IdLease,
    /// `None` on a store of one server.
    outgoing: Option<OutgoingEvents>,
}

/// Events of a batch that the other servers have yet to be notified of.
pub(crate) struct OutgoingEvents {
    conversation: ConversationId,
    events: Vec<OutgoingEvent>,
    /// `None` if the store has yet to be asked.
    recipients: Option<Recipients>,
    /// Users whom the events concern, besides the participants.
    named: Vec<UserId>,
    has_inboxes: bool,
    /// `None` if the events count as late however fast they are delivered, because another server
    /// may have persisted them.
    age: Option<EventAge>,
    /// The retried send whose message they are.
    retried: Option<KeyedSend>,
}

struct OutgoingEvent {
    /// The change as it is logged when it is late. A message is a change of the kind
    /// [`ChangeKind::MessageLate`].
    change: Change,
    event: Event,
    /// Id of the event. `None` for a repeated one, which gets a fresh id.
    own_id: Option<TimeUuid>,
    /// The users whom an edit mentions anew.
    newly_mentioned: Mentions,
}

impl<'a> Publication<'a> {
    pub(crate) fn new(
        context: &'a WriteContext,
        conversation: ConversationId,
        lease: &'a IdLease,
    ) -> Self {
        let is_shared = context.in_flight.is_shared();
        let outgoing =
            is_shared.then(|| OutgoingEvents::new(conversation, Some(EventAge::of(lease))));
        Self {
            context,
            conversation,
            lease,
            outgoing,
        }
    }

    fn origin(&self) -> Origin<'a> {
        Origin::Own(self.lease)
    }

    /// Publishes an event on the topic of its conversation.
    pub(crate) fn event(&mut self, id: TimeUuid, event: Event) {
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.add(id, event.clone());
        }
        if let Event::Changed(..) = event {
            self.context.access.membership_versions().on_change();
        }
        let publisher = &self.context.publisher;
        publisher.publish_event(self.conversation, id, event, self.origin());
    }

    /// Adds the users whom the last event mentions anew.
    pub(crate) fn mention(&mut self, users: &Mentions) {
        let outgoing = self.outgoing.as_mut();
        if let Some(event) = outgoing.and_then(|outgoing| outgoing.events.last_mut()) {
            event.newly_mentioned = users.clone();
        }
    }

    /// Publishes the change of the conversation to the inboxes of its participants.
    pub(crate) fn audience(&mut self, id: TimeUuid, audience: &Audience) {
        if let Some(outgoing) = &mut self.outgoing
            // Without users, no inbox shows the event, and the store is asked for the participants.
            && audience.users.as_ref().is_none_or(|users| !users.is_empty())
        {
            outgoing.recipients = Some(audience.clone().into());
            outgoing.has_inboxes = true;
        }
        let publisher = &self.context.publisher;
        publisher.publish_to_audience(self.conversation, id, audience, self.origin());
    }

    /// Publishes the change to the inboxes of users who are no participants, or not only.
    pub(crate) fn inboxes<'u>(
        &mut self,
        id: TimeUuid,
        users: impl IntoIterator<Item = &'u UserId> + Clone,
    ) {
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.named.extend(users.clone().into_iter().cloned());
            outgoing.has_inboxes = true;
        }
        let publisher = &self.context.publisher;
        publisher.publish_to_inboxes(users, self.conversation, id, self.origin());
    }

    /// Events for the other servers. `None` on a store of one server.
    pub(crate) fn finish(self) -> Option<OutgoingEvents> {
        self.outgoing.filter(|outgoing| !outgoing.events.is_empty())
    }
}

impl WriteContext {
    /// Whether this server has delivered a change of this kind, of this message, to the others
    /// lately. On a store of one server every persisted change is delivered.
    pub(crate) fn has_delivered(&self, message: MessageId, kind: ChangeKind) -> bool {
        self.delivered
            .as_ref()
            .is_none_or(|delivered| delivered.lock().contains(&(message, kind)))
    }

    /// The event of a change that a message shows already, for a command that repeats it. The
    /// server that persisted it may have died before it notified the others, so it counts as late.
    pub(crate) fn repeated(
        &self,
        kind: ChangeKind,
        message: &Arc<Message>,
    ) -> Option<OutgoingEvents> {
        if self.has_delivered(message.id, kind) {
            return None;
        }
        let event = if kind == ChangeKind::MessageLate {
            Event::MessageAdded(Arc::clone(message))
        } else {
            Event::MessageChanged(kind, Arc::clone(message))
        };
        let mut outgoing = OutgoingEvents::new(message.conversation, None);
        // Any id will do: the event gets a fresh one.
        outgoing.add(message.id, event);
        if let Some(event) = outgoing.events.last_mut() {
            event.own_id = None;
        }
        outgoing.has_inboxes = kind.shows_in_inboxes();
        Some(outgoing)
    }

    /// The same for the last change of a conversation's membership, which is its version.
    pub(crate) async fn repeated_membership(
        &self,
        conversation: ConversationId,
        version: Option<TimeUuid>,
    ) -> store::Result<Option<OutgoingEvents>> {
        // A change without a message is a participant's update under the id of the version.
        let is_delivered = |version: TimeUuid| {
            [ChangeKind::MessageLate, ChangeKind::ParticipantUpdated]
                .into_iter()
                .any(|kind| self.has_delivered(version, kind))
        };
        let Some(version) = version.filter(|version| !is_delivered(*version)) else {
            return Ok(None);
        };
        let since = OrderKey::first_at(version.moment().plus_micros(-1_000_000));
        let changes = self.changes_since(conversation, since).await?;
        self.repeated_group_change(conversation, version, changes)
            .await
    }

    /// The same for the last renaming of a conversation, or change of a setting, if it is recent.
    pub(crate) async fn repeated_setting(
        &self,
        conversation: ConversationId,
        kind: ChangeKind,
    ) -> store::Result<Option<OutgoingEvents>> {
        if !self.in_flight.is_shared() {
            return Ok(None);
        }
        let now = self.in_flight.now();
        let since = OrderKey::first_at(now.plus_micros(-RENAMED_MICROS));
        let changes = self.changes_since(conversation, since).await?;
        let newest = changes.iter().rfind(|change| change.kind == kind);
        let Some(message) = newest.map(|change| change.message) else {
            return Ok(None);
        };
        self.repeated_group_change(conversation, message, changes)
            .await
    }

    async fn changes_since(
        &self,
        conversation: ConversationId,
        mut since: OrderKey,
    ) -> store::Result<Vec<Change>> {
        let mut all = Vec::new();
        for _ in 0..REPEATED_PAGES_MAX {
            let page = self
                .store
                .changes(conversation, since, REPEATED_PAGE)
                .await?;
            let is_last = page.len() < REPEATED_PAGE;
            since = page.last().map_or(since, |last| last.id.order_key());
            all.extend(page);
            if is_last {
                break;
            }
        }
        Ok(all)
    }

    /// The events of the change of a group that this SYSTEM message announces, or that repeats the id
    /// of a change without one.
    async fn repeated_group_change(
        &self,
        conversation: ConversationId,
        message: MessageId,
        changes: Vec<Change>,
    ) -> store::Result<Option<OutgoingEvents>> {
        let found = self.store.messages(&[(conversation, message)]).await?;
        let mut outgoing = match found.into_iter().next().flatten() {
            Some(found) => match self.repeated(ChangeKind::MessageLate, &found) {
                Some(outgoing) => outgoing,
                None => return Ok(None),
            },
            None => OutgoingEvents::new(conversation, None),
        };
        let is_missed = |change: &Change| {
            let is_message = change.kind == ChangeKind::MessageLate;
            change.message == message
                && !is_message
                && !self.has_delivered(change.message, change.kind)
        };
        for change in changes.into_iter().filter(is_missed) {
            outgoing.named.push(change.user.clone());
            outgoing.add(change.id, Event::Changed(conversation, change));
        }
        // The version of a conversation whose membership never changed is no change.
        Ok(Some(outgoing).filter(|outgoing| !outgoing.events.is_empty()))
    }

    /// Delivers the events of a batch to the other servers, and then replies. Without events it
    /// replies at once.
    pub(crate) fn deliver_then(
        self: &Arc<Self>,
        outgoing: Option<OutgoingEvents>,
        reply: impl FnOnce(Result<()>) + Send + 'static,
    ) {
        let Some(outgoing) = outgoing else {
            return reply(Ok(()));
        };
        let context = Arc::clone(self);
        self.tasks.spawn(async move {
            let delivered = outgoing.deliver(&context).await;
            reply(delivered.map_err(Into::into));
        });
    }
}

impl OutgoingEvent {
    fn of(id: TimeUuid, event: Event) -> Option<Self> {
        let of_message = |kind, message: &Message| Change {
            id,
            kind,
            message: message.id,
            user: message.sender.clone(),
        };
        let change = match &event {
            Event::MessageAdded(message) => of_message(ChangeKind::MessageLate, message),
            Event::MessageChanged(kind, message) => of_message(*kind, message),
            Event::Changed(_, change) => change.clone(),
            Event::MarkerMoved(..)
            | Event::Inbox(_)
            | Event::BlockChanged(_)
            | Event::Typing(..)
            | Event::LiveStepped(_)
            | Event::Presence(_) => {
                return None;
            }
        };
        let own_id = Some(id);
        Some(Self {
            change,
            event,
            own_id,
            newly_mentioned: Mentions::NONE,
        })
    }

    /// The change as it is logged again. In the outbox the event keeps its id.
    fn late(&self) -> LateChange {
        let mut event = OutboxEvent {
            newly_mentioned: self.newly_mentioned.clone(),
            ..OutboxEvent::of_change(&self.change)
        };
        if let (Some(own_id), false) = (self.own_id, event.kind == OutboxEventKind::MessageAdded) {
            event.id = own_id;
        }
        LateChange {
            change: self.change.clone(),
            event,
        }
    }

    fn remote(&self) -> RemoteEvent {
        let is_message = self.change.kind == ChangeKind::MessageLate;
        if is_message && self.change.id == self.change.message {
            RemoteEvent::Message(self.change.id)
        } else {
            RemoteEvent::Change(self.change.clone())
        }
    }
}

impl OutgoingEvents {
    fn new(conversation: ConversationId, age: Option<EventAge>) -> Self {
        Self {
            conversation,
            events: Vec::new(),
            recipients: None,
            named: Vec::new(),
            has_inboxes: false,
            age,
            retried: None,
        }
    }

    fn add(&mut self, id: TimeUuid, event: Event) {
        self.events.extend(OutgoingEvent::of(id, event));
    }

    /// Marks the events as late, because another server may have persisted them.
    pub(crate) fn mark_late(&mut self) {
        self.age = None;
    }

    /// Makes the events those of a retried send, which are late.
    pub(crate) fn set_retried(&mut self, send: Option<KeyedSend>) {
        self.mark_late();
        self.retried = send;
    }

    /// Delivers the events to the servers that have a stream to tell, however long that takes.
    async fn deliver(self, context: &WriteContext) -> store::Result<()> {
        let age = self.age;
        let mut delivery = OutgoingDelivery {
            context,
            outgoing: self,
        };
        notify_in_time(&context.in_flight, age, &mut delivery).await?;
        delivery.outgoing.note_delivered(context);
        let retried = delivery.outgoing.retried;
        if let (Some(retried), Some(store)) = (retried, context.store.cluster()) {
            // Without the note, another retry delivers the message once more.
            if let Err(error) = store.note_delivered(&retried).await {
                tracing::debug!(%error, "failed to note that a retried message was delivered");
            }
        }
        Ok(())
    }

    fn note_delivered(&self, context: &WriteContext) {
        if let Some(delivered) = &context.delivered {
            let mut delivered = delivered.lock();
            for OutgoingEvent { change, .. } in &self.events {
                delivered.insert((change.message, change.kind));
            }
        }
    }

    fn notice(&self, recipients: Recipients) -> (RemoteNotice, Recipients) {
        let notice = RemoteNotice::Events {
            conversation: self.conversation,
            events: self.events.iter().map(OutgoingEvent::remote).collect(),
            users: Vec::new(),
            is_large: matches!(recipients, Recipients::Listeners(_)),
        };
        let all = recipients.with(&self.named);
        if self.has_inboxes {
            (notice, all)
        } else {
            (notice, all.without_inboxes())
        }
    }
}

/// OutgoingDelivery of the events of a batch.
struct OutgoingDelivery<'a> {
    context: &'a WriteContext,
    outgoing: OutgoingEvents,
}

impl LateEvents for OutgoingDelivery<'_> {
    fn notify<'a>(&'a mut self, cluster: &'a Cluster) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let outgoing = &mut self.outgoing;
            let recipients = match outgoing.recipients.take() {
                Some(recipients) => recipients,
                None => cluster.recipients(outgoing.conversation).await,
            };
            let (notice, all) = outgoing.notice(recipients);
            cluster.deliver(&notice, &all).await;
        })
    }

    fn log_again<'a>(&'a mut self, cluster: &'a Cluster) -> BoxFuture<'a, store::Result<EventAge>> {
        Box::pin(async move {
            let Self { context, outgoing } = self;
            let (in_flight, conversation) = (&context.in_flight, outgoing.conversation);
            let lease = in_flight.allocate_late(conversation, outgoing.events.len());
            let age = EventAge::of(&lease);
            for (event, id) in outgoing.events.iter_mut().zip(lease.ids()) {
                event.change.id = *id;
                if let Event::Changed(_, change) = &mut event.event {
                    change.id = *id;
                }
            }
            let changes: Vec<_> = outgoing.events.iter().map(OutgoingEvent::late).collect();
            // Refused, it is repeated too: without it, streams of other servers miss the events.
            let log = || {
                let logged = context.store.log_late(conversation, &changes);
                logged.map_err(store::Error::after_write)
            };
            let (lease, ()) = retry_until_known(&context.unsettled, lease, log).await?;
            let recipients = cluster.recipients(conversation).await;
            let (publisher, origin) = (&context.publisher, Origin::Own(&lease));
            for OutgoingEvent { change, event, .. } in &outgoing.events {
                publisher.publish_event(conversation, change.id, event.clone(), origin);
            }
            if outgoing.has_inboxes {
                let users = recipients.users().iter().chain(&outgoing.named);
                publisher.publish_to_inboxes(users, conversation, lease.newest(), origin);
            }
            outgoing.recipients = Some(recipients);
            Ok(age)
        })
    }
}
