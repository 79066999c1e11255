//! A store whose sends can be held up: what a slow cluster, or a server that stops for a while, does to ids that were given already. It
//! counts the reads that streams make.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use wideroom::model::{
    Ban, Block, Change, Conversation, ConversationId, Cut, DirectIds, Emoji, Flags, IdempotencyKey,
    IgnoredSenders, InboxKey, InboxRow, Message, MessageId, OrderKey, OutboxShard, Page,
    PageRequest, Participant, Pin, Profile, Reaction, Report, ReportId, ReportResolution,
    Restriction, Revision, TimeUuid, Timestamp, Unread, UserId,
};
use wideroom::store::cluster::ClusterStore;
use wideroom::store::{
    Appended, Audience, ChangedRow, Created, DeadLetter, EarlierSend, EntryPreview, FlagsChange,
    FormVersion, LateChange, LoggedRestriction, MarkerMove, MembershipChange, MembershipSnapshot,
    MembershipVersion, NewConversation, NewMessage, OutboxPage, OutboxRead, Participation,
    PreviewQuery, ProfileChange, ReaderPosition, Renaming, ReportQuery, Restricted,
    RestrictionChange, Result, Revised, Store, UnreadQuery,
};

use crate::support::handed_on::hand_on;

/// A store behind which sends wait for as long as a test says.
pub(super) struct Slow {
    pub(super) inner: Arc<dyn Store>,
    delay: Mutex<Duration>,
    creation_delay: Mutex<Duration>,
    reads: AtomicUsize,
    moves: AtomicUsize,
    is_held: watch::Sender<bool>,
    /// Shards of the outbox that were read.
    pub(super) outbox_reads: AtomicUsize,
}

impl Slow {
    pub(super) fn new(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            delay: Mutex::default(),
            creation_delay: Mutex::default(),
            reads: AtomicUsize::new(0),
            moves: AtomicUsize::new(0),
            is_held: watch::Sender::default(),
            outbox_reads: AtomicUsize::new(0),
        }
    }

    /// How often who is in a conversation, or what happened there, was read until now.
    pub(super) fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    /// How often a read marker was moved until now.
    pub(super) fn moves(&self) -> usize {
        self.moves.load(Ordering::SeqCst)
    }

    fn read(&self) {
        self.reads.fetch_add(1, Ordering::SeqCst);
    }

    /// Sends that begin from now on wait so long after their ids were given.
    pub(super) fn set_delay(&self, delay: Duration) {
        *self.delay.lock().unwrap() = delay;
    }

    /// Conversations that are created from now on wait so long after their ids were given.
    pub(super) fn set_creation_delay(&self, delay: Duration) {
        *self.creation_delay.lock().unwrap() = delay;
    }

    /// Sends that begin from now on wait until they are let go.
    pub(super) fn hold(&self) {
        self.is_held.send_replace(true);
    }

    pub(super) fn let_go(&self) {
        self.is_held.send_replace(false);
    }

    async fn wait(&self) {
        let delay = *self.delay.lock().unwrap();
        tokio::time::sleep(delay).await;
        self.is_held
            .subscribe()
            .wait_for(|is_held| !is_held)
            .await
            .unwrap();
    }
}

impl fmt::Display for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

hand_on!(Slow);

#[async_trait]
impl Store for Slow {
    fn set_outbox_keep(&self, keep: Duration) {
        self.inner.set_outbox_keep(keep);
    }

    fn overlap_micros(&self) -> i64 {
        self.inner.overlap_micros()
    }

    fn cluster(&self) -> Option<Arc<dyn ClusterStore>> {
        self.inner.cluster()
    }

    fn health(&self) -> Result<(), String> {
        self.inner.health()
    }

    async fn newest_id(&self) -> Result<Option<TimeUuid>> {
        self.inner.newest_id().await
    }

    async fn form_version(&self) -> Result<FormVersion> {
        self.inner.form_version().await
    }

    async fn imported_at(&self) -> Result<Option<Timestamp>> {
        self.inner.imported_at().await
    }

    async fn direct_ids(&self) -> Result<DirectIds> {
        self.inner.direct_ids().await
    }

    async fn participations(
        &self,
        viewer: &UserId,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<Participation>>> {
        self.read();
        self.inner.participations(viewer, conversations).await
    }

    async fn direct_conversation(
        &self,
        one: &UserId,
        other: &UserId,
    ) -> Result<Option<ConversationId>> {
        self.inner.direct_conversation(one, other).await
    }

    async fn create_conversation(&self, new: &NewConversation) -> Result<Created> {
        let delay = *self.creation_delay.lock().unwrap();
        tokio::time::sleep(delay).await;
        self.inner.create_conversation(new).await
    }

    async fn participants(
        &self,
        conversation: ConversationId,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        self.read();
        self.inner.participants(conversation, page).await
    }

    async fn participants_with_prefix(
        &self,
        conversation: ConversationId,
        prefix: &str,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        self.inner
            .participants_with_prefix(conversation, prefix, page)
            .await
    }

    async fn bans(
        &self,
        conversation: ConversationId,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Ban>> {
        self.inner.bans(conversation, page).await
    }

    async fn bans_of(
        &self,
        conversation: ConversationId,
        users: &[UserId],
    ) -> Result<Vec<Option<Ban>>> {
        self.inner.bans_of(conversation, users).await
    }

    async fn ban_count(&self, conversation: ConversationId, limit: usize) -> Result<usize> {
        self.inner.ban_count(conversation, limit).await
    }

    async fn participants_by_name(
        &self,
        keys: &[(ConversationId, UserId)],
    ) -> Result<Vec<Option<Participant>>> {
        self.read();
        self.inner.participants_by_name(keys).await
    }

    async fn participant_counts(&self, conversations: &[ConversationId]) -> Result<Vec<u64>> {
        self.read();
        self.inner.participant_counts(conversations).await
    }

    async fn membership_snapshot(
        &self,
        conversation: ConversationId,
        users: &[UserId],
    ) -> Result<Option<MembershipSnapshot>> {
        self.read();
        self.inner.membership_snapshot(conversation, users).await
    }

    async fn membership_version(
        &self,
        conversation: ConversationId,
    ) -> Result<Option<MembershipVersion>> {
        self.read();
        self.inner.membership_version(conversation).await
    }

    async fn change_membership(
        &self,
        conversation: ConversationId,
        change: &MembershipChange,
    ) -> Result<Option<Audience>> {
        self.inner.change_membership(conversation, change).await
    }

    async fn rename_conversation(
        &self,
        conversation: ConversationId,
        to: &Renaming,
    ) -> Result<Audience> {
        self.inner.rename_conversation(conversation, to).await
    }

    async fn set_slow_mode(
        &self,
        conversation: ConversationId,
        seconds: u32,
        change: &Change,
    ) -> Result<()> {
        self.inner
            .set_slow_mode(conversation, seconds, change)
            .await
    }

    async fn append_messages(
        &self,
        conversation: ConversationId,
        messages: &[NewMessage],
    ) -> Result<Appended> {
        self.wait().await;
        self.inner.append_messages(conversation, messages).await
    }

    async fn revise_message(
        &self,
        conversation: ConversationId,
        revision: &Revision,
        change: &Change,
    ) -> Result<Option<Revised>> {
        self.inner
            .revise_message(conversation, revision, change)
            .await
    }

    async fn changes(
        &self,
        conversation: ConversationId,
        after: OrderKey,
        limit: usize,
    ) -> Result<Vec<Change>> {
        self.read();
        self.inner.changes(conversation, after, limit).await
    }

    async fn log_late(&self, conversation: ConversationId, changes: &[LateChange]) -> Result<()> {
        self.inner.log_late(conversation, changes).await
    }

    async fn outbox_since(&self) -> Result<Option<Timestamp>> {
        self.inner.outbox_since().await
    }

    async fn outbox(
        &self,
        reads: &[OutboxRead],
        up_to: OrderKey,
        limit: usize,
    ) -> Result<Vec<OutboxPage>> {
        self.outbox_reads.fetch_add(reads.len(), Ordering::SeqCst);
        self.inner.outbox(reads, up_to, limit).await
    }

    async fn reader_positions(&self, reader: &str) -> Result<Vec<Option<ReaderPosition>>> {
        self.inner.reader_positions(reader).await
    }

    async fn swap_reader_position(
        &self,
        reader: &str,
        shard: OutboxShard,
        seen: Option<&ReaderPosition>,
        to: &ReaderPosition,
    ) -> Result<bool> {
        self.inner
            .swap_reader_position(reader, shard, seen, to)
            .await
    }

    async fn put_dead_letter(&self, reader: &str, letter: &DeadLetter) -> Result<()> {
        self.inner.put_dead_letter(reader, letter).await
    }

    async fn dead_letters(&self, reader: &str, limit: usize) -> Result<Vec<DeadLetter>> {
        self.inner.dead_letters(reader, limit).await
    }

    async fn delete_dead_letter(&self, reader: &str, letter: &DeadLetter) -> Result<()> {
        self.inner.delete_dead_letter(reader, letter).await
    }

    async fn conversations(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<Arc<Conversation>>>> {
        self.inner.conversations(conversations).await
    }

    async fn earlier_sends(
        &self,
        conversation: ConversationId,
        keys: &[(UserId, IdempotencyKey)],
    ) -> Result<Vec<Option<EarlierSend>>> {
        self.inner.earlier_sends(conversation, keys).await
    }

    async fn history(
        &self,
        conversation: ConversationId,
        cut: &Cut<OrderKey>,
        page: &PageRequest<OrderKey>,
    ) -> Result<Page<Arc<Message>>> {
        self.read();
        self.inner.history(conversation, cut, page).await
    }

    async fn messages(
        &self,
        keys: &[(ConversationId, MessageId)],
    ) -> Result<Vec<Option<Arc<Message>>>> {
        self.read();
        self.inner.messages(keys).await
    }

    async fn messages_at(
        &self,
        positions: &[(ConversationId, OrderKey)],
    ) -> Result<Vec<Option<Arc<Message>>>> {
        self.inner.messages_at(positions).await
    }

    async fn last_messages(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<MessageId>>> {
        self.inner.last_messages(conversations).await
    }

    async fn newest_events(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<TimeUuid>>> {
        self.read();
        self.inner.newest_events(conversations).await
    }

    async fn message_counts(&self, conversations: &[ConversationId]) -> Result<Vec<u64>> {
        self.inner.message_counts(conversations).await
    }

    async fn message_counts_after(
        &self,
        positions: &[(ConversationId, OrderKey)],
    ) -> Result<Vec<u64>> {
        self.inner.message_counts_after(positions).await
    }

    async fn inbox(&self, user: &UserId, page: &PageRequest<InboxKey>) -> Result<Page<InboxRow>> {
        self.inner.inbox(user, page).await
    }

    async fn inbox_rows(
        &self,
        user: &UserId,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<InboxRow>>> {
        self.inner.inbox_rows(user, conversations).await
    }

    async fn inbox_changes(
        &self,
        user: &UserId,
        after: OrderKey,
        limit: usize,
    ) -> Result<Option<Vec<ChangedRow>>> {
        self.inner.inbox_changes(user, after, limit).await
    }

    async fn conversation_count(&self, user: &UserId, limit: usize) -> Result<usize> {
        self.inner.conversation_count(user, limit).await
    }

    async fn large_conversations(&self, user: &UserId) -> Result<Vec<ConversationId>> {
        self.inner.large_conversations(user).await
    }

    async fn unread(
        &self,
        user: &UserId,
        questions: &[UnreadQuery],
        cap: u32,
        ignored: &IgnoredSenders,
    ) -> Result<Vec<Unread>> {
        self.inner.unread(user, questions, cap, ignored).await
    }

    async fn previews(
        &self,
        user: &UserId,
        queries: &[PreviewQuery],
        cap: u32,
        ignored: &IgnoredSenders,
    ) -> Result<Vec<EntryPreview>> {
        self.inner.previews(user, queries, cap, ignored).await
    }

    async fn mentions(
        &self,
        user: &UserId,
        queries: &[UnreadQuery],
        cap: u32,
        ignored: &IgnoredSenders,
    ) -> Result<Vec<Unread>> {
        self.inner.mentions(user, queries, cap, ignored).await
    }

    async fn move_read_marker(&self, user: &UserId, to: &MarkerMove) -> Result<()> {
        self.moves.fetch_add(1, Ordering::SeqCst);
        self.inner.move_read_marker(user, to).await
    }

    async fn mark_delivered(
        &self,
        user: &UserId,
        conversation: ConversationId,
        up_to: OrderKey,
    ) -> Result<()> {
        self.inner.mark_delivered(user, conversation, up_to).await
    }

    async fn receivers(
        &self,
        conversation: ConversationId,
        message: MessageId,
        sender: &UserId,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        self.inner
            .receivers(conversation, message, sender, page)
            .await
    }

    async fn notified_of_all(
        &self,
        conversation: ConversationId,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<UserId>> {
        let inner = &self.inner;
        inner.notified_of_all(conversation, after, limit).await
    }

    async fn set_flags(&self, user: &UserId, to: &FlagsChange) -> Result<Option<Flags>> {
        self.inner.set_flags(user, to).await
    }

    async fn profiles(&self, users: &[UserId]) -> Result<Vec<Option<Profile>>> {
        self.inner.profiles(users).await
    }

    async fn change_profile(&self, user: &UserId, to: &ProfileChange) -> Result<()> {
        self.inner.change_profile(user, to).await
    }

    async fn react(
        &self,
        conversation: ConversationId,
        emoji: &Emoji,
        is_on: bool,
        change: &Change,
    ) -> Result<Option<Arc<Message>>> {
        self.inner.react(conversation, emoji, is_on, change).await
    }

    async fn pin_message(
        &self,
        conversation: ConversationId,
        is_on: bool,
        change: &Change,
    ) -> Result<Option<Arc<Message>>> {
        self.inner.pin_message(conversation, is_on, change).await
    }

    async fn pins(&self, conversation: ConversationId) -> Result<Vec<(MessageId, Pin)>> {
        self.inner.pins(conversation).await
    }

    async fn reactions(
        &self,
        viewer: &UserId,
        messages: &[(ConversationId, MessageId)],
    ) -> Result<Vec<Vec<Reaction>>> {
        self.inner.reactions(viewer, messages).await
    }

    async fn mark_seen(&self, user: &UserId, at: Timestamp) -> Result<()> {
        self.inner.mark_seen(user, at).await
    }

    async fn restrict(
        &self,
        restricted: &Restricted,
        change: &RestrictionChange,
    ) -> Result<Restriction> {
        self.inner.restrict(restricted, change).await
    }

    async fn restrictions_of(&self, users: &[UserId]) -> Result<Vec<Restriction>> {
        self.inner.restrictions_of(users).await
    }

    async fn restrictions(&self) -> Result<Vec<(Restricted, Restriction)>> {
        self.inner.restrictions().await
    }

    async fn blocks(&self, user: &UserId) -> Result<Vec<Block>> {
        self.inner.blocks(user).await
    }

    async fn set_block(&self, user: &UserId, block: &Block) -> Result<()> {
        self.inner.set_block(user, block).await
    }

    async fn add_report(&self, report: &Report, logged_as: TimeUuid) -> Result<()> {
        self.inner.add_report(report, logged_as).await
    }

    async fn reports(&self, query: &ReportQuery) -> Result<Vec<Report>> {
        self.inner.reports(query).await
    }

    async fn reports_by_id(&self, ids: &[ReportId]) -> Result<Vec<Option<Report>>> {
        self.inner.reports_by_id(ids).await
    }

    async fn report_count(&self, after: OrderKey, limit: usize) -> Result<usize> {
        self.inner.report_count(after, limit).await
    }

    async fn resolve_report(
        &self,
        report: ReportId,
        resolution: Option<&ReportResolution>,
        at: Timestamp,
    ) -> Result<()> {
        self.inner.resolve_report(report, resolution, at).await
    }

    async fn replace_report(&self, report: &Report) -> Result<()> {
        self.inner.replace_report(report).await
    }

    async fn delete_reports(&self, reports: &[ReportId]) -> Result<()> {
        self.inner.delete_reports(reports).await
    }

    async fn restriction_log(&self, since: Timestamp) -> Result<Vec<LoggedRestriction>> {
        self.inner.restriction_log(since).await
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}
