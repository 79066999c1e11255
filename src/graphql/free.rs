//! Which fields are the same for everybody who may see them: what is asked of these alone is executed once for all who ask it. `clientKey`
//! is the same for all but the sender, who is told alone.
//!
//! A field counts as the viewer's unless it is listed here. `tests/api/shared.rs` runs each field of the event types for two viewers, and
//! holds this list to it.

use async_graphql::parser::types::{
    ExecutableDocument, Field, OperationType, Selection, SelectionSet,
};

/// What it takes to answer a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// Nothing but what the event holds.
    Nothing,
    /// Nothing but what the event holds; and a message's sender sees what nobody else does.
    Sender,
    /// A read, which the viewer's place in the conversation may decide.
    Reads,
}
use Takes::{Nothing, Reads, Sender};

/// The name of a field, what it takes, and the type that is behind it, where that has fields of its own.
type Row = (&'static str, Takes, &'static str);

const LEAF: &str = "";

/// The types with their free fields. A union has none; its members stand behind fragments.
const FREE: &[(&str, &[Row])] = &[
    (
        "Subscription",
        &[
            ("messageAdded", Nothing, "MessageAddedPayload"),
            ("conversationEvents", Nothing, "ConversationEventPayload"),
            ("typingChanged", Nothing, "TypingPayload"),
        ],
    ),
    (
        "MessageAddedPayload",
        &[("messageEdge", Nothing, "MessageEdge")],
    ),
    (
        "ConversationEventPayload",
        &[
            ("cursor", Nothing, LEAF),
            ("event", Nothing, "ConversationEvent"),
        ],
    ),
    (
        "TypingPayload",
        &[("user", Nothing, "User"), ("isTyping", Nothing, LEAF)],
    ),
    ("ConversationEvent", &[]),
    (
        "MessageAddedEvent",
        &[("messageEdge", Nothing, "MessageEdge")],
    ),
    ("MessageEditedEvent", &[("message", Nothing, "Message")]),
    ("MessageDeletedEvent", &[("message", Nothing, "Message")]),
    ("ReactionsChangedEvent", &[("message", Nothing, "Message")]),
    // What these are about is read before they are shown.
    ("MarkerMovedEvent", &[("participant", Reads, "Participant")]),
    (
        "ParticipantAddedEvent",
        &[("participant", Reads, "Participant")],
    ),
    ("ParticipantRemovedEvent", &[("user", Nothing, "User")]),
    ("RoleChangedEvent", &[("participant", Reads, "Participant")]),
    (
        "ConversationRenamedEvent",
        &[("conversation", Reads, "Conversation")],
    ),
    (
        "MessageEdge",
        &[("cursor", Nothing, LEAF), ("node", Nothing, "Message")],
    ),
    (
        "Message",
        &[
            ("id", Nothing, LEAF),
            ("uuid", Nothing, LEAF),
            ("conversation", Reads, "Conversation"),
            ("sender", Nothing, "User"),
            ("kind", Nothing, LEAF),
            ("body", Nothing, LEAF),
            ("attachments", Nothing, "Attachment"),
            ("metadata", Nothing, LEAF),
            ("replyTo", Reads, "Message"),
            ("clientKey", Sender, LEAF),
            ("createdAt", Nothing, LEAF),
            ("editedAt", Nothing, LEAF),
            ("deletedAt", Nothing, LEAF),
            ("reactions", Reads, "Reaction"),
            ("status", Reads, LEAF),
            ("receipts", Reads, "ReceiptConnection"),
        ],
    ),
    (
        "Attachment",
        &[
            ("url", Nothing, LEAF),
            ("mimeType", Nothing, LEAF),
            ("name", Nothing, LEAF),
            ("sizeBytes", Nothing, LEAF),
            ("width", Nothing, LEAF),
            ("height", Nothing, LEAF),
        ],
    ),
    (
        "User",
        // A profile is everybody's: no place in a conversation decides on it.
        &[
            ("id", Nothing, LEAF),
            ("username", Nothing, LEAF),
            ("displayName", Nothing, LEAF),
            ("avatarUrl", Nothing, LEAF),
        ],
    ),
    (
        "Reaction",
        &[
            ("emoji", Reads, LEAF),
            ("count", Reads, LEAF),
            ("countIsCapped", Reads, LEAF),
            ("users", Reads, "User"),
        ],
    ),
    (
        "Conversation",
        &[
            ("id", Reads, LEAF),
            ("uuid", Reads, LEAF),
            ("kind", Reads, LEAF),
            ("name", Reads, LEAF),
            ("createdAt", Reads, LEAF),
            ("createdBy", Reads, "User"),
            ("participants", Reads, "ParticipantConnection"),
            ("participantCount", Reads, LEAF),
            ("messages", Reads, "MessageConnection"),
            ("messageCount", Reads, LEAF),
            ("lastMessage", Reads, "Message"),
        ],
    ),
    (
        "Participant",
        &[
            ("id", Reads, LEAF),
            ("user", Reads, "User"),
            ("conversation", Reads, "Conversation"),
            ("role", Reads, LEAF),
            ("joinedAt", Reads, LEAF),
            ("readUpTo", Reads, "Message"),
            ("deliveredUpTo", Reads, "Message"),
        ],
    ),
    (
        "ReceiptConnection",
        &[
            ("edges", Reads, "ReceiptEdge"),
            ("pageInfo", Reads, "PageInfo"),
        ],
    ),
    (
        "ReceiptEdge",
        &[("cursor", Reads, LEAF), ("node", Reads, "Receipt")],
    ),
    (
        "Receipt",
        &[("user", Reads, "User"), ("status", Reads, LEAF)],
    ),
    (
        "ParticipantConnection",
        &[
            ("edges", Reads, "ParticipantEdge"),
            ("pageInfo", Reads, "PageInfo"),
        ],
    ),
    (
        "ParticipantEdge",
        &[("cursor", Reads, LEAF), ("node", Reads, "Participant")],
    ),
    (
        "MessageConnection",
        &[
            ("edges", Reads, "MessageEdge"),
            ("pageInfo", Reads, "PageInfo"),
        ],
    ),
    (
        "PageInfo",
        &[
            ("hasNextPage", Reads, LEAF),
            ("hasPreviousPage", Reads, LEAF),
            ("startCursor", Reads, LEAF),
            ("endCursor", Reads, LEAF),
        ],
    ),
];

/// That nothing in an operation is its viewer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Free {
    /// Something is read for it that the viewer's place in the conversation may decide.
    pub(super) reads: bool,
    /// The sender of a message is shown something that others are not.
    pub(super) senders: bool,
}

fn fields_of(kind: &str) -> Option<&'static [Row]> {
    FREE.iter()
        .find(|(name, _)| *name == kind)
        .map(|(_, fields)| *fields)
}

/// `None` where something in it is the viewer's. A subscription has one field at its root.
pub(super) fn free(
    document: &ExecutableDocument,
    root: &SelectionSet,
    operation: OperationType,
) -> Option<Free> {
    if operation != OperationType::Subscription {
        return None;
    }
    let mut free = Free {
        reads: false,
        senders: false,
    };
    look(document, root, "Subscription", &mut free).then_some(free)
}

/// Fragments that spread themselves were refused before.
fn look(document: &ExecutableDocument, set: &SelectionSet, kind: &str, free: &mut Free) -> bool {
    set.items.iter().all(|item| {
        let (condition, set) = match &item.node {
            Selection::Field(field) => return look_at(document, &field.node, kind, free),
            Selection::InlineFragment(inline) => (
                inline.node.type_condition.as_ref(),
                &inline.node.selection_set.node,
            ),
            Selection::FragmentSpread(spread) => {
                match document.fragments.get(&spread.node.fragment_name.node) {
                    Some(fragment) => (
                        Some(&fragment.node.type_condition),
                        &fragment.node.selection_set.node,
                    ),
                    None => return false,
                }
            }
        };
        let kind = condition.map_or(kind, |condition| condition.node.on.node.as_str());
        look(document, set, kind, free)
    })
}

fn look_at(document: &ExecutableDocument, field: &Field, kind: &str, free: &mut Free) -> bool {
    if field.name.node == "__typename" {
        return true;
    }
    let row = fields_of(kind)
        .and_then(|fields| fields.iter().find(|(name, ..)| field.name.node == *name));
    let Some((_, takes, behind)) = row else {
        return false;
    };
    free.reads |= *takes == Reads;
    free.senders |= *takes == Sender;
    look(document, &field.selection_set.node, behind, free)
}
