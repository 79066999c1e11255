//! Search through the API: what matches, in which order, on how many pages, and for whom.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use wideroom::chat::{Bounds, RateBounds};

use crate::support::world::{Actor, World, node_texts, text};

const ACROSS: &str = "query($q: String, $f: MessageFilter, $n: Int, $a: String) {
    searchMessages(query: $q, filter: $f, first: $n, after: $a) {
        edges { cursor node { id body conversation { id } } snippet { text isMatch } }
        pageInfo { hasNextPage hasPreviousPage startCursor endCursor } isCapped } }";
const WITHIN: &str = "query($c: ID!, $q: String, $f: MessageFilter, $n: Int, $a: String) {
    conversation(id: $c) { searchMessages(query: $q, filter: $f, first: $n, after: $a) {
        edges { cursor node { id body } snippet { text isMatch } }
        pageInfo { hasNextPage endCursor } isCapped } } }";
/// Pages after which a walk that does not get on is given up.
const PAGES_MAX: usize = 200;

fn bodies(page: &Value) -> Vec<String> {
    node_texts(&page["edges"], "/body")
}

async fn across(actor: &Actor, query: &str) -> Vec<String> {
    bodies(&actor.data(ACROSS, json!({"q": query, "n": 100})).await["searchMessages"])
}

async fn within(actor: &Actor, conversation: &str, variables: Value) -> Value {
    let mut variables = variables;
    variables["c"] = json!(conversation);
    let data = actor.data(WITHIN, variables).await;
    data["conversation"]["searchMessages"].clone()
}

/// All bodies, page by page. Each page is further on.
async fn walk(actor: &Actor, conversation: Option<&str>, query: &str, count: usize) -> Vec<String> {
    let (mut found, mut after) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let variables = json!({"q": query, "n": count, "a": after});
        let page = match conversation {
            Some(c) => within(actor, c, variables).await,
            None => actor.data(ACROSS, variables).await["searchMessages"].clone(),
        };
        found.extend(bodies(&page));
        let end = page["pageInfo"]["endCursor"].as_str().map(str::to_owned);
        if page["pageInfo"]["hasNextPage"] == false {
            return found;
        }
        assert!(end.is_some() && end != after, "the next page is further on");
        after = end;
    }
    panic!("the search does not end");
}

#[tokio::test]
async fn a_message_is_found_at_once_by_its_words_and_no_more_once_it_is_gone() {
    let world = World::open().await;
    let [alice, bob] = ["alice", "bob"].map(|name| world.user(name));
    let c = alice.direct("bob").await;
    let soup = alice.send(&c, "Onion soup at noon?").await;
    bob.send(&c, "Noon is fine. 汤很好喝").await;
    for (query, expected) in [
        ("soup", &["Onion soup at noon?"] as &[&str]),
        ("NOON", &["Noon is fine. 汤很好喝", "Onion soup at noon?"]),
        ("noon onion", &["Onion soup at noon?"]),
        ("\"soup at\"", &["Onion soup at noon?"]),
        ("\"soup noon\"", &[]),
        ("on", &["Onion soup at noon?"]),
        ("汤", &["Noon is fine. 汤很好喝"]),
        ("很好", &["Noon is fine. 汤很好喝"]),
        ("tea", &[]),
    ] {
        assert_eq!(across(&bob, query).await, expected, "{query}");
        let page = within(&bob, &c, json!({"q": query})).await;
        assert_eq!(bodies(&page), expected, "{query}");
    }
    let edit = "mutation($m: ID!) { editMessage(input: {messageId: $m, body: \"Tea at three\"}) { message { id } } }";
    alice.data(edit, json!({"m": soup.id})).await;
    assert!(across(&bob, "soup").await.is_empty());
    assert_eq!(across(&bob, "tea").await, ["Tea at three"]);
    let delete = "mutation($m: ID!) { deleteMessage(input: {messageId: $m}) { message { id } } }";
    alice.data(delete, json!({"m": soup.id})).await;
    assert!(across(&bob, "tea").await.is_empty());
}

#[tokio::test]
async fn a_match_comes_with_its_surroundings() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.direct("bob").await;
    alice.send(&c, "À l'École, deux écoles").await;
    let page = within(&alice, &c, json!({"q": "ecole"})).await;
    let part = |text: &str, is_match: bool| json!({"text": text, "isMatch": is_match});
    assert_eq!(
        page["edges"][0]["snippet"],
        json!([
            part("À l'", false),
            part("École", true),
            part(", deux ", false),
            part("écoles", true)
        ])
    );
    assert_eq!(page["isCapped"], false);
}

#[tokio::test]
async fn a_search_finds_names_of_files_and_filters_by_what_is_carried() {
    let world = World::open().await;
    let [alice, bob] = ["alice", "bob"].map(|name| world.user(name));
    let c = alice.direct("bob").await;
    let other = alice.group("Others", &["bob"]).await;
    let send = "mutation($c: ID!, $b: String!, $a: [AttachmentInput!]) {
        sendMessage(input: {conversationId: $c, body: $b, attachments: $a}) { messageEdge { node { id } } } }";
    let file = |mime: &str, name: &str| json!([{"url": "https://files.example/1", "mimeType": mime, "name": name}]);
    for (actor, c, body, files) in [
        (&alice, &c, "holiday", file("image/png", "beach sunset.png")),
        (
            &bob,
            &c,
            "the plan",
            file("application/pdf", "final-plan.pdf"),
        ),
        (&alice, &other, "see https://example.com/beach", json!([])),
        (&bob, &other, "a song", file("audio/ogg", "waves.ogg")),
    ] {
        actor
            .data(send, json!({"c": c, "b": body, "a": files}))
            .await;
    }
    assert_eq!(
        across(&bob, "beach").await,
        ["see https://example.com/beach", "holiday"]
    );
    let page = within(&bob, &c, json!({"q": "sunset"})).await;
    let snippet = page["edges"][0]["snippet"].as_array().unwrap();
    let shown: String = snippet.iter().map(|part| text(&part["text"])).collect();
    assert_eq!(shown, "beach sunset.png");

    let filtered = async |filter: Value| {
        let data = bob.data(ACROSS, json!({"f": filter})).await;
        bodies(&data["searchMessages"])
    };
    assert_eq!(filtered(json!({"has": ["IMAGE"]})).await, ["holiday"]);
    assert_eq!(filtered(json!({"has": ["FILE"]})).await, ["the plan"]);
    assert_eq!(filtered(json!({"has": ["AUDIO"]})).await, ["a song"]);
    assert_eq!(
        filtered(json!({"has": ["LINK"]})).await,
        ["see https://example.com/beach"]
    );
    assert!(filtered(json!({"has": ["LINK", "IMAGE"]})).await.is_empty());
    assert_eq!(
        filtered(json!({"senderUsernames": ["bob"]})).await,
        ["a song", "the plan"]
    );
    assert_eq!(
        filtered(json!({"senderUsernames": ["bob"], "conversationKind": "DIRECT"})).await,
        ["the plan"]
    );
    assert!(
        filtered(json!({"until": "2020-01-01T00:00:00Z"}))
            .await
            .is_empty()
    );
    assert_eq!(
        filtered(json!({"from": "2020-01-01T00:00:00Z"}))
            .await
            .len(),
        4
    );
    let gallery = within(&bob, &c, json!({"f": {"has": ["IMAGE"]}})).await;
    assert_eq!(gallery["edges"][0]["snippet"], json!([]));
    assert_eq!(bodies(&gallery), ["holiday"]);
}

#[tokio::test]
async fn pages_of_any_size_hold_each_match_once_and_in_order() {
    let world = World::open().await;
    let alice = world.user("alice");
    let mut conversations = Vec::new();
    for name in ["bob", "carol", "dave", "erin"] {
        conversations.push(alice.direct(name).await);
    }
    let mut expected = Vec::new();
    for number in 0..60 {
        let c = &conversations[(number * 7) % 4];
        let body = match number % 3 {
            0 => format!("needle {number}"),
            1 => format!("hay {number}"),
            _ => format!("needles in hay {number}"),
        };
        if body.starts_with("needle") {
            expected.insert(0, (c.clone(), body.clone()));
        }
        alice.send(c, &body).await;
    }
    let all: Vec<_> = expected.iter().map(|(_, body)| body.clone()).collect();
    let first: Vec<_> = expected
        .iter()
        .filter(|(c, _)| *c == conversations[0])
        .map(|(_, body)| body.clone())
        .collect();
    for count in [1, 2, 7, 40, 100] {
        assert_eq!(
            walk(&alice, None, "needle", count).await,
            all,
            "{count} a page"
        );
        let c = Some(conversations[0].as_str());
        assert_eq!(
            walk(&alice, c, "needle", count).await,
            first,
            "{count} a page"
        );
    }
    assert!(walk(&alice, None, "pins", 5).await.is_empty());
}

#[tokio::test]
async fn a_page_ends_at_its_bound_and_the_next_one_goes_on() {
    // With an index the answer would depend on the moment at which it is built.
    let world = World::with_bounds(Bounds {
        is_search_indexed: false,
        ..Bounds::default()
    })
    .await;
    let alice = world.user("alice");
    let (c, other) = (alice.direct("bob").await, alice.direct("carol").await);
    alice.send(&c, "the needle").await;
    // More text than one page judges.
    let hay = "hay ".repeat(4_000);
    for number in 0..80 {
        alice
            .send(if number % 2 == 0 { &c } else { &other }, &hay)
            .await;
    }
    for conversation in [None, Some(c.as_str())] {
        let variables = json!({"q": "needle", "n": 10});
        let page = match conversation {
            Some(c) => within(&alice, c, variables).await,
            None => alice.data(ACROSS, variables).await["searchMessages"].clone(),
        };
        if conversation.is_none() {
            assert!(bodies(&page).is_empty());
            assert_eq!(page["pageInfo"]["hasNextPage"], true);
            assert!(page["pageInfo"]["endCursor"].is_string());
        }
        assert_eq!(
            walk(&alice, conversation, "needle", 10).await,
            ["the needle"]
        );
    }
}

#[tokio::test]
async fn nobody_finds_what_they_may_not_see() {
    let world = World::open().await;
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| world.user(name));
    let group = alice.group("Three", &["bob", "carol"]).await;
    let direct = alice.direct("bob").await;
    alice.send(&direct, "a secret of two").await;
    bob.send(&group, "a secret of three").await;
    assert_eq!(across(&alice, "secret").await.len(), 2);
    assert_eq!(across(&carol, "secret").await, ["a secret of three"]);
    assert!(across(&world.user("dave"), "secret").await.is_empty());

    let block = "mutation { blockUser(input: {username: \"bob\"}) { user { id } } }";
    alice.data(block, json!({})).await;
    assert!(
        across(&alice, "secret").await.is_empty(),
        "neither the hidden conversation nor his messages"
    );
    assert!(bodies(&within(&alice, &group, json!({"q": "secret"})).await).is_empty());
    assert_eq!(across(&bob, "secret").await.len(), 2, "he notices nothing");

    let leave = "mutation($c: ID!) { leaveConversation(input: {conversationId: $c}) { leftConversationId } }";
    carol.data(leave, json!({"c": group})).await;
    assert!(across(&carol, "secret").await.is_empty());
    let gone = carol.data(WITHIN, json!({"c": group, "q": "secret"})).await;
    assert_eq!(gone["conversation"], Value::Null);
}

#[tokio::test]
async fn a_message_is_found_by_the_users_whom_it_mentions() {
    let world = World::open().await;
    let alice = world.user("alice");
    let group = alice.group("Three", &["bob", "carol"]).await;
    let send = "mutation($c: ID!, $b: String!, $u: [String!], $e: Boolean) { sendMessage(input: {conversationId: $c, body: $b,
        mentionedUsernames: $u, mentionsEveryone: $e}) { messageEdge { node { id } } } }";
    for (body, users, everyone) in [
        ("for bob", json!(["bob"]), false),
        ("for carol", json!(["carol"]), false),
        ("for all", Value::Null, true),
        ("for nobody", Value::Null, false),
    ] {
        let variables = json!({"c": group, "b": body, "u": users, "e": everyone});
        alice.data(send, variables).await;
    }
    let mentioning = async |names: &[&str]| {
        let filter = json!({"mentionedUsernames": names});
        bodies(&within(&alice, &group, json!({"f": filter})).await)
    };
    assert_eq!(mentioning(&["bob"]).await, ["for all", "for bob"]);
    assert_eq!(
        mentioning(&["bob", "carol"]).await,
        ["for all", "for carol", "for bob"]
    );
    assert_eq!(mentioning(&["dave"]).await, ["for all"]);
}

#[tokio::test]
async fn archived_conversations_are_searched_and_system_messages_are_not() {
    let world = World::open().await;
    let alice = world.user("alice");
    let group = alice.group("Lunch", &["bob"]).await;
    alice.send(&group, "Lunch?").await;
    let rename = "mutation($c: ID!) { renameConversation(input: {conversationId: $c, name: \"Lunch club\"}) { conversation { id } } }";
    alice.data(rename, json!({"c": group})).await;
    let archive = "mutation($c: ID!) { updateInboxEntry(input: {conversationId: $c, archived: true}) { inboxEntry { isArchived } } }";
    alice.data(archive, json!({"c": group})).await;
    assert_eq!(across(&alice, "lunch").await, ["Lunch?"]);
}

#[tokio::test]
async fn a_search_without_words_and_a_cursor_of_another_search_are_refused() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.direct("bob").await;
    alice.send(&c, "one").await;
    alice.send(&c, "one more").await;
    let path = async |variables: Value| {
        let answer = alice.ask(ACROSS, variables).await;
        assert_eq!(answer.code(), "BAD_USER_INPUT");
        answer.extensions()["inputPath"].clone()
    };
    assert_eq!(path(json!({})).await, json!(["query"]));
    assert_eq!(path(json!({"q": "?!"})).await, json!(["query"]));
    assert_eq!(path(json!({"q": "a".repeat(201)})).await, json!(["query"]));
    assert_eq!(path(json!({"f": {}})).await, json!(["query"]));
    assert_eq!(
        path(json!({"f": {"has": []}})).await,
        json!(["filter", "has"])
    );
    assert_eq!(
        path(json!({"f": {"senderUsernames": []}})).await,
        json!(["filter", "senderUsernames"])
    );
    assert_eq!(path(json!({"q": "one", "n": 101})).await, json!(["first"]));
    let page = alice.data(ACROSS, json!({"q": "one", "n": 1})).await["searchMessages"].clone();
    let cursor = &page["pageInfo"]["endCursor"];
    assert_eq!(
        path(json!({"q": "two", "a": cursor})).await,
        json!(["after"])
    );
    let next = alice.data(ACROSS, json!({"q": "one", "a": cursor})).await;
    assert_eq!(bodies(&next["searchMessages"]), ["one"]);
    let kind = alice
        .ask(
            WITHIN,
            json!({"c": c, "q": "one", "f": {"conversationKind": "GROUP"}}),
        )
        .await;
    assert_eq!(
        kind.extensions()["inputPath"],
        json!(["filter", "conversationKind"])
    );
}

#[tokio::test]
async fn every_search_of_a_document_pays() {
    let rates = RateBounds {
        searches_per_second: 1,
        searches_burst: 2,
        ..Bounds::default().rates
    };
    let world = World::with_rates(rates).await;
    let alice = world.user("alice");
    let document = "{ a: searchMessages(query: \"x\") { isCapped } b: searchMessages(query: \"x\") { isCapped }
        c: searchMessages(query: \"x\") { isCapped } }";
    let answer = alice.ask(document, json!({})).await;
    assert_eq!(answer.code(), "RATE_LIMITED");
    assert!(answer.extensions()["retryAfterMs"].is_u64());
}

/// As many bytes as a message may have: a ligature that unfolds to 33 bytes, and ASCII.
fn ligatures() -> String {
    "\u{fdfa}".repeat(5_400)
}

#[tokio::test]
async fn a_page_ends_after_the_text_that_it_folds() {
    let world = World::with_bounds(Bounds {
        is_search_indexed: false,
        ..Bounds::default()
    })
    .await;
    let alice = world.user("alice");
    for (name, body, pages) in [("bob", ligatures(), 2), ("carol", "hay ".repeat(4_050), 1)] {
        let c = alice.direct(name).await;
        for _ in 0..12 {
            alice.send(&c, &body).await;
        }
        let (mut seen, mut after) = (0, Value::Null);
        loop {
            let page = within(&alice, &c, json!({"q": "needle", "n": 10, "a": after})).await;
            seen += 1;
            if page["pageInfo"]["hasNextPage"] == false {
                break;
            }
            after = page["pageInfo"]["endCursor"].clone();
        }
        assert_eq!(seen, pages, "{name}");
    }
}

#[tokio::test]
async fn a_user_owes_the_work_of_a_search() {
    let rates = RateBounds {
        searches_per_second: 100,
        searches_burst: 100,
        // Nothing refills while the test runs.
        search_work_per_second: 1,
        search_work_burst: 20_000,
        ..Bounds::default().rates
    };
    let world = World::with_rates(rates).await;
    let alice = world.user("alice");
    let c = alice.direct("bob").await;
    for _ in 0..20 {
        alice.send(&c, "Soup at noon?").await;
    }
    for _ in 0..20 {
        assert_eq!(across(&alice, "soup").await.len(), 20);
    }
    alice.send(&c, &ligatures()).await;
    alice.send(&c, &ligatures()).await;
    // The second one waits for the first, and finds its debt.
    let both = "{ a: searchMessages(query: \"soup\") { isCapped } b: searchMessages(query: \"soup\") { isCapped } }";
    let refused = alice.ask(both, json!({})).await;
    assert_eq!(refused.code(), "RATE_LIMITED");
    assert!(refused.extensions()["retryAfterMs"].as_u64() > Some(1_000));
    // The debt is hers alone.
    assert_eq!(across(&world.user("bob"), "soup").await.len(), 20);
}

#[tokio::test]
async fn messages_of_one_moment_in_two_conversations_are_found_once_each() {
    // The messages of the sample share one tick: only the whole key tells their order.
    let world = World::with_sample().await;
    let alice = world.user("alice");
    let all = walk(&alice, None, "e", 100).await;
    for count in [1, 3] {
        assert_eq!(walk(&alice, None, "e", count).await, all);
    }
    let unique: BTreeSet<_> = all.iter().collect();
    assert_eq!(unique.len(), all.len());
}
