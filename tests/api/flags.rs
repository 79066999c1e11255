//! Settings of a user on an inbox entry: muted, pinned, archived.

use serde_json::{Value, json};

use super::inbox::{conversations, inbox};
use crate::support::world::{Actor, World, text};

const SET: &str = "mutation($c: ID!, $muted: Boolean, $pinned: Boolean, $archived: Boolean) {
    updateInboxEntry(input: {conversationId: $c, muted: $muted, pinned: $pinned, archived: $archived}) {
        inboxEntry { isMuted isPinned isArchived conversation { id } } } }";
const UPDATED: &str = "subscription($after: String) { inboxUpdated(after: $after) { cursor event {
    ... on InboxEntryChangedEvent { inboxEntryEdge { node { isMuted isPinned isArchived conversation { id } } } } } } }";

/// The flags as an entry shows them: muted, pinned, archived.
type Flags = (bool, bool, bool);

fn flags(entry: &Value) -> Flags {
    let flag = |name: &str| entry[name].as_bool().unwrap();
    (flag("isMuted"), flag("isPinned"), flag("isArchived"))
}

async fn set(actor: &Actor, conversation: &str, mut settings: Value) -> Flags {
    settings["c"] = json!(conversation);
    let data = actor.data(SET, settings).await;
    let entry = &data["updateInboxEntry"]["inboxEntry"];
    assert_eq!(entry["conversation"]["id"], conversation);
    assert_eq!(
        flags(entry),
        shown(actor, conversation).await,
        "the answer is what is read then"
    );
    flags(entry)
}

async fn shown(actor: &Actor, conversation: &str) -> Flags {
    let document =
        "query($c: ID!) { conversation(id: $c) { inboxEntry { isMuted isPinned isArchived } } }";
    flags(&actor.data(document, json!({"c": conversation})).await["conversation"]["inboxEntry"])
}

#[tokio::test]
async fn omitted_flags_stay_unchanged() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    assert_eq!(set(&alice, &c, json!({})).await, (false, false, false));
    assert_eq!(
        set(&alice, &c, json!({"muted": true})).await,
        (true, false, false)
    );
    assert_eq!(
        set(&alice, &c, json!({"pinned": true, "muted": null})).await,
        (true, true, false)
    );
    assert_eq!(
        set(&alice, &c, json!({"archived": true})).await,
        (true, true, true)
    );
    assert_eq!(
        set(&alice, &c, json!({"muted": false, "archived": false})).await,
        (false, true, false)
    );
    assert_eq!(
        shown(&bob, &c).await,
        (false, false, false),
        "another user's entry is another one"
    );
    drop((alice, bob));
    let world = world.restarted().await;
    assert_eq!(shown(&world.user("alice"), &c).await, (false, true, false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_that_set_different_flags_at_once_all_win() {
    let world = World::open().await;
    let alice = world.user("alice");
    for i in 0..10 {
        let c = alice.direct(&format!("friend-{i}")).await;
        let settings = [
            json!({"muted": true}),
            json!({"pinned": true}),
            json!({"archived": true}),
        ];
        let at_once = settings.map(|mut settings| {
            settings["c"] = json!(c);
            alice.data(SET, settings)
        });
        futures_util::future::join_all(at_once).await;
        assert_eq!(shown(&alice, &c).await, (true, true, true));
    }
}

#[tokio::test]
async fn an_archive_ends_with_a_newer_message_unless_muted() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let hidden = async || conversations(&inbox(&alice, json!({})).await).is_empty();
    bob.send(&c, "one").await;
    assert_eq!(
        set(&alice, &c, json!({"archived": true})).await,
        (false, false, true)
    );
    assert!(hidden().await);
    bob.send(&c, "two").await;
    assert_eq!(shown(&alice, &c).await, (false, false, false));
    assert!(!hidden().await);
    assert_eq!(
        set(&alice, &c, json!({"muted": true})).await,
        (true, false, false),
        "muting brings no archive back"
    );
    assert_eq!(
        set(&alice, &c, json!({"archived": true})).await,
        (true, false, true)
    );
    bob.send(&c, "three").await;
    assert!(hidden().await, "a muted one stays away");
    assert_eq!(
        set(&alice, &c, json!({"muted": false, "archived": true})).await,
        (false, false, true)
    );
    assert!(hidden().await);
    alice.send(&c, "four").await;
    assert!(!hidden().await, "one's own message brings it back too");
}

#[tokio::test]
async fn archived_and_pinned_entries_page_honestly() {
    let world = World::open().await;
    let alice = world.user("alice");
    let (mut archived, mut others, mut pinned) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..10 {
        let c = alice.direct(&format!("friend-{i}")).await;
        set(
            &alice,
            &c,
            json!({"archived": i % 2 == 0, "pinned": i % 4 == 1}),
        )
        .await;
        let list = if i % 2 == 0 {
            &mut archived
        } else {
            &mut others
        };
        list.insert(0, c.clone());
        if i % 4 == 1 {
            pinned.insert(0, c);
        }
    }
    assert_eq!(conversations(&inbox(&alice, json!({})).await), others);
    assert_eq!(
        conversations(&inbox(&alice, json!({"filter": {"archived": false}})).await),
        others
    );
    assert_eq!(
        conversations(&inbox(&alice, json!({"filter": {"archived": true}})).await),
        archived
    );
    assert_eq!(
        conversations(&inbox(&alice, json!({"filter": {"pinned": true}})).await),
        pinned
    );
    let unpinned: Vec<_> = others
        .iter()
        .filter(|c| !pinned.contains(c))
        .cloned()
        .collect();
    assert_eq!(
        conversations(&inbox(&alice, json!({"filter": {"pinned": false}})).await),
        unpinned
    );
    assert_eq!(
        conversations(
            &inbox(
                &alice,
                json!({"filter": {"pinned": true, "archived": true}})
            )
            .await
        )
        .len(),
        0
    );
    for (filter, expected) in [
        (json!({"archived": true}), &archived),
        (json!({"pinned": true}), &pinned),
        (json!({}), &others),
    ] {
        for (count, cursor, end, more, behind) in [
            (
                "first",
                "after",
                "endCursor",
                "hasNextPage",
                "hasPreviousPage",
            ),
            (
                "last",
                "before",
                "startCursor",
                "hasPreviousPage",
                "hasNextPage",
            ),
        ] {
            let (mut pages, mut place) = (Vec::new(), Value::Null);
            loop {
                let mut arguments = json!({"filter": filter});
                arguments[count] = json!(2);
                arguments[cursor] = place;
                let page = inbox(&alice, arguments).await;
                assert_eq!(
                    page["pageInfo"][behind],
                    !pages.is_empty(),
                    "{filter} by {count}"
                );
                pages.push(conversations(&page));
                if page["pageInfo"][more] == false {
                    break;
                }
                place = page["pageInfo"][end].clone();
            }
            if count == "last" {
                pages.reverse();
            }
            assert_eq!(pages.concat(), *expected, "{filter} by {count}");
        }
    }
}

#[tokio::test]
async fn the_summary_leaves_out_what_is_muted_or_archived() {
    let world = World::open().await;
    let alice = world.user("alice");
    let count = async || {
        alice
            .data("{ inboxSummary { unreadConversationCount } }", json!({}))
            .await["inboxSummary"]
            .clone()
    };
    let mut ids = Vec::new();
    for i in 0..4 {
        let name = format!("friend-{i}");
        let c = alice.direct(&name).await;
        world.user(&name).send(&c, "ping").await;
        ids.push(c);
    }
    set(&alice, &ids[0], json!({"muted": true})).await;
    set(&alice, &ids[1], json!({"archived": true})).await;
    set(&alice, &ids[2], json!({"pinned": true})).await;
    assert_eq!(count().await, json!({"unreadConversationCount": 2}));
    world.user("friend-1").send(&ids[1], "ping").await;
    assert_eq!(
        count().await,
        json!({"unreadConversationCount": 3}),
        "a newer message has ended the archive"
    );
    set(&alice, &ids[0], json!({"muted": false})).await;
    assert_eq!(count().await, json!({"unreadConversationCount": 4}));
}

#[tokio::test]
async fn a_change_is_told_live_and_after_a_resume_and_nothing_to_nobody() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let crowd: Vec<_> = (0..40).map(|i| format!("user-{i}")).collect();
    let large = alice
        .group(
            "crowd",
            &crowd.iter().map(String::as_str).collect::<Vec<_>>(),
        )
        .await;
    let small = alice.direct("bob").await;
    let start = inbox(&alice, json!({})).await["updatesCursor"].clone();
    let (mut hers, mut his) = (
        alice.subscribe(UPDATED, json!({})),
        bob.subscribe(UPDATED, json!({})),
    );
    assert_eq!(hers.next().await["inboxUpdated"]["event"], Value::Null);
    assert_eq!(his.next().await["inboxUpdated"]["event"], Value::Null);
    let node = |payload: &Value| payload["inboxUpdated"]["event"]["inboxEntryEdge"]["node"].clone();
    for (c, settings, expected) in [
        (&small, json!({"muted": true}), (true, false, false)),
        (&large, json!({"pinned": true}), (false, true, false)),
        (&small, json!({"archived": true}), (true, false, true)),
    ] {
        // Twice: the second time it is so already.
        set(&alice, c, settings.clone()).await;
        set(&alice, c, settings).await;
        let told = node(&hers.next().await);
        assert_eq!(
            (text(&told["conversation"]["id"]), flags(&told)),
            (c.clone(), expected)
        );
    }
    // The first payload proves that no other payload came before it.
    let other = bob.direct("carol").await;
    assert_eq!(
        node(&his.next().await)["conversation"]["id"],
        json!(other),
        "hers are nobody else's"
    );
    set(&alice, &large, json!({"muted": true})).await;
    assert_eq!(node(&hers.next().await)["conversation"]["id"], json!(large));
    let mut resumed = alice.subscribe(UPDATED, json!({"after": start}));
    assert_eq!(resumed.next().await["inboxUpdated"]["event"], Value::Null);
    let told = [resumed.next().await, resumed.next().await];
    let told = told.each_ref().map(|payload| {
        (
            text(&node(payload)["conversation"]["id"]),
            flags(&node(payload)),
        )
    });
    assert_eq!(
        told,
        [(small, (true, false, true)), (large, (true, true, false))]
    );
    assert!(resumed.is_quiet());
}

#[tokio::test]
async fn an_argument_whose_variable_has_no_value_has_its_default() {
    let world = World::open().await;
    let alice = world.user("alice");
    let document = "query($d: Boolean) { __type(name: \"UserEdge\") { fields(includeDeprecated: $d) { name } } }";
    let data = alice.data(document, json!({})).await;
    assert_eq!(
        data["__type"]["fields"],
        json!([{"name": "cursor"}, {"name": "node"}])
    );
}
