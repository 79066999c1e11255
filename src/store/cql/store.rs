//! The contract of a store, each method handed to the folder that implements it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::driver::executor::concurrently;
use super::driver::upgrade;
use super::{Cql, message};
use crate::model::{
    Ban, Block, Change, Conversation, ConversationId, Cut, DirectIds, Emoji, Flags,
    HistorySettings, IdempotencyKey, IgnoredSenders, InboxKey, InboxRow, Membership, Message,
    MessageId, OrderKey, OutboxShard, Page, PageRequest, Participant, Pin, Profile, Reaction,
    Report, ReportId, ReportResolution, Restriction, Revision, TimeUuid, Timestamp, Unread, UserId,
};
use crate::store::cluster::ClusterStore;
use crate::store::{
    Appended, Audience, ChangedRow, Created, DeadLetter, DueQuery, DueRemoval, EarlierSend,
    EntryPreview, FlagsChange, FormVersion, HistoryRemoval, ImportPositions, ImportRow, Imported,
    LateChange, LoggedRestriction, MarkerMove, MembershipChange, MembershipSnapshot,
    MembershipVersion, NOTE_DIRECT_SECRET, NOTE_IMPORTED_AT, NOTE_OUTBOX_SINCE, NewConversation,
    NewMessage, OldestBucket, OutboxPage, OutboxRead, Participation, PreviewQuery, ProfileChange,
    ReaderPosition, RemovalStore, RemovedHistory, Renaming, ReportQuery, Restricted,
    RestrictionChange, Result, Revised, Store, StoreAdmin, StoredMessage, UnreadQuery,
    UnreadReader, Verified, VerifyPosition, rules,
};

/// Note with the expiry for which all conversations were scheduled, in seconds.
const NOTE_RETENTION: &str = "scheduled_retention";

#[async_trait]
impl RemovalStore for Cql {
    fn set_retention(&self, seconds: Option<u32>) {
        self.sends.set_retention(seconds);
    }

    async fn scheduled_retention(&self) -> Result<Option<u32>> {
        let note = self.admin.note(NOTE_RETENTION).await?;
        Ok(note.and_then(|seconds| seconds.parse().ok()))
    }

    async fn note_scheduled_retention(&self, seconds: Option<u32>) -> Result<()> {
        let note = seconds.map(|seconds| seconds.to_string());
        self.admin.set_note(NOTE_RETENTION, note.as_deref()).await
    }

    async fn histories(
        &self,
        after: Option<ConversationId>,
        limit: usize,
    ) -> Result<Vec<(ConversationId, HistorySettings)>> {
        let all = self.admin.all_conversations(after, limit).await?;
        Ok(all
            .into_iter()
            .map(|(one, _)| (one.id, one.history))
            .collect())
    }

    async fn schedule_removal(&self, due: DueRemoval) -> Result<()> {
        self.messages.schedule_removal(due).await
    }

    async fn due_removals(&self, query: &DueQuery) -> Result<Vec<DueRemoval>> {
        self.messages.due_removals(query).await
    }

    async fn end_removal(&self, due: DueRemoval) -> Result<()> {
        self.messages.end_removal(due).await
    }

    async fn oldest_bucket(&self, conversation: ConversationId) -> Result<Option<OldestBucket>> {
        self.messages.oldest_bucket(conversation).await
    }

    async fn remove_history(
        &self,
        conversation: ConversationId,
        removal: &HistoryRemoval,
    ) -> Result<RemovedHistory> {
        self.sends.remove_history(conversation, removal).await
    }

    async fn log_expiry(&self, conversation: ConversationId, event: TimeUuid) -> Result<()> {
        self.sends.log_expiry(conversation, event).await
    }
}

#[async_trait]
impl Store for Cql {
    fn set_outbox_keep(&self, keep: Duration) {
        self.outbox.set_keep(keep);
    }

    fn overlap_micros(&self) -> i64 {
        message::OVERLAP_MICROS
    }

    fn cluster(&self) -> Option<Arc<dyn ClusterStore>> {
        Some(Arc::clone(&self.cluster) as Arc<dyn ClusterStore>)
    }

    /// `None`: other servers allocate ids too, so each conversation's queue reads its own newest one.
    async fn newest_id(&self) -> Result<Option<TimeUuid>> {
        Ok(None)
    }

    async fn form_version(&self) -> Result<FormVersion> {
        upgrade::form_version(&self.executor).await
    }

    /// Read once: servers run on no cluster into which data is being imported. Later calls ask any
    /// node whether the cluster answers, so that readiness depends on no single range of the data.
    async fn imported_at(&self) -> Result<Option<Timestamp>> {
        let known = *self.imported_at.lock();
        if let Some(known) = known {
            self.executor.ping().await?;
            return Ok(known);
        }
        let note = self.admin.note(NOTE_IMPORTED_AT).await?;
        let imported_at = rules::note::imported_at(note.as_deref());
        *self.imported_at.lock() = Some(imported_at);
        Ok(imported_at)
    }

    async fn direct_ids(&self) -> Result<DirectIds> {
        let proposed = DirectIds::random().secret_text();
        rules::note::direct_ids(&self.admin.note_once(NOTE_DIRECT_SECRET, &proposed).await?)
    }

    async fn participations(
        &self,
        viewer: &UserId,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<Participation>>> {
        self.participants
            .participations(viewer, conversations)
            .await
    }

    async fn direct_conversation(
        &self,
        one: &UserId,
        other: &UserId,
    ) -> Result<Option<ConversationId>> {
        self.participants.direct_conversation(one, other).await
    }

    async fn create_conversation(&self, new: &NewConversation) -> Result<Created> {
        self.sends.create_conversation(new).await
    }

    async fn participants(
        &self,
        conversation: ConversationId,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        self.participants.participants(conversation, page).await
    }

    async fn participants_with_prefix(
        &self,
        conversation: ConversationId,
        prefix: &str,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        self.participants
            .participants_with_prefix(conversation, prefix, page)
            .await
    }

    async fn participants_by_name(
        &self,
        keys: &[(ConversationId, UserId)],
    ) -> Result<Vec<Option<Participant>>> {
        self.participants.participants_by_name(keys).await
    }

    async fn participant_counts(&self, conversations: &[ConversationId]) -> Result<Vec<u64>> {
        self.participants.participant_counts(conversations).await
    }

    async fn membership_snapshot(
        &self,
        conversation: ConversationId,
        users: &[UserId],
    ) -> Result<Option<MembershipSnapshot>> {
        self.sends.membership_snapshot(conversation, users).await
    }

    async fn membership_version(
        &self,
        conversation: ConversationId,
    ) -> Result<Option<MembershipVersion>> {
        self.sends.membership_version(conversation).await
    }

    async fn change_membership(
        &self,
        conversation: ConversationId,
        change: &MembershipChange,
    ) -> Result<Option<Audience>> {
        self.sends.change_membership(conversation, change).await
    }

    async fn bans(
        &self,
        conversation: ConversationId,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Ban>> {
        self.bans.page(conversation, page).await
    }

    async fn bans_of(
        &self,
        conversation: ConversationId,
        users: &[UserId],
    ) -> Result<Vec<Option<Ban>>> {
        self.bans.of_users(conversation, users).await
    }

    async fn ban_count(&self, conversation: ConversationId, limit: usize) -> Result<usize> {
        self.bans.count(conversation, limit).await
    }

    async fn rename_conversation(
        &self,
        conversation: ConversationId,
        to: &Renaming,
    ) -> Result<Audience> {
        self.sends.rename_conversation(conversation, to).await
    }

    async fn set_slow_mode(
        &self,
        conversation: ConversationId,
        seconds: u32,
        change: &Change,
    ) -> Result<()> {
        self.sends
            .set_slow_mode(conversation, seconds, change)
            .await
    }

    async fn append_messages(
        &self,
        conversation: ConversationId,
        messages: &[NewMessage],
    ) -> Result<Appended> {
        self.sends.append_messages(conversation, messages).await
    }

    async fn revise_message(
        &self,
        conversation: ConversationId,
        revision: &Revision,
        change: &Change,
    ) -> Result<Option<Revised>> {
        self.sends
            .revise_message(conversation, revision, change)
            .await
    }

    async fn react(
        &self,
        conversation: ConversationId,
        emoji: &Emoji,
        is_on: bool,
        change: &Change,
    ) -> Result<Option<Arc<Message>>> {
        self.sends.react(conversation, emoji, is_on, change).await
    }

    async fn pin_message(
        &self,
        conversation: ConversationId,
        is_on: bool,
        change: &Change,
    ) -> Result<Option<Arc<Message>>> {
        self.sends.pin_message(conversation, is_on, change).await
    }

    async fn pins(&self, conversation: ConversationId) -> Result<Vec<(MessageId, Pin)>> {
        self.messages.pins(conversation).await
    }

    async fn reactions(
        &self,
        viewer: &UserId,
        messages: &[(ConversationId, MessageId)],
    ) -> Result<Vec<Vec<Reaction>>> {
        self.messages.reactions(viewer, messages).await
    }

    async fn changes(
        &self,
        conversation: ConversationId,
        after: OrderKey,
        limit: usize,
    ) -> Result<Vec<Change>> {
        self.messages.changes(conversation, after, limit).await
    }

    async fn log_late(&self, conversation: ConversationId, changes: &[LateChange]) -> Result<()> {
        self.sends.log_late(conversation, changes).await
    }

    async fn outbox_since(&self) -> Result<Option<Timestamp>> {
        let since = self.admin.outbox_since().await;
        self.outbox.follow(&since);
        since
    }

    async fn outbox(
        &self,
        reads: &[OutboxRead],
        up_to: OrderKey,
        limit: usize,
    ) -> Result<Vec<OutboxPage>> {
        self.outbox.pages(reads, up_to, limit).await
    }

    async fn reader_positions(&self, reader: &str) -> Result<Vec<Option<ReaderPosition>>> {
        self.outbox.reader_positions(reader).await
    }

    async fn swap_reader_position(
        &self,
        reader: &str,
        shard: OutboxShard,
        seen: Option<&ReaderPosition>,
        to: &ReaderPosition,
    ) -> Result<bool> {
        self.outbox
            .swap_reader_position(reader, shard, seen, to)
            .await
    }

    async fn put_dead_letter(&self, reader: &str, letter: &DeadLetter) -> Result<()> {
        self.outbox.put_dead_letter(reader, letter).await
    }

    async fn dead_letters(&self, reader: &str, limit: usize) -> Result<Vec<DeadLetter>> {
        self.outbox.dead_letters(reader, limit).await
    }

    async fn delete_dead_letter(&self, reader: &str, letter: &DeadLetter) -> Result<()> {
        self.outbox.delete_dead_letter(reader, letter).await
    }

    async fn conversations(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<Arc<Conversation>>>> {
        let each = |id: &ConversationId| self.sends.membership_version(*id);
        let found = concurrently(conversations.iter().map(each).collect()).await?;
        Ok(found
            .into_iter()
            .map(|found| found.map(|found| found.conversation))
            .collect())
    }

    async fn earlier_sends(
        &self,
        conversation: ConversationId,
        keys: &[(UserId, IdempotencyKey)],
    ) -> Result<Vec<Option<EarlierSend>>> {
        self.sends.earlier_sends(conversation, keys).await
    }

    async fn history(
        &self,
        conversation: ConversationId,
        cut: &Cut<OrderKey>,
        page: &PageRequest<OrderKey>,
    ) -> Result<Page<Arc<Message>>> {
        self.messages.history(conversation, cut, page).await
    }

    async fn messages(
        &self,
        keys: &[(ConversationId, MessageId)],
    ) -> Result<Vec<Option<Arc<Message>>>> {
        self.messages.by_ids(keys).await
    }

    async fn messages_at(
        &self,
        positions: &[(ConversationId, OrderKey)],
    ) -> Result<Vec<Option<Arc<Message>>>> {
        self.messages.messages_at(positions).await
    }

    async fn last_messages(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<MessageId>>> {
        self.messages.last_messages(conversations).await
    }

    async fn newest_events(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<TimeUuid>>> {
        self.sends.newest_events(conversations).await
    }

    async fn message_counts(&self, conversations: &[ConversationId]) -> Result<Vec<u64>> {
        self.messages.message_counts(conversations).await
    }

    async fn message_counts_after(
        &self,
        positions: &[(ConversationId, OrderKey)],
    ) -> Result<Vec<u64>> {
        self.messages.message_counts_after(positions).await
    }

    async fn inbox(&self, user: &UserId, page: &PageRequest<InboxKey>) -> Result<Page<InboxRow>> {
        self.inboxes.page(user, page).await
    }

    async fn inbox_rows(
        &self,
        user: &UserId,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<InboxRow>>> {
        self.inboxes.inbox_rows(user, conversations).await
    }

    async fn inbox_changes(
        &self,
        user: &UserId,
        after: OrderKey,
        limit: usize,
    ) -> Result<Option<Vec<ChangedRow>>> {
        self.inboxes.inbox_changes(user, after, limit).await
    }

    async fn conversation_count(&self, user: &UserId, limit: usize) -> Result<usize> {
        self.inboxes.conversation_count(user, limit).await
    }

    async fn large_conversations(&self, user: &UserId) -> Result<Vec<ConversationId>> {
        self.inboxes.large_conversations(user).await
    }

    async fn unread(
        &self,
        user: &UserId,
        queries: &[UnreadQuery],
        cap: u32,
        ignored: &IgnoredSenders,
    ) -> Result<Vec<Unread>> {
        let reader = UnreadReader { user, ignored };
        self.messages.unread(reader, queries, cap).await
    }

    async fn previews(
        &self,
        user: &UserId,
        queries: &[PreviewQuery],
        cap: u32,
        ignored: &IgnoredSenders,
    ) -> Result<Vec<EntryPreview>> {
        let reader = UnreadReader { user, ignored };
        self.inboxes.previews(reader, queries, cap).await
    }

    async fn mentions(
        &self,
        user: &UserId,
        queries: &[UnreadQuery],
        cap: u32,
        ignored: &IgnoredSenders,
    ) -> Result<Vec<Unread>> {
        let reader = UnreadReader { user, ignored };
        self.inboxes.mentions(reader, queries, cap).await
    }

    async fn move_read_marker(&self, user: &UserId, to: &MarkerMove) -> Result<()> {
        self.sends.move_read_marker(user, to).await
    }

    async fn mark_delivered(
        &self,
        user: &UserId,
        conversation: ConversationId,
        up_to: OrderKey,
    ) -> Result<()> {
        self.sends.mark_delivered(user, conversation, up_to).await
    }

    async fn receivers(
        &self,
        conversation: ConversationId,
        message: MessageId,
        sender: &UserId,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        self.participants
            .receivers(conversation, message, sender, page)
            .await
    }

    async fn set_flags(&self, user: &UserId, to: &FlagsChange) -> Result<Option<Flags>> {
        self.sends.set_flags(user, to).await
    }

    async fn notified_of_all(
        &self,
        conversation: ConversationId,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<UserId>> {
        self.inboxes
            .notified_of_all(conversation, after, limit)
            .await
    }

    async fn profiles(&self, users: &[UserId]) -> Result<Vec<Option<Profile>>> {
        self.profiles.profiles(users).await
    }

    async fn change_profile(&self, user: &UserId, to: &ProfileChange) -> Result<()> {
        self.profiles.change_profile(user, to).await
    }

    async fn mark_seen(&self, user: &UserId, at: Timestamp) -> Result<()> {
        self.profiles.mark_seen(user, at).await
    }

    async fn restrict(
        &self,
        restricted: &Restricted,
        change: &RestrictionChange,
    ) -> Result<Restriction> {
        self.restrictions.restrict(restricted, change).await
    }

    async fn restrictions_of(&self, users: &[UserId]) -> Result<Vec<Restriction>> {
        self.restrictions.of_users(users).await
    }

    async fn restrictions(&self) -> Result<Vec<(Restricted, Restriction)>> {
        self.restrictions.all().await
    }

    async fn restriction_log(&self, since: Timestamp) -> Result<Vec<LoggedRestriction>> {
        self.restrictions.log(since).await
    }

    async fn blocks(&self, user: &UserId) -> Result<Vec<Block>> {
        self.blocks.of_user(user).await
    }

    async fn set_block(&self, user: &UserId, block: &Block) -> Result<()> {
        self.blocks.set(user, block).await
    }

    async fn add_report(&self, report: &Report, logged_as: TimeUuid) -> Result<()> {
        self.reports.add(report, logged_as, &self.outbox).await
    }

    async fn reports(&self, query: &ReportQuery) -> Result<Vec<Report>> {
        self.reports.list(query).await
    }

    async fn reports_by_id(&self, ids: &[ReportId]) -> Result<Vec<Option<Report>>> {
        self.reports.by_ids(ids).await
    }

    async fn report_count(&self, after: OrderKey, limit: usize) -> Result<usize> {
        self.reports.count(after, limit).await
    }

    async fn resolve_report(
        &self,
        report: ReportId,
        resolution: Option<&ReportResolution>,
        at: Timestamp,
    ) -> Result<()> {
        self.reports.resolve(report, resolution, at).await
    }

    async fn replace_report(&self, report: &Report) -> Result<()> {
        self.reports.replace(report).await
    }

    async fn delete_reports(&self, reports: &[ReportId]) -> Result<()> {
        self.reports.delete(reports).await
    }

    async fn close(&self) -> Result<()> {
        self.executor.close();
        Ok(())
    }

    fn health(&self) -> Result<(), String> {
        // The cluster's clock, and delivery, have their own health (`cluster`).
        self.executor.health()
    }
}

#[async_trait]
impl StoreAdmin for Cql {
    async fn import(&self, rows: &[ImportRow]) -> Result<Vec<Imported>> {
        self.admin.import(rows).await
    }

    async fn all_users(
        &self,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<(UserId, Profile)>> {
        self.admin.all_users(after, limit).await
    }

    async fn all_conversations(
        &self,
        after: Option<ConversationId>,
        limit: usize,
    ) -> Result<Vec<(Conversation, Option<Timestamp>)>> {
        self.admin.all_conversations(after, limit).await
    }

    async fn all_participants(
        &self,
        conversation: ConversationId,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<(UserId, Membership, ImportPositions)>> {
        self.admin
            .all_participants(conversation, after, limit)
            .await
    }

    async fn all_messages(
        &self,
        conversation: ConversationId,
        after: Option<MessageId>,
        limit: usize,
    ) -> Result<Vec<StoredMessage>> {
        self.admin.all_messages(conversation, after, limit).await
    }

    async fn all_reactions(
        &self,
        conversation: ConversationId,
        message: MessageId,
        after: Option<&(Emoji, UserId)>,
        limit: usize,
    ) -> Result<Vec<(Emoji, UserId)>> {
        self.admin
            .all_reactions(conversation, message, after, limit)
            .await
    }

    async fn verify(&self, after: Option<&VerifyPosition>, repair: bool) -> Result<Verified> {
        self.admin.verify(after, repair).await
    }

    async fn note(&self, name: &str) -> Result<Option<String>> {
        self.admin.note(name).await
    }

    async fn set_note(&self, name: &str, value: Option<&str>) -> Result<()> {
        *self.imported_at.lock() = None;
        self.admin.set_note(name, value).await
    }

    async fn set_outbox(&self, since: Option<Timestamp>) -> Result<()> {
        let note = since.map(|since| since.to_string());
        self.admin
            .set_note(NOTE_OUTBOX_SINCE, note.as_deref())
            .await?;
        self.outbox.follow(&Ok(since));
        Ok(())
    }

    async fn note_once(&self, name: &str, value: &str) -> Result<String> {
        self.admin.note_once(name, value).await
    }

    async fn count_imported(&self, conversation: ConversationId) -> Result<()> {
        self.messages.count_imported(conversation).await
    }

    async fn compact(&self) -> Result<()> {
        Ok(())
    }
}
