//! The queue of a conversation: what gives its messages and changes their ids and their order.
//!
//! One task at a time works for a conversation. It takes what has gathered, gives the ids, keeps all of it in one batch, tells it in
//! order, and only then takes more: so no smaller id can become visible after a greater one, and under load one commit serves many sends.
//! The task lives as long as there is work; a client that goes away does not stop its send.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::bus::Signal;
use crate::chat::in_flight_ids::IdLease;
use crate::chat::write::draft::Draft;
use crate::chat::write::group::GroupCommand;
use crate::chat::write::reaction::ReactionDraft;
use crate::chat::write::revision::RevisionDraft;
use crate::chat::write::send_batch::SendJob;
use crate::chat::{Chat, Error, Result};
use crate::model::{Change, ConversationId, Event, Message, Notice, TimeUuid, Topic, UserId};
use crate::store::{Audience, Revised};

/// What one batch holds at most; one message always fits.
const BATCH_MESSAGES_MAX: usize = 64;
const BATCH_BYTES_MAX: usize = 40 * 1024;

#[derive(Default)]
pub(crate) struct ConversationQueues {
    /// A conversation is in here exactly while a task works for it.
    queues: Mutex<HashMap<ConversationId, Queue>>,
    tasks: TaskTracker,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    bytes: usize,
    /// Of the last job.
    number: u64,
}

struct Job {
    /// By which one who waits takes it back.
    number: u64,
    user: UserId,
    work: Work,
}

/// Where the outcome of a job goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T>>;

/// What a job does. Everything that is told of takes its id in the queue.
pub(crate) enum Work {
    Send(Draft, Reply<Arc<Message>>),
    Revise(RevisionDraft, Reply<Arc<Message>>),
    React(ReactionDraft, Reply<Arc<Message>>),
    Group(GroupCommand, Reply<()>),
}

impl Work {
    fn bytes(&self) -> usize {
        match self {
            Self::Send(draft, _) => draft.bytes,
            Self::Revise(draft, _) => draft.bytes(),
            Self::React(..) => ReactionDraft::BYTES,
            Self::Group(command, _) => command.bytes(),
        }
    }
}

/// What the task does next: sends together, anything else by itself.
enum Batch {
    Sends(Vec<SendJob>),
    Alone(Job),
}

/// How long the end of the process waits for sends that are under way.
const FINISH_MAX: Duration = Duration::from_secs(30);

impl ConversationQueues {
    /// Conversations that a task works for, and jobs that wait in their queues.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let queues = self.queues.lock();
        (
            queues.len(),
            queues.values().map(|queue| queue.jobs.len()).sum(),
        )
    }

    pub(crate) async fn finish(&self) {
        self.tasks.close();
        if tokio::time::timeout(FINISH_MAX, self.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                tasks = self.tasks.len(),
                "some writes did not end before the shutdown deadline; their outcome is unknown"
            );
        }
    }
}

impl Chat {
    /// Runs a write to its end also when the one who asked goes away meanwhile: what is kept must be told.
    pub(crate) async fn to_the_end<T: std::marker::Send + 'static>(
        &self,
        write: impl Future<Output = Result<T>> + std::marker::Send + 'static,
    ) -> Result<T> {
        let task = self
            .0
            .queues
            .tasks
            .spawn(write.instrument(tracing::Span::none()));
        match tokio::time::timeout(self.0.bounds.settle_wait, task).await {
            Ok(Ok(outcome)) => outcome,
            // It panicked, or the store is slower than one may wait for.
            Ok(Err(_)) | Err(_) => Err(Error::OutcomeUnknown),
        }
    }

    /// Puts work into its conversation's queue, and waits until it is kept and told, or for as long as one may. A caller that stops
    /// waiting does not stop the work.
    pub(crate) async fn work<T>(
        &self,
        conversation: ConversationId,
        user: &UserId,
        work: impl FnOnce(Reply<T>) -> Work,
    ) -> Result<T> {
        let (reply, mut answer) = oneshot::channel();
        let number = self.enqueue(conversation, user.clone(), work(reply))?;
        let bounds = &self.0.bounds;
        let answered = match tokio::time::timeout(bounds.begin_wait, &mut answer).await {
            Ok(answered) => Ok(answered),
            Err(_) if self.take_back(conversation, number) => return Err(Error::Busy),
            Err(_) => {
                tokio::time::timeout(bounds.settle_wait.saturating_sub(bounds.begin_wait), answer)
                    .await
            }
        };
        match answered {
            Ok(Ok(answer)) => answer,
            // The task of the conversation panicked, or the store is slower than one may wait for.
            Ok(Err(_)) | Err(_) => Err(Error::OutcomeUnknown),
        }
    }

    /// Whether the job was still waiting: now it is not, and will not be done.
    fn take_back(&self, conversation: ConversationId, number: u64) -> bool {
        let mut queues = self.0.queues.queues.lock();
        let Some(queue) = queues.get_mut(&conversation) else {
            return false;
        };
        let Some(place) = queue.jobs.iter().position(|job| job.number == number) else {
            return false;
        };
        let job = queue.jobs.remove(place).expect("it is at that place");
        queue.bytes -= job.work.bytes();
        true
    }

    /// The number of the job.
    fn enqueue(&self, conversation: ConversationId, user: UserId, work: Work) -> Result<u64> {
        let bounds = &self.0.bounds;
        let mut queues = self.0.queues.queues.lock();
        let (queue, is_new) = match queues.entry(conversation) {
            Entry::Occupied(entry) => (entry.into_mut(), false),
            Entry::Vacant(entry) => (entry.insert(Queue::default()), true),
        };
        let is_full = queue.jobs.len() >= bounds.queue_jobs_max
            || queue.bytes + work.bytes() > bounds.queue_bytes_max;
        if is_full && !queue.jobs.is_empty() {
            return Err(Error::Busy);
        }
        queue.bytes += work.bytes();
        queue.number += 1;
        let number = queue.number;
        queue.jobs.push_back(Job { number, user, work });
        drop(queues);
        if is_new {
            let worker = Worker {
                chat: self.clone(),
                conversation,
            };
            self.0
                .queues
                .tasks
                .spawn(worker.run().instrument(tracing::Span::none()));
        }
        Ok(number)
    }
}

/// The one task that works for a conversation.
pub(crate) struct Worker {
    pub(crate) chat: Chat,
    pub(crate) conversation: ConversationId,
}

impl Worker {
    async fn run(self) {
        while let Some(batch) = self.take() {
            match batch {
                Batch::Sends(sends) => self.send(sends).await,
                Batch::Alone(Job { user, work, .. }) => self.do_alone(user, work).await,
            }
        }
    }

    /// A client that has gone does not want the answer.
    async fn do_alone(&self, user: UserId, work: Work) {
        match work {
            Work::Send(draft, reply) => {
                self.send(vec![SendJob {
                    sender: user,
                    draft,
                    reply,
                }])
                .await
            }
            Work::Revise(draft, reply) => drop(reply.send(self.revise(user, draft).await)),
            Work::React(draft, reply) => drop(reply.send(self.react(user, draft).await)),
            Work::Group(command, reply) => drop(reply.send(self.govern(&user, &command).await)),
        }
    }

    /// What is done next. `None` when there is nothing: then the queue is gone, and the next job starts a new task.
    fn take(&self) -> Option<Batch> {
        let mut queues = self.chat.0.queues.queues.lock();
        let queue = queues.get_mut(&self.conversation)?;
        let mut sends = Vec::new();
        let mut bytes = 0;
        while let Some(job) = queue.jobs.pop_front() {
            let job_bytes = job.work.bytes();
            let is_full = sends.len() >= BATCH_MESSAGES_MAX || bytes + job_bytes > BATCH_BYTES_MAX;
            match job {
                Job {
                    user,
                    work: Work::Send(draft, reply),
                    ..
                } if sends.is_empty() || !is_full => {
                    sends.push(SendJob {
                        sender: user,
                        draft,
                        reply,
                    });
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

    /// Nothing is done for one who has left while it waited: they are answered like a stranger.
    pub(crate) async fn still_in(&self, user: &UserId, leave_epoch: u64) -> Result<()> {
        if self.chat.leave_epoch() != leave_epoch {
            self.chat.conversation_of(user, self.conversation).await?;
        }
        Ok(())
    }

    /// Changes a message, where the rules let this user.
    async fn revise(&self, user: UserId, draft: RevisionDraft) -> Result<Arc<Message>> {
        self.still_in(&user, draft.leave_epoch).await?;
        let present = self
            .chat
            .message_of(self.conversation, draft.message)
            .await?;
        // A role may have been taken while it waited. It is asked for seldom.
        let role = match draft.is_by_role(&present, &user) {
            true => Some(
                self.chat
                    .participation_of(&user, self.conversation)
                    .await?
                    .membership
                    .role,
            ),
            false => None,
        };
        let ids = self.chat.begin(1)?;
        let Some(revision) = draft.revision(&present, &user, role, ids.newest().moment())? else {
            return Ok(present);
        };
        let change = Change {
            id: ids.newest(),
            kind: revision.kind(),
            message: present.id,
            user,
        };
        let (ids, revised) = self
            .chat
            .settled(ids, || {
                self.chat
                    .0
                    .store
                    .revise_message(self.conversation, &revision, &change)
            })
            .await?;
        self.log_late_change(&change).await?;
        let Revised { message, audience } = revised.ok_or(Error::NotFound("the message"))?;
        self.tell(
            change.id,
            &ids,
            Event::MessageChanged(change.kind, Arc::clone(&message)),
        );
        self.tell_audience(change.id, &audience, &ids);
        Ok(message)
    }

    /// Tells those who listen to the conversation.
    pub(crate) fn tell(&self, id: TimeUuid, ids: &IdLease, event: Event) {
        self.chat.was_told(id);
        self.chat
            .0
            .bus
            .signal_peers(|| Signal::Written(self.conversation));
        let topic = Topic::Conversation(self.conversation);
        if self.chat.0.bus.has_subscribers(&topic) {
            self.chat
                .0
                .bus
                .publish(&topic, Notice::new(id, ids.settled(), event));
        }
    }

    pub(crate) fn tell_audience(&self, id: TimeUuid, audience: &Audience, ids: &IdLease) {
        if let Some(users) = &audience.users {
            let signal = |user| Signal::WrittenFor(user, self.conversation);
            self.chat
                .tell_inboxes(users.iter(), self.conversation, (id, ids.settled()), signal);
        }
    }
}

impl Drop for Worker {
    /// Only a panic leaves a queue behind: its jobs end with their outcome unknown, and the next send begins anew.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.chat.0.queues.queues.lock().remove(&self.conversation);
        }
    }
}
