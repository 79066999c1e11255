//! The cluster's directory and mailboxes: which servers run, which users and conversations each of
//! them serves, and the notices that they leave for each other.
//!
//! Only a store that several servers share has them ([`super::Store::cluster`]). The store holds
//! rows and knows no rule of delivery; those are in the module `cluster`.
//!
//! Invariant: a write that returned `Ok` is seen by every read that begins later (both at a
//! quorum). The handshake between a sender that keeps its event and then reads the directory, and a
//! listener that registers and then reads the events, rests on this alone.
//!
//! Invariant: of two writes of one row the one with the later [`WriteTime`] wins, whatever their
//! order of arrival.

use std::sync::{Arc, Weak};
use std::time::Duration;

use uuid::Uuid;

use super::{Audience, StoreFuture};
use crate::clock::Clock;
use crate::model::{
    Change, ChangeId, ConversationId, IdempotencyKey, Message, MessageId, OrderKey, TimeUuid,
    Timestamp, UserId,
};

/// Greatest difference of a server's clock that the server corrects. With a greater one, tokens and the times that users see would be
/// wrong, too: the server refuses writes until its clock is set.
pub const SKEW_MAX: Duration = Duration::from_secs(2);
/// Longest attempt of a write, for which the bounds of what is read again, and of what counts as late, are made. An address has no `timeout`
/// that allows for a longer one.
pub const WRITE_ATTEMPT_MAX: Duration = Duration::from_millis(10_500);
/// How far before its cursor a resumed stream reads back on a shared store.
pub const READ_BACK: Duration = Duration::from_secs(10);
/// Time within which a server finds the wrong clock of a node, in a cluster whose nodes it compares in each round.
pub const CLOCK_FAULT_FOUND_WITHIN: Duration = Duration::from_secs(3);

/// Interval of the beats of a server.
pub const BEAT_EVERY: Duration = Duration::from_secs(3);
/// Life of a server's row, and of a registration, in seconds. Each is renewed before.
pub const SERVER_ROW_SECONDS: u64 = 25 * 3_600;
pub const REGISTRATION_SECONDS: u64 = 24 * 3_600;

/// Identity of one server process. It is random, and no process ever uses it again.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct ServerId(pub Uuid);

impl ServerId {
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl std::fmt::Display for ServerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.0.simple(), f)
    }
}

/// Write timestamp of a row of the directory, in microseconds. Each process takes them from one
/// ascending counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteTime(pub i64);

/// Life cycle of a server, as its row says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerState {
    Running,
    /// The server was ended: nothing that is addressed to it is ever read. This state is final.
    Ended,
    /// There is no row. A peer treats the server as running; the server itself registers under a
    /// new identity.
    Missing,
}

/// Time of one node of the cluster, when it answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeTime {
    pub node: Uuid,
    pub now: Timestamp,
}

/// Heartbeat of a server: a number that it raises every few seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    pub server: ServerId,
    pub number: i64,
}

/// Reason for which a server is registered at a user. Stores persist the index in this list, so
/// never reorder it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SessionKind {
    /// The user has a socket or a stream there.
    Present,
    /// A stream there delivers the user's events. That makes nobody present: a service may act as
    /// the user.
    Acting,
    /// A client there follows the presence of this user.
    Follows,
}

impl SessionKind {
    pub const ALL: [Self; 3] = [Self::Present, Self::Acting, Self::Follows];

    pub const fn number(self) -> i8 {
        match self {
            Self::Present => 0,
            Self::Acting => 1,
            Self::Follows => 2,
        }
    }

    /// `None` for a kind of a later version.
    pub fn from_number(number: i8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }
}

/// Registration of a server at a user.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session {
    pub user: UserId,
    pub kind: SessionKind,
    pub server: ServerId,
}

/// One of the four partitions over which the notices for a server are spread, so that one that
/// cannot be written delays nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MailboxLane(u8);

impl MailboxLane {
    pub const COUNT: usize = 4;

    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self)
    }

    /// The lanes in turn, beginning with the one of this number.
    pub fn from(number: usize) -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(move |step| Self(((number + step) % Self::COUNT) as u8))
    }

    pub const fn index(self) -> usize {
        self.0 as usize
    }

    pub const fn number(self) -> i8 {
        self.0.cast_signed()
    }
}

/// Notice as it lies in a mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailboxRow {
    /// Time of the attempt to write it, by the sender's clock. Each attempt has a fresh one.
    pub id: TimeUuid,
    pub payload: Vec<u8>,
}

/// Row by which a server asks for notices.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Registration {
    Session(UserId, SessionKind),
    /// A stream there follows this large conversation.
    Listener(ConversationId),
}

/// Send with an idempotency key, and its message.
#[derive(Debug, Clone)]
pub struct KeyedSend {
    pub conversation: ConversationId,
    pub sender: UserId,
    pub key: IdempotencyKey,
    pub message: MessageId,
}

/// Change of a membership that another server decided, and this one completed.
#[derive(Debug, Clone)]
pub struct CompletedChange {
    pub conversation: ConversationId,
    pub changes: Vec<Change>,
    /// The SYSTEM message of the change, if one announces it.
    pub message: Option<Arc<Message>>,
    /// Users who joined or left.
    pub moved: Vec<UserId>,
}

/// Owner of the events of changes that the store completes by itself, because the server that
/// began them has died, and of the notices of growth.
pub trait CompletionHandler: Send + Sync + 'static {
    /// A conversation has become large by this change, which is not settled yet. Once every server with
    /// a session of a participant was notified, the handler calls [`ClusterStore::settle_growth`].
    fn on_growth(&self, conversation: ConversationId, change: ChangeId, participants: Vec<UserId>);

    fn on_change_completed(&self, change: CompletedChange);

    /// A conversation that another server began to create exists now.
    fn on_creation_completed(
        &self,
        conversation: ConversationId,
        change: ChangeId,
        participants: Vec<UserId>,
    );
}

/// The directory and the mailboxes of a cluster. All rows expire, so that what a dead server leaves
/// behind is bounded.
pub trait ClusterStore: Send + Sync + 'static {
    /// Creates or renews the row of a server, with the version of its store, for 25 hours. It never
    /// changes whether the server has ended.
    fn put_server(&self, server: ServerId, at: WriteTime) -> StoreFuture<'_, ()>;

    fn server(&self, server: ServerId) -> StoreFuture<'_, ServerState>;

    /// The same, with the time of the node that answered. A missing row has none.
    fn server_and_time(&self, server: ServerId)
    -> StoreFuture<'_, (ServerState, Option<NodeTime>)>;

    /// Ends a server, for good.
    fn end_server(&self, server: ServerId, at: WriteTime) -> StoreFuture<'_, ()>;

    /// Writes the heartbeat of a server. It expires after a minute.
    fn put_beat(&self, beat: Beat, at: WriteTime) -> StoreFuture<'_, ()>;

    fn delete_beat(&self, server: ServerId, at: WriteTime) -> StoreFuture<'_, ()>;

    fn beats(&self) -> StoreFuture<'_, Vec<Beat>>;

    /// Registers a server, for 24 hours.
    fn register<'a>(
        &'a self,
        server: ServerId,
        registration: &'a Registration,
        at: WriteTime,
    ) -> StoreFuture<'a, ()>;

    /// Removes a registration that is older than this.
    fn unregister<'a>(
        &'a self,
        server: ServerId,
        registration: &'a Registration,
        at: WriteTime,
    ) -> StoreFuture<'a, ()>;

    /// The participants of a conversation, read after the call, or `None` for a large one. While a
    /// conversation becomes large, its participants are still the answer.
    fn recipients(&self, conversation: ConversationId) -> StoreFuture<'_, Audience>;

    /// Settles the change by which a conversation became large. From then on senders notify the listeners
    /// of the conversation instead of its participants.
    fn settle_growth(&self, conversation: ConversationId, change: ChangeId) -> StoreFuture<'_, ()>;

    /// Notes beside an idempotency key that its message was delivered after a retry: another retry
    /// is only answered (see [`EarlierSend`](crate::store::EarlierSend)).
    fn note_delivered<'a>(&'a self, send: &'a KeyedSend) -> StoreFuture<'a, ()>;

    /// Sets the owner of the events of changes that this store completes. The first one stays.
    fn set_completion_handler(&self, handler: Weak<dyn CompletionHandler>);

    /// Sets the clock of the cluster's time, by which the store goes from then on. By the wall clock of a
    /// server that is ahead, a count would stand for messages that others still write, and a log would
    /// be written where others do not read it.
    fn follow_clock(&self, clock: Weak<dyn Clock>);

    /// Sessions of these users, of every kind and of ended servers too, in no order.
    fn sessions<'a>(&'a self, users: &'a [UserId]) -> StoreFuture<'a, Vec<Session>>;

    /// Servers with a stream of this large conversation, ended ones too.
    fn listeners(&self, conversation: ConversationId) -> StoreFuture<'_, Vec<ServerId>>;

    /// Leaves a notice in one lane of a server's mailbox, for five minutes.
    fn put_notice<'a>(
        &'a self,
        server: ServerId,
        lane: MailboxLane,
        row: &'a MailboxRow,
    ) -> StoreFuture<'a, ()>;

    /// Notices in a lane whose ids lie after one position and not after another, in their order.
    fn notices(
        &self,
        server: ServerId,
        lane: MailboxLane,
        after: OrderKey,
        up_to: OrderKey,
    ) -> StoreFuture<'_, Vec<MailboxRow>>;

    /// How often this server has found that the clock of a node is wrong. Notices may be lost, which
    /// the node has written until this server and the others found it.
    fn clock_faults(&self) -> usize;
}
