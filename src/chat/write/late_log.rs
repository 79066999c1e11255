//! Late log: writes that became visible long after their ids were allocated, on a shared store.
//!
//! A stream may have passed such an id. So the write is logged once more under a fresh id, which
//! the stream will find.

use super::conversation_writer::ConversationWriter;
use super::unknown_outcome::retry_until_known;
use crate::model::{Change, ChangeKind, Message, MessageId, TimeUuid, UserId};
use crate::store;

/// Age of an id at which its write is late. Streams read back 10 s: twice this and the difference
/// of two clocks.
const LATE_AFTER_MICROS: i64 = 4_000_000;
/// The log entry of a late write may be late itself. After this many in a row the store is too slow
/// to go on.
const LATE_TRIES: usize = 5;

/// Log entry of a late write, without its fresh id.
struct LateEntry {
    kind: ChangeKind,
    message: MessageId,
    user: UserId,
}

impl ConversationWriter {
    fn is_late(&self, id: TimeUuid) -> bool {
        self.context()
            .in_flight
            .is_older_than(id, LATE_AFTER_MICROS)
    }

    pub(crate) async fn log_late_messages(
        &self,
        messages: &[(MessageId, &UserId)],
    ) -> store::Result<()> {
        let late = messages.iter().filter(|(id, _)| self.is_late(*id));
        let entries = late.map(|(id, sender)| LateEntry {
            kind: ChangeKind::MessageLate,
            message: *id,
            user: (*sender).clone(),
        });
        self.log_late(entries.collect()).await
    }

    pub(crate) async fn log_late_change(&self, change: &Change) -> store::Result<()> {
        let entry = self.is_late(change.id).then(|| LateEntry {
            kind: change.kind,
            message: change.message,
            user: change.user.clone(),
        });
        self.log_late(entry.into_iter().collect()).await
    }

    pub(crate) async fn log_late_decision(
        &self,
        changes: &[Change],
        message: &Message,
    ) -> store::Result<()> {
        let late = |id: TimeUuid, kind, user: &UserId| {
            self.is_late(id).then(|| LateEntry {
                kind,
                message: message.id,
                user: user.clone(),
            })
        };
        let changed = changes
            .iter()
            .filter_map(|change| late(change.id, change.kind, &change.user));
        let entries = changed.chain(late(message.id, ChangeKind::MessageLate, &message.sender));
        self.log_late(entries.collect()).await
    }

    /// Logs the entries under fresh ids, until that write itself is not late.
    async fn log_late(&self, entries: Vec<LateEntry>) -> store::Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let context = self.context();
        for _ in 0..LATE_TRIES {
            let lease = context.in_flight.allocate(entries.len());
            let change = |(entry, id): (&LateEntry, &TimeUuid)| Change {
                id: *id,
                kind: entry.kind,
                message: entry.message,
                user: entry.user.clone(),
            };
            let changes: Vec<_> = entries.iter().zip(lease.ids()).map(change).collect();
            // The event is published under its own id; the poller must not publish its log entry.
            for change in &changes {
                context.publisher.record(change.id);
            }
            let (lease, ()) = retry_until_known(lease, || {
                context.store.log_late(self.conversation(), &changes)
            })
            .await?;
            if !self.is_late(lease.newest()) {
                return Ok(());
            }
        }
        Err(store::Error::OutcomeUnknown(
            "a late write could not be logged in time".into(),
        ))
    }
}
