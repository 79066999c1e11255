//! Viewer independence: fields with the same value for every viewer who may see them. A document of
//! such fields alone is executed once for all its subscribers.
//!
//! A field counts as dependent on the viewer unless it is listed here. `clientKey` is listed, as
//! only the sender receives another value, and `viewerHasBlocked`, as only a blocker does. A viewer with a floor of their own
//! receives no payload that shows an older message. `tests/api/shared.rs` executes each field of the event
//! types for two viewers and checks this list.

use async_graphql::parser::types::{Field, OperationType, SelectionSet};

use crate::graphql::execution::{Prepared, each_field_of};

/// Data that a field needs besides the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldCost {
    /// None.
    Nothing,
    /// None, but the sender of the message receives another value.
    Sender,
    /// A read of the store, which may depend on the viewer's membership.
    Reads,
}
use FieldCost::{Nothing, Reads, Sender};

/// Name of a field, its cost, and its type if that has fields.
type FieldRow = (&'static str, FieldCost, &'static str);

const LEAF: &str = "";

/// Types with their viewer-independent fields. A union has no fields; documents select its members
/// by fragments.
const INDEPENDENT_FIELDS: &[(&str, &[FieldRow])] = &[
    (
        "Subscription",
        &[
            ("messageAdded", Nothing, "MessageAddedPayload"),
            ("conversationEvents", Nothing, "ConversationEventPayload"),
            ("typingChanged", Nothing, "TypingPayload"),
            ("liveMessages", Nothing, "LiveMessagePayload"),
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
            ("isLive", Nothing, LEAF),
        ],
    ),
    (
        "TypingPayload",
        &[("user", Nothing, "User"), ("isTyping", Nothing, LEAF)],
    ),
    (
        "LiveMessagePayload",
        &[
            ("cursor", Nothing, LEAF),
            ("liveMessage", Nothing, "LiveMessage"),
            ("text", Nothing, LEAF),
            ("isWhole", Nothing, LEAF),
        ],
    ),
    (
        "LiveMessage",
        &[
            ("id", Nothing, LEAF),
            ("conversation", Reads, "Conversation"),
            ("sender", Nothing, "User"),
            ("replyTo", Reads, "Message"),
            ("body", Nothing, LEAF),
            ("status", Nothing, LEAF),
            ("steps", Nothing, "MessageStep"),
            ("state", Nothing, LEAF),
            ("stopRequestedBy", Nothing, "User"),
            ("startedAt", Nothing, LEAF),
            ("message", Reads, "Message"),
        ],
    ),
    (
        "MessageStep",
        &[
            ("key", Nothing, LEAF),
            ("title", Nothing, LEAF),
            ("state", Nothing, LEAF),
            ("detail", Nothing, LEAF),
        ],
    ),
    ("ConversationEvent", &[]),
    (
        "MessageAddedEvent",
        &[("messageEdge", Nothing, "MessageEdge")],
    ),
    ("MessageEditedEvent", &[("message", Nothing, "Message")]),
    ("MessageDeletedEvent", &[("message", Nothing, "Message")]),
    ("ReactionsChangedEvent", &[("message", Nothing, "Message")]),
    (
        "PinsChangedEvent",
        &[
            ("message", Nothing, "Message"),
            ("pinnedMessageEdge", Nothing, "PinnedMessageEdge"),
        ],
    ),
    (
        "PinnedMessageEdge",
        &[
            ("cursor", Nothing, LEAF),
            ("node", Nothing, "Message"),
            ("pinnedBy", Nothing, "User"),
            ("pinnedAt", Nothing, LEAF),
        ],
    ),
    // The participant or conversation of these events is read for the payload.
    ("MarkerMovedEvent", &[("participant", Reads, "Participant")]),
    (
        "ParticipantAddedEvent",
        &[("participant", Reads, "Participant")],
    ),
    ("ParticipantRemovedEvent", &[("user", Nothing, "User")]),
    ("RoleChangedEvent", &[("participant", Reads, "Participant")]),
    (
        "ParticipantUpdatedEvent",
        &[("participant", Reads, "Participant")],
    ),
    (
        "ConversationUpdatedEvent",
        &[("conversation", Reads, "Conversation")],
    ),
    (
        "HistoryExpiredEvent",
        &[
            ("conversation", Reads, "Conversation"),
            ("before", Reads, LEAF),
        ],
    ),
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
            ("orderKey", Nothing, LEAF),
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
            ("mentions", Nothing, "User"),
            ("mentionsEveryone", Nothing, LEAF),
            ("isPinned", Nothing, LEAF),
            ("liveMessageId", Nothing, LEAF),
            ("steps", Nothing, "MessageStep"),
            ("isInterrupted", Nothing, LEAF),
            ("expiresAt", Reads, LEAF),
            ("reactions", Reads, "Reaction"),
            ("status", Reads, LEAF),
            ("receipts", Reads, "ReceiptConnection"),
        ],
    ),
    (
        "MessageStep",
        &[
            ("key", Nothing, LEAF),
            ("title", Nothing, LEAF),
            ("state", Nothing, LEAF),
            ("detail", Nothing, LEAF),
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
            ("durationMs", Nothing, LEAF),
            ("thumbnailUrl", Nothing, LEAF),
        ],
    ),
    (
        "User",
        // Profiles are public. Reading them does not depend on a membership.
        &[
            ("id", Nothing, LEAF),
            ("username", Nothing, LEAF),
            ("isAgent", Nothing, LEAF),
            ("displayName", Nothing, LEAF),
            ("avatarUrl", Nothing, LEAF),
            ("metadata", Nothing, LEAF),
            // A viewer who blocks the user receives no payload that others share.
            ("viewerHasBlocked", Nothing, LEAF),
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
            ("description", Reads, LEAF),
            ("avatarUrl", Reads, LEAF),
            ("metadata", Reads, LEAF),
            ("appKey", Reads, LEAF),
            ("createdAt", Reads, LEAF),
            ("createdBy", Reads, "User"),
            ("participants", Reads, "ParticipantConnection"),
            ("participantCount", Reads, LEAF),
            ("slowModeSeconds", Reads, LEAF),
            ("sendRole", Reads, LEAF),
            ("addRole", Reads, LEAF),
            ("pinRole", Reads, LEAF),
            ("historyVisibility", Reads, LEAF),
            ("messageTtlSeconds", Reads, LEAF),
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
            ("isSilenced", Reads, LEAF),
            ("silencedUntil", Reads, LEAF),
            ("askedMessageTtlSeconds", Reads, LEAF),
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

/// Proof that no field of an operation depends on its viewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::graphql) struct ViewerIndependence {
    /// Whether a field reads the store, with a result that may depend on the viewer's membership.
    pub(super) reads_store: bool,
    /// Whether the sender of a message receives another value than the others.
    pub(super) varies_for_sender: bool,
}

/// Whether subscribers of this document can share executions.
pub fn is_viewer_independent(prepared: &Prepared) -> bool {
    ViewerIndependence::of(prepared).is_some()
}

impl ViewerIndependence {
    /// `None` if some field depends on the viewer, or the operation is no subscription.
    pub(in crate::graphql) fn of(prepared: &Prepared) -> Option<Self> {
        if prepared.operation != OperationType::Subscription {
            return None;
        }
        let mut independence = Self::default();
        let root = &prepared.definition().selection_set.node;
        independence
            .check_set(root, "Subscription")
            .then_some(independence)
    }

    fn check_set(&mut self, set: &SelectionSet, parent: &str) -> bool {
        let mut is_independent = true;
        each_field_of(parent, set, &mut |parent, field| {
            is_independent = is_independent && self.check_field(field, parent);
        });
        is_independent
    }

    fn check_field(&mut self, field: &Field, parent: &str) -> bool {
        if field.name.node == "__typename" {
            return true;
        }
        let row = fields_of(parent)
            .and_then(|fields| fields.iter().find(|(name, ..)| field.name.node == *name));
        let Some((_, cost, ty)) = row else {
            return false;
        };
        self.reads_store |= *cost == Reads;
        self.varies_for_sender |= *cost == Sender;
        self.check_set(&field.selection_set.node, ty)
    }
}

fn fields_of(parent: &str) -> Option<&'static [FieldRow]> {
    INDEPENDENT_FIELDS
        .iter()
        .find(|(name, _)| *name == parent)
        .map(|(_, fields)| *fields)
}
