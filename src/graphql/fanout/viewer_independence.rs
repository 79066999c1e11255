//! Viewer independence: fields with the same value for every viewer who may see them. A document of
//! such fields alone is executed once for all its subscribers.
//!
//! A field counts as dependent on the viewer unless it is listed here. `clientKey` is listed, as
//! only the sender receives another value, and `viewerHasBlocked`, as only a blocker does. A viewer with a floor of their own
//! receives no payload that shows an older message. `tests/api/shared.rs` executes each field of the event
//! types for two viewers and checks this list.

use async_graphql::Name;
use async_graphql::parser::types::{Field, OperationType, SelectionSet};

use crate::graphql::execution::{Prepared, each_field_of};

/// Types with their viewer-independent fields: those that come with the event, and those that are read from the
/// store, which may depend on the viewer's membership.
const INDEPENDENT_FIELDS: &[(&str, &str, &str)] = &[
    (
        "Subscription",
        "messageAdded conversationEvents typingChanged liveMessages",
        "",
    ),
    ("MessageAddedPayload", "messageEdge", ""),
    ("ConversationEventPayload", "cursor event isLive", ""),
    ("TypingPayload", "user isTyping", ""),
    ("LiveMessagePayload", "cursor liveMessage text isWhole", ""),
    (
        "LiveMessage",
        "id sender body status steps state stopRequestedBy startedAt",
        "conversation replyTo message",
    ),
    ("MessageStep", "key title state detail", ""),
    ("MessageAddedEvent", "messageEdge", ""),
    ("MessageEditedEvent", "message", ""),
    ("MessageDeletedEvent", "message", ""),
    ("ReactionsChangedEvent", "message", ""),
    ("PinsChangedEvent", "message pinnedMessageEdge", ""),
    ("PinnedMessageEdge", "cursor node pinnedBy pinnedAt", ""),
    // The participant or conversation of these events is read for the payload.
    ("MarkerMovedEvent", "", "participant"),
    ("ParticipantAddedEvent", "", "participant"),
    ("ParticipantRemovedEvent", "user", ""),
    ("RoleChangedEvent", "", "participant"),
    ("ParticipantUpdatedEvent", "", "participant"),
    ("ConversationUpdatedEvent", "", "conversation"),
    ("HistoryExpiredEvent", "", "conversation before"),
    ("ConversationRenamedEvent", "", "conversation"),
    ("MessageEdge", "cursor node", ""),
    // `clientKey` is the sender's alone: `varies_for_sender`.
    (
        "Message",
        "id uuid orderKey sender kind body attachments metadata clientKey createdAt \
         editedAt deletedAt mentions mentionsEveryone isPinned liveMessageId steps \
         isInterrupted",
        "conversation replyTo expiresAt reactions status receipts",
    ),
    (
        "Attachment",
        "url mimeType name sizeBytes width height durationMs thumbnailUrl",
        "",
    ),
    // Profiles are public. Reading them does not depend on a membership. A viewer who blocks the user receives no
    // payload that others share.
    (
        "User",
        "id username isAgent displayName avatarUrl metadata viewerHasBlocked",
        "",
    ),
    ("Reaction", "", "emoji count countIsCapped users"),
    (
        "Conversation",
        "",
        "id uuid kind name description avatarUrl metadata appKey createdAt createdBy \
         participants participantCount slowModeSeconds sendRole addRole pinRole \
         historyVisibility messageTtlSeconds messages messageCount lastMessage",
    ),
    (
        "Participant",
        "",
        "id user conversation role joinedAt isSilenced silencedUntil askedMessageTtlSeconds \
         readUpTo deliveredUpTo",
    ),
    ("ReceiptConnection", "", "edges pageInfo"),
    ("ReceiptEdge", "", "cursor node"),
    ("Receipt", "", "user status"),
    ("ParticipantConnection", "", "edges pageInfo"),
    ("ParticipantEdge", "", "cursor node"),
    ("MessageConnection", "", "edges pageInfo"),
    (
        "PageInfo",
        "",
        "hasNextPage hasPreviousPage startCursor endCursor",
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
            .check_set(prepared, root, "Subscription")
            .then_some(independence)
    }

    fn check_set(&mut self, prepared: &Prepared, set: &SelectionSet, parent: &str) -> bool {
        let mut is_independent = true;
        each_field_of(parent, set, &mut |parent, field| {
            is_independent = is_independent && self.check_field(prepared, field, parent);
        });
        is_independent
    }

    fn check_field(&mut self, prepared: &Prepared, field: &Field, parent: &str) -> bool {
        let name = &field.name.node;
        if name == "__typename" {
            return true;
        }
        let is_in = |names: &str| names.split(' ').any(|listed| name == listed);
        let row = INDEPENDENT_FIELDS.iter().find(|(ty, ..)| *ty == parent);
        let Some(&(_, _, read)) = row.filter(|(_, at_hand, read)| is_in(at_hand) || is_in(read))
        else {
            return false;
        };
        self.reads_store |= is_in(read);
        self.varies_for_sender |= name == "clientKey";
        let ty = prepared.type_of(&Name::new(parent), name);
        ty.is_some_and(|ty| self.check_set(prepared, &field.selection_set.node, ty))
    }
}
