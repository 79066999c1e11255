//! Decorator of a store: measures the duration of each operation, and counts its failures.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::cluster::ClusterStore;
use super::{
    Appended, Audience, ChangedRow, ConversationProfileChange, ConversationsPiece, Created,
    DeadLetter, DirectoryChange, DueQuery, DueRemoval, EarlierSend, EntryPreview, ErasureStore,
    Error, FlagsChange, FormVersion, HistoryRemoval, ImportPositions, ImportRow, Imported,
    LateChange, LoggedRestriction, MarkerMove, MembershipChange, MembershipSnapshot,
    MembershipVersion, NewConversation, NewMessage, OldestBucket, OutboxPage, OutboxRead,
    Participation, PreviewQuery, ProfileChange, ReaderPosition, RemovalStore, RemovedHistory,
    Renaming, ReportQuery, Restricted, RestrictionChange, Result, Revised, ScanStore,
    SearchSegmentKey, SearchStore, Store, StoreAdmin, StoreFuture, StoredMessage, UnreadQuery,
    Verified, VerifyPosition,
};
use crate::metrics::{self, Histogram, HistogramVec, IntCounterVec, LATENCIES, Metrics};
use crate::model::{
    AppKey, AppKeyClaim, Change, ChangeId, Conversation, ConversationId, ConversationProfile, Cut,
    DirectIds, Emoji, Flags, IdempotencyKey, InboxKey, InboxRow, Job, JobId, Membership, Message,
    MessageId, OrderKey, OutboxShard, Page, PageRequest, Participant, Pin, Profile, Reaction,
    Report, ReportId, ReportResolution, Restriction, Revision, TimeUuid, Timestamp, Unread, UserId,
};
use crate::model::{Ban, Block, IgnoredSenders};

/// A store with metrics. Its answers are those of the store in it.
pub struct InstrumentedStore {
    store: Arc<dyn StoreAdmin>,
    live: LiveOperations,
    removal: RemovalOperations,
    erasure: ErasureOperations,
    scan: ScanOperations,
    search: SearchOperations,
    admin: AdminOperations,
    seconds: HistogramVec,
    failures: IntCounterVec,
}

impl InstrumentedStore {
    pub fn new(store: Arc<dyn StoreAdmin>) -> Self {
        let seconds = metrics::histograms(
            "wideroom_store_operation_seconds",
            "Duration of store operations, by operation.",
            &["operation"],
            LATENCIES,
        );
        let failures = metrics::counters(
            "wideroom_store_failures_total",
            "Failed store operations, by operation and reason.",
            &["operation", "why"],
        );
        Self {
            store,
            live: LiveOperations::new(&seconds),
            removal: RemovalOperations::new(&seconds),
            erasure: ErasureOperations::new(&seconds),
            scan: ScanOperations::new(&seconds),
            search: SearchOperations::new(&seconds),
            admin: AdminOperations::new(&seconds),
            seconds,
            failures,
        }
    }

    pub fn register(&self, metrics: &Metrics) {
        metrics.add(self.seconds.clone());
        metrics.add(self.failures.clone());
    }

    async fn measure<T>(
        &self,
        name: &str,
        seconds: &Histogram,
        answer: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let began = Instant::now();
        let answer = answer.await;
        let took = began.elapsed();
        seconds.observe(took.as_secs_f64());
        metrics::add_store_time(took);
        if let Err(error) = &answer {
            let why = match error {
                Error::Unavailable(_) => "unavailable",
                Error::OutcomeUnknown(_) => "outcome_unknown",
                Error::Corrupt { .. } => "corrupt",
            };
            self.failures.with_label_values(&[name, why]).inc();
        }
        answer
    }
}

impl fmt::Display for InstrumentedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

/// A histogram per measured method, and the implementation of a trait that observes each.
macro_rules! instrumented {
    ($trait:ident by $operations:ident in $field:ident {
        plain { $($plain:ident() -> $plain_answer:ty;)* }
        settings { $($setting:ident($value:ident: $value_type:ty);)* }
        measured { $($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)* }
    }) => {
        struct $operations { $($name: Histogram),* }

        impl $operations {
            fn new(seconds: &HistogramVec) -> Self {
                Self { $($name: seconds.with_label_values(&[stringify!($name)])),* }
            }
        }

        #[deny(clippy::missing_trait_methods)]
        impl $trait for InstrumentedStore {
            $(fn $plain(&self) -> $plain_answer {
                self.store.$plain()
            })*

            $(fn $setting(&self, $value: $value_type) {
                self.store.$setting($value);
            })*

            $(fn $name<'a>(&'a self, $($argument: $type),*) -> StoreFuture<'a, $answer> {
                let answer = self.store.$name($($argument),*);
                Box::pin(self.measure(stringify!($name), &self.$field.$name, answer))
            })*
        }
    };
}

instrumented! {
    Store by LiveOperations in live {
        plain {
            overlap_micros() -> i64;
            cluster() -> Option<Arc<dyn ClusterStore>>;
            health() -> Result<(), String>;
        }
        settings {
            set_outbox_keep(keep: Duration);
        }
        measured {
            newest_id() -> Option<TimeUuid>;
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
            close() -> ();
        }
    }
}

instrumented! {
    RemovalStore by RemovalOperations in removal {
        plain {}
        settings {
            set_retention(seconds: Option<u32>);
        }
        measured {
            scheduled_retention() -> Option<u32>;
            note_scheduled_retention(seconds: Option<u32>) -> ();
            schedule_removal(due: DueRemoval) -> ();
            due_removals(query: &'a DueQuery) -> Vec<DueRemoval>;
            end_removal(due: DueRemoval) -> ();
            oldest_bucket(conversation: ConversationId) -> Option<OldestBucket>;
            remove_history(conversation: ConversationId, removal: &'a HistoryRemoval) -> RemovedHistory;
            log_expiry(conversation: ConversationId, event: TimeUuid) -> ();
        }
    }
}

instrumented! {
    ErasureStore by ErasureOperations in erasure {
        plain {}
        settings {}
        measured {
            conversations_of(user: &'a UserId, after: Option<ConversationId>, limit: usize) -> ConversationsPiece;
            erase_messages(conversation: ConversationId, user: &'a UserId, messages: &'a [MessageId], change: ChangeId) -> ();
            erase_participant(conversation: ConversationId, user: &'a UserId, change: ChangeId) -> ();
            erase_user(user: &'a UserId, at: Timestamp) -> ();
            add_user_erased(user: &'a UserId, event: TimeUuid, logged_as: TimeUuid) -> ();
            jobs(ids: &'a [JobId]) -> Vec<Option<Job>>;
            running_jobs(limit: usize) -> Vec<Job>;
            swap_job(seen: Option<&'a Job>, to: &'a Job) -> bool;
        }
    }
}

instrumented! {
    ScanStore by ScanOperations in scan {
        plain {}
        settings {}
        measured {
            all_users(after: Option<&'a UserId>, limit: usize) -> Vec<(UserId, Profile)>;
            all_conversations(after: Option<ConversationId>, limit: usize) -> Vec<(Conversation, Option<Timestamp>)>;
        }
    }
}

instrumented! {
    SearchStore by SearchOperations in search {
        plain {}
        settings {}
        measured {
            search_directories(conversations: &'a [ConversationId]) -> Vec<Option<Vec<u8>>>;
            swap_search_directory(conversation: ConversationId, seen: Option<&'a [u8]>, to: &'a [u8]) -> bool;
            add_search_segment(segment: SearchSegmentKey, blocks: &'a [Vec<u8>], change: &'a DirectoryChange) -> bool;
            search_blocks(blocks: &'a [(SearchSegmentKey, u32)]) -> Vec<Option<Vec<u8>>>;
            delete_search_segments(segments: &'a [SearchSegmentKey]) -> ();
        }
    }
}

instrumented! {
    StoreAdmin by AdminOperations in admin {
        plain {}
        settings {}
        measured {
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
}
