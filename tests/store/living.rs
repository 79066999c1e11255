//! Rows that have ended, and the lists that pass them over: as many rows are read after many ended ones as after few.

use std::cell::Cell;
use std::sync::Arc;

use async_graphql::Variables;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use wideroom::bus::Bus;
use wideroom::chat::{Bounds, Chat, IndexUpkeep};
use wideroom::clock::{Clock, IdGenerator, SystemClock};
use wideroom::graphql::{Api, DocumentBounds, OperationExecutor as _};
use wideroom::model::{
    Ban, Change, ChangeKind, ConversationId, Emoji, Membership, MembershipState, PageRequest, Role,
    UserId,
};
use wideroom::store::cql::Cql;
use wideroom::store::embedded::{Embedded, Options};
use wideroom::store::{
    BanChange, ImportPositions, ImportRow, MembershipChange, MembershipTransition, Store,
    StoreAdmin, TransitionKind,
};

use super::ask::{assert_sound, import_all, make, participants, send, send_all, send_as};
use super::membership::{changing, joins, leaves};
use super::pin::{pin, pins_of};
use super::stage::{Stage, keyspace};
use crate::support::cost::least_cost;
use crate::support::size::sized;
use crate::support::words::{
    HOUR, START, change, change_of, conversation_id, crowd, group_row, id, id_with, message_row,
    new_salt, participant_row, text, user, users,
};
use crate::support::world::without_rates;

/// Ended rows that are few. Each costs a store on disk a write or two.
const FEW: usize = 20;
/// Rows that a list may read beside those that it shows: bounds, heads, the first row of a run.
const BESIDE: u64 = 12;
/// Changes that a cluster decides within a minute or two. The tombstones that they leave are fewer than those past which a
/// Cassandra of the tests reads (2,000).
const DECIDED_MAX: usize = 1_000;

/// Ended rows that are many: in the gate 10,000, or as many as this store writes within a minute.
fn many(stage: &Stage, slow_max: usize) -> usize {
    let most = if stage.is_slow() { slow_max } else { 10_000 };
    sized(120, most)
}

/// The least rows that reading takes: background work reads rows too. There are more runs where none is within the bound.
async fn rows_of(stage: &Stage, most: u64, read: impl AsyncFn()) -> u64 {
    least_cost(|| stage.rows_read(), most, async |_| read().await).await
}

pub async fn ended_pins_cost_a_list_nothing(stage: &Stage) {
    let store = stage.store();
    let [ann, ben] = users(["ann", "ben"]);
    let (few, many) = (FEW as i64, many(stage, DECIDED_MAX / 4) as i64);
    make(store, conversation_id(1), &[ann.clone(), ben.clone()]).await;
    send_all(store, conversation_id(1), 1..many + 1, &ann).await;
    pin(store, 900, &ben, id(1), true).await.unwrap();
    let mut spent = Vec::new();
    for ended in [1..few, few..many] {
        for number in ended {
            pin(store, 20_000 + 2 * number, &ben, id(number + 1), true).await;
            pin(store, 20_001 + 2 * number, &ben, id(number + 1), false).await;
        }
        let list = async || assert_eq!(pins_of(store, 1).await.len(), 1);
        spent.push(rows_of(stage, 1, list).await);
    }
    assert_eq!(spent[0], spent[1], "{spent:?}");
    assert!(spent[1] <= 1, "{spent:?}");
}

pub async fn reactions_that_were_taken_back_cost_a_page_nothing(stage: &Stage) {
    let store = stage.store();
    let many = many(stage, DECIDED_MAX);
    let people = crowd(many + 1);
    let group = conversation_id(1);
    make(store, group, &people[..2]).await;
    send_all(store, group, 1..3, &people[0]).await;
    let emoji = Emoji::parse("👍").unwrap();
    let react = async |micros: i64, user: &UserId, is_on: bool| {
        let change = change_of(change(micros), ChangeKind::ReactionsChanged, id(1), user);
        let reacted = store.react(group, &emoji, is_on, &change);
        reacted.await.unwrap().unwrap();
    };
    react(900, &people[0], true).await;
    let mut spent = Vec::new();
    for ended in [1..FEW, FEW..many] {
        let toggles = ended.map(|number| {
            let (react, people) = (&react, &people);
            async move {
                let micros = 1_000 + 2 * number as i64;
                react(micros, &people[number], true).await;
                react(micros + 1, &people[number], false).await;
            }
        });
        // The embedded store decides one change of a message after the other.
        let at_once = if stage.is_slow() { 32 } else { 1 };
        let toggles = stream::iter(toggles).buffer_unordered(at_once);
        toggles.collect::<Vec<()>>().await;
        let list = async || {
            let asked = [(group, id(1))];
            let found = store.reactions(&people[0], &asked).await.unwrap();
            assert_eq!(found[0].iter().map(|one| one.count).sum::<u32>(), 1);
        };
        let most = spent.first().copied().unwrap_or(u64::MAX);
        spent.push(rows_of(stage, most, list).await);
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
        import_all(store, piece).await;
    }
}

/// A page that meets many of them remembers where they lie. A change of the membership forgets it.
pub async fn participants_who_left_are_passed_over_once(stage: &Stage) {
    let (store, on) = (stage.store(), conversation_id(1));
    let present = [user("ann"), user("zoe")];
    let former = crowd(sized(999, 10_000));
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
        let spent = rows_of(stage, BESIDE, page).await;
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
        let spent = rows_of(stage, 5 * BESIDE, page).await;
        assert!(spent <= 5 * BESIDE, "{spent} rows");
    }
}

/// A group of two in which the second one leaves.
async fn make_and_leave(store: &dyn Store, on: ConversationId, [ann, ben]: [&UserId; 2]) {
    make(store, on, &[ann.clone(), ben.clone()]).await;
    move_one(store, on, 500, leaves(ben, 500)).await;
}

/// Decides one transition, by a change of this microsecond.
async fn move_one(
    store: &dyn Store,
    on: ConversationId,
    micros: i64,
    transition: MembershipTransition,
) {
    let version = store.membership_version(on).await.unwrap().unwrap().version;
    let change = changing(on, micros, version, &[transition]);
    store.change_membership(on, &change).await.unwrap().unwrap();
}

/// On a cluster, an inbox of up to a hundred rows is read whole.
pub async fn an_inbox_reads_no_conversation_that_its_user_left(stage: &Stage) {
    let store = stage.store();
    let [ann, ben] = users(["ann", "ben"]);
    let kept = conversation_id(250);
    make(store, kept, &[ann.clone(), ben.clone()]).await;
    let left: Vec<_> = (0..many(stage, DECIDED_MAX))
        .map(|_| ConversationId::random())
        .collect();
    let all = left
        .iter()
        .map(|on| make_and_leave(store, *on, [&ann, &ben]));
    stream::iter(all)
        .buffer_unordered(32)
        .collect::<Vec<()>>()
        .await;
    let shown = async || {
        let page = store.inbox(&ben, &PageRequest::first(10)).await.unwrap();
        page.items
            .iter()
            .map(|row| row.conversation)
            .collect::<Vec<_>>()
    };
    let page = async || assert_eq!(shown().await, [kept]);
    page().await;
    let spent = rows_of(stage, BESIDE, page).await;
    assert!(spent <= BESIDE, "{spent} rows");
    // A returning user is listed, also behind a later message, and after a page that met the hint of that one.
    let returned = left[7];
    send(store, returned, 10_000, &ann).await;
    for (joined_at, left_at) in [(6_000, 7_000), (8_000, 9_000)] {
        move_one(store, returned, joined_at, joins(&ben, joined_at)).await;
        assert_eq!(shown().await, [returned, kept]);
        move_one(store, returned, left_at, leaves(&ben, left_at)).await;
        page().await;
    }
    move_one(store, returned, 20_000, joins(&ben, 20_000)).await;
    assert_eq!(shown().await, [returned, kept]);
}

/// A group with two participants and many former ones. Since the import one has joined: on a cluster this change read all rows.
async fn make_with_former(store: &dyn StoreAdmin, on: ConversationId, count: usize) {
    let left = Membership {
        state: MembershipState::Left,
        ..Membership::joined(Role::Member)
    };
    let mut rows = vec![group_row(on, None)];
    rows.extend([user("ann"), user("zoe")].map(|user| participant_row(on, &user)));
    rows.extend(crowd(count).iter().map(|user| row_of(on, user, left, None)));
    import(store, &rows).await;
    move_one(store, on, 500, joins(&user("max"), 500)).await;
}

pub async fn former_participants_cost_a_change_and_a_send_nothing(stage: &Stage) {
    let (store, on) = (stage.store(), conversation_id(1));
    make_with_former(store, on, sized(200, 10_000)).await;
    let micros = Cell::new(1_000);
    let max = user("max");
    let spent = rows_of(stage, 10 * BESIDE, async || {
        let at = micros.get();
        micros.set(at + 20);
        move_one(store, on, at, leaves(&max, at)).await;
        send(store, on, at + 1, &user("ann")).await;
        move_one(store, on, at + 10, joins(&max, at + 10)).await;
        send(store, on, at + 11, &user("ann")).await;
    });
    let spent = spent.await;
    assert!(spent <= 10 * BESIDE, "{spent} rows");
    let people = participants(store, on).await;
    assert_eq!(people, [user("ann"), max, user("zoe")]);
    assert_sound(store).await;
}

#[tokio::test]
async fn a_server_that_just_started_reads_no_former_participants() {
    let Some(stage) = Stage::cassandra().await else {
        return;
    };
    let on = conversation_id(1);
    make_with_former(stage.store(), on, sized(200, 10_000)).await;
    let address = keyspace().await.unwrap();
    let started = Cql::open(address, stage.clock.clone()).await.unwrap();
    let before = started.rows_read();
    let audience = send_as(&started, on, id(900), &user("ann")).await;
    let spent = started.rows_read() - before;
    assert_eq!(audience.users.unwrap().len(), 3);
    assert!(spent <= BESIDE, "{spent} rows");
    let all = [user("ann"), user("max"), user("zoe")];
    for request in [PageRequest::first(5), PageRequest::last(5)] {
        let before = started.rows_read();
        let page = started.participants(on, &request).await.unwrap();
        let spent = started.rows_read() - before;
        let shown: Vec<_> = page.items.into_iter().map(|one| one.user).collect();
        assert_eq!(shown, all);
        assert!(spent <= 2 * BESIDE, "{spent} rows");
    }
    let behind = PageRequest::first(1).after(user("crowd100"));
    let page = started.participants(on, &behind).await.unwrap();
    assert_eq!(page.items[0].user, user("max"));
    assert!(page.has_previous && page.has_next);
    started.close().await.unwrap();
    stage.close().await;
}

pub async fn lifted_bans_cost_a_list_nothing(stage: &Stage) {
    let (store, on) = (stage.store(), conversation_id(1));
    let ann = user("ann");
    make(store, on, std::slice::from_ref(&ann)).await;
    let decide = async |micros: i64, to: MembershipTransition, ban: BanChange| {
        let version = store.membership_version(on).await.unwrap().unwrap().version;
        let change = MembershipChange {
            bans: vec![ban],
            ..changing(on, micros, version, &[to])
        };
        store.change_membership(on, &change).await.unwrap().unwrap();
    };
    let set = async |micros: i64, user: &UserId| {
        let membership = Membership {
            state: MembershipState::Banned,
            ..Membership::joined(Role::Member)
        };
        let to = MembershipTransition {
            membership,
            ..leaves(user, micros)
        };
        let ban = Ban {
            user: user.clone(),
            by: ann.clone(),
            at: START,
            until: None,
            reason: None,
        };
        decide(micros, to, BanChange::Set(ban)).await;
    };
    set(20, &user("eve")).await;
    let many = many(stage, DECIDED_MAX / 2);
    for (micros, user) in (40..).step_by(40).zip(crowd(sized(many / 3, many))) {
        set(micros, &user).await;
        let to = leaves(&user, micros + 20);
        decide(micros + 20, to, BanChange::Lift(user)).await;
    }
    let list = async || {
        let page = store.bans(on, &PageRequest::first(10)).await.unwrap();
        assert_eq!(page.items.len(), 1);
        assert_eq!(store.ban_count(on, Ban::COUNT_MAX).await.unwrap(), 1);
    };
    let spent = rows_of(stage, BESIDE, list).await;
    assert!(spent <= BESIDE, "{spent} rows");
}

/// However many floors there are: a store knows the counts at some positions.
pub async fn a_count_above_one_of_many_floors_reads_few_messages(stage: &Stage) {
    /// Messages between two positions that a store remembers for good.
    const CHECKPOINT_EVERY: u64 = 1_024;
    const FLOORS: i64 = 80;
    let (store, on) = (stage.store(), conversation_id(1));
    let (ann, messages) = (user("ann"), sized(3_000, 15_000));
    let mut rows = vec![group_row(on, None), participant_row(on, &ann)];
    rows.extend((1..=messages).map(|at| message_row(text(on, id(at), &ann))));
    import(store, &rows).await;
    // A store remembers counts of messages that are a minute old.
    stage.clock.set(stage.clock.now().plus_micros(HOUR));
    let count = async |floor: i64| {
        let asked = [(on, id(floor).order_key())];
        store.message_counts_after(&asked).await.unwrap()[0]
    };
    // From above to below: none continues another one.
    let floors = || (1..FLOORS).map(|number| messages - number * messages / FLOORS);
    for floor in floors() {
        assert_eq!(count(floor).await, (messages - floor) as u64);
    }
    for floor in floors() {
        let above = (messages - floor) as u64;
        let most = CHECKPOINT_EVERY + BESIDE;
        let spent = rows_of(stage, most, async || assert_eq!(count(floor).await, above)).await;
        assert!(spent <= most, "{spent} rows");
    }
    // A message that comes late counts above the floors below it.
    let late = id_with(messages / 2, [0x80, 2, 1, 0, 0, 0, 0, 0]);
    import(store, &[message_row(text(on, late, &ann))]).await;
    for floor in floors() {
        let above = messages - floor + i64::from(floor <= messages / 2);
        assert_eq!(count(floor).await, above as u64, "above {floor}");
    }
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
    without_rates(Bounds {
        search_segments: [4, 12, 36],
        ..Bounds::default()
    })
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
