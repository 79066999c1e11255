//! Embedded store: an LSM tree in a folder, with one process and one writer.
//!
//! Reads run on blocking threads over a snapshot; a call hops threads once, and a cache hit never.
//! Writes are planned on those threads. The committer takes them with the conditions of their plan
//! (compare-and-set), groups them, syncs once, and acknowledges them.
//! Invariant: a reader sees only what is on disk.

mod admin;
mod cache;
mod conversation;
mod engine;
mod inbox;
mod message;
mod meter;
mod open;
mod read_context;
mod write;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, spawn_blocking};

pub use self::admin::backup::{Copy, CopyError, Pieces};
use self::admin::maintenance::{self, Disk};
use self::admin::{export, import};
use self::cache::state::{State, States};
use self::cache::unread_count::Counts;
use self::engine::committer::{Committer, Condition, Op, Outcome, Write};
use self::engine::db::{Missing, corrupt};
use self::engine::{key, record};
pub use self::open::OpenError;
use self::read_context::ReadContext;
use self::write::{append, membership, reaction, revision};
use super::read_permit::UserReadPermit;
use super::{
    Appended, Audience, ChangedRow, Created, EarlierSend, Error, FlagsChange, ImportPositions,
    ImportRow, Imported, MarkerMove, MembershipChange, MembershipSnapshot, NewConversation,
    NewMessage, Participation, ProfileChange, Renaming, Result, Revised, Store, StoredMessage,
    UnreadQuery, Verified, VerifyPosition, Wake,
};
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::model::{
    Change, Conversation, ConversationId, Cut, Emoji, Flags, IdempotencyKey, InboxKey, InboxRow,
    Membership, Message, MessageId, OrderKey, Page, PageRequest, Participant, Profile, Reaction,
    Revision, TimeUuid, Timestamp, Unread, UserId,
};

/// Concurrent reads.
const READS_MAX: usize = 64;
/// How long a call waits for its turn to read.
const READ_TURN_MAX: Duration = Duration::from_secs(5);
/// Attempts of a compare-and-set before the caller gets an error.
const TRIES_MAX: usize = 8;

#[derive(Debug, Clone)]
pub struct Options {
    pub path: PathBuf,
    /// Size of the engine's row cache. Write buffers come on top.
    pub cache_bytes: u64,
    /// Free disk space below which the store refuses writes.
    pub free_bytes_min: u64,
    /// Opens a store even if it lacks writes that it acknowledged.
    pub accept_loss: bool,
}

impl Options {
    pub const CACHE_BYTES: u64 = 64 << 20;
    pub const FREE_BYTES_MIN: u64 = 1 << 30;

    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            cache_bytes: Self::CACHE_BYTES,
            free_bytes_min: Self::FREE_BYTES_MIN,
            accept_loss: false,
        }
    }
}

/// The embedded store. Dropping it without [`Store::close`] loses no acknowledged write.
pub struct Embedded {
    inner: Arc<Inner>,
    upkeep: AbortHandle,
}

struct Inner {
    path: PathBuf,
    committer: Committer,
    core: Arc<ReadContext>,
    disk: Arc<Disk>,
    turns: Arc<Semaphore>,
    /// Permits one backup at a time.
    copies: Arc<Semaphore>,
    /// Permits one import at a time.
    import: tokio::sync::Mutex<()>,
}

#[derive(Debug, thiserror::Error)]
enum Busy {
    #[error("too many calls wait to read")]
    Reads,
    #[error("a read ended in a panic")]
    Panic,
    #[error("others wrote to the same conversation again and again")]
    Contended,
}

impl Embedded {
    /// Whether a folder has a store in it. Blocks.
    pub fn is_in(path: &std::path::Path) -> bool {
        open::is_in(path)
    }

    /// Opens the store, or creates it. Refuses a folder that another process has open.
    pub async fn open(options: Options, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let path = options.path.clone();
        let failed = move |source: super::Cause| OpenError::Engine {
            path: path.clone(),
            source,
        };
        let opening = spawn_blocking(move || {
            let opened = open::open(&options.path, options.cache_bytes, options.accept_loss)?;
            let on_disk = |source| OpenError::Disk {
                path: options.path.clone(),
                source,
            };
            let committer = Committer::start(opened.engine, opened.last).map_err(on_disk)?;
            let disk = Arc::new(Disk::new(options.path.clone(), options.free_bytes_min));
            let core = Arc::new(ReadContext {
                db: opened.db,
                states: Arc::new(States::new()),
                known: opened.known,
                counts: Counts::new(),
                clock,
            });
            let (turns, copies) = (
                Arc::new(Semaphore::new(READS_MAX)),
                Arc::new(Semaphore::new(1)),
            );
            let import = tokio::sync::Mutex::new(());
            Ok(Arc::new(Inner {
                path: options.path,
                committer,
                core,
                disk,
                turns,
                copies,
                import,
            }))
        });
        let inner = opening.await.map_err(|error| failed(Box::new(error)))??;
        let upkeep = maintenance::spawn(&inner);
        Ok(Self { inner, upkeep })
    }

    /// Reason why the store refuses all writes until it is opened again; `None` while it accepts them.
    pub fn failure(&self) -> Option<String> {
        self.inner.committer.failure()
    }

    /// Registers the store's metrics.
    pub fn register(&self, metrics: &Metrics) {
        meter::register(&self.inner, metrics);
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&ReadContext) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.inner.read(read).await
    }

    /// Commits a write, unless the disk is full.
    async fn write(&self, write: Write) -> Result<Outcome> {
        self.inner.disk.check()?;
        self.inner.committer.commit(write).await
    }

    fn states(&self) -> &Arc<States> {
        &self.inner.core.states
    }

    async fn state(&self, conversation: ConversationId) -> Result<Arc<State>> {
        let state = match self.states().get(conversation) {
            Some(state) => Some(state),
            None => self.read(move |core| core.state(conversation)).await?,
        };
        state.ok_or_else(|| corrupt("conversations", Missing))
    }

    /// Projects each conversation's head, from the cache or from disk.
    async fn heads<T: Send + 'static>(
        &self,
        conversations: &[ConversationId],
        of: fn(Option<&record::Head>) -> T,
    ) -> Result<Vec<T>> {
        if let Some(known) = conversation::heads_in_memory(self.states(), conversations, of) {
            return Ok(known);
        }
        let conversations = conversations.to_vec();
        self.read(move |core| conversation::heads(core, &conversations, of))
            .await
    }
}

impl Inner {
    /// Checks that the store accepts writes. `Err` holds the reason.
    fn takes_writes(&self) -> Result<(), String> {
        self.committer.health()?;
        self.disk.check().map_err(|error| error.to_string())
    }

    /// Runs a read on a blocking thread, once a permit is free.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&ReadContext) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let busy = |busy| Error::Unavailable(Box::new(busy));
        // The user's own permit comes first: a user with many reads waits for those alone, and takes no turn meanwhile.
        let turn = async {
            (
                UserReadPermit::wait().await,
                Arc::clone(&self.turns)
                    .acquire_owned()
                    .await
                    .expect("the semaphore is never closed"),
            )
        };
        let turn = tokio::time::timeout(READ_TURN_MAX, turn)
            .await
            .map_err(|_| busy(Busy::Reads))?;
        let core = self.core.clone();
        let reading = spawn_blocking(move || {
            // The read holds the permit, not its caller: a cancelled caller does not free it.
            let _turn = turn;
            read(&core)
        });
        reading.await.map_err(|_| busy(Busy::Panic))?
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.upkeep.abort();
    }
}

impl fmt::Display for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "embedded store in {}", self.inner.path.display())
    }
}

fn contended() -> Error {
    Error::Unavailable(Box::new(Busy::Contended))
}

#[async_trait]
impl Store for Embedded {
    fn overlap_micros(&self) -> i64 {
        0
    }

    async fn newest_id(&self) -> Result<Option<TimeUuid>> {
        Ok(self.inner.committer.newest_id())
    }

    async fn participations(
        &self,
        viewer: &UserId,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<Participation>>> {
        if let Some(participations) =
            conversation::participations_in_memory(self.states(), viewer, conversations)
        {
            return Ok(participations);
        }
        let (viewer, conversations) = (viewer.clone(), conversations.to_vec());
        self.read(move |core| conversation::participations(core, &viewer, &conversations))
            .await
    }

    async fn direct_conversation(
        &self,
        one: &UserId,
        other: &UserId,
    ) -> Result<Option<ConversationId>> {
        let (one, other) = (one.clone(), other.clone());
        self.read(move |core| conversation::direct(core, &one, &other))
            .await
    }

    async fn create_conversation(&self, new: &NewConversation) -> Result<Created> {
        match self.write(conversation::create(self.states(), new)).await? {
            Outcome::Done => Ok(Created::New),
            Outcome::Refused => {
                let new = new.clone();
                self.read(move |core| conversation::in_the_way(core, &new))
                    .await
                    .map(Created::Existing)
            }
        }
    }

    async fn participants(
        &self,
        conversation: ConversationId,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        let page = page.clone();
        self.read(move |core| {
            conversation::participants(core, conversation, &page, |participant| {
                participant.membership.is_joined()
            })
        })
        .await
    }

    async fn participants_by_name(
        &self,
        keys: &[(ConversationId, UserId)],
    ) -> Result<Vec<Option<Participant>>> {
        let keys = keys.to_vec();
        self.read(move |core| conversation::participants_by_name(core, &keys))
            .await
    }

    async fn participant_counts(&self, conversations: &[ConversationId]) -> Result<Vec<u64>> {
        self.heads(conversations, |head| {
            head.map_or(0, |head| head.participant_count)
        })
        .await
    }

    async fn membership_snapshot(
        &self,
        conversation: ConversationId,
        users: &[UserId],
    ) -> Result<Option<MembershipSnapshot>> {
        let users = users.to_vec();
        self.read(move |core| membership::membership_snapshot(core, conversation, &users))
            .await
    }

    async fn change_membership(
        &self,
        conversation: ConversationId,
        change: &MembershipChange,
    ) -> Result<Option<Audience>> {
        self.membership_changed(conversation, change).await
    }

    async fn rename_conversation(
        &self,
        conversation: ConversationId,
        to: &Renaming,
    ) -> Result<Audience> {
        self.renamed(conversation, to).await
    }

    async fn append_messages(
        &self,
        conversation: ConversationId,
        messages: &[NewMessage],
    ) -> Result<Appended> {
        self.appended(conversation, messages).await
    }

    async fn revise_message(
        &self,
        conversation: ConversationId,
        revision: &Revision,
        change: &Change,
    ) -> Result<Option<Revised>> {
        self.revised(conversation, revision, change).await
    }

    async fn react(
        &self,
        conversation: ConversationId,
        emoji: &Emoji,
        is_on: bool,
        change: &Change,
    ) -> Result<Option<Arc<Message>>> {
        self.reacted(conversation, emoji, is_on, change).await
    }

    async fn reactions(
        &self,
        viewer: &UserId,
        messages: &[(ConversationId, MessageId)],
    ) -> Result<Vec<Vec<Reaction>>> {
        let (viewer, messages) = (viewer.clone(), messages.to_vec());
        self.read(move |core| reaction::reactions(core, &viewer, &messages))
            .await
    }

    async fn changes(
        &self,
        conversation: ConversationId,
        after: OrderKey,
        limit: usize,
    ) -> Result<Vec<Change>> {
        self.read(move |core| revision::changes(core, conversation, after, limit))
            .await
    }

    async fn newest_events(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<TimeUuid>>> {
        self.heads(conversations, |head| {
            head.and_then(|head| head.last_message.max(head.newest_change))
        })
        .await
    }

    async fn earlier_sends(
        &self,
        conversation: ConversationId,
        keys: &[(UserId, IdempotencyKey)],
    ) -> Result<Vec<Option<EarlierSend>>> {
        let keys = keys.to_vec();
        self.read(move |core| append::earlier_sends(core, conversation, &keys))
            .await
    }

    async fn log_late(&self, _: ConversationId, _: &[Change]) -> Result<()> {
        Ok(())
    }

    async fn wakes(&self, _: Timestamp) -> Result<Vec<Wake>> {
        Ok(Vec::new())
    }

    async fn history(
        &self,
        conversation: ConversationId,
        cut: &Cut<OrderKey>,
        page: &PageRequest<OrderKey>,
    ) -> Result<Page<Arc<Message>>> {
        let (cut, page) = (cut.clone(), page.clone());
        self.read(move |core| message::history(core, conversation, &cut, &page))
            .await
    }

    async fn messages(
        &self,
        keys: &[(ConversationId, MessageId)],
    ) -> Result<Vec<Option<Arc<Message>>>> {
        if let Some(known) = message::messages_in_memory(&self.inner.core, keys) {
            return Ok(known);
        }
        let keys = keys.to_vec();
        self.read(move |core| message::messages(core, &keys)).await
    }

    async fn messages_at(
        &self,
        positions: &[(ConversationId, OrderKey)],
    ) -> Result<Vec<Option<Arc<Message>>>> {
        let positions = positions.to_vec();
        self.read(move |core| message::messages_at(core, &positions))
            .await
    }

    async fn last_messages(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<MessageId>>> {
        self.heads(conversations, |head| head?.last_message).await
    }

    async fn message_counts(&self, conversations: &[ConversationId]) -> Result<Vec<u64>> {
        self.heads(conversations, |head| {
            head.map_or(0, |head| head.message_count)
        })
        .await
    }

    async fn inbox(&self, user: &UserId, page: &PageRequest<InboxKey>) -> Result<Page<InboxRow>> {
        let (user, page) = (user.clone(), page.clone());
        self.read(move |core| inbox::inbox(core, &user, &page))
            .await
    }

    async fn inbox_rows(
        &self,
        user: &UserId,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<InboxRow>>> {
        if let Some(known) = inbox::rows_in_memory(&self.inner.core, user, conversations) {
            return Ok(known);
        }
        let (user, conversations) = (user.clone(), conversations.to_vec());
        self.read(move |core| inbox::rows(core, &user, &conversations))
            .await
    }

    async fn inbox_changes(
        &self,
        user: &UserId,
        after: OrderKey,
        limit: usize,
    ) -> Result<Option<Vec<ChangedRow>>> {
        let user = user.clone();
        self.read(move |core| inbox::changes(core, &user, after, limit))
            .await
    }

    async fn conversation_count(&self, user: &UserId, limit: usize) -> Result<usize> {
        let user = user.clone();
        self.read(move |core| inbox::conversation_count(&core.view(), &user, limit))
            .await
    }

    async fn large_conversations(&self, user: &UserId) -> Result<Vec<ConversationId>> {
        let user = user.clone();
        self.read(move |core| inbox::large_conversations(&core.view(), &user))
            .await
    }

    async fn unread(
        &self,
        user: &UserId,
        questions: &[UnreadQuery],
        cap: u32,
    ) -> Result<Vec<Unread>> {
        let known = questions
            .iter()
            .map(|question| message::unread_in_memory(&self.inner.core, user, question, cap));
        if let Some(known) = known.collect() {
            return Ok(known);
        }
        let (user, questions) = (user.clone(), questions.to_vec());
        self.read(move |core| message::unread(core, &user, &questions, cap))
            .await
    }

    async fn move_read_marker(&self, user: &UserId, to: &MarkerMove) -> Result<()> {
        // A maximum register needs no condition, so the committer never refuses it.
        self.write(inbox::move_marker(user, to)).await.map(drop)
    }

    async fn mark_delivered(
        &self,
        user: &UserId,
        conversation: ConversationId,
        up_to: OrderKey,
    ) -> Result<()> {
        self.write(inbox::mark_delivered(user, conversation, up_to))
            .await
            .map(drop)
    }

    async fn receivers(
        &self,
        conversation: ConversationId,
        message: MessageId,
        sender: &UserId,
        page: &PageRequest<UserId>,
    ) -> Result<Page<Participant>> {
        let (sender, page) = (sender.clone(), page.clone());
        self.read(move |core| {
            conversation::participants(core, conversation, &page, |one| {
                one.receives(message, &sender)
            })
        })
        .await
    }

    async fn set_flags(&self, user: &UserId, to: &FlagsChange) -> Result<Option<Flags>> {
        let key = key::entry(user, to.conversation, key::EntryCell::Flags);
        self.change(key, |flags| to.apply(flags), || inbox::flags_set(user, to))
            .await
    }

    async fn profiles(&self, users: &[UserId]) -> Result<Vec<Option<Profile>>> {
        let users = users.to_vec();
        self.read(move |core| {
            let view = core.view();
            users
                .iter()
                .map(|user| view.record(&key::user(user)))
                .collect()
        })
        .await
    }

    async fn change_profile(&self, user: &UserId, to: &ProfileChange) -> Result<()> {
        self.change(key::user(user), |profile| to.apply(profile), Write::default)
            .await
            .map(drop)
    }

    async fn mark_seen(&self, user: &UserId, at: Timestamp) -> Result<()> {
        let seen = |profile: Profile| Profile {
            last_seen_at: profile.last_seen_at.max(Some(at)),
            ..profile
        };
        self.change(key::user(user), seen, Write::default)
            .await
            .map(drop)
    }

    async fn import(&self, rows: &[ImportRow]) -> Result<Vec<Imported>> {
        let _turn = self.inner.import.lock().await;
        let rows: Arc<[ImportRow]> = rows.into();
        let mut fates = Vec::with_capacity(rows.len());
        let mut tries = 0;
        while fates.len() < rows.len() {
            let (rest, start) = (rows.clone(), fates.len());
            let plan = self
                .read(move |core| import::plan(core, &rest[start..]))
                .await?;
            if plan.write.ops.is_empty() || self.write(plan.write).await? == Outcome::Done {
                fates.extend(plan.fates);
                tries = 0;
            } else {
                tries += 1;
                if tries == TRIES_MAX {
                    return Err(contended());
                }
            }
        }
        Ok(fates)
    }

    async fn all_users(
        &self,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<(UserId, Profile)>> {
        let after = after.cloned();
        self.read(move |core| export::users(core, after.as_ref(), limit))
            .await
    }

    async fn all_conversations(
        &self,
        after: Option<ConversationId>,
        limit: usize,
    ) -> Result<Vec<(Conversation, Option<Timestamp>)>> {
        self.read(move |core| export::conversations(core, after, limit))
            .await
    }

    async fn all_participants(
        &self,
        conversation: ConversationId,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<(UserId, Membership, ImportPositions)>> {
        let after = after.cloned();
        self.read(move |core| export::participants(core, conversation, after.as_ref(), limit))
            .await
    }

    async fn all_messages(
        &self,
        conversation: ConversationId,
        after: Option<MessageId>,
        limit: usize,
    ) -> Result<Vec<StoredMessage>> {
        self.read(move |core| message::stored_messages(core, conversation, after, limit))
            .await
    }

    async fn all_reactions(
        &self,
        conversation: ConversationId,
        message: MessageId,
        after: Option<&(Emoji, UserId)>,
        limit: usize,
    ) -> Result<Vec<(Emoji, UserId)>> {
        let after = after.cloned();
        self.read(move |core| export::reactions(core, conversation, message, after.as_ref(), limit))
            .await
    }

    async fn verify(&self, after: Option<&VerifyPosition>, repair: bool) -> Result<Verified> {
        self.verified(after, repair).await
    }

    async fn note(&self, name: &str) -> Result<Option<String>> {
        let key = key::note(name);
        self.read(move |core| core.view().record(&key)).await
    }

    async fn set_note(&self, name: &str, value: Option<&str>) -> Result<()> {
        let key = key::note(name);
        let op = match value {
            Some(value) => Op::Put(key, record::encode(&value)),
            None => Op::Delete(key),
        };
        self.write(Write {
            ops: vec![op],
            ..Write::default()
        })
        .await
        .map(drop)
    }

    async fn note_once(&self, name: &str, value: &str) -> Result<String> {
        let key = key::note(name);
        let read = async |key: key::Key| {
            self.read(move |core| core.view().record::<String>(&key))
                .await
        };
        if let Some(there) = read(key.clone()).await? {
            return Ok(there);
        }
        let op = Op::Put(key.clone(), record::encode(&value));
        match self
            .write(Write {
                ops: vec![op],
                conditions: vec![Condition::Absent(key.clone())],
                ..Write::default()
            })
            .await?
        {
            Outcome::Done => Ok(value.to_owned()),
            Outcome::Refused => read(key).await?.ok_or_else(|| corrupt("notes", Missing)),
        }
    }

    fn health(&self) -> Result<(), String> {
        self.inner.takes_writes()
    }

    async fn close(&self) -> Result<()> {
        self.upkeep.abort();
        let inner = self.inner.clone();
        spawn_blocking(move || inner.committer.close())
            .await
            .map_err(|_| Error::Unavailable(Box::new(Busy::Panic)))?
    }
}
