//! Rows that have ended, and the lists that pass them over: as many rows are read after many ended ones as after few.

use std::sync::Arc;

use async_graphql::Variables;
use serde_json::{Value, json};
use wideroom::bus::Bus;
use wideroom::chat::{Bounds, Chat, IndexUpkeep, RateBounds};
use wideroom::clock::{Clock, IdGenerator, SystemClock};
use wideroom::graphql::{Api, DocumentBounds, OperationExecutor as _};
use wideroom::model::{
    Ban, Change, ChangeKind, ConversationId, Emoji, Membership, MembershipState, PageRequest, Role,
    UserId,
};
use wideroom::store::embedded::{Embedded, Options};
use wideroom::store::{
    ImportPositions, ImportRow, Imported, MembershipTransition, Store, StoreAdmin, TransitionKind,
};

use super::ask::{make, send_all};
use super::membership::changing;
use super::pin::{pin, pins_of};
use super::stage::Stage;
use crate::support::words::{
    START, change, conversation_id, crowd, group_row, id, message_row, new_salt, participant_row,
    text, user, users,
};

/// Numbers of ended rows. Each costs a store on disk a write or two.
const FEW: usize = 20;
const MANY: usize = 120;
/// Rows that a list may read beside those that it shows: bounds, heads, the first row of a run.
const BESIDE: u64 = 12;

/// The least that reading takes: background work reads rows too.
async fn rows_of(stage: &Stage, read: impl AsyncFn()) -> u64 {
    let mut least = u64::MAX;
    for _ in 0..3 {
        let before = stage.rows_read();
        read().await;
        least = least.min(stage.rows_read() - before);
    }
    least
}

pub async fn ended_pins_cost_a_list_nothing(stage: &Stage) {
    let store = stage.store();
    let [ann, ben] = users(["ann", "ben"]);
    make(store, conversation_id(1), &[ann.clone(), ben.clone()]).await;
    send_all(store, conversation_id(1), 1..MANY as i64 + 1, &ann).await;
    pin(store, 900, &ben, id(1), true).await.unwrap();
    let mut spent = Vec::new();
    for ended in [1..FEW as i64, FEW as i64..MANY as i64] {
        for number in ended {
            pin(store, 1_000 + 2 * number, &ben, id(number + 1), true).await;
            pin(store, 1_001 + 2 * number, &ben, id(number + 1), false).await;
        }
        let list = async || assert_eq!(pins_of(store, 1).await.len(), 1);
        spent.push(rows_of(stage, list).await);
    }
    assert_eq!(spent[0], spent[1], "{spent:?}");
    assert!(spent[1] <= 1, "{spent:?}");
}

pub async fn reactions_that_were_taken_back_cost_a_page_nothing(stage: &Stage) {
    let store = stage.store();
    let people = crowd(MANY + 1);
    make(store, conversation_id(1), &people[..2]).await;
    send_all(store, conversation_id(1), 1..3, &people[0]).await;
    let emoji = Emoji::parse("👍").unwrap();
    let react = async |micros: i64, user: &UserId, is_on: bool| {
        let change = Change {
            id: change(micros),
            kind: ChangeKind::ReactionsChanged,
            message: id(1),
            user: user.clone(),
        };
        let reacted = store.react(conversation_id(1), &emoji, is_on, &change);
        reacted.await.unwrap().unwrap();
    };
    react(900, &people[0], true).await;
    let mut spent = Vec::new();
    for ended in [1..FEW, FEW..MANY] {
        for number in ended {
            let micros = 1_000 + 2 * number as i64;
            react(micros, &people[number], true).await;
            react(micros + 1, &people[number], false).await;
        }
        let list = async || {
            let asked = [(conversation_id(1), id(1))];
            let found = store.reactions(&people[0], &asked).await.unwrap();
            assert_eq!(found[0].iter().map(|one| one.count).sum::<u32>(), 1);
        };
        spent.push(rows_of(stage, list).await);
    }
    assert_eq!(spent[0], spent[1], "{spent:?}");
}

/// A participant as an import brings it.
fn row_of(
    on: ConversationId,
    user: &UserId,
    membership: Membership,
    ban: Option<Ban>,
) -> ImportRow {
    ImportRow::Participant {
        conversation: on,
        user: user.clone(),
        membership,
        positions: ImportPositions::default(),
        ban,
    }
}

async fn import(store: &dyn StoreAdmin, rows: &[ImportRow]) {
    for piece in rows.chunks(1_000) {
        let fates = store.import(piece).await.unwrap();
        assert!(fates.iter().all(|fate| *fate == Imported::Added));
    }
}

/// A page that meets many of them remembers where they lie. A change of the membership forgets it.
pub async fn participants_who_left_are_passed_over_once(stage: &Stage) {
    let (store, on) = (stage.store(), conversation_id(1));
    let present = [user("ann"), user("zoe")];
    let former = crowd(999);
    let left = Membership {
        state: MembershipState::Left,
        ..Membership::joined(Role::Member)
    };
    let mut rows = vec![group_row(on, None)];
    rows.extend(present.iter().map(|user| participant_row(on, user)));
    rows.extend(former.iter().map(|user| row_of(on, user, left, None)));
    import(store, &rows).await;
    let read = async |request: &PageRequest<UserId>| {
        let page = store.participants(on, request).await.unwrap();
        page.items
            .into_iter()
            .map(|one| one.user)
            .collect::<Vec<_>>()
    };
    for request in [PageRequest::first(5), PageRequest::last(5)] {
        let page = async || assert_eq!(read(&request).await, present);
        page().await;
        let spent = rows_of(stage, page).await;
        assert!(spent <= BESIDE, "{spent} rows");
    }
    // Another one joins in their midst.
    let seen = store.membership_version(on).await.unwrap().unwrap().version;
    let joins = MembershipTransition {
        user: user("crowd500x"),
        membership: Membership {
            since: Some(START),
            ..Membership::joined(Role::Member)
        },
        kind: TransitionKind::Joins,
    };
    let change = changing(on, 500, seen, &[joins]);
    store.change_membership(on, &change).await.unwrap().unwrap();
    let all = [present[0].clone(), user("crowd500x"), present[1].clone()];
    for request in [PageRequest::first(5), PageRequest::last(5)] {
        let page = async || {
            let mut found = read(&request).await;
            let mut expected = all.to_vec();
            found.sort();
            expected.sort();
            assert_eq!(found, expected);
        };
        page().await;
        let spent = rows_of(stage, page).await;
        assert!(spent <= 5 * BESIDE, "{spent} rows");
    }
}

/// On a cluster the hint of such a conversation stays in the index of the inbox.
#[tokio::test]
async fn an_inbox_reads_no_conversation_that_its_user_left() {
    let stage = Stage::embedded().await.unwrap();
    let store = stage.store();
    let [ann, ben] = users(["ann", "ben"]);
    make(store, conversation_id(250), &[ann.clone(), ben.clone()]).await;
    let mut spent = Vec::new();
    for left in [0..FEW / 2, FEW / 2..MANY / 2] {
        for number in left {
            let on = conversation_id(number as u8);
            make(store, on, &[ann.clone(), ben.clone()]).await;
            let seen = store.membership_version(on).await.unwrap().unwrap().version;
            let leaves = MembershipTransition {
                user: ben.clone(),
                membership: Membership {
                    state: MembershipState::Left,
                    ..Membership::joined(Role::Member)
                },
                kind: TransitionKind::Leaves,
            };
            let change = changing(on, 500, seen, &[leaves]);
            store.change_membership(on, &change).await.unwrap().unwrap();
        }
        let page = async || {
            let page = store.inbox(&ben, &PageRequest::first(10)).await.unwrap();
            assert_eq!(page.items.len(), 1);
        };
        page().await;
        spent.push(rows_of(&stage, page).await);
    }
    assert!(spent[1] <= spent[0] + BESIDE, "{spent:?}");
    stage.close().await;
}

async fn opened(folder: &tempfile::TempDir) -> Arc<Embedded> {
    let options = Options {
        free_bytes_min: 0,
        ..Options::new(folder.path())
    };
    let store = Embedded::open(options, Arc::new(SystemClock)).await;
    Arc::new(store.unwrap())
}

fn bounds() -> Bounds {
    Bounds {
        rates: RateBounds {
            is_on: false,
            ..RateBounds::default()
        },
        search_segments: [4, 12, 36],
        ..Bounds::default()
    }
}

async fn served(store: &Arc<Embedded>) -> Api {
    let chat = Chat::open(
        store.clone(),
        Bus::default(),
        Arc::new(SystemClock),
        bounds(),
    );
    Api::new(chat.await.unwrap(), DocumentBounds::default())
}

async fn ask(api: &Api, viewer: &UserId, document: &str, variables: Value) -> Value {
    let prepared = api.prepare(document, None).unwrap();
    let (variables, viewer) = (Variables::from_json(variables), viewer.clone().into());
    let response = api.execute(&prepared, variables, Some(viewer), Arc::default());
    let response = response.await;
    assert!(response.errors.is_empty(), "{:?}", response.errors);
    response.data.into_json().unwrap()
}

/// The least rows that a document takes, after a first time.
async fn rows_of_document(store: &Embedded, ask: impl AsyncFn() -> Value) -> (u64, u64) {
    let before = store.rows_scanned();
    ask().await;
    let (first, mut least) = (store.rows_scanned() - before, u64::MAX);
    for _ in 0..3 {
        let before = store.rows_scanned();
        ask().await;
        least = least.min(store.rows_scanned() - before);
    }
    (first, least)
}

#[tokio::test]
async fn a_search_reads_a_change_that_does_not_concern_it_once() {
    const CONVERSATIONS: u8 = 10;
    const TOGGLES: i64 = 30;
    new_salt();
    let folder = tempfile::tempdir().unwrap();
    let store = opened(&folder).await;
    let [ann, ben] = users(["ann", "ben"]);
    let (clock, ids): (Arc<dyn Clock>, _) = (Arc::new(SystemClock), IdGenerator::random());
    let index = IndexUpkeep::open(store.clone(), clock, &bounds())
        .await
        .unwrap();
    for number in 0..CONVERSATIONS {
        let on = conversation_id(number);
        let mut rows = vec![group_row(on, None)];
        rows.extend([&ann, &ben].map(|user| participant_row(on, user)));
        rows.extend((1..13).map(|micros| message_row(text(on, id(micros), &ann))));
        import(&*store, &rows).await;
        assert_eq!(index.rebuild(on).await.unwrap(), 12);
        let emoji = Emoji::parse("👍").unwrap();
        for micros in 0..2 * TOGGLES {
            let change = Change {
                // The index has the changes from before it was built.
                id: ids.next(SystemClock.now()),
                kind: ChangeKind::ReactionsChanged,
                message: id(1),
                user: ben.clone(),
            };
            let reacted = store.react(on, &emoji, micros % 2 == 0, &change);
            reacted.await.unwrap().unwrap();
        }
    }
    let api = served(&store).await;
    let search = "{ searchMessages(query: \"nowhere\", first: 10) { edges { node { id } } } }";
    let search = async || ask(&api, &ann, search, Value::Null).await;
    let (first, next) = rows_of_document(&store, search).await;
    let changes = u64::from(CONVERSATIONS) * 2 * TOGGLES as u64;
    assert!(first >= changes, "{first} rows");
    assert!(next < changes / 4, "{next} rows after {first}");
    // A message that an edit makes loose is found all the same.
    let found =
        "query($q: String!) { searchMessages(query: $q, first: 10) { edges { node { id } } } }";
    let count = async |query: &str| {
        let found = ask(&api, &ann, found, json!({"q": query})).await;
        found["searchMessages"]["edges"].as_array().unwrap().len()
    };
    assert_eq!(count("elsewhere").await, 0);
    let page = "{ inbox(first: 1) { edges { node { conversation { messages(first: 1) { edges { node { id } } } } } } } }";
    let page = ask(&api, &ann, page, Value::Null).await;
    let message =
        &page["inbox"]["edges"][0]["node"]["conversation"]["messages"]["edges"][0]["node"]["id"];
    let edit = "mutation($m: ID!) { editMessage(input: { messageId: $m, body: \"elsewhere\" }) { message { id } } }";
    ask(&api, &ann, edit, json!({"m": message})).await;
    assert_eq!(count("elsewhere").await, 1);
    assert_eq!(count("elsewhere").await, 1, "and again, from memory");
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_send_reads_no_ban_of_a_made_up_name() {
    new_salt();
    let folder = tempfile::tempdir().unwrap();
    let store = opened(&folder).await;
    let (on, [ann, ben]) = (conversation_id(1), users(["ann", "ben"]));
    let banned = Membership {
        state: MembershipState::Banned,
        ..Membership::joined(Role::Member)
    };
    let mut rows = vec![group_row(on, None)];
    rows.extend([&ann, &ben].map(|user| participant_row(on, user)));
    for number in 0..5_000 {
        let user = user(&format!("made-up-{number}"));
        let ban = Ban {
            user: user.clone(),
            by: ann.clone(),
            at: START,
            until: None,
            reason: None,
        };
        rows.push(row_of(on, &user, banned, Some(ban)));
    }
    import(&*store, &rows).await;
    let api = served(&store).await;
    let conversation = ask(
        &api,
        &ann,
        "{ inbox(first: 1) { edges { node { conversation { id } } } } }",
        Value::Null,
    );
    let conversation =
        conversation.await["inbox"]["edges"][0]["node"]["conversation"]["id"].clone();
    let send = "mutation($c: ID!) { sendMessage(input: { conversationId: $c, body: \"Hello\" }) { messageEdge { node { id } } } }";
    let send = async || ask(&api, &ann, send, json!({"c": conversation})).await;
    let (_, next) = rows_of_document(&store, send).await;
    assert!(next < 20, "{next} rows");
    let pinned = "query($c: ID!) { conversation(id: $c) { participants(first: 5) { edges { node { user { username } } } } pinnedMessages(first: 5) { edges { node { id } } } } }";
    let pinned = async || ask(&api, &ann, pinned, json!({"c": conversation})).await;
    let (_, next) = rows_of_document(&store, pinned).await;
    assert!(next < 20, "{next} rows");
    store.close().await.unwrap();
}
