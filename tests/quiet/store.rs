//! A store behind which virtual time (`start_paused`) stands still: the threads of the embedded store work in real time, and no timer may
//! fire meanwhile.
//!
//! It also refuses calls, as a store does that is away, disturbs writes of live messages, and may belong to the simulated cluster.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::delivery::directory::Dice;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use wideroom::store::cluster::ClusterStore;
use wideroom::store::embedded::Embedded;
use wideroom::store::{
    Error, InterceptedStore, Result, Store, StoreAdmin, StoreFuture, StoreInterceptor,
    StoreOperation,
};

/// How far before a cursor streams of a cluster read.
const OVERLAP_MICROS: i64 = 10_000_000;

/// Keeps virtual time from advancing by itself, until it is dropped: the runtime does not advance it while a blocking task runs.
pub(super) struct Stillness(
    #[expect(dead_code, reason = "its drop ends the task")] mpsc::Sender<()>,
);

impl Stillness {
    pub(super) fn begin() -> Self {
        let (held, ended) = mpsc::channel();
        spawn_blocking(move || ended.recv());
        Self(held)
    }
}

/// Awaits an answer of the embedded store while virtual time stands still.
pub(super) async fn still<T>(answer: impl Future<Output = T>) -> T {
    let _still = Stillness::begin();
    answer.await
}

pub(super) struct StillStore {
    cluster: Option<Arc<dyn ClusterStore>>,
    is_away: AtomicBool,
    /// Methods whose calls are refused.
    refused: Mutex<HashSet<&'static str>>,
    /// Calls that wrote a position of a reader.
    swaps: AtomicUsize,
    /// Calls of each method.
    calls: Mutex<HashMap<&'static str, usize>>,
    /// Method whose calls are under way for a while before they are done.
    slow: Mutex<Option<(&'static str, Duration)>>,
    /// Method whose next answer is lost.
    lost: Mutex<Option<&'static str>>,
    /// Chance by which writes of live messages have no known outcome. `None`: all of them have.
    disturbance: Mutex<Option<Arc<Dice>>>,
}

impl StillStore {
    /// The interceptor, and the store behind it.
    pub(super) fn before(
        embedded: &Arc<Embedded>,
        cluster: Option<Arc<dyn ClusterStore>>,
    ) -> (Arc<Self>, Arc<dyn Store>) {
        let still = Arc::new(Self {
            cluster,
            is_away: AtomicBool::new(false),
            refused: Mutex::default(),
            swaps: AtomicUsize::new(0),
            calls: Mutex::default(),
            slow: Mutex::default(),
            lost: Mutex::default(),
            disturbance: Mutex::default(),
        });
        let store = Arc::clone(embedded) as Arc<dyn StoreAdmin>;
        let store = InterceptedStore::before(store, Arc::clone(&still));
        (still, Arc::new(store))
    }

    /// Refuses every call from now on, or none.
    pub(super) fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    /// Refuses the calls of one method from now on, or none of them.
    pub(super) fn refuse(&self, method: &'static str, is_refused: bool) {
        let mut refused = self.refused.lock().unwrap();
        if is_refused {
            refused.insert(method);
        } else {
            refused.remove(method);
        }
    }

    /// Positions of readers that were written until now.
    pub(super) fn swaps(&self) -> usize {
        self.swaps.load(Ordering::SeqCst)
    }

    /// Calls of a method until now.
    pub(super) fn calls(&self, method: &'static str) -> usize {
        let calls = self.calls.lock().unwrap();
        calls.get(method).copied().unwrap_or_default()
    }

    /// Calls of all methods until now.
    pub(super) fn all_calls(&self) -> usize {
        self.calls.lock().unwrap().values().sum()
    }

    /// Has the calls of one method be under way for so long from now on.
    pub(super) fn slow(&self, method: &'static str, by: Duration) {
        *self.slow.lock().unwrap() = Some((method, by));
    }

    /// Has the next call of a method do its work and give no answer.
    pub(super) fn lose_next_answer(&self, method: &'static str) {
        *self.lost.lock().unwrap() = Some(method);
    }

    /// Has a write of live text in five end without a known outcome from now on: it is stored, or lost.
    pub(super) fn disturb_lives(&self, dice: &Arc<Dice>) {
        *self.disturbance.lock().unwrap() = Some(Arc::clone(dice));
    }

    /// A write of live text: it ends as it does, or is stored without an answer, or is lost.
    async fn disturb<T>(&self, name: &str, answer: StoreFuture<'_, T>) -> Result<T> {
        let disturbance = self.disturbance.lock().unwrap().clone();
        let chance = disturbance.map_or(0, |dice| dice.below(100));
        if chance < 80 {
            return self.call(name, answer).await;
        }
        if chance < 86 {
            self.call(name, answer).await?;
        }
        Err(Error::OutcomeUnknown("no answer came".into()))
    }

    async fn call<T>(&self, name: &str, answer: StoreFuture<'_, T>) -> Result<T> {
        if self.is_away.load(Ordering::SeqCst) || self.refused.lock().unwrap().contains(name) {
            return Err(Error::Unavailable("it is away".into()));
        }
        let is_lost = {
            let mut lost = self.lost.lock().unwrap();
            lost.take_if(|method| *method == name).is_some()
        };
        if is_lost {
            still(answer).await?;
            return Err(Error::OutcomeUnknown("no answer came".into()));
        }
        if name == "swap_reader_position" {
            self.swaps.fetch_add(1, Ordering::SeqCst);
        }
        let slow = *self.slow.lock().unwrap();
        if let Some((_, by)) = slow.filter(|(method, _)| *method == name) {
            sleep(by).await;
        }
        still(answer).await
    }
}

impl StoreInterceptor for StillStore {
    fn intercept<'a, T: Send + 'a>(
        &'a self,
        operation: StoreOperation,
        answer: StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        *self
            .calls
            .lock()
            .unwrap()
            .entry(operation.name())
            .or_default() += 1;
        match operation.name() {
            "close" => answer,
            "write_live" => Box::pin(self.disturb("write_live", answer)),
            name => Box::pin(self.call(name, answer)),
        }
    }

    fn overlap_micros(&self, _: &dyn Store) -> i64 {
        self.cluster.as_ref().map_or(0, |_| OVERLAP_MICROS)
    }

    fn cluster(&self, _: &dyn Store) -> Option<Arc<dyn ClusterStore>> {
        self.cluster.clone()
    }
}
