//! Storage: one trait in the words of the model, an intent per method. Every engine passes the same
//! contract suite (tests/store).
//!
//! Each promise in these comments is a case of that suite. A store knows no rule of chat: the chat
//! checks access before it calls. [`Store`] is the live part, [`StoreAdmin`] the operator's.
//!
//! # The data model
//!
//! One table answers one question. The embedded store keeps each as a range of sorted keys, the CQL store as a table.
//!
//! | table | key | answers |
//! |---|---|---|
//! | `conversations` | conversation | kind, name and creator of a conversation |
//! | `profiles_by_conversation` | conversation | description, picture and the app's data of a conversation |
//! | `conversations_by_app_key` | app key | the conversation that an app knows under a key of its own |
//! | `direct_by_pair` | the two names | the direct conversation of two users |
//! | `participants_by_conversation` | conversation, user | memberships, with bans, silences and bounds of the history; read and delivered markers; settings of the conversation |
//! | `messages_by_conversation` | conversation, message, newest first | a page of history, from any position, in either direction |
//! | `inbox_by_user` | user, conversation | read marker, last own send, muted, pinned, archived |
//! | `inbox_activity_by_user` | user, activity, conversation, newest first | a page of the inbox |
//! | `busy_conversations_by_user` | user, conversation | conversations ordered by their head at read time, so that a send moves no row |
//! | `large_conversations_by_user` | user, conversation | conversations merged into the inbox at read time |
//! | `changes_by_conversation` | conversation, change | edits, deletions, reactions, membership and names since a cursor (35 days) |
//! | `changes_by_user` | user, change | changes of the inbox since a cursor (35 days) |
//! | `sends_by_key` | conversation, sender, key | whether a send is a retry (24 hours) |
//! | `reactions_by_message` | conversation, message, emoji, user | reactions. A message says whether it has any, so that most pages read none |
//! | `ended_reactions_by_message` | conversation, message, user, emoji | reactions that were taken back, so that no import brings them back (35 days) |
//! | `notify_all_by_conversation` | conversation, user | users who chose the notification level ALL: an index of flags |
//! | `pinned_by_conversation` | conversation | pinned messages, in one value. A message says whether it is pinned |
//! | `pins_by_conversation` | conversation, message | on a cluster: the last change of each pin (ended ones 35 days) |
//! | `mentions_by_entry` | user, conversation, message, newest first | messages that mention a user (400 days) |
//! | `everyone_by_conversation` | conversation, message, newest first | messages that mention everyone (400 days) |
//! | `users` | user | profile and last-seen time |
//! | `restrictions` | user | suspension, and the moment before which tokens are refused |
//! | `bans_by_conversation` | conversation, user | users who are kept out of a conversation: by whom, until when and why |
//! | `blocks_by_user` | user, blocked user | users whom a user blocks, and ended blocks (35 days) |
//! | `reports_by_week` | week, report, newest first | reports of users and messages, and how services resolved them (400 days) |
//! | `expiries_by_hour` | hour, shard, conversation | which conversations have messages to remove from the disk |
//! | `live_texts` | conversation, live message, writer, end, position | the text of a message while it is written, and its writers (a day) |
//! | `live_messages_by_conversation` | conversation, minute, live message, newest first | which messages are being written (10 minutes) |
//! | `due_by_minute` | minute, shard, live message | which live messages a server has to look after (2 days) |
//! | `search_directories` | conversation | which segments the search index of a conversation has, and which messages changed since |
//! | `search_blocks_by_segment` | conversation, segment, block | which messages of a segment hold a word |
//! | `jobs` | shard, job | erasures of users: how far each is, and which server works on it (400 days once ended) |
//! | `outbox_by_shard` | shard, write | which events services have yet to receive (7 days), if the deployment has an outbox |
//! | `outbox_positions` | reader, shard | up to where a webhook was delivered, and which server delivers it |
//! | `outbox_dead` | reader, event | which events the receiver of a webhook refused (30 days) |
//!
//! A store that several servers share has the directory and the mailboxes of [`cluster`] besides.
//!
//! - Order is that of timeuuids: the time, then the other eight bytes as signed ones, as in Cassandra.
//! - Unread counts are computed from the read marker. No counter exists that could drift.
//! - A conversation with a message within an hour of the last one is *busy*, until it was quiet for two hours. Its entries do not
//!   move with each send, which would leave tombstones at the top of every inbox.
//! - Above 32 participants a conversation is *large*, for good, and merged at read time.
//! - An inbox row holds no preview of the last message. An edit or a deletion would have to find each of up to 32 copies, and copies of a
//!   long body exceed the bound of a batch. A page reads the messages by key: on a cluster 6 statements, and 1 to 2 for each of its entries.
//! - An agent ([`UserId::is_agent`]) has no inbox: no membership, send, mention or mark writes a row under its name, so that no
//!   partition grows with its conversations. Rows that earlier versions wrote under such a name are ignored.

mod admin;
mod background;
pub mod cluster;
mod conversation;
pub mod cql;
pub mod embedded;
mod error;
mod forms;
mod handed_on;
mod inbox;
mod intercepted;
pub mod live;
mod membership;
mod message;
mod outbox;
mod profile;
mod read_permit;
mod report;
mod restriction;
mod rules;
mod unread_list;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join;

pub use self::admin::{
    DAMAGED_MESSAGE, Finding, ImportPositions, ImportRow, Imported, NOTE_DIRECT_SECRET,
    NOTE_EARLIER_STATE, NOTE_IMPORTED_AT, NOTE_RESTORED_AT, ScanStore, StoreAdmin, StoredMessage,
    Verified, VerifyPosition, activity_to_give, note_restored,
};
use self::admin::{admin_operations, scan_operations};
use self::background::erasure::erasure_operations;
pub use self::background::erasure::{ConversationsPiece, ErasureStore};
use self::background::removal::removal_operations;
pub use self::background::removal::{
    DueQuery, DueRemoval, HistoryRemoval, OldestBucket, RESCHEDULE, RemovalStore, RemovedHistory,
};
use self::background::search::search_operations;
pub use self::background::search::{DirectoryChange, SearchSegmentKey, SearchStore};
use self::cluster::ClusterStore;
pub use self::conversation::{Created, NewConversation, Participation};
pub use self::error::{Cause, Error, Result, StoreFuture};
pub use self::forms::FormVersion;
use self::inbox::UnreadReader;
pub use self::inbox::{
    Archive, CHANGE_LIFETIME_MICROS, ChangedRow, EntryPreview, FlagsChange, MarkerMove,
    PreviewQuery, UnreadQuery,
};
use self::intercepted::store_trait;
pub use self::intercepted::{
    InstrumentedStore, InterceptedStore, OperationMetrics, StoreInterceptor, StoreOperation,
};
pub use self::live::LiveStore;
use self::live::live_operations;
pub use self::membership::{
    BanChange, LastMembershipChange, MembershipChange, MembershipSnapshot, MembershipTransition,
    MembershipVersion, Renaming, TransitionKind,
};
pub use self::message::{Appended, Audience, EarlierSend, NewMessage, Revised};
pub use self::outbox::{
    DEAD_LETTER_KEPT_MICROS, DeadLetter, HELD_POSITIONS_MAX, HeldPosition, LateChange,
    NOTE_OUTBOX_SINCE, OUTBOX_KEEP, OUTBOX_KEEP_MAX, OUTBOX_SWITCH_AGE_MAX, OutboxPage, OutboxRead,
    ReaderLease, ReaderPosition,
};
pub use self::profile::{ConversationProfileChange, ProfileChange};
pub use self::read_permit::ReadShares;
pub use self::report::ReportQuery;
pub use self::restriction::{LoggedRestriction, Restricted, RestrictionChange};
pub use self::rules::expiry::{
    DUE_KEPT_HOURS, REMOVAL_DELAY_MICROS, hour_of, removal_hour, widest_micros,
};
pub use self::rules::pair::of_stored as pair_of_participants;
use crate::model::{
    AppKey, AppKeyClaim, Ban, Block, Change, Conversation, ConversationId, ConversationProfile,
    Cut, DirectIds, Emoji, Flags, IdempotencyKey, IgnoredSenders, InboxKey, InboxRow, Message,
    MessageId, OrderKey, OutboxShard, Page, PageRequest, Participant, Pin, Profile, Reaction,
    Report, ReportId, ReportResolution, Restriction, Revision, TimeUuid, Timestamp, Unread, UserId,
};

store_trait! {
    implement store_operations;

    /// A store of conversations, messages and inboxes.
    ///
    /// Reads for a loader take a slice of keys and answer in its order; reads for a list take a
    /// [`PageRequest`]. A write is durable and whole once it returns `Ok`; every read that begins after
    /// that sees it.
    ///
    /// An agent has no inbox. Its lists are empty, its marks and flags change nothing, and [`Store::inbox_rows`] makes each row of it
    /// from the head of the conversation ([`InboxRow::of_agent`]).
    ///
    /// Roles are effective ones: in a group without an OWNER, the oldest ADMIN has that role, else the
    /// oldest participant ([`crate::model::Membership::succession`]).
    pub trait Store: ErasureStore + LiveStore + RemovalStore + ScanStore + SearchStore + Display + Send + Sync + 'static {
        /// The time of the newest import ([`StoreAdmin::import`]): cursors from before are expired.
        fn imported_at(&self) -> Option<Timestamp>;

        /// The time when the store was last restored from a copy of an earlier state. Cursors of streams from before are expired:
        /// they may stand after messages that the copy does not have.
        fn restored_at(&self) -> Option<Timestamp>;

        /// The generator of ids for direct conversations. Its secret is created at first use
        /// (compare-and-set), so all servers of a store have the same.
        fn direct_ids(&self) -> DirectIds;

        /// Conversations with the viewer's membership, one that has ended included. `None` for a
        /// conversation that does not exist or that the viewer was never in.
        fn participations(&self, viewer: &'a UserId, conversations: &'a [ConversationId]) -> Vec<Option<Participation>>;

        /// The direct conversation of two users, whatever its id.
        fn direct_conversation(&self, one: &'a UserId, other: &'a UserId) -> Option<ConversationId>;

        /// The claim of an app key.
        fn app_key_claim(&self, key: &'a AppKey) -> Option<AppKeyClaim>;

        /// Claims an app key, for good, and returns the claim that has it: of several claims one succeeds.
        fn claim_app_key(&self, key: &'a AppKey, claim: AppKeyClaim) -> AppKeyClaim;

        /// Creates a conversation with all its participants, their inbox entries and, for a direct one,
        /// its pair: all or nothing. If the id or the pair is taken, nothing changes and the answer is
        /// the existing conversation. One of several concurrent creations succeeds.
        fn create_conversation(&self, new: &'a NewConversation) -> Created;

        /// The present participants of a conversation, by username bytes.
        fn participants(&self, conversation: ConversationId, page: &'a PageRequest<UserId>) -> Page<Participant>;

        /// The same, of those whose usernames begin with a prefix.
        fn participants_with_prefix(&self, conversation: ConversationId, prefix: &'a str, page: &'a PageRequest<UserId>) -> Page<Participant>;

        /// Participants by name, those who have left included. `None` for a user who was never one.
        fn participants_by_name(&self, keys: &'a [(ConversationId, UserId)]) -> Vec<Option<Participant>>;

        fn participant_counts(&self, conversations: &'a [ConversationId]) -> Vec<u64>;

        /// The state on which a change of these memberships is decided, read at one moment. `None` for
        /// a conversation that does not exist.
        fn membership_snapshot(&self, conversation: ConversationId, users: &'a [UserId]) -> Option<MembershipSnapshot>;

        /// Changes the membership of a conversation: with the SYSTEM message, if there is one, persisted as
        /// a send is, the changes in the log, the bans, the settings of the history, and one entry in the `changes_by_user`
        /// of each user who joins, leaves or clears the history, under the version: all or nothing. A change without a message shows in no
        /// inbox, and its audience is nobody. If it raises the floor, it shows in all of them, and the audience is all.
        ///
        /// A user who joins, or joins again, has an entry whose marker is at least
        /// [`crate::model::ReadMarker::at_joining`]: nothing is unread. Flags and receipts stay. A user
        /// who leaves has no entry. The 33rd participant makes the conversation large, for good.
        ///
        /// The ids lie after every id of the conversation. A compare-and-set: `None`, and nothing is
        /// written, if the membership has changed since it was `seen`. Idempotent. The audience is the
        /// participants after the change, also if the conversation becomes large.
        fn change_membership(&self, conversation: ConversationId, change: &'a MembershipChange) -> Option<Audience>;

        /// The bans of a conversation that hold now, by username bytes. A change of a membership sets and
        /// lifts them.
        fn bans(&self, conversation: ConversationId, page: &'a PageRequest<UserId>) -> Page<Ban>;

        /// The bans of some users that hold now.
        fn bans_of(&self, conversation: ConversationId, users: &'a [UserId]) -> Vec<Option<Ban>>;

        /// The number of bans that hold now, counted up to `limit`.
        fn ban_count(&self, conversation: ConversationId, limit: usize) -> usize;

        /// Renames a conversation, with the SYSTEM message, persisted as a send is, and the change in
        /// the log: all or nothing. The ids lie after every id of the conversation. Idempotent. A
        /// missing conversation is `Corrupt`.
        fn rename_conversation(&self, conversation: ConversationId, to: &'a Renaming) -> Audience;

        /// Sets the slow mode of a conversation, with the change in the log: all or nothing. No message
        /// announces it, and no inbox shows it. Of two changes the later one stays. Idempotent. A missing
        /// conversation is `Corrupt`.
        fn set_slow_mode(&self, conversation: ConversationId, seconds: u32, change: &'a Change) -> ();

        /// The profiles of conversations; empty ones where nothing is set.
        fn conversation_profiles(&self, conversations: &'a [ConversationId]) -> Vec<ConversationProfile>;

        /// Changes some fields of the profile of a conversation and leaves the others, with the change in the
        /// log, and in the `changes_by_user` of the participants of a small conversation: all or nothing. No
        /// message announces it. Of two changes of one field the later one stays. Idempotent. A missing
        /// conversation is `Corrupt`.
        fn change_conversation_profile(&self, conversation: ConversationId, to: &'a ConversationProfileChange, change: &'a Change) -> Audience;

        /// Persists messages of one conversation, the activity of every inbox concerned, the senders'
        /// `sent_up_to` and the idempotency keys: all or nothing, but for messages whose key is taken.
        /// The ids ascend and lie after every id of the conversation; no two messages share a key. One
        /// task at a time calls this for a conversation. A missing conversation is `Corrupt`.
        ///
        /// Idempotent: a repetition settles a write of unknown outcome, and finishes one that ended
        /// after its key was claimed.
        fn append_messages(&self, conversation: ConversationId, messages: &'a [NewMessage]) -> Appended;

        /// Edits or deletes a message, and logs the change for streams that resume, and in
        /// `changes_by_user` if an inbox shows the message or the change is one of its mentions: all or
        /// nothing. The change's id lies after
        /// every id of the conversation; one task at a time calls this and `append_messages` for it.
        /// `None` for a missing message. A deleted one stays as it is, and nothing is logged.
        fn revise_message(&self, conversation: ConversationId, revision: &'a Revision, change: &'a Change) -> Option<Revised>;

        /// Sets the reaction of the change's user to its message on or off, and logs the change: all or
        /// nothing. No inbox shows a reaction, though subscribers may receive the entries of a large
        /// conversation again, as with every change logged there. From then on the message says that it
        /// has reactions. Ids and concurrency are those of the two methods above.
        ///
        /// The answer is the message after the change; `None` for a missing one. A deleted message
        /// stays as it is, and nothing is logged. Idempotent.
        fn react(&self, conversation: ConversationId, emoji: &'a Emoji, is_on: bool, change: &'a Change) -> Option<Arc<Message>>;

        /// Sets the pin of the change's message on or off, in the name of the change's user, and logs the
        /// change: all or nothing. No inbox shows it, as with a reaction. Ids and concurrency are those of
        /// the methods above. A deletion unpins, and is logged as nothing else.
        ///
        /// The answer is the message after the change; `None` for a missing one. A deleted message stays
        /// as it is, and nothing is logged. Idempotent.
        fn pin_message(&self, conversation: ConversationId, is_on: bool, change: &'a Change) -> Option<Arc<Message>>;

        /// The last pins of a conversation's messages, in no order: those that are on, and on a cluster
        /// some that ended lately. At most a little over [`Pin::KEPT_MAX`]. Pins that ended cost nothing: one row has the list.
        /// A pin is valid if its message has it too ([`Message::current_pin`]).
        fn pins(&self, conversation: ConversationId) -> Vec<(MessageId, Pin)>;

        /// The reactions to each message by emoji bytes. Some that every user took back may be among them, with
        /// the count 0. At most [`Reaction::COUNT_MAX`] users of each are counted and [`Reaction::ROWS_MAX`] rows read;
        /// beyond either the count is capped.
        fn reactions(&self, viewer: &'a UserId, messages: &'a [(ConversationId, MessageId)]) -> Vec<Vec<Reaction>>;

        /// How many kinds of reactions to a message a user took back in the last 35 days, at most `limit`. Those that are on again may
        /// count.
        fn ended_reaction_count(&self, user: &'a UserId, message: (ConversationId, MessageId), limit: usize) -> usize;

        /// The changes of a conversation after a position, the oldest first, at most `limit`. The log
        /// holds 35 days.
        fn changes(&self, conversation: ConversationId, after: OrderKey, limit: usize) -> Vec<Change>;

        /// Logs changes again that stand under older ids, so that streams that passed those ids find
        /// them: all or nothing, as `revise_message` logs them. A message that became visible late is
        /// logged as [`crate::model::ChangeKind::MessageLate`]. In the outbox the events keep their own
        /// ids, in a row under the fresh ones.
        ///
        /// On a store with a single server nothing is late.
        fn log_late(&self, conversation: ConversationId, changes: &'a [LateChange]) -> ();

        /// The time from which the store has an outbox: every write from then on that persists events
        /// persists an [`crate::model::OutboxRow`] with them, all or nothing. `None` while the outbox is
        /// off. On a shared store, a server must call this every few seconds: its writes follow the last
        /// answer.
        fn outbox_since(&self) -> Option<Timestamp>;

        /// The rows of these shards after each position and up to `up_to`, a page for each: about
        /// `limit` rows of a shard at once. A row may come twice. Rows are kept for 7 days.
        fn outbox(&self, reads: &'a [OutboxRead], up_to: OrderKey, limit: usize) -> Vec<OutboxPage>;

        /// The positions of a named reader of the outbox, one for each shard. `None` for a shard that it
        /// has never read. A name has 1 to 64 ASCII letters, digits, `-` and `_`.
        fn reader_positions(&self, reader: &'a str) -> Vec<Option<ReaderPosition>>;

        /// Sets the position of a reader in one shard. A compare-and-set: false, and nothing is written,
        /// if it is not the one that was `seen`. After an error either may be true.
        fn swap_reader_position(&self, reader: &'a str, shard: OutboxShard, seen: Option<&'a ReaderPosition>, to: &'a ReaderPosition) -> bool;

        /// Stores an event that a reader refused, for 30 days. A letter of the same event and part is
        /// replaced.
        fn put_dead_letter(&self, reader: &'a str, letter: &'a DeadLetter) -> ();

        /// The dead letters of a reader, those with the oldest events first, at most `limit`.
        fn dead_letters(&self, reader: &'a str, limit: usize) -> Vec<DeadLetter>;

        /// Deletes a dead letter as it was read.
        fn delete_dead_letter(&self, reader: &'a str, letter: &'a DeadLetter) -> ();

        /// Conversations, whoever takes part in them. `None` for one that does not exist.
        fn conversations(&self, conversations: &'a [ConversationId]) -> Vec<Option<Arc<Conversation>>>;

        /// Earlier sends of the last 24 hours by their keys.
        fn earlier_sends(&self, conversation: ConversationId, keys: &'a [(UserId, IdempotencyKey)]) -> Vec<Option<EarlierSend>>;

        /// A page of messages, the newest first: `after` is older. The cut is in the order of ids, from
        /// its oldest to its newest.
        fn history(&self, conversation: ConversationId, cut: &'a Cut<OrderKey>, page: &'a PageRequest<OrderKey>) -> Page<Arc<Message>>;

        fn messages(&self, keys: &'a [(ConversationId, MessageId)]) -> Vec<Option<Arc<Message>>>;

        /// The newest message at or before each position, deleted ones included.
        fn messages_at(&self, positions: &'a [(ConversationId, OrderKey)]) -> Vec<Option<Arc<Message>>>;

        /// The newest message of each conversation.
        fn last_messages(&self, conversations: &'a [ConversationId]) -> Vec<Option<MessageId>>;

        /// The newest message or change of each conversation: the position of its event stream.
        fn newest_events(&self, conversations: &'a [ConversationId]) -> Vec<Option<TimeUuid>>;

        /// The exact number of messages of each conversation, deleted ones included. Its cost does not
        /// grow with history.
        fn message_counts(&self, conversations: &'a [ConversationId]) -> Vec<u64>;

        /// The same of the messages after a position.
        fn message_counts_after(&self, positions: &'a [(ConversationId, OrderKey)]) -> Vec<u64>;

        /// A page of a user's entries, the last active first; archived ones included.
        ///
        /// It shows the large conversations in which the user acted ([`InboxRow::is_answered`]), and the
        /// user's others up to [`crate::model::Conversation::LARGE_MERGED_MAX`] in all: the greatest
        /// read markers first, then the greatest ids.
        fn inbox(&self, user: &'a UserId, page: &'a PageRequest<InboxKey>) -> Page<InboxRow>;

        /// A user's rows for some conversations. `None` where the user is no participant now.
        fn inbox_rows(&self, user: &'a UserId, conversations: &'a [ConversationId]) -> Vec<Option<InboxRow>>;

        /// A user's rows that changed after a position, by their newest change, ascending;
        /// conversations that the user has left since included. `None` if there are more than `limit`.
        fn inbox_changes(&self, user: &'a UserId, after: OrderKey, limit: usize) -> Option<Vec<ChangedRow>>;

        /// The number of conversations that the user is in now, counted up to `limit`. It reads keys
        /// alone, and at most twice as many as the limit.
        fn conversation_count(&self, user: &'a UserId, limit: usize) -> usize;

        /// The user's large conversations. A subscriber receives their sends from the conversation
        /// itself.
        fn large_conversations(&self, user: &'a UserId) -> Vec<ConversationId>;

        /// The unread counts after each position, and up to another one: TEXT messages of other users that
        /// are not deleted, up to `cap`. One more than the cap makes a count capped. The cap 0 asks whether anything is
        /// unread. Messages of ignored senders never count.
        ///
        /// One read takes about [`Unread::ROWS_MAX`] rows; beyond them the count is capped, and the next read continues where
        /// it ended. So a count is exact after as many reads as it has thousands of rows, on one server and while the store
        /// remembers it.
        fn unread(&self, user: &'a UserId, queries: &'a [UnreadQuery], cap: u32, ignored: &'a IgnoredSenders) -> Vec<Unread>;

        /// The unread mentions after each position, as [`Store::unread`] counts messages: those that mention
        /// the user or everyone. Exact however many other messages are unread. Mentions are counted for 400
        /// days.
        fn mentions(&self, user: &'a UserId, queries: &'a [UnreadQuery], cap: u32, ignored: &'a IgnoredSenders) -> Vec<Unread>;

        /// Moves a user's read marker. A maximum register: the greater marker stays whatever the order
        /// of arrival.
        fn move_read_marker(&self, user: &'a UserId, to: &'a MarkerMove) -> ();

        /// Moves the delivered marker of a user's devices. A maximum register: the greater position
        /// stays whatever the order of arrival. No change of an inbox.
        fn mark_delivered(&self, user: &'a UserId, conversation: ConversationId, up_to: OrderKey) -> ();

        /// The receivers of a message ([`Participant::receives`]), by username bytes.
        fn receivers(&self, conversation: ConversationId, message: MessageId, sender: &'a UserId, page: &'a PageRequest<UserId>) -> Page<Participant>;

        /// Sets some flags of a user's entry and leaves the others, concurrent changes of others
        /// included. The answer is all flags after the change. `None`, and nothing is written, if they
        /// are so already.
        fn set_flags(&self, user: &'a UserId, to: &'a FlagsChange) -> Option<Flags>;

        /// Users who chose the notification level ALL for a conversation, by username bytes: at most `limit`
        /// after this one. It is an index: the flags of an entry decide.
        fn notified_of_all(&self, conversation: ConversationId, after: Option<&'a UserId>, limit: usize) -> Vec<UserId>;

        fn profiles(&self, users: &'a [UserId]) -> Vec<Option<Profile>>;

        /// Changes some fields of a profile and leaves the others, concurrent changes of others
        /// included. A change without effect writes nothing.
        fn change_profile(&self, user: &'a UserId, to: &'a ProfileChange) -> ();

        /// Sets the time a user was last seen. A maximum register: the later moment stays whatever the
        /// order of arrival.
        fn mark_seen(&self, user: &'a UserId, at: Timestamp) -> ();

        /// Changes a user's restriction, or that of everyone, and logs the change for the other servers: all or
        /// nothing. The answer is the restriction after the change. The last suspension or restoration wins;
        /// `tokens_from` is a maximum. A restriction has no expiry.
        fn restrict(&self, restricted: &'a Restricted, change: &'a RestrictionChange) -> Restriction;

        /// The restrictions of these users; empty ones where there are none.
        fn restrictions_of(&self, users: &'a [UserId]) -> Vec<Restriction>;

        /// All restrictions that are not empty, in no order. A server reads them once, at its start.
        fn restrictions(&self) -> Vec<(Restricted, Restriction)>;

        /// The users whose restrictions or blocks any server changed since a moment, and a little before
        /// it. Empty on a store with a single server.
        fn restriction_log(&self, since: Timestamp) -> Vec<LoggedRestriction>;

        /// The blocks of a user, by the bytes of the blocked names: those that are on, and those that
        /// ended within [`Block::END_LIFETIME_MICROS`].
        fn blocks(&self, user: &'a UserId) -> Vec<Block>;

        /// Sets a block of a user on or off, and logs the change for the other servers: all or nothing. A
        /// register: of two changes of one pair, that with the later id stays. Idempotent.
        fn set_block(&self, user: &'a UserId, block: &'a Block) -> ();

        /// Adds a report, with its event in the outbox: all or nothing. The event keeps the report's id, in
        /// a row under `logged_as`, which is that id or a later one. Idempotent. A report expires after
        /// [`Report::LIFETIME_MICROS`].
        fn add_report(&self, report: &'a Report, logged_as: TimeUuid) -> ();

        /// The reports of a part of their list, in the direction of the query.
        fn reports(&self, query: &'a ReportQuery) -> Vec<Report>;

        fn reports_by_id(&self, ids: &'a [ReportId]) -> Vec<Option<Report>>;

        /// The number of reports after a position, counted up to `limit`. It reads keys alone.
        fn report_count(&self, after: OrderKey, limit: usize) -> usize;

        /// Sets the resolution of a report at a moment, or opens the report again. A register: of two
        /// changes, that of the later moment stays. A missing report stays missing.
        fn resolve_report(&self, report: ReportId, resolution: Option<&'a ReportResolution>, at: Timestamp) -> ();

        /// Replaces a report but for its resolution: an erasure empties names and copies. A missing report
        /// stays missing.
        fn replace_report(&self, report: &'a Report) -> ();

        /// Deletes reports, with their resolutions.
        fn delete_reports(&self, reports: &'a [ReportId]) -> ();

        /// Closes the store: every acknowledged write is on disk. No operation may follow.
        fn close(&self) -> ();
    }
    provided {
        /// The newest version whose forms may be written: every server that may serve this store can read
        /// them. It only grows. A store with a single server has them all; a cluster that is upgraded has
        /// those of the version before until `wideroom migrate --finish`.
        fn form_version(&self) -> FormVersion {
            Box::pin(async move { Ok(FormVersion::ALL) })
        }

        /// The version of the membership of a conversation, and the conversation, read at one moment. `None`
        /// for a conversation that does not exist.
        fn membership_version(&self, conversation: ConversationId) -> Option<MembershipVersion> {
            Box::pin(async move {
                let snapshot = self.membership_snapshot(conversation, &[]).await?;
                Ok(snapshot.map(|snapshot| MembershipVersion {
                    conversation: snapshot.conversation,
                    version: snapshot.version,
                    participant_count: snapshot.participant_count,
                    last_change: None,
                }))
            })
        }

        /// The unread counts and newest messages of inbox entries: as [`Store::unread`] and
        /// [`Store::messages`] answer. A store that keeps both in one place reads them together.
        fn previews(&self, user: &'a UserId, queries: &'a [PreviewQuery], cap: u32, ignored: &'a IgnoredSenders) -> Vec<EntryPreview> {
            Box::pin(async move {
                let counted = queries.iter().filter_map(|query| {
                    query.unread_after.map(|after| UnreadQuery {
                        conversation: query.conversation,
                        after,
                        up_to: None,
                    })
                });
                let keys = queries.iter().filter_map(|query| {
                    query
                        .last_message
                        .map(|message| (query.conversation, message))
                });
                let (counted, keys): (Vec<_>, Vec<_>) = (counted.collect(), keys.collect());
                let unread = async {
                    if counted.is_empty() {
                        return Ok(Vec::new());
                    }
                    self.unread(user, &counted, cap, ignored).await
                };
                let messages = async {
                    if keys.is_empty() {
                        return Ok(Vec::new());
                    }
                    self.messages(&keys).await
                };
                let (unread, messages) = try_join(unread, messages).await?;
                let (mut unread, mut messages) = (unread.into_iter(), messages.into_iter());
                Ok(queries
                    .iter()
                    .map(|query| EntryPreview {
                        unread: query.unread_after.and_then(|_| unread.next()),
                        last_message: query.last_message.and_then(|_| messages.next().flatten()),
                    })
                    .collect())
            })
        }
    }
    other {
        /// The greatest id in the store, after which a generator begins. `None` for an empty store, and
        /// where several servers allocate ids: there each conversation has its own newest id
        /// ([`Store::newest_events`]).
        fn newest_id(&self) -> StoreFuture<'_, Option<TimeUuid>>;

        /// How far before a cursor a resumed stream must read, because an event with a smaller id may
        /// have become visible after one with a greater id. Zero where one server allocates all ids.
        fn overlap_micros(&self) -> i64;

        /// Sets for how long the rows of the outbox that are written from now on are kept. A server sets it
        /// when it opens its store.
        fn set_outbox_keep(&self, keep: Duration);

        /// The directory and the mailboxes of the servers that share this store. `None` for a store
        /// with a single server.
        fn cluster(&self) -> Option<Arc<dyn ClusterStore>>;

        /// Whether the store takes writes: `Err` holds the reason in one sentence.
        fn health(&self) -> Result<(), String>;
    }
    intercepted {
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
            self.interceptor.intercept(StoreOperation("newest_id"), self.store.newest_id())
        }
    }
}
