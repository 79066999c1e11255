//! Short forms of what cases do and ask again and again, and the naive page that every page is compared with.

use std::ops::Bound;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use wideroom::model::{
    Change, ChangeId, Conversation, ConversationId, Cut, Direction, IgnoredSenders, InboxKey,
    InboxRow, Message, MessageId, OrderKey, Page, PageRequest, Participant, ReadMarker, Revision,
    TimeUuid, Unread, UserId,
};
use wideroom::store::{
    Appended, Audience, Created, ImportRow, Imported, MarkerMove, NewMessage, Participation,
    Revised, Store, StoreAdmin, UnreadQuery,
};

use crate::support::size::sized;
use crate::support::words::{change, change_of, group, id, is_among_others, new, text};

/// Walks are cut here: a page that does not move on must not hang a test.
pub const PAGES_MAX: usize = 10_000;

pub async fn make(store: &dyn Store, conversation: ConversationId, people: &[UserId]) {
    assert_eq!(
        store
            .create_conversation(&group(conversation, people))
            .await
            .unwrap(),
        Created::New
    );
}

/// The conversation as an export reads it, wherever it is among those of other cases.
pub async fn exported(store: &dyn StoreAdmin, on: ConversationId) -> Conversation {
    let mut after = None;
    loop {
        let page = store.all_conversations(after, 100).await.unwrap();
        after = Some(page.last().expect("the export has it").0.id);
        if let Some((found, _)) = page.into_iter().find(|(one, _)| one.id == on) {
            return found;
        }
    }
}

/// Sends one text at that microsecond.
pub async fn send(
    store: &dyn Store,
    conversation: ConversationId,
    micros: i64,
    sender: &UserId,
) -> MessageId {
    send_as(store, conversation, id(micros), sender).await;
    id(micros)
}

pub async fn send_as(
    store: &dyn Store,
    conversation: ConversationId,
    id: MessageId,
    sender: &UserId,
) -> Audience {
    let sent = [new(text(conversation, id, sender))];
    append(store, conversation, &sent).await.audience
}

pub async fn append(
    store: &dyn Store,
    conversation: ConversationId,
    messages: &[NewMessage],
) -> Appended {
    store.append_messages(conversation, messages).await.unwrap()
}

/// Edits or deletes a message. `None` where there is none.
pub async fn revise(
    store: &dyn Store,
    conversation: ConversationId,
    message: MessageId,
    micros: i64,
    revision: Revision,
    by: &UserId,
) -> Option<Revised> {
    let change = change_of(change(micros), revision.kind(), message, by);
    let revised = store.revise_message(conversation, &revision, &change).await;
    revised.unwrap()
}

pub async fn import(store: &dyn StoreAdmin, rows: &[ImportRow]) -> Vec<Imported> {
    let fates = store.import(rows).await.unwrap();
    assert_eq!(fates.len(), rows.len(), "each row has a fate");
    fates
}

/// Imports rows that were not there.
pub async fn import_all(store: &dyn StoreAdmin, rows: &[ImportRow]) {
    assert_all(&import(store, rows).await, &Imported::Added);
}

#[track_caller]
pub fn assert_all(fates: &[Imported], expected: &Imported) {
    assert!(fates.iter().all(|fate| fate == expected), "{fates:?}");
}

/// Sends a text at each of these microseconds, in batches.
pub async fn send_all(
    store: &dyn Store,
    conversation: ConversationId,
    micros: std::ops::Range<i64>,
    sender: &UserId,
) {
    let all: Vec<_> = micros
        .map(|at| new(text(conversation, id(at), sender)))
        .collect();
    for batch in all.chunks(64) {
        append(store, conversation, batch).await;
    }
}

/// The whole history, the newest first.
pub async fn history(store: &dyn Store, conversation: ConversationId) -> Vec<MessageId> {
    let mut all = Vec::new();
    let mut request = PageRequest::first(100);
    for _ in 0..PAGES_MAX {
        let page = store
            .history(conversation, &Cut::default(), &request)
            .await
            .unwrap();
        all.extend(page.items.iter().map(|message| message.id));
        if !page.has_next {
            return all;
        }
        request = request.after(all.last().unwrap().order_key());
    }
    panic!("the history of {conversation} has no end");
}

/// The whole inbox, in its order.
pub async fn inbox(store: &dyn Store, user: &UserId) -> Vec<InboxRow> {
    let mut all: Vec<InboxRow> = Vec::new();
    let mut request = PageRequest::first(100);
    for _ in 0..PAGES_MAX {
        let page = store.inbox(user, &request).await.unwrap();
        all.extend(page.items);
        if !page.has_next {
            return all;
        }
        request = request.after(all.last().unwrap().key());
    }
    panic!("the inbox of {user} has no end");
}

pub async fn inbox_ids(store: &dyn Store, user: &UserId) -> Vec<ConversationId> {
    inbox(store, user)
        .await
        .into_iter()
        .map(|row| row.conversation)
        .collect()
}

pub async fn message(
    store: &dyn Store,
    conversation: ConversationId,
    id: MessageId,
) -> Option<Arc<Message>> {
    only(store.messages(&[(conversation, id)]).await.unwrap())
}

pub async fn message_count(store: &dyn Store, conversation: ConversationId) -> u64 {
    only(store.message_counts(&[conversation]).await.unwrap())
}

pub async fn last_message(store: &dyn Store, conversation: ConversationId) -> Option<MessageId> {
    only(store.last_messages(&[conversation]).await.unwrap())
}

pub async fn newest_event(store: &dyn Store, conversation: ConversationId) -> Option<TimeUuid> {
    only(store.newest_events(&[conversation]).await.unwrap())
}

/// The log of a conversation, of at most 99 changes.
pub async fn changes(store: &dyn Store, conversation: ConversationId) -> Vec<Change> {
    let read = store.changes(conversation, OrderKey::MIN, 99).await;
    read.unwrap()
}

pub async fn row(store: &dyn Store, user: &UserId, conversation: ConversationId) -> InboxRow {
    try_row(store, user, conversation)
        .await
        .expect("the user is in the conversation")
}

pub async fn try_row(
    store: &dyn Store,
    user: &UserId,
    conversation: ConversationId,
) -> Option<InboxRow> {
    only(store.inbox_rows(user, &[conversation]).await.unwrap())
}

pub async fn participant(
    store: &dyn Store,
    conversation: ConversationId,
    user: &UserId,
) -> Option<Participant> {
    only(
        store
            .participants_by_name(&[(conversation, user.clone())])
            .await
            .unwrap(),
    )
}

pub async fn participant_count(store: &dyn Store, conversation: ConversationId) -> u64 {
    only(store.participant_counts(&[conversation]).await.unwrap())
}

pub async fn participation(
    store: &dyn Store,
    conversation: ConversationId,
    user: &UserId,
) -> Option<Participation> {
    only(store.participations(user, &[conversation]).await.unwrap())
}

/// All who are in it now, in the order of the list.
pub async fn participants(store: &dyn Store, conversation: ConversationId) -> Vec<UserId> {
    let page = store
        .participants(conversation, &PageRequest::first(1_000))
        .await
        .unwrap();
    page.items
        .into_iter()
        .map(|participant| participant.user)
        .collect()
}

pub async fn unread(
    store: &dyn Store,
    user: &UserId,
    conversation: ConversationId,
    after: OrderKey,
    cap: u32,
) -> Unread {
    only(
        store
            .unread(
                user,
                &[UnreadQuery {
                    conversation,
                    after,
                    up_to: None,
                }],
                cap,
                &IgnoredSenders::default(),
            )
            .await
            .unwrap(),
    )
}

pub async fn mark(store: &dyn Store, user: &UserId, conversation: ConversationId, to: MarkTo) {
    let MarkTo {
        epoch,
        up_to,
        receipt,
        change,
    } = to;
    let moved = MarkerMove {
        conversation,
        marker: ReadMarker { epoch, up_to },
        read_up_to: receipt.then_some(up_to),
        is_by_service: false,
        change,
    };
    store.move_read_marker(user, &moved).await.unwrap();
}

/// Target of a marker, and whether it also advances the receipt.
#[derive(Clone, Copy)]
pub struct MarkTo {
    pub epoch: u64,
    pub up_to: OrderKey,
    pub receipt: bool,
    pub change: MessageId,
}

impl MarkTo {
    /// Everything up to a message is read.
    pub fn read(micros: i64, change: ChangeId) -> Self {
        Self {
            epoch: 0,
            up_to: id(micros).order_key(),
            receipt: true,
            change,
        }
    }

    /// A mark of unread, in an epoch of its own.
    pub fn unread(epoch: u64, up_to: OrderKey, change: ChangeId) -> Self {
        Self {
            epoch,
            up_to,
            receipt: false,
            change,
        }
    }
}

/// The greatest id in the store is this one, or that of another case in the same database.
#[track_caller]
pub fn assert_newest(answer: Option<TimeUuid>, expected: Option<TimeUuid>) {
    if is_among_others() {
        assert!(
            answer.is_none() || answer >= expected,
            "{answer:?} and not {expected:?}"
        );
    } else {
        assert_eq!(answer, expected);
    }
}

/// Asserts that the store accepts writes. A shared store also checks the clock, which is stopped in the past here.
pub fn assert_healthy(store: &dyn Store) {
    if !is_among_others() {
        assert_eq!(store.health(), Ok(()));
    }
}

/// Whatever happened to the store, what follows from it agrees with it. Where others write meanwhile, nobody can say.
pub async fn assert_sound(store: &dyn StoreAdmin) {
    let mut position = None;
    while !is_among_others() {
        let verified = store.verify(position.as_ref(), false).await.unwrap();
        assert_eq!(verified.findings, [], "after {} rows", verified.looked_at);
        position = verified.next;
        if position.is_none() {
            break;
        }
    }
}

/// The findings of a verification about one conversation whose texts have this word, each with whether it was repaired.
pub async fn findings(
    store: &dyn StoreAdmin,
    on: ConversationId,
    word: &str,
    repair: bool,
) -> Vec<(&'static str, bool)> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let verified = store.verify(after.as_ref(), repair).await.unwrap();
        let own = verified
            .findings
            .into_iter()
            .filter(|one| one.example.contains(&on.to_string()) && one.what.contains(word));
        found.extend(own.map(|one| (one.what, one.is_repaired)));
        match verified.next {
            Some(next) => after = Some(next),
            None => return found,
        }
    }
}

/// The one answer to one question.
pub fn only<T>(answers: Vec<T>) -> T {
    let [answer] = <[T; 1]>::try_from(answers)
        .unwrap_or_else(|answers| panic!("{} answers to one question", answers.len()));
    answer
}

/// The piece of a list that a request means, by looking at all of it. `list` is in the order of the list, `position` gives a key's order.
pub fn slice<T: Clone, K, O: Ord>(
    list: &[T],
    key: impl Fn(&T) -> O,
    position: impl Fn(&K) -> O,
    request: &PageRequest<K>,
) -> Page<T> {
    let follows = |item: &&T| {
        request
            .after
            .as_ref()
            .is_none_or(|after| key(item) > position(after))
    };
    let precedes = |item: &&T| {
        request
            .before
            .as_ref()
            .is_none_or(|before| key(item) < position(before))
    };
    let window: Vec<T> = list
        .iter()
        .filter(follows)
        .filter(precedes)
        .cloned()
        .collect();
    let is_window = request.after.is_some() && request.before.is_some();
    let (items, is_cut_before, is_cut_after) = match request.direction {
        Direction::Forward => (
            window
                .iter()
                .take(request.count)
                .cloned()
                .collect::<Vec<_>>(),
            false,
            window.len() > request.count,
        ),
        Direction::Backward => {
            let skipped = window.len().saturating_sub(request.count);
            (window[skipped..].to_vec(), skipped > 0, false)
        }
    };
    // The side on which the page begins goes on where the list has something at its cursor, or behind it.
    let is_behind = match request.direction {
        Direction::Forward => !is_window && list.iter().any(|item| !follows(&item)),
        Direction::Backward => !is_window && list.iter().any(|item| !precedes(&item)),
    };
    match request.direction {
        Direction::Forward => Page {
            items,
            has_previous: is_behind,
            has_next: is_cut_after,
        },
        Direction::Backward => Page {
            items,
            has_previous: is_cut_before,
            has_next: is_behind,
        },
    }
}

/// Whether a key lies in a cut, the keys being in ascending order.
pub fn is_in<K: Ord>(cut: &Cut<K>, key: &K) -> bool {
    let is_after_start = match &cut.start {
        Bound::Unbounded => true,
        Bound::Included(start) => key >= start,
        Bound::Excluded(start) => key > start,
    };
    let is_before_end = match &cut.end {
        Bound::Unbounded => true,
        Bound::Included(end) => key <= end,
        Bound::Excluded(end) => key < end,
    };
    is_after_start && is_before_end
}

/// The same request, of other keys.
pub fn with_keys<K: Copy, L>(request: &PageRequest<K>, key: impl Fn(K) -> L) -> PageRequest<L> {
    let [after, before] = [request.after, request.before].map(|cursor| cursor.map(&key));
    PageRequest {
        direction: request.direction,
        count: request.count,
        after,
        before,
    }
}

/// A page is another one. Of an empty page of none only the items are promised.
#[track_caller]
pub fn assert_page<T: PartialEq + std::fmt::Debug, K: std::fmt::Debug>(
    request: &PageRequest<K>,
    answer: &Page<T>,
    expected: &Page<T>,
) {
    if request.count == 0 {
        assert!(
            answer.items.is_empty(),
            "a page of none has items: {request:?}"
        );
    } else {
        assert_eq!(answer, expected, "for {request:?}");
    }
}

/// Any request over some keys. Both cursors may be given, in the wrong order too.
pub fn requests<K: Clone + std::fmt::Debug + 'static>(
    keys: impl Strategy<Value = K> + Clone + 'static,
) -> impl Strategy<Value = PageRequest<K>> {
    let cursor = proptest::option::of(keys);
    (any::<bool>(), 0..12_usize, cursor.clone(), cursor).prop_map(
        |(is_forward, count, after, before)| PageRequest {
            direction: if is_forward {
                Direction::Forward
            } else {
                Direction::Backward
            },
            count,
            after,
            before,
        },
    )
}

/// A runner of so many cases in the gate, and of a quarter of them otherwise. It leaves no file behind: what fails is printed whole.
pub fn runner(cases: u32) -> TestRunner {
    TestRunner::new(Config {
        cases: sized(cases.div_ceil(4), cases),
        failure_persistence: None,
        max_shrink_time: 10_000,
        ..Config::default()
    })
}

/// Walks a list page by page and gives what it saw, in the order of the list.
pub async fn walk<T, K: Clone>(
    direction: Direction,
    sizes: &[usize],
    key: impl Fn(&T) -> K,
    page: impl AsyncFn(&PageRequest<K>) -> Page<T>,
) -> Vec<T> {
    let mut seen: Vec<T> = Vec::new();
    let mut cursor = None;
    for size in sizes.iter().cycle().take(PAGES_MAX) {
        let mut request = if direction == Direction::Forward {
            PageRequest::first(*size)
        } else {
            PageRequest::last(*size)
        };
        let is_first = cursor.is_none();
        let read = match direction {
            Direction::Forward => {
                request.after = cursor;
                let read = page(&request).await;
                assert_eq!(read.has_previous, !is_first, "what was walked lies behind");
                seen.extend(read.items);
                cursor = seen.last().map(&key);
                read.has_next
            }
            Direction::Backward => {
                request.before = cursor;
                let mut read = page(&request).await;
                assert_eq!(read.has_next, !is_first, "what was walked lies behind");
                read.items.append(&mut seen);
                seen = read.items;
                cursor = seen.first().map(&key);
                read.has_previous
            }
        };
        if !read {
            return seen;
        }
    }
    panic!("a list has no end");
}

/// The order of an inbox, as a plain pair: the later first, then the greater id.
pub fn inbox_order(key: &InboxKey) -> std::cmp::Reverse<(i64, uuid::Uuid)> {
    std::cmp::Reverse((key.activity.micros(), key.conversation.0))
}
