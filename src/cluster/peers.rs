//! Peers: which of the other servers have ended, by their rows, and which are alive, by their
//! beats.
//!
//! Invariant: a server counts as ended only after `Ended` was read in its row. Silence is a hint to
//! end a server, never a reason to leave it out: a notice to a dead server costs one write, a
//! notice that a live one does not get is lost.
//!
//! Invariant: no server is ended by the clocks of two machines. A beat has to stand still for
//! [`STILL_MAX`] of this server's own time and in [`STILL_READS`] successful reads, while at least
//! half of all beats move.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::tasks::READ_BEATS_EVERY;
use crate::store;
use crate::store::cluster::{BEAT_EVERY, Beat, ClusterStore, ServerId, ServerState};

/// A beat that stands still for so long is that of a dead server.
const STILL_MAX: Duration = Duration::from_secs(20);
const STILL_READS: u32 = 4;
const _: () = assert!(
    STILL_MAX.as_secs() >= STILL_READS as u64 * READ_BEATS_EVERY.as_secs()
        && STILL_MAX.as_secs() >= 4 * BEAT_EVERY.as_secs()
        && BEATS_FOR.as_secs() > STILL_MAX.as_secs()
);
/// Ended servers that are remembered. Their rows, and the sessions that name them, expire within a
/// day or so.
const ENDED_MAX: NonZeroUsize = NonZeroUsize::new(1 << 16).expect("it is not zero");
/// How long a server whose beat is missing counts as alive after its row was read.
const UNKNOWN_FOR: Duration = Duration::from_secs(5);
/// A copy of the beats that is older than this says nothing.
const BEATS_FOR: Duration = Duration::from_secs(30);

pub(super) struct Peers {
    store: Arc<dyn ClusterStore>,
    state: Mutex<PeersState>,
}

struct PeersState {
    /// Servers in the last copy of the beats, and servers that sessions name and that have no beat.
    watched: BTreeMap<ServerId, WatchedServer>,
    copied_at: Option<Instant>,
    ended: LruCache<ServerId, ()>,
}

/// Beat of a server, as this one has seen it.
struct WatchedServer {
    /// `None` where the server has no beat.
    number: Option<i64>,
    /// When the number changed last, by this server's clock.
    moved_at: Instant,
    /// Successful reads since then.
    still_reads: u32,
    /// Until when it counts as alive without a beat.
    alive_until: Instant,
}

/// Outcome of a read of all beats.
pub(super) struct BeatsRead {
    /// Servers to end: their beats have stood still for too long.
    pub(super) still: Vec<ServerId>,
    /// Servers whose beats are gone since the last read.
    pub(super) vanished: Vec<ServerId>,
}

impl Peers {
    pub(super) fn new(store: Arc<dyn ClusterStore>) -> Self {
        Self {
            store,
            state: Mutex::new(PeersState {
                watched: BTreeMap::new(),
                copied_at: None,
                ended: LruCache::new(ENDED_MAX),
            }),
        }
    }

    /// Whether this server's row says that it has ended. Beats and an earlier answer save the read;
    /// a failed read means: not ended.
    pub(super) async fn has_ended(&self, server: ServerId) -> bool {
        let now = Instant::now();
        {
            let mut state = self.state.lock();
            if state.ended.contains(&server) {
                return true;
            }
            let is_fresh = state.copied_at.is_some_and(|at| now - at <= BEATS_FOR);
            if let Some(watched) = state.watched.get(&server)
                && ((watched.number.is_some() && watched.still_reads < STILL_READS && is_fresh)
                    || watched.alive_until > now)
            {
                return false;
            }
            // From now on its silence is measured.
            state.watch(server, now);
        }
        let read = self.store.server(server).await;
        let mut state = self.state.lock();
        match read {
            Ok(ServerState::Ended) => {
                state.note_ended(server);
                true
            }
            Ok(ServerState::Running | ServerState::Missing) | Err(_) => {
                if let Some(watched) = state.watched.get_mut(&server) {
                    watched.alive_until = now + UNKNOWN_FOR;
                }
                false
            }
        }
    }

    /// Reads the beats, and answers with the servers to end and those whose beat is gone.
    pub(super) async fn read_beats(&self) -> store::Result<BeatsRead> {
        let began = Instant::now();
        let beats = self.store.beats().await?;
        Ok(self.state.lock().take_beats(&beats, began))
    }

    /// Remembers the end of a server after it was written.
    pub(super) fn note_ended(&self, server: ServerId) {
        self.state.lock().note_ended(server);
    }

    pub(super) fn count(&self) -> usize {
        self.state.lock().beating().count()
    }
}

impl PeersState {
    fn watch(&mut self, server: ServerId, now: Instant) -> &mut WatchedServer {
        self.watched.entry(server).or_insert(WatchedServer {
            number: None,
            moved_at: now,
            still_reads: 0,
            alive_until: now,
        })
    }

    fn beating(&self) -> impl Iterator<Item = &WatchedServer> {
        let watched = self.watched.values();
        watched.filter(|watched| watched.number.is_some())
    }

    fn note_ended(&mut self, server: ServerId) {
        self.watched.remove(&server);
        self.ended.put(server, ());
    }

    fn take_beats(&mut self, beats: &[Beat], now: Instant) -> BeatsRead {
        self.copied_at = Some(now);
        let found: BTreeMap<_, _> = beats
            .iter()
            .map(|beat| (beat.server, beat.number))
            .collect();
        for (server, number) in &found {
            // The beat of an ended server is about to be deleted.
            if self.ended.contains(server) {
                continue;
            }
            let watched = self.watch(*server, now);
            if watched.number == Some(*number) {
                watched.still_reads += 1;
            } else {
                (watched.number, watched.moved_at, watched.still_reads) = (Some(*number), now, 0);
            }
        }
        let mut vanished = Vec::new();
        for (server, watched) in &mut self.watched {
            if !found.contains_key(server) {
                // A beat that expired stands still, too.
                if watched.number.take().is_some() {
                    vanished.push(*server);
                }
                watched.still_reads += 1;
            }
        }
        let is_still = |watched: &WatchedServer| {
            watched.still_reads >= STILL_READS && now - watched.moved_at >= STILL_MAX
        };
        let beating = self.beating();
        let moving = beating.filter(|watched| watched.still_reads < STILL_READS);
        let (moving, all) = (moving.count(), self.beating().count());
        // Without any beat this server's own does not arrive either, so it cannot judge the others.
        let can_judge = moving > 0 && 2 * moving >= all;
        let still = self.watched.iter();
        let still = still.filter(|(_, watched)| can_judge && is_still(watched));
        let still = still.map(|(server, _)| *server).collect();
        BeatsRead { still, vanished }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> PeersState {
        PeersState {
            watched: BTreeMap::new(),
            copied_at: None,
            ended: LruCache::new(ENDED_MAX),
        }
    }

    fn servers<const N: usize>() -> [ServerId; N] {
        std::array::from_fn(|_| ServerId::random())
    }

    /// The servers that are to be ended after each of so many reads, five seconds apart.
    fn watch(
        state: &mut PeersState,
        reads: i64,
        number: impl Fn(i64) -> Vec<(ServerId, i64)>,
    ) -> Vec<(i64, Vec<ServerId>)> {
        let start = Instant::now();
        let read = |step: i64| {
            let beats: Vec<_> = number(step)
                .into_iter()
                .map(|(server, number)| Beat { server, number })
                .collect();
            let at = start + Duration::from_secs(5 * step.unsigned_abs());
            (step, state.take_beats(&beats, at).still)
        };
        (0..reads)
            .map(read)
            .filter(|(_, ended)| !ended.is_empty())
            .collect()
    }

    #[tokio::test]
    async fn a_beat_that_stands_still_for_20_s_in_4_reads_is_that_of_a_dead_server() {
        let [alive, dead] = servers();
        let ended = watch(&mut state(), 6, |step| vec![(alive, step), (dead, 7)]);
        assert_eq!(ended, [(4, vec![dead]), (5, vec![dead])]);
        let mut state = state();
        state.note_ended(dead);
        assert!(watch(&mut state, 6, |step| vec![(alive, step), (dead, 7)]).is_empty());
    }

    #[tokio::test]
    async fn a_stall_of_15_s_ends_nobody() {
        let [alive, stalled] = servers();
        let beats = |step: i64| {
            let number = if (2..5).contains(&step) { 2 } else { step };
            vec![(alive, step), (stalled, number)]
        };
        assert!(watch(&mut state(), 20, beats).is_empty());
    }

    #[tokio::test]
    async fn nobody_is_ended_while_fewer_than_half_of_the_beats_move() {
        let [alive, second, third] = servers();
        let beats = |step| vec![(alive, step), (second, 1), (third, 1)];
        assert!(watch(&mut state(), 20, beats).is_empty());
        // Nor where no beat arrives: then this server's own writes are lost, too.
        assert!(watch(&mut state(), 20, |_| vec![(second, 1)]).is_empty());
        assert!(watch(&mut state(), 20, |_| Vec::new()).is_empty());
    }

    #[tokio::test]
    async fn a_server_that_is_named_and_has_no_beat_is_ended_too() {
        let [alive, unknown] = servers();
        let mut state = state();
        state.watched.insert(
            unknown,
            WatchedServer {
                number: None,
                moved_at: Instant::now(),
                still_reads: 0,
                alive_until: Instant::now(),
            },
        );
        let ended = watch(&mut state, 6, |step| vec![(alive, step)]);
        assert_eq!(ended.first(), Some(&(4, vec![unknown])));
    }
}
