//! A store whose sends can be held up: what a slow cluster, or a server that stops for a while, does to ids that were given already. It
//! refuses calls as an overloaded cluster does, and counts the reads that streams make.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use wideroom::model::{
    AppKey, AppKeyClaim, Ban, Block, Change, Conversation, ConversationId, ConversationProfile,
    Cut, DirectIds, Emoji, Flags, IdempotencyKey, IgnoredSenders, InboxKey, InboxRow, Message,
    MessageId, OrderKey, OutboxShard, Page, PageRequest, Participant, Pin, Profile, Reaction,
    Report, ReportId, ReportResolution, Restriction, Revision, TimeUuid, Timestamp, Unread, UserId,
};
use wideroom::store::cluster::ClusterStore;
use wideroom::store::{
    Appended, Audience, ChangedRow, ConversationProfileChange, Created, DeadLetter, EarlierSend,
    EntryPreview, Error, FlagsChange, FormVersion, LateChange, LoggedRestriction, MarkerMove,
    MembershipChange, MembershipSnapshot, MembershipVersion, NewConversation, NewMessage,
    OutboxPage, OutboxRead, Participation, PreviewQuery, ProfileChange, ReaderPosition, Renaming,
    ReportQuery, Restricted, RestrictionChange, Result, Revised, Store, StoreFuture, UnreadQuery,
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
    /// Calls of a method that are yet to be refused.
    refusals: Mutex<HashMap<&'static str, usize>>,
    /// Calls of a method that are yet to be done without an answer.
    losses: Mutex<HashMap<&'static str, usize>>,
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
            refusals: Mutex::default(),
            losses: Mutex::default(),
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

    /// So many of the next calls of a method are refused, before they do anything.
    pub(super) fn refuse(&self, method: &'static str, calls: usize) {
        self.refusals.lock().unwrap().insert(method, calls);
    }

    /// So many of the next calls of a method are done, and their answers are lost.
    pub(super) fn lose(&self, method: &'static str, calls: usize) {
        self.losses.lock().unwrap().insert(method, calls);
    }

    /// Does a call that may be refused, or lose its answer.
    async fn with_faults<T>(
        &self,
        method: &str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.admit(method)?;
        let answer = call.await;
        match self.losses.lock().unwrap().get_mut(method) {
            Some(left) if *left > 0 => {
                *left -= 1;
                Err(Error::Unavailable("its answer is lost".into()))
            }
            Some(_) | None => answer,
        }
    }

    pub(super) fn refusals_left(&self, method: &str) -> usize {
        let refusals = self.refusals.lock().unwrap();
        refusals.get(method).copied().unwrap_or_default()
    }

    fn admit(&self, method: &str) -> Result<()> {
        match self.refusals.lock().unwrap().get_mut(method) {
            Some(left) if *left > 0 => {
                *left -= 1;
                Err(Error::Unavailable("it is refused".into()))
            }
            Some(_) | None => Ok(()),
        }
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

    fn newest_id(&self) -> StoreFuture<'_, Option<TimeUuid>> {
        self.inner.newest_id()
    }

    fn form_version(&self) -> StoreFuture<'_, FormVersion> {
        self.inner.form_version()
    }

    fn imported_at(&self) -> StoreFuture<'_, Option<Timestamp>> {
        self.inner.imported_at()
    }

    fn restored_at(&self) -> StoreFuture<'_, Option<Timestamp>> {
        self.inner.restored_at()
    }

    fn direct_ids(&self) -> StoreFuture<'_, DirectIds> {
        self.inner.direct_ids()
    }

    fn participations<'a>(
        &'a self,
        viewer: &'a UserId,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<Option<Participation>>> {
        Box::pin(async move {
            self.read();
            self.inner.participations(viewer, conversations).await
        })
    }

    fn direct_conversation<'a>(
        &'a self,
        one: &'a UserId,
        other: &'a UserId,
    ) -> StoreFuture<'a, Option<ConversationId>> {
        self.inner.direct_conversation(one, other)
    }

    fn app_key_claim<'a>(&'a self, key: &'a AppKey) -> StoreFuture<'a, Option<AppKeyClaim>> {
        Box::pin(self.with_faults("app_key_claim", self.inner.app_key_claim(key)))
    }

    fn claim_app_key<'a>(
        &'a self,
        key: &'a AppKey,
        claim: AppKeyClaim,
    ) -> StoreFuture<'a, AppKeyClaim> {
        Box::pin(self.with_faults("claim_app_key", self.inner.claim_app_key(key, claim)))
    }

    fn create_conversation<'a>(&'a self, new: &'a NewConversation) -> StoreFuture<'a, Created> {
        Box::pin(async move {
            let delay = *self.creation_delay.lock().unwrap();
            tokio::time::sleep(delay).await;
            let created = self.inner.create_conversation(new);
            self.with_faults("create_conversation", created).await
        })
    }

    fn participants<'a>(
        &'a self,
        conversation: ConversationId,
        page: &'a PageRequest<UserId>,
    ) -> StoreFuture<'a, Page<Participant>> {
        Box::pin(async move {
            self.read();
            self.inner.participants(conversation, page).await
        })
    }

    fn participants_with_prefix<'a>(
        &'a self,
        conversation: ConversationId,
        prefix: &'a str,
        page: &'a PageRequest<UserId>,
    ) -> StoreFuture<'a, Page<Participant>> {
        self.inner
            .participants_with_prefix(conversation, prefix, page)
    }

    fn bans<'a>(
        &'a self,
        conversation: ConversationId,
        page: &'a PageRequest<UserId>,
    ) -> StoreFuture<'a, Page<Ban>> {
        self.inner.bans(conversation, page)
    }

    fn bans_of<'a>(
        &'a self,
        conversation: ConversationId,
        users: &'a [UserId],
    ) -> StoreFuture<'a, Vec<Option<Ban>>> {
        self.inner.bans_of(conversation, users)
    }

    fn ban_count(&self, conversation: ConversationId, limit: usize) -> StoreFuture<'_, usize> {
        self.inner.ban_count(conversation, limit)
    }

    fn participants_by_name<'a>(
        &'a self,
        keys: &'a [(ConversationId, UserId)],
    ) -> StoreFuture<'a, Vec<Option<Participant>>> {
        Box::pin(async move {
            self.read();
            self.inner.participants_by_name(keys).await
        })
    }

    fn participant_counts<'a>(
        &'a self,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<u64>> {
        Box::pin(async move {
            self.read();
            self.inner.participant_counts(conversations).await
        })
    }

    fn membership_snapshot<'a>(
        &'a self,
        conversation: ConversationId,
        users: &'a [UserId],
    ) -> StoreFuture<'a, Option<MembershipSnapshot>> {
        Box::pin(async move {
            self.read();
            self.inner.membership_snapshot(conversation, users).await
        })
    }

    fn membership_version(
        &self,
        conversation: ConversationId,
    ) -> StoreFuture<'_, Option<MembershipVersion>> {
        Box::pin(async move {
            self.read();
            self.inner.membership_version(conversation).await
        })
    }

    fn change_membership<'a>(
        &'a self,
        conversation: ConversationId,
        change: &'a MembershipChange,
    ) -> StoreFuture<'a, Option<Audience>> {
        self.inner.change_membership(conversation, change)
    }

    fn rename_conversation<'a>(
        &'a self,
        conversation: ConversationId,
        to: &'a Renaming,
    ) -> StoreFuture<'a, Audience> {
        self.inner.rename_conversation(conversation, to)
    }

    fn set_slow_mode<'a>(
        &'a self,
        conversation: ConversationId,
        seconds: u32,
        change: &'a Change,
    ) -> StoreFuture<'a, ()> {
        self.inner.set_slow_mode(conversation, seconds, change)
    }

    fn conversation_profiles<'a>(
        &'a self,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<ConversationProfile>> {
        self.inner.conversation_profiles(conversations)
    }

    fn change_conversation_profile<'a>(
        &'a self,
        conversation: ConversationId,
        to: &'a ConversationProfileChange,
        change: &'a Change,
    ) -> StoreFuture<'a, Audience> {
        self.inner
            .change_conversation_profile(conversation, to, change)
    }

    fn append_messages<'a>(
        &'a self,
        conversation: ConversationId,
        messages: &'a [NewMessage],
    ) -> StoreFuture<'a, Appended> {
        Box::pin(async move {
            self.wait().await;
            self.inner.append_messages(conversation, messages).await
        })
    }

    fn revise_message<'a>(
        &'a self,
        conversation: ConversationId,
        revision: &'a Revision,
        change: &'a Change,
    ) -> StoreFuture<'a, Option<Revised>> {
        self.inner.revise_message(conversation, revision, change)
    }

    fn changes(
        &self,
        conversation: ConversationId,
        after: OrderKey,
        limit: usize,
    ) -> StoreFuture<'_, Vec<Change>> {
        Box::pin(async move {
            self.read();
            self.inner.changes(conversation, after, limit).await
        })
    }

    fn log_late<'a>(
        &'a self,
        conversation: ConversationId,
        changes: &'a [LateChange],
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.admit("log_late")?;
            self.inner.log_late(conversation, changes).await
        })
    }

    fn outbox_since(&self) -> StoreFuture<'_, Option<Timestamp>> {
        self.inner.outbox_since()
    }

    fn outbox<'a>(
        &'a self,
        reads: &'a [OutboxRead],
        up_to: OrderKey,
        limit: usize,
    ) -> StoreFuture<'a, Vec<OutboxPage>> {
        Box::pin(async move {
            self.outbox_reads.fetch_add(reads.len(), Ordering::SeqCst);
            self.inner.outbox(reads, up_to, limit).await
        })
    }

    fn reader_positions<'a>(
        &'a self,
        reader: &'a str,
    ) -> StoreFuture<'a, Vec<Option<ReaderPosition>>> {
        self.inner.reader_positions(reader)
    }

    fn swap_reader_position<'a>(
        &'a self,
        reader: &'a str,
        shard: OutboxShard,
        seen: Option<&'a ReaderPosition>,
        to: &'a ReaderPosition,
    ) -> StoreFuture<'a, bool> {
        self.inner.swap_reader_position(reader, shard, seen, to)
    }

    fn put_dead_letter<'a>(
        &'a self,
        reader: &'a str,
        letter: &'a DeadLetter,
    ) -> StoreFuture<'a, ()> {
        self.inner.put_dead_letter(reader, letter)
    }

    fn dead_letters<'a>(
        &'a self,
        reader: &'a str,
        limit: usize,
    ) -> StoreFuture<'a, Vec<DeadLetter>> {
        self.inner.dead_letters(reader, limit)
    }

    fn delete_dead_letter<'a>(
        &'a self,
        reader: &'a str,
        letter: &'a DeadLetter,
    ) -> StoreFuture<'a, ()> {
        self.inner.delete_dead_letter(reader, letter)
    }

    fn conversations<'a>(
        &'a self,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<Option<Arc<Conversation>>>> {
        self.inner.conversations(conversations)
    }

    fn earlier_sends<'a>(
        &'a self,
        conversation: ConversationId,
        keys: &'a [(UserId, IdempotencyKey)],
    ) -> StoreFuture<'a, Vec<Option<EarlierSend>>> {
        self.inner.earlier_sends(conversation, keys)
    }

    fn history<'a>(
        &'a self,
        conversation: ConversationId,
        cut: &'a Cut<OrderKey>,
        page: &'a PageRequest<OrderKey>,
    ) -> StoreFuture<'a, Page<Arc<Message>>> {
        Box::pin(async move {
            self.read();
            self.inner.history(conversation, cut, page).await
        })
    }

    fn messages<'a>(
        &'a self,
        keys: &'a [(ConversationId, MessageId)],
    ) -> StoreFuture<'a, Vec<Option<Arc<Message>>>> {
        Box::pin(async move {
            self.read();
            self.admit("messages")?;
            self.inner.messages(keys).await
        })
    }

    fn messages_at<'a>(
        &'a self,
        positions: &'a [(ConversationId, OrderKey)],
    ) -> StoreFuture<'a, Vec<Option<Arc<Message>>>> {
        self.inner.messages_at(positions)
    }

    fn last_messages<'a>(
        &'a self,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<Option<MessageId>>> {
        self.inner.last_messages(conversations)
    }

    fn newest_events<'a>(
        &'a self,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<Option<TimeUuid>>> {
        Box::pin(async move {
            self.read();
            self.inner.newest_events(conversations).await
        })
    }

    fn message_counts<'a>(
        &'a self,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<u64>> {
        self.inner.message_counts(conversations)
    }

    fn message_counts_after<'a>(
        &'a self,
        positions: &'a [(ConversationId, OrderKey)],
    ) -> StoreFuture<'a, Vec<u64>> {
        self.inner.message_counts_after(positions)
    }

    fn inbox<'a>(
        &'a self,
        user: &'a UserId,
        page: &'a PageRequest<InboxKey>,
    ) -> StoreFuture<'a, Page<InboxRow>> {
        self.inner.inbox(user, page)
    }

    fn inbox_rows<'a>(
        &'a self,
        user: &'a UserId,
        conversations: &'a [ConversationId],
    ) -> StoreFuture<'a, Vec<Option<InboxRow>>> {
        self.inner.inbox_rows(user, conversations)
    }

    fn inbox_changes<'a>(
        &'a self,
        user: &'a UserId,
        after: OrderKey,
        limit: usize,
    ) -> StoreFuture<'a, Option<Vec<ChangedRow>>> {
        self.inner.inbox_changes(user, after, limit)
    }

    fn conversation_count<'a>(&'a self, user: &'a UserId, limit: usize) -> StoreFuture<'a, usize> {
        self.inner.conversation_count(user, limit)
    }

    fn large_conversations<'a>(&'a self, user: &'a UserId) -> StoreFuture<'a, Vec<ConversationId>> {
        self.inner.large_conversations(user)
    }

    fn unread<'a>(
        &'a self,
        user: &'a UserId,
        questions: &'a [UnreadQuery],
        cap: u32,
        ignored: &'a IgnoredSenders,
    ) -> StoreFuture<'a, Vec<Unread>> {
        self.inner.unread(user, questions, cap, ignored)
    }

    fn previews<'a>(
        &'a self,
        user: &'a UserId,
        queries: &'a [PreviewQuery],
        cap: u32,
        ignored: &'a IgnoredSenders,
    ) -> StoreFuture<'a, Vec<EntryPreview>> {
        self.inner.previews(user, queries, cap, ignored)
    }

    fn mentions<'a>(
        &'a self,
        user: &'a UserId,
        queries: &'a [UnreadQuery],
        cap: u32,
        ignored: &'a IgnoredSenders,
    ) -> StoreFuture<'a, Vec<Unread>> {
        self.inner.mentions(user, queries, cap, ignored)
    }

    fn move_read_marker<'a>(&'a self, user: &'a UserId, to: &'a MarkerMove) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.moves.fetch_add(1, Ordering::SeqCst);
            self.inner.move_read_marker(user, to).await
        })
    }

    fn mark_delivered<'a>(
        &'a self,
        user: &'a UserId,
        conversation: ConversationId,
        up_to: OrderKey,
    ) -> StoreFuture<'a, ()> {
        self.inner.mark_delivered(user, conversation, up_to)
    }

    fn receivers<'a>(
        &'a self,
        conversation: ConversationId,
        message: MessageId,
        sender: &'a UserId,
        page: &'a PageRequest<UserId>,
    ) -> StoreFuture<'a, Page<Participant>> {
        self.inner.receivers(conversation, message, sender, page)
    }

    fn notified_of_all<'a>(
        &'a self,
        conversation: ConversationId,
        after: Option<&'a UserId>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<UserId>> {
        Box::pin(async move {
            let inner = &self.inner;
            inner.notified_of_all(conversation, after, limit).await
        })
    }

    fn set_flags<'a>(
        &'a self,
        user: &'a UserId,
        to: &'a FlagsChange,
    ) -> StoreFuture<'a, Option<Flags>> {
        self.inner.set_flags(user, to)
    }

    fn profiles<'a>(&'a self, users: &'a [UserId]) -> StoreFuture<'a, Vec<Option<Profile>>> {
        self.inner.profiles(users)
    }

    fn change_profile<'a>(
        &'a self,
        user: &'a UserId,
        to: &'a ProfileChange,
    ) -> StoreFuture<'a, ()> {
        self.inner.change_profile(user, to)
    }

    fn react<'a>(
        &'a self,
        conversation: ConversationId,
        emoji: &'a Emoji,
        is_on: bool,
        change: &'a Change,
    ) -> StoreFuture<'a, Option<Arc<Message>>> {
        self.inner.react(conversation, emoji, is_on, change)
    }

    fn pin_message<'a>(
        &'a self,
        conversation: ConversationId,
        is_on: bool,
        change: &'a Change,
    ) -> StoreFuture<'a, Option<Arc<Message>>> {
        self.inner.pin_message(conversation, is_on, change)
    }

    fn pins(&self, conversation: ConversationId) -> StoreFuture<'_, Vec<(MessageId, Pin)>> {
        self.inner.pins(conversation)
    }

    fn reactions<'a>(
        &'a self,
        viewer: &'a UserId,
        messages: &'a [(ConversationId, MessageId)],
    ) -> StoreFuture<'a, Vec<Vec<Reaction>>> {
        self.inner.reactions(viewer, messages)
    }

    fn mark_seen<'a>(&'a self, user: &'a UserId, at: Timestamp) -> StoreFuture<'a, ()> {
        self.inner.mark_seen(user, at)
    }

    fn restrict<'a>(
        &'a self,
        restricted: &'a Restricted,
        change: &'a RestrictionChange,
    ) -> StoreFuture<'a, Restriction> {
        self.inner.restrict(restricted, change)
    }

    fn restrictions_of<'a>(&'a self, users: &'a [UserId]) -> StoreFuture<'a, Vec<Restriction>> {
        self.inner.restrictions_of(users)
    }

    fn restrictions(&self) -> StoreFuture<'_, Vec<(Restricted, Restriction)>> {
        self.inner.restrictions()
    }

    fn blocks<'a>(&'a self, user: &'a UserId) -> StoreFuture<'a, Vec<Block>> {
        self.inner.blocks(user)
    }

    fn set_block<'a>(&'a self, user: &'a UserId, block: &'a Block) -> StoreFuture<'a, ()> {
        self.inner.set_block(user, block)
    }

    fn add_report<'a>(&'a self, report: &'a Report, logged_as: TimeUuid) -> StoreFuture<'a, ()> {
        self.inner.add_report(report, logged_as)
    }

    fn reports<'a>(&'a self, query: &'a ReportQuery) -> StoreFuture<'a, Vec<Report>> {
        self.inner.reports(query)
    }

    fn reports_by_id<'a>(&'a self, ids: &'a [ReportId]) -> StoreFuture<'a, Vec<Option<Report>>> {
        self.inner.reports_by_id(ids)
    }

    fn report_count(&self, after: OrderKey, limit: usize) -> StoreFuture<'_, usize> {
        self.inner.report_count(after, limit)
    }

    fn resolve_report<'a>(
        &'a self,
        report: ReportId,
        resolution: Option<&'a ReportResolution>,
        at: Timestamp,
    ) -> StoreFuture<'a, ()> {
        self.inner.resolve_report(report, resolution, at)
    }

    fn replace_report<'a>(&'a self, report: &'a Report) -> StoreFuture<'a, ()> {
        self.inner.replace_report(report)
    }

    fn delete_reports<'a>(&'a self, reports: &'a [ReportId]) -> StoreFuture<'a, ()> {
        self.inner.delete_reports(reports)
    }

    fn restriction_log(&self, since: Timestamp) -> StoreFuture<'_, Vec<LoggedRestriction>> {
        self.inner.restriction_log(since)
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        self.inner.close()
    }
}
