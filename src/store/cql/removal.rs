//! Removal of history on a cluster, each method handed to the folder that implements it.

use super::Cql;
use crate::model::{ConversationId, TimeUuid};
use crate::store::{
    DueQuery, DueRemoval, HistoryRemoval, OldestBucket, RemovalStore, RemovedHistory, StoreFuture,
    removal_operations,
};

/// Note with the expiry for which all conversations were scheduled, in seconds.
const NOTE_RETENTION: &str = "scheduled_retention";

impl RemovalStore for Cql {
    removal_operations! {
        messages: schedule_removal, due_removals, end_removal, oldest_bucket;
        sends: remove_history, log_expiry;
    }

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
}
