//! Ids and cursors that were good once.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

use super::server::Target;
use super::tape::{Tape, play};

const DOCUMENTS: &[&str] = &[
    "query($a: ID!, $b: ID!) { node(id: $a) { __typename id } nodes(ids: [$a, $b]) { id } }",
    "query($a: ID!, $b: String) { conversation(id: $a) { id messages(first: 3, after: $b) { edges { cursor node { id } } pageInfo { hasNextPage } } } }",
    "query($a: ID!, $b: String) { conversation(id: $a) { id messages(last: 3, before: $b) { edges { cursor } pageInfo { hasPreviousPage } } } }",
    "query($a: ID!, $b: ID!) { conversation(id: $a) { messages(first: 3, around: $b) { edges { cursor } } } }",
    "query($a: ID!, $b: String) { conversation(id: $a) { participants(first: 2, after: $b) { edges { cursor node { id user { id } } } } } }",
    "query($a: String, $b: String) { inbox(first: 2, after: $a, before: $b) { edges { cursor } updatesCursor } }",
    "mutation($a: ID!, $b: ID!) { markRead(input: { conversationId: $a, messageId: $b }) { inboxEntry { unreadCount } } }",
    "mutation($a: ID!, $b: ID!) { markUnread(input: { conversationId: $a, messageId: $b }) { inboxEntry { unreadCount } } }",
    "mutation($a: ID!, $b: ID!) { sendMessage(input: { conversationId: $a, body: \"x\", replyToId: $b }) { messageEdge { cursor } } }",
    "mutation($a: ID!, $b: String!) { editMessage(input: { messageId: $a, body: $b }) { message { id } } }",
];

pub(super) fn damaged(tape: &mut Tape, named: &[String]) -> String {
    let text = &named[tape.number(named.len())];
    match tape.number(5) {
        0 => text.clone(),
        1 => tape.damage(text),
        _ => {
            let mut bytes = URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
            tape.damage_bytes(&mut bytes);
            URL_SAFE_NO_PAD.encode(bytes)
        }
    }
}

#[test]
fn damaged_ids_and_cursors_are_bad_input_or_name_nothing() {
    let target = Target::start();
    let mut caller = target.caller();
    let make = |tape: &mut Tape| {
        (
            tape.one_of(DOCUMENTS),
            [damaged(tape, &target.named), damaged(tape, &target.named)],
        )
    };
    play(make, |(document, [a, b])| {
        target.ask(&mut caller, document, &json!({ "a": a, "b": b }));
    });
    target.ends_well();
}
