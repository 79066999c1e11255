//! The counting store: an embedded store under a chat of a cluster, which adds up what each call would cost on Cassandra.
//!
//! One of these stands before each server, over one embedded store and one directory. A price follows the code of `store::cql`: the number
//! of its statements by the arguments, with the caches of that store (conversations, buckets, heads, write states) modelled by what
//! this server has met before. Prices are of the calls that the load makes. Hints of inbox activity, which go in a batch that is
//! counted, are left out. `processes` holds the sums against the real store.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use wideroom::model::{
    Ban, Block, Change, ChangeId, Conversation, ConversationId, Cut, DirectIds, Emoji, Flags,
    IdempotencyKey, IgnoredSenders, InboxKey, InboxRow, Job, JobId, LiveKey, LiveMessage, LiveStop,
    LiveText, Message, MessageId, OrderKey, OutboxShard, Page, PageRequest, Participant, Pin,
    Profile, Reaction, Report, ReportId, ReportResolution, Restriction, Revision, TimeUuid,
    Timestamp, Unread, UserId,
};
use wideroom::store::cluster::ClusterStore;
use wideroom::store::embedded::Embedded;
use wideroom::store::live::{
    DueLiveQuery, LiveListing, LiveStore, LiveTextQuery, LiveWrite, WriterClaim,
};
use wideroom::store::{
    Appended, ChangedRow, ConversationsPiece, Created, DeadLetter, DirectoryChange, DueQuery,
    DueRemoval, EarlierSend, EntryPreview, ErasureStore, FlagsChange, HistoryRemoval, LateChange,
    LoggedRestriction, MarkerMove, MembershipChange, MembershipSnapshot, MembershipVersion,
    NewConversation, NewMessage, OldestBucket, OutboxPage, OutboxRead, Participation, PreviewQuery,
    ProfileChange, ReaderPosition, RemovalStore, RemovedHistory, Renaming, ReportQuery, Restricted,
    RestrictionChange, Revised, ScanStore, SearchSegmentKey, SearchStore, Store, StoreFuture,
    UnreadQuery,
};

use super::directory::Directory;

/// How far before a cursor streams of a cluster read.
const OVERLAP_MICROS: i64 = 10_000_000;
/// Partitions, and rows of one partition, that one statement reads by key.
const PARTITIONS: usize = 16;
const ROWS: usize = 20;
/// How long a head of a large conversation is cached.
const HEAD_FOR: Duration = Duration::from_secs(1);

/// Statements and rows of all servers.
#[derive(Debug, Default)]
pub struct Meter {
    statements: AtomicU64,
    rows: AtomicU64,
    /// Polls and beats, which servers send at the same rate whatever else they do.
    resting: AtomicU64,
    resting_rows: AtomicU64,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    pub statements: f64,
    pub rows: f64,
}

impl Meter {
    pub fn add(&self, statements: usize, rows: usize) {
        self.statements
            .fetch_add(statements as u64, Ordering::Relaxed);
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    pub fn add_resting(&self, statements: usize, rows: usize) {
        self.resting.fetch_add(statements as u64, Ordering::Relaxed);
        self.resting_rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    pub fn read_resting(&self) -> Cost {
        Cost {
            statements: self.resting.load(Ordering::Relaxed) as f64,
            rows: self.resting_rows.load(Ordering::Relaxed) as f64,
        }
    }

    pub fn read(&self) -> Cost {
        Cost {
            statements: self.statements.load(Ordering::Relaxed) as f64,
            rows: self.rows.load(Ordering::Relaxed) as f64,
        }
    }
}

impl Cost {
    pub fn since(self, before: Self) -> Self {
        self.less(before, 1.0)
    }

    /// Without so many times another cost.
    pub fn less(self, other: Self, times: f64) -> Self {
        Self {
            statements: self.statements - other.statements * times,
            rows: self.rows - other.rows * times,
        }
    }

    pub fn per(self, count: f64) -> Self {
        Self {
            statements: self.statements / count,
            rows: self.rows / count,
        }
    }
}

pub struct CountingStore {
    pub(super) inner: Arc<Embedded>,
    directory: Arc<Directory>,
    meter: Arc<Meter>,
    met: Mutex<Met>,
}

/// Contents of this server's caches.
#[derive(Default)]
struct Met {
    described: HashSet<ConversationId>,
    written: HashSet<ConversationId>,
    /// Conversations with a bucket that this server has read or written.
    buckets: HashSet<ConversationId>,
    heads: HashMap<ConversationId, Instant>,
}

impl CountingStore {
    pub fn new(inner: &Arc<Embedded>, directory: &Arc<Directory>, meter: &Arc<Meter>) -> Self {
        Self {
            inner: Arc::clone(inner),
            directory: Arc::clone(directory),
            meter: Arc::clone(meter),
            met: Mutex::default(),
        }
    }

    fn met<T>(&self, read: impl FnOnce(&mut Met) -> T) -> T {
        read(&mut self.met.lock().unwrap())
    }

    /// How many of these were not described to this server before.
    fn undescribed(&self, ids: &[ConversationId]) -> usize {
        self.met(|met| insert_all(&mut met.described, ids.iter().copied()))
    }

    /// Statements that find the buckets of messages and read them.
    fn by_id(&self, keys: &[(ConversationId, MessageId)]) -> usize {
        let conversations: HashSet<_> = keys.iter().map(|(id, _)| *id).collect();
        let count = conversations.len();
        count + self.met(|met| insert_all(&mut met.buckets, conversations.into_iter()))
    }

    fn appended(
        &self,
        id: ConversationId,
        messages: &[NewMessage],
        answer: &Appended,
    ) -> (usize, usize) {
        let first = self.met(|met| {
            met.buckets.insert(id);
            met.written.insert(id)
        });
        let keys = messages
            .iter()
            .filter(|new| new.message.client_key.is_some())
            .count();
        let entries = answer
            .audience
            .users
            .as_ref()
            .map_or(1, |users| users.len());
        // The batch and the check of the roster; the head and the roster before the first one.
        (
            2 + keys + if first { 2 } else { 0 },
            messages.len() + keys + entries + 2 + if first { 2 + entries } else { 0 },
        )
    }

    fn row_reads(&self, ids: &[ConversationId], found: &[Option<InboxRow>]) -> (usize, usize) {
        let pieces = ids.len().div_ceil(ROWS);
        let large: Vec<_> = ids
            .iter()
            .copied()
            .filter(|id| self.directory.is_large(*id))
            .collect();
        let heads = self.met(|met| {
            let now = Instant::now();
            let is_stale = |id: &&ConversationId| {
                let read_at = met.heads.get(*id);
                let is_fresh = read_at.is_some_and(|at| now.duration_since(*at) < HEAD_FOR);
                if !is_fresh {
                    met.heads.insert(**id, now);
                }
                !is_fresh
            };
            large.iter().filter(is_stale).count()
        });
        (2 * pieces + heads, some(found) + large.len() + heads)
    }
}

fn insert_all<T: Eq + Hash>(set: &mut HashSet<T>, items: impl Iterator<Item = T>) -> usize {
    items.map(|item| usize::from(set.insert(item))).sum()
}

fn some<T>(answers: &[Option<T>]) -> usize {
    answers.iter().flatten().count()
}

/// One index read for all conversations, and a range of each.
fn ranges(count: usize) -> usize {
    if count == 0 {
        0
    } else {
        count.div_ceil(PARTITIONS) + count
    }
}

impl fmt::Display for CountingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("counting")
    }
}

/// The trait, each method with its statements and rows by its arguments and its answer.
macro_rules! priced {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty => |$store:ident, $given:ident| $price:expr;)*) => {
        impl Store for CountingStore {
            fn set_outbox_keep(&self, keep: std::time::Duration) {
                self.inner.set_outbox_keep(keep);
            }

            fn overlap_micros(&self) -> i64 {
                OVERLAP_MICROS
            }

            fn cluster(&self) -> Option<Arc<dyn ClusterStore>> {
                Some(Arc::clone(&self.directory) as Arc<dyn ClusterStore>)
            }

            fn health(&self) -> std::result::Result<(), String> {
                self.inner.health()
            }

            /// As on a cluster: each conversation has its own newest id.
            fn newest_id(&self) -> StoreFuture<'_, Option<TimeUuid>> { Box::pin(async move {
                Ok(None)

}) }

            fn close(&self) -> StoreFuture<'_, ()> { Box::pin(async move {
                Ok(())

}) }

            $(fn $name<'a>(&'a self, $($argument: $type),*) -> StoreFuture<'a, $answer> {
                Box::pin(async move {
                    let answer = self.inner.$name($($argument),*).await?;
                    let ($store, $given) = (self, &answer);
                    let (statements, rows): (usize, usize) = $price;
                    self.meter.add(statements, rows);
                    Ok(answer)
                })
            })*
        }
    };
}

priced! {
    imported_at() -> Option<Timestamp> => |_store, _answer| (1, 1);
    restored_at() -> Option<Timestamp> => |_store, _answer| (1, 1);
    direct_ids() -> DirectIds => |_store, _answer| (1, 1);
    participations(viewer: &'a UserId, conversations: &'a [ConversationId]) -> Vec<Option<Participation>> => |store, answer| {
        let new = store.undescribed(conversations);
        (conversations.len().div_ceil(PARTITIONS) + new, some(answer) + new)
    };
    app_key_claim(key: &'a wideroom::model::AppKey) -> Option<wideroom::model::AppKeyClaim> => |_store, _answer| (1, 1);
    claim_app_key(key: &'a wideroom::model::AppKey, claim: wideroom::model::AppKeyClaim) -> wideroom::model::AppKeyClaim => |_store, _answer| (1, 1);
    direct_conversation(one: &'a UserId, other: &'a UserId) -> Option<ConversationId> => |_store, _answer| (1, 1);
    create_conversation(new: &'a NewConversation) -> Created => |_store, _answer| (3, 3 + 3 * new.participants.len());
    participants(conversation: ConversationId, page: &'a PageRequest<UserId>) -> Page<Participant> => |_store, answer| (1, answer.items.len());
    participants_with_prefix(conversation: ConversationId, prefix: &'a str, page: &'a PageRequest<UserId>) -> Page<Participant> => |_store, answer| (1, answer.items.len());
    bans(conversation: ConversationId, page: &'a PageRequest<UserId>) -> Page<Ban> => |_store, answer| (1, answer.items.len());
    bans_of(conversation: ConversationId, users: &'a [UserId]) -> Vec<Option<Ban>> => |_store, answer| (users.len(), some(answer));
    ban_count(conversation: ConversationId, limit: usize) -> usize => |_store, answer| (1, *answer);
    participants_by_name(keys: &'a [(ConversationId, UserId)]) -> Vec<Option<Participant>> => |_store, answer| (keys.len(), some(answer));
    participant_counts(conversations: &'a [ConversationId]) -> Vec<u64> => |_store, answer| (answer.len(), answer.len());
    membership_snapshot(conversation: ConversationId, users: &'a [UserId]) -> Option<MembershipSnapshot> => |_store, _answer| (2 + users.len().div_ceil(ROWS), 2 + users.len());
    membership_version(conversation: ConversationId) -> Option<MembershipVersion> => |store, _answer| {
        let new = store.undescribed(&[conversation]);
        (1 + new, 1 + new)
    };
    change_membership(conversation: ConversationId, change: &'a MembershipChange) -> Option<wideroom::store::Audience> => |_store, _answer| (7, 7 + 3 * change.transitions.len());
    rename_conversation(conversation: ConversationId, to: &'a Renaming) -> wideroom::store::Audience => |_store, _answer| (2, 4);
    set_slow_mode(conversation: ConversationId, seconds: u32, change: &'a Change) -> () => |_store, _answer| (2, 4);
    conversation_profiles(conversations: &'a [ConversationId]) -> Vec<wideroom::model::ConversationProfile> => |_store, _answer| (conversations.len().div_ceil(PARTITIONS), conversations.len());
    change_conversation_profile(conversation: ConversationId, to: &'a wideroom::store::ConversationProfileChange, change: &'a Change) -> wideroom::store::Audience => |_store, _answer| (2, 4);
    append_messages(conversation: ConversationId, messages: &'a [NewMessage]) -> Appended => |store, answer| store.appended(conversation, messages, answer);
    revise_message(conversation: ConversationId, revision: &'a Revision, change: &'a Change) -> Option<Revised> => |_store, _answer| (5, 6);
    react(conversation: ConversationId, emoji: &'a Emoji, is_on: bool, change: &'a Change) -> Option<Arc<Message>> => |_store, _answer| (4, 5);
    pin_message(conversation: ConversationId, is_on: bool, change: &'a Change) -> Option<Arc<Message>> => |_store, _answer| (4, 5);
    pins(conversation: ConversationId) -> Vec<(MessageId, Pin)> => |_store, _answer| (1, 1);
    reactions(viewer: &'a UserId, messages: &'a [(ConversationId, MessageId)]) -> Vec<Vec<Reaction>> => |_store, _answer| (messages.len(), messages.len());
    ended_reaction_count(user: &'a UserId, message: (ConversationId, MessageId), limit: usize) -> usize => |_store, answer| (1, *answer);
    changes(conversation: ConversationId, after: OrderKey, limit: usize) -> Vec<Change> => |_store, answer| (2, answer.len());
    log_late(conversation: ConversationId, changes: &'a [LateChange]) -> () => |_store, _answer| (2, 2 + changes.len());
    outbox_since() -> Option<Timestamp> => |_store, _answer| (1, 1);
    outbox(reads: &'a [OutboxRead], up_to: OrderKey, limit: usize) -> Vec<OutboxPage> => |_store, answer| (reads.len(), answer.iter().map(|page| page.rows.len()).sum());
    conversations(conversations: &'a [ConversationId]) -> Vec<Option<Arc<Conversation>>> => |_store, answer| (conversations.len(), some(answer));
    earlier_sends(conversation: ConversationId, keys: &'a [(UserId, IdempotencyKey)]) -> Vec<Option<EarlierSend>> => |_store, _answer| (keys.len(), keys.len());
    history(conversation: ConversationId, cut: &'a Cut<OrderKey>, page: &'a PageRequest<OrderKey>) -> Page<Arc<Message>> => |_store, answer| (2, 1 + answer.items.len());
    messages(keys: &'a [(ConversationId, MessageId)]) -> Vec<Option<Arc<Message>>> => |store, answer| (store.by_id(keys), some(answer));
    messages_at(positions: &'a [(ConversationId, OrderKey)]) -> Vec<Option<Arc<Message>>> => |_store, answer| (ranges(positions.len()), some(answer));
    last_messages(conversations: &'a [ConversationId]) -> Vec<Option<MessageId>> => |_store, answer| (answer.len(), answer.len());
    newest_events(conversations: &'a [ConversationId]) -> Vec<Option<TimeUuid>> => |_store, answer| (answer.len(), answer.len());
    message_counts(conversations: &'a [ConversationId]) -> Vec<u64> => |_store, answer| (2 * answer.len(), 2 * answer.len());
    message_counts_after(positions: &'a [(ConversationId, OrderKey)]) -> Vec<u64> => |_store, answer| (2 * answer.len(), 2 * answer.len());
    inbox(user: &'a UserId, page: &'a PageRequest<InboxKey>) -> Page<InboxRow> => |_store, answer| (2, 1 + answer.items.len());
    inbox_rows(user: &'a UserId, conversations: &'a [ConversationId]) -> Vec<Option<InboxRow>> => |store, answer| store.row_reads(conversations, answer);
    inbox_changes(user: &'a UserId, after: OrderKey, limit: usize) -> Option<Vec<ChangedRow>> => |_store, answer| (4, answer.as_ref().map_or(0, Vec::len));
    conversation_count(user: &'a UserId, limit: usize) -> usize => |_store, answer| (1, *answer);
    large_conversations(user: &'a UserId) -> Vec<ConversationId> => |_store, answer| (1 + answer.len().div_ceil(ROWS), 2 * answer.len());
    unread(user: &'a UserId, queries: &'a [UnreadQuery], cap: u32, ignored: &'a IgnoredSenders) -> Vec<Unread> => |_store, answer| {
        (ranges(queries.len()), answer.iter().map(|one| 1 + one.count as usize).sum())
    };
    mentions(user: &'a UserId, queries: &'a [UnreadQuery], cap: u32, ignored: &'a IgnoredSenders) -> Vec<Unread> => |_store, _answer| (queries.len() + 2, queries.len() + 2);
    previews(user: &'a UserId, queries: &'a [PreviewQuery], cap: u32, ignored: &'a IgnoredSenders) -> Vec<EntryPreview> => |_store, answer| (ranges(queries.len()), 2 * answer.len());
    move_read_marker(user: &'a UserId, to: &'a MarkerMove) -> () => |_store, _answer| (1, 3);
    mark_delivered(user: &'a UserId, conversation: ConversationId, up_to: OrderKey) -> () => |_store, _answer| (1, 1);
    receivers(conversation: ConversationId, message: MessageId, sender: &'a UserId, page: &'a PageRequest<UserId>) -> Page<Participant> => |_store, answer| (1, answer.items.len());
    notified_of_all(conversation: ConversationId, after: Option<&'a UserId>, limit: usize) -> Vec<UserId> => |_store, answer| (1, answer.len());
    set_flags(user: &'a UserId, to: &'a FlagsChange) -> Option<Flags> => |_store, _answer| (3, 4);
    profiles(users: &'a [UserId]) -> Vec<Option<Profile>> => |_store, answer| (users.len().div_ceil(PARTITIONS), some(answer));
    change_profile(user: &'a UserId, to: &'a ProfileChange) -> () => |_store, _answer| (1, 1);
    mark_seen(user: &'a UserId, at: Timestamp) -> () => |_store, _answer| (1, 1);
    restrict(restricted: &'a Restricted, change: &'a RestrictionChange) -> Restriction => |_store, _answer| (2, 2);
    restrictions_of(users: &'a [UserId]) -> Vec<Restriction> => |_store, _answer| (users.len(), users.len());
    restrictions() -> Vec<(Restricted, Restriction)> => |_store, answer| (16, answer.len());
    restriction_log(since: Timestamp) -> Vec<LoggedRestriction> => |_store, answer| (1, answer.len());
    blocks(user: &'a UserId) -> Vec<Block> => |_store, answer| (1, answer.len());
    reader_positions(reader: &'a str) -> Vec<Option<ReaderPosition>> => |_store, _answer| (1, 1);
    swap_reader_position(reader: &'a str, shard: OutboxShard, seen: Option<&'a ReaderPosition>, to: &'a ReaderPosition) -> bool => |_store, _answer| (1, 3);
    put_dead_letter(reader: &'a str, letter: &'a DeadLetter) -> () => |_store, _answer| (1, 3);
    dead_letters(reader: &'a str, limit: usize) -> Vec<DeadLetter> => |_store, _answer| (1, 1);
    delete_dead_letter(reader: &'a str, letter: &'a DeadLetter) -> () => |_store, _answer| (1, 3);
    set_block(user: &'a UserId, block: &'a Block) -> () => |_store, _answer| (1, 3);
    add_report(report: &'a Report, logged_as: TimeUuid) -> () => |_store, _answer| (1, 2);
    reports(query: &'a ReportQuery) -> Vec<Report> => |_store, answer| (1, answer.len());
    reports_by_id(ids: &'a [ReportId]) -> Vec<Option<Report>> => |_store, answer| (ids.len(), some(answer));
    report_count(after: OrderKey, limit: usize) -> usize => |_store, answer| (1, *answer);
    resolve_report(report: ReportId, resolution: Option<&'a ReportResolution>, at: Timestamp) -> () => |_store, _answer| (1, 1);
    replace_report(report: &'a Report) -> () => |_store, _answer| (2, 2);
    delete_reports(reports: &'a [ReportId]) -> () => |_store, _answer| (reports.len(), reports.len());
}

/// Whether the conversation is large, for the directory.
pub async fn record(directory: &Directory, inner: &Embedded, conversation: &Conversation) {
    let page = PageRequest::first(100);
    let found = inner.participants(conversation.id, &page).await.unwrap();
    let users = found.items.into_iter().map(|one| one.user);
    directory.put_conversation(conversation.id, users.collect(), conversation.is_large);
}

/// Traits whose methods are not priced: no bench erases a user, or removes a history.
macro_rules! unpriced {
    ($(impl $trait:ident {
        $({ $own:item })?
        $($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*
    })*) => {
        $(impl $trait for CountingStore {
            $($own)?

            $(fn $name<'a>(&'a self, $($argument: $type),*) -> StoreFuture<'a, $answer> {
                self.inner.$name($($argument),*)
            })*
        })*
    };
}

unpriced! {
    impl ErasureStore {
        conversations_of(user: &'a UserId, after: Option<ConversationId>, limit: usize) -> ConversationsPiece;
        erase_messages(conversation: ConversationId, user: &'a UserId, messages: &'a [MessageId], change: ChangeId) -> ();
        erase_participant(conversation: ConversationId, user: &'a UserId, change: ChangeId) -> ();
        erase_user(user: &'a UserId, at: Timestamp) -> ();
        add_user_erased(user: &'a UserId, event: TimeUuid, logged_as: TimeUuid) -> ();
        jobs(ids: &'a [JobId]) -> Vec<Option<Job>>;
        running_jobs(limit: usize) -> Vec<Job>;
        swap_job(seen: Option<&'a Job>, to: &'a Job) -> bool;
    }

    impl LiveStore {
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

    impl RemovalStore {
        {
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

    impl ScanStore {
        all_users(after: Option<&'a UserId>, limit: usize) -> Vec<(UserId, Profile)>;
        all_conversations(after: Option<ConversationId>, limit: usize) -> Vec<(Conversation, Option<Timestamp>)>;
    }

    impl SearchStore {
        search_directories(conversations: &'a [ConversationId]) -> Vec<Option<Vec<u8>>>;
        swap_search_directory(conversation: ConversationId, seen: Option<&'a [u8]>, to: &'a [u8]) -> bool;
        add_search_segment(segment: SearchSegmentKey, blocks: &'a [Vec<u8>], change: &'a DirectoryChange) -> bool;
        search_blocks(blocks: &'a [(SearchSegmentKey, u32)]) -> Vec<Option<Vec<u8>>>;
        delete_search_segments(segments: &'a [SearchSegmentKey]) -> ();
    }
}
