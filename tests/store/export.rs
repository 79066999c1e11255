//! Reads of an export: every row exactly once, in batches of any size, and complete for an identical import.

use std::collections::BTreeMap;

use wideroom::model::{
    ChangeKind, Content, ConversationId, Cut, Emoji, Flags, InboxRow, Membership, MembershipState,
    Message, MessageId, OrderKey, PageRequest, Profile, Revision, Role, UserId,
};
use wideroom::store::{Archive, FlagsChange, ImportPositions, ImportRow, Imported, StoreAdmin};

use super::ask::{MarkTo, append, assert_all, import, import_all, inbox, make, mark, only, send};
use super::stage::Stage;
use crate::support::words::{
    START, change, change_of, content, conversation_id, crowd, deleted, flags_change, group_row,
    id, key, message_row, new, participant_row, salted, system, text, user, users,
};

/// All users of this case, walked so many at a time.
async fn all_users(store: &dyn StoreAdmin, limit: usize) -> Vec<(UserId, Profile)> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = store.all_users(after.as_ref(), limit).await.unwrap();
        let is_last = page.len() < limit;
        after = page.last().map(|(user, _)| user.clone());
        all.extend(page);
        if is_last {
            all.retain(|(user, _): &(UserId, _)| user.as_str().starts_with(&salted("")));
            return all;
        }
    }
}

/// Export rows of the conversations in `of`, in the order of the export, read in batches of `limit`.
async fn all_conversations(
    store: &dyn StoreAdmin,
    of: &[ConversationId],
    limit: usize,
) -> Vec<ImportRow> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = store.all_conversations(after, limit).await.unwrap();
        let is_last = page.len() < limit;
        after = page.last().map(|(conversation, _)| conversation.id);
        let own = page
            .into_iter()
            .filter(|(conversation, _)| of.contains(&conversation.id));
        for (conversation, last_activity) in own {
            let profiles = store.conversation_profiles(&[conversation.id]).await;
            all.push(ImportRow::Conversation {
                conversation,
                last_activity,
                profile: profiles.unwrap().remove(0),
            });
        }
        if is_last {
            return all;
        }
    }
}

async fn all_participants(
    store: &dyn StoreAdmin,
    id: ConversationId,
    limit: usize,
) -> Vec<(UserId, Membership, ImportPositions)> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = store
            .all_participants(id, after.as_ref(), limit)
            .await
            .unwrap();
        let is_last = page.len() < limit;
        after = page.last().map(|(user, ..)| user.clone());
        all.extend(page);
        if is_last {
            return all;
        }
    }
}

async fn all_reactions(
    store: &dyn StoreAdmin,
    message: MessageId,
    limit: usize,
) -> Vec<(Emoji, UserId)> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = store
            .all_reactions(conversation_id(1), message, after.as_ref(), limit)
            .await
            .unwrap();
        let is_last = page.len() < limit;
        after = page.last().cloned();
        all.extend(page);
        if is_last {
            return all;
        }
    }
}

/// Everything of some conversations and of all users of the case, by what it is.
async fn everything(store: &dyn StoreAdmin, of: &[ConversationId]) -> BTreeMap<String, ImportRow> {
    let mut rows: Vec<_> = all_users(store, 100)
        .await
        .into_iter()
        .map(|(user, profile)| ImportRow::User {
            user,
            profile,
            restriction: Default::default(),
        })
        .collect();
    rows.extend(all_conversations(store, of, 100).await);
    for conversation in of.iter().copied() {
        let people = all_participants(store, conversation, 100).await;
        rows.extend(people.into_iter().map(|(user, membership, positions)| {
            ImportRow::Participant {
                conversation,
                user,
                membership,
                positions,
                ban: None,
            }
        }));
        for message in store
            .history(conversation, &Cut::default(), &PageRequest::last(100))
            .await
            .unwrap()
            .items
        {
            let of_message = store
                .all_reactions(conversation, message.id, None, 100)
                .await
                .unwrap();
            let at = message.id;
            if let Some(pin) = message.current_pin() {
                rows.push(ImportRow::Pin {
                    conversation,
                    message: at,
                    by: pin.by.clone(),
                    at: pin.change.moment(),
                });
            }
            // An export has no more of a pin than its line.
            let message = Message {
                pin: None,
                ..Message::clone(&message)
            };
            rows.push(ImportRow::Message(message.into()));
            rows.extend(
                of_message
                    .into_iter()
                    .map(|(emoji, user)| ImportRow::Reaction {
                        conversation,
                        message: at,
                        emoji,
                        user,
                    }),
            );
        }
    }
    let key = |row: &ImportRow| match row {
        ImportRow::User { user, .. } => format!("1 {user}"),
        ImportRow::EveryoneRevoked(moment) => format!("0 {moment}"),
        ImportRow::Block { user, blocked, .. } => format!("1 {user} {blocked}"),
        ImportRow::Report(report) => format!("9 {}", report.id),
        ImportRow::Conversation { conversation, .. } => format!("2 {}", conversation.id),
        ImportRow::Participant {
            conversation, user, ..
        } => format!("3 {conversation} {user}"),
        ImportRow::Message(message) | ImportRow::ChangedMessage(message, _) => {
            format!("4 {} {}", message.conversation, message.id)
        }
        ImportRow::Pin {
            conversation,
            message,
            ..
        } => format!("6 {conversation} {message}"),
        ImportRow::Reaction {
            conversation,
            message,
            emoji,
            user,
        } => format!("5 {conversation} {message} {emoji} {user}"),
    };
    rows.into_iter().map(|row| (key(&row), row)).collect()
}

pub async fn everything_is_read_once_whatever_the_pieces(store: &dyn StoreAdmin) {
    let people = crowd(12);
    let mut rows: Vec<_> = people
        .iter()
        .map(|user| ImportRow::User {
            user: user.clone(),
            profile: Profile::default(),
            restriction: Default::default(),
        })
        .collect();
    let conversations: Vec<_> = (1..=12).map(conversation_id).collect();
    rows.extend(
        conversations
            .iter()
            .map(|conversation| group_row(*conversation, None)),
    );
    rows.extend(
        people
            .iter()
            .map(|user| participant_row(conversation_id(1), user)),
    );
    import_all(store, &rows).await;
    for limit in [1, 5, 12, 500] {
        // A shared database may hold thousands of others' rows, which are walked too.
        if limit > 1
            || all_users(store, 500).await.len() == store.all_users(None, 500).await.unwrap().len()
        {
            let mut found: Vec<_> = all_users(store, limit)
                .await
                .into_iter()
                .map(|(user, _)| user)
                .collect();
            found.sort();
            assert_eq!(found, people, "{limit} at a time");
            let mut found: Vec<_> = all_conversations(store, &conversations, limit)
                .await
                .iter()
                .filter_map(ImportRow::conversation)
                .collect();
            found.sort();
            assert_eq!(found, conversations, "{limit} at a time");
        }
        let found: Vec<_> = all_participants(store, conversation_id(1), limit)
            .await
            .into_iter()
            .map(|(user, ..)| user)
            .collect();
        assert_eq!(found, people, "{limit} at a time, by name");
    }
    assert_eq!(
        all_participants(store, conversation_id(2), 5).await,
        [],
        "of a group without people"
    );
}

/// A row as a fault, or an earlier version, may have left it.
pub async fn damaged_messages_are_read_with_the_others(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben.clone()]).await;
    let with = |micros: i64, metadata: &str| {
        let metadata = serde_json::from_value(serde_json::json!(metadata)).unwrap();
        let content = Content {
            metadata: Some(metadata),
            ..content("kept")
        };
        new(Message {
            content: Some(content),
            ..text(group, id(micros), &ann)
        })
    };
    let texts = [
        (2, "not json", false),
        (3, r#"{"z":1.0,"a":[1e2,"\u00e9"]}"#, true),
        (5, r#"{"$serde_json::private::RawValue":"not json"}"#, false),
        (6, "1}]},\"body\":\"forged\"", false),
    ];
    for (micros, text, _) in texts {
        append(store, group, &[with(micros, text)]).await;
    }
    for micros in [1, 4, 7] {
        send(store, group, micros, &ben).await;
    }
    for limit in [1, 2, 7, 100] {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = store.all_messages(group, after, limit).await.unwrap();
            let is_last = page.len() < limit;
            after = page.last().map(|stored| stored.id).or(after);
            all.extend(page);
            if is_last {
                break;
            }
        }
        assert_eq!(
            all.iter().map(|stored| stored.id).collect::<Vec<_>>(),
            (1..=7).map(id).collect::<Vec<_>>(),
            "{limit} at a time"
        );
        for (stored, micros) in all.iter().zip(1..) {
            let is_sound = texts
                .iter()
                .all(|(at, _, is_sound)| *at != micros || *is_sound);
            assert_eq!(stored.message.is_ok(), is_sound, "{micros}: {stored:?}");
        }
        let kept = all[2]
            .message
            .as_ref()
            .unwrap()
            .content
            .as_ref()
            .unwrap()
            .metadata
            .as_ref()
            .unwrap();
        assert_eq!(kept.as_str(), texts[1].1, "as it was sent");
    }
    // Pages of history hold them all.
    assert_eq!(
        store
            .history(group, &Cut::default(), &PageRequest::last(100))
            .await
            .unwrap()
            .items
            .len(),
        7
    );
    assert_eq!(
        store
            .all_messages(conversation_id(9), None, 5)
            .await
            .unwrap()
            .len(),
        0
    );
}

fn all_flags(micros: i64, conversation: ConversationId) -> FlagsChange {
    let archive = Some(Archive::Begin(START.plus_micros(70)));
    FlagsChange {
        muted: Some(true),
        pinned: Some(true),
        archive,
        ..flags_change(conversation, change(micros))
    }
}

pub async fn participants_are_read_as_they_were_given(store: &dyn StoreAdmin) {
    let [ann, ben, cat, dan] = users(["ann", "ben", "cat", "dan"]);
    let [first, second] = [1, 2].map(conversation_id);
    make(
        store,
        first,
        &[ann.clone(), ben.clone(), cat.clone(), dan.clone()],
    )
    .await;
    for micros in 1..=6 {
        send(store, first, micros, &dan).await;
    }
    let up_to = |micros: i64| id(micros).order_key();
    // Ann has read, ben marked as unread again what he had read, cat wrote herself and read nothing, dan wrote too.
    mark(store, &ann, first, MarkTo::read(4, change(10))).await;
    mark(store, &ben, first, MarkTo::read(5, change(11))).await;
    mark(
        store,
        &ben,
        first,
        MarkTo::unread(7, up_to(3).before(), change(12)),
    )
    .await;
    send(store, first, 13, &cat).await;
    store.mark_delivered(&ann, first, up_to(6)).await.unwrap();
    store.set_flags(&ann, &all_flags(14, first)).await.unwrap();
    let positions = |read: Option<i64>, unread: Option<MessageId>| ImportPositions {
        read_up_to: read.map(id),
        unread_from: unread,
        ..ImportPositions::default()
    };
    let behind = |micros: i64| Some(MessageId::first_after(up_to(micros)));
    let flags = Flags {
        is_muted: true,
        is_pinned: true,
        archived_at: Some(START.plus_micros(70)),
        level: None,
    };
    let of_ann = ImportPositions {
        delivered_up_to: Some(id(6)),
        flags,
        ..positions(Some(4), None)
    };
    let member = Membership::joined(Role::Member);
    let expected = [
        (ann.clone(), Membership::joined(Role::Owner), of_ann),
        (ben, member, positions(Some(5), Some(id(3)))),
        (cat, member, positions(None, behind(13))),
        (dan, member, positions(None, behind(6))),
    ];
    assert_eq!(all_participants(store, first, 9).await, expected);
    // The export does not invent an OWNER. It includes participants who have left.
    let gone = Membership {
        state: MembershipState::Left,
        since: Some(START),
        ..Membership::joined(Role::Admin)
    };
    let left = ImportRow::Participant {
        conversation: second,
        user: ann.clone(),
        membership: gone,
        positions: of_ann,
        ban: None,
    };
    store
        .import(&[
            group_row(second, None),
            left,
            participant_row(second, &user("eve")),
        ])
        .await
        .unwrap();
    assert_eq!(
        all_participants(store, second, 9).await,
        [
            (ann, gone, of_ann),
            (user("eve"), member, ImportPositions::default())
        ]
    );
}

/// A bit of everything, sent and changed as people do it.
async fn lived_in(store: &dyn StoreAdmin, people: &[UserId]) {
    let [ann, ben, cat] = &people[..3] else {
        panic!("three people at least")
    };
    let [first, second, third] = [1, 2, 3].map(conversation_id);
    make(store, first, &people[..3]).await;
    make(store, second, people).await;
    let keyed = Message {
        client_key: Some(key("k")),
        reply_to: Some(id(1)),
        ..text(first, id(3), ben)
    };
    for message in [
        text(first, id(1), ann),
        system(first, id(2), ann),
        keyed,
        text(second, id(4), ann),
        text(first, id(5), cat),
    ] {
        append(store, message.conversation, &[new(message)]).await;
    }
    let changed =
        |micros, kind, message, user: &UserId| change_of(change(micros), kind, id(message), user);
    let edited = wideroom::model::Content {
        edited_at: Some(START.plus_micros(20)),
        ..content("better")
    };
    let edit = changed(20, ChangeKind::MessageEdited, 1, ann);
    store
        .revise_message(first, &Revision::edit(edited), &edit)
        .await
        .unwrap()
        .unwrap();
    let deletion = changed(21, ChangeKind::MessageDeleted, 5, cat);
    store
        .revise_message(first, &Revision::Deletion, &deletion)
        .await
        .unwrap()
        .unwrap();
    for (micros, by, emoji, is_on) in [
        (22, ben, "👍", true),
        (23, cat, "👍", true),
        (24, cat, "🚀", true),
        (25, cat, "👍", false),
    ] {
        let react = changed(micros, ChangeKind::ReactionsChanged, 1, by);
        store
            .react(first, &Emoji::parse(emoji).unwrap(), is_on, &react)
            .await
            .unwrap();
    }
    for (micros, message, is_on) in [(27, 1, true), (28, 3, true), (29, 3, false)] {
        let pin = changed(micros, ChangeKind::PinsChanged, message, ben);
        let pinned = store.pin_message(first, is_on, &pin).await;
        pinned.unwrap().unwrap();
    }
    mark(store, ann, first, MarkTo::read(3, change(26))).await;
    mark(
        store,
        ben,
        second,
        MarkTo::unread(9, OrderKey::MIN, change(27)),
    )
    .await;
    store.set_flags(cat, &all_flags(28, first)).await.unwrap();
    store.mark_seen(ann, START.plus_micros(29)).await.unwrap();
    let given = START.plus_micros(9_000);
    let rows = [
        group_row(third, Some(given)),
        participant_row(third, ben),
        message_row(deleted(third, id(30), ben)),
    ];
    store.import(&rows).await.unwrap();
}

pub async fn an_export_of_one_store_imports_into_an_equal_one(store: &dyn StoreAdmin) {
    let people = crowd(35);
    lived_in(store, &people).await;
    let conversations = [1, 2, 3].map(conversation_id);
    let read = everything(store, &conversations).await;
    let rows: Vec<_> = read.values().cloned().collect();
    let other = Stage::oracle();
    import_all(other.store(), &rows).await;
    let text = |rows: &BTreeMap<String, ImportRow>| format!("{rows:#?}");
    // Whether a conversation is large follows from its people, when these are imported.
    let read_again = everything(other.store(), &conversations).await;
    assert_eq!(text(&read_again), text(&read));
    for user in &people[..4] {
        let (one, another) = (inbox(store, user).await, inbox(other.store(), user).await);
        assert_eq!(one.len(), another.len());
        let shown = |row: &InboxRow| {
            (
                row.conversation,
                row.last_activity,
                row.last_message,
                row.flags,
                MessageId::first_after(row.read_up_to()),
            )
        };
        assert_eq!(
            one.iter().map(shown).collect::<Vec<_>>(),
            another.iter().map(shown).collect::<Vec<_>>()
        );
    }
    let keys = [(people[1].clone(), key("k"))];
    let group = conversation_id(1);
    assert_eq!(
        store.earlier_sends(group, &keys).await.unwrap(),
        other.store().earlier_sends(group, &keys).await.unwrap()
    );
    assert!(only(store.earlier_sends(group, &keys).await.unwrap()).is_some());
    assert_all(&import(store, &rows).await, &Imported::Unchanged);
}

pub async fn reactions_that_are_on_are_read_in_pieces(store: &dyn StoreAdmin) {
    let people = crowd(30);
    let group = conversation_id(1);
    make(store, group, &people).await;
    send(store, group, 1, &people[0]).await;
    assert_eq!(all_reactions(store, id(1), 4).await, []);
    let emoji = ["👍", "🚀"].map(|text| Emoji::parse(text).unwrap());
    let mut expected = Vec::new();
    for (n, user) in people.iter().enumerate() {
        for (position, emoji) in emoji.iter().enumerate() {
            let is_on = n % 3 != position;
            let micros = 10 + (n * 2 + position) as i64;
            let react = change_of(change(micros), ChangeKind::ReactionsChanged, id(1), user);
            store.react(group, emoji, is_on, &react).await.unwrap();
            if is_on {
                expected.push((emoji.clone(), user.clone()));
            }
        }
    }
    expected.sort();
    for limit in [1, 7, 1_000] {
        assert_eq!(
            all_reactions(store, id(1), limit).await,
            expected,
            "{limit} at a time"
        );
    }
}
