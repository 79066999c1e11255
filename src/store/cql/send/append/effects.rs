//! Effects of sent messages: their writes to the inboxes of participants and senders.

use std::collections::BTreeMap;

use crate::model::{ActPosition, ConversationId, Message, MessageId, MessageKind, UserId};
use crate::store::cql::driver::writes::Writes;
use crate::store::cql::inbox::Inboxes;
use crate::store::cql::message::register::LastMessage;
use crate::store::cql::send::idempotency::PlacedMessage;
use crate::store::cql::send::writer_cache::{HintUpdate, KnownParticipants};

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
        inboxes: &Inboxes,
        writes: &mut Writes,
        participants: &KnownParticipants,
        hint: Option<HintUpdate>,
    ) {
        for user in participants.joined.iter() {
            self.put_entry(inboxes, writes, user, hint);
        }
        for (sender, up_to) in &self.sent {
            // The server also speaks in the name of services that do not take part.
            if up_to.is_none() {
                continue;
            }
            if participants.is_large {
                self.put_entry(inboxes, writes, sender, None);
            } else if !participants.joined.contains(sender) {
                inboxes.put_entry(writes, sender, self.conversation, None, None, *up_to);
            }
        }
    }

    pub(super) fn put_entry(
        &self,
        inboxes: &Inboxes,
        writes: &mut Writes,
        user: &UserId,
        hint: Option<HintUpdate>,
    ) {
        let sent = self.sent.get(user).copied().flatten();
        inboxes.put_entry(
            writes,
            user,
            self.conversation,
            Some(&self.last),
            Some(self.last.id.moment()),
            sent,
        );
        if let Some(everyone) = self.everyone {
            inboxes.put_mentioned_up_to(writes, user, self.conversation, everyone);
        }
        let Some(hint) = hint else { return };
        inboxes.put_hint(writes, user, self.conversation, hint.activity);
        if let Some(obsolete_slot) = hint.obsolete_slot {
            inboxes.delete_hint(
                writes,
                user,
                self.conversation,
                obsolete_slot,
                hint.activity,
            );
        }
    }
}
