//! Removal of history through the slow store: it is not slowed.

use async_trait::async_trait;
use wideroom::model::{ConversationId, HistorySettings, TimeUuid};
use wideroom::store::{
    DueQuery, DueRemoval, HistoryRemoval, OldestBucket, RemovalStore, RemovedHistory, Result,
};

use super::slow::Slow;

#[async_trait]
impl RemovalStore for Slow {
    fn set_retention(&self, seconds: Option<u32>) {
        self.inner.set_retention(seconds);
    }

    async fn scheduled_retention(&self) -> Result<Option<u32>> {
        self.inner.scheduled_retention().await
    }

    async fn note_scheduled_retention(&self, seconds: Option<u32>) -> Result<()> {
        self.inner.note_scheduled_retention(seconds).await
    }

    async fn histories(
        &self,
        after: Option<ConversationId>,
        limit: usize,
    ) -> Result<Vec<(ConversationId, HistorySettings)>> {
        self.inner.histories(after, limit).await
    }

    async fn schedule_removal(&self, due: DueRemoval) -> Result<()> {
        self.inner.schedule_removal(due).await
    }

    async fn due_removals(&self, query: &DueQuery) -> Result<Vec<DueRemoval>> {
        self.inner.due_removals(query).await
    }

    async fn end_removal(&self, due: DueRemoval) -> Result<()> {
        self.inner.end_removal(due).await
    }

    async fn oldest_bucket(&self, conversation: ConversationId) -> Result<Option<OldestBucket>> {
        self.inner.oldest_bucket(conversation).await
    }

    async fn remove_history(
        &self,
        conversation: ConversationId,
        removal: &HistoryRemoval,
    ) -> Result<RemovedHistory> {
        self.inner.remove_history(conversation, removal).await
    }

    async fn log_expiry(&self, conversation: ConversationId, event: TimeUuid) -> Result<()> {
        self.inner.log_expiry(conversation, event).await
    }
}
