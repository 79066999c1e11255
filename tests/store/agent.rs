//! Agents: participants without an inbox.

use wideroom::model::{
    Content, Flags, IgnoredSenders, InboxRow, Mentions, NotificationLevel, OrderKey, PageRequest,
    ReadMarker, Unread, UserId,
};
use wideroom::store::{FlagsChange, ImportPositions, Store, StoreAdmin, UnreadQuery};

use super::ask::{
    MarkTo, assert_sound, inbox, inbox_ids, make, mark, message, only, participant, participants,
    row, send, try_row, unread,
};
use super::membership::{govern, joins, leaves};
use crate::support::words::{
    START, change, content, conversation_id, crowd, flags_change, group_row, id, message_row, new,
    participant_row, participant_row_at, text, user, users,
};

fn helper() -> UserId {
    user("agent:helper")
}

/// The lists of an agent are empty, whatever it takes part in.
async fn assert_unlisted(store: &dyn Store, agent: &UserId) {
    assert_eq!(inbox(store, agent).await, []);
    let changes = store.inbox_changes(agent, OrderKey::MIN, 9).await.unwrap();
    assert_eq!(changes, Some(Vec::new()));
    assert_eq!(store.conversation_count(agent, 9).await.unwrap(), 0);
    assert_eq!(store.large_conversations(agent).await.unwrap(), []);
}

pub async fn an_agent_takes_part_and_has_no_inbox(store: &dyn StoreAdmin) {
    let ([ann, ben], agent) = (users(["ann", "ben"]), helper());
    let id_1 = conversation_id(1);
    make(store, id_1, &[ann.clone(), agent.clone()]).await;
    let made = row(store, &agent, id_1).await;
    assert_eq!((made.last_message, made.last_activity), (None, START));
    send(store, id_1, 5, &ann).await;
    send(store, id_1, 7, &agent).await;
    let expected = InboxRow::of_agent(id_1, id(7).moment(), Some(id(7)));
    assert_eq!(row(store, &agent, id_1).await, expected);
    assert!(!expected.may_be_unread());
    assert_eq!(
        participants(store, id_1).await,
        [ann.clone(), agent.clone()]
    );
    assert_unlisted(store, &agent).await;
    // The others see its messages as anybody's.
    assert_eq!(inbox_ids(store, &ann).await, [id_1]);
    let count = unread(store, &ann, id_1, id(5).order_key(), 9).await;
    assert_eq!(count.first, Some(id(7)));

    govern(store, id_1, 20, &[joins(&ben, 20)]).await;
    govern(store, id_1, 30, &[leaves(&agent, 30)]).await;
    assert_eq!(try_row(store, &agent, id_1).await, None);
    assert_unlisted(store, &agent).await;
    govern(store, id_1, 40, &[joins(&agent, 40)]).await;
    let row = row(store, &agent, id_1).await;
    assert_eq!(row.marker, ReadMarker::up_to_newest(Some(id(40))));
    assert_unlisted(store, &agent).await;
    assert_sound(store).await;
}

pub async fn marks_and_flags_of_an_agent_change_nothing(store: &dyn StoreAdmin) {
    let ([ann], agent) = (users(["ann"]), helper());
    let id_1 = conversation_id(1);
    make(store, id_1, &[ann.clone(), agent.clone()]).await;
    send(store, id_1, 5, &ann).await;
    let before = row(store, &agent, id_1).await;
    let to = MarkTo {
        epoch: 9,
        up_to: id(5).order_key().before(),
        receipt: true,
        change: change(9),
    };
    mark(store, &agent, id_1, to).await;
    let delivered = store.mark_delivered(&agent, id_1, id(5).order_key());
    delivered.await.unwrap();
    let flags = FlagsChange {
        muted: Some(true),
        pinned: Some(true),
        level: Some(Some(NotificationLevel::All)),
        ..flags_change(id_1, change(10))
    };
    assert_eq!(store.set_flags(&agent, &flags).await.unwrap(), None);
    assert_eq!(row(store, &agent, id_1).await, before);
    let own = participant(store, id_1, &agent).await.unwrap();
    assert_eq!(own.read_up_to, OrderKey::MIN);
    assert_eq!(own.delivered_up_to, OrderKey::MIN);
    assert_eq!(store.notified_of_all(id_1, None, 9).await.unwrap(), []);
    let page = PageRequest::first(9);
    let receivers = store.receivers(id_1, id(5), &ann, &page).await.unwrap();
    assert_eq!(receivers.items, []);
    assert_unlisted(store, &agent).await;
    assert_sound(store).await;
}

async fn mentions(store: &dyn Store, user: &UserId) -> Unread {
    let query = UnreadQuery {
        conversation: conversation_id(1),
        after: OrderKey::MIN,
        up_to: None,
    };
    let ignored = IgnoredSenders::default();
    only(store.mentions(user, &[query], 9, &ignored).await.unwrap())
}

pub async fn mentions_of_an_agent_are_not_counted(store: &dyn StoreAdmin) {
    let ([ann, ben], agent) = (users(["ann", "ben"]), helper());
    let id_1 = conversation_id(1);
    make(store, id_1, &[ann.clone(), ben.clone(), agent.clone()]).await;
    let mut naming = text(id_1, id(5), &ann);
    naming.content = Some(Content {
        mentions: Mentions::new(vec![ben.clone(), agent.clone()], false),
        ..content("hello")
    });
    let sent = store.append_messages(id_1, &[new(naming)]).await;
    sent.unwrap();
    assert_eq!(mentions(store, &ben).await.first, Some(id(5)));
    assert_eq!(mentions(store, &agent).await, Unread::default());
    let stored = message(store, id_1, id(5)).await.unwrap();
    assert!(stored.mentions().unwrap().names(&agent));
    assert_sound(store).await;
}

pub async fn an_agent_is_listed_in_no_large_conversation(store: &dyn StoreAdmin) {
    let (people, agent) = (crowd(33), helper());
    // One begins large, and one grows.
    for (number, count) in [(1, 33), (2, 31)] {
        let mut all = people[..count].to_vec();
        all.push(agent.clone());
        make(store, conversation_id(number), &all).await;
        send(store, conversation_id(number), 5, &people[0]).await;
    }
    govern(store, conversation_id(2), 20, &[joins(&people[32], 20)]).await;
    for number in [1, 2] {
        let id_n = conversation_id(number);
        send(store, id_n, 30, &agent).await;
        let row = row(store, &agent, id_n).await;
        assert_eq!(row, InboxRow::of_agent(id_n, id(30).moment(), Some(id(30))));
    }
    assert_eq!(
        store.large_conversations(&people[0]).await.unwrap().len(),
        2
    );
    assert_unlisted(store, &agent).await;
    assert_sound(store).await;
}

pub async fn an_import_brings_an_agent_without_positions(store: &dyn StoreAdmin) {
    let ([ann], agent) = (users(["ann"]), helper());
    let id_1 = conversation_id(1);
    let positions = ImportPositions {
        read_up_to: Some(id(5)),
        delivered_up_to: Some(id(5)),
        flags: Flags {
            is_muted: true,
            level: Some(NotificationLevel::All),
            ..Flags::default()
        },
        ..ImportPositions::default()
    };
    let rows = [
        group_row(id_1, None),
        participant_row(id_1, &ann),
        participant_row_at(id_1, &agent, positions),
        message_row(text(id_1, id(5), &ann)),
        message_row(text(id_1, id(7), &agent)),
    ];
    store.import(&rows).await.unwrap();
    let expected = InboxRow::of_agent(id_1, id(7).moment(), Some(id(7)));
    assert_eq!(row(store, &agent, id_1).await, expected);
    assert_unlisted(store, &agent).await;
    let exported = store.all_participants(id_1, None, 9).await.unwrap();
    let of_agent = exported.iter().find(|(user, ..)| *user == agent).unwrap();
    assert_eq!(of_agent.2, ImportPositions::default());
    assert_eq!(store.notified_of_all(id_1, None, 9).await.unwrap(), []);
    assert_sound(store).await;
}
