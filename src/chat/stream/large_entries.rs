//! Entries of large conversations, as one inbox stream knows them (write-through cache).
//!
//! A message to 10,000 readers who are online must not make each of them read the store. So the
//! stream takes the message and the conversation from the notice, checks the membership by its
//! version, and advances the row and the unread count that it read once. Every act of the viewer,
//! on any server, reaches the stream as a notice for the inbox itself, and evicts the row.
//!
//! Only where several servers share a store: a store of one server answers such reads from memory.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::StreamService;
use crate::chat::access::membership_versions::SeenVersion;
use crate::chat::error::Result;
use crate::model::{
    Conversation, ConversationId, IgnoredSenders, InboxRow, Message, OrderKey, OwnFloor, Unread,
    UserId,
};

/// A count that was advanced for so long is computed again from the marker.
const COUNT_LIFETIME: Duration = Duration::from_secs(10 * 60);
/// Messages among which the order of arrival does not matter.
const ADDED_MAX: usize = 32;

/// Entry whose parts are known without a read of the store.
#[derive(Debug, Clone)]
pub struct LoadedEntry {
    pub row: InboxRow,
    pub conversation: Arc<Conversation>,
    /// The viewer's own part of their floor.
    pub own_floor: OwnFloor,
    /// The message that the row names as the last one, if a notice had it.
    pub last_message: Option<Arc<Message>>,
    pub unread: Arc<LoadedUnread>,
}

/// Unread count of one entry of one stream.
#[derive(Debug, Default)]
pub struct LoadedUnread(Mutex<Option<CountedUnread>>);

#[derive(Debug)]
struct CountedUnread {
    unread: Unread,
    /// Marker from which it was counted.
    after: OrderKey,
    /// Position up to which it covers all messages.
    up_to: OrderKey,
    /// Later messages that it covers too. Notices of another server may come out of order.
    added: BTreeSet<OrderKey>,
    counted_at: Instant,
}

impl LoadedUnread {
    /// The count of a row. `None` if it must be computed.
    pub fn of(&self, row: &InboxRow) -> Option<Unread> {
        let counted = self.0.lock();
        let counted = counted.as_ref()?;
        let covers = |last: OrderKey| counted.up_to >= last || counted.added.contains(&last);
        let is_of_row = counted.after == row.read_up_to()
            && row.last_message.is_none_or(|last| covers(last.order_key()));
        (is_of_row && counted.counted_at.elapsed() < COUNT_LIFETIME).then_some(counted.unread)
    }

    /// Stores the count of a row, which covers its last message and no later one.
    pub fn set(&self, row: &InboxRow, unread: Unread) {
        let after = row.read_up_to();
        let up_to = row.last_message.map_or(after, |last| last.order_key());
        *self.0.lock() = Some(CountedUnread {
            unread,
            after,
            up_to: up_to.max(after),
            added: BTreeSet::new(),
            counted_at: Instant::now(),
        });
    }

    fn clear(&self) {
        *self.0.lock() = None;
    }

    /// Advances the count by a new message. One that the count should have covered makes it unknown.
    fn add(&self, message: &Message, reader: &LargeReader<'_>) {
        let mut counted = self.0.lock();
        let Some(known) = counted.as_mut() else {
            return;
        };
        let position = message.id.order_key();
        if position <= known.up_to {
            *counted = None;
            return;
        }
        if !known.added.insert(position) {
            return;
        }
        if known.added.len() > ADDED_MAX
            && let Some(first) = known.added.pop_first()
        {
            known.up_to = first;
        }
        if reader.counts(message) && !known.unread.is_capped {
            known.unread.add(message.id, reader.cap);
            known.unread.first = known.unread.first.min(Some(message.id));
        }
    }
}

/// Viewer for whom messages are counted.
struct LargeReader<'a> {
    viewer: &'a UserId,
    /// Users whom the viewer blocks.
    ignored: &'a IgnoredSenders,
    cap: u32,
}

impl LargeReader<'_> {
    fn counts(&self, message: &Message) -> bool {
        message.counts_as_unread_for(self.viewer) && !self.ignored.contains(message.sender.as_str())
    }
}

/// Changes of one large conversation that were received together.
#[derive(Default)]
pub(super) struct LargeChange {
    /// Whether the viewer's own row may have changed.
    pub(super) is_own: bool,
    /// New messages of others, in their order of arrival.
    pub(super) messages: Vec<Arc<Message>>,
    /// Messages that were edited or deleted.
    pub(super) revised: Vec<Arc<Message>>,
}

#[derive(Default)]
pub(super) struct LargeEntries(HashMap<ConversationId, LargeEntry>);

#[derive(Default)]
struct LargeEntry {
    /// Version of the last check, and the viewer's own part of their floor.
    seen: Option<(SeenVersion, OwnFloor)>,
    row: Option<InboxRow>,
    last_message: Option<Arc<Message>>,
    unread: Arc<LoadedUnread>,
}

impl LargeEntries {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn remove(&mut self, conversation: ConversationId) {
        self.0.remove(&conversation);
    }

    /// Takes over a message that has its first reaction. No entry shows that by itself.
    pub(super) fn on_reaction(&mut self, message: &Arc<Message>) {
        let last = self.0.get_mut(&message.conversation);
        if let Some(last) = last.and_then(|entry| entry.last_message.as_mut())
            && last.id == message.id
        {
            *last = Arc::clone(message);
        }
    }

    /// The entry after a change. `None` if the viewer takes part no longer.
    pub(super) async fn update(
        &mut self,
        streams: &StreamService,
        viewer: &UserId,
        id: ConversationId,
        change: LargeChange,
    ) -> Result<Option<LoadedEntry>> {
        let entry = self.0.entry(id).or_default();
        let versions = streams.access.membership_versions();
        let Some(checked) = versions.check(viewer, id, entry.seen).await? else {
            self.remove(id);
            return Ok(None);
        };
        entry.seen = Some((checked.seen, checked.own_floor));
        let access = &streams.access;
        let floor = access.floor_above(&checked.conversation, checked.own_floor);
        if change.is_own {
            entry.evict();
        }
        let row = match entry.row {
            Some(row) => row,
            None => match streams
                .store
                .inbox_rows(viewer, &[id])
                .await?
                .pop()
                .flatten()
            {
                Some(row) => row,
                None => {
                    self.remove(id);
                    return Ok(None);
                }
            },
        };
        let blocks = streams.access.blocks().of(viewer).await?;
        let reader = LargeReader {
            viewer,
            ignored: blocks.ignored(),
            cap: streams.unread_cap,
        };
        let row = entry.advance(row.above(floor), change, &reader);
        entry.row = Some(row);
        let last_message = entry.last_message.clone();
        Ok(Some(LoadedEntry {
            row,
            conversation: checked.conversation,
            own_floor: checked.own_floor,
            last_message: last_message.filter(|last| row.visible_last_message() == Some(last.id)),
            unread: Arc::clone(&entry.unread),
        }))
    }
}

impl LargeEntry {
    /// The viewer has acted, perhaps on another server: the row is read again.
    fn evict(&mut self) {
        self.row = None;
        self.unread.clear();
    }

    fn advance(
        &mut self,
        mut row: InboxRow,
        change: LargeChange,
        reader: &LargeReader<'_>,
    ) -> InboxRow {
        // The count is 0 if everything was read, without a read of messages.
        if self.unread.of(&row).is_none() && !row.may_be_unread() {
            self.unread.set(&row, Unread::default());
        }
        for message in change.messages {
            self.unread.add(&message, reader);
            row.last_activity = row.last_activity.max(message.id.moment());
            row.last_message = row.last_message.max(Some(message.id));
            let is_last = self
                .last_message
                .as_ref()
                .is_none_or(|last| last.id < message.id);
            if is_last {
                self.last_message = Some(message);
            }
        }
        for message in change.revised {
            if message.deleted_at.is_some() {
                self.unread.clear();
            }
            if row.last_message == Some(message.id) {
                self.last_message = Some(message);
            }
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::model::{Content, Flags, MessageId, MessageKind, ReadMarker, Timestamp};

    fn id(micros: i64) -> MessageId {
        MessageId::new(Timestamp::from_micros(micros), [0; 8])
    }

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    fn reader(viewer: &UserId, cap: u32) -> LargeReader<'_> {
        static NOBODY: LazyLock<IgnoredSenders> = LazyLock::new(IgnoredSenders::default);
        LargeReader {
            viewer,
            ignored: &NOBODY,
            cap,
        }
    }

    fn row(last: i64, read: i64) -> InboxRow {
        InboxRow {
            conversation: ConversationId(uuid::Uuid::nil()),
            last_activity: Timestamp::from_micros(last),
            last_message: Some(id(last)),
            marker: ReadMarker {
                epoch: 0,
                up_to: id(read).order_key(),
            },
            sent_up_to: None,
            is_sent_by_service: false,
            flags: Flags::default(),
            floor: crate::model::Floor::NONE,
        }
    }

    fn message(micros: i64, sender: &str) -> Arc<Message> {
        Arc::new(Message::new(
            ConversationId(uuid::Uuid::nil()),
            id(micros),
            user(sender),
            MessageKind::Text,
            Content::default(),
        ))
    }

    fn arrival(messages: &[&Arc<Message>]) -> LargeChange {
        LargeChange {
            messages: messages.iter().map(|message| Arc::clone(message)).collect(),
            ..LargeChange::default()
        }
    }

    #[test]
    fn a_count_advances_with_the_messages_of_others() {
        let (mut entry, ann) = (LargeEntry::default(), user("ann"));
        // Everything was read: the count is 0 without a read of the store.
        let first = entry.advance(row(5, 5), arrival(&[&message(7, "ben")]), &reader(&ann, 2));
        assert_eq!(entry.unread.of(&first).unwrap().count, 1);
        assert_eq!(entry.unread.of(&first).unwrap().first, Some(id(7)));
        let more = [&message(8, "gus"), &message(9, "ben")];
        let second = entry.advance(first, arrival(&more), &reader(&ann, 2));
        let unread = entry.unread.of(&second).unwrap();
        assert!(unread.count == 2 && unread.is_capped, "{unread:?}");
        assert_eq!(entry.last_message.as_ref().map(|last| last.id), Some(id(9)));
    }

    #[test]
    fn a_message_of_a_blocked_user_does_not_advance_a_count() {
        let (mut entry, ann) = (LargeEntry::default(), user("ann"));
        let ignored = IgnoredSenders::of([user("ben")]);
        let reader = LargeReader {
            ignored: &ignored,
            ..reader(&ann, 9)
        };
        let more = [&message(7, "ben"), &message(8, "gus")];
        let row = entry.advance(row(5, 5), arrival(&more), &reader);
        let unread = entry.unread.of(&row).unwrap();
        assert_eq!((unread.count, unread.first), (1, Some(id(8))));
        assert_eq!(row.last_message, Some(id(8)));
    }

    #[test]
    fn a_count_is_that_of_its_marker_and_covers_the_last_message() {
        let (known, seven) = (
            LoadedUnread::default(),
            Unread {
                count: 7,
                ..Unread::default()
            },
        );
        known.set(&row(20, 5), seven);
        assert_eq!(known.of(&row(20, 5)), Some(seven));
        assert_eq!(known.of(&row(20, 6)), None, "the marker has moved");
        assert_eq!(
            known.of(&row(21, 5)),
            None,
            "a message that was not counted"
        );
    }

    #[test]
    fn messages_that_arrive_out_of_order_and_twice_count_once() {
        let (mut entry, ann) = (LargeEntry::default(), user("ann"));
        let more = [9, 7, 9, 8].map(|micros| message(micros, "ben"));
        let all: Vec<_> = more.iter().collect();
        let row = entry.advance(row(5, 5), arrival(&all), &reader(&ann, 9));
        let unread = entry.unread.of(&row).unwrap();
        assert_eq!((unread.count, unread.first), (3, Some(id(7))));
        for micros in 10..60 {
            entry.advance(row, arrival(&[&message(micros, "ben")]), &reader(&ann, 99));
        }
        entry.advance(row, arrival(&[&message(12, "ben")]), &reader(&ann, 99));
        assert_eq!(entry.unread.of(&row), None, "too far out of order");
    }

    #[test]
    fn a_late_message_and_a_deletion_make_a_count_unknown() {
        let ann = user("ann");
        let mut entry = LargeEntry::default();
        let first = entry.advance(row(5, 5), arrival(&[&message(9, "ben")]), &reader(&ann, 9));
        let late = entry.advance(first, arrival(&[&message(4, "ben")]), &reader(&ann, 9));
        assert_eq!(entry.unread.of(&late), None, "its marker is later");
        assert_eq!(late.last_message, Some(id(9)));
        entry.unread.set(
            &late,
            Unread {
                count: 2,
                ..Unread::default()
            },
        );
        let deleted = Message {
            deleted_at: Some(Timestamp::from_micros(30)),
            ..Message::clone(&message(7, "ben"))
        };
        let change = LargeChange {
            revised: vec![Arc::new(deleted)],
            ..LargeChange::default()
        };
        let after = entry.advance(late, change, &reader(&ann, 9));
        assert_eq!(entry.unread.of(&after), None);
    }
}
