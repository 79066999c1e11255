//! Parts of a send: messages that fit into one batch, and what each batch writes to the inboxes of
//! participants and senders.

use std::collections::BTreeMap;

use crate::model::{ActPosition, ConversationId, Message, MessageId, MessageKind, UserId};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::message::bucket::last_message::LastMessage;
use crate::store::cql::message::bucket::{ROW_BYTES, stored_bytes};
use crate::store::cql::send::idempotency::PlacedMessage;
use crate::store::cql::send::writer_cache::{CachedParticipants, HintUpdate};

/// Estimated bytes of a batch, of which Cassandra refuses 50 KiB. One message always fits.
pub(super) const BATCH_BYTES_MAX: usize = 40 * 1024;

/// Splits messages into batches. A message and its inbox rows are always in one batch.
pub(super) fn parts<'a, 'b>(
    participants: &CachedParticipants,
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
pub(super) fn frame_bytes(
    participants: &CachedParticipants,
    placed: &[PlacedMessage<'_>],
) -> usize {
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

/// The writes to inboxes that messages cause. The newest message advances all entries; each sender's newest advances the sender's marker.
pub(super) struct SendEffects<'a> {
    pub(super) conversation: ConversationId,
    pub(super) last: LastMessage,
    /// The newest message that mentions everyone.
    everyone: Option<MessageId>,
    /// The newest message of each sender; `None` for a sender in whose name the server spoke.
    sent: BTreeMap<&'a UserId, Option<ActPosition>>,
}

impl<'a> SendEffects<'a> {
    /// The effects of at least one message.
    pub(super) fn of(part: &[PlacedMessage<'a>]) -> Self {
        let newest = part
            .iter()
            .max_by_key(|one| one.message().id)
            .expect("a part has a message");
        let (mut sent, mut everyone) = (BTreeMap::new(), None);
        for one in part {
            let message = one.message();
            if message.mentions().is_some_and(|mentions| mentions.everyone) {
                everyone = everyone.max(Some(message.id));
            }
            // A SYSTEM message moves no marker of the user in whose name it is.
            let act = (message.kind == MessageKind::Text).then(|| ActPosition {
                up_to: message.id.order_key(),
                is_by_service: one.new.is_by_service,
            });
            let known = sent.entry(&message.sender).or_insert(act);
            if act.map(|act| act.up_to) > known.map(|known| known.up_to) {
                *known = act;
            }
        }
        let Message {
            conversation,
            id,
            sender,
            ..
        } = newest.message();
        Self {
            conversation: *conversation,
            last: LastMessage {
                id: *id,
                bucket: newest.bucket,
                sender: sender.clone(),
            },
            everyone,
            sent,
        }
    }

    pub(super) fn put(
        &self,
        writes: &mut Writes,
        participants: &CachedParticipants,
        hint: Option<HintUpdate>,
    ) {
        for user in participants.joined.iter() {
            self.put_entry(writes, user, hint);
        }
        for (sender, up_to) in &self.sent {
            // The server also speaks in the name of services that do not take part.
            if up_to.is_none() {
                continue;
            }
            if participants.is_large {
                self.put_entry(writes, sender, None);
            } else if !participants.joined.contains(sender) {
                writes.put_entry(sender, self.conversation, None, None, *up_to);
            }
        }
    }

    pub(super) fn put_entry(&self, writes: &mut Writes, user: &UserId, hint: Option<HintUpdate>) {
        let sent = self.sent.get(user).copied().flatten();
        writes.put_entry(
            user,
            self.conversation,
            Some(&self.last),
            Some(self.last.id.moment()),
            sent,
        );
        if let Some(everyone) = self.everyone {
            writes.put_mentioned_up_to(user, self.conversation, everyone);
        }
        let Some(hint) = hint else { return };
        writes.put_hint(user, self.conversation, hint.activity);
        if let Some(obsolete_slot) = hint.obsolete_slot {
            writes.delete_hint(user, self.conversation, obsolete_slot, hint.activity);
        }
    }
}
