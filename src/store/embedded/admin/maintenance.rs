//! Background maintenance of the embedded store: it checks disk and committer, and sweeps expired rows.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::model::{ConversationId, Direction, Job, Timestamp};
use crate::store::embedded::OpenStore;
use crate::store::embedded::admin::compaction;
use crate::store::embedded::cache::state::ConversationState;
use crate::store::embedded::engine::committer::{CommitOutcome, Condition, Op, Write};
use crate::store::embedded::engine::db::{MalformedKey, corrupt};
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
pub(in crate::store::embedded) struct Disk {
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
    pub(in crate::store::embedded) fn new(path: PathBuf, free_bytes_min: u64) -> Self {
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

    pub(in crate::store::embedded) fn free_bytes(&self) -> u64 {
        self.free_bytes.load(Ordering::Relaxed)
    }

    /// Checks that the disk has room for a write.
    pub(in crate::store::embedded) fn check(&self) -> Result<()> {
        if self.is_short.load(Ordering::Relaxed) {
            return Err(Error::Unavailable(Box::new(DiskFull {
                free_bytes_min: self.free_bytes_min,
            })));
        }
        Ok(())
    }
}

/// Runs until the store is dropped.
pub(in crate::store::embedded) async fn run(store: Weak<OpenStore>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut was_stuck = false;
    let mut sweep = Sweep::default();
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
pub(in crate::store::embedded) struct Sweep {
    /// Position up to which rows are swept. Without it each sweep would step over the tombstones of earlier ones.
    from: Vec<u8>,
    outbox: OutboxSweep,
}

impl Sweep {
    pub(in crate::store::embedded) async fn run(&mut self, inner: &OpenStore) -> Result<()> {
        self.run_expiries(inner).await?;
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
        let of = key::expired_key(&bytes).ok_or_else(|| corrupt("expiry", MalformedKey))?;
        write.ops.push(Op::Delete(key::Key {
            table: key::Table::Rows,
            bytes: bytes.to_vec(),
        }));
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
            .for_each(|state| states.put_written(state))
    }));
    Ok(((!write.ops.is_empty()).then_some(write), next))
}

/// Whether a row is older than its lifetime. Keys of sends, dead letters and jobs may have been written
/// again, with a later expiry; no other key with an expiry is.
fn has_expired(of: &key::Key, value: &[u8], now: Timestamp) -> Result<bool> {
    if key::is_send_by_key(of) {
        let send: SendRecord =
            record::decode(value).map_err(|error| corrupt("sends_by_key", error))?;
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
    if state
        .head
        .last_activity
        .plus_micros(inbox::QUIET_AFTER_MICROS)
        > now
    {
        write.ops.push(Op::Put(
            inbox::look_again(id, state.head.last_activity),
            Vec::new(),
        ));
        return Ok(None);
    }
    let head = HeadRecord {
        is_busy: false,
        ..state.head
    };
    let after = state.with_head(head);
    write.ops.extend(inbox::relist(
        &people.joined,
        id,
        state.head.listing(false),
        head.listing(false),
    ));
    write
        .ops
        .push(Op::Put(key::head(id), after.head_bytes.clone()));
    write
        .conditions
        .push(Condition::Is(key::head(id), state.head_bytes.clone()));
    Ok(Some(Arc::new(after)))
}

/// Starts [`run`].
pub(in crate::store::embedded) fn spawn(inner: &Arc<OpenStore>) -> tokio::task::AbortHandle {
    tokio::spawn(run(Arc::downgrade(inner))).abort_handle()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock as _, ManualClock};
    use crate::model::{
        Content, Conversation, ConversationId, ConversationKind, Mentions, Message, MessageKind,
        OrderKey, OutboxEvent, PageRequest, ReadMarker, Report, ReportReason, Role, TimeUuid,
        Timestamp, UserId,
    };
    use crate::store::embedded::{Embedded, Options};
    use crate::store::{MarkerMove, NewConversation, NewMessage, Store};

    const DAY_MICROS: i64 = 24 * 3_600 * 1_000_000;

    /// A direct conversation of two users.
    fn conversation_of(one: &UserId, other: &UserId, change: TimeUuid) -> NewConversation {
        NewConversation {
            conversation: Conversation {
                id: ConversationId::direct(one, other),
                kind: ConversationKind::Direct,
                name: None,
                created_at: change.moment(),
                created_by: None,
                input_hash: None,
                slow_mode_seconds: 0,
                history: Default::default(),
                is_large: false,
            },
            participants: vec![(one.clone(), Role::Member), (other.clone(), Role::Member)],
            change,
        }
    }

    fn message(conversation: ConversationId, sender: &UserId, id: TimeUuid) -> Message {
        Message {
            conversation,
            id,
            sender: sender.clone(),
            kind: MessageKind::Text,
            content: Some(Content::default()),
            reply_to: None,
            client_key: None,
            deleted_at: None,
            has_reactions: false,
            pin: None,
        }
    }

    async fn append(store: &Embedded, message: &Message) {
        let new = NewMessage {
            message: Arc::new(message.clone()),
            input_hash: None,
            is_by_service: false,
        };
        store
            .append_messages(message.conversation, &[new])
            .await
            .unwrap();
    }

    /// An empty store, with a clock that the test moves.
    async fn open() -> (tempfile::TempDir, Arc<ManualClock>, Embedded) {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(
            1_767_225_600_000_000,
        )));
        let options = Options {
            free_bytes_min: 0,
            ..Options::new(folder.path())
        };
        let store = Embedded::open(options, clock.clone()).await.unwrap();
        (folder, clock, store)
    }

    fn rows(context: &ReadContext, span: key::Span) -> usize {
        context.view().scan(span, Direction::Forward).count()
    }

    #[tokio::test]
    async fn what_has_expired_is_swept_and_nothing_else() {
        let (_folder, clock, store) = open().await;
        let start = clock.now();
        let user = UserId::parse("ann").unwrap();
        let conversation = ConversationId::random();
        for day in [0, 10] {
            let change = TimeUuid::new(start.plus_micros(day * DAY_MICROS), [0; 8]);
            let to = MarkerMove {
                conversation,
                marker: ReadMarker::default(),
                read_up_to: None,
                is_by_service: false,
                change,
            };
            store.move_read_marker(&user, &to).await.unwrap();
        }
        let context = store.inner.context.clone();
        let changes = || rows(&context, key::changes_of_user_after(&user, OrderKey::MIN));
        let all = || rows(&context, key::expired(Timestamp::MAX));
        let mut sweep = Sweep::default();
        for (day, left) in [(34, 2), (36, 1), (36, 1), (50, 0)] {
            clock.set(start.plus_micros(day * DAY_MICROS));
            sweep.run(&store.inner).await.unwrap();
            assert_eq!((changes(), all()), (left, left), "on day {day}");
        }
        store.close().await.unwrap();
    }

    /// A dead letter lives 30 days from its last death, a report and a mention 400 days.
    #[tokio::test]
    async fn dead_letters_reports_and_mentions_are_swept_when_their_time_is_over() {
        let (_folder, clock, store) = open().await;
        let start = clock.now();
        let day = |day: i64| start.plus_micros(day * DAY_MICROS);
        let user = UserId::parse("ann").unwrap();
        for died_at in [day(0), day(10)] {
            let letter = DeadLetter {
                conversation: ConversationId::random(),
                event: OutboxEvent::message_added(TimeUuid::new(start, [0; 8])),
                part: String::new(),
                died_at,
                tries: 3,
                reason: "it answers 404".to_owned(),
            };
            store.put_dead_letter("crm", &letter).await.unwrap();
        }
        let report = Report {
            id: TimeUuid::new(start, [1; 8]),
            reporter: user.clone(),
            user: user.clone(),
            reason: ReportReason::Spam,
            note: None,
            conversation: None,
            message: None,
            body: None,
            attachments: Vec::new(),
            resolution: None,
        };
        store.add_report(&report, report.id).await.unwrap();
        let mention = key::mention(
            &user,
            ConversationId::random(),
            TimeUuid::new(start, [2; 8]).order_key(),
        );
        let ops = vec![
            Op::Put(key::expiry(&mention, day(400)), Vec::new()),
            Op::Put(mention, record::encode(&user)),
        ];
        store
            .write(Write {
                ops,
                ..Write::default()
            })
            .await
            .unwrap();
        let context = store.inner.context.clone();
        let mut sweep = Sweep::default();
        for (at, left) in [
            (29, (1, 1, 1)),
            (31, (1, 1, 1)),
            (41, (0, 1, 1)),
            (399, (0, 1, 1)),
            (402, (0, 0, 0)),
        ] {
            clock.set(day(at));
            sweep.run(&store.inner).await.unwrap();
            let found = (
                rows(&context, key::dead_letters("crm")),
                rows(&context, key::all_reports()),
                rows(&context, key::all_mentions()),
            );
            assert_eq!(found, left, "on day {at}");
        }
        assert_eq!(rows(&context, key::expired(Timestamp::MAX)), 0);
        store.close().await.unwrap();
    }

    #[tokio::test]
    async fn the_mentions_of_a_message_expire_together() {
        let (_folder, clock, store) = open().await;
        let start = clock.now();
        let users = ["ann", "ben", "cem"].map(|name| UserId::parse(name).unwrap());
        let id = |micros| TimeUuid::new(start.plus_micros(micros), [0; 8]);
        let new = conversation_of(&users[0], &users[1], id(0));
        store.create_conversation(&new).await.unwrap();
        let mut message = message(new.conversation.id, &users[0], id(1));
        message.content = Some(Content {
            mentions: Mentions::new(users[1..].to_vec(), true),
            ..Content::default()
        });
        append(&store, &message).await;
        let context = store.inner.context.clone();
        let mut sweep = Sweep::default();
        for (day, left) in [(1, (2, 1)), (399, (2, 1)), (402, (0, 0))] {
            clock.set(start.plus_micros(day * DAY_MICROS));
            sweep.run(&store.inner).await.unwrap();
            let named = rows(&context, key::all_mentions());
            let everyone = rows(&context, key::all_everyones());
            assert_eq!((named, everyone), left, "on day {day}");
        }
        store.close().await.unwrap();
    }

    /// Rows of the conversation in ann's inbox: in the activity index, and in the busy list.
    fn found(context: &ReadContext, ann: &UserId) -> (usize, usize) {
        (
            rows(context, key::activities(ann)),
            rows(context, key::busy(ann)),
        )
    }

    #[tokio::test]
    async fn a_conversation_is_busy_from_one_send_to_a_quiet_while_later() {
        const HOUR: i64 = 3_600 * 1_000_000;
        let (_folder, clock, store) = open().await;
        let start = clock.now();
        let (ann, ben) = (UserId::parse("ann").unwrap(), UserId::parse("ben").unwrap());
        let id = |micros| TimeUuid::new(start.plus_micros(micros), [0; 8]);
        let new = conversation_of(&ann, &ben, id(0));
        store.create_conversation(&new).await.unwrap();
        let conversation = new.conversation.id;
        let context = store.inner.context.clone();
        let mut sweep = Sweep::default();
        // Each step: hours until a send, rows then, and rows after the sweep of that time.
        let steps = [
            (Some(0), (0, 1), (0, 1)),
            (Some(1), (0, 1), (0, 1)),
            (None, (0, 1), (0, 1)),
            (None, (0, 1), (1, 0)),
            (None, (1, 0), (1, 0)),
            (Some(5), (1, 0), (1, 0)),
            (Some(6), (1, 0), (1, 0)),
        ];
        for (hour, (sent, before, after)) in (0_i64..).zip(steps) {
            clock.set(start.plus_micros(hour * HOUR + HOUR / 2));
            if sent.is_some() {
                append(&store, &message(conversation, &ann, id(hour * HOUR + 1))).await;
            }
            assert_eq!(found(&context, &ann), before, "in hour {hour}");
            sweep.run(&store.inner).await.unwrap();
            assert_eq!(
                found(&context, &ann),
                after,
                "after the sweep of hour {hour}"
            );
            let page = store.inbox(&ben, &PageRequest::first(9)).await.unwrap();
            assert_eq!(page.items.len(), 1, "it is listed once, whatever it is");
        }
        store.close().await.unwrap();
    }
}
