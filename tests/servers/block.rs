//! Blocks on every server: what one server writes, another follows within four seconds.

use std::time::{Duration, Instant};

use serde_json::json;

use super::pair::{Server, people, two};
use crate::support::world::{Actor, Answer, PATIENCE, text};

const DEVICE: &str = "subscription { inboxUpdated { event { __typename ... on BlockChangedEvent { user { username viewerHasBlocked } }
    ... on InboxEntryRemovedEvent { conversationId } } } }";

#[tokio::test]
async fn a_block_on_one_server_holds_on_the_other_within_four_seconds() {
    let Some((one, other)) = two().await else {
        return;
    };
    let [anna, ben] = people(["anna", "ben"]);
    let (here, there) = (one.actor(&anna), other.actor(&anna));
    let ben_there = other.actor(&ben);
    let c = here.direct(ben.as_str()).await;
    ben_there.send(&c, "hi").await;
    let mut device = there.subscribe(DEVICE, json!({}));
    device.next().await;
    let messages =
        "subscription($c: ID!) { messageAdded(conversationId: $c) { messageEdge { cursor } } }";
    let mut stream = there.subscribe(messages, json!({"c": c}));
    assert!(stream.is_quiet());
    // A stream that delivers is open.
    ben_there.send(&c, "first").await;
    stream.next().await;
    let before = device.next().await["inboxUpdated"]["event"].clone();
    assert_eq!(before["__typename"], "InboxEntryChangedEvent");
    for (mutation, has_blocked) in [("blockUser", true), ("unblockUser", false)] {
        let document = format!(
            "mutation($u: String!) {{ {mutation}(input: {{username: $u}}) {{ user {{ viewerHasBlocked }} }} }}"
        );
        let said = here.data(&document, json!({"u": ben.as_str()})).await;
        assert_eq!(said[mutation]["user"]["viewerHasBlocked"], has_blocked);
        let event = device.next().await["inboxUpdated"]["event"].clone();
        let user = json!({"username": ben.as_str(), "viewerHasBlocked": has_blocked});
        assert_eq!(
            event,
            json!({"__typename": "BlockChangedEvent", "user": user})
        );
        let event = device.next().await["inboxUpdated"]["event"].clone();
        if has_blocked {
            assert_eq!(text(&event["conversationId"]), c);
            assert!(stream.has_ended().await);
            let document = "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"x\"}) { __typename } }";
            assert_eq!(
                there.ask(document, json!({"c": c})).await.code(),
                "FORBIDDEN"
            );
            ben_there.send(&c, "hello?").await;
            let inbox = "{ inbox { edges { node { id } } } }";
            let inbox = there.data(inbox, json!({})).await;
            assert_eq!(inbox["inbox"]["edges"], json!([]));
        } else {
            assert_eq!(event["__typename"], "InboxEntryChangedEvent");
            assert_eq!(there.unread(&c).await, 0);
        }
    }
}

/// A list that is held costs no statement, however often it is asked.
#[tokio::test]
async fn blocks_cost_a_send_and_a_page_no_statement() {
    let Some((one, _other)) = two().await else {
        return;
    };
    let [anna, ben] = people(["anna", "ben"]);
    let lists = one.chat.access.blocks();
    lists.of(&anna).await.unwrap();
    let before = one.cql.statements_sent();
    for _ in 0..1_000 {
        assert!(!lists.of(&anna).await.unwrap().has(&ben));
    }
    let statements = one.cql.statements_sent() - before;
    assert!(statements < 100, "{statements} statements");
}

/// One of two users like each other, of whom the second blocks the one who asks.
struct Peer {
    name: String,
    direct: String,
    group: String,
    /// A message of the one who asks, in the direct conversation.
    sent: String,
}

/// Operations that a blocked user can call.
const OPERATIONS: [&str; 17] = [
    "query($c: ID!) { conversation(id: $c) { kind participantCount messageCount directPeer { displayName viewerHasBlocked presence { isOnline } }
        viewerParticipant { role isSilenced } participants { edges { node { role readUpTo { body } deliveredUpTo { body } } } }
        lastMessage { kind } inboxEntry { unreadCount isMuted isPinned isArchived } } }",
    "query($c: ID!) { conversation(id: $c) { messages(first: 3) { edges { node { kind status reactions { emoji } receipts { edges { node { status } } } } } } } }",
    "query($g: ID!) { conversation(id: $g) { participantCount participants(usernamePrefix: \"ben\") { edges { node { role } } }
        messages { edges { node { body kind } } } inboxEntry { unreadCount } } }",
    "query { blockedUsers { edges { cursor } } }",
    "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"probe\"}) { messageEdge { node { body status } } inboxEntryEdge { node { unreadCount } } } }",
    "mutation($g: ID!) { sendMessage(input: {conversationId: $g, body: \"probe\"}) { messageEdge { node { body } } } }",
    "mutation($c: ID!) { setTyping(input: {conversationId: $c, typing: true}) { conversation { kind } } }",
    "mutation($c: ID!) { markRead(input: {conversationId: $c}) { inboxEntry { unreadCount } } }",
    "mutation($c: ID!) { markDelivered(input: {conversationId: $c}) { inboxEntry { unreadCount } } }",
    "mutation($c: ID!, $m: ID!) { markUnread(input: {conversationId: $c, messageId: $m}) { inboxEntry { isMuted } } }",
    "mutation($c: ID!) { updateInboxEntry(input: {conversationId: $c, muted: true}) { inboxEntry { isMuted } } }",
    "mutation($m: ID!) { editMessage(input: {messageId: $m, body: \"better\"}) { message { body } } }",
    "mutation($m: ID!) { addReaction(input: {messageId: $m, emoji: \"👍\"}) { message { reactions { emoji count } } } }",
    "mutation($m: ID!) { removeReaction(input: {messageId: $m, emoji: \"👍\"}) { message { body } } }",
    "mutation($u: String!) { startDirectConversation(input: {username: $u}) { conversation { kind participantCount } } }",
    "mutation($m: ID!) { deleteMessage(input: {messageId: $m}) { message { body } } }",
    "mutation($c: ID!) { banParticipant(input: {conversationId: $c, username: \"x\"}) { removedParticipantId } }",
];

/// Runs of each operation, after a first one that fills the server's caches. The cheapest one counts,
/// because a server also polls, and does so during every run on a busy machine. So runs go on while the
/// cheapest ones differ.
const RUNS: usize = 8;
const RUNS_MAX: usize = 100;

/// Everything that a blocked user can call answers with the same bytes as for one who is not blocked, and
/// for the same number of statements: neither answers nor times tell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_bytes_nor_statements_tell_a_blocked_user_of_it() {
    let Some((one, _other)) = two().await else {
        return;
    };
    let [ben, anna, emma, cara] = people(["ben.", "anna", "emma", "cara"]);
    let asking = one.actor(&ben);
    let mut peers = Vec::new();
    for user in [&anna, &emma] {
        let actor = one.actor(user);
        let direct = actor.direct(ben.as_str()).await;
        let group = one
            .actor(&cara)
            .group("friends", &[user.as_str(), ben.as_str()])
            .await;
        actor.send(&direct, "hello").await;
        actor.send(&group, "hello").await;
        let sent = asking.send(&direct, "hi").await.id;
        peers.push(Peer {
            name: user.as_str().to_owned(),
            direct,
            group,
            sent,
        });
    }
    let block = "mutation($u: String!) { blockUser(input: {username: $u}) { user { username } } }";
    let blocker = one.actor(&emma);
    blocker.data(block, json!({"u": ben.as_str()})).await;
    for document in OPERATIONS {
        let mut least = [u64::MAX; 2];
        for run in 0..=RUNS_MAX {
            let mut answers = Vec::new();
            for (cheapest, peer) in least.iter_mut().zip(&peers) {
                let (answer, cost) = cost_of(&one, &asking, document, peer).await;
                if run > 0 {
                    *cheapest = cost.min(*cheapest);
                }
                answers.push(answer);
            }
            assert_eq!(answers[0], answers[1], "{document}");
            if run >= RUNS && least[0] == least[1] {
                break;
            }
        }
        assert_eq!(least[0], least[1], "{document}");
    }
}

/// The answer to an operation on a peer, and the statements that it and the server's polls cost. A busy
/// node may let requests time out, which tells nothing of the peer: it is asked again.
async fn cost_of(server: &Server, asking: &Actor, document: &str, peer: &Peer) -> (String, u64) {
    let variables: serde_json::Map<_, _> = [
        ("c", &peer.direct),
        ("g", &peer.group),
        ("m", &peer.sent),
        ("u", &peer.name),
    ]
    .into_iter()
    .filter(|(name, _)| document.contains(&format!("${name}:")))
    .map(|(name, value)| (name.to_owned(), json!(value)))
    .collect();
    let started = Instant::now();
    loop {
        let before = server.cql.statements_sent();
        let Answer(answer) = asking.ask(document, variables.clone().into()).await;
        let cost = server.cql.statements_sent() - before;
        if answer["errors"][0]["extensions"]["code"] != "UNAVAILABLE" {
            return (answer.to_string(), cost);
        }
        assert!(
            started.elapsed() < PATIENCE,
            "the store is unavailable for {PATIENCE:?}: {document}: {answer}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
