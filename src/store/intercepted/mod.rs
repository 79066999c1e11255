//! Store behind an interceptor, which sees each operation by its name: the one list of all operations of a store.

mod instrumented;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::instrumented::{InstrumentedStore, OperationMetrics};
use super::cluster::ClusterStore;
use super::live::{DueLiveQuery, LiveListing, LiveStore, LiveTextQuery, LiveWrite, WriterClaim};
use super::{
    Appended, Audience, ChangedRow, ConversationProfileChange, ConversationsPiece, Created,
    DeadLetter, DirectoryChange, DueQuery, DueRemoval, EarlierSend, EntryPreview, ErasureStore,
    FlagsChange, FormVersion, HistoryRemoval, ImportPositions, ImportRow, Imported, LateChange,
    LoggedRestriction, MarkerMove, MembershipChange, MembershipSnapshot, MembershipVersion,
    NewConversation, NewMessage, OldestBucket, OutboxPage, OutboxRead, Participation, PreviewQuery,
    ProfileChange, ReaderPosition, RemovalStore, RemovedHistory, Renaming, ReportQuery, Restricted,
    RestrictionChange, Result, Revised, ScanStore, SearchSegmentKey, SearchStore, Store,
    StoreAdmin, StoreFuture, StoredMessage, UnreadQuery, Verified, VerifyPosition,
};
use crate::model::{
    AppKey, AppKeyClaim, Change, ChangeId, Conversation, ConversationId, ConversationProfile, Cut,
    DirectIds, Emoji, Flags, IdempotencyKey, InboxKey, InboxRow, Job, JobId, Membership, Message,
    MessageId, OrderKey, OutboxShard, Page, PageRequest, Participant, Pin, Profile, Reaction,
    Report, ReportId, ReportResolution, Restriction, Revision, TimeUuid, Timestamp, Unread, UserId,
};
use crate::model::{Ban, Block, IgnoredSenders, LiveKey, LiveMessage, LiveStop, LiveText};

/// Operation of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreOperation(usize);

impl StoreOperation {
    /// All operations, in the order of their indices.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..NAMES.len()).map(Self)
    }

    /// Position among all operations.
    pub fn index(self) -> usize {
        self.0
    }

    /// Name of the method.
    pub fn name(self) -> &'static str {
        NAMES[self.0]
    }
}

/// Part before a store that sees its operations.
pub trait StoreInterceptor: Send + Sync + 'static {
    /// Answers in place of the store. The store begins once `answer` is polled.
    fn intercept<'a, T: Send + 'a>(
        &'a self,
        operation: StoreOperation,
        answer: StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T>;

    /// [`Store::overlap_micros`] of the store as it is seen.
    fn overlap_micros(&self, store: &dyn Store) -> i64 {
        store.overlap_micros()
    }

    /// [`Store::cluster`] of the store as it is seen.
    fn cluster(&self, store: &dyn Store) -> Option<Arc<dyn ClusterStore>> {
        store.cluster()
    }
}

impl<I: StoreInterceptor> StoreInterceptor for Arc<I> {
    fn intercept<'a, T: Send + 'a>(
        &'a self,
        operation: StoreOperation,
        answer: StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        (**self).intercept(operation, answer)
    }

    fn overlap_micros(&self, store: &dyn Store) -> i64 {
        (**self).overlap_micros(store)
    }

    fn cluster(&self, store: &dyn Store) -> Option<Arc<dyn ClusterStore>> {
        (**self).cluster(store)
    }
}

/// A store with an interceptor before it.
pub struct InterceptedStore<I> {
    store: Arc<dyn StoreAdmin>,
    interceptor: I,
}

impl<I: StoreInterceptor> InterceptedStore<I> {
    pub fn before(store: Arc<dyn StoreAdmin>, interceptor: I) -> Self {
        Self { store, interceptor }
    }
}

impl<I> fmt::Display for InterceptedStore<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

/// Implements each trait: its own items as they are, and each operation by the interceptor.
macro_rules! intercepted {
    ($(impl $trait:ident {
        { $($own:item)* }
        $($name:ident($($argument:ident: $type:ty),* $(,)?) -> $answer:ty;)*
    })*) => {
        #[expect(non_camel_case_types, reason = "they are the names of methods")]
        enum OperationName { newest_id, $($($name),*),* }

        const NAMES: &[&str] = &["newest_id", $($(stringify!($name)),*),*];

        $(#[deny(clippy::missing_trait_methods)]
        impl<I: StoreInterceptor> $trait for InterceptedStore<I> {
            $($own)*

            $(fn $name<'a>(&'a self, $($argument: $type),*) -> StoreFuture<'a, $answer> {
                let operation = StoreOperation(OperationName::$name as usize);
                self.interceptor.intercept(operation, self.store.$name($($argument),*))
            })*
        })*
    };
}

intercepted! {
    impl Store {
        {
            fn overlap_micros(&self) -> i64 {
                self.interceptor.overlap_micros(&*self.store)
            }

            fn set_outbox_keep(&self, keep: Duration) {
                self.store.set_outbox_keep(keep);
            }

            fn cluster(&self) -> Option<Arc<dyn ClusterStore>> {
                self.interceptor.cluster(&*self.store)
            }

            fn health(&self) -> Result<(), String> {
                self.store.health()
            }

            /// `None` where several servers allocate ids: each conversation has its own.
            fn newest_id(&self) -> StoreFuture<'_, Option<TimeUuid>> {
                if self.cluster().is_some() {
                    return Box::pin(async { Ok(None) });
                }
                let operation = StoreOperation(OperationName::newest_id as usize);
                self.interceptor.intercept(operation, self.store.newest_id())
            }
        }
        form_version() -> FormVersion;
        imported_at() -> Option<Timestamp>;
        restored_at() -> Option<Timestamp>;
        direct_ids() -> DirectIds;
        participations(viewer: &'a UserId, conversations: &'a [ConversationId]) -> Vec<Option<Participation>>;
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
        append_messages(conversation: ConversationId, messages: &'a [NewMessage]) -> Appended;
        revise_message(conversation: ConversationId, revision: &'a Revision, change: &'a Change) -> Option<Revised>;
        react(conversation: ConversationId, emoji: &'a Emoji, is_on: bool, change: &'a Change) -> Option<Arc<Message>>;
        pin_message(conversation: ConversationId, is_on: bool, change: &'a Change) -> Option<Arc<Message>>;
        pins(conversation: ConversationId) -> Vec<(MessageId, Pin)>;
        reactions(viewer: &'a UserId, messages: &'a [(ConversationId, MessageId)]) -> Vec<Vec<Reaction>>;
        conversation_profiles(conversations: &'a [ConversationId]) -> Vec<ConversationProfile>;
        change_conversation_profile(conversation: ConversationId, to: &'a ConversationProfileChange, change: &'a Change) -> Audience;
        app_key_claim(key: &'a AppKey) -> Option<AppKeyClaim>;
        claim_app_key(key: &'a AppKey, claim: AppKeyClaim) -> AppKeyClaim;
        ended_reaction_count(user: &'a UserId, message: (ConversationId, MessageId), limit: usize) -> usize;
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
        close() -> ();
    }

    impl RemovalStore {
        {
            fn set_retention(&self, seconds: Option<u32>) {
                self.store.set_retention(seconds);
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

    impl LiveStore {
        {}
        claim_live_writer(live: LiveKey, claim: &'a WriterClaim) -> bool;
        live_messages(keys: &'a [LiveKey]) -> Vec<Option<LiveMessage>>;
        live_texts(query: &'a LiveTextQuery) -> Vec<LiveText>;
        write_live(live: LiveKey, write: &'a LiveWrite) -> ();
        stop_live(live: LiveKey, stop: &'a LiveStop) -> ();
        discard_live(live: LiveKey, at: Timestamp) -> ();
        list_live(listing: &'a LiveListing, due_minute: u32) -> ();
        listed_lives(conversation: ConversationId, from_minute: u32, limit: usize) -> Vec<LiveListing>;
        due_lives(query: &'a DueLiveQuery) -> Vec<LiveListing>;
    }

    impl ErasureStore {
        {}
        conversations_of(user: &'a UserId, after: Option<ConversationId>, limit: usize) -> ConversationsPiece;
        erase_messages(conversation: ConversationId, user: &'a UserId, messages: &'a [MessageId], change: ChangeId) -> ();
        erase_participant(conversation: ConversationId, user: &'a UserId, change: ChangeId) -> ();
        erase_user(user: &'a UserId, at: Timestamp) -> ();
        add_user_erased(user: &'a UserId, event: TimeUuid, logged_as: TimeUuid) -> ();
        jobs(ids: &'a [JobId]) -> Vec<Option<Job>>;
        running_jobs(limit: usize) -> Vec<Job>;
        swap_job(seen: Option<&'a Job>, to: &'a Job) -> bool;
    }

    impl SearchStore {
        {}
        search_directories(conversations: &'a [ConversationId]) -> Vec<Option<Vec<u8>>>;
        swap_search_directory(conversation: ConversationId, seen: Option<&'a [u8]>, to: &'a [u8]) -> bool;
        add_search_segment(segment: SearchSegmentKey, blocks: &'a [Vec<u8>], change: &'a DirectoryChange) -> bool;
        search_blocks(blocks: &'a [(SearchSegmentKey, u32)]) -> Vec<Option<Vec<u8>>>;
        delete_search_segments(segments: &'a [SearchSegmentKey]) -> ();
    }

    impl ScanStore {
        {}
        all_users(after: Option<&'a UserId>, limit: usize) -> Vec<(UserId, Profile)>;
        all_conversations(after: Option<ConversationId>, limit: usize) -> Vec<(Conversation, Option<Timestamp>)>;
    }

    impl StoreAdmin {
        {}
        import(rows: &'a [ImportRow]) -> Vec<Imported>;
        all_participants(conversation: ConversationId, after: Option<&'a UserId>, limit: usize) -> Vec<(UserId, Membership, ImportPositions)>;
        all_messages(conversation: ConversationId, after: Option<MessageId>, limit: usize) -> Vec<StoredMessage>;
        all_reactions(
            conversation: ConversationId,
            message: MessageId,
            after: Option<&'a (Emoji, UserId)>,
            limit: usize
        ) -> Vec<(Emoji, UserId)>;
        verify(after: Option<&'a VerifyPosition>, repair: bool) -> Verified;
        note(name: &'a str) -> Option<String>;
        set_note(name: &'a str, value: Option<&'a str>) -> ();
        note_once(name: &'a str, value: &'a str) -> String;
        set_outbox(since: Option<Timestamp>) -> ();
        count_imported(conversation: ConversationId) -> ();
        compact() -> ();
    }
}
