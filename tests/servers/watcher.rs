//! Clients that subscribe, are cut off, and come back with their last cursor: now to this server, now to the other.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use wideroom::chat::ConversationEvent;
use wideroom::model::{
    ConversationId, InboxRow, Message, MessageId, OrderKey, TimeUuid, Unread, UserId,
};

use super::pair::Server;

/// A cheap generator: which server, and after how many events to be cut off.
pub(super) struct Dice(AtomicU32);

impl Dice {
    pub(super) fn new(seed: u32) -> Self {
        Self(AtomicU32::new(seed.wrapping_mul(2_654_435_761) | 1))
    }

    pub(super) fn below(&self, bound: u32) -> u32 {
        let step = |mut x: u32| {
            x ^= x << 13;
            x ^= x >> 17;
            x ^ (x << 5)
        };
        let before = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |x| Some(step(x)))
            .unwrap();
        (step(before) >> 8) % bound
    }
}

/// Servers that a client switches between at random, until it is stopped.
pub(super) struct Course {
    pub(super) servers: Arc<[Server; 2]>,
    pub(super) dice: Dice,
    /// All was written, and there was time for it to be seen.
    pub(super) stop: CancellationToken,
}

impl Course {
    fn server(&self) -> &Server {
        &self.servers[self.dice.below(2) as usize]
    }

    /// When the connection is cut, unless it has to last until the end.
    fn cut(&self) -> Instant {
        Instant::now() + Duration::from_millis(u64::from(200 + self.dice.below(3_000)))
    }

    /// Next item, or `None` when the connection is cut.
    async fn next<T>(&self, cut: Instant, next: impl Future<Output = T>) -> Option<T> {
        let cut = tokio::time::Instant::from_std(cut);
        tokio::select! {
            next = next => Some(next),
            () = tokio::time::sleep_until(cut) => None,
            () = self.stop.cancelled() => None,
        }
    }
}

#[derive(Default)]
pub(super) struct Seen {
    pub(super) messages: HashSet<MessageId>,
    /// As they were told last.
    pub(super) states: HashMap<MessageId, Arc<Message>>,
    pub(super) joined: HashMap<UserId, usize>,
    pub(super) left: HashMap<UserId, usize>,
    pub(super) connections: usize,
    pub(super) repeats: usize,
}

pub(super) async fn watch_messages(
    course: &Course,
    viewer: &UserId,
    conversation: ConversationId,
    start: OrderKey,
) -> Seen {
    let (mut seen, mut after) = (Seen::default(), start);
    while !course.stop.is_cancelled() {
        let cut = course.cut();
        seen.connections += 1;
        let mut updates = course
            .server()
            .chat
            .streams
            .messages(viewer, conversation, Some(after))
            .await
            .unwrap();
        let mut here = HashSet::new();
        while let Some(next) = course.next(cut, updates.next()).await {
            let message = next.expect("the viewer stays").unwrap().message;
            assert!(here.insert(message.id), "twice on one connection");
            seen.repeats += usize::from(!seen.messages.insert(message.id));
            after = message.id.order_key();
        }
    }
    seen
}

pub(super) async fn watch_conversation(
    course: &Course,
    viewer: &UserId,
    conversation: ConversationId,
    start: OrderKey,
) -> Seen {
    let (mut seen, mut after) = (Seen::default(), start);
    while !course.stop.is_cancelled() {
        let cut = course.cut();
        seen.connections += 1;
        let mut updates = course
            .server()
            .chat
            .streams
            .conversation(viewer, conversation, Some(after))
            .await
            .unwrap();
        while let Some(next) = course.next(cut, updates.next()).await {
            let update = next.expect("the viewer stays").unwrap();
            assert!(update.position >= after, "a position that goes back");
            after = update.position;
            match update.event {
                Some(ConversationEvent::MessageAdded(message)) => {
                    seen.repeats += usize::from(!seen.messages.insert(message.id));
                    seen.note(message);
                }
                Some(ConversationEvent::MessageChanged(_, message)) => seen.note(message),
                Some(ConversationEvent::ParticipantAdded(user)) => {
                    *seen.joined.entry(user).or_default() += 1
                }
                Some(ConversationEvent::ParticipantRemoved(user)) => {
                    *seen.left.entry(user).or_default() += 1
                }
                Some(
                    ConversationEvent::RoleChanged(_)
                    | ConversationEvent::Renamed
                    | ConversationEvent::ParticipantUpdated(_)
                    | ConversationEvent::ConversationUpdated
                    | ConversationEvent::HistoryExpired
                    | ConversationEvent::MarkerMoved(_),
                )
                | None => {}
            }
        }
    }
    seen
}

impl Seen {
    /// A client knows by `deletedAt` and `editedAt` which of two states is the later one.
    fn note(&mut self, message: Arc<Message>) {
        let age = |message: &Message| {
            let edited_at = message
                .content
                .as_ref()
                .and_then(|content| content.edited_at);
            (message.deleted_at.is_some(), edited_at)
        };
        let known = self
            .states
            .entry(message.id)
            .or_insert_with(|| Arc::clone(&message));
        if age(&message) > age(known) {
            *known = message;
        }
    }
}

/// Each entry as it was told last, which is what a client shows.
#[derive(Default)]
pub(super) struct Shown {
    pub(super) entries: HashMap<ConversationId, (Option<InboxRow>, Option<Unread>)>,
    pub(super) connections: usize,
    pub(super) updates: usize,
}

pub(super) async fn watch_inbox(course: &Course, viewer: &UserId) -> Shown {
    let mut shown = Shown::default();
    let mut after = None;
    while !course.stop.is_cancelled() {
        let cut = course.cut();
        let server = course.server();
        shown.connections += 1;
        let mut updates = server.chat.streams.inbox(viewer, after).await.unwrap();
        while let Some(next) = course.next(cut, updates.next()).await {
            let update = next.unwrap().unwrap();
            after = Some(update.position);
            if let Some(conversation) = update.conversation {
                shown.updates += 1;
                shown
                    .entries
                    .insert(conversation, entry(server, viewer, conversation).await);
            }
        }
    }
    shown
}

/// As a client is told of it.
pub(super) async fn entry(
    server: &Server,
    viewer: &UserId,
    conversation: ConversationId,
) -> (Option<InboxRow>, Option<Unread>) {
    let row = server.chat.inbox.entry(viewer, conversation).await.unwrap();
    let unread = match row {
        Some(row) => server
            .chat
            .inbox
            .unread(viewer, &[row])
            .await
            .unwrap()
            .pop(),
        None => None,
    };
    (row, unread)
}

/// The first place of all that was given after this id.
pub(super) fn just_before(id: TimeUuid) -> OrderKey {
    id.order_key().before()
}
