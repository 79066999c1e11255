//! Follow-ups: what this server does with the notices that it received, one conversation after the
//! other in the order of its events.
//!
//! Invariant: from the moment that a notice was read until it was followed, it holds back the
//! cursors that it concerns.
//!
//! Invariant: a notice that cannot be followed is tried again by itself, with a backoff of its own;
//! the notices behind it go on.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use super::counters::Counters;
use super::deduplication_window::DeduplicationWindow;
use super::held_back::{CursorScope, HeldBack};
use super::notice::{RemoteEnvelope, RemoteNotice};
use super::registry::events::RegistryEvent;
use crate::model::{ConversationId, OrderKey, TimeUuid, UserId};
use crate::store::cluster::ServerId;
use crate::store::{self, Error};

/// For how long a notice is known again: longer than it stays in a mailbox.
const DEDUPLICATED_FOR: Duration = Duration::from_secs(15 * 60);
/// Notices that are followed at the same time.
const AT_ONCE: usize = 64;
/// Notices that wait. Beyond that they are dropped, and all streams read the store instead.
const WAITING_MAX: usize = 65_536;
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(15);
/// The server abandons a notice that it could not follow for so long: the streams that it concerns
/// read the store, and fail by themselves.
const GIVE_UP_AFTER: Duration = Duration::from_secs(5 * 60);

/// Owner of the streams of this process.
pub trait NoticeHandler: Send + Sync + 'static {
    /// Loads what a notice names, by key, and publishes it in this process, unless that was done
    /// before. Called again after an error.
    fn follow<'a>(&'a self, notice: &'a RemoteNotice) -> BoxFuture<'a, store::Result<()>>;

    /// Makes every stream of this process read the store from its cursor, spread over this time. It
    /// returns once all were told to: none of them gives anything before it has read.
    fn reread(&self, within: Duration) -> BoxFuture<'_, ()>;

    /// The same for the streams of a conversation and the inboxes of some users.
    fn reread_of(&self, conversation: Option<ConversationId>, users: &[UserId]);

    /// A registration of this process was acknowledged, or removed.
    fn on_registry(&self, event: &RegistryEvent);

    /// Another server has ended.
    fn on_ended(&self, server: ServerId);
}

pub(super) struct FollowUps {
    handler: Weak<dyn NoticeHandler>,
    state: Mutex<FollowUpsState>,
    permits: Semaphore,
    counters: Arc<Counters>,
}

struct FollowUpsState {
    received: DeduplicationWindow<TimeUuid>,
    held: HeldBack,
    /// Notices by conversation. One task works for each conversation in here.
    queues: HashMap<Option<ConversationId>, Vec<RemoteEnvelope>>,
    waiting: usize,
    has_overflowed: bool,
}

impl FollowUps {
    pub(super) fn new(handler: Weak<dyn NoticeHandler>, counters: Arc<Counters>) -> Arc<Self> {
        let state = FollowUpsState {
            received: DeduplicationWindow::new(DEDUPLICATED_FOR),
            held: HeldBack::default(),
            queues: HashMap::new(),
            waiting: 0,
            has_overflowed: false,
        };
        Arc::new(Self {
            handler,
            state: Mutex::new(state),
            permits: Semaphore::new(AT_ONCE),
            counters,
        })
    }

    pub(super) fn handler(&self) -> Option<Arc<dyn NoticeHandler>> {
        self.handler.upgrade()
    }

    /// Takes a notice that arrived, over NATS or by the mailbox. It waits in its conversation's
    /// queue and holds back cursors when this returns.
    pub(super) fn accept(self: &Arc<Self>, envelope: RemoteEnvelope) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if !state.received.insert(envelope.delivery) {
            return;
        }
        self.counters.notices_received.inc();
        if state.waiting >= WAITING_MAX {
            state.has_overflowed = true;
            return;
        }
        state.waiting += 1;
        state.held.add(&envelope);
        let conversation = envelope.notice.conversation();
        match state.queues.entry(conversation) {
            Entry::Occupied(mut queue) => queue.get_mut().push(envelope),
            Entry::Vacant(queue) => {
                queue.insert(vec![envelope]);
                drop(guard);
                let this = Arc::clone(self);
                tokio::spawn(async move { this.work(conversation).await });
            }
        }
    }

    /// Whether notices were dropped since the last call: then all streams must read the store.
    pub(super) fn take_overflow(&self) -> bool {
        std::mem::take(&mut self.state.lock().has_overflowed)
    }

    pub(super) fn waiting(&self) -> usize {
        self.state.lock().waiting
    }

    pub(super) fn limit(
        &self,
        scope: CursorScope<'_>,
        except: Option<OrderKey>,
    ) -> Option<OrderKey> {
        self.state.lock().held.limit(scope, except)
    }

    async fn work(self: Arc<Self>, conversation: Option<ConversationId>) {
        while let Some(mut envelopes) = self.take(conversation) {
            envelopes.sort_by_key(|envelope| (envelope.notice.oldest(), envelope.delivery));
            for envelope in envelopes {
                match self.follow(&envelope).await {
                    Ok(()) => self.done(&envelope),
                    Err(error) => self.retry(envelope, &error),
                }
            }
        }
    }

    /// `None` when there is nothing more: then the queue is gone, and the next notice starts a new
    /// task.
    fn take(&self, conversation: Option<ConversationId>) -> Option<Vec<RemoteEnvelope>> {
        let mut state = self.state.lock();
        let envelopes = std::mem::take(state.queues.get_mut(&conversation)?);
        if envelopes.is_empty() {
            state.queues.remove(&conversation);
            return None;
        }
        Some(envelopes)
    }

    async fn follow(&self, envelope: &RemoteEnvelope) -> store::Result<()> {
        let Some(handler) = self.handler() else {
            return Ok(());
        };
        let permit = self.permits.acquire().await;
        let followed = handler.follow(&envelope.notice).await;
        drop(permit);
        followed
    }

    fn done(&self, envelope: &RemoteEnvelope) {
        let mut state = self.state.lock();
        state.held.remove(envelope);
        state.waiting -= 1;
    }

    fn retry(self: &Arc<Self>, envelope: RemoteEnvelope, error: &Error) {
        self.counters.follow_errors.inc();
        tracing::debug!(%error, "the server cannot load what another server has written; it retries");
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let (began, mut pause) = (Instant::now(), RETRY_FIRST);
            loop {
                sleep(pause).await;
                pause = (2 * pause).min(RETRY_MAX);
                let error = match this.follow(&envelope).await {
                    Ok(()) => break,
                    Err(error) => error,
                };
                this.counters.follow_errors.inc();
                if began.elapsed() >= GIVE_UP_AFTER || matches!(error, Error::Corrupt { .. }) {
                    tracing::error!(%error, "the server gives up a notice of another server; its streams read the store instead. If a row is damaged, run `wideroom verify`");
                    if let Some(handler) = this.handler() {
                        let notice = &envelope.notice;
                        handler.reread_of(notice.conversation(), notice.users());
                    }
                    break;
                }
            }
            this.done(&envelope);
        });
    }
}
