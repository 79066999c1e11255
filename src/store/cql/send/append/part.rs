//! Parts of a send: messages that fit into one batch, by their estimated bytes.

use crate::store::cql::message::bucket::fill::{ROW_BYTES, stored_bytes};
use crate::store::cql::send::idempotency::PlacedMessage;
use crate::store::cql::send::writer_cache::KnownParticipants;

/// Estimated bytes of a batch, of which Cassandra refuses 50 KiB. One message always fits.
pub(super) const BATCH_BYTES_MAX: usize = 40 * 1024;

/// Splits messages into batches. A message and its inbox rows are always in one batch.
pub(super) fn parts<'a, 'b>(
    participants: &KnownParticipants,
    placed: &'b [PlacedMessage<'a>],
) -> Vec<&'b [PlacedMessage<'a>]> {
    let frame = frame_bytes(participants, placed);
    let (mut parts, mut start, mut bytes) = (Vec::new(), 0, frame);
    for (index, one) in placed.iter().enumerate() {
        let more = message_bytes(one);
        if bytes + more > BATCH_BYTES_MAX && index > start {
            parts.push(&placed[start..index]);
            (start, bytes) = (index, frame);
        }
        bytes += more;
    }
    parts.push(&placed[start..]);
    parts
}

/// Bytes of the head and the entries.
pub(super) fn frame_bytes(participants: &KnownParticipants, placed: &[PlacedMessage<'_>]) -> usize {
    let sender = placed
        .iter()
        .map(|one| one.message().sender.as_str().len())
        .max()
        .unwrap_or(0);
    let entries = if participants.is_large {
        placed.len()
    } else {
        participants.joined.len()
    };
    // The head; and for each entry its row, a new hint and a deleted one.
    (1 + entries) * (2 * ROW_BYTES + sender)
}

/// Bytes of a message and its mentions.
pub(super) fn message_bytes(one: &PlacedMessage<'_>) -> usize {
    let message = one.message();
    let mentions = message.mentions().map_or(0, |mentions| {
        let everyone = usize::from(mentions.everyone);
        let rows = mentions.users().len() + everyone;
        // A row with the sender's name, and a maximum.
        2 * mentions.bytes() + rows * (2 * ROW_BYTES + message.sender.as_str().len())
    });
    stored_bytes(message) + mentions
}
