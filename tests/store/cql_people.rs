//! Cost of membership changes on Cassandra, in statements: it grows with the affected users, never with the other participants.

use std::sync::Arc;

use wideroom::clock::ManualClock;
use wideroom::model::{
    ChangeKind, ConversationId, Direction, GroupName, Page, PageRequest, Participant, Revision,
    UserId,
};
use wideroom::store::cql::Cql;
use wideroom::store::{ImportPositions, ImportRow, Imported, Renaming, Store};

use super::ask::{assert_all, import, import_all};
use super::membership::{changing, joins, leaves};
use super::stage::keyspace;
use crate::support::words::{
    NOW, change, change_of, conversation_id, crowd, direct, group, group_row, id, message_row, new,
    new_salt_among_others, participant_row, system, text,
};

async fn open() -> Option<Cql> {
    let address = keyspace().await?;
    new_salt_among_others();
    Some(
        Cql::open(address, Arc::new(ManualClock::at(NOW)))
            .await
            .unwrap(),
    )
}

/// How many statements that took.
async fn cost<T>(store: &Cql, what: impl Future<Output = T>) -> (u64, T) {
    let before = store.statements_sent();
    let answer = what.await;
    (store.statements_sent() - before, answer)
}

#[tokio::test]
async fn questions_and_changes_cost_what_they_concern() {
    let Some(store) = open().await else { return };
    let people = crowd(60);
    let mut told = Vec::new();
    let (two, made) = cost(
        &store,
        store.create_conversation(&direct(&people[0], &people[1])),
    )
    .await;
    made.unwrap();
    told.push(("a direct conversation", two, 6));
    for (number, count, most) in [(1, 8, 12), (2, 50, 64)] {
        let (spent, made) = cost(
            &store,
            store.create_conversation(&group(conversation_id(number), &people[..count])),
        )
        .await;
        made.unwrap();
        told.push(("a group", spent, most));
    }
    let ids: Vec<_> = (1..=40).map(conversation_id).collect();
    let (profiles, found) = cost(&store, store.conversation_profiles(&ids)).await;
    assert_eq!(found.unwrap().len(), 40);
    told.push(("profiles of forty conversations", profiles, 3));
    let (participation, found) = cost(
        &store,
        store.participations(&people[0], &[conversation_id(2)]),
    )
    .await;
    assert!(found.unwrap()[0].is_some());
    told.push(("a participation, first time", participation, 2));
    let (participation, found) = cost(
        &store,
        store.participations(&people[0], &[conversation_id(1), conversation_id(2)]),
    )
    .await;
    assert!(found.unwrap().iter().all(Option::is_some));
    // The memberships together, and the conversation that was not read before.
    told.push(("two participations", participation, 2));
    let (participation, _) = cost(
        &store,
        store.participations(&people[0], &[conversation_id(1), conversation_id(2)]),
    )
    .await;
    told.push(("two participations again", participation, 1));
    let (counts, found) = cost(&store, store.participant_counts(&[conversation_id(2)])).await;
    assert_eq!(found.unwrap(), [50]);
    told.push(("a count", counts, 1));
    for (number, most) in [(1, 24), (2, 24)] {
        let joining = changing(
            conversation_id(number),
            10,
            Some(change(0)),
            &[joins(&people[55], 10)],
        );
        let (spent, kept) = cost(
            &store,
            store.change_membership(conversation_id(number), &joining),
        )
        .await;
        assert!(kept.unwrap().is_some());
        told.push(("a newcomer", spent, most));
        let version = store.membership_version(conversation_id(number)).await;
        let version = version.unwrap().unwrap();
        // Nobody else is read again.
        assert!(!version.keeps(&people[55], Some(change(0))));
        assert!(version.keeps(&people[1], Some(change(0))));
    }
    for (what, spent, most) in &told {
        assert!(spent <= most, "{what} took {spent} statements: {told:?}");
    }
}

#[tokio::test]
async fn an_import_takes_few_statements_a_row() {
    let Some(store) = open().await else { return };
    let people: Vec<UserId> = crowd(3);
    let mut rows = Vec::new();
    for _ in 0..40 {
        let conversation = ConversationId(uuid::Uuid::new_v4());
        rows.push(group_row(conversation, None));
        rows.extend(
            people
                .iter()
                .map(|user| participant_row(conversation, user)),
        );
        rows.extend((0..96).map(|n| message_row(text(conversation, id(n * 1_000), &people[0]))));
    }
    for piece in rows.chunks(1_000) {
        import_all(&store, piece).await;
    }
    let sent = store.statements_sent();
    assert!(sent < rows.len() as u64 / 2, "{sent} statements");
    // The same again finds everything there.
    for piece in rows.chunks(1_000) {
        assert_all(&import(&store, piece).await, &Imported::Unchanged);
    }
}

#[tokio::test]
async fn the_newest_event_is_that_of_any_server() {
    let (Some(store), Some(other)) = (open().await, open().await) else {
        return;
    };
    let people = crowd(2);
    let conversation = conversation_id(1);
    let newest = async || store.newest_events(&[conversation]).await.unwrap()[0];
    store
        .create_conversation(&group(conversation, &people))
        .await
        .unwrap();
    other
        .append_messages(conversation, &[new(text(conversation, id(5), &people[1]))])
        .await
        .unwrap();
    assert_eq!(newest().await, Some(id(5)));
    let delete = change_of(change(7), ChangeKind::MessageDeleted, id(5), &people[1]);
    other
        .revise_message(conversation, &Revision::Deletion, &delete)
        .await
        .unwrap();
    assert_eq!(newest().await, Some(change(7)));
}

#[tokio::test]
async fn a_cached_conversation_shows_each_change_of_another_server_at_once() {
    let (Some(store), Some(other)) = (open().await, open().await) else {
        return;
    };
    let people = crowd(34);
    let conversation = conversation_id(1);
    let shown = async || {
        let found = store.participations(&people[0], &[conversation]).await;
        let conversation = found.unwrap().remove(0).unwrap().conversation;
        let name = conversation
            .name
            .as_ref()
            .map(|name| name.as_str().to_owned());
        (name, conversation.is_large)
    };
    store
        .create_conversation(&group(conversation, &people[..32]))
        .await
        .unwrap();
    let (first, is_large) = shown().await;
    assert!(!is_large);
    let renaming = Renaming {
        name: GroupName::parse("Another name").unwrap(),
        message: Arc::new(system(conversation, id(5), &people[1])),
        change: change_of(id(4), ChangeKind::ConversationRenamed, id(5), &people[1]),
    };
    other
        .rename_conversation(conversation, &renaming)
        .await
        .unwrap();
    assert_ne!(first.as_deref(), Some("Another name"));
    assert_eq!(shown().await, (Some("Another name".to_owned()), false));
    let joining = changing(conversation, 10, Some(change(0)), &[joins(&people[33], 10)]);
    other
        .change_membership(conversation, &joining)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(shown().await, (Some("Another name".to_owned()), true));
}

#[tokio::test]
async fn a_page_does_not_step_over_the_same_former_participants_twice() {
    const FORMER: usize = 3_000;
    let (Some(store), Some(other)) = (open().await, open().await) else {
        return;
    };
    let conversation = conversation_id(1);
    let mut people = crowd(FORMER + 10);
    people.sort_unstable();
    let is_former = |number: usize| (4..4 + FORMER).contains(&number);
    let row = |(number, user): (usize, &UserId)| {
        if !is_former(number) {
            return participant_row(conversation, user);
        }
        ImportRow::Participant {
            conversation,
            user: user.clone(),
            membership: leaves(user, 1).membership,
            positions: ImportPositions::default(),
            ban: None,
        }
    };
    let rows: Vec<_> = [group_row(conversation, None)]
        .into_iter()
        .chain(people.iter().enumerate().map(row))
        .collect();
    for piece in rows.chunks(1_000) {
        import_all(&store, piece).await;
    }
    let mut expected: Vec<_> = people
        .iter()
        .enumerate()
        .filter(|(number, _)| !is_former(*number))
        .map(|(_, user)| user.clone())
        .collect();
    let names = |page: Page<Participant>| -> Vec<_> {
        page.items.into_iter().map(|one| one.user).collect()
    };
    let page = async |request: PageRequest<UserId>| {
        let (spent, found) = cost(&store, store.participants(conversation, &request)).await;
        (spent, names(found.unwrap()))
    };
    let (first, found) = page(PageRequest::first(8)).await;
    assert_eq!(found, expected[..8]);
    for request in [PageRequest::first(8), PageRequest::last(8)] {
        let is_first = request.direction == Direction::Forward;
        let (again, found) = page(request).await;
        println!("a page past {FORMER} former participants: {first} statements, then {again}");
        let wanted = if is_first {
            &expected[..8]
        } else {
            &expected[2..]
        };
        assert_eq!(found, wanted);
        assert!(again <= 2, "{again} statements");
    }
    // A former participant comes back, on another server: the page shows it at once.
    let seen = store.membership_snapshot(conversation, &[]).await.unwrap();
    let joining = changing(
        conversation,
        10,
        seen.unwrap().version,
        &[joins(&people[1_500], 10)],
    );
    other
        .change_membership(conversation, &joining)
        .await
        .unwrap()
        .unwrap();
    expected.insert(4, people[1_500].clone());
    let (_, found) = page(PageRequest::first(20)).await;
    assert_eq!(found, expected);
}
