//! Reactions: registers that are on or off, how they are counted, and what tells of them.

use std::sync::Arc;

use wideroom::model::{
    ChangeKind, ConversationId, Emoji, Message, MessageId, Reaction, Revision, UserId,
};
use wideroom::store::Store;

use super::ask::{
    changes, inbox_ids, make, message, message_count, newest_event, only, revise, row, send,
};
use crate::support::words::{change, change_of, content, conversation_id, crowd, id, user, users};

fn emoji(text: &str) -> Emoji {
    Emoji::parse(text).unwrap()
}

/// To the message of the first microsecond in the first conversation.
async fn react(
    store: &dyn Store,
    micros: i64,
    by: &UserId,
    text: &str,
    is_on: bool,
) -> Option<Arc<Message>> {
    react_to(store, conversation_id(1), id(1), micros, by, text, is_on).await
}

async fn react_to(
    store: &dyn Store,
    conversation: ConversationId,
    message: MessageId,
    micros: i64,
    by: &UserId,
    text: &str,
    is_on: bool,
) -> Option<Arc<Message>> {
    let change = change_of(change(micros), ChangeKind::ReactionsChanged, message, by);
    store
        .react(conversation, &emoji(text), is_on, &change)
        .await
        .unwrap()
}

/// The reactions to the first message that are on.
async fn read(store: &dyn Store, viewer: &UserId) -> Vec<Reaction> {
    let asked = [(conversation_id(1), id(1))];
    let mut all = only(store.reactions(viewer, &asked).await.unwrap());
    all.retain(|reaction| reaction.count > 0);
    all
}

fn reaction(text: &str, users: &[&UserId], has_viewer: bool) -> Reaction {
    let count = u32::try_from(users.len()).unwrap();
    Reaction {
        emoji: emoji(text),
        count,
        is_capped: false,
        has_viewer,
        users: users.iter().copied().cloned().collect(),
    }
}

async fn said(store: &dyn Store, people: &[UserId]) {
    make(store, conversation_id(1), people).await;
    send(store, conversation_id(1), 1, &people[0]).await;
}

pub async fn a_reaction_is_on_until_it_is_off(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    said(store, &[ann.clone(), ben.clone()]).await;
    assert_eq!(read(store, &ben).await, []);
    react(store, 2, &ben, "👍", true).await.unwrap();
    assert_eq!(read(store, &ben).await, [reaction("👍", &[&ben], true)]);
    assert_eq!(read(store, &ann).await, [reaction("👍", &[&ben], false)]);
    react(store, 3, &ann, "👍", true).await.unwrap();
    react(store, 4, &ben, "👍", false).await.unwrap();
    assert_eq!(read(store, &ben).await, [reaction("👍", &[&ann], false)]);
    react(store, 5, &ann, "👍", false).await.unwrap();
    assert_eq!(read(store, &ann).await, []);
    react(store, 6, &ann, "👍", true).await.unwrap();
    assert_eq!(read(store, &ann).await, [reaction("👍", &[&ann], true)]);
}

pub async fn reactions_come_by_emoji_and_their_users_by_name(store: &dyn Store) {
    let [ann, anna, ben] = users(["ann", "anna", "ben"]);
    said(store, &[ann.clone(), anna.clone(), ben.clone()]).await;
    for (micros, (by, text)) in (2..).zip([
        (&ben, "🚀"),
        (&anna, "❤"),
        (&ben, "👍🏽"),
        (&ann, "🚀"),
        (&ben, "👍"),
        (&anna, "🚀"),
    ]) {
        react(store, micros, by, text, true).await.unwrap();
    }
    let mut expected = vec![
        reaction("🚀", &[&ann, &anna, &ben], true),
        reaction("👍", &[&ben], false),
        reaction("👍🏽", &[&ben], false),
        reaction("❤", &[&anna], false),
    ];
    expected.sort_by(|one, other| one.emoji.cmp(&other.emoji));
    assert_eq!(read(store, &ann).await, expected);
}

pub async fn a_message_says_whether_there_are_any(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    said(store, &[ann.clone(), ben.clone()]).await;
    let group = conversation_id(1);
    send(store, group, 2, &ann).await;
    let marks = async || {
        let messages = store
            .messages(&[(group, id(1)), (group, id(2))])
            .await
            .unwrap();
        messages
            .into_iter()
            .map(|message| message.unwrap().has_reactions)
            .collect::<Vec<_>>()
    };
    assert_eq!(marks().await, [false, false]);
    let before = message(store, group, id(1)).await.unwrap();
    let reacted = react(store, 3, &ben, "👍", true).await.unwrap();
    assert_eq!(
        *reacted,
        Message {
            has_reactions: true,
            ..before.as_ref().clone()
        },
        "nothing else of it is another"
    );
    assert_eq!(marks().await, [true, false]);
    react(store, 4, &ben, "👍", false).await.unwrap();
    assert_eq!(
        marks().await,
        [true, false],
        "what was once there is looked for again"
    );
    let better = Revision::edit(content("better"));
    revise(store, group, id(1), 5, better, &ann).await;
    assert_eq!(marks().await, [true, false], "an edit does not unsay it");
}

pub async fn a_reaction_is_logged_and_shows_in_no_inbox(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    said(store, &[ann.clone(), ben.clone()]).await;
    let [first, second] = [1, 2].map(conversation_id);
    make(store, second, &[ann.clone(), ben.clone()]).await;
    send(store, second, 2, &ann).await;
    let before = (inbox_ids(store, &ann).await, row(store, &ann, first).await);
    react(store, 3, &ben, "👍", true).await.unwrap();
    react(store, 4, &ben, "👍", false).await.unwrap();
    let entry = |micros| change_of(change(micros), ChangeKind::ReactionsChanged, id(1), &ben);
    assert_eq!(changes(store, first).await, [entry(3), entry(4)]);
    assert_eq!(newest_event(store, first).await, Some(change(4)));
    assert_eq!(
        (inbox_ids(store, &ann).await, row(store, &ann, first).await),
        before
    );
    for who in [&ann, &ben] {
        assert_eq!(
            store
                .inbox_changes(who, change(2).order_key(), 9)
                .await
                .unwrap(),
            Some(Vec::new())
        );
    }
    assert_eq!(message_count(store, first).await, 1);
}

pub async fn a_deleted_or_missing_message_takes_no_reaction(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    said(store, &[ann.clone(), ben.clone()]).await;
    let group = conversation_id(1);
    assert!(
        react_to(store, group, id(9), 2, &ben, "👍", true)
            .await
            .is_none()
    );
    react(store, 3, &ben, "👍", true).await.unwrap();
    let deleted = revise(store, group, id(1), 4, Revision::Deletion, &ann).await;
    let reacted = react(store, 5, &ann, "🚀", true).await.unwrap();
    assert_eq!(reacted, deleted.unwrap().message);
    assert_eq!(
        store
            .changes(group, change(4).order_key(), 9)
            .await
            .unwrap(),
        []
    );
}

pub async fn the_same_reaction_again_changes_nothing(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    said(store, &[ann.clone(), ben.clone()]).await;
    let first = react(store, 2, &ben, "👍", true).await;
    assert_eq!(react(store, 2, &ben, "👍", true).await, first);
    assert_eq!(read(store, &ben).await, [reaction("👍", &[&ben], true)]);
    assert_eq!(changes(store, conversation_id(1)).await.len(), 1);
}

pub async fn reactions_come_in_the_order_of_their_messages(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    for number in [1, 2] {
        make(store, conversation_id(number), &[ann.clone(), ben.clone()]).await;
        for micros in 1..=3 {
            send(store, conversation_id(number), micros, &ann).await;
        }
    }
    let [first, second] = [1, 2].map(conversation_id);
    react_to(store, first, id(2), 4, &ben, "👍", true)
        .await
        .unwrap();
    react_to(store, second, id(2), 4, &ben, "🚀", true)
        .await
        .unwrap();
    react_to(store, second, id(3), 5, &ann, "❤", true)
        .await
        .unwrap();
    let asked = [
        (second, id(3)),
        (first, id(1)),
        (first, id(2)),
        (conversation_id(9), id(2)),
        (second, id(2)),
        (first, id(2)),
    ];
    let answers = store.reactions(&ann, &asked).await.unwrap();
    let thumb = || vec![reaction("👍", &[&ben], false)];
    let expected = [
        vec![reaction("❤", &[&ann], true)],
        vec![],
        thumb(),
        vec![],
        vec![reaction("🚀", &[&ben], false)],
        thumb(),
    ];
    assert_eq!(answers, expected);
}

pub async fn more_users_than_are_counted_make_it_capped(store: &dyn Store) {
    let ann = user("ann");
    said(store, std::slice::from_ref(&ann)).await;
    let mut people = crowd(1_001);
    people.sort();
    for (micros, by) in (2..).zip(&people) {
        react(store, micros, by, "👍", true).await.unwrap();
    }
    react(store, 2_000, &ann, "🚀", true).await.unwrap();
    for (viewer, has_viewer) in [(&ann, false), (&people[0], true), (&people[1_000], true)] {
        let read = read(store, viewer).await;
        let thumb = read.iter().find(|one| one.emoji == emoji("👍")).unwrap();
        assert_eq!(
            (thumb.count, thumb.is_capped, thumb.has_viewer),
            (Reaction::COUNT_MAX, true, has_viewer)
        );
        assert_eq!(thumb.users, people[..Reaction::USERS_MAX]);
        assert_eq!(
            read.iter().find(|one| one.emoji == emoji("🚀")),
            Some(&reaction("🚀", &[&ann], *viewer == ann))
        );
    }
}

pub async fn kinds_that_a_user_took_back_are_counted_up_to_a_limit(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben.clone()]).await;
    send(store, group, 1, &ann).await;
    let count = async |user: &UserId, limit| {
        let message = (group, id(1));
        let found = store.ended_reaction_count(user, message, limit).await;
        found.unwrap()
    };
    let mut micros = 10..;
    for (text, is_on) in [
        ("👍", true),
        ("👍", false),
        ("👍", true),
        ("👍", false),
        ("❤", true),
    ] {
        react(store, micros.next().unwrap(), &ann, text, is_on).await;
    }
    assert_eq!(count(&ann, 9).await, 1, "a kind counts once");
    react(store, micros.next().unwrap(), &ben, "❤", true).await;
    assert_eq!(count(&ben, 9).await, 0);
    react(store, micros.next().unwrap(), &ann, "❤", false).await;
    assert_eq!((count(&ann, 9).await, count(&ann, 1).await), (2, 1));
    assert_eq!(count(&ben, 9).await, 0, "those of others do not count");
}
