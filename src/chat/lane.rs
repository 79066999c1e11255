//! The queue of a conversation: what gives its messages their ids and their order.
//!
//! One task at a time works for a conversation. It takes what has gathered, gives the ids, keeps all of it in one batch, tells it in
//! order, and only then takes more: so no smaller id can become visible after a greater one, and under load one commit serves many sends.
//! The task lives as long as there is work; a client that goes away does not stop its send.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::draft::Draft;
use super::horizon::Batch;
use super::{Chat, Error, Result};
use crate::model::{ConversationId, Event, IdempotencyKey, InputHash, Message, MessageId, MessageKind, Notice, Topic, UserId};
use crate::store::{self, Audience, NewMessage};

/// What one batch holds at most; one message always fits.
const BATCH_MESSAGES_MAX: usize = 64;
const BATCH_BYTES_MAX: usize = 40 * 1024;

#[derive(Default)]
pub(super) struct Lanes {
    /// A conversation is in here exactly while a task works for it.
    queues: Mutex<HashMap<ConversationId, Queue>>,
    tasks: TaskTracker,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    bytes: usize,
}

struct Job {
    sender: UserId,
    draft: Draft,
    reply: oneshot::Sender<Result<Arc<Message>>>,
}

/// How long the end of the process waits for sends that are under way.
const FINISH_MAX: Duration = Duration::from_secs(30);

impl Lanes {
    pub(super) async fn finish(&self) {
        self.tasks.close();
        if tokio::time::timeout(FINISH_MAX, self.tasks.wait()).await.is_err() {
            tracing::warn!(tasks = self.tasks.len(), "some writes do not end; their outcome is not known");
        }
    }
}

impl Chat {
    /// Runs a write to its end also when the one who asked goes away meanwhile: what is kept must be told.
    pub(super) async fn to_the_end<T: Send + 'static>(&self, write: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
        let task = self.0.lanes.tasks.spawn(write.instrument(tracing::Span::none()));
        match tokio::time::timeout(self.0.bounds.settle_wait, task).await {
            Ok(Ok(outcome)) => outcome,
            // It panicked, or the store is slower than one may wait for.
            Ok(Err(_)) | Err(_) => Err(Error::OutcomeUnknown),
        }
    }
}

impl Chat {
    /// Puts a send into its conversation's queue. The answer comes when it is kept and told.
    pub(super) fn enqueue(
        &self,
        conversation: ConversationId,
        sender: UserId,
        draft: Draft,
    ) -> Result<oneshot::Receiver<Result<Arc<Message>>>> {
        let (reply, answer) = oneshot::channel();
        let bounds = &self.0.bounds;
        let mut queues = self.0.lanes.queues.lock().expect("no panic while holding the queues");
        let (queue, is_new) = match queues.entry(conversation) {
            Entry::Occupied(entry) => (entry.into_mut(), false),
            Entry::Vacant(entry) => (entry.insert(Queue::default()), true),
        };
        let is_full = queue.jobs.len() >= bounds.lane_jobs_max || queue.bytes + draft.bytes > bounds.lane_bytes_max;
        if is_full && !queue.jobs.is_empty() {
            return Err(Error::Busy);
        }
        queue.bytes += draft.bytes;
        queue.jobs.push_back(Job { sender, draft, reply });
        drop(queues);
        if is_new {
            let worker = Worker { chat: self.clone(), conversation };
            self.0.lanes.tasks.spawn(worker.run().instrument(tracing::Span::none()));
        }
        Ok(answer)
    }
}

/// The one task that works for a conversation.
struct Worker {
    chat: Chat,
    conversation: ConversationId,
}

impl Worker {
    async fn run(self) {
        while let Some(jobs) = self.take() {
            self.work(jobs).await;
        }
    }

    /// The next batch of jobs. `None` when there are none: then the queue is gone, and the next job starts a new task.
    fn take(&self) -> Option<Vec<Job>> {
        let mut queues = self.chat.0.lanes.queues.lock().expect("no panic while holding the queues");
        let queue = queues.get_mut(&self.conversation)?;
        let mut jobs = Vec::new();
        let mut bytes = 0;
        while let Some(job) = queue.jobs.front() {
            if !jobs.is_empty() && (jobs.len() >= BATCH_MESSAGES_MAX || bytes + job.draft.bytes > BATCH_BYTES_MAX) {
                break;
            }
            bytes += job.draft.bytes;
            jobs.extend(queue.jobs.pop_front());
        }
        queue.bytes -= bytes;
        if jobs.is_empty() {
            queues.remove(&self.conversation);
            return None;
        }
        Some(jobs)
    }

    async fn work(&self, jobs: Vec<Job>) {
        let jobs = match self.settle_retries(jobs).await {
            Ok(jobs) if jobs.is_empty() => return,
            Ok(jobs) => jobs,
            // Their jobs were answered: the reason is shared by all of them.
            Err(()) => return,
        };
        let (jobs, twins) = split_twins(jobs);
        let batch = self.chat.0.horizon.begin(jobs.len());
        let messages: Vec<_> = jobs.iter().zip(batch.ids()).map(|(job, id)| self.message(job, *id)).collect();
        match batch.if_kept(self.chat.0.store.append_messages(self.conversation, &messages).await) {
            Ok((batch, audience)) => {
                self.tell(&messages, &audience, &batch);
                drop(batch);
                for (index, twin) in twins {
                    answer(twin, &messages[index].message, messages[index].input_hash);
                }
                for (job, kept) in jobs.into_iter().zip(messages) {
                    let _ = job.reply.send(Ok(kept.message));
                }
            }
            Err(error) => fail_all(jobs.into_iter().chain(twins.into_iter().map(|(_, twin)| twin)), error),
        }
    }

    /// Answers those whose key was used before, and leaves the others.
    async fn settle_retries(&self, jobs: Vec<Job>) -> Result<Vec<Job>, ()> {
        let keys: Vec<_> = jobs.iter().filter_map(|job| Some((job.sender.clone(), job.draft.key.clone()?))).collect();
        if keys.is_empty() {
            return Ok(jobs);
        }
        let store = &self.chat.0.store;
        let mut earlier = match store.earlier_sends(self.conversation, &keys).await {
            Ok(earlier) => earlier.into_iter(),
            Err(error) => return fail(jobs, error),
        };
        let mut fresh = Vec::new();
        let mut retries = Vec::new();
        for job in jobs {
            match job.draft.key.as_ref().and_then(|_| earlier.next().flatten()) {
                Some(send) => retries.push((job, send)),
                None => fresh.push(job),
            }
        }
        let ids: Vec<_> = retries.iter().map(|(_, send)| (self.conversation, send.message)).collect();
        if ids.is_empty() {
            return Ok(fresh);
        }
        match store.messages(&ids).await {
            Ok(messages) => {
                for ((job, send), message) in retries.into_iter().zip(messages) {
                    match message {
                        Some(message) => answer(job, &message, Some(send.input_hash)),
                        // The key stands beside its message in one batch: one without the other is a damaged store.
                        None => drop(job.reply.send(Err(Error::OutcomeUnknown))),
                    }
                }
                Ok(fresh)
            }
            Err(error) => fail(fresh.into_iter().chain(retries.into_iter().map(|(job, _)| job)), error),
        }
    }

    fn message(&self, job: &Job, id: MessageId) -> NewMessage {
        let message = Message {
            conversation: self.conversation,
            id,
            sender: job.sender.clone(),
            kind: MessageKind::Text,
            content: Some(job.draft.content.clone()),
            reply_to: job.draft.reply_to,
            client_key: job.draft.key.clone(),
            deleted_at: None,
        };
        NewMessage { message: Arc::new(message), input_hash: job.draft.key.as_ref().map(|_| job.draft.hash) }
    }

    fn tell(&self, messages: &[NewMessage], audience: &Audience, batch: &Batch) {
        let bus = &self.chat.0.bus;
        let topic = Topic::Conversation(self.conversation);
        let settled = batch.settled();
        if bus.has_listeners(&topic) {
            for new in messages {
                let event = Event::MessageAdded(Arc::clone(&new.message));
                bus.publish(&topic, Arc::new(Notice { id: new.message.id, settled, event }));
            }
        }
        if let Some(users) = &audience.users {
            self.chat.tell_inboxes(users.iter(), self.conversation, batch.newest(), settled);
        }
    }
}

impl Drop for Worker {
    /// Only a panic leaves a queue behind: its jobs end with their outcome unknown, and the next send begins anew.
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Ok(mut queues) = self.chat.0.lanes.queues.lock()
        {
            queues.remove(&self.conversation);
        }
    }
}

/// Sets aside the jobs that repeat a key of an earlier job of the same batch, each with the place of that job.
fn split_twins(jobs: Vec<Job>) -> (Vec<Job>, Vec<(usize, Job)>) {
    let mut seen: HashMap<(UserId, IdempotencyKey), usize> = HashMap::new();
    let (mut first, mut twins) = (Vec::with_capacity(jobs.len()), Vec::new());
    for job in jobs {
        let Some(key) = &job.draft.key else {
            first.push(job);
            continue;
        };
        match seen.entry((job.sender.clone(), key.clone())) {
            Entry::Occupied(place) => twins.push((*place.get(), job)),
            Entry::Vacant(place) => {
                place.insert(first.len());
                first.push(job);
            }
        }
    }
    (first, twins)
}

/// Answers a retry with the message of its first try, or says that it was another input.
fn answer(job: Job, message: &Arc<Message>, input_hash: Option<InputHash>) {
    let is_same = input_hash == Some(job.draft.hash);
    // A client that has gone does not want the answer.
    let _ = job.reply.send(if is_same { Ok(Arc::clone(message)) } else { Err(Error::Conflict) });
}

fn fail<T>(jobs: impl IntoIterator<Item = Job>, error: store::Error) -> Result<T, ()> {
    fail_all(jobs, error);
    Err(())
}

fn fail_all(jobs: impl IntoIterator<Item = Job>, error: store::Error) {
    let error = Arc::new(error);
    for job in jobs {
        let _ = job.reply.send(Err(Error::Store(Arc::clone(&error))));
    }
}
