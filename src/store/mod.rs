//! Storage: one trait in the words of the model, an intent per method; every engine passes the same contract suite (tests/store).
//!
//! Each promise in these comments is a case of that suite. A store knows no rule of chat: who may do what is asked before it is called.
//!
//! # The data model
//!
//! One table answers one question. The embedded store keeps each as a range of sorted keys, the CQL store as a table.
//!
//! | table | key | answers |
//! |---|---|---|
//! | `conversations` | conversation | kind, name and creator of a conversation |
//! | `direct_by_pair` | the two names | the direct conversation of two users |
//! | `participants_by_conversation` | conversation, user | memberships, read and delivered markers |
//! | `messages_by_conversation` | conversation, message, newest first | a page of history, from any position, in either direction |
//! | `inbox_by_user` | user, conversation | read marker, last own send, muted, pinned, archived |
//! | `inbox_activity_by_user` | user, activity, conversation, newest first | a page of the inbox |
//! | `busy_conversations_by_user` | user, conversation | conversations ordered by their head at read time, so that a send moves no row |
//! | `large_conversations_by_user` | user, conversation | conversations merged into the inbox at read time |
//! | `changes_by_conversation` | conversation, change | edits, deletions, reactions, membership and names since a cursor (35 days) |
//! | `changes_by_user` | user, change | changes of the inbox since a cursor (35 days) |
//! | `sends_by_key` | conversation, sender, key | whether a send is a retry (24 hours) |
//! | `reactions_by_message` | conversation, message, emoji, user | reactions. A message says whether it has any, so that most pages read none |
//! | `users` | user | profile and last-seen time |
//!
//! - Order is that of timeuuids: the time, then the other eight bytes as signed ones, as in Cassandra.
//! - Unread counts are computed from the read marker. No counter exists that could drift.
//! - A conversation with a message within an hour of the last one is *busy*, until it was quiet for two hours. Its entries do not
//!   move with each send, which would leave tombstones at the top of every inbox.
//! - Above 32 participants a conversation is *large*, for good, and merged at read time.

mod admin;
pub mod cql;
pub mod embedded;
mod instrumented;
mod read_permit;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

pub use self::admin::{
    DAMAGED_MESSAGE, Finding, ImportPositions, ImportRow, Imported, StoredMessage, Verified,
    VerifyPosition, activity_to_give,
};
pub use self::instrumented::InstrumentedStore;
pub use self::read_permit::ReadShares;
use crate::model::{
    Change, ChangeId, Conversation, ConversationId, Cut, Emoji, Flags, GroupName, IdempotencyKey,
    InboxKey, InboxRow, InputHash, Membership, Message, MessageId, OrderKey, Page, PageRequest,
    Participant, Profile, Reaction, ReadMarker, Revision, Role, TimeUuid, Timestamp, Unread,
    UserId,
};

/// Why a store did not do as asked, by what one can do about it. "Not there" is no error but `None`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing of it was done: the queue is full, the disk is, or the store is not to be reached. It may be tried again.
    #[error("the store is not available: {0}")]
    Unavailable(#[source] Cause),
    /// It may have been done, or may yet be. Only a read, or the same write again, tells.
    #[error("the outcome of a write is not known: {0}")]
    OutcomeUnknown(#[source] Cause),
    /// The store cannot decode a row: a fault of the disk, or a bug.
    #[error("a row of {table} cannot be read: {cause}")]
    Corrupt {
        table: &'static str,
        #[source]
        cause: Cause,
    },
}

/// The note that holds the secret of [`crate::model::DirectIds`]. It is in backups, and in no export.
pub const NOTE_DIRECT_SECRET: &str = "direct_secret";

/// The note that says when the store was last imported into, in RFC 3339.
pub const NOTE_IMPORTED_AT: &str = "imported_at";

pub type Cause = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A conversation as it is made.
#[derive(Debug, Clone)]
pub struct NewConversation {
    pub conversation: Conversation,
    /// At least one, no two of them the same. More than [`Conversation::FAN_OUT_MAX`] make it large.
    pub participants: Vec<(UserId, Role)>,
    /// Under which the making of it stands in the participants' `changes_by_user`.
    pub change: ChangeId,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    New,
    /// It was there: this one, made with that input. Nothing was changed.
    Existing(Arc<Conversation>),
}

/// A user's participation in a conversation.
#[derive(Debug, Clone)]
pub struct Participation {
    pub conversation: Arc<Conversation>,
    pub membership: Membership,
    /// The newest message or change there, which other servers may have written: what is written next lies after it. `None` where this
    /// server is the only one, and has given all ids itself.
    pub newest: Option<TimeUuid>,
}

/// The users whose inbox subscriptions receive an event.
#[derive(Debug, Clone)]
pub struct Audience {
    /// Those who are in the conversation now. `None` for a large one: its readers listen to the conversation itself.
    pub users: Option<Arc<[UserId]>>,
}

/// The result of a send of several messages.
#[derive(Debug, Clone)]
pub struct Appended {
    pub audience: Audience,
    /// Those of which nothing was kept, by their position: an earlier send of the last 24 hours has the key.
    pub taken: Vec<(usize, EarlierSend)>,
}

/// A message that was changed, and who is to be told of it.
#[derive(Debug, Clone)]
pub struct Revised {
    /// As it is now.
    pub message: Arc<Message>,
    /// The users whose inbox entry has changed. `None` for a large conversation.
    pub audience: Audience,
}

/// The memberships on which a change is decided.
#[derive(Debug, Clone)]
pub struct MembershipSnapshot {
    pub conversation: Arc<Conversation>,
    /// Changes with every change of the membership: the SYSTEM message of the last one, or [`NewConversation::change`]. `None` where an
    /// import brought the conversation and nothing changed since.
    pub version: Option<TimeUuid>,
    pub participant_count: u64,
    /// The memberships of the requested users, in their order; those of users who have left included.
    pub memberships: Vec<Option<Membership>>,
    /// The successor as OWNER if the requested users left. `None` if another OWNER or no other participant remains.
    pub successor: Option<(UserId, Membership)>,
}

/// A change of the membership of a conversation.
#[derive(Debug, Clone)]
pub struct MembershipChange {
    /// The [`MembershipSnapshot::version`] that it was decided on.
    pub seen: Option<TimeUuid>,
    /// No two of one user.
    pub transitions: Vec<MembershipTransition>,
    /// Kept in the log; their ids ascend.
    pub changes: Vec<Change>,
    /// The SYSTEM message that tells of it: without a key, and with the last id. That is the version then.
    pub message: Arc<Message>,
}

/// The part of a membership change that concerns one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MembershipTransition {
    pub user: UserId,
    pub kind: TransitionKind,
    /// As it is then. Where the kind is `Stays`, only the role differs.
    pub membership: Membership,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransitionKind {
    Joins,
    Leaves,
    Stays,
}

/// Another name for a conversation.
#[derive(Debug, Clone)]
pub struct Renaming {
    pub name: GroupName,
    /// Kept in the log.
    pub change: Change,
    /// The SYSTEM message that tells of it: without a key, and with the last id.
    pub message: Arc<Message>,
}

/// A message on its way into the store, with what a retry is recognised by.
#[derive(Debug, Clone)]
pub struct NewMessage {
    pub message: Arc<Message>,
    /// The hash of the input, for a message with a `client_key`.
    pub input_hash: Option<InputHash>,
}

/// An earlier send under the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EarlierSend {
    pub message: MessageId,
    pub input_hash: InputHash,
}

/// A request for the unread count of an inbox entry.
#[derive(Debug, Clone, Copy)]
pub struct UnreadQuery {
    pub conversation: ConversationId,
    pub after: OrderKey,
}

/// A move of a user's read marker.
#[derive(Debug, Clone, Copy)]
pub struct MarkerMove {
    pub conversation: ConversationId,
    pub marker: ReadMarker,
    /// The receipts' maximum, which never goes back: `None` when marking unread.
    pub read_up_to: Option<OrderKey>,
    /// Under which it stands in the user's `changes_by_user`.
    pub change: ChangeId,
}

/// A change of the flags of an inbox entry. Parts that are `None` stay.
#[derive(Debug, Clone, Copy)]
pub struct FlagsChange {
    pub conversation: ConversationId,
    pub muted: Option<bool>,
    pub pinned: Option<bool>,
    pub archive: Option<Archive>,
    /// Under which it stands in the user's `changes_by_user`.
    pub change: ChangeId,
}

/// A change of an entry's archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Archive {
    Begin(Timestamp),
    End,
    /// Ends the one that began then; another one stays.
    EndOf(Timestamp),
}

impl FlagsChange {
    /// The flags as they are once this is done.
    pub fn apply(&self, flags: Flags) -> Flags {
        let archived_at = match self.archive {
            Some(Archive::Begin(moment)) => Some(moment),
            Some(Archive::End) => None,
            Some(Archive::EndOf(moment)) => flags
                .archived_at
                .filter(|archived_at| *archived_at != moment),
            None => flags.archived_at,
        };
        Flags {
            is_muted: self.muted.unwrap_or(flags.is_muted),
            is_pinned: self.pinned.unwrap_or(flags.is_pinned),
            archived_at,
        }
    }
}

/// A change of a profile. Parts that are `None` stay; `Some(None)` removes one.
#[derive(Debug, Clone, Default)]
pub struct ProfileChange {
    pub display_name: Option<Option<String>>,
    pub avatar_url: Option<Option<String>>,
}

impl ProfileChange {
    /// The profile as it is once this is done.
    pub fn apply(&self, profile: Profile) -> Profile {
        Profile {
            display_name: self.display_name.clone().unwrap_or(profile.display_name),
            avatar_url: self.avatar_url.clone().unwrap_or(profile.avatar_url),
            last_seen_at: profile.last_seen_at,
        }
    }
}

/// The record of a write by any server, which other servers poll.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Wake {
    /// The id by which a poller recognises a record that it has seen.
    pub id: TimeUuid,
    pub place: WakePlace,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WakePlace {
    /// Messages or changes of this conversation, and with them the inboxes of its participants.
    Conversation(ConversationId),
    /// This user's inbox, by something that is told in no conversation.
    Inbox(UserId),
    /// A marker of this user in this conversation.
    Marker(ConversationId, UserId),
}

/// A conversation in a user's inbox with the newest thing that changed it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangedRow {
    pub newest_change: TimeUuid,
    pub conversation: ConversationId,
    /// `None` where the user is not in it any more.
    pub row: Option<InboxRow>,
}

/// A store of conversations, messages and inboxes.
///
/// Reads for a loader take a slice of keys and answer in its order; reads for a list take a [`PageRequest`]. Writes are kept, durably and
/// as a whole, when they return `Ok`; every read that begins after that sees them.
///
/// Roles are told as they count: in a group where nobody has the role OWNER, its oldest ADMIN has it, else its oldest participant
/// ([`Membership::succession`]).
#[async_trait]
pub trait Store: fmt::Display + Send + Sync + 'static {
    /// How far before a cursor a resumed stream must read, because an event with a smaller id may have become visible later than one with
    /// a greater id. Zero where one server gives all ids.
    fn overlap_micros(&self) -> i64;

    /// The greatest id ever kept: a generator begins after it. `None` where nothing was kept, and where several servers give ids: there
    /// each conversation has its own ([`Store::newest_events`]).
    async fn newest_id(&self) -> Result<Option<TimeUuid>>;

    /// Conversations with the viewer's membership, also one that has ended. `None` where there is no such conversation or the viewer was
    /// never in it.
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

    /// Makes a conversation with all its participants, their inbox entries and, for a direct one, its pair: all or nothing. Where its id,
    /// or its pair, is taken, nothing changes and the answer is what is there, also when two do it at the same moment.
    async fn create_conversation(&self, new: &NewConversation) -> Result<Created>;

    /// Those who are in the conversation now, by username bytes.
    async fn participants(
        &self,
        conversation: ConversationId,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>>;

    /// Some participants by name, also those who have left. `None` for those who were never in it.
    async fn participants_by_name(
        &self,
        keys: &[(ConversationId, UserId)],
    ) -> Result<Vec<Option<Participant>>>;

    async fn participant_counts(&self, conversations: &[ConversationId]) -> Result<Vec<u64>>;

    /// The state on which a change of these memberships is decided, read at one moment. `None` if there is no such conversation.
    async fn membership_snapshot(
        &self,
        conversation: ConversationId,
        users: &[UserId],
    ) -> Result<Option<MembershipSnapshot>>;

    /// Changes who is in a conversation: with the SYSTEM message, which is kept as a send is, the changes in the log, and one in the
    /// `changes_by_user` of everybody who joins or leaves, under the message's id: all or nothing.
    ///
    /// A user who joins, or joins again, has an entry whose marker is at least [`ReadMarker::at_joining`]: nothing is unread. Flags and receipts are as they were. Who leaves has no entry. The 33rd participant makes the conversation large, for good.
    ///
    /// The ids lie after every id of the conversation. Where the membership has changed since it was `seen`, nothing is written: `None`.
    /// The same change once more changes nothing, and answers as the first time. The audience is who is in it then; it is named once more
    /// where the conversation becomes large.
    async fn change_membership(
        &self,
        conversation: ConversationId,
        change: &MembershipChange,
    ) -> Result<Option<Audience>>;

    /// Gives a conversation another name, with the SYSTEM message, which is kept as a send is, and the change in the log: all or nothing.
    /// The ids lie after every id of the conversation. The same once more changes nothing. Of a conversation that is not there: `Corrupt`.
    async fn rename_conversation(
        &self,
        conversation: ConversationId,
        to: &Renaming,
    ) -> Result<Audience>;

    /// Keeps messages of one conversation, and with them the activity of every inbox concerned, the senders' `sent_up_to` and the
    /// idempotency keys: all or nothing, but for those whose key is taken. The ids ascend and lie after every id of the conversation; no
    /// two share a key. Called by one task at a time for a conversation. Of a conversation that is not there: `Corrupt`.
    ///
    /// The same again changes nothing: it settles a write whose outcome was not known, and finishes one that ended after its key was
    /// claimed.
    async fn append_messages(
        &self,
        conversation: ConversationId,
        messages: &[NewMessage],
    ) -> Result<Appended>;

    /// Changes a message, and logs the change for streams that were away, and in `changes_by_user` where an inbox shows it: all or nothing.
    /// The change's id lies after every id of the conversation, and one task at a time calls this and `append_messages` for it. Of a
    /// message that is not there: `None`. One that is deleted already stays as it is, and nothing is logged.
    async fn revise_message(
        &self,
        conversation: ConversationId,
        revision: &Revision,
        change: &Change,
    ) -> Result<Option<Revised>>;

    /// Puts the reaction of the change's user to its message on or off, and logs the change: all or nothing. No inbox shows it, though
    /// the entries of a large conversation may be told anew, as with all that is logged there. The message says from then on that it has
    /// reactions. The change's id lies after every id of the conversation, and one task at a time calls this and
    /// the two above for it. Answers with the message as it is then. Of a message that is not there: `None`. One that is deleted stays as
    /// it is, and nothing is logged. The same again changes nothing.
    async fn react(
        &self,
        conversation: ConversationId,
        emoji: &Emoji,
        is_on: bool,
        change: &Change,
    ) -> Result<Option<Arc<Message>>>;

    /// The reactions to each message by the bytes of their emoji, also those that nobody has on any more. Of each at most
    /// [`Reaction::COUNT_MAX`] are counted and [`Reaction::ROWS_MAX`] rows looked at, either of which makes the count capped.
    async fn reactions(
        &self,
        viewer: &UserId,
        messages: &[(ConversationId, MessageId)],
    ) -> Result<Vec<Vec<Reaction>>>;

    /// The changes of a conversation after a position, the oldest first, at most `limit`. They are kept for 35 days.
    async fn changes(
        &self,
        conversation: ConversationId,
        after: OrderKey,
        limit: usize,
    ) -> Result<Vec<Change>>;

    /// Logs a change that stands under an older id once more, so that streams that passed that id find it: all or nothing, as
    /// `revise_message` logs it. A kept message that became visible late is logged as [`crate::model::ChangeKind::MessageLate`].
    ///
    /// On a store with a single server nothing is late.
    async fn log_late(&self, conversation: ConversationId, changes: &[Change]) -> Result<()>;

    /// Writes of other servers since a moment, and a little before it. Empty on a store with a single server.
    async fn wakes(&self, since: Timestamp) -> Result<Vec<Wake>>;

    /// Earlier sends of the last 24 hours by their keys.
    async fn earlier_sends(
        &self,
        conversation: ConversationId,
        keys: &[(UserId, IdempotencyKey)],
    ) -> Result<Vec<Option<EarlierSend>>>;

    /// A page of messages, the newest first: `after` is what is older. The cut is in the order of ids, its start the oldest.
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

    /// The newest message or change of each conversation: where its event stream stands.
    async fn newest_events(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<TimeUuid>>>;

    /// How many messages each conversation has, deleted ones included: exact, at a cost that does not grow with history.
    async fn message_counts(&self, conversations: &[ConversationId]) -> Result<Vec<u64>>;

    /// A page of a user's entries, the last active first; archived ones included.
    ///
    /// It shows those large conversations in which the user acted ([`InboxRow::is_answered`]), and so many of the user's others as make it
    /// [`Conversation::LARGE_MERGED_MAX`]: the greatest read markers first, then the greatest ids.
    async fn inbox(&self, user: &UserId, page: &PageRequest<InboxKey>) -> Result<Page<InboxRow>>;

    /// A user's rows for some conversations. `None` where the user is not in it now.
    async fn inbox_rows(
        &self,
        user: &UserId,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<InboxRow>>>;

    /// A user's rows that changed after a position, by their newest change, ascending; also those of conversations that the user has left
    /// since. Where they are more than `limit`: `None`.
    async fn inbox_changes(
        &self,
        user: &UserId,
        after: OrderKey,
        limit: usize,
    ) -> Result<Option<Vec<ChangedRow>>>;

    /// The changes in a user's `changes_by_user` after a position, unordered, each with its conversation. `None` if there are too many.
    /// Only stores that several servers share are asked.
    async fn inbox_log(
        &self,
        user: &UserId,
        after: OrderKey,
    ) -> Result<Option<Vec<(ChangeId, ConversationId)>>> {
        let _ = (user, after);
        Ok(Some(Vec::new()))
    }

    /// How many conversations the user is in now, counted up to `limit`. It reads keys alone, and at most twice as many as the limit.
    async fn conversation_count(&self, user: &UserId, limit: usize) -> Result<usize>;

    /// The user's large conversations, whose sends must be listened to at the conversation itself.
    async fn large_conversations(&self, user: &UserId) -> Result<Vec<ConversationId>>;

    /// TEXT messages of others after each position that are not deleted: counted up to `cap`. One more than the cap makes the count capped, and
    /// so do [`Unread::ROWS_MAX`] rows read. The cap 0 asks whether anything is unread.
    async fn unread(
        &self,
        user: &UserId,
        questions: &[UnreadQuery],
        cap: u32,
    ) -> Result<Vec<Unread>>;

    /// Moves a user's read marker: a maximum, so that the greater one stays whatever the order of arrival.
    async fn move_read_marker(&self, user: &UserId, to: &MarkerMove) -> Result<()>;

    /// Moves up what reached a user's devices: a maximum, so that the greater position stays whatever the order of arrival. No change of an
    /// inbox.
    async fn mark_delivered(
        &self,
        user: &UserId,
        conversation: ConversationId,
        up_to: OrderKey,
    ) -> Result<()>;

    /// Those whom a message of this sender was sent to ([`Participant::receives`]), by username bytes.
    async fn receivers(
        &self,
        conversation: ConversationId,
        message: MessageId,
        sender: &UserId,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>>;

    /// Sets some flags of a user's entry and leaves the others as they are, also when two set theirs at the same moment. Answers with all
    /// of them as they are then. Where they were so already, nothing is written, no change either: `None`.
    async fn set_flags(&self, user: &UserId, to: &FlagsChange) -> Result<Option<Flags>>;

    async fn profiles(&self, users: &[UserId]) -> Result<Vec<Option<Profile>>>;

    /// Changes what a user tells of themselves and leaves the rest as it is, also when two change different parts at the same moment.
    /// A change without effect writes nothing.
    async fn change_profile(&self, user: &UserId, to: &ProfileChange) -> Result<()>;

    /// Notes that a user was seen then: a maximum, so that the later moment stays whatever the order of arrival.
    async fn mark_seen(&self, user: &UserId, at: Timestamp) -> Result<()>;

    /// Imports rows in order, all or nothing as far as faults go; each row's fate by itself. Not an event: nobody is told.
    async fn import(&self, rows: &[ImportRow]) -> Result<Vec<Imported>>;

    /// All users with a profile, in an order of the store's own: those behind one of them, at most `limit`. Fewer only at the end.
    ///
    /// This and the next four are what an export reads, in pieces that go on from any position. What is written meanwhile may be in it or not.
    async fn all_users(
        &self,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<(UserId, Profile)>>;

    /// All conversations, in an order of the store's own, each with its [`activity_to_give`].
    async fn all_conversations(
        &self,
        after: Option<ConversationId>,
        limit: usize,
    ) -> Result<Vec<(Conversation, Option<Timestamp>)>>;

    /// Everybody who is in a conversation or ever was, by username bytes: as they were given, and not as it counts.
    async fn all_participants(
        &self,
        conversation: ConversationId,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<(UserId, Membership, ImportPositions)>>;

    /// All messages of a conversation, from the oldest on: those behind one of them, at most `limit`. Damaged rows are among them.
    async fn all_messages(
        &self,
        conversation: ConversationId,
        after: Option<MessageId>,
        limit: usize,
    ) -> Result<Vec<StoredMessage>>;

    /// Every reaction to a message that is on, by emoji and username bytes.
    async fn all_reactions(
        &self,
        conversation: ConversationId,
        message: MessageId,
        after: Option<&(Emoji, UserId)>,
        limit: usize,
    ) -> Result<Vec<(Emoji, UserId)>>;

    /// Looks at the next piece of everything: whether what follows from messages and people, which are the truth, agrees with them. Heads,
    /// counts, lists of inboxes, pairs, and on a cluster the index of buckets. What does not is found, and with `repair` made so.
    async fn verify(&self, after: Option<&VerifyPosition>, repair: bool) -> Result<Verified>;

    /// Something an importer wants to find again, such as how far it came. Kept with the next or an earlier import, never before it.
    async fn note(&self, name: &str) -> Result<Option<String>>;
    async fn set_note(&self, name: &str, value: Option<&str>) -> Result<()>;

    /// Keeps a note where there is none of this name (compare-and-set), and answers with the one that is kept: of all who ask at the same
    /// moment, on whichever server, everyone gets the same. Such a note is never removed.
    async fn note_once(&self, name: &str, value: &str) -> Result<String>;

    /// Whether the store takes writes: `Err` says in one sentence why not.
    fn health(&self) -> Result<(), String>;

    /// Ends the store in order: what was acknowledged is on disk. Nothing may be asked of it after that.
    async fn close(&self) -> Result<()>;
}
