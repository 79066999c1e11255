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

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::backlog::{Backlog, BacklogSize, PendingReply};
use super::command::draft::Draft;
use super::conversation_writer::{ConversationCommand, ConversationWriter};
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
    bytes: usize,
    work: Work,
}

/// Consecutive sends run together, every other command alone.
enum Work {
    Send(SendJob),
    Single(SingleCommand),
}

/// Runs a command, and replies once the other servers were notified. The queue does not wait for that.
type SingleCommand = Box<dyn FnOnce(&ConversationWriter) -> BoxFuture<'_, ()> + Send>;

enum JobBatch {
    Sends(Vec<SendJob>),
    Single(SingleCommand),
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

    /// Sends a message (see [`Self::wait_for`]).
    pub(crate) async fn send(
        &self,
        conversation: ConversationId,
        sender: &UserId,
        draft: Draft,
    ) -> Result<Arc<Message>> {
        let (sender, draft) = (sender.clone(), Box::new(draft));
        self.wait_for(conversation, draft.bytes, |reply| {
            Work::Send(SendJob {
                sender,
                draft,
                reply,
            })
        })
        .await
    }

    /// Runs a command (see [`Self::wait_for`]).
    pub(crate) async fn run<C: ConversationCommand>(
        &self,
        conversation: ConversationId,
        user: &UserId,
        command: C,
    ) -> Result<C::Outcome> {
        let user = user.clone();
        self.wait_for(conversation, command.bytes(), |reply| {
            Work::Single(Box::new(move |writer| {
                let run = async move {
                    match command.run(writer, user).await {
                        Ok((value, outgoing)) => {
                            let reply = move |delivered: Result<()>| {
                                reply.send(delivered.map(|()| value));
                            };
                            writer.context().deliver_then(outgoing, reply);
                        }
                        Err(error) => reply.send(Err(error)),
                    }
                };
                run.boxed()
            }))
        })
        .await
    }

    /// Enqueues work, and waits until it is persisted and published, up to the deadlines.
    /// After a deadline in the queue the work is cancelled. Once it has been taken from the
    /// queue it runs to its end, also if the caller disconnects.
    async fn wait_for<T>(
        &self,
        conversation: ConversationId,
        bytes: usize,
        work: impl FnOnce(PendingReply<T>) -> Work,
    ) -> Result<T> {
        let permit = self.backlog.admit(bytes)?;
        let (reply, mut outcome) = oneshot::channel();
        let work = work(PendingReply::new(reply, permit));
        let number = self.enqueue(conversation, bytes, work)?;
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
        queue.bytes -= job.bytes;
        true
    }

    /// Returns the number of the job.
    fn enqueue(&self, conversation: ConversationId, bytes: usize, work: Work) -> Result<u64> {
        let mut queues = self.queues.lock();
        let (queue, is_new) = match queues.entry(conversation) {
            Entry::Occupied(entry) => (entry.into_mut(), false),
            Entry::Vacant(entry) => (entry.insert(ConversationQueue::default()), true),
        };
        let is_full =
            queue.jobs.len() >= self.bounds.jobs_max || queue.bytes + bytes > self.bounds.bytes_max;
        if is_full && !queue.jobs.is_empty() {
            return Err(Error::Busy);
        }
        queue.bytes += bytes;
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        queue.jobs.push_back(QueuedCommand {
            number,
            bytes,
            work,
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
                JobBatch::Single(run) => run(&self.writer).await,
            }
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
            let is_full = sends.len() >= BATCH_MESSAGES_MAX || bytes + job.bytes > BATCH_BYTES_MAX;
            match job.work {
                Work::Send(send) if sends.is_empty() || !is_full => sends.push(send),
                Work::Single(run) if sends.is_empty() => {
                    queue.bytes -= job.bytes;
                    return Some(JobBatch::Single(run));
                }
                work @ (Work::Send(_) | Work::Single(_)) => {
                    queue.jobs.push_front(QueuedCommand { work, ..job });
                    break;
                }
            }
            bytes += job.bytes;
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
