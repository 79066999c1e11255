//! Erasure of users on a cluster.
//!
//! A name is replaced with a later timestamp, so that the repetition of an old write does not bring it back.
//! The tombstone of an inbox row also hides the maximum registers of a later row under the same key, until
//! the cluster drops it: the inbox of a user who is restored begins anew in other conversations.

use async_trait::async_trait;

use super::Cql;
use crate::model::{
    ChangeId, ConversationId, Job, JobId, MessageId, OutboxEvent, OutboxRow, Report, TimeUuid,
    Timestamp, UserId,
};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::{ConversationsPiece, ErasureStore, Result};

#[async_trait]
impl ErasureStore for Cql {
    async fn conversations_of(
        &self,
        user: &UserId,
        after: Option<ConversationId>,
        limit: usize,
    ) -> Result<ConversationsPiece> {
        let after = after.unwrap_or(ConversationId(uuid::Uuid::nil()));
        let rows = self.inboxes.stored_memberships(user, after, limit).await?;
        let found: Vec<_> = rows.into_iter().map(|(id, _)| id).collect();
        let next = found.last().copied().filter(|_| found.len() == limit);
        Ok(ConversationsPiece { found, next })
    }

    async fn erase_messages(
        &self,
        conversation: ConversationId,
        user: &UserId,
        messages: &[MessageId],
        change: ChangeId,
    ) -> Result<()> {
        self.sends
            .erase_messages(conversation, user, messages, change)
            .await
    }

    async fn erase_participant(
        &self,
        conversation: ConversationId,
        user: &UserId,
        change: ChangeId,
    ) -> Result<()> {
        self.bans.erase(conversation, user, change).await?;
        self.sends
            .erase_participant(conversation, user, change)
            .await
    }

    async fn erase_user(&self, user: &UserId, at: Timestamp) -> Result<()> {
        self.blocks.erase(user, at).await?;
        self.inboxes.erase(user, at).await?;
        self.profiles.erase(user, at).await
    }

    async fn add_user_erased(
        &self,
        user: &UserId,
        event: TimeUuid,
        logged_as: TimeUuid,
    ) -> Result<()> {
        let events = || vec![OutboxEvent::user_erased(event, user.clone())];
        let row = self.outbox.row(Report::NO_CONVERSATION, events);
        let row = row.map(|row| OutboxRow {
            id: logged_as,
            ..row
        });
        match row {
            Some(row) => self.outbox.write_all(Writes::logged(), Some(row)).await,
            None => Ok(()),
        }
    }

    async fn jobs(&self, ids: &[JobId]) -> Result<Vec<Option<Job>>> {
        self.jobs.by_ids(ids).await
    }

    async fn running_jobs(&self, limit: usize) -> Result<Vec<Job>> {
        self.jobs.running(limit).await
    }

    async fn swap_job(&self, seen: Option<&Job>, to: &Job) -> Result<bool> {
        self.jobs.swap(seen, to).await
    }
}
