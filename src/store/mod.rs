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
//! | `notify_all_by_conversation` | conversation, user | users who chose the notification level ALL: an index of flags |
//! | `pins_by_conversation` | conversation, message | pinned messages, and on a cluster ended pins (35 days). A message says whether it is pinned |
//! | `mentions_by_entry` | user, conversation, message, newest first | messages that mention a user (400 days) |
//! | `everyone_by_conversation` | conversation, message, newest first | messages that mention everyone (400 days) |
//! | `users` | user | profile and last-seen time |
//! | `restrictions` | user | suspension, and the moment before which tokens are refused |
//! | `bans_by_conversation` | conversation, user | users who are kept out of a conversation: by whom, until when and why |
//! | `blocks_by_user` | user, blocked user | users whom a user blocks, and ended blocks (35 days) |
//! | `reports_by_week` | week, report, newest first | reports of users and messages, and how services resolved them (400 days) |
//! | `expiries_by_hour` | hour, shard, conversation | which conversations have messages to remove from the disk |
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

mod admin;
mod background;
pub mod cluster;
mod conversation;
pub mod cql;
pub mod embedded;
mod error;
mod forms;
mod inbox;
mod instrumented;
mod membership;
mod message;
mod outbox;
mod profile;
mod read_permit;
mod report;
mod restriction;
mod rules;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::try_join;

pub use self::admin::{
    DAMAGED_MESSAGE, Finding, ImportPositions, ImportRow, Imported, NOTE_DIRECT_SECRET,
    NOTE_IMPORTED_AT, StoreAdmin, StoredMessage, Verified, VerifyPosition, activity_to_give,
};
pub use self::background::erasure::{ConversationsPiece, ErasureStore};
pub use self::background::removal::{
    DueQuery, DueRemoval, HistoryRemoval, OldestBucket, RESCHEDULE, RemovalStore, RemovedHistory,
};
pub use self::background::search::{DirectoryChange, SearchSegmentKey, SearchStore};
use self::cluster::ClusterStore;
pub use self::conversation::{Created, NewConversation, Participation};
pub use self::error::{Cause, Error, Result};
pub use self::forms::FormVersion;
use self::inbox::UnreadReader;
pub use self::inbox::{
    Archive, ChangedRow, EntryPreview, FlagsChange, MarkerMove, PreviewQuery, UnreadQuery,
};
pub use self::instrumented::InstrumentedStore;
pub use self::membership::{
    BanChange, LastMembershipChange, MembershipChange, MembershipSnapshot, MembershipTransition,
    MembershipVersion, Renaming, TransitionKind,
};
pub use self::message::{Appended, Audience, EarlierSend, NewMessage, Revised};
pub use self::outbox::{
    DEAD_LETTER_KEPT_MICROS, DeadLetter, LateChange, NOTE_OUTBOX_SINCE, OUTBOX_KEEP,
    OUTBOX_KEEP_MAX, OutboxPage, OutboxRead, ReaderLease, ReaderPosition,
};
pub use self::profile::ProfileChange;
pub use self::read_permit::ReadShares;
pub use self::report::ReportQuery;
pub use self::restriction::{LoggedRestriction, Restricted, RestrictionChange};
pub use self::rules::expiry::{REMOVAL_DELAY_MICROS, hour_of, removal_hour, widest_micros};
pub use self::rules::pair::of_stored as pair_of_participants;
use crate::model::{
    Ban, Block, Change, Conversation, ConversationId, Cut, DirectIds, Emoji, Flags, IdempotencyKey,
    IgnoredSenders, InboxKey, InboxRow, Message, MessageId, OrderKey, OutboxShard, Page,
    PageRequest, Participant, Pin, Profile, Reaction, Report, ReportId, ReportResolution,
    Restriction, Revision, TimeUuid, Timestamp, Unread, UserId,
};

/// A store of conversations, messages and inboxes.
///
/// Reads for a loader take a slice of keys and answer in its order; reads for a list take a
/// [`PageRequest`]. A write is durable and whole once it returns `Ok`; every read that begins after
/// that sees it.
///
/// Roles are effective ones: in a group without an OWNER, the oldest ADMIN has that role, else the
/// oldest participant ([`crate::model::Membership::succession`]).
#[async_trait]
pub trait Store:
    ErasureStore + RemovalStore + SearchStore + fmt::Display + Send + Sync + 'static
{
    /// How far before a cursor a resumed stream must read, because an event with a smaller id may
    /// have become visible after one with a greater id. Zero where one server allocates all ids.
    fn overlap_micros(&self) -> i64;

    /// Sets for how long the rows of the outbox that are written from now on are kept. A server sets it
    /// when it opens its store.
    fn set_outbox_keep(&self, keep: Duration);

    /// The directory and the mailboxes of the servers that share this store. `None` for a store
    /// with a single server.
    fn cluster(&self) -> Option<Arc<dyn ClusterStore>>;

    /// The greatest id in the store, after which a generator begins. `None` for an empty store, and
    /// where several servers allocate ids: there each conversation has its own newest id
    /// ([`Store::newest_events`]).
    async fn newest_id(&self) -> Result<Option<TimeUuid>>;

    /// The newest version whose forms may be written: every server that may serve this store can read
    /// them. It only grows. A store with a single server has them all; a cluster that is upgraded has
    /// those of the version before until `wideroom migrate --finish`.
    async fn form_version(&self) -> Result<FormVersion> {
        Ok(FormVersion::ALL)
    }

    /// The time of the newest import ([`StoreAdmin::import`]): cursors from before are expired.
    async fn imported_at(&self) -> Result<Option<Timestamp>>;

    /// The generator of ids for direct conversations. Its secret is created at first use
    /// (compare-and-set), so all servers of a store have the same.
    async fn direct_ids(&self) -> Result<DirectIds>;

    /// Conversations with the viewer's membership, one that has ended included. `None` for a
    /// conversation that does not exist or that the viewer was never in.
    async fn participations(
        &self,
        viewer: &UserId,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<Participation>>>;

    /// The direct conversation of two users, whatever its id.
    async fn direct_conversation(
        &self,
        one: &UserId,
        other: &UserId,
    ) -> Result<Option<ConversationId>>;

    /// Creates a conversation with all its participants, their inbox entries and, for a direct one,
    /// its pair: all or nothing. If the id or the pair is taken, nothing changes and the answer is
    /// the existing conversation. One of several concurrent creations succeeds.
    async fn create_conversation(&self, new: &NewConversation) -> Result<Created>;

    /// The present participants of a conversation, by username bytes.
    async fn participants(
        &self,
        conversation: ConversationId,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>>;

    /// The same, of those whose usernames begin with a prefix.
    async fn participants_with_prefix(
        &self,
        conversation: ConversationId,
        prefix: &str,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>>;

    /// Participants by name, those who have left included. `None` for a user who was never one.
    async fn participants_by_name(
        &self,
        keys: &[(ConversationId, UserId)],
    ) -> Result<Vec<Option<Participant>>>;

    async fn participant_counts(&self, conversations: &[ConversationId]) -> Result<Vec<u64>>;

    /// The state on which a change of these memberships is decided, read at one moment. `None` for
    /// a conversation that does not exist.
    async fn membership_snapshot(
        &self,
        conversation: ConversationId,
        users: &[UserId],
    ) -> Result<Option<MembershipSnapshot>>;

    /// The version of the membership of a conversation, and the conversation, read at one moment. `None`
    /// for a conversation that does not exist.
    async fn membership_version(
        &self,
        conversation: ConversationId,
    ) -> Result<Option<MembershipVersion>> {
        let snapshot = self.membership_snapshot(conversation, &[]).await?;
        Ok(snapshot.map(|snapshot| MembershipVersion {
            conversation: snapshot.conversation,
            version: snapshot.version,
            participant_count: snapshot.participant_count,
            last_change: None,
        }))
    }

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
    async fn change_membership(
        &self,
        conversation: ConversationId,
        change: &MembershipChange,
    ) -> Result<Option<Audience>>;

    /// The bans of a conversation that hold now, by username bytes. A change of a membership sets and
    /// lifts them.
    async fn bans(
        &self,
        conversation: ConversationId,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Ban>>;

    /// The bans of some users that hold now.
    async fn bans_of(
        &self,
        conversation: ConversationId,
        users: &[UserId],
    ) -> Result<Vec<Option<Ban>>>;

    /// The number of bans that hold now, counted up to `limit`.
    async fn ban_count(&self, conversation: ConversationId, limit: usize) -> Result<usize>;

    /// Renames a conversation, with the SYSTEM message, persisted as a send is, and the change in
    /// the log: all or nothing. The ids lie after every id of the conversation. Idempotent. A
    /// missing conversation is `Corrupt`.
    async fn rename_conversation(
        &self,
        conversation: ConversationId,
        to: &Renaming,
    ) -> Result<Audience>;

    /// Sets the slow mode of a conversation, with the change in the log: all or nothing. No message
    /// announces it, and no inbox shows it. Of two changes the later one stays. Idempotent. A missing
    /// conversation is `Corrupt`.
    async fn set_slow_mode(
        &self,
        conversation: ConversationId,
        seconds: u32,
        change: &Change,
    ) -> Result<()>;

    /// Persists messages of one conversation, the activity of every inbox concerned, the senders'
    /// `sent_up_to` and the idempotency keys: all or nothing, but for messages whose key is taken.
    /// The ids ascend and lie after every id of the conversation; no two messages share a key. One
    /// task at a time calls this for a conversation. A missing conversation is `Corrupt`.
    ///
    /// Idempotent: a repetition settles a write of unknown outcome, and finishes one that ended
    /// after its key was claimed.
    async fn append_messages(
        &self,
        conversation: ConversationId,
        messages: &[NewMessage],
    ) -> Result<Appended>;

    /// Edits or deletes a message, and logs the change for streams that resume, and in
    /// `changes_by_user` if an inbox shows the message or the change is one of its mentions: all or
    /// nothing. The change's id lies after
    /// every id of the conversation; one task at a time calls this and `append_messages` for it.
    /// `None` for a missing message. A deleted one stays as it is, and nothing is logged.
    async fn revise_message(
        &self,
        conversation: ConversationId,
        revision: &Revision,
        change: &Change,
    ) -> Result<Option<Revised>>;

    /// Sets the reaction of the change's user to its message on or off, and logs the change: all or
    /// nothing. No inbox shows a reaction, though subscribers may receive the entries of a large
    /// conversation again, as with every change logged there. From then on the message says that it
    /// has reactions. Ids and concurrency are those of the two methods above.
    ///
    /// The answer is the message after the change; `None` for a missing one. A deleted message
    /// stays as it is, and nothing is logged. Idempotent.
    async fn react(
        &self,
        conversation: ConversationId,
        emoji: &Emoji,
        is_on: bool,
        change: &Change,
    ) -> Result<Option<Arc<Message>>>;

    /// Sets the pin of the change's message on or off, in the name of the change's user, and logs the
    /// change: all or nothing. No inbox shows it, as with a reaction. Ids and concurrency are those of
    /// the methods above. A deletion unpins, and is logged as nothing else.
    ///
    /// The answer is the message after the change; `None` for a missing one. A deleted message stays
    /// as it is, and nothing is logged. Idempotent.
    async fn pin_message(
        &self,
        conversation: ConversationId,
        is_on: bool,
        change: &Change,
    ) -> Result<Option<Arc<Message>>>;

    /// The last pins of a conversation's messages, in no order: those that are on, and on a cluster
    /// some that ended within [`Pin::END_LIFETIME_MICROS`]. At most a little over [`Pin::KEPT_MAX`].
    /// A pin is valid if its message has it too ([`Message::current_pin`]).
    async fn pins(&self, conversation: ConversationId) -> Result<Vec<(MessageId, Pin)>>;

    /// The reactions to each message by emoji bytes, those that every user took back included. At
    /// most [`Reaction::COUNT_MAX`] users of each are counted and [`Reaction::ROWS_MAX`] rows read;
    /// beyond either the count is capped.
    async fn reactions(
        &self,
        viewer: &UserId,
        messages: &[(ConversationId, MessageId)],
    ) -> Result<Vec<Vec<Reaction>>>;

    /// The changes of a conversation after a position, the oldest first, at most `limit`. The log
    /// holds 35 days.
    async fn changes(
        &self,
        conversation: ConversationId,
        after: OrderKey,
        limit: usize,
    ) -> Result<Vec<Change>>;

    /// Logs changes again that stand under older ids, so that streams that passed those ids find
    /// them: all or nothing, as `revise_message` logs them. A message that became visible late is
    /// logged as [`crate::model::ChangeKind::MessageLate`]. In the outbox the events keep their own
    /// ids, in a row under the fresh ones.
    ///
    /// On a store with a single server nothing is late.
    async fn log_late(&self, conversation: ConversationId, changes: &[LateChange]) -> Result<()>;

    /// The time from which the store has an outbox: every write from then on that persists events
    /// persists an [`crate::model::OutboxRow`] with them, all or nothing. `None` while the outbox is
    /// off. On a shared store, a server must call this every few seconds: its writes follow the last
    /// answer.
    async fn outbox_since(&self) -> Result<Option<Timestamp>>;

    /// The rows of these shards after each position and up to `up_to`, a page for each: about
    /// `limit` rows of a shard at once. A row may come twice. Rows are kept for 7 days.
    async fn outbox(
        &self,
        reads: &[OutboxRead],
        up_to: OrderKey,
        limit: usize,
    ) -> Result<Vec<OutboxPage>>;

    /// The positions of a named reader of the outbox, one for each shard. `None` for a shard that it
    /// has never read. A name has 1 to 64 ASCII letters, digits, `-` and `_`.
    async fn reader_positions(&self, reader: &str) -> Result<Vec<Option<ReaderPosition>>>;

    /// Sets the position of a reader in one shard. A compare-and-set: false, and nothing is written,
    /// if it is not the one that was `seen`. After an error either may be true.
    async fn swap_reader_position(
        &self,
        reader: &str,
        shard: OutboxShard,
        seen: Option<&ReaderPosition>,
        to: &ReaderPosition,
    ) -> Result<bool>;

    /// Stores an event that a reader refused, for 30 days. A letter of the same event and part is
    /// replaced.
    async fn put_dead_letter(&self, reader: &str, letter: &DeadLetter) -> Result<()>;

    /// The dead letters of a reader, those with the oldest events first, at most `limit`.
    async fn dead_letters(&self, reader: &str, limit: usize) -> Result<Vec<DeadLetter>>;

    /// Deletes a dead letter as it was read.
    async fn delete_dead_letter(&self, reader: &str, letter: &DeadLetter) -> Result<()>;

    /// Conversations, whoever takes part in them. `None` for one that does not exist.
    async fn conversations(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<Arc<Conversation>>>>;

    /// Earlier sends of the last 24 hours by their keys.
    async fn earlier_sends(
        &self,
        conversation: ConversationId,
        keys: &[(UserId, IdempotencyKey)],
    ) -> Result<Vec<Option<EarlierSend>>>;

    /// A page of messages, the newest first: `after` is older. The cut is in the order of ids, from
    /// its oldest to its newest.
    async fn history(
        &self,
        conversation: ConversationId,
        cut: &Cut<OrderKey>,
        page: &PageRequest<OrderKey>,
    ) -> Result<Page<Arc<Message>>>;

    async fn messages(
        &self,
        keys: &[(ConversationId, MessageId)],
    ) -> Result<Vec<Option<Arc<Message>>>>;

    /// The newest message at or before each position, deleted ones included.
    async fn messages_at(
        &self,
        positions: &[(ConversationId, OrderKey)],
    ) -> Result<Vec<Option<Arc<Message>>>>;

    /// The newest message of each conversation.
    async fn last_messages(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<MessageId>>>;

    /// The newest message or change of each conversation: the position of its event stream.
    async fn newest_events(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<TimeUuid>>>;

    /// The exact number of messages of each conversation, deleted ones included. Its cost does not
    /// grow with history.
    async fn message_counts(&self, conversations: &[ConversationId]) -> Result<Vec<u64>>;

    /// The same of the messages after a position.
    async fn message_counts_after(
        &self,
        positions: &[(ConversationId, OrderKey)],
    ) -> Result<Vec<u64>>;

    /// A page of a user's entries, the last active first; archived ones included.
    ///
    /// It shows the large conversations in which the user acted ([`InboxRow::is_answered`]), and the
    /// user's others up to [`crate::model::Conversation::LARGE_MERGED_MAX`] in all: the greatest
    /// read markers first, then the greatest ids.
    async fn inbox(&self, user: &UserId, page: &PageRequest<InboxKey>) -> Result<Page<InboxRow>>;

    /// A user's rows for some conversations. `None` where the user is no participant now.
    async fn inbox_rows(
        &self,
        user: &UserId,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<InboxRow>>>;

    /// A user's rows that changed after a position, by their newest change, ascending;
    /// conversations that the user has left since included. `None` if there are more than `limit`.
    async fn inbox_changes(
        &self,
        user: &UserId,
        after: OrderKey,
        limit: usize,
    ) -> Result<Option<Vec<ChangedRow>>>;

    /// The number of conversations that the user is in now, counted up to `limit`. It reads keys
    /// alone, and at most twice as many as the limit.
    async fn conversation_count(&self, user: &UserId, limit: usize) -> Result<usize>;

    /// The user's large conversations. A subscriber receives their sends from the conversation
    /// itself.
    async fn large_conversations(&self, user: &UserId) -> Result<Vec<ConversationId>>;

    /// The unread counts after each position, and up to another one: TEXT messages of other users that
    /// are not deleted, up to `cap`. One more than the cap makes a count capped, and so do [`Unread::ROWS_MAX`] rows
    /// read. The cap 0 asks whether anything is unread. Messages of ignored senders never count.
    async fn unread(
        &self,
        user: &UserId,
        queries: &[UnreadQuery],
        cap: u32,
        ignored: &IgnoredSenders,
    ) -> Result<Vec<Unread>>;

    /// The unread mentions after each position, as [`Store::unread`] counts messages: those that mention
    /// the user or everyone. Exact however many other messages are unread. Mentions are counted for 400
    /// days.
    async fn mentions(
        &self,
        user: &UserId,
        queries: &[UnreadQuery],
        cap: u32,
        ignored: &IgnoredSenders,
    ) -> Result<Vec<Unread>>;

    /// The unread counts and newest messages of inbox entries: as [`Store::unread`] and
    /// [`Store::messages`] answer. A store that keeps both in one place reads them together.
    async fn previews(
        &self,
        user: &UserId,
        queries: &[PreviewQuery],
        cap: u32,
        ignored: &IgnoredSenders,
    ) -> Result<Vec<EntryPreview>> {
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
    }

    /// Moves a user's read marker. A maximum register: the greater marker stays whatever the order
    /// of arrival.
    async fn move_read_marker(&self, user: &UserId, to: &MarkerMove) -> Result<()>;

    /// Moves the delivered marker of a user's devices. A maximum register: the greater position
    /// stays whatever the order of arrival. No change of an inbox.
    async fn mark_delivered(
        &self,
        user: &UserId,
        conversation: ConversationId,
        up_to: OrderKey,
    ) -> Result<()>;

    /// The receivers of a message ([`Participant::receives`]), by username bytes.
    async fn receivers(
        &self,
        conversation: ConversationId,
        message: MessageId,
        sender: &UserId,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>>;

    /// Sets some flags of a user's entry and leaves the others, concurrent changes of others
    /// included. The answer is all flags after the change. `None`, and nothing is written, if they
    /// are so already.
    async fn set_flags(&self, user: &UserId, to: &FlagsChange) -> Result<Option<Flags>>;

    /// Users who chose the notification level ALL for a conversation, by username bytes: at most `limit`
    /// after this one. It is an index: the flags of an entry decide.
    async fn notified_of_all(
        &self,
        conversation: ConversationId,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<UserId>>;

    async fn profiles(&self, users: &[UserId]) -> Result<Vec<Option<Profile>>>;

    /// Changes some fields of a profile and leaves the others, concurrent changes of others
    /// included. A change without effect writes nothing.
    async fn change_profile(&self, user: &UserId, to: &ProfileChange) -> Result<()>;

    /// Sets the time a user was last seen. A maximum register: the later moment stays whatever the
    /// order of arrival.
    async fn mark_seen(&self, user: &UserId, at: Timestamp) -> Result<()>;

    /// Changes a user's restriction, or that of everyone, and logs the change for the other servers: all or
    /// nothing. The answer is the restriction after the change. The last suspension or restoration wins;
    /// `tokens_from` is a maximum. A restriction has no expiry.
    async fn restrict(
        &self,
        restricted: &Restricted,
        change: &RestrictionChange,
    ) -> Result<Restriction>;

    /// The restrictions of these users; empty ones where there are none.
    async fn restrictions_of(&self, users: &[UserId]) -> Result<Vec<Restriction>>;

    /// All restrictions that are not empty, in no order. A server reads them once, at its start.
    async fn restrictions(&self) -> Result<Vec<(Restricted, Restriction)>>;

    /// The users whose restrictions or blocks any server changed since a moment, and a little before
    /// it. Empty on a store with a single server.
    async fn restriction_log(&self, since: Timestamp) -> Result<Vec<LoggedRestriction>>;

    /// The blocks of a user, by the bytes of the blocked names: those that are on, and those that
    /// ended within [`Block::END_LIFETIME_MICROS`].
    async fn blocks(&self, user: &UserId) -> Result<Vec<Block>>;

    /// Sets a block of a user on or off, and logs the change for the other servers: all or nothing. A
    /// register: of two changes of one pair, that with the later id stays. Idempotent.
    async fn set_block(&self, user: &UserId, block: &Block) -> Result<()>;

    /// Adds a report, with its event in the outbox: all or nothing. The event keeps the report's id, in
    /// a row under `logged_as`, which is that id or a later one. Idempotent. A report expires after
    /// [`Report::LIFETIME_MICROS`].
    async fn add_report(&self, report: &Report, logged_as: TimeUuid) -> Result<()>;

    /// The reports of a part of their list, in the direction of the query.
    async fn reports(&self, query: &ReportQuery) -> Result<Vec<Report>>;

    async fn reports_by_id(&self, ids: &[ReportId]) -> Result<Vec<Option<Report>>>;

    /// The number of reports after a position, counted up to `limit`. It reads keys alone.
    async fn report_count(&self, after: OrderKey, limit: usize) -> Result<usize>;

    /// Sets the resolution of a report at a moment, or opens the report again. A register: of two
    /// changes, that of the later moment stays. A missing report stays missing.
    async fn resolve_report(
        &self,
        report: ReportId,
        resolution: Option<&ReportResolution>,
        at: Timestamp,
    ) -> Result<()>;

    /// Replaces a report but for its resolution: an erasure empties names and copies. A missing report
    /// stays missing.
    async fn replace_report(&self, report: &Report) -> Result<()>;

    /// Deletes reports, with their resolutions.
    async fn delete_reports(&self, reports: &[ReportId]) -> Result<()>;

    /// Whether the store takes writes: `Err` holds the reason in one sentence.
    fn health(&self) -> Result<(), String>;

    /// Closes the store: every acknowledged write is on disk. No operation may follow.
    async fn close(&self) -> Result<()>;
}
