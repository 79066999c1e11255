//! The list of the newest messages beside a naive model: whatever is written, it answers as the disk does or not at all.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::model::{Body, Content, MessageKind, TimeUuid, Timestamp, UserId};

const CONVERSATION: ConversationId = ConversationId(uuid::Uuid::from_u128(7));
/// Messages have even numbers up to this one, so that there are positions between them.
const NUMBER_MAX: u8 = 60;

fn key(number: u8) -> OrderKey {
    id(number).order_key()
}

fn id(number: u8) -> MessageId {
    TimeUuid::new(Timestamp::from_micros(i64::from(number)), [0; 8])
}

fn message(number: u8, body_bytes: usize) -> Arc<Message> {
    let body = Body::parse("x".repeat(body_bytes), Body::BYTES_MAX, false).expect("it is a body");
    Arc::new(Message::new(
        CONVERSATION,
        id(number),
        UserId::parse("alice").expect("it is a name"),
        MessageKind::Text,
        Content {
            body,
            ..Content::default()
        },
    ))
}

/// Messages on the disk by their numbers, and the cache above them.
struct CachedDisk {
    disk: BTreeMap<u8, Arc<Message>>,
    newest: NewestMessages,
}

impl CachedDisk {
    fn new() -> Self {
        Self {
            disk: BTreeMap::new(),
            newest: NewestMessages::of_conversations(),
        }
    }

    fn commit(&mut self, messages: Vec<Arc<Message>>) {
        let keys = |message: &Arc<Message>| (message.conversation, message.id);
        self.newest
            .note_written(&messages.iter().map(keys).collect::<Vec<_>>());
        assert!(self.page(&Cut::default(), &PageRequest::first(1)).is_none());
        self.newest.add(&messages);
        for message in messages {
            let number = message.id.moment().micros() as u8;
            self.disk.insert(number, message);
        }
    }

    /// An edit, or the removal of a message.
    fn revise(&mut self, number: u8, is_removed: bool) {
        if let Some(before) = self.disk.remove(&number) {
            self.newest.note_written(&[(CONVERSATION, before.id)]);
            if !is_removed {
                self.disk.insert(number, message(number, 2));
            }
        }
    }

    fn load(&mut self, count: usize) {
        let rows: Vec<_> = self.disk.values().rev().take(count + 1).cloned().collect();
        let list = NewestList::of(&rows, rows.len() <= count);
        self.newest
            .put_loaded(self.newest.mark(), CONVERSATION, list);
    }

    fn page(
        &self,
        cut: &Cut<OrderKey>,
        request: &PageRequest<OrderKey>,
    ) -> Option<Page<Arc<Message>>> {
        self.newest.page(CONVERSATION, cut, request)
    }

    /// The page that the disk has.
    fn read(&self, cut: &Cut<OrderKey>, request: &PageRequest<OrderKey>) -> Page<Arc<Message>> {
        let is_after = |key: OrderKey| match cut.start {
            Bound::Included(start) => key >= start,
            Bound::Excluded(start) => key > start,
            Bound::Unbounded => true,
        };
        let is_before = |key: OrderKey| match cut.end {
            Bound::Included(end) => key <= end,
            Bound::Excluded(end) => key < end,
            Bound::Unbounded => true,
        };
        let all = self.disk.values().rev().cloned();
        let in_cut: Vec<_> = all
            .filter(|message| is_after(message.id.order_key()) && is_before(message.id.order_key()))
            .collect();
        let is_older = |message: &&Arc<Message>| {
            request
                .after
                .is_none_or(|after| message.id.order_key() < after)
        };
        let is_newer = |message: &&Arc<Message>| {
            request
                .before
                .is_none_or(|before| message.id.order_key() > before)
        };
        let window = in_cut.iter().filter(is_older).filter(is_newer).cloned();
        let limit = request.overread();
        let rows: Vec<_> = match request.direction {
            Direction::Forward => window.take(limit).collect(),
            Direction::Backward => window.rev().take(limit).collect(),
        };
        let has_behind = request.begins_at().is_some_and(|key| {
            in_cut.iter().any(|message| match request.direction {
                Direction::Forward => message.id.order_key() >= *key,
                Direction::Backward => message.id.order_key() <= *key,
            })
        });
        Page::from_overread(request, rows, has_behind)
    }
}

#[derive(Debug, Clone)]
enum ListStep {
    /// New messages of one commit, which are added the newest first or the oldest first.
    Append(u8, bool),
    /// A message with an older id than others, as of a server whose commit was late.
    Late(u8),
    Revise(u8, bool),
    Load(usize),
    Read(Cut<OrderKey>, PageRequest<OrderKey>),
}

fn bound() -> impl Strategy<Value = Bound<OrderKey>> {
    prop_oneof![
        3 => Just(Bound::Unbounded),
        1 => (0..=NUMBER_MAX).prop_map(|number| Bound::Included(key(number))),
        1 => (0..=NUMBER_MAX).prop_map(|number| Bound::Excluded(key(number))),
    ]
}

fn step() -> impl Strategy<Value = ListStep> {
    let cursor = || prop::option::of((0..=NUMBER_MAX).prop_map(key));
    let direction = prop_oneof![Just(Direction::Forward), Just(Direction::Backward)];
    let request = (direction, 0..6_usize, cursor(), cursor()).prop_map(
        |(direction, count, after, before)| PageRequest {
            direction,
            count,
            after,
            before,
        },
    );
    let cut = (bound(), bound()).prop_map(|(start, end)| Cut { start, end });
    prop_oneof![
        2 => (1..4_u8, any::<bool>()).prop_map(|(count, is_reversed)| ListStep::Append(count, is_reversed)),
        1 => (0..NUMBER_MAX / 2).prop_map(|half| ListStep::Late(half * 2)),
        1 => (0..NUMBER_MAX / 2, any::<bool>()).prop_map(|(half, is_removed)| ListStep::Revise(half * 2, is_removed)),
        2 => (0..8_usize).prop_map(ListStep::Load),
        6 => (cut, request).prop_map(|(cut, request)| ListStep::Read(cut, request)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_page_from_memory_is_the_page_on_the_disk(steps in prop::collection::vec(step(), 1..40)) {
        let mut cached = CachedDisk::new();
        for step in steps {
            match step {
                ListStep::Append(count, is_reversed) => {
                    let next = cached.disk.last_key_value().map_or(0, |(newest, _)| newest + 2);
                    let mut new: Vec<_> = (0..count)
                        .map(|place| next + place * 2)
                        .filter(|number| *number <= NUMBER_MAX)
                        .map(|number| message(number, 1))
                        .collect();
                    if is_reversed {
                        new.reverse();
                    }
                    if !new.is_empty() {
                        cached.commit(new);
                    }
                }
                ListStep::Late(number) if !cached.disk.contains_key(&number) => {
                    cached.newest.note_written(&[(CONVERSATION, id(number))]);
                    cached.newest.add(&[message(number, 1)]);
                    cached.disk.insert(number, message(number, 1));
                }
                ListStep::Late(_) => {}
                ListStep::Revise(number, is_removed) => cached.revise(number, is_removed),
                ListStep::Load(count) => cached.load(count),
                ListStep::Read(cut, request) => {
                    if let Some(page) = cached.page(&cut, &request) {
                        prop_assert_eq!(page, cached.read(&cut, &request));
                    }
                }
            }
        }
    }
}

#[test]
fn the_newest_page_and_what_was_missed_are_in_memory_once_read() {
    let mut cached = CachedDisk::new();
    cached.commit((0..20).map(|place| message(place * 2, 1)).collect());
    let all = Cut::default();
    assert!(cached.page(&all, &PageRequest::first(5)).is_none());
    cached.load(10);
    cached.commit(vec![message(42, 1), message(40, 1)]);
    let in_memory = [
        PageRequest::first(5),
        PageRequest::first(12),
        PageRequest::first(3).after(key(40)),
        PageRequest::last(9).before(key(24)),
    ];
    for request in in_memory {
        assert_eq!(
            cached.page(&all, &request),
            Some(cached.read(&all, &request)),
            "{request:?}"
        );
    }
    let deeper = [
        PageRequest::first(13),
        PageRequest::last(5),
        PageRequest::last(5).before(key(10)),
    ];
    for request in deeper {
        assert_eq!(cached.page(&all, &request), None, "{request:?}");
    }
}

#[test]
fn a_list_is_bounded_in_messages_and_bytes() {
    let mut cached = CachedDisk::new();
    let long = Body::BYTES_MAX;
    cached.commit((0..4).map(|place| message(place * 2, long)).collect());
    cached.load(4);
    let all = Cut::default();
    assert!(cached.page(&all, &PageRequest::first(0)).is_some());
    assert!(cached.page(&all, &PageRequest::first(2)).is_none());
    let mut many = CachedDisk::new();
    many.load(1);
    many.commit((0..120).map(|number| message(number, 1)).collect());
    let page = many.page(&all, &PageRequest::first(PageRequest::<()>::COUNT_MAX));
    assert_eq!(
        page.map(|page| (page.items.len(), page.has_next)),
        Some((100, true))
    );
    assert!(many.page(&all, &PageRequest::last(1)).is_none());
}

#[test]
fn a_list_whose_messages_are_never_added_is_forgotten_and_loaded_anew() {
    let mut cached = CachedDisk::new();
    cached.load(1);
    let all = Cut::default();
    let first = PageRequest::first(0);
    assert!(cached.page(&all, &first).is_some());
    let moment = |number: usize| Timestamp::from_micros(number as i64 + 1);
    let system = |number| (CONVERSATION, TimeUuid::new(moment(number), [0; 8]));
    for number in 0..AWAITED_MAX {
        cached.newest.note_written(&[system(number)]);
    }
    let is_held = |cached: &CachedDisk| cached.newest.find(&CONVERSATION, |_| Some(())).is_some();
    assert!(is_held(&cached) && cached.page(&all, &first).is_none());
    cached.newest.note_written(&[system(AWAITED_MAX)]);
    assert!(!is_held(&cached));
    cached.load(1);
    assert!(cached.page(&all, &first).is_some());
}
