//! Erasure of users on a cluster.
//!
//! A name is replaced with a later timestamp, so that the repetition of an old write does not bring it back.
//! The tombstone of an inbox row also hides the maximum registers of a later row under the same key, until
//! the cluster drops it: the inbox of a user who is restored begins anew in other conversations.

use super::Cql;
use crate::model::{
    ChangeId, ConversationId, Job, JobId, MessageId, OutboxEvent, OutboxRow, Report, TimeUuid,
    Timestamp, UserId,
};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::{ConversationsPiece, ErasureStore, StoreFuture, erasure_operations};

impl ErasureStore for Cql {
    erasure_operations! {
        jobs: jobs as by_ids, running_jobs as running, swap_job as swap;
        sends: erase_messages;
    }

    fn conversations_of<'a>(
        &'a self,
        user: &'a UserId,
        after: Option<ConversationId>,
        limit: usize,
    ) -> StoreFuture<'a, ConversationsPiece> {
        Box::pin(async move {
            let after = after.unwrap_or(ConversationId(uuid::Uuid::nil()));
            let rows = self.inboxes.stored_memberships(user, after, limit).await?;
            let found: Vec<_> = rows.into_iter().map(|(id, _)| id).collect();
            let next = found.last().copied().filter(|_| found.len() == limit);
            Ok(ConversationsPiece { found, next })
        })
    }

    fn erase_participant<'a>(
        &'a self,
        conversation: ConversationId,
        user: &'a UserId,
        change: ChangeId,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.bans.erase(conversation, user, change).await?;
            self.sends
                .erase_participant(conversation, user, change)
                .await
        })
    }

    fn erase_user<'a>(&'a self, user: &'a UserId, at: Timestamp) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.blocks.erase(user, at).await?;
            self.inboxes.erase(user, at).await?;
            self.profiles.erase(user, at).await
        })
    }

    fn add_user_erased<'a>(
        &'a self,
        user: &'a UserId,
        event: TimeUuid,
        logged_as: TimeUuid,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
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
        })
    }
}
