//! Keys of live messages: their cells and rows of text, the lists of conversations, and the due queue.

use strum::FromRepr;
use uuid::Uuid;

use super::row::has_tag;
use super::{Key, Span, Table, Tag, conversation_id, rows, rows_with};
use crate::model::{ConversationId, LiveExtent, LiveKey, LiveMessageId, OutboxShard, WriterNumber};

/// Cells of one live message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRepr)]
#[repr(u8)]
pub(crate) enum LiveCell {
    Writers = 0,
    Start = 1,
    Touched = 2,
    Status = 3,
    Steps = 4,
    Stop = 5,
    Discarded = 6,
}

/// Number before the cells. No writer has it.
const CELLS: u8 = 0;
/// Bytes of the key of a whole live message: tag, conversation and id.
const LIVE_BYTES: usize = 33;

// Live messages: conversation ‖ id, then 0 ‖ cell, or the writer ‖ end ‖ position of a row of text.

/// Key of a whole live message, by which it expires. No row has it.
pub(crate) fn live(live: LiveKey) -> Key {
    rows(
        Tag::Live,
        &[live.conversation.0.as_bytes(), live.id.0.as_bytes()],
    )
}

/// Parses a key of [`live`].
pub(crate) fn live_of(key: &Key) -> Option<LiveKey> {
    if !has_tag(key, Tag::Live) || key.bytes.len() != LIVE_BYTES {
        return None;
    }
    live_key(key.bytes.get(1..)?)
}

/// All rows of a live message.
pub(crate) fn live_rows(of: LiveKey) -> Span {
    Span::of_prefix(Table::Rows, live(of).bytes)
}

pub(crate) fn live_cell(of: LiveKey, cell: LiveCell) -> Key {
    with(of, &[&[CELLS, cell as u8]])
}

/// All cells of a live message.
pub(crate) fn live_cells(of: LiveKey) -> Span {
    Span::of_prefix(Table::Rows, with(of, &[&[CELLS]]).bytes)
}

/// Parses a key of [`live_cells`]. `None` for a cell that this version does not know.
pub(crate) fn live_cell_of(bytes: &[u8]) -> Option<LiveCell> {
    let number = bytes.get(LIVE_BYTES + 1)?;
    LiveCell::from_repr(*number)
}

pub(crate) fn live_text(of: LiveKey, writer: WriterNumber, extent: LiveExtent) -> Key {
    let LiveExtent { end, position } = extent;
    with(
        of,
        &[&[writer.get()], &end.to_be_bytes(), &position.to_be_bytes()],
    )
}

/// Rows of a writer's text after an extent.
pub(crate) fn live_texts(of: LiveKey, writer: WriterNumber, after: LiveExtent) -> Span {
    let all = Span::of_prefix(Table::Rows, with(of, &[&[writer.get()]]).bytes);
    all.behind(&Span::of_key(live_text(of, writer, after)))
}

/// Parses the position of a key of [`live_texts`].
pub(crate) fn live_position_of(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.last_chunk::<4>()?))
}

fn with(of: LiveKey, parts: &[&[u8]]) -> Key {
    let mut key = live(of);
    parts
        .iter()
        .for_each(|part| key.bytes.extend_from_slice(part));
    key
}

// List of a conversation: conversation ‖ inverted minute, so that the newest comes first ‖ id.

pub(crate) fn live_listing(minute: u32, of: LiveKey) -> Key {
    rows(
        Tag::LiveListing,
        &[
            of.conversation.0.as_bytes(),
            &(!minute).to_be_bytes(),
            of.id.0.as_bytes(),
        ],
    )
}

/// The list of a conversation from a minute on.
pub(crate) fn live_listings(conversation: ConversationId, from_minute: u32) -> Span {
    let prefix = |parts: &[&[u8]]| rows_with(Tag::LiveListing, parts);
    let id = conversation.0.as_bytes();
    prefix(&[id]).up_to(&prefix(&[id, &(!from_minute).to_be_bytes()]))
}

/// Parses a key of [`live_listings`].
pub(crate) fn live_listing_of(bytes: &[u8]) -> Option<(u32, LiveKey)> {
    let (conversation, rest) = bytes.get(1..)?.split_first_chunk::<16>()?;
    let (minute, id) = rest.split_first_chunk::<4>()?;
    let live = LiveKey {
        conversation: conversation_id(conversation)?,
        id: LiveMessageId(Uuid::from_slice(id).ok()?),
    };
    Some((!u32::from_be_bytes(*minute), live))
}

// Due queue: shard ‖ minute ‖ id ‖ conversation.

pub(crate) fn due_live(minute: u32, of: LiveKey) -> Key {
    let shard = OutboxShard::of(of.conversation).number();
    rows(
        Tag::DueLive,
        &[
            &[shard],
            &minute.to_be_bytes(),
            of.id.0.as_bytes(),
            of.conversation.0.as_bytes(),
        ],
    )
}

/// The entries of a shard in some minutes, both included.
pub(crate) fn due_lives(
    shard: OutboxShard,
    (from, up_to): (u32, u32),
    after: Option<(u32, LiveKey)>,
) -> Span {
    let at = |minute: u32| rows(Tag::DueLive, &[&[shard.number()], &minute.to_be_bytes()]).bytes;
    let span = Span {
        table: Table::Rows,
        start: at(from),
        end: Span::of_prefix(Table::Rows, at(up_to)).end,
    };
    match after {
        Some((minute, live)) => span.behind(&Span::of_key(due_live(minute, live))),
        None => span,
    }
}

/// Parses a key of [`due_lives`].
pub(crate) fn due_live_of(bytes: &[u8]) -> Option<(u32, LiveKey)> {
    let (minute, rest) = bytes.get(2..)?.split_first_chunk::<4>()?;
    let (id, conversation) = rest.split_first_chunk::<16>()?;
    let live = LiveKey {
        conversation: conversation_id(conversation.try_into().ok()?)?,
        id: LiveMessageId(Uuid::from_bytes(*id)),
    };
    Some((u32::from_be_bytes(*minute), live))
}

fn live_key(bytes: &[u8]) -> Option<LiveKey> {
    let (conversation, id) = bytes.split_first_chunk::<16>()?;
    Some(LiveKey {
        conversation: conversation_id(conversation)?,
        id: LiveMessageId(Uuid::from_slice(id).ok()?),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::store::embedded::engine::key;

    fn lives() -> impl Strategy<Value = LiveKey> {
        let bytes = prop_oneof![any::<[u8; 16]>(), Just([0; 16]), Just([0xff; 16])];
        (bytes.clone(), bytes).prop_map(|(conversation, id)| LiveKey {
            conversation: ConversationId(Uuid::from_bytes(conversation)),
            id: LiveMessageId(Uuid::from_bytes(id)),
        })
    }

    fn extents() -> impl Strategy<Value = LiveExtent> {
        (any::<u32>(), any::<u32>()).prop_map(|(end, position)| LiveExtent { end, position })
    }

    fn writers() -> impl Strategy<Value = WriterNumber> {
        (1..=32_u8).prop_map(|number| WriterNumber::new(number).unwrap())
    }

    fn contains(span: &Span, key: &Key) -> bool {
        span.table == key.table && span.start <= key.bytes && key.bytes < span.end
    }

    proptest! {
        #[test]
        fn texts_sort_by_their_ends(live in lives(), writer in writers(), a in extents(), b in extents()) {
            let bytes = |extent| live_text(live, writer, extent).bytes;
            prop_assert_eq!(bytes(a).cmp(&bytes(b)), a.cmp(&b));
            prop_assert_eq!(live_position_of(&bytes(a)), Some(a.position));
        }

        #[test]
        fn a_writers_span_has_its_later_texts_and_no_others(
            a in (lives(), writers()), b in (lives(), writers()), after in extents(), extent in extents()
        ) {
            let span = live_texts(a.0, a.1, after);
            let key = live_text(b.0, b.1, extent);
            prop_assert_eq!(contains(&span, &key), a == b && extent > after);
            prop_assert_eq!(contains(&live_rows(a.0), &key), a.0 == b.0);
            let cell = live_cell(b.0, LiveCell::Discarded);
            prop_assert!(!contains(&span, &cell));
            prop_assert_eq!(contains(&live_cells(a.0), &cell), a.0 == b.0);
            prop_assert!(!contains(&live_cells(a.0), &key));
            prop_assert_eq!(live_cell_of(&cell.bytes), Some(LiveCell::Discarded));
        }

        #[test]
        fn a_live_message_expires_under_a_key_of_its_own(of in lives(), at in 0..1_i64 << 50) {
            let expiry = key::expiry(&live(of), crate::model::Timestamp::from_micros(at));
            let key = key::expired_key(&expiry.bytes).unwrap();
            prop_assert_eq!(live_of(&key), Some(of));
            prop_assert_eq!(live_of(&live_cell(of, LiveCell::Start)), None);
            prop_assert_eq!(live_of(&live_listing(1, of)), None);
        }

        #[test]
        fn a_list_has_the_newest_minute_first(
            a in (any::<u32>(), lives()), b in (any::<u32>(), lives()), from in any::<u32>()
        ) {
            let key = live_listing(b.0, b.1);
            prop_assert_eq!(live_listing_of(&key.bytes), Some(b));
            let span = live_listings(a.1.conversation, from);
            let is_in = a.1.conversation == b.1.conversation && b.0 >= from;
            prop_assert_eq!(contains(&span, &key), is_in);
            let same = LiveKey { conversation: b.1.conversation, ..a.1 };
            let (one, other) = (live_listing(a.0, same).bytes, key.bytes);
            prop_assert_eq!(one.cmp(&other), (b.0, same.id).cmp(&(a.0, b.1.id)));
        }

        #[test]
        fn a_due_span_has_the_minutes_of_its_shard(
            of in (any::<u32>(), lives()), bounds in (any::<u32>(), any::<u32>()), after in (any::<u32>(), lives())
        ) {
            let key = due_live(of.0, of.1);
            prop_assert_eq!(due_live_of(&key.bytes), Some(of));
            let is_within = (bounds.0..=bounds.1).contains(&of.0);
            for shard in OutboxShard::all() {
                let is_own = shard == OutboxShard::of(of.1.conversation);
                prop_assert_eq!(contains(&due_lives(shard, bounds, None), &key), is_own && is_within);
                let later = due_lives(shard, bounds, Some(of));
                prop_assert!(!contains(&later, &key));
            }
            let own = LiveKey { conversation: of.1.conversation, ..after.1 };
            let rest = due_lives(OutboxShard::of(own.conversation), bounds, Some((after.0, own)));
            let is_later = (of.0, of.1.id) > (after.0, own.id);
            prop_assert_eq!(contains(&rest, &key), is_within && is_later);
        }
    }
}
