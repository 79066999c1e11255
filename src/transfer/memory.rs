//! A store in memory for the tests of an import, with injected faults.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::model::{
    AppKey, AppKeyClaim, Ban, Block, Change, Conversation, ConversationId, ConversationProfile,
    Cut, DirectIds, Emoji, Flags, IdempotencyKey, IgnoredSenders, InboxKey, InboxRow, Job, JobId,
    Membership, Message, MessageId, OrderKey, OutboxShard, Page, PageRequest, Participant, Pin,
    Profile, Reaction, Report, ReportId, ReportResolution, Restriction, Revision, TimeUuid,
    Timestamp, Unread, UserId,
};
use crate::store::cluster::ClusterStore;
use crate::store::{
    Appended, Audience, ChangedRow, ConversationProfileChange, ConversationsPiece, Created,
    DeadLetter, DirectoryChange, DueQuery, DueRemoval, EarlierSend, ErasureStore, Error,
    FlagsChange, HistoryRemoval, ImportPositions, ImportRow, Imported, LateChange,
    LoggedRestriction, MarkerMove, MembershipChange, MembershipSnapshot, NewConversation,
    NewMessage, OldestBucket, OutboxPage, OutboxRead, Participation, ProfileChange, ReaderPosition,
    RemovalStore, RemovedHistory, Renaming, ReportQuery, Restricted, RestrictionChange, Result,
    Revised, ScanStore, SearchSegmentKey, SearchStore, Store, StoreAdmin, StoreFuture,
    StoredMessage, UnreadQuery, Verified, VerifyPosition,
};

#[derive(Default)]
pub(super) struct Memory {
    pub(super) rows: Mutex<HashSet<String>>,
    pub(super) notes: Mutex<HashMap<String, String>>,
    /// Imports until one fails.
    pub(super) imports_left: Mutex<Option<usize>>,
    pub(super) counted: Mutex<Vec<ConversationId>>,
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory")
    }
}

impl Memory {
    fn keep(&self, row: &ImportRow) -> Imported {
        let mut rows = self.rows.lock();
        let (key, conversation) = match row {
            ImportRow::User { user, .. } => (format!("user {user}"), None),
            ImportRow::EveryoneRevoked(moment) => (format!("everyone {moment}"), None),
            ImportRow::Block { user, blocked, .. } => (format!("block {user} {blocked}"), None),
            ImportRow::Conversation { conversation, .. }
                if conversation
                    .name
                    .as_ref()
                    .is_some_and(|name| name.as_str() == "refused") =>
            {
                return Imported::Refused("it is refused");
            }
            ImportRow::Conversation { conversation, .. } => (conversation.id.to_string(), None),
            ImportRow::Participant {
                conversation, user, ..
            } => (format!("{conversation} {user}"), Some(conversation)),
            ImportRow::Message(message) | ImportRow::ChangedMessage(message, _) => (
                format!("{} {}", message.conversation, message.id),
                Some(&message.conversation),
            ),
            ImportRow::Report(report) => (format!("report {}", report.id), None),
            ImportRow::Pin {
                conversation,
                message,
                ..
            } => {
                if rows.contains(&conversation.to_string())
                    && !rows.contains(&format!("{conversation} {message}"))
                {
                    return Imported::MessageMissing;
                }
                (format!("pin {conversation} {message}"), Some(conversation))
            }
            ImportRow::Reaction {
                conversation,
                message,
                emoji,
                user,
            } => {
                if rows.contains(&conversation.to_string())
                    && !rows.contains(&format!("{conversation} {message}"))
                {
                    return Imported::MessageMissing;
                }
                (
                    format!("{conversation} {message} {emoji} {user}"),
                    Some(conversation),
                )
            }
        };
        if conversation.is_some_and(|id| !rows.contains(&id.to_string())) {
            return Imported::ConversationMissing;
        }
        if rows.insert(key) {
            Imported::Added
        } else {
            Imported::Unchanged
        }
    }
}

impl ScanStore for Memory {
    fn all_users<'a>(
        &'a self,
        _: Option<&'a UserId>,
        _: usize,
    ) -> StoreFuture<'a, Vec<(UserId, Profile)>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }

    fn all_conversations(
        &self,
        _: Option<ConversationId>,
        _: usize,
    ) -> StoreFuture<'_, Vec<(Conversation, Option<Timestamp>)>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
}

impl StoreAdmin for Memory {
    fn import<'a>(&'a self, rows: &'a [ImportRow]) -> StoreFuture<'a, Vec<Imported>> {
        Box::pin(async move {
            if let Some(left) = self.imports_left.lock().as_mut() {
                *left = left
                    .checked_sub(1)
                    .ok_or_else(|| Error::Unavailable("the disk is full".into()))?;
            }
            Ok(rows.iter().map(|row| self.keep(row)).collect())
        })
    }

    fn note<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<String>> {
        Box::pin(async move { Ok(self.notes.lock().get(name).cloned()) })
    }

    fn set_note<'a>(&'a self, name: &'a str, value: Option<&'a str>) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut notes = self.notes.lock();
            match value {
                Some(value) => notes.insert(name.to_owned(), value.to_owned()),
                None => notes.remove(name),
            };
            Ok(())
        })
    }

    fn note_once<'a>(&'a self, _: &'a str, _: &'a str) -> StoreFuture<'a, String> {
        Box::pin(async move { unreachable!("not part of an import") })
    }

    fn set_outbox(&self, _: Option<Timestamp>) -> StoreFuture<'_, ()> {
        Box::pin(async move { unreachable!("not part of an import") })
    }

    fn count_imported(&self, conversation: ConversationId) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.counted.lock().push(conversation);
            Ok(())
        })
    }

    fn compact(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move { unreachable!("not part of an import") })
    }

    fn verify<'a>(&'a self, _: Option<&'a VerifyPosition>, _: bool) -> StoreFuture<'a, Verified> {
        Box::pin(async move { unreachable!("not part of an import") })
    }

    fn all_participants<'a>(
        &'a self,
        _: ConversationId,
        _: Option<&'a UserId>,
        _: usize,
    ) -> StoreFuture<'a, Vec<(UserId, Membership, ImportPositions)>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }

    fn all_messages(
        &self,
        _: ConversationId,
        _: Option<MessageId>,
        _: usize,
    ) -> StoreFuture<'_, Vec<StoredMessage>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }

    fn all_reactions<'a>(
        &'a self,
        _: ConversationId,
        _: MessageId,
        _: Option<&'a (Emoji, UserId)>,
        _: usize,
    ) -> StoreFuture<'a, Vec<(Emoji, UserId)>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
}

impl RemovalStore for Memory {
    fn set_retention(&self, _: Option<u32>) {}

    fn note_scheduled_retention(&self, _: Option<u32>) -> StoreFuture<'_, ()> {
        Box::pin(async move { Ok(()) })
    }
    fn scheduled_retention(&self) -> StoreFuture<'_, Option<u32>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn schedule_removal(&self, _: DueRemoval) -> StoreFuture<'_, ()> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn due_removals<'a>(&'a self, _: &'a DueQuery) -> StoreFuture<'a, Vec<DueRemoval>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn end_removal(&self, _: DueRemoval) -> StoreFuture<'_, ()> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn oldest_bucket(&self, _: ConversationId) -> StoreFuture<'_, Option<OldestBucket>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn remove_history<'a>(
        &'a self,
        _: ConversationId,
        _: &'a HistoryRemoval,
    ) -> StoreFuture<'a, RemovedHistory> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn log_expiry(&self, _: ConversationId, _: TimeUuid) -> StoreFuture<'_, ()> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
}

impl SearchStore for Memory {
    fn search_directories<'a>(
        &'a self,
        _: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<Option<Vec<u8>>>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn swap_search_directory<'a>(
        &'a self,
        _: ConversationId,
        _: Option<&'a [u8]>,
        _: &'a [u8],
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn add_search_segment<'a>(
        &'a self,
        _: SearchSegmentKey,
        _: &'a [Vec<u8>],
        _: &'a DirectoryChange,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn search_blocks<'a>(
        &'a self,
        _: &'a [(SearchSegmentKey, u32)],
    ) -> StoreFuture<'a, Vec<Option<Vec<u8>>>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn delete_search_segments<'a>(&'a self, _: &'a [SearchSegmentKey]) -> StoreFuture<'a, ()> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
}

impl ErasureStore for Memory {
    fn conversations_of<'a>(
        &'a self,
        _: &'a UserId,
        _: Option<ConversationId>,
        _: usize,
    ) -> StoreFuture<'a, ConversationsPiece> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn erase_messages<'a>(
        &'a self,
        _: ConversationId,
        _: &'a UserId,
        _: &'a [MessageId],
        _: TimeUuid,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn erase_participant<'a>(
        &'a self,
        _: ConversationId,
        _: &'a UserId,
        _: TimeUuid,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn erase_user<'a>(&'a self, _: &'a UserId, _: Timestamp) -> StoreFuture<'a, ()> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn add_user_erased<'a>(
        &'a self,
        _: &'a UserId,
        _: TimeUuid,
        _: TimeUuid,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn jobs<'a>(&'a self, _: &'a [JobId]) -> StoreFuture<'a, Vec<Option<Job>>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn running_jobs(&self, _: usize) -> StoreFuture<'_, Vec<Job>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn swap_job<'a>(&'a self, _: Option<&'a Job>, _: &'a Job) -> StoreFuture<'a, bool> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
}

impl Store for Memory {
    fn set_outbox_keep(&self, _: Duration) {}

    fn overlap_micros(&self) -> i64 {
        0
    }

    fn cluster(&self) -> Option<Arc<dyn ClusterStore>> {
        None
    }
    fn health(&self) -> Result<(), String> {
        Ok(())
    }
    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move { Ok(()) })
    }
    fn newest_id(&self) -> StoreFuture<'_, Option<TimeUuid>> {
        Box::pin(async move { Ok(None) })
    }
    fn imported_at(&self) -> StoreFuture<'_, Option<Timestamp>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn restored_at(&self) -> StoreFuture<'_, Option<Timestamp>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn direct_ids(&self) -> StoreFuture<'_, DirectIds> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn participations<'a>(
        &'a self,
        _: &'a UserId,
        _: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<Option<Participation>>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn direct_conversation<'a>(
        &'a self,
        _: &'a UserId,
        _: &'a UserId,
    ) -> StoreFuture<'a, Option<ConversationId>> {
        Box::pin(async move { Ok(None) })
    }
    fn app_key_claim<'a>(&'a self, _: &'a AppKey) -> StoreFuture<'a, Option<AppKeyClaim>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn claim_app_key<'a>(&'a self, _: &'a AppKey, _: AppKeyClaim) -> StoreFuture<'a, AppKeyClaim> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn create_conversation<'a>(&'a self, _: &'a NewConversation) -> StoreFuture<'a, Created> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn participants<'a>(
        &'a self,
        _: ConversationId,
        _: &'a PageRequest<UserId>,
    ) -> StoreFuture<'a, Page<Participant>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn participants_with_prefix<'a>(
        &'a self,
        _: ConversationId,
        _: &'a str,
        _: &'a PageRequest<UserId>,
    ) -> StoreFuture<'a, Page<Participant>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn bans<'a>(
        &'a self,
        _: ConversationId,
        _: &'a PageRequest<UserId>,
    ) -> StoreFuture<'a, Page<Ban>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn bans_of<'a>(
        &'a self,
        _: ConversationId,
        _: &'a [UserId],
    ) -> StoreFuture<'a, Vec<Option<Ban>>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn ban_count(&self, _: ConversationId, _: usize) -> StoreFuture<'_, usize> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn participants_by_name<'a>(
        &'a self,
        _: &'a [(ConversationId, UserId)],
    ) -> StoreFuture<'a, Vec<Option<Participant>>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn participant_counts<'a>(&'a self, _: &'a [ConversationId]) -> StoreFuture<'a, Vec<u64>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn membership_snapshot<'a>(
        &'a self,
        _: ConversationId,
        _: &'a [UserId],
    ) -> StoreFuture<'a, Option<MembershipSnapshot>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn change_membership<'a>(
        &'a self,
        _: ConversationId,
        _: &'a MembershipChange,
    ) -> StoreFuture<'a, Option<Audience>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn rename_conversation<'a>(
        &'a self,
        _: ConversationId,
        _: &'a Renaming,
    ) -> StoreFuture<'a, Audience> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn set_slow_mode<'a>(
        &'a self,
        _: ConversationId,
        _: u32,
        _: &'a Change,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn conversation_profiles<'a>(
        &'a self,
        _: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<ConversationProfile>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }

    fn change_conversation_profile<'a>(
        &'a self,
        _: ConversationId,
        _: &'a ConversationProfileChange,
        _: &'a Change,
    ) -> StoreFuture<'a, Audience> {
        Box::pin(async move { unreachable!("not part of an import") })
    }

    fn append_messages<'a>(
        &'a self,
        _: ConversationId,
        _: &'a [NewMessage],
    ) -> StoreFuture<'a, Appended> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn revise_message<'a>(
        &'a self,
        _: ConversationId,
        _: &'a Revision,
        _: &'a Change,
    ) -> StoreFuture<'a, Option<Revised>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn changes(&self, _: ConversationId, _: OrderKey, _: usize) -> StoreFuture<'_, Vec<Change>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn newest_events<'a>(
        &'a self,
        _: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<Option<TimeUuid>>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn log_late<'a>(&'a self, _: ConversationId, _: &'a [LateChange]) -> StoreFuture<'a, ()> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn outbox_since(&self) -> StoreFuture<'_, Option<Timestamp>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn outbox<'a>(
        &'a self,
        _: &'a [OutboxRead],
        _: OrderKey,
        _: usize,
    ) -> StoreFuture<'a, Vec<OutboxPage>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn reader_positions<'a>(&'a self, _: &'a str) -> StoreFuture<'a, Vec<Option<ReaderPosition>>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn swap_reader_position<'a>(
        &'a self,
        _: &'a str,
        _: OutboxShard,
        _: Option<&'a ReaderPosition>,
        _: &'a ReaderPosition,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn put_dead_letter<'a>(&'a self, _: &'a str, _: &'a DeadLetter) -> StoreFuture<'a, ()> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn dead_letters<'a>(&'a self, _: &'a str, _: usize) -> StoreFuture<'a, Vec<DeadLetter>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn delete_dead_letter<'a>(&'a self, _: &'a str, _: &'a DeadLetter) -> StoreFuture<'a, ()> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn conversations<'a>(
        &'a self,
        _: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<Option<Arc<Conversation>>>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn earlier_sends<'a>(
        &'a self,
        _: ConversationId,
        _: &'a [(UserId, IdempotencyKey)],
    ) -> StoreFuture<'a, Vec<Option<EarlierSend>>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn history<'a>(
        &'a self,
        _: ConversationId,
        _: &'a Cut<OrderKey>,
        _: &'a PageRequest<OrderKey>,
    ) -> StoreFuture<'a, Page<std::sync::Arc<Message>>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn messages<'a>(
        &'a self,
        _: &'a [(ConversationId, MessageId)],
    ) -> StoreFuture<'a, Vec<Option<std::sync::Arc<Message>>>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn messages_at<'a>(
        &'a self,
        _: &'a [(ConversationId, OrderKey)],
    ) -> StoreFuture<'a, Vec<Option<std::sync::Arc<Message>>>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn last_messages<'a>(
        &'a self,
        _: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<Option<MessageId>>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn message_counts<'a>(&'a self, _: &'a [ConversationId]) -> StoreFuture<'a, Vec<u64>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn message_counts_after<'a>(
        &'a self,
        _: &'a [(ConversationId, OrderKey)],
    ) -> StoreFuture<'a, Vec<u64>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn inbox<'a>(
        &'a self,
        _: &'a UserId,
        _: &'a PageRequest<InboxKey>,
    ) -> StoreFuture<'a, Page<InboxRow>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn inbox_rows<'a>(
        &'a self,
        _: &'a UserId,
        _: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<Option<InboxRow>>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn inbox_changes<'a>(
        &'a self,
        _: &'a UserId,
        _: OrderKey,
        _: usize,
    ) -> StoreFuture<'a, Option<Vec<ChangedRow>>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn conversation_count<'a>(&'a self, _: &'a UserId, _: usize) -> StoreFuture<'a, usize> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn large_conversations<'a>(&'a self, _: &'a UserId) -> StoreFuture<'a, Vec<ConversationId>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn unread<'a>(
        &'a self,
        _: &'a UserId,
        _: &'a [UnreadQuery],
        _: u32,
        _: &'a IgnoredSenders,
    ) -> StoreFuture<'a, Vec<Unread>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn mentions<'a>(
        &'a self,
        _: &'a UserId,
        _: &'a [UnreadQuery],
        _: u32,
        _: &'a IgnoredSenders,
    ) -> StoreFuture<'a, Vec<Unread>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn move_read_marker<'a>(&'a self, _: &'a UserId, _: &'a MarkerMove) -> StoreFuture<'a, ()> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn notified_of_all<'a>(
        &'a self,
        _: ConversationId,
        _: Option<&'a UserId>,
        _: usize,
    ) -> StoreFuture<'a, Vec<UserId>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }

    fn set_flags<'a>(
        &'a self,
        _: &'a UserId,
        _: &'a FlagsChange,
    ) -> StoreFuture<'a, Option<Flags>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn profiles<'a>(&'a self, _: &'a [UserId]) -> StoreFuture<'a, Vec<Option<Profile>>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn change_profile<'a>(&'a self, _: &'a UserId, _: &'a ProfileChange) -> StoreFuture<'a, ()> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn mark_seen<'a>(&'a self, _: &'a UserId, _: Timestamp) -> StoreFuture<'a, ()> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn restrict<'a>(
        &'a self,
        _: &'a Restricted,
        _: &'a RestrictionChange,
    ) -> StoreFuture<'a, Restriction> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn restrictions_of<'a>(&'a self, _: &'a [UserId]) -> StoreFuture<'a, Vec<Restriction>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn blocks<'a>(&'a self, _: &'a UserId) -> StoreFuture<'a, Vec<Block>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn add_report<'a>(&'a self, _: &'a Report, _: TimeUuid) -> StoreFuture<'a, ()> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn reports<'a>(&'a self, _: &'a ReportQuery) -> StoreFuture<'a, Vec<Report>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn reports_by_id<'a>(&'a self, _: &'a [ReportId]) -> StoreFuture<'a, Vec<Option<Report>>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn report_count(&self, _: OrderKey, _: usize) -> StoreFuture<'_, usize> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn resolve_report<'a>(
        &'a self,
        _: ReportId,
        _: Option<&'a ReportResolution>,
        _: Timestamp,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn replace_report<'a>(&'a self, _: &'a Report) -> StoreFuture<'a, ()> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn delete_reports<'a>(&'a self, _: &'a [ReportId]) -> StoreFuture<'a, ()> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn set_block<'a>(&'a self, _: &'a UserId, _: &'a Block) -> StoreFuture<'a, ()> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn restrictions(&self) -> StoreFuture<'_, Vec<(Restricted, Restriction)>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn restriction_log(&self, _: Timestamp) -> StoreFuture<'_, Vec<LoggedRestriction>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn react<'a>(
        &'a self,
        _: ConversationId,
        _: &'a Emoji,
        _: bool,
        _: &'a Change,
    ) -> StoreFuture<'a, Option<Arc<Message>>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn pin_message<'a>(
        &'a self,
        _: ConversationId,
        _: bool,
        _: &'a Change,
    ) -> StoreFuture<'a, Option<Arc<Message>>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn pins(&self, _: ConversationId) -> StoreFuture<'_, Vec<(MessageId, Pin)>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn reactions<'a>(
        &'a self,
        _: &'a UserId,
        _: &'a [(ConversationId, MessageId)],
    ) -> StoreFuture<'a, Vec<Vec<Reaction>>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn mark_delivered<'a>(
        &'a self,
        _: &'a UserId,
        _: ConversationId,
        _: OrderKey,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
    fn receivers<'a>(
        &'a self,
        _: ConversationId,
        _: MessageId,
        _: &'a UserId,
        _: &'a PageRequest<UserId>,
    ) -> StoreFuture<'a, Page<Participant>> {
        Box::pin(async move { unreachable!("not part of an import") })
    }
}
