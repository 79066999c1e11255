//! A store in memory for the tests of an import, with injected faults.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::model::{
    Ban, Block, Change, Conversation, ConversationId, Cut, DirectIds, Emoji, Flags,
    HistorySettings, IdempotencyKey, IgnoredSenders, InboxKey, InboxRow, Job, JobId, Membership,
    Message, MessageId, OrderKey, OutboxShard, Page, PageRequest, Participant, Pin, Profile,
    Reaction, Report, ReportId, ReportResolution, Restriction, Revision, TimeUuid, Timestamp,
    Unread, UserId,
};
use crate::store::cluster::ClusterStore;
use crate::store::{
    Appended, Audience, ChangedRow, ConversationsPiece, Created, DeadLetter, DirectoryChange,
    DueQuery, DueRemoval, EarlierSend, ErasureStore, Error, FlagsChange, HistoryRemoval,
    ImportPositions, ImportRow, Imported, LateChange, LoggedRestriction, MarkerMove,
    MembershipChange, MembershipSnapshot, NewConversation, NewMessage, OldestBucket, OutboxPage,
    OutboxRead, Participation, ProfileChange, ReaderPosition, RemovalStore, RemovedHistory,
    Renaming, ReportQuery, Restricted, RestrictionChange, Result, Revised, SearchSegmentKey,
    SearchStore, Store, StoreAdmin, StoredMessage, UnreadQuery, Verified, VerifyPosition,
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

#[async_trait]
impl StoreAdmin for Memory {
    async fn import(&self, rows: &[ImportRow]) -> Result<Vec<Imported>> {
        if let Some(left) = self.imports_left.lock().as_mut() {
            *left = left
                .checked_sub(1)
                .ok_or_else(|| Error::Unavailable("the disk is full".into()))?;
        }
        Ok(rows.iter().map(|row| self.keep(row)).collect())
    }

    async fn note(&self, name: &str) -> Result<Option<String>> {
        Ok(self.notes.lock().get(name).cloned())
    }

    async fn set_note(&self, name: &str, value: Option<&str>) -> Result<()> {
        let mut notes = self.notes.lock();
        match value {
            Some(value) => notes.insert(name.to_owned(), value.to_owned()),
            None => notes.remove(name),
        };
        Ok(())
    }

    async fn note_once(&self, _: &str, _: &str) -> Result<String> {
        unreachable!("not part of an import")
    }

    async fn set_outbox(&self, _: Option<Timestamp>) -> Result<()> {
        unreachable!("not part of an import")
    }

    async fn count_imported(&self, conversation: ConversationId) -> Result<()> {
        self.counted.lock().push(conversation);
        Ok(())
    }

    async fn compact(&self) -> Result<()> {
        unreachable!("not part of an import")
    }

    async fn verify(&self, _: Option<&VerifyPosition>, _: bool) -> Result<Verified> {
        unreachable!("not part of an import")
    }

    async fn all_users(&self, _: Option<&UserId>, _: usize) -> Result<Vec<(UserId, Profile)>> {
        unreachable!("not part of an import")
    }

    async fn all_conversations(
        &self,
        _: Option<ConversationId>,
        _: usize,
    ) -> Result<Vec<(Conversation, Option<Timestamp>)>> {
        unreachable!("not part of an import")
    }

    async fn all_participants(
        &self,
        _: ConversationId,
        _: Option<&UserId>,
        _: usize,
    ) -> Result<Vec<(UserId, Membership, ImportPositions)>> {
        unreachable!("not part of an import")
    }

    async fn all_messages(
        &self,
        _: ConversationId,
        _: Option<MessageId>,
        _: usize,
    ) -> Result<Vec<StoredMessage>> {
        unreachable!("not part of an import")
    }

    async fn all_reactions(
        &self,
        _: ConversationId,
        _: MessageId,
        _: Option<&(Emoji, UserId)>,
        _: usize,
    ) -> Result<Vec<(Emoji, UserId)>> {
        unreachable!("not part of an import")
    }
}

#[async_trait]
impl RemovalStore for Memory {
    fn set_retention(&self, _: Option<u32>) {}

    async fn note_scheduled_retention(&self, _: Option<u32>) -> Result<()> {
        Ok(())
    }
    async fn scheduled_retention(&self) -> Result<Option<u32>> {
        unreachable!("not part of an import")
    }
    async fn histories(
        &self,
        _: Option<ConversationId>,
        _: usize,
    ) -> Result<Vec<(ConversationId, HistorySettings)>> {
        unreachable!("not part of an import")
    }
    async fn schedule_removal(&self, _: DueRemoval) -> Result<()> {
        unreachable!("not part of an import")
    }
    async fn due_removals(&self, _: &DueQuery) -> Result<Vec<DueRemoval>> {
        unreachable!("not part of an import")
    }
    async fn end_removal(&self, _: DueRemoval) -> Result<()> {
        unreachable!("not part of an import")
    }
    async fn oldest_bucket(&self, _: ConversationId) -> Result<Option<OldestBucket>> {
        unreachable!("not part of an import")
    }
    async fn remove_history(
        &self,
        _: ConversationId,
        _: &HistoryRemoval,
    ) -> Result<RemovedHistory> {
        unreachable!("not part of an import")
    }
    async fn log_expiry(&self, _: ConversationId, _: TimeUuid) -> Result<()> {
        unreachable!("not part of an import")
    }
}

#[async_trait]
impl SearchStore for Memory {
    async fn search_directories(&self, _: &[ConversationId]) -> Result<Vec<Option<Vec<u8>>>> {
        unreachable!("not part of an import")
    }
    async fn swap_search_directory(
        &self,
        _: ConversationId,
        _: Option<&[u8]>,
        _: &[u8],
    ) -> Result<bool> {
        unreachable!("not part of an import")
    }
    async fn add_search_segment(
        &self,
        _: SearchSegmentKey,
        _: &[Vec<u8>],
        _: &DirectoryChange,
    ) -> Result<bool> {
        unreachable!("not part of an import")
    }
    async fn search_blocks(&self, _: &[(SearchSegmentKey, u32)]) -> Result<Vec<Option<Vec<u8>>>> {
        unreachable!("not part of an import")
    }
    async fn delete_search_segments(&self, _: &[SearchSegmentKey]) -> Result<()> {
        unreachable!("not part of an import")
    }
}

#[async_trait]
impl ErasureStore for Memory {
    async fn conversations_of(
        &self,
        _: &UserId,
        _: Option<ConversationId>,
        _: usize,
    ) -> Result<ConversationsPiece> {
        unreachable!("not part of an import")
    }
    async fn erase_messages(
        &self,
        _: ConversationId,
        _: &UserId,
        _: &[MessageId],
        _: TimeUuid,
    ) -> Result<()> {
        unreachable!("not part of an import")
    }
    async fn erase_participant(&self, _: ConversationId, _: &UserId, _: TimeUuid) -> Result<()> {
        unreachable!("not part of an import")
    }
    async fn erase_user(&self, _: &UserId, _: Timestamp) -> Result<()> {
        unreachable!("not part of an import")
    }
    async fn add_user_erased(&self, _: &UserId, _: TimeUuid, _: TimeUuid) -> Result<()> {
        unreachable!("not part of an import")
    }
    async fn jobs(&self, _: &[JobId]) -> Result<Vec<Option<Job>>> {
        unreachable!("not part of an import")
    }
    async fn running_jobs(&self, _: usize) -> Result<Vec<Job>> {
        unreachable!("not part of an import")
    }
    async fn swap_job(&self, _: Option<&Job>, _: &Job) -> Result<bool> {
        unreachable!("not part of an import")
    }
}

#[async_trait]
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
    async fn close(&self) -> Result<()> {
        Ok(())
    }
    async fn newest_id(&self) -> Result<Option<TimeUuid>> {
        Ok(None)
    }
    async fn imported_at(&self) -> Result<Option<Timestamp>> {
        unreachable!("not part of an import")
    }
    async fn direct_ids(&self) -> Result<DirectIds> {
        unreachable!("not part of an import")
    }
    async fn participations(
        &self,
        _: &UserId,
        _: &[ConversationId],
    ) -> Result<Vec<Option<Participation>>> {
        unreachable!("not part of an import")
    }
    async fn direct_conversation(&self, _: &UserId, _: &UserId) -> Result<Option<ConversationId>> {
        Ok(None)
    }
    async fn create_conversation(&self, _: &NewConversation) -> Result<Created> {
        unreachable!("not part of an import")
    }
    async fn participants(
        &self,
        _: ConversationId,
        _: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        unreachable!("not part of an import")
    }
    async fn participants_with_prefix(
        &self,
        _: ConversationId,
        _: &str,
        _: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        unreachable!("not part of an import")
    }
    async fn bans(&self, _: ConversationId, _: &PageRequest<UserId>) -> Result<Page<Ban>> {
        unreachable!("not part of an import")
    }
    async fn bans_of(&self, _: ConversationId, _: &[UserId]) -> Result<Vec<Option<Ban>>> {
        unreachable!("not part of an import")
    }
    async fn ban_count(&self, _: ConversationId, _: usize) -> Result<usize> {
        unreachable!("not part of an import")
    }
    async fn participants_by_name(
        &self,
        _: &[(ConversationId, UserId)],
    ) -> Result<Vec<Option<Participant>>> {
        unreachable!("not part of an import")
    }
    async fn participant_counts(&self, _: &[ConversationId]) -> Result<Vec<u64>> {
        unreachable!("not part of an import")
    }
    async fn membership_snapshot(
        &self,
        _: ConversationId,
        _: &[UserId],
    ) -> Result<Option<MembershipSnapshot>> {
        unreachable!("not part of an import")
    }
    async fn change_membership(
        &self,
        _: ConversationId,
        _: &MembershipChange,
    ) -> Result<Option<Audience>> {
        unreachable!("not part of an import")
    }
    async fn rename_conversation(&self, _: ConversationId, _: &Renaming) -> Result<Audience> {
        unreachable!("not part of an import")
    }
    async fn set_slow_mode(&self, _: ConversationId, _: u32, _: &Change) -> Result<()> {
        unreachable!("not part of an import")
    }
    async fn append_messages(&self, _: ConversationId, _: &[NewMessage]) -> Result<Appended> {
        unreachable!("not part of an import")
    }
    async fn revise_message(
        &self,
        _: ConversationId,
        _: &Revision,
        _: &Change,
    ) -> Result<Option<Revised>> {
        unreachable!("not part of an import")
    }
    async fn changes(&self, _: ConversationId, _: OrderKey, _: usize) -> Result<Vec<Change>> {
        unreachable!("not part of an import")
    }
    async fn newest_events(&self, _: &[ConversationId]) -> Result<Vec<Option<TimeUuid>>> {
        unreachable!("not part of an import")
    }
    async fn log_late(&self, _: ConversationId, _: &[LateChange]) -> Result<()> {
        unreachable!("not part of an import")
    }
    async fn outbox_since(&self) -> Result<Option<Timestamp>> {
        unreachable!("not part of an import")
    }
    async fn outbox(&self, _: &[OutboxRead], _: OrderKey, _: usize) -> Result<Vec<OutboxPage>> {
        unreachable!("not part of an import")
    }
    async fn reader_positions(&self, _: &str) -> Result<Vec<Option<ReaderPosition>>> {
        unreachable!("not part of an import")
    }
    async fn swap_reader_position(
        &self,
        _: &str,
        _: OutboxShard,
        _: Option<&ReaderPosition>,
        _: &ReaderPosition,
    ) -> Result<bool> {
        unreachable!("not part of an import")
    }
    async fn put_dead_letter(&self, _: &str, _: &DeadLetter) -> Result<()> {
        unreachable!("not part of an import")
    }
    async fn dead_letters(&self, _: &str, _: usize) -> Result<Vec<DeadLetter>> {
        unreachable!("not part of an import")
    }
    async fn delete_dead_letter(&self, _: &str, _: &DeadLetter) -> Result<()> {
        unreachable!("not part of an import")
    }
    async fn conversations(&self, _: &[ConversationId]) -> Result<Vec<Option<Arc<Conversation>>>> {
        unreachable!("not part of an import")
    }
    async fn earlier_sends(
        &self,
        _: ConversationId,
        _: &[(UserId, IdempotencyKey)],
    ) -> Result<Vec<Option<EarlierSend>>> {
        unreachable!("not part of an import")
    }
    async fn history(
        &self,
        _: ConversationId,
        _: &Cut<OrderKey>,
        _: &PageRequest<OrderKey>,
    ) -> Result<Page<std::sync::Arc<Message>>> {
        unreachable!("not part of an import")
    }
    async fn messages(
        &self,
        _: &[(ConversationId, MessageId)],
    ) -> Result<Vec<Option<std::sync::Arc<Message>>>> {
        unreachable!("not part of an import")
    }
    async fn messages_at(
        &self,
        _: &[(ConversationId, OrderKey)],
    ) -> Result<Vec<Option<std::sync::Arc<Message>>>> {
        unreachable!("not part of an import")
    }
    async fn last_messages(&self, _: &[ConversationId]) -> Result<Vec<Option<MessageId>>> {
        unreachable!("not part of an import")
    }
    async fn message_counts(&self, _: &[ConversationId]) -> Result<Vec<u64>> {
        unreachable!("not part of an import")
    }
    async fn message_counts_after(&self, _: &[(ConversationId, OrderKey)]) -> Result<Vec<u64>> {
        unreachable!("not part of an import")
    }
    async fn inbox(&self, _: &UserId, _: &PageRequest<InboxKey>) -> Result<Page<InboxRow>> {
        unreachable!("not part of an import")
    }
    async fn inbox_rows(&self, _: &UserId, _: &[ConversationId]) -> Result<Vec<Option<InboxRow>>> {
        unreachable!("not part of an import")
    }
    async fn inbox_changes(
        &self,
        _: &UserId,
        _: OrderKey,
        _: usize,
    ) -> Result<Option<Vec<ChangedRow>>> {
        unreachable!("not part of an import")
    }
    async fn conversation_count(&self, _: &UserId, _: usize) -> Result<usize> {
        unreachable!("not part of an import")
    }
    async fn large_conversations(&self, _: &UserId) -> Result<Vec<ConversationId>> {
        unreachable!("not part of an import")
    }
    async fn unread(
        &self,
        _: &UserId,
        _: &[UnreadQuery],
        _: u32,
        _: &IgnoredSenders,
    ) -> Result<Vec<Unread>> {
        unreachable!("not part of an import")
    }
    async fn mentions(
        &self,
        _: &UserId,
        _: &[UnreadQuery],
        _: u32,
        _: &IgnoredSenders,
    ) -> Result<Vec<Unread>> {
        unreachable!("not part of an import")
    }
    async fn move_read_marker(&self, _: &UserId, _: &MarkerMove) -> Result<()> {
        unreachable!("not part of an import")
    }
    async fn notified_of_all(
        &self,
        _: ConversationId,
        _: Option<&UserId>,
        _: usize,
    ) -> Result<Vec<UserId>> {
        unreachable!("not part of an import")
    }

    async fn set_flags(&self, _: &UserId, _: &FlagsChange) -> Result<Option<Flags>> {
        unreachable!("not part of an import")
    }
    async fn profiles(&self, _: &[UserId]) -> Result<Vec<Option<Profile>>> {
        unreachable!("not part of an import")
    }
    async fn change_profile(&self, _: &UserId, _: &ProfileChange) -> Result<()> {
        unreachable!("not part of an import")
    }
    async fn mark_seen(&self, _: &UserId, _: Timestamp) -> Result<()> {
        unreachable!("not part of an import")
    }
    async fn restrict(&self, _: &Restricted, _: &RestrictionChange) -> Result<Restriction> {
        unreachable!("not part of an import")
    }
    async fn restrictions_of(&self, _: &[UserId]) -> Result<Vec<Restriction>> {
        unreachable!("not part of an import")
    }
    async fn blocks(&self, _: &UserId) -> Result<Vec<Block>> {
        unreachable!("not part of an import")
    }
    async fn add_report(&self, _: &Report, _: TimeUuid) -> Result<()> {
        unreachable!("not part of an import")
    }
    async fn reports(&self, _: &ReportQuery) -> Result<Vec<Report>> {
        unreachable!("not part of an import")
    }
    async fn reports_by_id(&self, _: &[ReportId]) -> Result<Vec<Option<Report>>> {
        unreachable!("not part of an import")
    }
    async fn report_count(&self, _: OrderKey, _: usize) -> Result<usize> {
        unreachable!("not part of an import")
    }
    async fn resolve_report(
        &self,
        _: ReportId,
        _: Option<&ReportResolution>,
        _: Timestamp,
    ) -> Result<()> {
        unreachable!("not part of an import")
    }
    async fn replace_report(&self, _: &Report) -> Result<()> {
        unreachable!("not part of an import")
    }
    async fn delete_reports(&self, _: &[ReportId]) -> Result<()> {
        unreachable!("not part of an import")
    }
    async fn set_block(&self, _: &UserId, _: &Block) -> Result<()> {
        unreachable!("not part of an import")
    }
    async fn restrictions(&self) -> Result<Vec<(Restricted, Restriction)>> {
        unreachable!("not part of an import")
    }
    async fn restriction_log(&self, _: Timestamp) -> Result<Vec<LoggedRestriction>> {
        unreachable!("not part of an import")
    }
    async fn react(
        &self,
        _: ConversationId,
        _: &Emoji,
        _: bool,
        _: &Change,
    ) -> Result<Option<Arc<Message>>> {
        unreachable!("not part of an import")
    }
    async fn pin_message(
        &self,
        _: ConversationId,
        _: bool,
        _: &Change,
    ) -> Result<Option<Arc<Message>>> {
        unreachable!("not part of an import")
    }
    async fn pins(&self, _: ConversationId) -> Result<Vec<(MessageId, Pin)>> {
        unreachable!("not part of an import")
    }
    async fn reactions(
        &self,
        _: &UserId,
        _: &[(ConversationId, MessageId)],
    ) -> Result<Vec<Vec<Reaction>>> {
        unreachable!("not part of an import")
    }
    async fn mark_delivered(&self, _: &UserId, _: ConversationId, _: OrderKey) -> Result<()> {
        unreachable!("not part of an import")
    }
    async fn receivers(
        &self,
        _: ConversationId,
        _: MessageId,
        _: &UserId,
        _: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        unreachable!("not part of an import")
    }
}
