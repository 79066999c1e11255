//! The store on Apache Cassandra or ScyllaDB: the same contract as the embedded one, on a cluster that many servers share.
//!
//! - `address` and `connect`: where the cluster is, and what the driver is told.
//! - `schema` and `migrate`: the tables, and how they come to be.
//! - `statement`, `cell` and `cluster`: statements, their values, and how they are executed.
//! - Each question to the store in a file of its subject, with its statements: `conversation`, `participant`, `membership`, `append`,
//!   `history`, `revision`, `inbox`, `inbox_change`, `entry`, `profile`, `import`, `wake`. What several of them write is in `message_row`,
//!   `joining` and `raise`, what several read in `head`, `hint`, `inbox_row` and `roster`.
//! - How a history is read: `index` knows which buckets hold something, `walk` merges them, `count` keeps how many messages there are.
//! - For sends: `width` chooses buckets, `claim` claims idempotency keys, `known` remembers what a send would have to read.
//! - For inboxes: `inbox_row` reads entries, `hint` finds them, `head` knows where large conversations stand.
//! - For all at once: `scan` reads whole tables by their tokens, `export` what an export takes, `verify` looks whether all agrees.
//! - For imports: `import` decides about each row, `import_message` chooses buckets, `import_write` writes.
//!
//! Portable CQL only: no ALLOW FILTERING, index, view, counter or function; explicit columns; the test in `statements_test` reads them all.

mod address;
mod append;
mod bucket;
mod cell;
mod claim;
mod cluster;
mod connect;
mod conversation;
mod count;
mod entry;
mod error;
mod export;
mod head;
mod hint;
mod history;
mod import;
mod import_message;
mod import_write;
mod inbox;
mod inbox_change;
mod inbox_row;
mod index;
mod joining;
mod known;
mod membership;
mod message_row;
mod migrate;
mod participant;
mod profile;
mod raise;
mod ranges;
mod reaction;
mod register;
mod revision;
mod roster;
mod scan;
mod schema;
mod skew;
mod span;
mod statement;
#[cfg(test)]
mod statements_test;
mod verify;
mod verify_conversation;
mod wake;
mod walk;
mod width;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use scylla::client::session::Session;
use scylla::errors::PrepareError;
use tokio::task::AbortHandle;

pub use self::address::{Address, AddressError};
use self::cluster::Cluster;
use self::head::Heads;
use self::inbox_row::Crowded;
use self::index::Index;
use self::known::Known;
pub use self::migrate::{Migrated, migrate};
use self::skew::Skew;
use self::statement::Profiles;
use super::{
    Appended, Audience, ChangedRow, Created, EarlierSend, FlagsChange, ImportPlaces, ImportRow, Imported, MarkerMove, Members,
    MembershipChange, NewConversation, NewMessage, ProfileChange, Renaming, Result, Revised, Seat, Store, UnreadQuestion, Verified,
    VerifyPlace, Wake,
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
    filling: import_message::Filling,
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
    ($($group:ident),+ $(,)?) => {
        struct Statements { $($group: $group::Statements,)+ }

        impl Statements {
            #[cfg(test)]
            const GROUPS: &[(&str, &[(&str, &str)])] = &[$((stringify!($group), $group::Statements::ALL),)+];

            async fn prepare(session: &Session, profiles: &Profiles) -> Result<Self, PrepareError> {
                Ok(Self { $($group: $group::Statements::prepare(session, profiles).await?,)+ })
            }
        }
    };
}

statement_groups! {
    append,
    claim,
    conversation,
    count,
    entry,
    export,
    head,
    hint,
    history,
    import,
    import_message,
    import_write,
    inbox,
    inbox_change,
    inbox_row,
    index,
    joining,
    known,
    membership,
    message_row,
    participant,
    profile,
    raise,
    reaction,
    revision,
    roster,
    skew,
    verify,
    verify_conversation,
    wake,
}

impl Cql {
    /// Connects to a cluster whose keyspace was migrated.
    pub async fn open(address: Address, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let session = connect::connect(&address, connect::KEEPALIVE_MAX).await?;
        migrate::check(&session, &address).await?;
        let profiles = connect::profiles(&address);
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
            filling: import_message::Filling::new(),
            index: Index::new(),
            known: Known::new(),
            wake_ids: IdGenerator::random(),
            common_wake_ids: IdGenerator::random(),
        });
        let skew = skew::spawn(&inner);
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
        conversation::seats(&self.inner, viewer, conversations).await
    }

    async fn direct_conversation(&self, one: &UserId, other: &UserId) -> Result<Option<ConversationId>> {
        conversation::direct_conversation(&self.inner, one, other).await
    }

    async fn create_conversation(&self, new: &NewConversation) -> Result<Created> {
        conversation::create_conversation(&self.inner, new).await
    }

    async fn participants(&self, conversation: ConversationId, page: &PageRequest<UserId>) -> Result<Page<Participant>> {
        participant::participants(&self.inner, conversation, page).await
    }

    async fn participants_by_name(&self, keys: &[(ConversationId, UserId)]) -> Result<Vec<Option<Participant>>> {
        participant::participants_by_name(&self.inner, keys).await
    }

    async fn participant_counts(&self, conversations: &[ConversationId]) -> Result<Vec<u64>> {
        participant::participant_counts(&self.inner, conversations).await
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
        claim::earlier_sends(&self.inner, conversation, keys).await
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
        count::message_counts(&self.inner, conversations).await
    }

    async fn inbox(&self, user: &UserId, page: &PageRequest<InboxKey>) -> Result<Page<InboxRow>> {
        inbox::inbox(&self.inner, user, page).await
    }

    async fn inbox_rows(&self, user: &UserId, conversations: &[ConversationId]) -> Result<Vec<Option<InboxRow>>> {
        inbox::inbox_rows(&self.inner, user, conversations).await
    }

    async fn inbox_changes(&self, user: &UserId, after: OrderKey, limit: usize) -> Result<Option<Vec<ChangedRow>>> {
        inbox_change::inbox_changes(&self.inner, user, after, limit).await
    }

    async fn inbox_log(&self, user: &UserId, after: OrderKey) -> Result<Option<Vec<(ChangeId, ConversationId)>>> {
        inbox_change::inbox_log(&self.inner, user, after).await
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
        participant::receivers(&self.inner, conversation, message, sender, page).await
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

    async fn all_users(&self, after: Option<&UserId>, limit: usize) -> Result<Vec<(UserId, Profile)>> {
        export::users(&self.inner, after, limit).await
    }

    async fn all_conversations(&self, after: Option<ConversationId>, limit: usize) -> Result<Vec<(Conversation, Option<Timestamp>)>> {
        export::conversations(&self.inner, after, limit).await
    }

    async fn all_participants(
        &self,
        conversation: ConversationId,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<(UserId, Membership, ImportPlaces)>> {
        export::participants(&self.inner, conversation, after, limit).await
    }

    async fn all_reactions(
        &self,
        conversation: ConversationId,
        message: MessageId,
        after: Option<&(Emoji, UserId)>,
        limit: usize,
    ) -> Result<Vec<(Emoji, UserId)>> {
        export::reactions(&self.inner, conversation, message, after, limit).await
    }

    async fn verify(&self, after: Option<&VerifyPlace>, repair: bool) -> Result<Verified> {
        verify::verify(&self.inner, after, repair).await
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
        self.inner.skew.health()
    }
}
