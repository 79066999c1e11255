//! The queue of a conversation: what gives its messages and changes their ids and their order.
//!
//! One task at a time works for a conversation. It takes what has gathered, gives the ids, keeps all of it in one batch, tells it in
//! order, and only then takes more: so no smaller id can become visible after a greater one, and under load one commit serves many sends.
//! The task lives as long as there is work; a client that goes away does not stop its send.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::draft::Draft;
use super::group::Wish;
use super::horizon::Ids;
use super::revision::RevisionDraft;
use super::{Chat, Error, Result};
use crate::model::{
    Change, ConversationId, Event, IdempotencyKey, InputHash, Message, MessageId, MessageKind, Notice, TimeUuid, Topic, UserId,
};
use crate::store::{self, Audience, NewMessage, Revised};

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
    user: UserId,
    work: Work,
}

/// Where the outcome of a job goes.
pub(super) type Reply<T> = oneshot::Sender<Result<T>>;

/// What a job does. Everything that is told of takes its id in the queue.
pub(super) enum Work {
    Send(Draft, Reply<Arc<Message>>),
    Revise(RevisionDraft, Reply<Arc<Message>>),
    Govern(Wish, Reply<()>),
}

impl Work {
    fn bytes(&self) -> usize {
        match self {
            Self::Send(draft, _) => draft.bytes,
            Self::Revise(draft, _) => draft.bytes(),
            Self::Govern(wish, _) => wish.bytes(),
        }
    }
}

/// A send that was taken from the queue.
struct SendJob {
    sender: UserId,
    draft: Draft,
    reply: Reply<Arc<Message>>,
}

/// What the task does next: sends together, anything else by itself.
enum Batch {
    Sends(Vec<SendJob>),
    Alone(Job),
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
    pub(super) async fn to_the_end<T: std::marker::Send + 'static>(
        &self,
        write: impl Future<Output = Result<T>> + std::marker::Send + 'static,
    ) -> Result<T> {
        let task = self.0.lanes.tasks.spawn(write.instrument(tracing::Span::none()));
        match tokio::time::timeout(self.0.bounds.settle_wait, task).await {
            Ok(Ok(outcome)) => outcome,
            // It panicked, or the store is slower than one may wait for.
            Ok(Err(_)) | Err(_) => Err(Error::OutcomeUnknown),
        }
    }

    /// Puts work into its conversation's queue, and waits until it is kept and told, or for as long as one may. A caller that stops
    /// waiting does not stop the work.
    pub(super) async fn work<T>(&self, conversation: ConversationId, user: &UserId, work: impl FnOnce(Reply<T>) -> Work) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.enqueue(conversation, Job { user: user.clone(), work: work(reply) })?;
        match tokio::time::timeout(self.0.bounds.settle_wait, answer).await {
            Ok(Ok(answer)) => answer,
            // The task of the conversation panicked, or the store is slower than one may wait for.
            Ok(Err(_)) | Err(_) => Err(Error::OutcomeUnknown),
        }
    }

    fn enqueue(&self, conversation: ConversationId, job: Job) -> Result<()> {
        let bounds = &self.0.bounds;
        let mut queues = self.0.lanes.queues.lock().expect("no panic while holding the queues");
        let (queue, is_new) = match queues.entry(conversation) {
            Entry::Occupied(entry) => (entry.into_mut(), false),
            Entry::Vacant(entry) => (entry.insert(Queue::default()), true),
        };
        let is_full = queue.jobs.len() >= bounds.lane_jobs_max || queue.bytes + job.work.bytes() > bounds.lane_bytes_max;
        if is_full && !queue.jobs.is_empty() {
            return Err(Error::Busy);
        }
        queue.bytes += job.work.bytes();
        queue.jobs.push_back(job);
        drop(queues);
        if is_new {
            let worker = Worker { chat: self.clone(), conversation };
            self.0.lanes.tasks.spawn(worker.run().instrument(tracing::Span::none()));
        }
        Ok(())
    }
}

/// The one task that works for a conversation.
pub(super) struct Worker {
    pub(super) chat: Chat,
    pub(super) conversation: ConversationId,
}

impl Worker {
    async fn run(self) {
        while let Some(batch) = self.take() {
            match batch {
                Batch::Sends(sends) => self.send(sends).await,
                Batch::Alone(Job { user, work }) => self.do_alone(user, work).await,
            }
        }
    }

    /// A client that has gone does not want the answer.
    async fn do_alone(&self, user: UserId, work: Work) {
        match work {
            Work::Send(draft, reply) => self.send(vec![SendJob { sender: user, draft, reply }]).await,
            Work::Revise(draft, reply) => drop(reply.send(self.revise(user, draft).await)),
            Work::Govern(wish, reply) => drop(reply.send(self.govern(&user, &wish).await)),
        }
    }

    /// What is done next. `None` when there is nothing: then the queue is gone, and the next job starts a new task.
    fn take(&self) -> Option<Batch> {
        let mut queues = self.chat.0.lanes.queues.lock().expect("no panic while holding the queues");
        let queue = queues.get_mut(&self.conversation)?;
        let mut sends = Vec::new();
        let mut bytes = 0;
        while let Some(job) = queue.jobs.pop_front() {
            let job_bytes = job.work.bytes();
            let is_full = sends.len() >= BATCH_MESSAGES_MAX || bytes + job_bytes > BATCH_BYTES_MAX;
            match job {
                Job { user, work: Work::Send(draft, reply) } if sends.is_empty() || !is_full => {
                    sends.push(SendJob { sender: user, draft, reply });
                }
                job if sends.is_empty() => {
                    queue.bytes -= job_bytes;
                    return Some(Batch::Alone(job));
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
            queues.remove(&self.conversation);
            return None;
        }
        Some(Batch::Sends(sends))
    }

    async fn send(&self, sends: Vec<SendJob>) {
        let Ok(sends) = self.leave_out_who_left(sends).await else { return };
        let sends = match self.settle_retries(sends).await {
            Ok(sends) if sends.is_empty() => return,
            Ok(sends) => sends,
            // They were answered: the reason is shared by all of them.
            Err(()) => return,
        };
        let (sends, twins) = split_twins(sends);
        let ids = self.chat.0.horizon.begin(sends.len());
        let messages: Vec<_> = sends.iter().zip(ids.ids()).map(|(send, id)| self.message(send, *id)).collect();
        match ids.if_kept(self.chat.0.store.append_messages(self.conversation, &messages).await) {
            Ok((ids, audience)) => {
                self.tell_messages(&messages, &audience, &ids);
                drop(ids);
                for (index, twin) in twins {
                    answer(twin, &messages[index].message, messages[index].input_hash);
                }
                for (send, kept) in sends.into_iter().zip(messages) {
                    let _ = send.reply.send(Ok(kept.message));
                }
            }
            Err(error) => fail_all(sends.into_iter().chain(twins.into_iter().map(|(_, twin)| twin)), error),
        }
    }

    /// Nothing is said by one who has left: who did so while their send waited is answered like a stranger.
    async fn leave_out_who_left(&self, sends: Vec<SendJob>) -> Result<Vec<SendJob>, ()> {
        let departures = self.chat.0.departures.load(Ordering::SeqCst);
        let mut present = HashMap::new();
        for send in sends.iter().filter(|send| send.draft.departures != departures) {
            if !present.contains_key(&send.sender) {
                match self.chat.conversation(&send.sender, self.conversation).await {
                    Ok(found) => drop(present.insert(send.sender.clone(), found.is_some())),
                    Err(error) => {
                        sends.into_iter().for_each(|send| drop(send.reply.send(Err(error.clone()))));
                        return Err(());
                    }
                }
            }
        }
        let has_left = |send: &SendJob| present.get(&send.sender) == Some(&false);
        let (gone, there): (Vec<_>, Vec<_>) = sends.into_iter().partition(has_left);
        gone.into_iter().for_each(|send| drop(send.reply.send(Err(Error::NotFound("the conversation")))));
        Ok(there)
    }

    /// Changes a message, where the rules let this user.
    async fn revise(&self, user: UserId, draft: RevisionDraft) -> Result<Arc<Message>> {
        let present = self.chat.message_of(self.conversation, draft.message).await?;
        let ids = self.chat.0.horizon.begin(1);
        let Some(revision) = draft.revision(&present, &user, ids.newest().moment())? else { return Ok(present) };
        let change = Change { id: ids.newest(), kind: revision.kind(), message: present.id, user };
        let (ids, revised) = ids.if_kept(self.chat.0.store.revise_message(self.conversation, &revision, &change).await)?;
        let Revised { message, audience } = revised.ok_or(Error::NotFound("the message"))?;
        self.tell(change.id, &ids, Event::MessageChanged(change.kind, Arc::clone(&message)));
        self.tell_audience(&audience, &ids);
        Ok(message)
    }

    /// Answers those whose key was used before, and leaves the others.
    async fn settle_retries(&self, sends: Vec<SendJob>) -> Result<Vec<SendJob>, ()> {
        let keys: Vec<_> = sends.iter().filter_map(|send| Some((send.sender.clone(), send.draft.key.clone()?))).collect();
        if keys.is_empty() {
            return Ok(sends);
        }
        let store = &self.chat.0.store;
        let mut earlier = match store.earlier_sends(self.conversation, &keys).await {
            Ok(earlier) => earlier.into_iter(),
            Err(error) => return fail(sends, error),
        };
        let mut fresh = Vec::new();
        let mut retries = Vec::new();
        for send in sends {
            match send.draft.key.as_ref().and_then(|_| earlier.next().flatten()) {
                Some(first) => retries.push((send, first)),
                None => fresh.push(send),
            }
        }
        let ids: Vec<_> = retries.iter().map(|(_, first)| (self.conversation, first.message)).collect();
        if ids.is_empty() {
            return Ok(fresh);
        }
        match store.messages(&ids).await {
            Ok(messages) => {
                for ((send, first), message) in retries.into_iter().zip(messages) {
                    match message {
                        Some(message) => answer(send, &message, Some(first.input_hash)),
                        // The key stands beside its message in one batch: one without the other is a damaged store.
                        None => drop(send.reply.send(Err(Error::OutcomeUnknown))),
                    }
                }
                Ok(fresh)
            }
            Err(error) => fail(fresh.into_iter().chain(retries.into_iter().map(|(send, _)| send)), error),
        }
    }

    fn message(&self, send: &SendJob, id: MessageId) -> NewMessage {
        let message = Message {
            conversation: self.conversation,
            id,
            sender: send.sender.clone(),
            kind: MessageKind::Text,
            content: Some(send.draft.content.clone()),
            reply_to: send.draft.reply_to,
            client_key: send.draft.key.clone(),
            deleted_at: None,
        };
        NewMessage { message: Arc::new(message), input_hash: send.draft.key.as_ref().map(|_| send.draft.hash) }
    }

    fn tell_messages(&self, messages: &[NewMessage], audience: &Audience, ids: &Ids) {
        for new in messages {
            self.tell(new.message.id, ids, Event::MessageAdded(Arc::clone(&new.message)));
        }
        self.tell_audience(audience, ids);
    }

    /// Tells those who listen to the conversation.
    pub(super) fn tell(&self, id: TimeUuid, ids: &Ids, event: Event) {
        let topic = Topic::Conversation(self.conversation);
        if self.chat.0.bus.has_listeners(&topic) {
            self.chat.0.bus.publish(&topic, Arc::new(Notice { id, settled: ids.settled(), event }));
        }
    }

    pub(super) fn tell_audience(&self, audience: &Audience, ids: &Ids) {
        if let Some(users) = &audience.users {
            self.chat.tell_inboxes(users.iter(), self.conversation, ids.newest(), ids.settled());
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

/// Sets aside the sends that repeat a key of an earlier one of the same batch, each with the place of that one.
fn split_twins(sends: Vec<SendJob>) -> (Vec<SendJob>, Vec<(usize, SendJob)>) {
    let mut seen: HashMap<(UserId, IdempotencyKey), usize> = HashMap::new();
    let (mut first, mut twins) = (Vec::with_capacity(sends.len()), Vec::new());
    for send in sends {
        let Some(key) = &send.draft.key else {
            first.push(send);
            continue;
        };
        match seen.entry((send.sender.clone(), key.clone())) {
            Entry::Occupied(place) => twins.push((*place.get(), send)),
            Entry::Vacant(place) => {
                place.insert(first.len());
                first.push(send);
            }
        }
    }
    (first, twins)
}

/// Answers a retry with the message of its first try, or says that it was another input.
fn answer(send: SendJob, message: &Arc<Message>, input_hash: Option<InputHash>) {
    let is_same = input_hash == Some(send.draft.hash);
    let _ = send.reply.send(if is_same { Ok(Arc::clone(message)) } else { Err(Error::Conflict) });
}

fn fail<T>(sends: impl IntoIterator<Item = SendJob>, error: store::Error) -> Result<T, ()> {
    fail_all(sends, error);
    Err(())
}

fn fail_all(sends: impl IntoIterator<Item = SendJob>, error: store::Error) {
    let error = Arc::new(error);
    for send in sends {
        let _ = send.reply.send(Err(Error::Store(Arc::clone(&error))));
    }
}
