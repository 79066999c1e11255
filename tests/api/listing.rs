//! Lists for services: all users, all conversations, and those of one user.

use serde_json::{Value, json};

use crate::support::door::Door;
use crate::support::world::{Actor, World, node_texts};

const USERS: &str = "query($n: Int, $a: String) { page: users(first: $n, after: $a) {
    edges { cursor node { name: username } } pageInfo { hasNextPage hasPreviousPage startCursor endCursor } } }";
const CONVERSATIONS: &str = "query($n: Int, $a: String, $u: String, $k: ConversationKind) {
    page: conversations(first: $n, after: $a, participantUsername: $u, kind: $k) {
    edges { cursor node { name: id } } pageInfo { hasNextPage hasPreviousPage startCursor endCursor } } }";

/// A page that a service reads.
async fn page(door: &Door, document: &str, variables: &Value) -> Value {
    let said = door.ask(&door.service(), document, variables).await.json();
    assert!(said.get("errors").is_none(), "{said}");
    said["data"]["page"].clone()
}

fn names(page: &Value) -> Vec<String> {
    node_texts(&page["edges"], "/name")
}

/// All pages of a list, so many edges at a time.
async fn walk(door: &Door, document: &str, mut variables: Value, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    variables["n"] = json!(count);
    loop {
        let page = page(door, document, &variables).await;
        let found = names(&page);
        assert!(found.len() <= count);
        all.extend(found);
        if page["pageInfo"]["hasNextPage"] == false {
            return all;
        }
        variables["a"] = page["pageInfo"]["endCursor"].clone();
    }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

async fn rename(actor: &Actor) {
    let document = "mutation { updateProfile(input: {displayName: \"Me\"}) { __typename } }";
    actor.data(document, Value::Null).await;
}

/// On a keyspace that cases share, others' rows are among them.
fn own(found: Vec<String>, known: &[String]) -> Vec<String> {
    sorted(
        found
            .into_iter()
            .filter(|one| known.contains(one))
            .collect(),
    )
}

#[tokio::test]
async fn services_list_users_and_conversations_of_any_kind() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    let people = ["alice", "bob", "carol"].map(|name| world.user(name));
    for one in &people {
        rename(one).await;
    }
    let [alice, bob, carol] = &people;
    let direct = alice.direct("bob").await;
    let first = alice.group("first", &["bob", "carol"]).await;
    let second = carol.group("second", &["bob", "dave"]).await;
    bob.send(&second, "Hello").await;
    alice.send(&direct, "Hello").await;
    bob.send(&first, "Hello").await;
    let known = ["alice", "bob", "carol"].map(str::to_owned);
    let all = [&direct, &first, &second].map(String::clone);
    for count in [1, 2, 3, 100] {
        let found = walk(&door, USERS, json!({}), count).await;
        assert_eq!(own(found, &known), known, "{count} at a time");
        let found = walk(&door, CONVERSATIONS, json!({}), count).await;
        assert_eq!(own(found, &all), sorted(all.to_vec()), "{count} at a time");
        let groups = walk(&door, CONVERSATIONS, json!({"k": "GROUP"}), count).await;
        let wanted = sorted(vec![first.clone(), second.clone()]);
        assert_eq!(own(groups, &all), wanted, "{count} at a time");
        let of_bob = walk(&door, CONVERSATIONS, json!({"u": "bob"}), count).await;
        let wanted = [&first, &direct, &second].map(String::clone);
        assert_eq!(of_bob, wanted, "the most recently active first");
        let variables = json!({"u": "bob", "k": "GROUP"});
        let groups = walk(&door, CONVERSATIONS, variables, count).await;
        assert_eq!(groups, [first.clone(), second.clone()]);
    }
    let of_nobody = page(&door, CONVERSATIONS, &json!({"u": "nobody"})).await;
    let end = json!({"hasNextPage": false, "hasPreviousPage": false, "startCursor": null, "endCursor": null});
    assert_eq!((names(&of_nobody), &of_nobody["pageInfo"]), (vec![], &end));
    let none = page(&door, CONVERSATIONS, &json!({"n": 0})).await;
    assert_eq!(
        (names(&none), &none["pageInfo"]["hasNextPage"]),
        (vec![], &json!(true))
    );
    let archive = "mutation($c: ID!) { updateInboxEntry(input: {conversationId: $c, archived: true}) { __typename } }";
    bob.data(archive, json!({"c": first})).await;
    let of_bob = walk(&door, CONVERSATIONS, json!({"u": "bob"}), 20).await;
    assert_eq!(of_bob.len(), 3, "an archived one is listed");
}

#[tokio::test]
async fn a_page_that_filters_reads_a_thousand_rows_at_most() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    let alice = world.user("alice");
    let group = alice.group("the oldest", &["bob"]).await;
    for number in 0..501 {
        alice.direct(&format!("user{number}")).await;
    }
    let groups = json!({"u": "alice", "k": "GROUP"});
    let short = page(&door, CONVERSATIONS, &groups).await;
    assert_eq!(names(&short), Vec::<String>::new());
    assert_eq!(short["pageInfo"]["hasNextPage"], true, "there is more");
    let found = walk(&door, CONVERSATIONS, groups, 20).await;
    assert_eq!(found, [group]);
}

#[tokio::test]
async fn only_a_service_under_its_own_name_lists() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    let alice = world.user("alice");
    alice.direct("bob").await;
    for document in [
        "{ users { edges { cursor } } }",
        "{ conversations { edges { cursor } } }",
    ] {
        for badge in [door.user("alice"), door.service().acting_as("alice")] {
            let said = door.ask(&badge, document, &json!({})).await;
            assert_eq!(said.code(), "FORBIDDEN", "{document}");
        }
    }
    let listed = page(&door, CONVERSATIONS, &json!({"u": "alice"})).await;
    let cursor = &listed["pageInfo"]["endCursor"];
    for (document, arguments, path) in [
        (CONVERSATIONS, json!({"u": "bob", "a": cursor}), "after"),
        (CONVERSATIONS, json!({"a": cursor}), "after"),
        (USERS, json!({"a": cursor}), "after"),
        (USERS, json!({"n": 101}), "first"),
        (CONVERSATIONS, json!({"n": -1}), "first"),
        (CONVERSATIONS, json!({"u": "a\tb"}), "participantUsername"),
    ] {
        let said = door.ask(&door.service(), document, &arguments).await;
        assert_eq!(said.code(), "BAD_USER_INPUT", "{arguments}");
        let path_of = &said.json()["errors"][0]["extensions"]["inputPath"];
        assert_eq!(*path_of, json!([path]), "{arguments}");
    }
}
