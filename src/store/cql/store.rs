//! The contract of a store, each method handed to the folder that implements it.

use std::sync::Arc;
use std::time::Duration;

use super::driver::executor::concurrently;
use super::driver::upgrade;
use super::{Cql, message};
use crate::model::{
    AppKey, AppKeyClaim, Ban, Block, Change, Conversation, ConversationId, ConversationProfile,
    Cut, DirectIds, Emoji, Flags, IdempotencyKey, IgnoredSenders, InboxKey, InboxRow, Message,
    MessageId, OrderKey, OutboxShard, Page, PageRequest, Participant, Pin, Profile, Reaction,
    Report, ReportId, ReportResolution, Restriction, Revision, TimeUuid, Timestamp, Unread, UserId,
};
use crate::store::cluster::ClusterStore;
use crate::store::{
    Appended, Audience, ChangedRow, ConversationProfileChange, Created, DeadLetter, EarlierSend,
    EntryPreview, FlagsChange, FormVersion, LateChange, LoggedRestriction, MarkerMove,
    MembershipChange, MembershipSnapshot, MembershipVersion, NOTE_DIRECT_SECRET, NOTE_IMPORTED_AT,
    NOTE_RESTORED_AT, NewConversation, NewMessage, OutboxPage, OutboxRead, Participation,
    PreviewQuery, ProfileChange, ReaderPosition, Renaming, ReportQuery, Restricted,
    RestrictionChange, Result, Revised, Store, StoreFuture, UnreadQuery, UnreadReader, rules,
};

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
    fn newest_id(&self) -> StoreFuture<'_, Option<TimeUuid>> {
        Box::pin(async move { Ok(None) })
    }

    fn form_version(&self) -> StoreFuture<'_, FormVersion> {
        Box::pin(upgrade::form_version(&self.executor))
    }

    /// Read once: servers run on no cluster into which data is being imported. Later calls ask any
    /// node whether the cluster answers, so that readiness depends on no single range of the data.
    fn imported_at(&self) -> StoreFuture<'_, Option<Timestamp>> {
        Box::pin(async move {
            let cached = *self.imported_at.lock();
            if let Some(cached) = cached {
                self.executor.ping().await?;
                return Ok(cached);
            }
            let note = self.admin.note(NOTE_IMPORTED_AT).await?;
            let imported_at = rules::note::time(note.as_deref());
            *self.imported_at.lock() = Some(imported_at);
            Ok(imported_at)
        })
    }

    fn restored_at(&self) -> StoreFuture<'_, Option<Timestamp>> {
        Box::pin(async move {
            let note = self.admin.note(NOTE_RESTORED_AT).await?;
            Ok(rules::note::time(note.as_deref()))
        })
    }

    fn direct_ids(&self) -> StoreFuture<'_, DirectIds> {
        Box::pin(async move {
            let proposed = DirectIds::random().secret_text();
            rules::note::direct_ids(&self.admin.note_once(NOTE_DIRECT_SECRET, &proposed).await?)
        })
    }

    fn participations<'a>(
        &'a self,
        viewer: &'a UserId,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<Option<Participation>>> {
        Box::pin(self.participants.participations(viewer, conversations))
    }

    fn direct_conversation<'a>(
        &'a self,
        one: &'a UserId,
        other: &'a UserId,
    ) -> StoreFuture<'a, Option<ConversationId>> {
        Box::pin(self.participants.direct_conversation(one, other))
    }

    fn app_key_claim<'a>(&'a self, key: &'a AppKey) -> StoreFuture<'a, Option<AppKeyClaim>> {
        Box::pin(self.messages.app_key_claim(key))
    }

    fn claim_app_key<'a>(
        &'a self,
        key: &'a AppKey,
        claim: AppKeyClaim,
    ) -> StoreFuture<'a, AppKeyClaim> {
        Box::pin(self.messages.claim_app_key(key, claim))
    }

    fn create_conversation<'a>(&'a self, new: &'a NewConversation) -> StoreFuture<'a, Created> {
        Box::pin(self.sends.create_conversation(new))
    }

    fn participants<'a>(
        &'a self,
        conversation: ConversationId,
        page: &'a PageRequest<UserId>,
    ) -> StoreFuture<'a, Page<Participant>> {
        Box::pin(self.participants.participants(conversation, page))
    }

    fn participants_with_prefix<'a>(
        &'a self,
        conversation: ConversationId,
        prefix: &'a str,
        page: &'a PageRequest<UserId>,
    ) -> StoreFuture<'a, Page<Participant>> {
        Box::pin(
            self.participants
                .participants_with_prefix(conversation, prefix, page),
        )
    }

    fn participants_by_name<'a>(
        &'a self,
        keys: &'a [(ConversationId, UserId)],
    ) -> StoreFuture<'a, Vec<Option<Participant>>> {
        Box::pin(self.participants.participants_by_name(keys))
    }

    fn participant_counts<'a>(
        &'a self,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<u64>> {
        Box::pin(self.participants.participant_counts(conversations))
    }

    fn membership_snapshot<'a>(
        &'a self,
        conversation: ConversationId,
        users: &'a [UserId],
    ) -> StoreFuture<'a, Option<MembershipSnapshot>> {
        Box::pin(self.sends.membership_snapshot(conversation, users))
    }

    fn membership_version(
        &self,
        conversation: ConversationId,
    ) -> StoreFuture<'_, Option<MembershipVersion>> {
        Box::pin(self.sends.membership_version(conversation))
    }

    fn change_membership<'a>(
        &'a self,
        conversation: ConversationId,
        change: &'a MembershipChange,
    ) -> StoreFuture<'a, Option<Audience>> {
        Box::pin(self.sends.change_membership(conversation, change))
    }

    fn bans<'a>(
        &'a self,
        conversation: ConversationId,
        page: &'a PageRequest<UserId>,
    ) -> StoreFuture<'a, Page<Ban>> {
        Box::pin(self.bans.page(conversation, page))
    }

    fn bans_of<'a>(
        &'a self,
        conversation: ConversationId,
        users: &'a [UserId],
    ) -> StoreFuture<'a, Vec<Option<Ban>>> {
        Box::pin(self.bans.of_users(conversation, users))
    }

    fn ban_count(&self, conversation: ConversationId, limit: usize) -> StoreFuture<'_, usize> {
        Box::pin(self.bans.count(conversation, limit))
    }

    fn rename_conversation<'a>(
        &'a self,
        conversation: ConversationId,
        to: &'a Renaming,
    ) -> StoreFuture<'a, Audience> {
        Box::pin(self.sends.rename_conversation(conversation, to))
    }

    fn set_slow_mode<'a>(
        &'a self,
        conversation: ConversationId,
        seconds: u32,
        change: &'a Change,
    ) -> StoreFuture<'a, ()> {
        Box::pin(self.sends.set_slow_mode(conversation, seconds, change))
    }

    fn conversation_profiles<'a>(
        &'a self,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<ConversationProfile>> {
        Box::pin(self.messages.conversation_profiles(conversations))
    }

    fn change_conversation_profile<'a>(
        &'a self,
        conversation: ConversationId,
        to: &'a ConversationProfileChange,
        change: &'a Change,
    ) -> StoreFuture<'a, Audience> {
        Box::pin(
            self.sends
                .change_conversation_profile(conversation, to, change),
        )
    }

    fn append_messages<'a>(
        &'a self,
        conversation: ConversationId,
        messages: &'a [NewMessage],
    ) -> StoreFuture<'a, Appended> {
        Box::pin(self.sends.append_messages(conversation, messages))
    }

    fn revise_message<'a>(
        &'a self,
        conversation: ConversationId,
        revision: &'a Revision,
        change: &'a Change,
    ) -> StoreFuture<'a, Option<Revised>> {
        Box::pin(self.sends.revise_message(conversation, revision, change))
    }

    fn react<'a>(
        &'a self,
        conversation: ConversationId,
        emoji: &'a Emoji,
        is_on: bool,
        change: &'a Change,
    ) -> StoreFuture<'a, Option<Arc<Message>>> {
        Box::pin(self.sends.react(conversation, emoji, is_on, change))
    }

    fn pin_message<'a>(
        &'a self,
        conversation: ConversationId,
        is_on: bool,
        change: &'a Change,
    ) -> StoreFuture<'a, Option<Arc<Message>>> {
        Box::pin(self.sends.pin_message(conversation, is_on, change))
    }

    fn pins(&self, conversation: ConversationId) -> StoreFuture<'_, Vec<(MessageId, Pin)>> {
        Box::pin(self.messages.pins(conversation))
    }

    fn reactions<'a>(
        &'a self,
        viewer: &'a UserId,
        messages: &'a [(ConversationId, MessageId)],
    ) -> StoreFuture<'a, Vec<Vec<Reaction>>> {
        Box::pin(self.messages.reactions(viewer, messages))
    }

    fn ended_reaction_count<'a>(
        &'a self,
        user: &'a UserId,
        (conversation, message): (ConversationId, MessageId),
        limit: usize,
    ) -> StoreFuture<'a, usize> {
        Box::pin(
            self.messages
                .ended_reaction_count(user, conversation, message, limit),
        )
    }

    fn changes(
        &self,
        conversation: ConversationId,
        after: OrderKey,
        limit: usize,
    ) -> StoreFuture<'_, Vec<Change>> {
        Box::pin(self.messages.changes(conversation, after, limit))
    }

    fn log_late<'a>(
        &'a self,
        conversation: ConversationId,
        changes: &'a [LateChange],
    ) -> StoreFuture<'a, ()> {
        Box::pin(self.sends.log_late(conversation, changes))
    }

    fn outbox_since(&self) -> StoreFuture<'_, Option<Timestamp>> {
        Box::pin(async move {
            let since = self.admin.outbox_since().await;
            self.outbox.follow(&since);
            since
        })
    }

    fn outbox<'a>(
        &'a self,
        reads: &'a [OutboxRead],
        up_to: OrderKey,
        limit: usize,
    ) -> StoreFuture<'a, Vec<OutboxPage>> {
        Box::pin(self.outbox.pages(reads, up_to, limit))
    }

    fn reader_positions<'a>(
        &'a self,
        reader: &'a str,
    ) -> StoreFuture<'a, Vec<Option<ReaderPosition>>> {
        Box::pin(self.outbox.reader_positions(reader))
    }

    fn swap_reader_position<'a>(
        &'a self,
        reader: &'a str,
        shard: OutboxShard,
        seen: Option<&'a ReaderPosition>,
        to: &'a ReaderPosition,
    ) -> StoreFuture<'a, bool> {
        Box::pin(self.outbox.swap_reader_position(reader, shard, seen, to))
    }

    fn put_dead_letter<'a>(
        &'a self,
        reader: &'a str,
        letter: &'a DeadLetter,
    ) -> StoreFuture<'a, ()> {
        Box::pin(self.outbox.put_dead_letter(reader, letter))
    }

    fn dead_letters<'a>(
        &'a self,
        reader: &'a str,
        limit: usize,
    ) -> StoreFuture<'a, Vec<DeadLetter>> {
        Box::pin(self.outbox.dead_letters(reader, limit))
    }

    fn delete_dead_letter<'a>(
        &'a self,
        reader: &'a str,
        letter: &'a DeadLetter,
    ) -> StoreFuture<'a, ()> {
        Box::pin(self.outbox.delete_dead_letter(reader, letter))
    }

    fn conversations<'a>(
        &'a self,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<Option<Arc<Conversation>>>> {
        Box::pin(async move {
            let each = |id: &ConversationId| self.sends.membership_version(*id);
            let found = concurrently(conversations.iter().map(each).collect()).await?;
            Ok(found
                .into_iter()
                .map(|found| found.map(|found| found.conversation))
                .collect())
        })
    }

    fn earlier_sends<'a>(
        &'a self,
        conversation: ConversationId,
        keys: &'a [(UserId, IdempotencyKey)],
    ) -> StoreFuture<'a, Vec<Option<EarlierSend>>> {
        Box::pin(self.sends.earlier_sends(conversation, keys))
    }

    fn history<'a>(
        &'a self,
        conversation: ConversationId,
        cut: &'a Cut<OrderKey>,
        page: &'a PageRequest<OrderKey>,
    ) -> StoreFuture<'a, Page<Arc<Message>>> {
        Box::pin(self.messages.history(conversation, cut, page))
    }

    fn messages<'a>(
        &'a self,
        keys: &'a [(ConversationId, MessageId)],
    ) -> StoreFuture<'a, Vec<Option<Arc<Message>>>> {
        Box::pin(self.messages.by_ids(keys))
    }

    fn messages_at<'a>(
        &'a self,
        positions: &'a [(ConversationId, OrderKey)],
    ) -> StoreFuture<'a, Vec<Option<Arc<Message>>>> {
        Box::pin(self.messages.messages_at(positions))
    }

    fn last_messages<'a>(
        &'a self,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<Option<MessageId>>> {
        Box::pin(self.messages.last_messages(conversations))
    }

    fn newest_events<'a>(
        &'a self,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<Option<TimeUuid>>> {
        Box::pin(self.sends.newest_events(conversations))
    }

    fn message_counts<'a>(
        &'a self,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<u64>> {
        Box::pin(self.messages.message_counts(conversations))
    }

    fn message_counts_after<'a>(
        &'a self,
        positions: &'a [(ConversationId, OrderKey)],
    ) -> StoreFuture<'a, Vec<u64>> {
        Box::pin(self.messages.message_counts_after(positions))
    }

    fn inbox<'a>(
        &'a self,
        user: &'a UserId,
        page: &'a PageRequest<InboxKey>,
    ) -> StoreFuture<'a, Page<InboxRow>> {
        Box::pin(self.inboxes.page(user, page))
    }

    fn inbox_rows<'a>(
        &'a self,
        user: &'a UserId,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<Option<InboxRow>>> {
        Box::pin(async move {
            match user.is_agent() {
                true => self.rows_of_agent(user, conversations).await,
                false => self.inboxes.inbox_rows(user, conversations).await,
            }
        })
    }

    fn inbox_changes<'a>(
        &'a self,
        user: &'a UserId,
        after: OrderKey,
        limit: usize,
    ) -> StoreFuture<'a, Option<Vec<ChangedRow>>> {
        Box::pin(self.inboxes.inbox_changes(user, after, limit))
    }

    fn conversation_count<'a>(&'a self, user: &'a UserId, limit: usize) -> StoreFuture<'a, usize> {
        Box::pin(self.inboxes.conversation_count(user, limit))
    }

    fn large_conversations<'a>(&'a self, user: &'a UserId) -> StoreFuture<'a, Vec<ConversationId>> {
        Box::pin(self.inboxes.large_conversations(user))
    }

    fn unread<'a>(
        &'a self,
        user: &'a UserId,
        queries: &'a [UnreadQuery],
        cap: u32,
        ignored: &'a IgnoredSenders,
    ) -> StoreFuture<'a, Vec<Unread>> {
        Box::pin(async move {
            let reader = UnreadReader { user, ignored };
            self.messages.unread(reader, queries, cap).await
        })
    }

    fn previews<'a>(
        &'a self,
        user: &'a UserId,
        queries: &'a [PreviewQuery],
        cap: u32,
        ignored: &'a IgnoredSenders,
    ) -> StoreFuture<'a, Vec<EntryPreview>> {
        Box::pin(async move {
            let reader = UnreadReader { user, ignored };
            self.inboxes.previews(reader, queries, cap).await
        })
    }

    fn mentions<'a>(
        &'a self,
        user: &'a UserId,
        queries: &'a [UnreadQuery],
        cap: u32,
        ignored: &'a IgnoredSenders,
    ) -> StoreFuture<'a, Vec<Unread>> {
        Box::pin(async move {
            let reader = UnreadReader { user, ignored };
            self.inboxes.mentions(reader, queries, cap).await
        })
    }

    fn move_read_marker<'a>(&'a self, user: &'a UserId, to: &'a MarkerMove) -> StoreFuture<'a, ()> {
        Box::pin(self.sends.move_read_marker(user, to))
    }

    fn mark_delivered<'a>(
        &'a self,
        user: &'a UserId,
        conversation: ConversationId,
        up_to: OrderKey,
    ) -> StoreFuture<'a, ()> {
        Box::pin(self.sends.mark_delivered(user, conversation, up_to))
    }

    fn receivers<'a>(
        &'a self,
        conversation: ConversationId,
        message: MessageId,
        sender: &'a UserId,
        page: &'a PageRequest<UserId>,
    ) -> StoreFuture<'a, Page<Participant>> {
        Box::pin(
            self.participants
                .receivers(conversation, message, sender, page),
        )
    }

    fn set_flags<'a>(
        &'a self,
        user: &'a UserId,
        to: &'a FlagsChange,
    ) -> StoreFuture<'a, Option<Flags>> {
        Box::pin(self.sends.set_flags(user, to))
    }

    fn notified_of_all<'a>(
        &'a self,
        conversation: ConversationId,
        after: Option<&'a UserId>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<UserId>> {
        Box::pin(self.inboxes.notified_of_all(conversation, after, limit))
    }

    fn profiles<'a>(&'a self, users: &'a [UserId]) -> StoreFuture<'a, Vec<Option<Profile>>> {
        Box::pin(self.profiles.profiles(users))
    }

    fn change_profile<'a>(
        &'a self,
        user: &'a UserId,
        to: &'a ProfileChange,
    ) -> StoreFuture<'a, ()> {
        Box::pin(self.profiles.change_profile(user, to))
    }

    fn mark_seen<'a>(&'a self, user: &'a UserId, at: Timestamp) -> StoreFuture<'a, ()> {
        Box::pin(self.profiles.mark_seen(user, at))
    }

    fn restrict<'a>(
        &'a self,
        restricted: &'a Restricted,
        change: &'a RestrictionChange,
    ) -> StoreFuture<'a, Restriction> {
        Box::pin(self.restrictions.restrict(restricted, change))
    }

    fn restrictions_of<'a>(&'a self, users: &'a [UserId]) -> StoreFuture<'a, Vec<Restriction>> {
        Box::pin(self.restrictions.of_users(users))
    }

    fn restrictions(&self) -> StoreFuture<'_, Vec<(Restricted, Restriction)>> {
        Box::pin(self.restrictions.all())
    }

    fn restriction_log(&self, since: Timestamp) -> StoreFuture<'_, Vec<LoggedRestriction>> {
        Box::pin(self.restrictions.log(since))
    }

    fn blocks<'a>(&'a self, user: &'a UserId) -> StoreFuture<'a, Vec<Block>> {
        Box::pin(self.blocks.of_user(user))
    }

    fn set_block<'a>(&'a self, user: &'a UserId, block: &'a Block) -> StoreFuture<'a, ()> {
        Box::pin(self.blocks.set(user, block))
    }

    fn add_report<'a>(&'a self, report: &'a Report, logged_as: TimeUuid) -> StoreFuture<'a, ()> {
        Box::pin(self.reports.add(report, logged_as, &self.outbox))
    }

    fn reports<'a>(&'a self, query: &'a ReportQuery) -> StoreFuture<'a, Vec<Report>> {
        Box::pin(self.reports.list(query))
    }

    fn reports_by_id<'a>(&'a self, ids: &'a [ReportId]) -> StoreFuture<'a, Vec<Option<Report>>> {
        Box::pin(self.reports.by_ids(ids))
    }

    fn report_count(&self, after: OrderKey, limit: usize) -> StoreFuture<'_, usize> {
        Box::pin(self.reports.count(after, limit))
    }

    fn resolve_report<'a>(
        &'a self,
        report: ReportId,
        resolution: Option<&'a ReportResolution>,
        at: Timestamp,
    ) -> StoreFuture<'a, ()> {
        Box::pin(self.reports.resolve(report, resolution, at))
    }

    fn replace_report<'a>(&'a self, report: &'a Report) -> StoreFuture<'a, ()> {
        Box::pin(self.reports.replace(report))
    }

    fn delete_reports<'a>(&'a self, reports: &'a [ReportId]) -> StoreFuture<'a, ()> {
        Box::pin(self.reports.delete(reports))
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.executor.close();
            Ok(())
        })
    }

    fn health(&self) -> Result<(), String> {
        // The cluster's clock, and delivery, have their own health (`cluster`).
        self.executor.health()
    }
}
