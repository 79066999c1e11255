//! What the queue of a conversation does with its sends: one batch of them is kept, told and answered.
//!
//! A retry is known by its idempotency key, which only the store can tell for certain: another server may have claimed it. What another
//! try claimed and did not finish is finished here, with the same id.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::chat::in_flight_ids::IdLease;
use crate::chat::write::conversation_queue::Worker;
use crate::chat::write::draft::Draft;
use crate::chat::{Error, Result};
use crate::model::{Event, IdempotencyKey, InputHash, Message, MessageId, MessageKind, UserId};
use crate::store::{self, Appended, Audience, EarlierSend, NewMessage};

/// A send that was taken from the queue.
pub(crate) struct SendJob {
    pub(crate) sender: UserId,
    pub(crate) draft: Draft,
    pub(crate) reply: oneshot::Sender<Result<Arc<Message>>>,
}

impl Worker {
    pub(crate) async fn send(&self, sends: Vec<SendJob>) {
        let sends = match self.leave_out_who_left(sends).await {
            Some(sends) if !sends.is_empty() => sends,
            Some(_) | None => return,
        };
        let (sends, twins) = split_twins(sends);
        let ids = match self.chat.begin(sends.len()) {
            Ok(ids) => ids,
            Err(error) => {
                return refuse_all(
                    sends
                        .into_iter()
                        .chain(twins.into_iter().map(|(_, twin)| twin)),
                    &error,
                );
            }
        };
        let messages: Vec<_> = sends
            .iter()
            .zip(ids.ids())
            .map(|(send, id)| self.message(send, *id))
            .collect();
        let (ids, Appended { audience, taken }) = match self.append(ids, &messages).await {
            Ok(appended) => appended,
            Err(error) => {
                return fail_all(
                    sends
                        .into_iter()
                        .chain(twins.into_iter().map(|(_, twin)| twin)),
                    error,
                );
            }
        };
        let taken: HashMap<usize, EarlierSend> = taken.into_iter().collect();
        let kept = messages
            .iter()
            .enumerate()
            .filter(|(index, _)| !taken.contains_key(index))
            .map(|(_, new)| &new.message);
        self.tell_messages(kept, &audience, &ids);
        drop(ids);
        let mut retries = Vec::new();
        for (index, twin) in twins {
            match taken.get(&index) {
                Some(earlier) => retries.push((twin, *earlier)),
                None => answer(twin, &messages[index].message, messages[index].input_hash),
            }
        }
        for ((index, send), kept) in sends.into_iter().enumerate().zip(messages) {
            match taken.get(&index) {
                Some(earlier) => retries.push((send, *earlier)),
                None => drop(send.reply.send(Ok(kept.message))),
            }
        }
        self.answer_retries(retries).await;
    }

    /// Nothing is said by one who has left: who did so while their send waited is answered like a stranger. `None`: all were answered.
    async fn leave_out_who_left(&self, sends: Vec<SendJob>) -> Option<Vec<SendJob>> {
        let leave_epoch = self.chat.leave_epoch();
        let mut present = HashMap::new();
        for send in sends
            .iter()
            .filter(|send| send.draft.leave_epoch != leave_epoch)
        {
            if !present.contains_key(&send.sender) {
                match self
                    .chat
                    .conversation(&send.sender, self.conversation)
                    .await
                {
                    Ok(found) => drop(present.insert(send.sender.clone(), found.is_some())),
                    Err(error) => {
                        refuse_all(sends, &error);
                        return None;
                    }
                }
            }
        }
        let has_left = |send: &SendJob| present.get(&send.sender) == Some(&false);
        let (gone, there): (Vec<_>, Vec<_>) = sends.into_iter().partition(has_left);
        refuse_all(gone, &Error::NotFound("the conversation"));
        Some(there)
    }

    /// Keeps messages, and has it known where they became visible long after their ids.
    async fn append(
        &self,
        ids: IdLease,
        messages: &[NewMessage],
    ) -> store::Result<(IdLease, Appended)> {
        let (ids, appended) = self
            .chat
            .settled(ids, || {
                self.chat
                    .0
                    .store
                    .append_messages(self.conversation, messages)
            })
            .await?;
        let late: Vec<_> = messages
            .iter()
            .map(|new| (new.message.id, &new.message.sender))
            .collect();
        self.log_late_messages(&late).await?;
        Ok((ids, appended))
    }

    /// Answers those whose key an earlier send has.
    async fn answer_retries(&self, retries: Vec<(SendJob, EarlierSend)>) {
        if retries.is_empty() {
            return;
        }
        let (retries, others): (Vec<_>, Vec<_>) = retries
            .into_iter()
            .partition(|(send, first)| first.input_hash == send.draft.hash);
        for (send, _) in others {
            let _ = send.reply.send(Err(Error::Conflict));
        }
        let keys: Vec<_> = retries
            .iter()
            .map(|(_, first)| (self.conversation, first.message))
            .collect();
        let messages = match self.chat.0.store.messages(&keys).await {
            Ok(messages) => messages,
            Err(error) => return fail_all(retries.into_iter().map(|(send, _)| send), error),
        };
        for ((send, first), message) in retries.into_iter().zip(messages) {
            let answer = match message {
                Some(message)
                    if !self.chat.is_shared() || self.chat.0.published_ids.contains(message.id) =>
                {
                    Ok(message)
                }
                there => self.finish(&send, first.message, there).await,
            };
            let _ = send.reply.send(answer);
        }
    }

    /// Keeps what an earlier try claimed, and may not have kept, or may not have told: the same message under the same id. What is there
    /// stays as it is, and is told as it is: the server that kept it may have died before it woke the others.
    async fn finish(
        &self,
        send: &SendJob,
        id: MessageId,
        there: Option<Arc<Message>>,
    ) -> Result<Arc<Message>> {
        let new = self.message(send, id);
        let ids = self.chat.begin(1)?;
        let (ids, Appended { audience, taken }) =
            self.append(ids, std::slice::from_ref(&new)).await?;
        if !taken.is_empty() {
            return Err(Error::OutcomeUnknown);
        }
        let message = there.unwrap_or(new.message);
        self.tell_messages([&message], &audience, &ids);
        Ok(message)
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
            has_reactions: false,
        };
        NewMessage {
            message: Arc::new(message),
            input_hash: send.draft.key.as_ref().map(|_| send.draft.hash),
        }
    }

    fn tell_messages<'a>(
        &self,
        messages: impl IntoIterator<Item = &'a Arc<Message>>,
        audience: &Audience,
        ids: &IdLease,
    ) {
        let mut newest = None;
        for message in messages {
            newest = newest.max(Some(message.id));
            self.tell(message.id, ids, Event::MessageAdded(Arc::clone(message)));
            self.chat
                .tell_typing(&message.sender, self.conversation, false);
        }
        if let Some(newest) = newest {
            self.tell_audience(newest, audience, ids);
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
    let _ = send.reply.send(if is_same {
        Ok(Arc::clone(message))
    } else {
        Err(Error::Conflict)
    });
}

fn fail_all(sends: impl IntoIterator<Item = SendJob>, error: store::Error) {
    refuse_all(sends, &error.into());
}

/// A client that has gone does not want the answer.
pub(crate) fn refuse_all(sends: impl IntoIterator<Item = SendJob>, error: &Error) {
    for send in sends {
        let _ = send.reply.send(Err(error.clone()));
    }
}
