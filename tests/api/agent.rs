//! Agents: programs that take part in conversations, without inbox, presence, receipts and notifications.

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use wideroom::chat::{Bounds, RateBounds};
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::model::{AGENT_SCOPE, UserId, Viewer};

use crate::support::as_agent::AS_AGENT;
use crate::support::cases::{assert_hold, cases_of};
use crate::support::door::Door;
use crate::support::world::{Actor, World, text};

const HELPER: &str = "agent:helper";

const ENTRY: &str = "inboxEntry { id unreadCount isMuted isPinned isArchived lastMessage { uuid } readUpTo { uuid } }";

async fn helper_with_alice() -> (World, Actor, Actor, String) {
    let world = World::open().await;
    let (alice, helper) = (world.user("alice"), world.user(HELPER));
    let conversation = alice.direct(HELPER).await;
    (world, alice, helper, conversation)
}

/// Status and usernames of the receipts of a message.
async fn receipts(actor: &Actor, message: &str) -> (Value, Vec<String>) {
    let document = "query($m: ID!) { node(id: $m) { ... on Message { status receipts(first: 100) { edges { node { user { username } } } } } } }";
    let data = actor.data(document, json!({"m": message})).await;
    let edges = data["node"]["receipts"]["edges"].as_array().unwrap();
    let name = |edge: &Value| text(&edge["node"]["user"]["username"]);
    (
        data["node"]["status"].clone(),
        edges.iter().map(name).collect(),
    )
}

#[tokio::test]
async fn everybody_sees_that_an_agent_is_one() {
    let (_world, alice, helper, c) = helper_with_alice().await;
    helper.send(&c, "How can I help?").await;
    let document =
        "query($c: ID!) { viewer { isAgent } conversation(id: $c) { directPeer { username isAgent }
        messages(first: 1) { edges { node { sender { isAgent } } } } } }";
    let data = alice.data(document, json!({"c": c})).await;
    assert_eq!(data["viewer"], json!({"isAgent": false}));
    let conversation = &data["conversation"];
    let peer = json!({"username": HELPER, "isAgent": true});
    assert_eq!(conversation["directPeer"], peer);
    let sender = &conversation["messages"]["edges"][0]["node"]["sender"];
    assert_eq!(sender, &json!({"isAgent": true}));
    let data = helper.data("{ viewer { isAgent } }", json!({})).await;
    assert_eq!(data["viewer"], json!({"isAgent": true}));
}

#[tokio::test]
async fn an_agent_has_no_inbox_and_a_search_finds_within_one_conversation_alone() {
    let (_world, alice, helper, c) = helper_with_alice().await;
    let group = alice.group("us", &[HELPER, "bob"]).await;
    for conversation in [&c, &group] {
        alice.send(conversation, "a question").await;
        helper.send(conversation, "an answer").await;
    }
    let lists =
        "{ inbox(first: 10) { edges { node { id } } pageInfo { hasNextPage hasPreviousPage } }
        inboxSummary { unreadConversationCount unreadMessageCount isCapped }
        searchMessages(query: \"answer\") { edges { node { id } } isCapped } }";
    let data = helper.data(lists, json!({})).await;
    let none = json!({"edges": [], "pageInfo": {"hasNextPage": false, "hasPreviousPage": false}});
    assert_eq!(data["inbox"], none);
    let summary = json!({"unreadConversationCount": 0, "unreadMessageCount": 0, "isCapped": false});
    assert_eq!(data["inboxSummary"], summary);
    assert_eq!(
        data["searchMessages"],
        json!({"edges": [], "isCapped": false})
    );
    let within = "query($c: ID!) { conversation(id: $c) { searchMessages(query: \"answer\") { edges { node { body } } } } }";
    let data = helper.data(within, json!({"c": c})).await;
    let found = &data["conversation"]["searchMessages"]["edges"];
    assert_eq!(found[0]["node"]["body"], "an answer");
    let data = alice.data(lists, json!({})).await;
    assert_eq!(data["inbox"]["edges"].as_array().unwrap().len(), 2);
    assert_eq!(data["searchMessages"]["edges"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn marks_and_settings_of_an_agent_are_answered_and_change_nothing() {
    let (_world, alice, helper, c) = helper_with_alice().await;
    let first = alice.send(&c, "one").await;
    let last = alice.send(&c, "two").await;
    for call in [
        format!("markRead(input: {{conversationId: $c, messageId: $m}}) {{ {ENTRY} }}"),
        format!("markUnread(input: {{conversationId: $c, messageId: $m}}) {{ {ENTRY} }}"),
        format!("markDelivered(input: {{conversationId: $c, messageId: $m}}) {{ {ENTRY} }}"),
        format!(
            "updateInboxEntry(input: {{conversationId: $c, muted: true, pinned: true, archived: true}}) {{ {ENTRY} }}"
        ),
    ] {
        let used = if call.contains("$m") { ", $m: ID!" } else { "" };
        let document = format!("mutation($c: ID!{used}) {{ answer: {call} }}");
        let data = helper.data(&document, json!({"c": c, "m": first.id})).await;
        let mut entry = data["answer"]["inboxEntry"].clone();
        entry.as_object_mut().unwrap().remove("id");
        let made = json!({"unreadCount": 0, "isMuted": false, "isPinned": false, "isArchived": false,
            "lastMessage": {"uuid": last.uuid}, "readUpTo": {"uuid": last.uuid}});
        assert_eq!(entry, made, "{call}");
    }
    let strange = "mutation($c: ID!, $m: ID!) { markRead(input: {conversationId: $c, messageId: $m}) { inboxEntry { id } } }";
    let other = alice.direct("bob").await;
    let elsewhere = alice.send(&other, "elsewhere").await;
    for conversation in [&c, &other] {
        let asked = json!({"c": conversation, "m": elsewhere.id});
        assert!(helper.ask(strange, asked).await.is_refused());
    }
    assert_eq!(receipts(&alice, &last.id).await, (Value::Null, vec![]));
}

#[tokio::test]
async fn the_payload_of_a_send_shows_an_entry_made_from_the_conversation() {
    const DOCUMENT: &str = "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"Hello\"}) {
        messageEdge { node { uuid } } inboxEntryEdge { node { unreadCount lastMessage { uuid } readUpTo { uuid } } } } }";
    let (_world, _alice, helper, c) = helper_with_alice().await;
    let data = helper.data(DOCUMENT, json!({"c": c})).await;
    let sent = &data["sendMessage"];
    let message = &sent["messageEdge"]["node"];
    let entry = json!({"unreadCount": 0, "lastMessage": message, "readUpTo": message});
    assert_eq!(sent["inboxEntryEdge"]["node"], entry);
}

#[tokio::test]
async fn an_agent_counts_in_no_status_and_no_receipt() {
    let world = World::open().await;
    let [alice, bob, helper] = ["alice", "bob", HELPER].map(|name| world.user(name));
    let c = alice.group("us", &["bob", HELPER]).await;
    let question = alice.send(&c, "a question").await;
    let bobs = vec!["bob".to_owned()];
    assert_eq!(
        receipts(&alice, &question.id).await,
        (json!("SENT"), bobs.clone())
    );
    bob.mark_read(&c, None).await;
    assert_eq!(receipts(&alice, &question.id).await, (json!("READ"), bobs));
    let up_to = "query($c: ID!) { conversation(id: $c) { deliveredToAllUpTo { uuid } readByAllUpTo { uuid } } }";
    let data = alice.data(up_to, json!({"c": c})).await;
    let uuid = json!({"uuid": question.uuid});
    let all = json!({"deliveredToAllUpTo": uuid, "readByAllUpTo": uuid});
    assert_eq!(data["conversation"], all);
    // The messages of an agent have receipts of people.
    let answer = helper.send(&c, "an answer").await;
    let people = vec!["alice".to_owned(), "bob".to_owned()];
    assert_eq!(receipts(&helper, &answer.id).await, (json!("SENT"), people));
    let direct = alice.direct(HELPER).await;
    let asked = alice.send(&direct, "only for you").await;
    assert_eq!(receipts(&alice, &asked.id).await, (Value::Null, vec![]));
}

#[tokio::test]
async fn an_agent_has_no_presence_and_its_streams_bring_nobody_online() {
    let (world, alice, helper, c) = helper_with_alice().await;
    helper.send(&c, "How can I help?").await;
    let viewer = Viewer::from(UserId::parse(HELPER).unwrap());
    assert!(world.chat.presence.arrive(&viewer).is_none());
    let presence =
        "query($c: ID!) { conversation(id: $c) { directPeer { presence { isOnline } } } }";
    let data = alice.data(presence, json!({"c": c})).await;
    assert_eq!(data["conversation"]["directPeer"]["presence"], Value::Null);
    let own = helper
        .data("{ viewer { presence { isOnline } } }", json!({}))
        .await;
    assert_eq!(own["viewer"]["presence"], Value::Null);

    let (bob, group) = (world.user("bob"), alice.group("us", &["bob"]).await);
    bob.send(&group, "Hello").await;
    let document =
        "subscription($u: [String!]!) { presenceChanged(usernames: $u) { user { username } } }";
    let mut both = alice.subscribe(document, json!({"u": [HELPER, "bob"]}));
    let name = |payload: Value| text(&payload["presenceChanged"]["user"]["username"]);
    assert_eq!(name(both.next().await), "bob");
    helper.send(&c, "still here").await;
    let bob = UserId::parse("bob").unwrap();
    let _here = world.chat.presence.connect(&bob);
    assert_eq!(name(both.next().await), "bob", "and nobody before");
    let mut alone = alice.subscribe(document, json!({"u": [HELPER]}));
    assert!(alone.is_quiet(), "it goes on, and says nothing");
}

#[tokio::test]
async fn an_agent_hears_of_a_conversation_by_its_streams_and_of_no_entry() {
    let (_world, alice, helper, c) = helper_with_alice().await;
    let mut inbox = helper.subscribe(
        "subscription { inboxUpdated { cursor event { __typename } } }",
        json!({}),
    );
    let position = inbox.next().await["inboxUpdated"].clone();
    assert_eq!(position["event"], Value::Null);
    let mut events = helper.subscribe(
        "subscription($c: ID!) { conversationEvents(conversationId: $c) { cursor event { __typename } } }",
        json!({"c": c}),
    );
    events.next().await;
    let mut messages = helper.subscribe(
        "subscription($c: ID!) { messageAdded(conversationId: $c) { messageEdge { node { body } } } }",
        json!({"c": c}),
    );
    let mut typing = helper.subscribe(
        "subscription($c: ID!) { typingChanged(conversationId: $c) { user { username } isTyping } }",
        json!({"c": c}),
    );
    assert!(messages.is_quiet() && typing.is_quiet());
    let type_ = "mutation($c: ID!) { setTyping(input: {conversationId: $c, typing: true}) { conversation { id } } }";
    alice.data(type_, json!({"c": c})).await;
    alice.send(&c, "a question").await;
    let typed = typing.next().await["typingChanged"].clone();
    assert_eq!(
        typed,
        json!({"user": {"username": "alice"}, "isTyping": true})
    );
    let added = messages.next().await["messageAdded"].clone();
    assert_eq!(added["messageEdge"]["node"]["body"], "a question");
    let event = events.next().await["conversationEvents"]["event"].clone();
    assert_eq!(event["__typename"], "MessageAddedEvent");
    alice.group("us", &[HELPER]).await;
    alice.data(BLOCK, json!({"u": HELPER})).await;
    assert!(inbox.is_quiet());
}

const BLOCK: &str = "mutation($u: String!) { blockUser(input: {username: $u}) { __typename } }";

#[tokio::test]
async fn blocks_and_bans_hold_for_an_agent_as_for_anybody() {
    let (world, alice, helper, c) = helper_with_alice().await;
    alice.data(BLOCK, json!({"u": HELPER})).await;
    let shown = "query($c: ID!) { conversation(id: $c) { id } inbox { edges { node { id } } } }";
    let data = alice.data(shown, json!({"c": c})).await;
    assert_eq!(data["inbox"]["edges"], json!([]));
    // The blocked agent cannot tell.
    helper.send(&c, "still there?").await;

    let carol = world.user("carol");
    let with_carol = carol.direct(HELPER).await;
    helper.data(BLOCK, json!({"u": "carol"})).await;
    let send = "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"x\"}) { messageEdge { node { id } } } }";
    let refused = helper.ask(send, json!({"c": with_carol})).await;
    assert_eq!(refused.code(), "FORBIDDEN");

    let group = carol.group("us", &[HELPER]).await;
    let ban = "mutation($c: ID!, $u: String!) { banParticipant(input: {conversationId: $c, username: $u}) { __typename } }";
    carol.data(ban, json!({"c": group, "u": HELPER})).await;
    let refused = helper.ask(send, json!({"c": group})).await;
    assert_eq!(refused.code(), "NOT_FOUND");
}

#[tokio::test]
async fn a_mention_of_an_agent_stands_in_the_message() {
    let world = World::open().await;
    let [alice, helper] = ["alice", HELPER].map(|name| world.user(name));
    let c = alice.group("us", &["bob", HELPER]).await;
    let document = "mutation($i: SendMessageInput!) { sendMessage(input: $i) { messageEdge { node { id mentions { username isAgent } } } } }";
    let input =
        json!({"conversationId": c, "body": "@helper", "mentionedUsernames": [HELPER, "bob"]});
    let data = alice.data(document, json!({"i": input})).await;
    let message = &data["sendMessage"]["messageEdge"]["node"];
    let mentions =
        json!([{"username": HELPER, "isAgent": true}, {"username": "bob", "isAgent": false}]);
    assert_eq!(message["mentions"], mentions);
    let entry = "query($c: ID!) { conversation(id: $c) { inboxEntry { unreadMentionCount } } }";
    for (actor, count) in [(&world.user("bob"), 1), (&helper, 0)] {
        let data = actor.data(entry, json!({"c": c})).await;
        let counted = &data["conversation"]["inboxEntry"]["unreadMentionCount"];
        assert_eq!(counted, &json!(count));
    }
    let edit = "mutation($i: EditMessageInput!) { editMessage(input: $i) { message { mentions { username } } } }";
    let input = json!({"messageId": message["id"], "body": "nobody", "mentionedUsernames": []});
    let data = alice.data(edit, json!({"i": input})).await;
    assert_eq!(data["editMessage"]["message"]["mentions"], json!([]));
}

#[tokio::test]
async fn an_agent_waits_in_slow_mode() {
    let world = World::open().await;
    let [alice, helper] = ["alice", HELPER].map(|name| world.user(name));
    let c = alice.group("us", &[HELPER]).await;
    let set = "mutation($c: ID!) { updateConversation(input: {conversationId: $c, slowModeSeconds: 600}) { __typename } }";
    alice.data(set, json!({"c": c})).await;
    let send = "mutation($c: ID!, $k: String!) { sendMessage(input: {conversationId: $c, body: \"x\", idempotencyKey: $k}) {
        messageEdge { node { id } } } }";
    let first = helper.data(send, json!({"c": c, "k": "one"})).await;
    let again = helper.data(send, json!({"c": c, "k": "one"})).await;
    assert_eq!(first, again, "a retry is no second send");
    let early = helper.ask(send, json!({"c": c, "k": "two"})).await;
    assert_eq!(early.code(), "RATE_LIMITED");
    let other = alice.group("others", &[HELPER]).await;
    alice.data(set, json!({"c": other})).await;
    assert!(
        helper
            .ask(send, json!({"c": other, "k": "two"}))
            .await
            .has_data()
    );
}

#[tokio::test]
async fn an_agent_is_no_stranger_and_takes_part_in_any_number_of_conversations() {
    let bounds = Bounds {
        conversations_max: 3,
        rates: RateBounds {
            strangers_per_hour: 1,
            ..RateBounds::default()
        },
        ..Bounds::default()
    };
    let world = World::with_rates_and_bounds(bounds).await;
    let helper = world.user(HELPER);
    for number in 0..5 {
        let user = world.user(&format!("user{number}"));
        let direct = user.direct(HELPER).await;
        user.group("us", &[HELPER]).await;
        user.group("again", &[HELPER]).await;
        helper.send(&direct, "Hello").await;
    }
    let start = "mutation($u: String!) { startDirectConversation(input: {username: $u}) { conversation { id } } }";
    let full = world.user("user0").ask(start, json!({"u": "bob"})).await;
    assert_eq!(full.code(), "BAD_USER_INPUT", "people are counted");
    // People are strangers to an agent, as to anybody.
    helper.data(start, json!({"u": "carol"})).await;
    let refused = helper.ask(start, json!({"u": "dave"})).await;
    assert_eq!(refused.code(), "RATE_LIMITED");
}

#[tokio::test]
async fn services_suspend_an_agent_and_revoke_its_tokens_and_erase_none() {
    let (world, alice, _helper, c) = helper_with_alice().await;
    let door = Door::of(&world.chat);
    let (service, badge) = (door.service(), door.user(HELPER));
    let name = "{ viewer { username } }";
    assert_eq!(door.ask(&badge, name, &json!({})).await.code(), "");
    let erase = "mutation($u: String!) { eraseUser(input: {username: $u}) { job { id } } }";
    let refused = door.ask(&service, erase, &json!({"u": HELPER})).await;
    assert_eq!(refused.code(), "BAD_USER_INPUT");
    let extensions = &refused.json()["errors"][0]["extensions"];
    assert_eq!(extensions["inputPath"], json!(["input", "username"]));
    let suspend =
        "mutation($u: String!) { suspendUser(input: {username: $u}) { user { isAgent } } }";
    let said = door.ask(&service, suspend, &json!({"u": HELPER})).await;
    assert_eq!(said.code(), "");
    assert_eq!(door.ask(&badge, name, &json!({})).await.code(), "FORBIDDEN");
    let restore =
        "mutation($u: String!) { restoreUser(input: {username: $u}) { user { isAgent } } }";
    let said = door.ask(&service, restore, &json!({"u": HELPER})).await;
    assert_eq!(said.code(), "");
    let revoke = "mutation($u: String!) { revokeTokens(input: {username: $u}) { revokedBefore } }";
    let said = door.ask(&service, revoke, &json!({"u": HELPER})).await;
    assert_eq!(said.code(), "");
    assert_eq!(
        door.ask(&badge, name, &json!({})).await.code(),
        "UNAUTHENTICATED"
    );
    alice.send(&c, "the conversation stays").await;
}

#[tokio::test]
async fn a_token_of_an_agent_has_its_scope_and_no_right_of_a_service() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    let name = "{ viewer { username isAgent } }";
    let now = SystemClock.now().micros() / 1_000_000;
    let plain = door.signed(&json!({"sub": HELPER, "iat": now, "exp": now + 60}));
    let others = door.scoped(HELPER, "openid wideroom:agents");
    for badge in [plain, others, door.service_named(HELPER)] {
        let said = door.ask(&badge, name, &json!({})).await;
        assert_eq!(
            (said.status, said.code().as_str()),
            (401, "UNAUTHENTICATED")
        );
    }
    let both = door.scoped(HELPER, &format!("{AGENT_SCOPE} wideroom:read"));
    let said = door.ask(&both, name, &json!({})).await;
    assert_eq!(
        (said.status, said.code().as_str()),
        (401, "UNAUTHENTICATED")
    );
    for badge in [
        door.scoped(HELPER, &format!("openid {AGENT_SCOPE}")),
        door.service().acting_as(HELPER),
    ] {
        let said = door.ask(&badge, name, &json!({})).await;
        let viewer = json!({"username": HELPER, "isAgent": true});
        assert_eq!(said.json()["data"]["viewer"], viewer);
    }
    // The scope makes nobody else an agent, and a service no other one.
    let said = door
        .ask(&door.scoped("bob", AGENT_SCOPE), name, &json!({}))
        .await;
    let viewer = json!({"username": "bob", "isAgent": false});
    assert_eq!(said.json()["data"]["viewer"], viewer);
    let read = "{ reports(first: 1) { edges { node { id } } } }";
    let said = door
        .ask(&door.scoped(HELPER, AGENT_SCOPE), read, &json!({}))
        .await;
    assert_eq!(said.code(), "FORBIDDEN", "{said:?}");
}

#[tokio::test]
async fn a_message_notifies_people_and_no_agent() {
    let bounds = Bounds {
        notify_after: std::time::Duration::ZERO,
        ..Bounds::default()
    };
    let world = World::with_bounds(bounds).await;
    world
        .store
        .set_outbox(Some(SystemClock.now()))
        .await
        .unwrap();
    let door = Door::of(&world.chat);
    let document =
        "subscription { outbox(types: [NOTIFICATION]) { event { ... on NotificationEvent {
        message { body mentions { username } } recipients { user { username } } } } } }";
    let mut outbox = door.subscribe(&door.service(), document, &json!({}));
    outbox.next().await.unwrap();
    let alice = world.user("alice");
    let c = alice.group("us", &["bob", HELPER]).await;
    let send = "mutation($i: SendMessageInput!) { sendMessage(input: $i) { __typename } }";
    let input = json!({"conversationId": c, "body": "@helper", "mentionedUsernames": [HELPER]});
    alice.data(send, json!({"i": input})).await;
    let event = loop {
        let next = tokio::time::timeout(crate::support::world::PATIENCE, outbox.next());
        let payload = next.await.expect("a notification comes").unwrap();
        assert!(payload.get("errors").is_none(), "{payload}");
        let event = payload["data"]["outbox"]["event"].clone();
        if event["message"].is_object() {
            break event;
        }
    };
    assert_eq!(event["message"]["mentions"], json!([{"username": HELPER}]));
    assert_eq!(event["recipients"], json!([{"user": {"username": "bob"}}]));
}

/// Cases that differ for an agent, and why. The tests above say what holds instead.
const ELSEWHERE: &[&str] = &[
    "api::agent::",
    "api::cluster::",
    "api::services::",
    // An agent has no inbox: no entries, markers, settings, receipts and counts, and no search across conversations.
    "api::block::a_blocked_users_direct_conversation_leaves_the_inbox_and_comes_back",
    "api::block::a_blocker_is_offline_for_the_blocked_user_who_has_no_presence_for_the_blocker",
    "api::block::a_blocker_whom_the_blocked_user_removes_is_told",
    "api::block::a_blocker_writes_nothing_in_the_direct_conversation_but_deletions_and_marks",
    "api::block::a_direct_conversation_that_a_blocked_user_starts_is_hidden_from_the_start",
    "api::block::a_group_of_a_blocked_user_is_hidden_from_the_blocker_alone",
    "api::block::an_archived_group_does_not_come_back_with_a_blocked_users_message",
    "api::block::in_groups_messages_of_a_blocked_user_stay_and_are_never_unread",
    "api::block::the_blockers_devices_hear_of_the_block_and_nothing_of_the_blocked_user",
    "api::flags::a_change_is_told_live_and_after_a_resume_and_nothing_to_nobody",
    "api::flags::an_archive_ends_with_a_newer_message_unless_muted",
    "api::flags::archived_and_pinned_entries_page_honestly",
    "api::flags::devices_that_set_different_flags_at_once_all_win",
    "api::flags::omitted_flags_stay_unchanged",
    "api::flags::the_summary_leaves_out_what_is_muted_or_archived",
    "api::groups::groups_grow_large_within_their_bounds",
    "api::groups::history_says_what_happened",
    "api::history::arguments_that_make_no_sense_are_refused",
    "api::inbox::a_cursor_of_another_user_or_list_is_refused",
    "api::inbox::an_entry_of_a_page_is_the_entry_by_itself",
    "api::inbox::filters_page_honestly",
    "api::inbox::large_conversations_stand_where_their_activity_is",
    "api::inbox::the_last_active_conversation_comes_first_exactly_once",
    "api::inbox::the_summary_counts_conversations_with_something_unread",
    "api::inbox::the_summary_counts_the_unread_messages_of_unmuted_conversations",
    "api::mention::mentions_are_kept_as_named_and_counted_until_they_are_read",
    "api::receipt::a_message_is_sent_then_delivered_then_read",
    "api::receipt::the_least_advanced_of_the_others_counts",
    "api::sample::a_send_into_the_sample_becomes_its_newest_message",
    "api::sample::the_sample_answers_what_its_table_says",
    "api::sample::the_sample_keeps_kinds_times_and_participants",
    "api::sample::the_sample_pages_both_ways",
    "api::search::a_page_ends_at_its_bound_and_the_next_one_goes_on",
    "api::search::a_search_without_words_and_a_cursor_of_another_search_are_refused",
    "api::search::a_user_owes_the_work_of_a_search",
    "api::search::archived_conversations_are_searched_and_system_messages_are_not",
    "api::search::nobody_finds_what_they_may_not_see",
    "api::search::pages_of_any_size_hold_each_match_once_and_in_order",
    "api::search_index::an_index_changes_no_answer_of_short_pages",
    "api::search_index::an_index_changes_no_answer_of_very_short_pages",
    "api::search_index::an_index_changes_no_answer_with_the_usual_bound",
    "api::search_words::words_are_found_as_people_write_them",
    "api::unread::as_many_unread_as_the_cap_are_no_more_than_it",
    "api::unread::own_messages_are_never_unread_also_not_from_a_mark_on",
    "api::unread::unread_is_what_a_count_by_hand_gives",
    // It has no presence.
    "api::presence::a_user_who_left_the_group_receives_nothing_more",
    "api::presence::presence_of_a_closed_app_needs_a_common_conversation_and_no_act",
    "api::presence::presence_shows_to_those_of_a_direct_conversation_or_a_small_group",
    "api::presence::strangers_are_silent_until_they_are_none",
    "api::presence::users_who_share_only_a_large_group_are_strangers",
    "api::presence::when_a_user_was_last_here_outlives_the_server",
    // Its conversations have no bound, and it is no stranger.
    "api::conversation::a_user_is_in_a_bounded_number_of_large_conversations",
    "api::introduction::a_user_is_in_a_bounded_number_of_conversations",
    "api::introduction::whoever_has_acted_in_a_shared_conversation_is_no_stranger_any_more",
    // They name the user beneath the API, or show the name to a service.
    "api::authority::a_group_keeps_an_owner_whatever_a_service_removes",
    "api::authority::a_service_governs_a_conversation_without_taking_part",
    "api::block::nobody_blocks_themselves_or_more_than_a_thousand",
    "api::erasure::a_user_who_was_restored_begins_anew_and_may_be_erased_again",
    "api::erasure::an_erasure_goes_on_after_a_restart",
    "api::erasure::each_deleted_message_has_its_event_and_the_last_one_is_that_of_the_user",
    "api::erasure::nothing_of_an_erased_user_is_left_and_others_keep_their_conversations",
    "api::erasure::reports_by_the_user_go_and_those_about_the_user_are_emptied",
    "api::floor::a_replay_reads_none_of_the_expired_messages_however_many_there_are",
    "api::floor::a_replay_reads_none_of_the_messages_below_the_floor",
    "api::groups::an_heir_by_the_rule_alone_who_is_suspended_makes_room",
    "api::listing::",
    "api::groups::an_imported_group_without_an_owner_has_one",
    "api::moderation::participants_are_found_by_the_beginning_of_their_names",
    "api::outbox::every_event_is_delivered_in_order_to_a_service_that_takes_no_part",
    "api::pin::services_hear_of_pins",
    "api::reaction::moderators_remove_the_reactions_of_others",
    "api::report::a_report_keeps_the_message_as_it_was",
    "api::restriction::a_suspended_user_is_out_at_once_and_back_when_restored",
];
/// Cases at once.
const AT_ONCE: usize = 2;

/// This program once more: `alice` is an agent in every case.
#[tokio::test]
#[ignore = "gate: every other case of the API once more"]
async fn every_case_holds_for_an_agent() {
    let cases = cases_of("api::", ELSEWHERE);
    assert_hold(&cases, (AS_AGENT, "1"), AT_ONCE).await;
}
