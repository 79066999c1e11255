//! Embedded store: an LSM tree in a folder, with one process and one writer.
//!
//! Reads run on blocking threads over a snapshot; a call hops threads once, and a cache hit never.
//! Writes are planned on those threads. The committer takes them with the conditions of their plan
//! (compare-and-set), groups them, syncs once, and acknowledges them.
//! Invariant: a reader sees only what is on disk.

mod admin;
mod background;
mod ban;
mod block;
mod cache;
mod conversation;
mod engine;
mod inbox;
mod mention;
mod message;
mod meter;
mod open;
mod outbox;
mod outbox_reader;
mod participant;
mod read_context;
mod report;
mod restriction;
mod store;
mod write;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, spawn_blocking};

pub use self::admin::backup::{Copy, CopyError, Pieces};
use self::admin::compaction::{Rewrites, SearchCompaction};
use self::admin::maintenance::{self, Disk};
use self::cache::floor_counts::FloorCounts;
use self::cache::mention_list::MentionLists;
use self::cache::state::{ConversationState, States};
use self::cache::unread_list::UnreadLists;
use self::engine::committer::{CommitOutcome, Committer, Op, Write};
use self::engine::db::{CACHED_FILES_MAX, MissingRow, cached_files_max, corrupt};
use self::engine::read_threads::{Panicked, ReadThreads};
use self::engine::{key, record};
pub use self::open::OpenError;
use self::outbox::OutboxWriter;
use self::read_context::ReadContext;
use super::read_permit::UserReadPermit;
use super::rules::former_runs::FormerRuns;
use super::{Error, NOTE_OUTBOX_SINCE, Result};
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::model::{ConversationId, TimeUuid};

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

/// The embedded store. Dropping it without [`super::Store::close`] loses no acknowledged write.
pub struct Embedded {
    inner: Arc<OpenStore>,
    upkeep: AbortHandle,
    lost: tokio::sync::Mutex<mpsc::Receiver<OpenError>>,
}

struct OpenStore {
    path: PathBuf,
    cache_bytes: u64,
    is_closed: AtomicBool,
    committer: Committer,
    context: Arc<ReadContext>,
    disk: Arc<Disk>,
    turns: Arc<Semaphore>,
    threads: ReadThreads,
    /// Permits one backup at a time.
    copies: Arc<Semaphore>,
    /// Permits one import at a time.
    import: tokio::sync::Mutex<()>,
    /// Files to rewrite after removals.
    rewrites: tokio::sync::Mutex<Rewrites>,
    search_compaction: SearchCompaction,
    /// Reports that the engine cannot be opened again.
    lost: mpsc::Sender<OpenError>,
}

#[derive(Debug, thiserror::Error)]
enum Busy {
    #[error("too many reads wait for a thread")]
    Reads,
    #[error("a read ended in a panic")]
    Panic,
    #[error("other writes to the same conversation won every retry")]
    Contended,
}

impl Embedded {
    /// Files that a store holds open.
    pub const FILES_MAX: usize = CACHED_FILES_MAX;

    /// The same under a limit of open files.
    pub fn files_max(limit: u64) -> usize {
        cached_files_max(limit)
    }

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
        let (lost, is_lost) = mpsc::channel(1);
        let opening = spawn_blocking(move || {
            let opened = open::open(&options.path, options.cache_bytes, options.accept_loss)?;
            let on_disk = |source| OpenError::Disk {
                path: options.path.clone(),
                source,
            };
            let committer = Committer::start(opened.engine, opened.last).map_err(on_disk)?;
            let disk = Arc::new(Disk::new(options.path.clone(), options.free_bytes_min));
            let since: Option<String> = opened
                .db
                .view()
                .record(&key::note(NOTE_OUTBOX_SINCE))
                .map_err(|error| open::engine_error(&options.path, Box::new(error)))?;
            let rewrites = Rewrites::open(&opened.db.view())
                .map_err(|error| open::engine_error(&options.path, Box::new(error)))?;
            let context = Arc::new(ReadContext {
                db: opened.db,
                states: Arc::new(States::of_conversations()),
                rows: opened.rows,
                unread: UnreadLists::new(),
                mentions: Arc::new(MentionLists::new()),
                floors: Arc::new(FloorCounts::new()),
                former: FormerRuns::new(),
                outbox: OutboxWriter::new(since.as_deref()),
                retention: AtomicU32::new(0),
                clock: Arc::clone(&clock),
            });
            Ok(Arc::new(OpenStore {
                path: options.path,
                cache_bytes: options.cache_bytes,
                is_closed: AtomicBool::new(false),
                committer,
                context,
                disk,
                turns: Arc::new(Semaphore::new(READS_MAX)),
                threads: ReadThreads::new(READS_MAX),
                copies: Arc::new(Semaphore::new(1)),
                import: tokio::sync::Mutex::new(()),
                rewrites: tokio::sync::Mutex::new(rewrites),
                search_compaction: SearchCompaction::since(clock.now()),
                lost,
            }))
        });
        let inner = opening.await.map_err(|error| failed(Box::new(error)))??;
        let upkeep = maintenance::spawn(&inner);
        Ok(Self {
            inner,
            upkeep,
            lost: tokio::sync::Mutex::new(is_lost),
        })
    }

    /// Waits until the engine could not be opened again after a transient fault, and no retry can mend that: every read
    /// fails from then on. Returns the reason, once.
    pub async fn lost(&self) -> OpenError {
        match self.lost.lock().await.recv().await {
            Some(error) => error,
            None => std::future::pending().await,
        }
    }

    /// Reason why the store refuses all writes until the process is restarted. `None` while it accepts them, and while it
    /// waits for disk space or descriptors.
    pub fn failure(&self) -> Option<String> {
        self.inner.committer.failure()
    }

    /// Rows that scans returned since the engine was opened, by which tests measure what a list reads.
    pub fn rows_scanned(&self) -> u64 {
        self.inner.context.db.rows_scanned()
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
    async fn write(&self, write: Write) -> Result<CommitOutcome> {
        self.inner.disk.check()?;
        self.inner.committer.commit(write).await
    }

    /// Commits operations without a condition, the greatest id among their rows beside them.
    async fn write_ops(&self, ops: Vec<Op>, newest_id: Option<TimeUuid>) -> Result<()> {
        self.inner.disk.check()?;
        self.inner.committer.commit_ops(ops, newest_id).await
    }

    fn context(&self) -> &ReadContext {
        &self.inner.context
    }

    fn states(&self) -> &Arc<States> {
        &self.inner.context.states
    }

    async fn state(&self, conversation: ConversationId) -> Result<Arc<ConversationState>> {
        let state = match self.states().get(&conversation) {
            Some(state) => Some(state),
            None => {
                self.read(move |context| context.state(conversation))
                    .await?
            }
        };
        state.ok_or_else(|| corrupt("conversations", MissingRow))
    }

    /// Projects each conversation's head, from the cache or from disk.
    async fn heads<T: Send + 'static>(
        &self,
        conversations: &[ConversationId],
        of: fn(Option<&record::HeadRecord>) -> T,
    ) -> Result<Vec<T>> {
        if let Some(cached) = conversation::heads_in_memory(self.context(), conversations, of) {
            return Ok(cached);
        }
        let conversations = conversations.to_vec();
        self.read(move |context| conversation::heads(context, &conversations, of))
            .await
    }
}

impl OpenStore {
    /// Ends a reopening that goes on.
    fn set_closed(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

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
        let context = self.context.clone();
        let reading = self.threads.run(move || {
            // The read holds the permit, not its caller: a cancelled caller does not free it.
            let _turn = turn;
            read(&context)
        });
        reading.await.map_err(|Panicked| busy(Busy::Panic))?
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.inner.set_closed();
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
