//! Background maintenance of the embedded store: it checks disk and committer, reopens the engine after a transient fault, and
//! sweeps expired rows.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::model::{ConversationId, Direction, Job, Timestamp};
use crate::store::embedded::OpenStore;
use crate::store::embedded::admin::compaction;
use crate::store::embedded::admin::reopening::Reopener;
use crate::store::embedded::background::live;
use crate::store::embedded::ban::BanSweep;
use crate::store::embedded::cache::state::ConversationState;
use crate::store::embedded::engine::committer::{CommitOutcome, Condition, Op, Write};
use crate::store::embedded::engine::db::InTable;
use crate::store::embedded::engine::key;
use crate::store::embedded::engine::record::{self, HeadRecord, SendRecord};
use crate::store::embedded::outbox::OutboxSweep;
use crate::store::embedded::read_context::ReadContext;
use crate::store::embedded::{inbox, mention};
use crate::store::{DEAD_LETTER_KEPT_MICROS, DeadLetter, Error, Result, rules};

const TICK: Duration = Duration::from_secs(1);
const TICKS_BETWEEN_SWEEPS: u64 = 60;
/// Rows of one sweep batch, about, and batches of one sweep.
const SWEEP_OPS_MAX: usize = 2_000;
const SWEEP_BATCHES_MAX: usize = 100;
const SWEEP_MAX: Duration = Duration::from_secs(30);

/// Free space of the disk.
pub(crate) struct Disk {
    path: PathBuf,
    free_bytes_min: u64,
    is_short: AtomicBool,
    /// Last sample.
    free_bytes: AtomicU64,
}

#[derive(Debug, thiserror::Error)]
#[error("less than {free_bytes_min} bytes of disk are free")]
struct DiskFull {
    free_bytes_min: u64,
}

impl Disk {
    pub(crate) fn new(path: PathBuf, free_bytes_min: u64) -> Self {
        let disk = Self {
            path,
            free_bytes_min,
            is_short: AtomicBool::new(false),
            free_bytes: AtomicU64::new(0),
        };
        disk.measure();
        disk
    }

    /// Samples the free space. Blocks.
    fn measure(&self) {
        match rustix::fs::statvfs(&self.path) {
            Ok(disk) => {
                let free_bytes = disk.f_bavail.saturating_mul(disk.f_frsize);
                self.free_bytes.store(free_bytes, Ordering::Relaxed);
                let is_short = free_bytes < self.free_bytes_min;
                if self.is_short.swap(is_short, Ordering::Relaxed) != is_short {
                    tracing::warn!(
                        disk.is_short = is_short,
                        free_bytes_min = self.free_bytes_min,
                        "the free space of the disk crossed its minimum; while it is short, the store refuses writes. Free disk space"
                    );
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the store cannot read the free space of the disk")
            }
        }
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_bytes.load(Ordering::Relaxed)
    }

    /// Free space above the minimum.
    pub(crate) fn room(&self) -> u64 {
        self.free_bytes().saturating_sub(self.free_bytes_min)
    }

    /// Checks that the disk has room for a write.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_short.load(Ordering::Relaxed) {
            return Err(Error::Unavailable(Box::new(DiskFull {
                free_bytes_min: self.free_bytes_min,
            })));
        }
        Ok(())
    }
}

/// Runs until the store is dropped.
pub(crate) async fn run(store: Weak<OpenStore>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut was_stuck = false;
    let (mut sweep, mut reopener) = (Sweep::default(), Reopener::default());
    for tick in 0_u64.. {
        ticks.tick().await;
        let Some(inner) = store.upgrade() else { return };
        let stuck = inner.committer.stuck();
        if let (Some(took), false) = (stuck, was_stuck) {
            tracing::error!(took_s = took.as_secs(), "a commit hangs; check the disk");
        }
        was_stuck = stuck.is_some();
        let disk = inner.disk.clone();
        // The panic hook has logged a panic; the next tick retries.
        let _ = tokio::task::spawn_blocking(move || disk.measure()).await;
        reopener.run(&inner).await;
        // Run the sweep apart: a stuck disk must not stop the checks that report it.
        if tick % TICKS_BETWEEN_SWEEPS == 0
            && let Ok(Err(error)) = tokio::time::timeout(SWEEP_MAX, sweep.run(&inner)).await
        {
            tracing::warn!(%error, "the store failed to delete expired rows; it retries later");
        }
        if tick % TICKS_BETWEEN_SWEEPS == 0 {
            // It takes long, and nothing waits for it.
            drop(compaction::begin_if_due(&inner));
        }
    }
}

/// Sweeper of expired rows, in bounded batches.
#[derive(Default)]
pub(crate) struct Sweep {
    /// Position up to which rows are swept. Without it each sweep would step over the tombstones of earlier ones.
    from: Vec<u8>,
    outbox: OutboxSweep,
    bans: BanSweep,
}

impl Sweep {
    pub(crate) async fn run(&mut self, inner: &OpenStore) -> Result<()> {
        self.run_expiries(inner).await?;
        self.bans.run(inner).await?;
        self.outbox.run(inner, SWEEP_BATCHES_MAX).await
    }

    async fn run_expiries(&mut self, inner: &OpenStore) -> Result<()> {
        for _ in 0..SWEEP_BATCHES_MAX {
            let from = self.from.clone();
            let (write, next) = inner.read(move |context| plan(context, from)).await?;
            let Some(write) = write else {
                self.from = next;
                return Ok(());
            };
            if inner.committer.commit(write).await? == CommitOutcome::Refused {
                // The key was used again meanwhile: the next sweep handles it.
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Plans a batch. Returns it with the position of the first unexpired row.
fn plan(context: &ReadContext, from: Vec<u8>) -> Result<(Option<Write>, Vec<u8>)> {
    let view = context.view();
    let now = context.clock.now();
    let mut span = key::expired(now);
    let next = span.end.clone();
    span.start = span.start.max(from);
    let mut write = Write::default();
    let mut quiet = Vec::new();
    for row in view.scan(span, Direction::Forward) {
        let (bytes, _) = row?;
        let of = key::expired_key(&bytes).in_table("expiry")?;
        if let Some(live) = key::live_of(&of)
            && !live::expire(&view, live, now, SWEEP_OPS_MAX, &mut write)?
        {
            // Rows are left: the entry stays for the next batch.
            break;
        }
        write.ops.push(Op::Delete(key::Key::of_row(&bytes)));
        if of.table != key::Table::Rows {
            // A change's key is never reused.
            write.ops.push(Op::Delete(of));
        } else if let Some(id) = key::busy_conversation_id(&of) {
            quiet.extend(settle(context, id, now, &mut write)?);
        } else if let Some(message) = key::everyone_in(&of) {
            mention::expire(&view, message, &mut write)?;
        } else if let Some(value) = view.get(&of)?
            && has_expired(&of, &value, now)?
        {
            write
                .conditions
                .push(Condition::Is(of.clone(), value.to_vec()));
            write.ops.push(Op::Delete(of));
        }
        if write.ops.len() >= SWEEP_OPS_MAX {
            break;
        }
    }
    let states = Arc::clone(&context.states);
    write.applied = Some(Box::new(move || {
        quiet
            .into_iter()
            .for_each(|state| states.put_written(state.conversation.id, state))
    }));
    Ok(((!write.ops.is_empty()).then_some(write), next))
}

/// Whether a row is older than its lifetime. Keys of sends, dead letters and jobs may have been written
/// again, with a later expiry; no other key with an expiry is.
fn has_expired(of: &key::Key, value: &[u8], now: Timestamp) -> Result<bool> {
    if key::is_send_by_key(of) {
        let send: SendRecord = record::decode(value).in_table("sends_by_key")?;
        return Ok(send.expires_at <= now);
    }
    if key::is_dead_letter(of) {
        let letter = rules::outbox::decode_dead(value)?;
        let expires_at = |letter: DeadLetter| letter.died_at.plus_micros(DEAD_LETTER_KEPT_MICROS);
        return Ok(letter.is_none_or(|letter| expires_at(letter) <= now));
    }
    if key::is_ended_job(of) {
        let job = rules::job::decode(value)?;
        let ended_at = job.finished_at.unwrap_or(job.started_at);
        return Ok(ended_at.plus_micros(Job::ENDED_LIFETIME_MICROS) <= now);
    }
    Ok(true)
}

/// Moves a quiet conversation back to the activity index, or schedules its next check.
fn settle(
    context: &ReadContext,
    id: ConversationId,
    now: Timestamp,
    write: &mut Write,
) -> Result<Option<Arc<ConversationState>>> {
    let Some(state) = context.state(id)? else {
        return Ok(None);
    };
    let (Some(people), true) = (&state.people, state.head.is_busy) else {
        return Ok(None);
    };
    let activity = state.head.last_activity;
    if activity.plus_micros(inbox::QUIET_AFTER_MICROS) > now {
        let check = inbox::look_again(id, activity);
        write.ops.push(Op::Put(check, Vec::new()));
        return Ok(None);
    }
    let head = HeadRecord {
        is_busy: false,
        ..state.head
    };
    let after = state.with_head(head);
    let (from, to) = (state.head.listing(false), head.listing(false));
    let relisted = inbox::relist(&people.joined, id, from, to);
    let (row, before) = (key::head(id), state.head_bytes.clone());
    write.ops.extend(relisted);
    write.conditions.push(Condition::Is(row.clone(), before));
    write.ops.push(Op::Put(row, after.head_bytes.clone()));
    Ok(Some(Arc::new(after)))
}

/// Starts [`run`].
pub(crate) fn spawn(inner: &Arc<OpenStore>) -> tokio::task::AbortHandle {
    tokio::spawn(run(Arc::downgrade(inner))).abort_handle()
}

#[cfg(test)]
#[path = "maintenance_test.rs"]
mod tests;
