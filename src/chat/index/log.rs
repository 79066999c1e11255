//! Log of the changes since a directory, as far as a search of this process has read it. The next search reads on from
//! there: changes that concern no search, such as reactions, are read once and not with each search.

use std::sync::Arc;

use super::{CHANGES, CHANGES_MAX, SearchIndex, makes_loose};
use crate::chat::error::Result;
use crate::model::{ConversationId, MessageId, OrderKey};

/// Loose messages between two positions of a log of changes.
pub(super) struct LooseLog {
    /// Position up to which the directory has the changes.
    folded: OrderKey,
    /// Every change up to here was visible when it was read.
    up_to: OrderKey,
    loose: Vec<MessageId>,
}

impl SearchIndex {
    /// The messages that changes after a position make loose, and how many changes were read for them. `None` if there are
    /// too many to read at once: the log is remembered as far as it was read.
    pub(super) async fn loose_since(
        &self,
        conversation: ConversationId,
        folded: OrderKey,
    ) -> Result<Option<(Vec<MessageId>, usize)>> {
        // Before the read: what becomes visible later is read again.
        let settled = self.settled();
        let known = self.logs.get(&conversation);
        let known = known.filter(|known| known.folded == folded);
        let mut log = LooseLog {
            folded,
            up_to: known.as_ref().map_or(folded, |known| known.up_to),
            loose: known.map(|known| known.loose.clone()).unwrap_or_default(),
        };
        let (mut young, mut position, mut read) = (Vec::new(), log.up_to, 0);
        let is_whole = loop {
            let changes = self.store.changes(conversation, position, CHANGES).await?;
            read += changes.len();
            position = changes.last().map_or(position, |last| last.id.order_key());
            for change in changes.iter().filter(|change| makes_loose(change)) {
                let is_settled = change.id.order_key() <= settled;
                let list = if is_settled {
                    &mut log.loose
                } else {
                    &mut young
                };
                list.push(change.message);
            }
            if changes.len() < CHANGES {
                break true;
            }
            if read >= CHANGES_MAX {
                break false;
            }
        };
        let mut loose = log.loose.clone();
        loose.extend(young);
        if read > 0 {
            let reached = if is_whole {
                settled
            } else {
                settled.min(position)
            };
            log.up_to = log.up_to.max(reached);
            let bytes = 128 + size_of::<MessageId>() * log.loose.len();
            self.logs.put(conversation, Arc::new(log), bytes);
        }
        Ok(is_whole.then_some((loose, read)))
    }
}
