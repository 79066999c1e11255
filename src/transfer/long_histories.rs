//! Long histories of an import: the conversations whose messages are counted once all are there.

use std::collections::BTreeSet;

use crate::model::ConversationId;
use crate::store::ImportRow;

/// Messages of one conversation in a row from which it is counted. An import has at most a
/// thousandth as many of these conversations as it has lines.
const RUN_MIN: u64 = 1_000;

/// Conversations with many messages one after another, as an export has them.
#[derive(Debug, Default)]
pub(super) struct LongHistories {
    last: Option<ConversationId>,
    run: u64,
    long: BTreeSet<ConversationId>,
}

impl LongHistories {
    pub(super) fn note(&mut self, row: &ImportRow) {
        let (ImportRow::Message(message) | ImportRow::ChangedMessage(message, _)) = row else {
            return;
        };
        let conversation = message.conversation;
        if self.last.replace(conversation) != Some(conversation) {
            self.run = 0;
        }
        self.run += 1;
        if self.run == RUN_MIN {
            self.long.insert(conversation);
        }
    }

    pub(super) fn take(&mut self) -> BTreeSet<ConversationId> {
        std::mem::take(&mut self.long)
    }
}
