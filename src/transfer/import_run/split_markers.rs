//! Read positions at messages that an import splits: they go on to the last part, so that a user who has read the message has read
//! all of it.
//!
//! Lines come in any order. The messages of a batch therefore meet the participants who are stored, and its participants the
//! stored parts.

use std::collections::{BTreeMap, HashMap};

use super::ImportRun;
use crate::clock::IdGenerator;
use crate::model::{ConversationId, MessageId, OrderKey, PageRequest, ReadMarker, UserId};
use crate::store::{self, ImportRow, MarkerMove};
use crate::transfer::import::Error;
use crate::transfer::reader::LineBatch;

/// Participants of one read.
const PARTICIPANTS_MAX: usize = 500;

type Positions = Vec<(ConversationId, UserId, MessageId)>;

impl ImportRun<'_> {
    /// Moves the read positions that a batch concerns to the last parts of their messages.
    pub(super) async fn read_to_last_parts(&self, batch: &LineBatch) -> Result<(), Error> {
        let mut split: BTreeMap<ConversationId, HashMap<OrderKey, MessageId>> = BTreeMap::new();
        for unit in &batch.units {
            if let (1.., Some((conversation, first)), Some((_, last))) = (
                unit.losses.split_messages,
                unit.rows.first().and_then(message_of),
                unit.rows.last().and_then(message_of),
            ) {
                let of_conversation = split.entry(conversation).or_default();
                of_conversation.insert(first.order_key(), last);
            }
        }
        let mut moves = self.moves_of_participants(batch).await?;
        for (conversation, last_parts) in split {
            moves.extend(self.moves_of_messages(conversation, &last_parts).await?);
        }
        let ids = IdGenerator::random();
        for (conversation, user, last) in moves {
            let marker = ReadMarker {
                epoch: 0,
                up_to: last.order_key(),
            };
            let to = MarkerMove {
                conversation,
                marker,
                read_up_to: Some(marker.up_to),
                is_by_service: false,
                change: ids.next(self.import.clock.now()),
            };
            self.import.store.move_read_marker(&user, &to).await?;
        }
        Ok(())
    }

    /// The participants of a conversation who have read up to a message of which these are the last parts.
    async fn moves_of_messages(
        &self,
        conversation: ConversationId,
        last_parts: &HashMap<OrderKey, MessageId>,
    ) -> store::Result<Positions> {
        let (mut page, mut moves) = (PageRequest::first(PARTICIPANTS_MAX), Positions::new());
        loop {
            let read = self.import.store.participants(conversation, &page).await?;
            for one in &read.items {
                let last = last_parts.get(&one.read_up_to);
                moves.extend(last.map(|last| (conversation, one.user.clone(), *last)));
            }
            match read.items.last().filter(|_| read.has_next) {
                Some(last) => page = page.after(last.user.clone()),
                None => return Ok(moves),
            }
        }
    }

    /// The participants of a batch who have read up to a message whose further parts are stored.
    async fn moves_of_participants(&self, batch: &LineBatch) -> store::Result<Positions> {
        let rows = batch.units.iter().flat_map(|unit| &unit.rows);
        let mut open: Positions = rows.filter_map(position_of).collect();
        let mut moves = BTreeMap::new();
        for number in 1.. {
            let part = |(conversation, _, read): &(ConversationId, UserId, MessageId)| {
                (*conversation, read.part(number))
            };
            let mut parts: Vec<_> = open.iter().map(part).collect();
            parts.sort_unstable();
            parts.dedup();
            let found = self.import.store.messages(&parts).await?;
            let found = found.into_iter().flatten();
            let stored: Vec<_> = found.map(|one| (one.conversation, one.id)).collect();
            open.retain(|one| stored.contains(&part(one)));
            if open.is_empty() {
                break;
            }
            for one in &open {
                let (conversation, last) = part(one);
                moves.insert((conversation, one.1.clone()), last);
            }
        }
        let moves = moves.into_iter();
        Ok(moves
            .map(|((conversation, user), last)| (conversation, user, last))
            .collect())
    }
}

fn message_of(row: &ImportRow) -> Option<(ConversationId, MessageId)> {
    let (ImportRow::Message(message) | ImportRow::ChangedMessage(message, _)) = row else {
        return None;
    };
    Some((message.conversation, message.id))
}

fn position_of(row: &ImportRow) -> Option<(ConversationId, UserId, MessageId)> {
    let ImportRow::Participant {
        conversation,
        user,
        positions,
        ..
    } = row
    else {
        return None;
    };
    Some((*conversation, user.clone(), positions.read_up_to?))
}
