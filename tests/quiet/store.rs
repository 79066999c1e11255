//! A store behind which virtual time stands still: the threads of the embedded store work in real time, and no timer may fire meanwhile.
//!
//! It also refuses calls, as a store does that is away, and may belong to the simulated cluster.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tokio::task::spawn_blocking;
use wideroom::model::{
    AppKey, AppKeyClaim, Ban, Block, Change, ChangeId, Conversation, ConversationId,
    ConversationProfile, Cut, DirectIds, Emoji, Flags, IdempotencyKey, IgnoredSenders, InboxKey,
    InboxRow, Job, JobId, Message, MessageId, OrderKey, OutboxShard, Page, PageRequest,
    Participant, Pin, Profile, Reaction, Report, ReportId, ReportResolution, Restriction, Revision,
    TimeUuid, Timestamp, Unread, UserId,
};
use wideroom::store::cluster::ClusterStore;
use wideroom::store::embedded::Embedded;
use wideroom::store::{
    Appended, Audience, ChangedRow, ConversationProfileChange, ConversationsPiece, Created,
    DeadLetter, DirectoryChange, DueQuery, DueRemoval, EarlierSend, EntryPreview, ErasureStore,
    Error, FlagsChange, FormVersion, HistoryRemoval, LateChange, LoggedRestriction, MarkerMove,
    MembershipChange, MembershipSnapshot, MembershipVersion, NewConversation, NewMessage,
    OldestBucket, OutboxPage, OutboxRead, Participation, PreviewQuery, ProfileChange,
    ReaderPosition, RemovalStore, RemovedHistory, Renaming, ReportQuery, Restricted,
    RestrictionChange, Result, Revised, ScanStore, SearchSegmentKey, SearchStore, Store,
    StoreFuture, UnreadQuery,
};

/// How far before a cursor streams of a cluster read.
const OVERLAP_MICROS: i64 = 10_000_000;

/// Keeps virtual time from advancing by itself, until it is dropped: the runtime does not advance it while a blocking task runs.
pub(super) struct Stillness(
    #[expect(dead_code, reason = "its drop ends the task")] mpsc::Sender<()>,
);

impl Stillness {
    pub(super) fn begin() -> Self {
        let (held, ended) = mpsc::channel();
        spawn_blocking(move || ended.recv());
        Self(held)
    }
}

pub(super) struct StillStore {
    inner: Arc<Embedded>,
    cluster: Option<Arc<dyn ClusterStore>>,
    is_away: AtomicBool,
    /// Methods whose calls are refused.
    refused: Mutex<HashSet<&'static str>>,
    /// Calls that wrote a position of a reader.
    swaps: AtomicUsize,
}

impl StillStore {
    pub(super) fn new(inner: &Arc<Embedded>, cluster: Option<Arc<dyn ClusterStore>>) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::clone(inner),
            cluster,
            is_away: AtomicBool::new(false),
            refused: Mutex::default(),
            swaps: AtomicUsize::new(0),
        })
    }

    /// Refuses every call from now on, or none.
    pub(super) fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    /// Refuses the calls of one method from now on, or none of them.
    pub(super) fn refuse(&self, method: &'static str, is_refused: bool) {
        let mut refused = self.refused.lock().unwrap();
        if is_refused {
            refused.insert(method);
        } else {
            refused.remove(method);
        }
    }

    /// Positions of readers that were written until now.
    pub(super) fn swaps(&self) -> usize {
        self.swaps.load(Ordering::SeqCst)
    }

    async fn call<T>(&self, name: &str, answer: StoreFuture<'_, T>) -> Result<T> {
        if self.is_away.load(Ordering::SeqCst) || self.refused.lock().unwrap().contains(name) {
            return Err(Error::Unavailable("it is away".into()));
        }
        if name == "swap_reader_position" {
            self.swaps.fetch_add(1, Ordering::SeqCst);
        }
        let _still = Stillness::begin();
        answer.await
    }
}

impl fmt::Display for StillStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

macro_rules! still {
    ($trait:ident { $($own:item)* } $($name:ident($($argument:ident: $type:ty),* $(,)?) -> $answer:ty;)*) => {
        impl $trait for StillStore {
            $($own)*

            $(fn $name<'a>(&'a self, $($argument: $type),*) -> StoreFuture<'a, $answer> {
                let answer = self.inner.$name($($argument),*);
                Box::pin(self.call(stringify!($name), answer))
            })*
        }
    };
}

still! {
    Store {
        fn set_outbox_keep(&self, keep: Duration) {
            self.inner.set_outbox_keep(keep);
        }

        fn overlap_micros(&self) -> i64 {
            self.cluster.as_ref().map_or(0, |_| OVERLAP_MICROS)
        }

        fn cluster(&self) -> Option<Arc<dyn ClusterStore>> {
            self.cluster.clone()
        }

        fn health(&self) -> Result<(), String> {
            self.inner.health()
        }

        /// As on a cluster: each conversation has its own newest id.
        fn newest_id(&self) -> StoreFuture<'_, Option<TimeUuid>> {
            match self.cluster {
                Some(_) => Box::pin(async { Ok(None) }),
                None => Box::pin(self.call("newest_id", self.inner.newest_id())),
            }
        }

        fn close(&self) -> StoreFuture<'_, ()> {
            self.inner.close()
        }
    }
    form_version() -> FormVersion;
    imported_at() -> Option<Timestamp>;
    restored_at() -> Option<Timestamp>;
    direct_ids() -> DirectIds;
    participations(viewer: &'a UserId, conversations: &'a [ConversationId]) -> Vec<Option<Participation>>;
    app_key_claim(key: &'a AppKey) -> Option<AppKeyClaim>;
    claim_app_key(key: &'a AppKey, claim: AppKeyClaim) -> AppKeyClaim;
    direct_conversation(one: &'a UserId, other: &'a UserId) -> Option<ConversationId>;
    create_conversation(new: &'a NewConversation) -> Created;
    participants(conversation: ConversationId, page: &'a PageRequest<UserId>) -> Page<Participant>;
    participants_with_prefix(conversation: ConversationId, prefix: &'a str, page: &'a PageRequest<UserId>) -> Page<Participant>;
    participants_by_name(keys: &'a [(ConversationId, UserId)]) -> Vec<Option<Participant>>;
    participant_counts(conversations: &'a [ConversationId]) -> Vec<u64>;
    membership_snapshot(conversation: ConversationId, users: &'a [UserId]) -> Option<MembershipSnapshot>;
    membership_version(conversation: ConversationId) -> Option<MembershipVersion>;
    change_membership(conversation: ConversationId, change: &'a MembershipChange) -> Option<Audience>;
    bans(conversation: ConversationId, page: &'a PageRequest<UserId>) -> Page<Ban>;
    bans_of(conversation: ConversationId, users: &'a [UserId]) -> Vec<Option<Ban>>;
    ban_count(conversation: ConversationId, limit: usize) -> usize;
    rename_conversation(conversation: ConversationId, to: &'a Renaming) -> Audience;
    set_slow_mode(conversation: ConversationId, seconds: u32, change: &'a Change) -> ();
    conversation_profiles(conversations: &'a [ConversationId]) -> Vec<ConversationProfile>;
    change_conversation_profile(conversation: ConversationId, to: &'a ConversationProfileChange, change: &'a Change) -> Audience;
    append_messages(conversation: ConversationId, messages: &'a [NewMessage]) -> Appended;
    revise_message(conversation: ConversationId, revision: &'a Revision, change: &'a Change) -> Option<Revised>;
    react(conversation: ConversationId, emoji: &'a Emoji, is_on: bool, change: &'a Change) -> Option<Arc<Message>>;
    pin_message(conversation: ConversationId, is_on: bool, change: &'a Change) -> Option<Arc<Message>>;
    pins(conversation: ConversationId) -> Vec<(MessageId, Pin)>;
    reactions(viewer: &'a UserId, messages: &'a [(ConversationId, MessageId)]) -> Vec<Vec<Reaction>>;
    changes(conversation: ConversationId, after: OrderKey, limit: usize) -> Vec<Change>;
    log_late(conversation: ConversationId, changes: &'a [LateChange]) -> ();
    outbox_since() -> Option<Timestamp>;
    outbox(reads: &'a [OutboxRead], up_to: OrderKey, limit: usize) -> Vec<OutboxPage>;
    reader_positions(reader: &'a str) -> Vec<Option<ReaderPosition>>;
    swap_reader_position(reader: &'a str, shard: OutboxShard, seen: Option<&'a ReaderPosition>, to: &'a ReaderPosition) -> bool;
    put_dead_letter(reader: &'a str, letter: &'a DeadLetter) -> ();
    dead_letters(reader: &'a str, limit: usize) -> Vec<DeadLetter>;
    delete_dead_letter(reader: &'a str, letter: &'a DeadLetter) -> ();
    conversations(conversations: &'a [ConversationId]) -> Vec<Option<Arc<Conversation>>>;
    earlier_sends(conversation: ConversationId, keys: &'a [(UserId, IdempotencyKey)]) -> Vec<Option<EarlierSend>>;
    history(conversation: ConversationId, cut: &'a Cut<OrderKey>, page: &'a PageRequest<OrderKey>) -> Page<Arc<Message>>;
    messages(keys: &'a [(ConversationId, MessageId)]) -> Vec<Option<Arc<Message>>>;
    messages_at(positions: &'a [(ConversationId, OrderKey)]) -> Vec<Option<Arc<Message>>>;
    last_messages(conversations: &'a [ConversationId]) -> Vec<Option<MessageId>>;
    newest_events(conversations: &'a [ConversationId]) -> Vec<Option<TimeUuid>>;
    message_counts(conversations: &'a [ConversationId]) -> Vec<u64>;
    message_counts_after(positions: &'a [(ConversationId, OrderKey)]) -> Vec<u64>;
    inbox(user: &'a UserId, page: &'a PageRequest<InboxKey>) -> Page<InboxRow>;
    inbox_rows(user: &'a UserId, conversations: &'a [ConversationId]) -> Vec<Option<InboxRow>>;
    inbox_changes(user: &'a UserId, after: OrderKey, limit: usize) -> Option<Vec<ChangedRow>>;
    conversation_count(user: &'a UserId, limit: usize) -> usize;
    large_conversations(user: &'a UserId) -> Vec<ConversationId>;
    unread(user: &'a UserId, queries: &'a [UnreadQuery], cap: u32, ignored: &'a IgnoredSenders) -> Vec<Unread>;
    mentions(user: &'a UserId, queries: &'a [UnreadQuery], cap: u32, ignored: &'a IgnoredSenders) -> Vec<Unread>;
    previews(user: &'a UserId, queries: &'a [PreviewQuery], cap: u32, ignored: &'a IgnoredSenders) -> Vec<EntryPreview>;
    move_read_marker(user: &'a UserId, to: &'a MarkerMove) -> ();
    mark_delivered(user: &'a UserId, conversation: ConversationId, up_to: OrderKey) -> ();
    receivers(conversation: ConversationId, message: MessageId, sender: &'a UserId, page: &'a PageRequest<UserId>) -> Page<Participant>;
    set_flags(user: &'a UserId, to: &'a FlagsChange) -> Option<Flags>;
    notified_of_all(conversation: ConversationId, after: Option<&'a UserId>, limit: usize) -> Vec<UserId>;
    profiles(users: &'a [UserId]) -> Vec<Option<Profile>>;
    change_profile(user: &'a UserId, to: &'a ProfileChange) -> ();
    mark_seen(user: &'a UserId, at: Timestamp) -> ();
    restrict(restricted: &'a Restricted, change: &'a RestrictionChange) -> Restriction;
    restrictions_of(users: &'a [UserId]) -> Vec<Restriction>;
    restrictions() -> Vec<(Restricted, Restriction)>;
    restriction_log(since: Timestamp) -> Vec<LoggedRestriction>;
    blocks(user: &'a UserId) -> Vec<Block>;
    set_block(user: &'a UserId, block: &'a Block) -> ();
    add_report(report: &'a Report, logged_as: TimeUuid) -> ();
    reports(query: &'a ReportQuery) -> Vec<Report>;
    reports_by_id(ids: &'a [ReportId]) -> Vec<Option<Report>>;
    report_count(after: OrderKey, limit: usize) -> usize;
    resolve_report(report: ReportId, resolution: Option<&'a ReportResolution>, at: Timestamp) -> ();
    replace_report(report: &'a Report) -> ();
    delete_reports(reports: &'a [ReportId]) -> ();
}

still! {
    RemovalStore {
        fn set_retention(&self, seconds: Option<u32>) {
            self.inner.set_retention(seconds);
        }
    }
    scheduled_retention() -> Option<u32>;
    note_scheduled_retention(seconds: Option<u32>) -> ();
    schedule_removal(due: DueRemoval) -> ();
    due_removals(query: &'a DueQuery) -> Vec<DueRemoval>;
    end_removal(due: DueRemoval) -> ();
    oldest_bucket(conversation: ConversationId) -> Option<OldestBucket>;
    remove_history(conversation: ConversationId, removal: &'a HistoryRemoval) -> RemovedHistory;
    log_expiry(conversation: ConversationId, event: TimeUuid) -> ();
}

still! {
    ScanStore {}
    all_users(after: Option<&'a UserId>, limit: usize) -> Vec<(UserId, Profile)>;
    all_conversations(after: Option<ConversationId>, limit: usize) -> Vec<(Conversation, Option<Timestamp>)>;
}

still! {
    ErasureStore {}
    conversations_of(user: &'a UserId, after: Option<ConversationId>, limit: usize) -> ConversationsPiece;
    erase_messages(conversation: ConversationId, user: &'a UserId, messages: &'a [MessageId], change: ChangeId) -> ();
    erase_participant(conversation: ConversationId, user: &'a UserId, change: ChangeId) -> ();
    erase_user(user: &'a UserId, at: Timestamp) -> ();
    add_user_erased(user: &'a UserId, event: TimeUuid, logged_as: TimeUuid) -> ();
    jobs(ids: &'a [JobId]) -> Vec<Option<Job>>;
    running_jobs(limit: usize) -> Vec<Job>;
    swap_job(seen: Option<&'a Job>, to: &'a Job) -> bool;
}

still! {
    SearchStore {}
    search_directories(conversations: &'a [ConversationId]) -> Vec<Option<Vec<u8>>>;
    swap_search_directory(conversation: ConversationId, seen: Option<&'a [u8]>, to: &'a [u8]) -> bool;
    add_search_segment(segment: SearchSegmentKey, blocks: &'a [Vec<u8>], change: &'a DirectoryChange) -> bool;
    search_blocks(blocks: &'a [(SearchSegmentKey, u32)]) -> Vec<Option<Vec<u8>>>;
    delete_search_segments(segments: &'a [SearchSegmentKey]) -> ();
}
