//! Remote notices: loads the events that other servers notify this one of, by key, and publishes
//! them here.
//!
//! A notice arrives after its batch was acknowledged at a quorum, so the store has what it names.
//! An event is published once under each of its ids: the notice may come over NATS and by the
//! mailbox. A late event has a second id, under which it is published again, because a stream that
//! began meanwhile has read only its window. Streams deliver a message once.
//!
//! Invariant: while a notice is followed, it holds back the cursors that it concerns
//! (`cluster::CursorScope`). When `follow` returns, its events are published, or the streams that
//! it concerns have to read the store.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::sleep;

use crate::chat::access::Access;
use crate::chat::components::Components;
use crate::chat::in_flight_ids::InFlightIds;
use crate::chat::live::LiveService;
use crate::chat::presence::PresenceService;
use crate::chat::publisher::{Origin, Publisher};
use crate::cluster::{NoticeHandler, RegistryEvent, RemoteEvent, RemoteNotice};
use crate::model::{
    ChangeKind, ConversationId, Event, Message, MessageId, OrderKey, TimeUuid, Topic, UserId,
};
use crate::store::cluster::{Registration, ServerId, SessionKind};
use crate::store::{self, Store};

/// Topics whose streams begin to read the store at the same time, while all of them do.
const REREADS_AT_ONCE: usize = 64;

pub(crate) struct RemoteNotices {
    store: Arc<dyn Store>,
    access: Arc<Access>,
    in_flight: InFlightIds,
    publisher: Arc<Publisher>,
    presence: Arc<PresenceService>,
    lives: Arc<LiveService>,
}

/// Events of one notice.
struct NoticedEvents<'a> {
    conversation: ConversationId,
    events: &'a [RemoteEvent],
    /// Users whose inboxes they concern.
    users: &'a [UserId],
    is_large: bool,
    oldest: Option<OrderKey>,
}

impl RemoteNotices {
    pub(crate) fn new(
        components: &Components,
        presence: Arc<PresenceService>,
        lives: Arc<LiveService>,
    ) -> Arc<Self> {
        Arc::new(Self {
            store: Arc::clone(&components.store),
            access: Arc::clone(&components.access),
            in_flight: components.in_flight.clone(),
            publisher: Arc::clone(&components.publisher),
            presence,
            lives,
        })
    }

    async fn follow_events(&self, noticed: NoticedEvents<'_>) -> store::Result<()> {
        let is_new = |event: &&RemoteEvent| !self.publisher.has_published(event.id());
        let fresh: Vec<_> = noticed.events.iter().filter(is_new).collect();
        if fresh.is_empty() {
            return Ok(());
        }
        if noticed.is_large {
            // Inbox entries of large conversations show a cached head, which must not be older.
            self.store.newest_events(&[noticed.conversation]).await?;
        }
        let keys: Vec<_> = fresh
            .iter()
            .map(|event| (noticed.conversation, message_of(event)))
            .collect();
        let messages = self.store.messages(&keys).await?;
        let mut loaded: Vec<_> = fresh
            .into_iter()
            .zip(messages)
            .filter_map(|(event, message)| {
                let shown = event_of(noticed.conversation, event, message)?;
                Some((event.id(), shown))
            })
            .collect();
        loaded.sort_unstable_by_key(|(id, _)| *id);
        for (id, event) in loaded {
            if self.publisher.record_new(id) {
                self.publish(&noticed, id, event);
            }
        }
        Ok(())
    }

    fn publish(&self, noticed: &NoticedEvents<'_>, id: TimeUuid, event: Event) {
        let (publisher, conversation) = (&self.publisher, noticed.conversation);
        self.in_flight.observe(conversation, [id]);
        self.in_flight.signal_readers();
        let origin = Origin::Remote {
            oldest: noticed.oldest,
        };
        let is_hidden =
            matches!(&event, Event::MessageChanged(kind, _) if !kind.shows_in_inboxes());
        match &event {
            Event::Changed(_, change) => {
                self.access.membership_versions().on_change();
                if may_end_rights(change.kind) {
                    self.access.leave_epoch().advance();
                } else if change.kind == ChangeKind::RoleChanged {
                    self.access.leave_epoch().advance_rights();
                }
            }
            // A message ends the typing of its sender.
            Event::MessageAdded(message) => {
                publisher.deliver_typing(&message.sender, conversation, false);
            }
            Event::MessageChanged(..)
            | Event::MarkerMoved(..)
            | Event::Inbox(_)
            | Event::BlockChanged(_)
            | Event::Typing(..)
            | Event::LiveStepped(_)
            | Event::Presence(_) => {}
        }
        publisher.publish_event(conversation, id, event, origin);
        if !is_hidden {
            publisher.publish_to_inboxes(noticed.users, conversation, id, origin);
        }
    }

    /// Streams of a conversation that was small when they began hear of it by their users' sessions.
    /// Now they must register as its listeners, and then read what was sent in between.
    fn follow_growth(
        &self,
        conversation: ConversationId,
        change: TimeUuid,
        users: &[UserId],
        oldest: Option<OrderKey>,
    ) {
        for topic in [Topic::Conversation(conversation), Topic::Live(conversation)] {
            self.publisher.invalidate(&topic);
        }
        self.publisher
            .publish_to_inboxes(users, conversation, change, Origin::Remote { oldest });
    }
}

/// Whether a change may take a participant's right to read or to write, or raise a floor.
fn may_end_rights(kind: ChangeKind) -> bool {
    matches!(
        kind,
        ChangeKind::ParticipantRemoved | ChangeKind::ParticipantUpdated | ChangeKind::HistoryRaised
    )
}

fn message_of(event: &RemoteEvent) -> MessageId {
    match event {
        RemoteEvent::Message(id) => *id,
        RemoteEvent::Change(change) => change.message,
    }
}

/// `None` for an event of a message that is gone.
fn event_of(
    conversation: ConversationId,
    event: &RemoteEvent,
    message: Option<Arc<Message>>,
) -> Option<Event> {
    let change = match event {
        RemoteEvent::Message(_) => return Some(Event::MessageAdded(message?)),
        RemoteEvent::Change(change) => change,
    };
    Some(match change.kind {
        ChangeKind::MessageLate => Event::MessageAdded(message?),
        kind @ (ChangeKind::MessageEdited
        | ChangeKind::MessageDeleted
        | ChangeKind::ReactionsChanged
        | ChangeKind::PinsChanged) => Event::MessageChanged(kind, message?),
        ChangeKind::ParticipantAdded
        | ChangeKind::ParticipantRemoved
        | ChangeKind::RoleChanged
        | ChangeKind::ConversationRenamed
        | ChangeKind::ParticipantUpdated
        | ChangeKind::ConversationUpdated
        | ChangeKind::HistoryRaised => Event::Changed(conversation, change.clone()),
    })
}

impl NoticeHandler for RemoteNotices {
    fn follow<'a>(&'a self, notice: &'a RemoteNotice) -> BoxFuture<'a, store::Result<()>> {
        Box::pin(async move {
            let oldest = notice.oldest();
            match notice {
                RemoteNotice::Events {
                    conversation,
                    events,
                    users,
                    is_large,
                } => {
                    self.follow_events(NoticedEvents {
                        conversation: *conversation,
                        events,
                        users,
                        is_large: *is_large,
                        oldest,
                    })
                    .await?;
                }
                RemoteNotice::Growth {
                    conversation,
                    change,
                    users,
                } => self.follow_growth(*conversation, *change, users, oldest),
                RemoteNotice::Inbox {
                    conversation,
                    change,
                    users,
                } => {
                    let origin = Origin::Remote { oldest };
                    self.publisher
                        .publish_to_inboxes(users, *conversation, *change, origin);
                }
                RemoteNotice::Marker { conversation, user } => {
                    let id = self.publisher.unordered_id();
                    self.publisher.deliver_marker(user, *conversation, id);
                }
                RemoteNotice::Presence { users } => {
                    users
                        .iter()
                        .for_each(|user| self.publisher.deliver_presence(user));
                }
                RemoteNotice::Typing {
                    conversation,
                    user,
                    is_typing,
                } => self
                    .publisher
                    .deliver_typing(user, *conversation, *is_typing),
                RemoteNotice::Live(live) => self.lives.on_notice(*live),
            }
            Ok(())
        })
    }

    fn reread(&self, within: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let topics = self.publisher.readable_topics();
            let pieces = topics.len().div_ceil(REREADS_AT_ONCE).max(1);
            let pause = within / u32::try_from(pieces).unwrap_or(u32::MAX);
            for (number, some) in topics.chunks(REREADS_AT_ONCE).enumerate() {
                if number > 0 {
                    sleep(pause).await;
                }
                some.iter()
                    .for_each(|topic| self.publisher.invalidate(topic));
            }
        })
    }

    fn reread_of(&self, conversation: Option<ConversationId>, users: &[UserId]) {
        if let Some(conversation) = conversation {
            self.publisher
                .invalidate(&Topic::Conversation(conversation));
        }
        for user in users.iter().collect::<HashSet<_>>() {
            self.publisher.invalidate(&Topic::Inbox(user.clone()));
        }
    }

    fn on_registry(&self, event: &RegistryEvent) {
        match event {
            RegistryEvent::Registered(Registration::Session(user, SessionKind::Present)) => {
                self.presence.announce(user, true);
            }
            RegistryEvent::Removed(Registration::Session(user, SessionKind::Present)) => {
                self.presence.announce(user, false);
            }
            RegistryEvent::Registered(_) | RegistryEvent::Removed(_) | RegistryEvent::Healed => {}
        }
    }

    fn on_ended(&self, _: ServerId) {
        self.presence.recheck_after_end();
    }
}
