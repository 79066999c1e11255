//! Conversation queues: the order of all writes to one conversation.
//!
//! One task at a time runs the commands of a conversation. It takes a batch, allocates its ids,
//! persists it, publishes it in order, and only then takes the next batch. So no smaller id can
//! become visible after a greater one, and under load one commit serves many sends (group commit).
//! The task lives as long as the queue has jobs. A client that disconnects does not stop its
//! command.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::backlog::{Backlog, BacklogPermit, BacklogSize, PendingReply, Reply};
use super::command::WriterCheck;
use super::command::draft::Draft;
use super::command::erasure::ErasureCommand;
use super::command::group::GroupCommand;
use super::command::pin::PinDraft;
use super::command::reaction::ReactionDraft;
use super::command::revision::RevisionDraft;
use super::conversation_writer::ConversationWriter;
use super::outgoing::OutgoingEvents;
use super::send_batch::SendJob;
use super::write_context::WriteContext;
use crate::chat::bounds::Bounds;
use crate::chat::error::{Error, Result};
use crate::chat::write_tasks::WriteTasks;
use crate::metrics::add_store_time;
use crate::model::{ConversationId, Message, UserId};

/// Bounds of one batch. A single message may exceed the bytes.
const BATCH_MESSAGES_MAX: usize = 64;
const BATCH_BYTES_MAX: usize = 40 * 1024;

pub(crate) struct ConversationQueues {
    queues: Arc<Queues>,
    /// Number of the last job of all queues. A queue ends before its last job is answered: the next queue of the conversation must not
    /// use its numbers again, or the deadline of that job cancels another one.
    last_number: AtomicU64,
    context: Arc<WriteContext>,
    tasks: Arc<WriteTasks>,
    backlog: Arc<Backlog>,
    bounds: QueueBounds,
}

/// Bounds of one queue.
struct QueueBounds {
    jobs_max: usize,
    bytes_max: usize,
    /// Deadline for a job to leave the queue.
    queue_wait: Duration,
    /// Deadline for its outcome.
    outcome_wait: Duration,
}

/// A conversation has a queue exactly while a task runs its jobs.
type Queues = Mutex<HashMap<ConversationId, ConversationQueue>>;

#[derive(Default)]
struct ConversationQueue {
    jobs: VecDeque<QueuedCommand>,
    bytes: usize,
}

struct QueuedCommand {
    /// Identifies the job to a caller that cancels it.
    number: u64,
    user: UserId,
    work: Work,
    permit: BacklogPermit,
}

/// Command and the channel for its outcome.
pub(crate) enum Work {
    Send(Box<Draft>, Reply<Arc<Message>>),
    Revise(RevisionDraft, Reply<Arc<Message>>),
    React(ReactionDraft, Reply<Arc<Message>>),
    Pin(PinDraft, Reply<Arc<Message>>),
    Group(GroupCommand, WriterCheck, Reply<()>),
    Erase(ErasureCommand, Reply<()>),
}

impl Work {
    fn bytes(&self) -> usize {
        match self {
            Self::Send(draft, _) => draft.bytes,
            Self::Revise(draft, _) => draft.bytes(),
            Self::React(..) => ReactionDraft::BYTES,
            Self::Pin(..) => PinDraft::BYTES,
            Self::Group(command, ..) => command.bytes(),
            Self::Erase(command, _) => command.bytes(),
        }
    }
}

/// Consecutive sends run together, every other command alone.
enum JobBatch {
    Sends(Vec<SendJob>),
    Single(Box<QueuedCommand>),
}

impl ConversationQueues {
    pub(crate) fn new(context: Arc<WriteContext>, tasks: Arc<WriteTasks>, bounds: &Bounds) -> Self {
        Self {
            queues: Arc::default(),
            last_number: AtomicU64::new(0),
            context,
            tasks,
            backlog: Backlog::new(BacklogSize {
                writes: bounds.backlog_writes_max,
                bytes: bounds.backlog_bytes_max,
            }),
            bounds: QueueBounds {
                jobs_max: bounds.queue_jobs_max,
                bytes_max: bounds.queue_bytes_max,
                queue_wait: bounds.queue_wait,
                outcome_wait: bounds.outcome_wait,
            },
        }
    }

    /// Number of conversations with a running task, and of the jobs that wait in their queues.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let queues = self.queues.lock();
        (
            queues.len(),
            queues.values().map(|queue| queue.jobs.len()).sum(),
        )
    }

    pub(crate) fn backlog(&self) -> &Arc<Backlog> {
        &self.backlog
    }

    /// Enqueues a command, and waits until it is persisted and published, up to the deadlines.
    /// After a deadline in the queue the command is cancelled. Once it has been taken from the
    /// queue it runs to its end, also if the caller disconnects.
    pub(crate) async fn run<T>(
        &self,
        conversation: ConversationId,
        user: &UserId,
        work: impl FnOnce(Reply<T>) -> Work,
    ) -> Result<T> {
        let (reply, mut outcome) = oneshot::channel();
        let number = self.enqueue(conversation, user.clone(), work(reply))?;
        let began = Instant::now();
        let QueueBounds {
            queue_wait,
            outcome_wait,
            ..
        } = self.bounds;
        let received = match tokio::time::timeout(queue_wait, &mut outcome).await {
            Ok(received) => Ok(received),
            Err(_) if self.cancel(conversation, number) => {
                add_store_time(began.elapsed());
                return Err(Error::Busy);
            }
            Err(_) => tokio::time::timeout(outcome_wait.saturating_sub(queue_wait), outcome).await,
        };
        add_store_time(began.elapsed());
        match received {
            Ok(Ok(outcome)) => outcome,
            // The task has panicked, or the store has missed the deadline.
            Ok(Err(_)) | Err(_) => Err(Error::OutcomeUnknown),
        }
    }

    /// Removes a job that still waits. Returns false if the task has taken it.
    fn cancel(&self, conversation: ConversationId, number: u64) -> bool {
        let mut queues = self.queues.lock();
        let Some(queue) = queues.get_mut(&conversation) else {
            return false;
        };
        let Some(index) = queue.jobs.iter().position(|job| job.number == number) else {
            return false;
        };
        let job = queue.jobs.remove(index).expect("a job has this index");
        queue.bytes -= job.work.bytes();
        true
    }

    /// Returns the number of the job.
    fn enqueue(&self, conversation: ConversationId, user: UserId, work: Work) -> Result<u64> {
        let permit = self.backlog.admit(work.bytes())?;
        let mut queues = self.queues.lock();
        let (queue, is_new) = match queues.entry(conversation) {
            Entry::Occupied(entry) => (entry.into_mut(), false),
            Entry::Vacant(entry) => (entry.insert(ConversationQueue::default()), true),
        };
        let is_full = queue.jobs.len() >= self.bounds.jobs_max
            || queue.bytes + work.bytes() > self.bounds.bytes_max;
        if is_full && !queue.jobs.is_empty() {
            return Err(Error::Busy);
        }
        queue.bytes += work.bytes();
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        queue.jobs.push_back(QueuedCommand {
            number,
            user,
            work,
            permit,
        });
        drop(queues);
        if is_new {
            let task = QueueTask {
                queues: Arc::clone(&self.queues),
                writer: ConversationWriter::new(Arc::clone(&self.context), conversation),
            };
            self.tasks.spawn(task.run());
        }
        Ok(number)
    }
}

/// The only task that writes to a conversation.
struct QueueTask {
    queues: Arc<Queues>,
    writer: ConversationWriter,
}

impl QueueTask {
    async fn run(self) {
        while let Some(batch) = self.take() {
            match batch {
                JobBatch::Sends(sends) => self.writer.send(sends).await,
                JobBatch::Single(job) => self.run_single(*job).await,
            }
        }
    }

    async fn run_single(&self, job: QueuedCommand) {
        let QueuedCommand {
            user, work, permit, ..
        } = job;
        let writer = &self.writer;
        match work {
            Work::Send(draft, reply) => {
                writer
                    .send(vec![SendJob {
                        sender: user,
                        draft,
                        reply: PendingReply::new(reply, permit),
                    }])
                    .await
            }
            Work::Revise(draft, reply) => self.reply(
                PendingReply::new(reply, permit),
                writer.revise(user, draft).await,
            ),
            Work::React(draft, reply) => self.reply(
                PendingReply::new(reply, permit),
                writer.react(user, draft).await,
            ),
            Work::Pin(draft, reply) => self.reply(
                PendingReply::new(reply, permit),
                writer.pin(user, draft).await,
            ),
            Work::Group(command, check, reply) => {
                let changed = writer.change_group(&user, &check, &command).await;
                self.reply(
                    PendingReply::new(reply, permit),
                    changed.map(|outgoing| ((), outgoing)),
                );
            }
            Work::Erase(command, reply) => {
                let erased = writer.erase(&command).await;
                self.reply(
                    PendingReply::new(reply, permit),
                    erased.map(|()| ((), None)),
                );
            }
        }
    }

    /// Replies once the other servers were notified. The queue does not wait for that.
    fn reply<T: Send + 'static>(
        &self,
        reply: PendingReply<T>,
        outcome: Result<(T, Option<OutgoingEvents>)>,
    ) {
        match outcome {
            Ok((value, outgoing)) => {
                let context = self.writer.context();
                context.deliver_then(outgoing, move |delivered| {
                    reply.send(delivered.map(|()| value));
                });
            }
            Err(error) => reply.send(Err(error)),
        }
    }

    /// Takes the next batch. `None` removes the empty queue; the next job starts a new task.
    fn take(&self) -> Option<JobBatch> {
        let conversation = self.writer.conversation();
        let mut queues = self.queues.lock();
        let queue = queues.get_mut(&conversation)?;
        let mut sends = Vec::new();
        let mut bytes = 0;
        while let Some(job) = queue.jobs.pop_front() {
            let job_bytes = job.work.bytes();
            let is_full = sends.len() >= BATCH_MESSAGES_MAX || bytes + job_bytes > BATCH_BYTES_MAX;
            match job {
                QueuedCommand {
                    user,
                    work: Work::Send(draft, reply),
                    permit,
                    ..
                } if sends.is_empty() || !is_full => {
                    sends.push(SendJob {
                        sender: user,
                        draft,
                        reply: PendingReply::new(reply, permit),
                    });
                }
                job if sends.is_empty() => {
                    queue.bytes -= job_bytes;
                    return Some(JobBatch::Single(Box::new(job)));
                }
                job => {
                    queue.jobs.push_front(job);
                    break;
                }
            }
            bytes += job_bytes;
        }
        queue.bytes -= bytes;
        if sends.is_empty() {
            queues.remove(&conversation);
            return None;
        }
        Some(JobBatch::Sends(sends))
    }
}

impl Drop for QueueTask {
    /// A panic leaves the queue behind. Its jobs end with an unknown outcome, and the next job
    /// starts a new task.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.queues.lock().remove(&self.writer.conversation());
        }
    }
}
