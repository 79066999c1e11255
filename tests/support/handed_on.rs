//! A store that stands before another one, and changes nothing of erasure, removal and the search index.

/// Implements erasure, removal and the search index by the store in the field `inner`.
macro_rules! hand_on {
    ($store:ty) => {
        #[::async_trait::async_trait]
        impl ::wideroom::store::ErasureStore for $store {
            async fn conversations_of(
                &self,
                user: &::wideroom::model::UserId,
                after: Option<::wideroom::model::ConversationId>,
                limit: usize,
            ) -> ::wideroom::store::Result<::wideroom::store::ConversationsPiece> {
                self.inner.conversations_of(user, after, limit).await
            }

            async fn erase_messages(
                &self,
                conversation: ::wideroom::model::ConversationId,
                user: &::wideroom::model::UserId,
                messages: &[::wideroom::model::MessageId],
                change: ::wideroom::model::TimeUuid,
            ) -> ::wideroom::store::Result<()> {
                self.inner
                    .erase_messages(conversation, user, messages, change)
                    .await
            }

            async fn erase_participant(
                &self,
                conversation: ::wideroom::model::ConversationId,
                user: &::wideroom::model::UserId,
                change: ::wideroom::model::TimeUuid,
            ) -> ::wideroom::store::Result<()> {
                self.inner
                    .erase_participant(conversation, user, change)
                    .await
            }

            async fn erase_user(
                &self,
                user: &::wideroom::model::UserId,
                at: ::wideroom::model::Timestamp,
            ) -> ::wideroom::store::Result<()> {
                self.inner.erase_user(user, at).await
            }

            async fn add_user_erased(
                &self,
                user: &::wideroom::model::UserId,
                event: ::wideroom::model::TimeUuid,
                logged_as: ::wideroom::model::TimeUuid,
            ) -> ::wideroom::store::Result<()> {
                self.inner.add_user_erased(user, event, logged_as).await
            }

            async fn jobs(
                &self,
                ids: &[::wideroom::model::JobId],
            ) -> ::wideroom::store::Result<Vec<Option<::wideroom::model::Job>>> {
                self.inner.jobs(ids).await
            }

            async fn running_jobs(
                &self,
                limit: usize,
            ) -> ::wideroom::store::Result<Vec<::wideroom::model::Job>> {
                self.inner.running_jobs(limit).await
            }

            async fn swap_job(
                &self,
                seen: Option<&::wideroom::model::Job>,
                to: &::wideroom::model::Job,
            ) -> ::wideroom::store::Result<bool> {
                self.inner.swap_job(seen, to).await
            }
        }

        #[::async_trait::async_trait]
        impl ::wideroom::store::RemovalStore for $store {
            fn set_retention(&self, seconds: Option<u32>) {
                self.inner.set_retention(seconds);
            }

            async fn scheduled_retention(&self) -> ::wideroom::store::Result<Option<u32>> {
                self.inner.scheduled_retention().await
            }

            async fn note_scheduled_retention(
                &self,
                seconds: Option<u32>,
            ) -> ::wideroom::store::Result<()> {
                self.inner.note_scheduled_retention(seconds).await
            }

            async fn histories(
                &self,
                after: Option<::wideroom::model::ConversationId>,
                limit: usize,
            ) -> ::wideroom::store::Result<
                Vec<(
                    ::wideroom::model::ConversationId,
                    ::wideroom::model::HistorySettings,
                )>,
            > {
                self.inner.histories(after, limit).await
            }

            async fn schedule_removal(
                &self,
                due: ::wideroom::store::DueRemoval,
            ) -> ::wideroom::store::Result<()> {
                self.inner.schedule_removal(due).await
            }

            async fn due_removals(
                &self,
                query: &::wideroom::store::DueQuery,
            ) -> ::wideroom::store::Result<Vec<::wideroom::store::DueRemoval>> {
                self.inner.due_removals(query).await
            }

            async fn end_removal(
                &self,
                due: ::wideroom::store::DueRemoval,
            ) -> ::wideroom::store::Result<()> {
                self.inner.end_removal(due).await
            }

            async fn oldest_bucket(
                &self,
                conversation: ::wideroom::model::ConversationId,
            ) -> ::wideroom::store::Result<Option<::wideroom::store::OldestBucket>> {
                self.inner.oldest_bucket(conversation).await
            }

            async fn remove_history(
                &self,
                conversation: ::wideroom::model::ConversationId,
                removal: &::wideroom::store::HistoryRemoval,
            ) -> ::wideroom::store::Result<::wideroom::store::RemovedHistory> {
                self.inner.remove_history(conversation, removal).await
            }

            async fn log_expiry(
                &self,
                conversation: ::wideroom::model::ConversationId,
                event: ::wideroom::model::TimeUuid,
            ) -> ::wideroom::store::Result<()> {
                self.inner.log_expiry(conversation, event).await
            }
        }

        #[::async_trait::async_trait]
        impl ::wideroom::store::SearchStore for $store {
            async fn search_directories(
                &self,
                conversations: &[::wideroom::model::ConversationId],
            ) -> ::wideroom::store::Result<Vec<Option<Vec<u8>>>> {
                self.inner.search_directories(conversations).await
            }

            async fn swap_search_directory(
                &self,
                conversation: ::wideroom::model::ConversationId,
                seen: Option<&[u8]>,
                to: &[u8],
            ) -> ::wideroom::store::Result<bool> {
                let inner = &self.inner;
                inner.swap_search_directory(conversation, seen, to).await
            }

            async fn add_search_segment(
                &self,
                segment: ::wideroom::store::SearchSegmentKey,
                blocks: &[Vec<u8>],
                change: &::wideroom::store::DirectoryChange,
            ) -> ::wideroom::store::Result<bool> {
                self.inner.add_search_segment(segment, blocks, change).await
            }

            async fn search_blocks(
                &self,
                blocks: &[(::wideroom::store::SearchSegmentKey, u32)],
            ) -> ::wideroom::store::Result<Vec<Option<Vec<u8>>>> {
                self.inner.search_blocks(blocks).await
            }

            async fn delete_search_segments(
                &self,
                segments: &[::wideroom::store::SearchSegmentKey],
            ) -> ::wideroom::store::Result<()> {
                self.inner.delete_search_segments(segments).await
            }
        }
    };
}

pub(crate) use hand_on;
