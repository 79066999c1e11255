//! A store whose sends can be held up: what a slow cluster, or a server that stops for a while, does to ids that were given already. It
//! refuses calls as an overloaded cluster does, and counts the reads that streams make.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use wideroom::store::{
    Error, InterceptedStore, Result, StoreAdmin, StoreFuture, StoreInterceptor, StoreOperation,
};

/// Operations that read who is in a conversation, or what happened there.
const READS: [&str; 10] = [
    "changes",
    "history",
    "membership_snapshot",
    "membership_version",
    "messages",
    "newest_events",
    "participant_counts",
    "participants",
    "participants_by_name",
    "participations",
];

/// Interceptor behind which sends wait for as long as a test says.
#[derive(Default)]
pub(super) struct Slow {
    delay: Mutex<Duration>,
    creation_delay: Mutex<Duration>,
    reads: AtomicUsize,
    moves: AtomicUsize,
    is_held: watch::Sender<bool>,
    /// Calls of a method that are yet to be refused.
    refusals: Mutex<HashMap<&'static str, usize>>,
    /// Calls of a method that are yet to be done without an answer.
    losses: Mutex<HashMap<&'static str, usize>>,
    /// Method of which the next answer waits.
    held_answer: Mutex<Option<&'static str>>,
    answer_is_held: Notify,
    answer_goes: Notify,
    /// Reads of the outbox.
    pub(super) outbox_reads: AtomicUsize,
}

impl Slow {
    /// The interceptor, and the store behind it.
    pub(super) fn before(
        store: Arc<dyn StoreAdmin>,
    ) -> (Arc<Self>, Arc<InterceptedStore<Arc<Self>>>) {
        let slow = Arc::new(Self::default());
        let store = InterceptedStore::before(store, Arc::clone(&slow));
        (slow, Arc::new(store))
    }

    /// How often who is in a conversation, or what happened there, was read until now.
    pub(super) fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    /// How often a read marker was moved until now.
    pub(super) fn moves(&self) -> usize {
        self.moves.load(Ordering::SeqCst)
    }

    /// Sends that begin from now on wait so long after their ids were given.
    pub(super) fn set_delay(&self, delay: Duration) {
        *self.delay.lock().unwrap() = delay;
    }

    /// Conversations that are created from now on wait so long after their ids were given.
    pub(super) fn set_creation_delay(&self, delay: Duration) {
        *self.creation_delay.lock().unwrap() = delay;
    }

    /// So many of the next calls of a method are refused, before they do anything.
    pub(super) fn refuse(&self, method: &'static str, calls: usize) {
        self.refusals.lock().unwrap().insert(method, calls);
    }

    /// So many of the next calls of a method are done, and their answers are lost.
    pub(super) fn lose(&self, method: &'static str, calls: usize) {
        self.losses.lock().unwrap().insert(method, calls);
    }

    pub(super) fn refusals_left(&self, method: &str) -> usize {
        let refusals = self.refusals.lock().unwrap();
        refusals.get(method).copied().unwrap_or_default()
    }

    /// Sends that begin from now on wait until they are let go.
    pub(super) fn hold(&self) {
        self.is_held.send_replace(true);
    }

    pub(super) fn let_go(&self) {
        self.is_held.send_replace(false);
    }

    /// The next call of a method is done, and its answer waits until it may go.
    pub(super) fn hold_answer(&self, method: &'static str) {
        *self.held_answer.lock().unwrap() = Some(method);
    }

    pub(super) async fn answer_is_held(&self) {
        self.answer_is_held.notified().await;
    }

    pub(super) fn let_answer_go(&self) {
        self.answer_goes.notify_one();
    }

    async fn wait(&self) {
        let delay = *self.delay.lock().unwrap();
        tokio::time::sleep(delay).await;
        self.is_held
            .subscribe()
            .wait_for(|is_held| !is_held)
            .await
            .unwrap();
    }
}

/// An error if a fault is left for a call of this method.
fn take_one(
    faults: &Mutex<HashMap<&'static str, usize>>,
    method: &str,
    sentence: &'static str,
) -> Result<()> {
    match faults.lock().unwrap().get_mut(method) {
        Some(left) if *left > 0 => {
            *left -= 1;
            Err(Error::Unavailable(sentence.into()))
        }
        Some(_) | None => Ok(()),
    }
}

impl StoreInterceptor for Slow {
    fn intercept<'a, T: Send + 'a>(
        &'a self,
        operation: StoreOperation,
        answer: StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let name = operation.name();
            match name {
                "append_messages" => self.wait().await,
                "create_conversation" => {
                    let delay = *self.creation_delay.lock().unwrap();
                    tokio::time::sleep(delay).await;
                }
                "move_read_marker" => drop(self.moves.fetch_add(1, Ordering::SeqCst)),
                "outbox" => drop(self.outbox_reads.fetch_add(1, Ordering::SeqCst)),
                read if READS.contains(&read) => drop(self.reads.fetch_add(1, Ordering::SeqCst)),
                _ => {}
            }
            take_one(&self.refusals, name, "it is refused")?;
            let answer = answer.await;
            take_one(&self.losses, name, "its answer is lost")?;
            let is_held = self
                .held_answer
                .lock()
                .unwrap()
                .take_if(|held| *held == name)
                .is_some();
            if is_held {
                self.answer_is_held.notify_one();
                self.answer_goes.notified().await;
            }
            answer
        })
    }
}
