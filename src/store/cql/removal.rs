//! Removal of history on a cluster, each method handed to the folder that implements it.

use super::Cql;
use crate::model::{ConversationId, TimeUuid};
use crate::store::{
    DueQuery, DueRemoval, HistoryRemoval, OldestBucket, RemovalStore, RemovedHistory, StoreFuture,
};

/// Note with the expiry for which all conversations were scheduled, in seconds.
const NOTE_RETENTION: &str = "scheduled_retention";

impl RemovalStore for Cql {
    fn set_retention(&self, seconds: Option<u32>) {
        self.sends.set_retention(seconds);
    }

    fn scheduled_retention(&self) -> StoreFuture<'_, Option<u32>> {
        Box::pin(async move {
            let note = self.admin.note(NOTE_RETENTION).await?;
            Ok(note.and_then(|seconds| seconds.parse().ok()))
        })
    }

    fn note_scheduled_retention(&self, seconds: Option<u32>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let note = seconds.map(|seconds| seconds.to_string());
            self.admin.set_note(NOTE_RETENTION, note.as_deref()).await
        })
    }

    fn schedule_removal(&self, due: DueRemoval) -> StoreFuture<'_, ()> {
        Box::pin(self.messages.schedule_removal(due))
    }

    fn due_removals<'a>(&'a self, query: &'a DueQuery) -> StoreFuture<'a, Vec<DueRemoval>> {
        Box::pin(self.messages.due_removals(query))
    }

    fn end_removal(&self, due: DueRemoval) -> StoreFuture<'_, ()> {
        Box::pin(self.messages.end_removal(due))
    }

    fn oldest_bucket(&self, conversation: ConversationId) -> StoreFuture<'_, Option<OldestBucket>> {
        Box::pin(self.messages.oldest_bucket(conversation))
    }

    fn remove_history<'a>(
        &'a self,
        conversation: ConversationId,
        removal: &'a HistoryRemoval,
    ) -> StoreFuture<'a, RemovedHistory> {
        Box::pin(self.sends.remove_history(conversation, removal))
    }

    fn log_expiry(&self, conversation: ConversationId, event: TimeUuid) -> StoreFuture<'_, ()> {
        Box::pin(self.sends.log_expiry(conversation, event))
    }
}
