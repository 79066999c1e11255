//! Keys of changes: those of a conversation, and those of a user.

use super::{Key, Span, Table, name};
use crate::model::{ConversationId, MessageId, OrderKey, UserId};

/// First byte of a row of [`Table::Changes`]: its owner's kind.
const CHANGES_OF_CONVERSATION: u8 = 0;
const CHANGES_OF_USER: u8 = 1;

// Changes of a conversation: conversation ‖ order key, the oldest first.

pub(crate) fn change_of_conversation(conversation: ConversationId, change: OrderKey) -> Key {
    let bytes = [
        &[CHANGES_OF_CONVERSATION],
        conversation.0.as_bytes().as_slice(),
        &change.0,
    ]
    .concat();
    Key {
        table: Table::Changes,
        bytes,
    }
}

pub(crate) fn changes_of_conversation_after(conversation: ConversationId, after: OrderKey) -> Span {
    let prefix = [
        &[CHANGES_OF_CONVERSATION],
        conversation.0.as_bytes().as_slice(),
    ]
    .concat();
    Span::of_prefix(Table::Changes, prefix)
        .behind(&Span::of_key(change_of_conversation(conversation, after)))
}

// Changes of a user: name ‖ 0 ‖ order key, the oldest first.

pub(crate) fn change_of_user(user: &UserId, change: OrderKey) -> Key {
    let mut bytes = vec![CHANGES_OF_USER];
    bytes.extend_from_slice(&name(user));
    bytes.extend_from_slice(&change.0);
    Key {
        table: Table::Changes,
        bytes,
    }
}

pub(crate) fn changes_of_user_after(user: &UserId, after: OrderKey) -> Span {
    let mut prefix = vec![CHANGES_OF_USER];
    prefix.extend_from_slice(&name(user));
    let position = Span::of_key(change_of_user(user, after));
    Span::of_prefix(Table::Changes, prefix).behind(&position)
}

pub(crate) fn change_id(bytes: &[u8]) -> Option<MessageId> {
    MessageId::from_order_key(OrderKey(*bytes.last_chunk::<16>()?))
}
