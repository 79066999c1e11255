//! The store on Apache Cassandra or ScyllaDB: the same contract as the embedded one, on a cluster that many servers share.
//!
//! Six folders; each uses only the ones after it: `admin → send → inbox → participant → message → driver`.
//!
//! - `admin`: import, export and verification of the whole store.
//! - `send`: live writes, each acknowledged once the other servers can find it.
//! - `inbox`: entries, the index of them by activity, and what changed.
//! - `participant`: memberships, the roster of a conversation, and profiles.
//! - `message`: history in its buckets, counts, and heads of conversations.
//! - `driver`: CQL and tables: connection, statements, values, schema and migrations.
//!
//! Portable CQL only: no ALLOW FILTERING, index, view, counter or function; explicit columns; the test in `driver::statements_test` reads them all.

mod admin;
mod driver;
mod inbox;
mod message;
mod participant;
mod send;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use scylla::client::session::Session;
use scylla::errors::PrepareError;
use tokio::task::AbortHandle;

pub use self::driver::address::{Address, AddressError};
use self::driver::clock_skew::Skew;
use self::driver::executor::Cluster;
pub use self::driver::migrate::{Migrated, migrate};
use self::driver::statement::Profiles;
use self::inbox::row::Crowded;
use self::message::bucket_index::Index;
use self::message::head_cache::Heads;
use self::send::writer_cache::Known;
use super::{
    Appended, Audience, ChangedRow, Created, EarlierSend, FlagsChange, ImportPlaces, ImportRow, Imported, MarkerMove, Members,
    MembershipChange, NewConversation, NewMessage, ProfileChange, Renaming, Result, Revised, Seat, Store, StoredMessage, UnreadQuestion,
    Verified, VerifyPlace, Wake,
};
use crate::clock::{Clock, IdGenerator};
use crate::model::{
    Change, ChangeId, Conversation, ConversationId, Cut, Emoji, Flags, IdempotencyKey, InboxKey, InboxRow, Membership, Message, MessageId,
    OrderKey, Page, PageRequest, Participant, Profile, Reaction, Revision, TimeUuid, Timestamp, Unread, UserId,
};

/// Events may become visible so long after their ids, or are logged as late: a stream looks back so far.
const OVERLAP_MICROS: i64 = 10_000_000;

/// Why a cluster is not served.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{address} is not to be reached: {source}")]
    Connect {
        address: String,
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
    NotMigrated { address: String },
    #[error("{address} was migrated by a newer wideroom than this one, which knows version {version}: upgrade this server")]
    Newer { address: String, version: i32 },
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
    skew: AbortHandle,
}

struct Inner {
    address: Address,
    cluster: Cluster,
    clock: Arc<dyn Clock>,
    skew: Skew,
    statements: Statements,
    crowded: Crowded,
    filling: admin::import_message::Filling,
    heads: Heads,
    index: Index,
    known: Known,
    /// Of wakes, which no stream passes.
    wake_ids: IdGenerator,
    /// Of wakes that this server follows too.
    common_wake_ids: IdGenerator,
}

/// All statements, by the file that has their texts.
macro_rules! statement_groups {
    ($($group:ident: $folder:ident::$file:ident),+ $(,)?) => {
        struct Statements { $($group: $folder::$file::Statements,)+ }

        impl Statements {
            #[cfg(test)]
            const GROUPS: &[(&str, &[(&str, &str)])] = &[$((stringify!($group), $folder::$file::Statements::ALL),)+];

            async fn prepare(session: &Session, profiles: &Profiles) -> Result<Self, PrepareError> {
                Ok(Self { $($group: $folder::$file::Statements::prepare(session, profiles).await?,)+ })
            }
        }
    };
}

statement_groups! {
    append: send::append,
    claim: send::idempotency,
    conversation: send::creation,
    count: message::count,
    entry: send::entry,
    export: admin::export,
    head: message::head_cache,
    hint: inbox::activity_index,
    history: message::history,
    import: admin::import,
    import_message: admin::import_message,
    import_write: admin::import_write,
    inbox: inbox::page,
    inbox_change: inbox::changes,
    inbox_row: inbox::row,
    index: message::bucket_index,
    joining: participant::writes,
    known: send::writer_cache,
    membership: send::membership,
    message_row: message::row,
    participant: participant::page,
    profile: participant::profile,
    raise: inbox::writes,
    reaction: message::reaction,
    revision: send::revision,
    roster: participant::roster,
    skew: driver::clock_skew,
    verify: admin::verify,
    verify_conversation: admin::verify_conversation,
    wake: send::remote_write,
}

impl Cql {
    /// Connects to a cluster whose keyspace was migrated.
    pub async fn open(address: Address, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let session = driver::connect::connect(&address, driver::connect::KEEPALIVE_MAX).await?;
        driver::migrate::check(&session, &address).await?;
        let profiles = driver::connect::profiles(&address);
        let statements = Statements::prepare(&session, &profiles).await.map_err(|error| OpenError::Prepare { source: Box::new(error) })?;
        let cluster = Cluster::new(session, profiles);
        let inner = Arc::new(Inner {
            address,
            cluster,
            clock,
            skew: Skew::default(),
            statements,
            heads: Heads::new(),
            crowded: Crowded::new(),
            filling: admin::import_message::Filling::new(),
            index: Index::new(),
            known: Known::new(),
            wake_ids: IdGenerator::random(),
            common_wake_ids: IdGenerator::random(),
        });
        let skew = driver::clock_skew::spawn(&inner);
        Ok(Self { inner, skew })
    }

    /// How many statements were sent since it was opened: what a question costs, to tests and benchmarks.
    pub fn statements_sent(&self) -> u64 {
        self.inner.cluster.statements()
    }
}

impl Drop for Cql {
    fn drop(&mut self) {
        self.skew.abort();
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
        send::creation::seats(&self.inner, viewer, conversations).await
    }

    async fn direct_conversation(&self, one: &UserId, other: &UserId) -> Result<Option<ConversationId>> {
        send::creation::direct_conversation(&self.inner, one, other).await
    }

    async fn create_conversation(&self, new: &NewConversation) -> Result<Created> {
        send::creation::create_conversation(&self.inner, new).await
    }

    async fn participants(&self, conversation: ConversationId, page: &PageRequest<UserId>) -> Result<Page<Participant>> {
        participant::page::participants(&self.inner, conversation, page).await
    }

    async fn participants_by_name(&self, keys: &[(ConversationId, UserId)]) -> Result<Vec<Option<Participant>>> {
        participant::page::participants_by_name(&self.inner, keys).await
    }

    async fn participant_counts(&self, conversations: &[ConversationId]) -> Result<Vec<u64>> {
        participant::page::participant_counts(&self.inner, conversations).await
    }

    async fn members(&self, conversation: ConversationId, users: &[UserId]) -> Result<Option<Members>> {
        send::membership::members(&self.inner, conversation, users).await
    }

    async fn change_membership(&self, conversation: ConversationId, change: &MembershipChange) -> Result<Option<Audience>> {
        send::membership::change_membership(&self.inner, conversation, change).await
    }

    async fn rename_conversation(&self, conversation: ConversationId, to: &Renaming) -> Result<Audience> {
        send::membership::rename_conversation(&self.inner, conversation, to).await
    }

    async fn append_messages(&self, conversation: ConversationId, messages: &[NewMessage]) -> Result<Appended> {
        send::append::append_messages(&self.inner, conversation, messages).await
    }

    async fn revise_message(&self, conversation: ConversationId, revision: &Revision, change: &Change) -> Result<Option<Revised>> {
        send::revision::revise_message(&self.inner, conversation, revision, change).await
    }

    async fn react(&self, conversation: ConversationId, emoji: &Emoji, is_on: bool, change: &Change) -> Result<Option<Arc<Message>>> {
        message::reaction::react(&self.inner, conversation, emoji, is_on, change).await
    }

    async fn reactions(&self, viewer: &UserId, messages: &[(ConversationId, MessageId)]) -> Result<Vec<Vec<Reaction>>> {
        message::reaction::reactions(&self.inner, viewer, messages).await
    }

    async fn changes(&self, conversation: ConversationId, after: OrderKey, limit: usize) -> Result<Vec<Change>> {
        send::revision::changes(&self.inner, conversation, after, limit).await
    }

    async fn log_late(&self, conversation: ConversationId, changes: &[Change]) -> Result<()> {
        send::revision::log_late(&self.inner, conversation, changes).await
    }

    async fn wakes(&self, since: Timestamp) -> Result<Vec<Wake>> {
        send::remote_write::wakes(&self.inner, since).await
    }

    async fn earlier_sends(&self, conversation: ConversationId, keys: &[(UserId, IdempotencyKey)]) -> Result<Vec<Option<EarlierSend>>> {
        send::idempotency::earlier_sends(&self.inner, conversation, keys).await
    }

    async fn history(&self, conversation: ConversationId, cut: &Cut<OrderKey>, page: &PageRequest<OrderKey>) -> Result<Page<Arc<Message>>> {
        message::history::history(&self.inner, conversation, cut, page).await
    }

    async fn messages(&self, keys: &[(ConversationId, MessageId)]) -> Result<Vec<Option<Arc<Message>>>> {
        message::history::messages(&self.inner, keys).await
    }

    async fn messages_at(&self, places: &[(ConversationId, OrderKey)]) -> Result<Vec<Option<Arc<Message>>>> {
        message::history::messages_at(&self.inner, places).await
    }

    async fn last_messages(&self, conversations: &[ConversationId]) -> Result<Vec<Option<MessageId>>> {
        message::history::last_messages(&self.inner, conversations).await
    }

    async fn newest_events(&self, conversations: &[ConversationId]) -> Result<Vec<Option<TimeUuid>>> {
        message::history::newest_events(&self.inner, conversations).await
    }

    async fn message_counts(&self, conversations: &[ConversationId]) -> Result<Vec<u64>> {
        message::count::message_counts(&self.inner, conversations).await
    }

    async fn inbox(&self, user: &UserId, page: &PageRequest<InboxKey>) -> Result<Page<InboxRow>> {
        inbox::page::inbox(&self.inner, user, page).await
    }

    async fn inbox_rows(&self, user: &UserId, conversations: &[ConversationId]) -> Result<Vec<Option<InboxRow>>> {
        inbox::page::inbox_rows(&self.inner, user, conversations).await
    }

    async fn inbox_changes(&self, user: &UserId, after: OrderKey, limit: usize) -> Result<Option<Vec<ChangedRow>>> {
        inbox::changes::inbox_changes(&self.inner, user, after, limit).await
    }

    async fn inbox_log(&self, user: &UserId, after: OrderKey) -> Result<Option<Vec<(ChangeId, ConversationId)>>> {
        inbox::changes::inbox_log(&self.inner, user, after).await
    }

    async fn conversation_count(&self, user: &UserId, limit: usize) -> Result<usize> {
        inbox::row::conversation_count(&self.inner, user, limit).await
    }

    async fn large_conversations(&self, user: &UserId) -> Result<Vec<ConversationId>> {
        inbox::page::large_conversations(&self.inner, user).await
    }

    async fn unread(&self, user: &UserId, questions: &[UnreadQuestion], cap: u32) -> Result<Vec<Unread>> {
        message::history::unread(&self.inner, user, questions, cap).await
    }

    async fn move_read_marker(&self, user: &UserId, to: &MarkerMove) -> Result<()> {
        send::entry::move_read_marker(&self.inner, user, to).await
    }

    async fn mark_delivered(&self, user: &UserId, conversation: ConversationId, up_to: OrderKey) -> Result<()> {
        send::entry::mark_delivered(&self.inner, user, conversation, up_to).await
    }

    async fn receivers(
        &self,
        conversation: ConversationId,
        message: MessageId,
        sender: &UserId,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        participant::page::receivers(&self.inner, conversation, message, sender, page).await
    }

    async fn set_flags(&self, user: &UserId, to: &FlagsChange) -> Result<Option<Flags>> {
        send::entry::set_flags(&self.inner, user, to).await
    }

    async fn profiles(&self, users: &[UserId]) -> Result<Vec<Option<Profile>>> {
        participant::profile::profiles(&self.inner, users).await
    }

    async fn change_profile(&self, user: &UserId, to: &ProfileChange) -> Result<()> {
        participant::profile::change_profile(&self.inner, user, to).await
    }

    async fn mark_seen(&self, user: &UserId, at: Timestamp) -> Result<()> {
        participant::profile::mark_seen(&self.inner, user, at).await
    }

    async fn import(&self, rows: &[ImportRow]) -> Result<Vec<Imported>> {
        admin::import::import(&self.inner, rows).await
    }

    async fn all_users(&self, after: Option<&UserId>, limit: usize) -> Result<Vec<(UserId, Profile)>> {
        admin::export::users(&self.inner, after, limit).await
    }

    async fn all_conversations(&self, after: Option<ConversationId>, limit: usize) -> Result<Vec<(Conversation, Option<Timestamp>)>> {
        admin::export::conversations(&self.inner, after, limit).await
    }

    async fn all_participants(
        &self,
        conversation: ConversationId,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<(UserId, Membership, ImportPlaces)>> {
        admin::export::participants(&self.inner, conversation, after, limit).await
    }

    async fn all_messages(&self, conversation: ConversationId, after: Option<MessageId>, limit: usize) -> Result<Vec<StoredMessage>> {
        admin::export::messages(&self.inner, conversation, after, limit).await
    }

    async fn all_reactions(
        &self,
        conversation: ConversationId,
        message: MessageId,
        after: Option<&(Emoji, UserId)>,
        limit: usize,
    ) -> Result<Vec<(Emoji, UserId)>> {
        admin::export::reactions(&self.inner, conversation, message, after, limit).await
    }

    async fn verify(&self, after: Option<&VerifyPlace>, repair: bool) -> Result<Verified> {
        admin::verify::verify(&self.inner, after, repair).await
    }

    async fn note(&self, name: &str) -> Result<Option<String>> {
        participant::profile::note(&self.inner, name).await
    }

    async fn set_note(&self, name: &str, value: Option<&str>) -> Result<()> {
        participant::profile::set_note(&self.inner, name, value).await
    }

    async fn note_once(&self, name: &str, value: &str) -> Result<String> {
        participant::profile::note_once(&self.inner, name, value).await
    }

    async fn close(&self) -> Result<()> {
        self.inner.cluster.close();
        Ok(())
    }

    fn health(&self) -> Result<(), String> {
        self.inner.skew.health()
    }
}
