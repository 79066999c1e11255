//! The store on Apache Cassandra or ScyllaDB: the same contract as the embedded one, on a cluster that many servers share.
//!
//! - `address` and `connect`: where the cluster is, and what the driver is told.
//! - `schema` and `migrate`: the tables, and how they come to be.
//! - `statement`, `cell` and `cluster`: statements, their values, and how they are executed.
//! - Each question to the store in a file of its subject, with its statements: `conversation`, `append`, `history`, `revision`, `inbox`,
//!   `entry`, `profile`, `import`, `wake`. What several of them write is in `message_row` and `raise`.
//!
//! Portable CQL only: no ALLOW FILTERING, index, view, counter or function; explicit columns; the test in `statements_test` reads them all.

mod address;
mod append;
mod bucket;
mod cell;
mod cluster;
mod connect;
mod conversation;
mod entry;
mod error;
mod history;
mod import;
mod inbox;
mod membership;
mod message_row;
mod migrate;
mod profile;
mod raise;
mod reaction;
mod register;
mod revision;
mod schema;
mod statement;
#[cfg(test)]
mod statements_test;
mod wake;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

pub use self::address::{Address, AddressError};
use self::cluster::Cluster;
pub use self::migrate::{Migrated, migrate};
use super::{
    Appended, Audience, ChangedRow, Created, EarlierSend, FlagsChange, ImportRow, Imported, MarkerMove, Members, MembershipChange,
    NewConversation, NewMessage, ProfileChange, Renaming, Result, Revised, Seat, Store, UnreadQuestion, Wake,
};
use crate::clock::Clock;
use crate::model::{
    Change, ConversationId, Cut, Emoji, Flags, IdempotencyKey, InboxKey, InboxRow, Message, MessageId, OrderKey, Page, PageRequest, Participant,
    Profile, Reaction, Revision, TimeUuid, Timestamp, Unread, UserId,
};

/// Events may become visible so long after their ids, or are logged as late: a stream looks back so far.
const OVERLAP_MICROS: i64 = 10_000_000;

/// Why a cluster is not served.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{address} is not to be reached: {source}")]
    Connect {
        address: Address,
        #[source]
        source: super::Cause,
    },
    #[error("the root certificates cannot be read: {source}")]
    Roots {
        #[source]
        source: super::Cause,
    },
    #[error("the tables could not be made: {source}")]
    Migrate {
        #[source]
        source: super::Cause,
    },
    #[error(
        "the cluster has more than one data centre, or not the one that was named ({names}): name yours in the address, as in ?dc=NAME"
    )]
    DataCentre { names: String },
    #[error("{replication} replicas want as many nodes, and {data_centre} has {nodes}")]
    Replication { replication: usize, nodes: usize, data_centre: String },
    #[error("{address} lacks tables of this version: run `wideroom migrate --store {address}` first")]
    NotMigrated { address: Address },
    #[error("{address} was migrated by a newer wideroom than this one, which knows version {version}: upgrade this server")]
    Newer { address: Address, version: i32 },
    #[error("the tables of version {version} are not those of this wideroom: is the keyspace another program's?")]
    OtherSchema { version: i32 },
    #[error("a statement could not be prepared: {source}")]
    Prepare {
        #[source]
        source: super::Cause,
    },
}

/// The store on a cluster.
pub struct Cql {
    inner: Arc<Inner>,
}

struct Inner {
    address: Address,
    cluster: Cluster,
    clock: Arc<dyn Clock>,
    statements: Statements,
}

/// All statements, by the file that has their texts.
struct Statements {
    append: append::Statements,
    conversation: conversation::Statements,
    entry: entry::Statements,
    history: history::Statements,
    import: import::Statements,
    inbox: inbox::Statements,
    membership: membership::Statements,
    message_row: message_row::Statements,
    profile: profile::Statements,
    raise: raise::Statements,
    reaction: reaction::Statements,
    revision: revision::Statements,
    wake: wake::Statements,
}

impl Cql {
    /// Connects to a cluster whose keyspace was migrated.
    pub async fn open(address: Address, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let session = connect::connect(&address).await?;
        migrate::check(&session, &address).await?;
        let profiles = connect::profiles(&address);
        let prepared = |error: scylla::errors::PrepareError| OpenError::Prepare { source: Box::new(error) };
        let statements = Statements {
            append: append::Statements::prepare(&session, &profiles).await.map_err(prepared)?,
            conversation: conversation::Statements::prepare(&session, &profiles).await.map_err(prepared)?,
            entry: entry::Statements::prepare(&session, &profiles).await.map_err(prepared)?,
            history: history::Statements::prepare(&session, &profiles).await.map_err(prepared)?,
            import: import::Statements::prepare(&session, &profiles).await.map_err(prepared)?,
            inbox: inbox::Statements::prepare(&session, &profiles).await.map_err(prepared)?,
            membership: membership::Statements::prepare(&session, &profiles).await.map_err(prepared)?,
            message_row: message_row::Statements::prepare(&session, &profiles).await.map_err(prepared)?,
            profile: profile::Statements::prepare(&session, &profiles).await.map_err(prepared)?,
            raise: raise::Statements::prepare(&session, &profiles).await.map_err(prepared)?,
            reaction: reaction::Statements::prepare(&session, &profiles).await.map_err(prepared)?,
            revision: revision::Statements::prepare(&session, &profiles).await.map_err(prepared)?,
            wake: wake::Statements::prepare(&session, &profiles).await.map_err(prepared)?,
        };
        let cluster = Cluster::new(session, profiles);
        Ok(Self { inner: Arc::new(Inner { address, cluster, clock, statements }) })
    }
}

impl fmt::Display for Cql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.address.fmt(f)
    }
}

#[async_trait]
impl Store for Cql {
    fn overlap_micros(&self) -> i64 {
        OVERLAP_MICROS
    }

    /// Each conversation's queue looks for its own, as other servers give ids too.
    async fn newest_id(&self) -> Result<Option<TimeUuid>> {
        Ok(None)
    }

    async fn seats(&self, viewer: &UserId, conversations: &[ConversationId]) -> Result<Vec<Option<Seat>>> {
        conversation::seats(&self.inner, viewer, conversations).await
    }

    async fn direct_conversation(&self, one: &UserId, other: &UserId) -> Result<Option<ConversationId>> {
        conversation::direct_conversation(&self.inner, one, other).await
    }

    async fn create_conversation(&self, new: &NewConversation) -> Result<Created> {
        conversation::create_conversation(&self.inner, new).await
    }

    async fn participants(&self, conversation: ConversationId, page: &PageRequest<UserId>) -> Result<Page<Participant>> {
        conversation::participants(&self.inner, conversation, page).await
    }

    async fn participants_by_name(&self, keys: &[(ConversationId, UserId)]) -> Result<Vec<Option<Participant>>> {
        conversation::participants_by_name(&self.inner, keys).await
    }

    async fn participant_counts(&self, conversations: &[ConversationId]) -> Result<Vec<u64>> {
        conversation::participant_counts(&self.inner, conversations).await
    }

    async fn members(&self, conversation: ConversationId, users: &[UserId]) -> Result<Option<Members>> {
        membership::members(&self.inner, conversation, users).await
    }

    async fn change_membership(&self, conversation: ConversationId, change: &MembershipChange) -> Result<Option<Audience>> {
        membership::change_membership(&self.inner, conversation, change).await
    }

    async fn rename_conversation(&self, conversation: ConversationId, to: &Renaming) -> Result<Audience> {
        membership::rename_conversation(&self.inner, conversation, to).await
    }

    async fn append_messages(&self, conversation: ConversationId, messages: &[NewMessage]) -> Result<Appended> {
        append::append_messages(&self.inner, conversation, messages).await
    }

    async fn revise_message(&self, conversation: ConversationId, revision: &Revision, change: &Change) -> Result<Option<Revised>> {
        revision::revise_message(&self.inner, conversation, revision, change).await
    }

    async fn react(&self, conversation: ConversationId, emoji: &Emoji, is_on: bool, change: &Change) -> Result<Option<Arc<Message>>> {
        reaction::react(&self.inner, conversation, emoji, is_on, change).await
    }

    async fn reactions(&self, viewer: &UserId, messages: &[(ConversationId, MessageId)]) -> Result<Vec<Vec<Reaction>>> {
        reaction::reactions(&self.inner, viewer, messages).await
    }

    async fn changes(&self, conversation: ConversationId, after: OrderKey, limit: usize) -> Result<Vec<Change>> {
        revision::changes(&self.inner, conversation, after, limit).await
    }

    async fn log_late(&self, conversation: ConversationId, changes: &[Change]) -> Result<()> {
        revision::log_late(&self.inner, conversation, changes).await
    }

    async fn wakes(&self, since: Timestamp) -> Result<Vec<Wake>> {
        wake::wakes(&self.inner, since).await
    }

    async fn earlier_sends(&self, conversation: ConversationId, keys: &[(UserId, IdempotencyKey)]) -> Result<Vec<Option<EarlierSend>>> {
        append::earlier_sends(&self.inner, conversation, keys).await
    }

    async fn history(&self, conversation: ConversationId, cut: &Cut<OrderKey>, page: &PageRequest<OrderKey>) -> Result<Page<Arc<Message>>> {
        history::history(&self.inner, conversation, cut, page).await
    }

    async fn messages(&self, keys: &[(ConversationId, MessageId)]) -> Result<Vec<Option<Arc<Message>>>> {
        history::messages(&self.inner, keys).await
    }

    async fn messages_at(&self, places: &[(ConversationId, OrderKey)]) -> Result<Vec<Option<Arc<Message>>>> {
        history::messages_at(&self.inner, places).await
    }

    async fn last_messages(&self, conversations: &[ConversationId]) -> Result<Vec<Option<MessageId>>> {
        history::last_messages(&self.inner, conversations).await
    }

    async fn newest_events(&self, conversations: &[ConversationId]) -> Result<Vec<Option<TimeUuid>>> {
        history::newest_events(&self.inner, conversations).await
    }

    async fn message_counts(&self, conversations: &[ConversationId]) -> Result<Vec<u64>> {
        history::message_counts(&self.inner, conversations).await
    }

    async fn inbox(&self, user: &UserId, page: &PageRequest<InboxKey>) -> Result<Page<InboxRow>> {
        inbox::inbox(&self.inner, user, page).await
    }

    async fn inbox_rows(&self, user: &UserId, conversations: &[ConversationId]) -> Result<Vec<Option<InboxRow>>> {
        inbox::inbox_rows(&self.inner, user, conversations).await
    }

    async fn inbox_changes(&self, user: &UserId, after: OrderKey, limit: usize) -> Result<Option<Vec<ChangedRow>>> {
        inbox::inbox_changes(&self.inner, user, after, limit).await
    }

    async fn large_conversations(&self, user: &UserId) -> Result<Vec<ConversationId>> {
        inbox::large_conversations(&self.inner, user).await
    }

    async fn unread(&self, user: &UserId, questions: &[UnreadQuestion], cap: u32) -> Result<Vec<Unread>> {
        history::unread(&self.inner, user, questions, cap).await
    }

    async fn move_read_marker(&self, user: &UserId, to: &MarkerMove) -> Result<()> {
        entry::move_read_marker(&self.inner, user, to).await
    }

    async fn mark_delivered(&self, user: &UserId, conversation: ConversationId, up_to: OrderKey) -> Result<()> {
        entry::mark_delivered(&self.inner, user, conversation, up_to).await
    }

    async fn receivers(
        &self,
        conversation: ConversationId,
        message: MessageId,
        sender: &UserId,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        conversation::receivers(&self.inner, conversation, message, sender, page).await
    }

    async fn set_flags(&self, user: &UserId, to: &FlagsChange) -> Result<Option<Flags>> {
        entry::set_flags(&self.inner, user, to).await
    }

    async fn profiles(&self, users: &[UserId]) -> Result<Vec<Option<Profile>>> {
        profile::profiles(&self.inner, users).await
    }

    async fn change_profile(&self, user: &UserId, to: &ProfileChange) -> Result<()> {
        profile::change_profile(&self.inner, user, to).await
    }

    async fn mark_seen(&self, user: &UserId, at: Timestamp) -> Result<()> {
        profile::mark_seen(&self.inner, user, at).await
    }

    async fn import(&self, rows: &[ImportRow]) -> Result<Vec<Imported>> {
        import::import(&self.inner, rows).await
    }

    async fn note(&self, name: &str) -> Result<Option<String>> {
        profile::note(&self.inner, name).await
    }

    async fn set_note(&self, name: &str, value: Option<&str>) -> Result<()> {
        profile::set_note(&self.inner, name, value).await
    }

    async fn close(&self) -> Result<()> {
        self.inner.cluster.close();
        Ok(())
    }

    fn health(&self) -> Result<(), String> {
        Ok(())
    }
}
