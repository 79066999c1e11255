//! Batch of sends: one batch of a conversation's queue is persisted, published and answered.
//!
//! An idempotency key makes a retry return the message of the first attempt. Only the store knows
//! all keys, because another server may have claimed one. A message whose key was claimed by an
//! attempt that did not finish is finished here, with the same id.

pub(crate) mod slow_mode;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::backlog::PendingReply;
use super::command::draft::Draft;
use super::command::{require_everyone, require_send_role, slow_mode_of};
use super::conversation_writer::ConversationWriter;
use super::outgoing::OutgoingEvents;
use super::unknown_outcome::retry_until_known;
use crate::chat::error::{Error, Result};
use crate::chat::in_flight_ids::IdLease;
use crate::model::{
    ChangeKind, Event, IdempotencyKey, InputHash, Message, MessageId, MessageKind, UserId,
};
use crate::store::cluster::KeyedSend;
use crate::store::{self, Appended, Audience, EarlierSend, NewMessage, Participation};

/// Send that was taken from the queue.
pub(crate) struct SendJob {
    pub(crate) sender: UserId,
    pub(crate) draft: Box<Draft>,
    pub(crate) reply: PendingReply<Arc<Message>>,
}

/// Retry of a send in the same batch, with the index of the first attempt.
struct Repeat {
    first: usize,
    send: SendJob,
}

impl ConversationWriter {
    pub(crate) async fn send(&self, sends: Vec<SendJob>) {
        let sends = self.refuse_former_writers(sends).await;
        let sends = self.refuse_too_early(sends).await;
        if sends.is_empty() {
            return;
        }
        let (sends, repeats) = split_repeats(sends);
        let in_flight = &self.context().in_flight;
        let allocated = in_flight.allocate(self.conversation(), sends.len());
        let lease = match allocated.await {
            Ok(lease) => lease,
            Err(error) => return refuse_all(with_repeats(sends, repeats), &error),
        };
        let messages: Vec<_> = sends
            .iter()
            .zip(lease.ids())
            .map(|(send, id)| self.message(send, *id))
            .collect();
        let (lease, Appended { audience, taken }) = match self.append(lease, &messages).await {
            Ok(appended) => appended,
            Err(error) => return refuse_all(with_repeats(sends, repeats), &error.into()),
        };
        let index = &self.context().index;
        index.note_sent(self.conversation(), messages.len());
        let taken: HashMap<usize, EarlierSend> = taken.into_iter().collect();
        let persisted = messages
            .iter()
            .enumerate()
            .filter(|(index, _)| !taken.contains_key(index))
            .map(|(_, new)| &new.message);
        let outgoing = self.publish_messages(persisted, &audience, &lease);
        drop(lease);
        // Callers wait until the other servers were notified.
        let mut waiting = outgoing.is_some().then(Vec::new);
        let mut answer = |reply: PendingReply<Arc<Message>>, outcome| match &mut waiting {
            Some(waiting) => waiting.push((reply, outcome)),
            None => reply.send(outcome),
        };
        let mut retries = Vec::new();
        for Repeat { first, send } in repeats {
            match taken.get(&first) {
                Some(earlier) => retries.push((send, *earlier)),
                None => answer(
                    send.reply,
                    outcome_of_repeat(send.draft.hash, &messages[first]),
                ),
            }
        }
        for ((index, send), new) in sends.into_iter().enumerate().zip(messages) {
            match taken.get(&index) {
                Some(earlier) => retries.push((send, *earlier)),
                None => answer(send.reply, Ok(new.message)),
            }
        }
        if let Some(waiting) = waiting {
            self.context().deliver_then(outgoing, move |delivered| {
                for (reply, outcome) in waiting {
                    reply.send(delivered.clone().and(outcome));
                }
            });
        }
        self.reply_to_retries(retries, true).await;
    }

    /// Refuses the sends that may no longer be done: what decides has changed while they waited.
    async fn refuse_former_writers(&self, sends: Vec<SendJob>) -> Vec<SendJob> {
        let mut current = Vec::with_capacity(sends.len());
        let mut read = HashMap::new();
        let mut sends = sends.into_iter();
        while let Some(mut send) = sends.next() {
            match self.check_sender(&mut send, &mut read).await {
                Ok(None) => current.push(send),
                Ok(Some(refusal)) => self.refuse(send, &refusal).await,
                Err(error @ Error::Store(_)) => {
                    refuse_all(current.into_iter().chain([send]).chain(sends), &error);
                    return Vec::new();
                }
                Err(error) => refuse_all([send], &error),
            }
        }
        current
    }

    /// Checks a sender again. Returns the refusal of a participant, who still finds earlier sends.
    async fn check_sender(
        &self,
        send: &mut SendJob,
        read: &mut HashMap<UserId, Participation>,
    ) -> Result<Option<Error>> {
        let draft = &mut send.draft;
        self.check_admission(&draft.check)?;
        if let Some(refusal) = draft.refusal.take() {
            return Ok(Some(refusal));
        }
        let accepted = draft.check.accepted.as_ref();
        let Some(accepted) = accepted.filter(|_| self.may_have_changed(&draft.check)) else {
            return Ok(None);
        };
        let (access, caller) = (&self.context().access, accepted.admitted.caller());
        let own = match read.entry(send.sender.clone()) {
            Entry::Occupied(own) => own.into_mut(),
            Entry::Vacant(entry) => {
                let own = access.participation(&send.sender, self.conversation());
                entry.insert(own.await?)
            }
        };
        let allowed = access.require_writer(caller, own).await;
        match allowed.and_then(|()| require_send_role(own)) {
            Ok(()) => {}
            Err(refusal @ Error::Forbidden(_)) => return Ok(Some(refusal)),
            Err(error) => return Err(error),
        }
        require_everyone(own, draft.content.mentions.everyone)?;
        draft.slow_mode_seconds = slow_mode_of(caller, own);
        Ok(None)
    }

    /// Persists messages.
    async fn append(
        &self,
        lease: IdLease,
        messages: &[NewMessage],
    ) -> store::Result<(IdLease, Appended)> {
        retry_until_known(&self.context().unsettled, lease, || {
            self.context()
                .store
                .append_messages(self.conversation(), messages)
        })
        .await
    }

    /// Refuses a send, unless it is the retry of a stored one, whose message is the answer.
    pub(super) async fn refuse(&self, send: SendJob, refusal: &Error) {
        match self.earlier_send(&send).await {
            Ok(Some(first)) => self.reply_to_retries(vec![(send, first)], false).await,
            Ok(None) => send.reply.send(Err(refusal.clone())),
            Err(error) => send.reply.send(Err(Error::from(error).of_retry())),
        }
    }

    pub(super) async fn earlier_send(&self, send: &SendJob) -> store::Result<Option<EarlierSend>> {
        let Some(key) = &send.draft.key else {
            return Ok(None);
        };
        let keys = [(send.sender.clone(), key.clone())];
        let store = &self.context().store;
        let earlier = store.earlier_sends(self.conversation(), &keys).await?;
        Ok(earlier.into_iter().flatten().next())
    }

    /// Replies to the sends whose idempotency keys belong to earlier sends. A message that its first attempt
    /// has not stored is stored if it may be; otherwise the outcome is unknown.
    async fn reply_to_retries(&self, retries: Vec<(SendJob, EarlierSend)>, may_store: bool) {
        if retries.is_empty() {
            return;
        }
        let (retries, conflicts): (Vec<_>, Vec<_>) = retries
            .into_iter()
            .partition(|(send, first)| first.input_hash == send.draft.hash);
        refuse_all(
            conflicts.into_iter().map(|(send, _)| send),
            &Error::Conflict,
        );
        let retries = self.refuse_below_floor(retries).await;
        let keys: Vec<_> = retries
            .iter()
            .map(|(_, first)| (self.conversation(), first.message))
            .collect();
        let context = self.context();
        let messages = match context.store.messages(&keys).await {
            Ok(messages) => messages,
            Err(error) => {
                let sends = retries.into_iter().map(|(send, _)| send);
                return refuse_all(sends, &Error::from(error).of_retry());
            }
        };
        for ((send, first), message) in retries.into_iter().zip(messages) {
            match message {
                // Its server may have died before it notified the others.
                Some(message) => {
                    let mut outgoing = if first.is_delivered {
                        None
                    } else {
                        context.repeated(ChangeKind::MessageLate, &message)
                    };
                    if let Some(outgoing) = &mut outgoing {
                        outgoing.set_retried(self.keyed(&send, first.message));
                    }
                    context.deliver_then(outgoing, move |delivered| {
                        send.reply.send(delivered.map(|()| message));
                    });
                }
                None if may_store => self.finish(send, first.message).await,
                None => send.reply.send(Err(Error::OutcomeUnknown)),
            }
        }
    }

    /// Refuses the retries whose messages lie below the floors of their senders: such a message does not exist, and
    /// must not be stored again.
    async fn refuse_below_floor(
        &self,
        retries: Vec<(SendJob, EarlierSend)>,
    ) -> Vec<(SendJob, EarlierSend)> {
        let access = &self.context().access;
        let mut visible = Vec::with_capacity(retries.len());
        for (send, first) in retries {
            let own = access.participation(&send.sender, self.conversation());
            match own.await {
                Ok(own) if access.floor_of(&own).shows(first.message) => {
                    visible.push((send, first))
                }
                Ok(_) => refuse_all([send], &Error::NotFound("the message")),
                Err(error) => refuse_all([send], &error.of_retry()),
            }
        }
        visible
    }

    /// Finishes an earlier attempt that claimed its key and has not persisted its message: the same
    /// message under the same id. It counts as late, because streams may have passed its id.
    async fn finish(&self, send: SendJob, id: MessageId) {
        match self.persist_again(&send, id).await {
            Ok((message, mut outgoing)) => {
                if let Some(outgoing) = &mut outgoing {
                    outgoing.set_retried(self.keyed(&send, id));
                }
                self.context().deliver_then(outgoing, move |delivered| {
                    send.reply.send(delivered.map(|()| message));
                });
            }
            Err(error) => send.reply.send(Err(error.of_retry())),
        }
    }

    async fn persist_again(
        &self,
        send: &SendJob,
        id: MessageId,
    ) -> Result<(Arc<Message>, Option<OutgoingEvents>)> {
        let new = self.message(send, id);
        let in_flight = &self.context().in_flight;
        let lease = in_flight.allocate(self.conversation(), 1).await?;
        let (lease, Appended { audience, taken }) =
            self.append(lease, std::slice::from_ref(&new)).await?;
        if !taken.is_empty() {
            return Err(Error::OutcomeUnknown);
        }
        let message = new.message;
        let outgoing = self.publish_messages([&message], &audience, &lease);
        Ok((message, outgoing))
    }

    fn keyed(&self, send: &SendJob, message: MessageId) -> Option<KeyedSend> {
        let key = send.draft.key.clone()?;
        Some(KeyedSend {
            conversation: self.conversation(),
            sender: send.sender.clone(),
            key,
            message,
        })
    }

    fn message(&self, send: &SendJob, id: MessageId) -> NewMessage {
        let message = Message {
            conversation: self.conversation(),
            id,
            sender: send.sender.clone(),
            kind: MessageKind::Text,
            content: Some(send.draft.content.clone()),
            reply_to: send.draft.reply_to,
            client_key: send.draft.key.clone(),
            deleted_at: None,
            has_reactions: false,
            pin: None,
        };
        NewMessage {
            message: Arc::new(message),
            input_hash: send.draft.key.as_ref().map(|_| send.draft.hash),
            is_by_service: send.draft.is_by_service,
        }
    }

    /// Publishes messages in their order. A message also ends the typing of its sender.
    fn publish_messages<'a>(
        &self,
        messages: impl IntoIterator<Item = &'a Arc<Message>>,
        audience: &Audience,
        lease: &IdLease,
    ) -> Option<OutgoingEvents> {
        let publisher = &self.context().publisher;
        let mut publication = self.publication(lease);
        let mut newest = None;
        for message in messages {
            newest = newest.max(Some(message.id));
            self.context().agent_sends.note(message);
            publication.event(message.id, Event::MessageAdded(Arc::clone(message)));
            publisher.deliver_typing(&message.sender, self.conversation(), false);
        }
        if let Some(newest) = newest {
            publication.audience(newest, audience);
        }
        publication.finish()
    }
}

/// Splits off the sends that repeat the key of an earlier one in the batch.
fn split_repeats(sends: Vec<SendJob>) -> (Vec<SendJob>, Vec<Repeat>) {
    let mut seen: HashMap<(UserId, IdempotencyKey), usize> = HashMap::new();
    let (mut first, mut repeats) = (Vec::with_capacity(sends.len()), Vec::new());
    for send in sends {
        let Some(key) = &send.draft.key else {
            first.push(send);
            continue;
        };
        match seen.entry((send.sender.clone(), key.clone())) {
            Entry::Occupied(index) => repeats.push(Repeat {
                first: *index.get(),
                send,
            }),
            Entry::Vacant(index) => {
                index.insert(first.len());
                first.push(send);
            }
        }
    }
    (first, repeats)
}

fn with_repeats(sends: Vec<SendJob>, repeats: Vec<Repeat>) -> impl Iterator<Item = SendJob> {
    sends
        .into_iter()
        .chain(repeats.into_iter().map(|repeat| repeat.send))
}

/// Outcome of a retry: the message of the first attempt, or a conflict if its input differs.
fn outcome_of_repeat(hash: InputHash, first: &NewMessage) -> Result<Arc<Message>> {
    if first.input_hash == Some(hash) {
        Ok(Arc::clone(&first.message))
    } else {
        Err(Error::Conflict)
    }
}

/// A reply to a client that has disconnected is dropped.
fn refuse_all(sends: impl IntoIterator<Item = SendJob>, error: &Error) {
    for send in sends {
        send.reply.send(Err(error.clone()));
    }
}
