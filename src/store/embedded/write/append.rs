//! Sends in the embedded store: their rows, and the idempotency keys that recognise a retry.

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::{
    ActPosition, ConversationId, IdempotencyKey, InputHash, Message, MessageKind, OutboxEvent,
    UserId,
};
use crate::store::embedded::cache::state::ConversationState;
use crate::store::embedded::engine::committer::{CommitOutcome, Condition, Op, Write};
use crate::store::embedded::engine::key::{self, EntryCell};
use crate::store::embedded::engine::record::{self, SendRecord};
use crate::store::embedded::inbox;
use crate::store::embedded::read_context::ReadContext;
use crate::store::embedded::write::removal;
use crate::store::embedded::{Embedded, TRIES_MAX, contended, mention, message};
use crate::store::{Appended, EarlierSend, NewMessage, Result, Store as _};

impl Embedded {
    pub(in crate::store::embedded) async fn appended(
        &self,
        conversation: ConversationId,
        messages: &[NewMessage],
    ) -> Result<Appended> {
        if let Some(appended) = self.append_new(conversation, messages).await? {
            return Ok(appended);
        }
        let taken = self.taken(conversation, messages).await?;
        let free: Vec<_>;
        let messages = if taken.is_empty() {
            messages
        } else {
            let is_taken = |index: usize| taken.iter().any(|(position, _)| *position == index);
            free = messages
                .iter()
                .enumerate()
                .filter(|(index, _)| !is_taken(*index))
                .map(|(_, new)| new.clone())
                .collect();
            &free
        };
        for _ in 0..TRIES_MAX {
            let state = self.state(conversation).await?;
            let rest = if may_be_kept(&state, messages) {
                let messages = messages.to_vec();
                Some(
                    self.read(move |context| not_yet_kept(context, conversation, &messages))
                        .await?,
                )
            } else {
                None
            };
            let messages = rest.as_deref().unwrap_or(messages);
            let is_done = messages.is_empty()
                || self
                    .write(append(&self.inner.context, &state, messages))
                    .await?
                    == CommitOutcome::Done;
            if is_done {
                return Ok(Appended {
                    audience: state.audience(),
                    taken,
                });
            }
            self.states().forget(&conversation);
        }
        Err(contended())
    }

    /// Fast path for messages that were never stored before, which is nearly always: the committer checks that,
    /// and no read is needed. `None`: a condition failed, and nothing was written.
    async fn append_new(
        &self,
        conversation: ConversationId,
        messages: &[NewMessage],
    ) -> Result<Option<Appended>> {
        let state = self.state(conversation).await?;
        if messages.is_empty() || may_be_kept(&state, messages) {
            return Ok(None);
        }
        let mut write = append(&self.inner.context, &state, messages);
        write.conditions.extend(unused_keys(messages));
        Ok(match self.write(write).await? {
            CommitOutcome::Done => Some(Appended {
                audience: state.audience(),
                taken: Vec::new(),
            }),
            CommitOutcome::Refused => {
                self.states().forget(&conversation);
                None
            }
        })
    }

    /// Finds the messages whose idempotency key an earlier message used.
    async fn taken(
        &self,
        conversation: ConversationId,
        messages: &[NewMessage],
    ) -> Result<Vec<(usize, EarlierSend)>> {
        let keyed = |(index, new): (usize, &NewMessage)| {
            Some((
                index,
                new.message.id,
                (new.message.sender.clone(), new.message.client_key.clone()?),
            ))
        };
        let keyed: Vec<_> = messages.iter().enumerate().filter_map(keyed).collect();
        if keyed.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<_> = keyed.iter().map(|(_, _, key)| key.clone()).collect();
        let earlier = self.earlier_sends(conversation, &keys).await?;
        let taken = keyed
            .into_iter()
            .zip(earlier)
            .filter_map(|((index, id, _), earlier)| {
                let earlier = earlier.filter(|earlier| earlier.message != id)?;
                Some((index, earlier))
            });
        Ok(taken.collect())
    }
}

/// Plans the rows of these messages, on the condition that the conversation's head is that of `state`.
fn append(context: &ReadContext, state: &ConversationState, messages: &[NewMessage]) -> Write {
    let id = state.conversation.id;
    let mut head = state.head;
    let mut ops = Vec::with_capacity(messages.len() * 3 + 72);
    let mut sent: HashMap<&UserId, ActPosition> = HashMap::new();
    for NewMessage {
        message,
        input_hash,
        is_by_service,
    } in messages
    {
        head.count(message.id);
        ops.push(message::put(message));
        ops.extend(mention::listed(message));
        // A SYSTEM message moves no marker of its sender, and an agent has none.
        if message.kind == MessageKind::Text && !message.sender.is_agent() {
            let act = ActPosition {
                up_to: message.id.order_key(),
                is_by_service: *is_by_service,
            };
            let newest = sent.entry(&message.sender).or_insert(act);
            if act.up_to > newest.up_to {
                *newest = act;
            }
        }
        if let (Some(client_key), Some(input_hash)) = (&message.client_key, input_hash) {
            ops.extend(send_by_key(message, client_key, *input_hash));
        }
    }
    for (sender, last) in sent {
        ops.push(Op::Max(
            key::entry(sender, id, EntryCell::SentUpTo),
            record::encode_act(last),
        ));
    }
    if let Some(people) = &state.people {
        ops.extend(inbox::keep_busy(&mut head, &state.head, id));
        let (from, to) = (state.head.listing(false), head.listing(false));
        ops.extend(inbox::relist(&people.joined, id, from, to));
    }
    let after = Arc::new(state.with_head(head));
    ops.push(Op::Put(key::head(id), after.head_bytes.clone()));
    let ids = messages.iter().map(|new| new.message.id);
    ops.extend(removal::due(context, state, ids));
    ops.extend(context.outbox.put(id, || added(messages)));
    let (states, rows) = (Arc::clone(&context.states), Arc::clone(&context.rows));
    let kept = messages
        .iter()
        .map(|new| Arc::clone(&new.message))
        .collect();
    Write {
        ops,
        conditions: vec![Condition::Is(key::head(id), state.head_bytes.clone())],
        newest_id: messages.iter().map(|new| new.message.id).max(),
        applied: Some(Box::new(move || {
            states.put_written(id, after);
            rows.put_messages(kept);
        })),
    }
}

fn added(messages: &[NewMessage]) -> Vec<OutboxEvent> {
    messages
        .iter()
        .map(|new| OutboxEvent::message_added(new.message.id))
        .collect()
}

/// Whether one of these messages may be stored already: an id after the last message is new.
fn may_be_kept(state: &ConversationState, messages: &[NewMessage]) -> bool {
    messages.iter().any(|new| {
        state
            .head
            .last_message
            .is_some_and(|last| new.message.id <= last)
    })
}

/// Conditions that every idempotency key is unused.
fn unused_keys(messages: &[NewMessage]) -> impl Iterator<Item = Condition> {
    messages.iter().filter_map(|NewMessage { message, .. }| {
        let client_key = message.client_key.as_ref()?;
        Some(Condition::Absent(key::send_by_key(
            message.conversation,
            &message.sender,
            client_key,
        )))
    })
}

/// Filters messages that were stored already: a write of unknown outcome may have succeeded, and must not count twice.
fn not_yet_kept(
    context: &ReadContext,
    conversation: ConversationId,
    messages: &[NewMessage],
) -> Result<Vec<NewMessage>> {
    let view = context.view();
    let removed = removal::removed_up_to(&view, conversation)?;
    let mut rest = Vec::with_capacity(messages.len());
    for new in messages {
        // A message that was removed was stored.
        let is_removed = new.message.id.order_key() <= removed;
        if !is_removed && !view.has(&key::message(conversation, new.message.id.order_key()))? {
            rest.push(new.clone());
        }
    }
    Ok(rest)
}

/// Operations that store an idempotency key, with its expiry.
pub(crate) fn send_by_key(
    message: &Message,
    client_key: &IdempotencyKey,
    input_hash: InputHash,
) -> [Op; 2] {
    let expires_at = message
        .id
        .moment()
        .plus_micros(IdempotencyKey::LIFETIME_MICROS);
    let key = key::send_by_key(message.conversation, &message.sender, client_key);
    let expiry = key::expiry(&key, expires_at);
    let record = SendRecord {
        message: message.id,
        input_hash,
        expires_at,
    };
    [
        Op::Put(key, record::encode(&record)),
        Op::Put(expiry, Vec::new()),
    ]
}

pub(crate) fn earlier_sends(
    context: &ReadContext,
    conversation: ConversationId,
    keys: &[(UserId, IdempotencyKey)],
) -> Result<Vec<Option<EarlierSend>>> {
    let view = context.view();
    let now = context.clock.now();
    let each = |(sender, client_key): &(UserId, IdempotencyKey)| {
        let record: Option<SendRecord> =
            view.record(&key::send_by_key(conversation, sender, client_key))?;
        let alive = record.filter(|record| record.expires_at > now);
        Ok(alive.map(|record| EarlierSend {
            message: record.message,
            input_hash: record.input_hash,
            is_delivered: false,
        }))
    };
    keys.iter().map(each).collect()
}
