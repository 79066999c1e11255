//! Keys of the outbox: its rows, the positions of its readers, and their dead letters.

use super::row::has_tag;
use super::{Key, Span, Table, Tag, conversation_id, rows, rows_with};
use crate::model::{ConversationId, OrderKey, OutboxShard, TimeUuid};
use crate::store::DeadLetter;

// Outbox: shard ‖ order key of the row ‖ conversation, the oldest first.

pub(crate) fn outbox_row(
    shard: OutboxShard,
    position: OrderKey,
    conversation: ConversationId,
) -> Key {
    rows(
        Tag::Outbox,
        &[&[shard.number()], &position.0, conversation.0.as_bytes()],
    )
}

/// Rows after a position, and up to another one.
pub(crate) fn outbox_rows(shard: OutboxShard, after: OrderKey, up_to: OrderKey) -> Span {
    let at = |position: OrderKey| rows_with(Tag::Outbox, &[&[shard.number()], &position.0]);
    Span {
        table: Table::Rows,
        start: at(after).end,
        end: at(up_to).end,
    }
}

/// Parses a key of [`outbox_rows`].
pub(crate) fn outbox_row_of(bytes: &[u8]) -> Option<(TimeUuid, ConversationId)> {
    let (position, conversation) = bytes.get(2..)?.split_first_chunk::<16>()?;
    Some((
        TimeUuid::from_order_key(OrderKey(*position))?,
        conversation_id(conversation.try_into().ok()?)?,
    ))
}

/// Position of a named reader in one shard: reader ‖ 0 ‖ shard.
pub(crate) fn reader_position(reader: &str, shard: OutboxShard) -> Key {
    rows(
        Tag::OutboxPosition,
        &[reader.as_bytes(), &[0, shard.number()]],
    )
}

/// Dead letter: reader ‖ 0 ‖ order key of the event ‖ kind ‖ part.
pub(crate) fn dead_letter(reader: &str, letter: &DeadLetter) -> Key {
    let event = &letter.event;
    rows(
        Tag::OutboxDead,
        &[
            reader.as_bytes(),
            &[0],
            &event.id.order_key().0,
            &[event.kind.number()],
            letter.part.as_bytes(),
        ],
    )
}

/// Dead letters of a reader, those with the oldest events first.
pub(crate) fn dead_letters(reader: &str) -> Span {
    rows_with(Tag::OutboxDead, &[reader.as_bytes(), &[0]])
}

pub(crate) fn is_dead_letter(key: &Key) -> bool {
    has_tag(key, Tag::OutboxDead)
}
