//! Keys of removals: how far a history was removed, and the list of what is due, by hour and shard.

use super::{Key, Span, Table, Tag, conversation_id, rows};
use crate::model::{ConversationId, OutboxShard};
use crate::store::DueRemoval;

/// Key of the last position up to which messages were removed.
pub(crate) fn removed_up_to(id: ConversationId) -> Key {
    rows(Tag::Removed, &[id.0.as_bytes()])
}

// Due removals: shard ‖ hour ‖ conversation.

pub(crate) fn due_removal(due: DueRemoval) -> Key {
    let shard = OutboxShard::of(due.conversation).number();
    rows(
        Tag::DueRemoval,
        &[
            &[shard],
            &due.hour.to_be_bytes(),
            due.conversation.0.as_bytes(),
        ],
    )
}

/// The entries of a shard in some hours, both included.
pub(crate) fn due_removals(
    shard: OutboxShard,
    (from, up_to): (u32, u32),
    after: Option<DueRemoval>,
) -> Span {
    let at = |hour: u32| rows(Tag::DueRemoval, &[&[shard.number()], &hour.to_be_bytes()]).bytes;
    let span = Span {
        table: Table::Rows,
        start: at(from),
        end: Span::of_prefix(Table::Rows, at(up_to)).end,
    };
    match after {
        Some(after) => span.behind(&Span::of_key(due_removal(after))),
        None => span,
    }
}

/// Parses a key of [`due_removals`].
pub(crate) fn due_removal_of(bytes: &[u8]) -> Option<DueRemoval> {
    let (hour, conversation) = bytes.get(2..)?.split_first_chunk::<4>()?;
    Some(DueRemoval {
        hour: u32::from_be_bytes(*hour),
        conversation: conversation_id(conversation.try_into().ok()?)?,
    })
}
