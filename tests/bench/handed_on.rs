//! A store that stands before another one, and changes nothing of erasure, live messages, removal, scans and the search index.

/// Implements erasure, live messages, removal, scans and the search index by the store in the field `inner`.
macro_rules! hand_on {
    ($store:ty) => {
        impl ::wideroom::store::ErasureStore for $store {
            fn conversations_of<'a>(
                &'a self,
                user: &'a ::wideroom::model::UserId,
                after: Option<::wideroom::model::ConversationId>,
                limit: usize,
            ) -> ::wideroom::store::StoreFuture<'a, ::wideroom::store::ConversationsPiece> {
                self.inner.conversations_of(user, after, limit)
            }

            fn erase_messages<'a>(
                &'a self,
                conversation: ::wideroom::model::ConversationId,
                user: &'a ::wideroom::model::UserId,
                messages: &'a [::wideroom::model::MessageId],
                change: ::wideroom::model::TimeUuid,
            ) -> ::wideroom::store::StoreFuture<'a, ()> {
                self.inner
                    .erase_messages(conversation, user, messages, change)
            }

            fn erase_participant<'a>(
                &'a self,
                conversation: ::wideroom::model::ConversationId,
                user: &'a ::wideroom::model::UserId,
                change: ::wideroom::model::TimeUuid,
            ) -> ::wideroom::store::StoreFuture<'a, ()> {
                self.inner.erase_participant(conversation, user, change)
            }

            fn erase_user<'a>(
                &'a self,
                user: &'a ::wideroom::model::UserId,
                at: ::wideroom::model::Timestamp,
            ) -> ::wideroom::store::StoreFuture<'a, ()> {
                self.inner.erase_user(user, at)
            }

            fn add_user_erased<'a>(
                &'a self,
                user: &'a ::wideroom::model::UserId,
                event: ::wideroom::model::TimeUuid,
                logged_as: ::wideroom::model::TimeUuid,
            ) -> ::wideroom::store::StoreFuture<'a, ()> {
                self.inner.add_user_erased(user, event, logged_as)
            }

            fn jobs<'a>(
                &'a self,
                ids: &'a [::wideroom::model::JobId],
            ) -> ::wideroom::store::StoreFuture<'a, Vec<Option<::wideroom::model::Job>>> {
                self.inner.jobs(ids)
            }

            fn running_jobs(
                &self,
                limit: usize,
            ) -> ::wideroom::store::StoreFuture<'_, Vec<::wideroom::model::Job>> {
                self.inner.running_jobs(limit)
            }

            fn swap_job<'a>(
                &'a self,
                seen: Option<&'a ::wideroom::model::Job>,
                to: &'a ::wideroom::model::Job,
            ) -> ::wideroom::store::StoreFuture<'a, bool> {
                self.inner.swap_job(seen, to)
            }
        }

        impl ::wideroom::store::LiveStore for $store {
            fn claim_live_writer<'a>(
                &'a self,
                live: ::wideroom::model::LiveKey,
                claim: &'a ::wideroom::store::live::WriterClaim,
            ) -> ::wideroom::store::StoreFuture<'a, bool> {
                self.inner.claim_live_writer(live, claim)
            }

            fn live_messages<'a>(
                &'a self,
                keys: &'a [::wideroom::model::LiveKey],
            ) -> ::wideroom::store::StoreFuture<'a, Vec<Option<::wideroom::model::LiveMessage>>>
            {
                self.inner.live_messages(keys)
            }

            fn live_texts<'a>(
                &'a self,
                query: &'a ::wideroom::store::live::LiveTextQuery,
            ) -> ::wideroom::store::StoreFuture<'a, Vec<::wideroom::model::LiveText>> {
                self.inner.live_texts(query)
            }

            fn write_live<'a>(
                &'a self,
                live: ::wideroom::model::LiveKey,
                write: &'a ::wideroom::store::live::LiveWrite,
            ) -> ::wideroom::store::StoreFuture<'a, ()> {
                self.inner.write_live(live, write)
            }

            fn stop_live<'a>(
                &'a self,
                live: ::wideroom::model::LiveKey,
                stop: &'a ::wideroom::model::LiveStop,
            ) -> ::wideroom::store::StoreFuture<'a, ()> {
                self.inner.stop_live(live, stop)
            }

            fn discard_live(
                &self,
                live: ::wideroom::model::LiveKey,
                at: ::wideroom::model::Timestamp,
            ) -> ::wideroom::store::StoreFuture<'_, ()> {
                self.inner.discard_live(live, at)
            }

            fn list_live<'a>(
                &'a self,
                listing: &'a ::wideroom::store::live::LiveListing,
                due_minute: u32,
            ) -> ::wideroom::store::StoreFuture<'a, ()> {
                self.inner.list_live(listing, due_minute)
            }

            fn listed_lives(
                &self,
                conversation: ::wideroom::model::ConversationId,
                from_minute: u32,
                limit: usize,
            ) -> ::wideroom::store::StoreFuture<'_, Vec<::wideroom::store::live::LiveListing>> {
                self.inner.listed_lives(conversation, from_minute, limit)
            }

            fn due_lives<'a>(
                &'a self,
                query: &'a ::wideroom::store::live::DueLiveQuery,
            ) -> ::wideroom::store::StoreFuture<'a, Vec<::wideroom::store::live::LiveListing>> {
                self.inner.due_lives(query)
            }
        }

        impl ::wideroom::store::RemovalStore for $store {
            fn set_retention(&self, seconds: Option<u32>) {
                self.inner.set_retention(seconds);
            }

            fn scheduled_retention(&self) -> ::wideroom::store::StoreFuture<'_, Option<u32>> {
                self.inner.scheduled_retention()
            }

            fn note_scheduled_retention(
                &self,
                seconds: Option<u32>,
            ) -> ::wideroom::store::StoreFuture<'_, ()> {
                self.inner.note_scheduled_retention(seconds)
            }

            fn schedule_removal(
                &self,
                due: ::wideroom::store::DueRemoval,
            ) -> ::wideroom::store::StoreFuture<'_, ()> {
                self.inner.schedule_removal(due)
            }

            fn due_removals<'a>(
                &'a self,
                query: &'a ::wideroom::store::DueQuery,
            ) -> ::wideroom::store::StoreFuture<'a, Vec<::wideroom::store::DueRemoval>> {
                self.inner.due_removals(query)
            }

            fn end_removal(
                &self,
                due: ::wideroom::store::DueRemoval,
            ) -> ::wideroom::store::StoreFuture<'_, ()> {
                self.inner.end_removal(due)
            }

            fn oldest_bucket(
                &self,
                conversation: ::wideroom::model::ConversationId,
            ) -> ::wideroom::store::StoreFuture<'_, Option<::wideroom::store::OldestBucket>> {
                self.inner.oldest_bucket(conversation)
            }

            fn remove_history<'a>(
                &'a self,
                conversation: ::wideroom::model::ConversationId,
                removal: &'a ::wideroom::store::HistoryRemoval,
            ) -> ::wideroom::store::StoreFuture<'a, ::wideroom::store::RemovedHistory> {
                self.inner.remove_history(conversation, removal)
            }

            fn log_expiry(
                &self,
                conversation: ::wideroom::model::ConversationId,
                event: ::wideroom::model::TimeUuid,
            ) -> ::wideroom::store::StoreFuture<'_, ()> {
                self.inner.log_expiry(conversation, event)
            }
        }

        impl ::wideroom::store::ScanStore for $store {
            fn all_users<'a>(
                &'a self,
                after: Option<&'a ::wideroom::model::UserId>,
                limit: usize,
            ) -> ::wideroom::store::StoreFuture<
                'a,
                Vec<(::wideroom::model::UserId, ::wideroom::model::Profile)>,
            > {
                self.inner.all_users(after, limit)
            }

            fn all_conversations(
                &self,
                after: Option<::wideroom::model::ConversationId>,
                limit: usize,
            ) -> ::wideroom::store::StoreFuture<
                '_,
                Vec<(
                    ::wideroom::model::Conversation,
                    Option<::wideroom::model::Timestamp>,
                )>,
            > {
                self.inner.all_conversations(after, limit)
            }
        }

        impl ::wideroom::store::SearchStore for $store {
            fn search_directories<'a>(
                &'a self,
                conversations: &'a [::wideroom::model::ConversationId],
            ) -> ::wideroom::store::StoreFuture<'a, Vec<Option<Vec<u8>>>> {
                self.inner.search_directories(conversations)
            }

            fn swap_search_directory<'a>(
                &'a self,
                conversation: ::wideroom::model::ConversationId,
                seen: Option<&'a [u8]>,
                to: &'a [u8],
            ) -> ::wideroom::store::StoreFuture<'a, bool> {
                Box::pin(async move {
                    let inner = &self.inner;
                    inner.swap_search_directory(conversation, seen, to).await
                })
            }

            fn add_search_segment<'a>(
                &'a self,
                segment: ::wideroom::store::SearchSegmentKey,
                blocks: &'a [Vec<u8>],
                change: &'a ::wideroom::store::DirectoryChange,
            ) -> ::wideroom::store::StoreFuture<'a, bool> {
                self.inner.add_search_segment(segment, blocks, change)
            }

            fn search_blocks<'a>(
                &'a self,
                blocks: &'a [(::wideroom::store::SearchSegmentKey, u32)],
            ) -> ::wideroom::store::StoreFuture<'a, Vec<Option<Vec<u8>>>> {
                self.inner.search_blocks(blocks)
            }

            fn delete_search_segments<'a>(
                &'a self,
                segments: &'a [::wideroom::store::SearchSegmentKey],
            ) -> ::wideroom::store::StoreFuture<'a, ()> {
                self.inner.delete_search_segments(segments)
            }
        }
    };
}

pub(crate) use hand_on;
