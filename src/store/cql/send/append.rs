//! Sends: messages, and their writes to the bucket index, the head of the conversation and inboxes, in one LOGGED batch.
//!
//! A send reads nothing first. It writes to the cached participants and then checks the roster. If users have joined meanwhile, it writes to
//! them before it is acknowledged; a change of membership, in turn, reads the newest message after it was decided. So one of the two always
//! sees the other.

mod part;

use std::sync::Arc;

use futures_util::future::{join, try_join_all};

use self::part::{BATCH_BYTES_MAX, SendEffects, frame_bytes, message_bytes, parts};
use super::Sends;
use super::idempotency::PlacedMessage;
use super::writer_cache::{CachedParticipants, ConversationWriteState, HintUpdate};
use crate::model::{Change, Conversation, ConversationId, Message, OutboxEvent};
use crate::store::cql::driver::error::{corrupt, unavailable};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::inbox::mention::Mentioned;
use crate::store::cql::message::bucket::Bucket;
use crate::store::cql::message::bucket::stored_bytes;
use crate::store::rules::expiry;
use crate::store::{Appended, Audience, DueRemoval, Error, NewMessage, Result};

/// How often the membership may change while a send checks the participants.
const TRIES_MAX: usize = 16;
/// Messages that are searched concurrently, each in four buckets.
const SEARCHES_MAX: usize = 8;

/// Other writes in the batch of a message.
#[derive(Clone, Copy)]
pub(super) struct Extra<'a> {
    pub(super) put: &'a (dyn Fn(&mut Writes) + Sync),
    /// Changes that the message announces.
    pub(super) changes: &'a [Change],
}

impl Extra<'_> {
    const NONE: Self = Self {
        put: &|_| (),
        changes: &[],
    };
}

impl Sends {
    pub(crate) async fn append_messages(
        &self,
        conversation: ConversationId,
        messages: &[NewMessage],
    ) -> Result<Appended> {
        self.append(conversation, messages, None, Extra::NONE).await
    }

    /// Stores a message without a key, together with a few other writes. A given bucket overrides the choice of this server.
    pub(super) async fn append_with(
        &self,
        message: &Message,
        bucket: Option<Bucket>,
        extra: Extra<'_>,
    ) -> Result<Audience> {
        let new = NewMessage {
            message: Arc::new(message.clone()),
            input_hash: None,
            is_by_service: false,
        };
        Ok(self
            .append(message.conversation, &[new], bucket, extra)
            .await?
            .audience)
    }

    async fn append(
        &self,
        conversation: ConversationId,
        messages: &[NewMessage],
        bucket: Option<Bucket>,
        extra: Extra<'_>,
    ) -> Result<Appended> {
        let state = self.write_state(conversation).await?;
        let state = state.ok_or_else(|| {
            corrupt(
                "conversations",
                "a message of a conversation that does not exist",
            )
        })?;
        self.writers.pin(conversation, &state);
        let placed = match bucket {
            Some(bucket) => messages
                .iter()
                .map(|new| PlacedMessage::new(new, bucket))
                .collect(),
            None => self.place(&state, messages).await?,
        };
        let (claimed, taken) = self.claim_keys(placed).await?;
        let audience = if claimed.is_empty() {
            state.participants().audience()
        } else {
            self.store(&state, &claimed, extra).await?
        };
        self.writers.unpin(conversation);
        Ok(Appended { audience, taken })
    }

    /// Chooses the bucket of each message. A retried message gets the same bucket: the chooser remembers it while the outcome is unknown; if
    /// this server has forgotten it, it searches the message. For a message with a key, the claim decides.
    async fn place<'a>(
        &self,
        state: &ConversationWriteState,
        messages: &'a [NewMessage],
    ) -> Result<Vec<PlacedMessage<'a>>> {
        let may_be_stored: Vec<_> = {
            let state = state.lock();
            let unkeyed = messages
                .iter()
                .filter(|new| new.message.client_key.is_none());
            unkeyed
                .filter(|new| {
                    Some(new.message.id) <= state.newest_when_read
                        && state.buckets.bucket_of(new.message.id).is_none()
                })
                .collect()
        };
        for some in may_be_stored.chunks(SEARCHES_MAX) {
            let searches = some.iter().map(|new| {
                self.messages
                    .find_message(new.message.conversation, new.message.id, None)
            });
            let found = try_join_all(searches).await?;
            let mut state = state.lock();
            found
                .into_iter()
                .flatten()
                .for_each(|(message, bucket)| state.buckets.remember(message.id, bucket));
        }
        let mut state = state.lock();
        let place = |new: &'a NewMessage| {
            let bucket = state
                .buckets
                .choose(new.message.id, stored_bytes(&new.message));
            let full = || unavailable("a conversation has too many messages in one minute");
            bucket
                .map(|bucket| PlacedMessage::new(new, bucket))
                .ok_or_else(full)
        };
        messages.iter().map(place).collect()
    }

    /// Writes messages whose keys are claimed, and everything that follows from them.
    async fn store(
        &self,
        state: &ConversationWriteState,
        placed: &[PlacedMessage<'_>],
        extra: Extra<'_>,
    ) -> Result<Audience> {
        let participants = state.participants();
        for (number, part) in parts(&participants, placed).into_iter().enumerate() {
            let written = self
                .write_part(
                    state,
                    &participants,
                    part,
                    if number == 0 { extra } else { Extra::NONE },
                )
                .await;
            if number == 0 {
                written?
            } else {
                written.map_err(Error::after_write)?
            }
        }
        let conversation = placed.first().map(|one| one.message().conversation);
        let probe = async {
            if let Some(conversation) = conversation {
                self.probe_fill(conversation, state).await;
            }
        };
        let (participants, ()) = join(
            self.write_to_new_participants(state, participants, placed),
            probe,
        )
        .await;
        Ok(participants.map_err(Error::after_write)?.audience())
    }

    /// Writes one batch of messages.
    async fn write_part(
        &self,
        state: &ConversationWriteState,
        participants: &Arc<CachedParticipants>,
        part: &[PlacedMessage<'_>],
        extra: Extra<'_>,
    ) -> Result<()> {
        let effects = SendEffects::of(part);
        let activity = effects.last.id.moment();
        let (hint, new_buckets) = {
            let state = state.lock();
            let mut buckets: Vec<_> = part
                .iter()
                .filter(|one| !one.is_stored)
                .map(|one| one.bucket)
                .filter(|bucket| !state.is_indexed(*bucket))
                .collect();
            buckets.sort_unstable();
            buckets.dedup();
            (state.needed_hint(participants, activity), buckets)
        };
        let mut writes = Writes::logged();
        // A message that is stored was written with its index row: writing it again would only invalidate counts.
        part.iter().filter(|one| !one.is_stored).for_each(|one| {
            self.messages
                .put_message(&mut writes, one.message(), one.bucket)
        });
        new_buckets.iter().for_each(|bucket| {
            self.messages
                .put_bucket(&mut writes, effects.conversation, *bucket)
        });
        writes.put_head(
            effects.conversation,
            Some(&effects.last),
            None,
            Some(activity),
        );
        if let Some(ttl) = participants.ttl_seconds {
            // A late message may open a bucket whose hour has passed.
            let hour = expiry::hour_of(self.clock.now());
            for bucket in &new_buckets {
                let due = DueRemoval {
                    hour: expiry::removal_hour(bucket.end(), ttl).max(hour),
                    conversation: effects.conversation,
                };
                self.messages.put_due(&mut writes, due, activity.micros());
            }
        }
        effects.put(&mut writes, participants, hint);
        let apart = self.put_mentions(&mut writes, participants, part);
        (extra.put)(&mut writes);
        let row = self
            .outbox
            .row(effects.conversation, || events(part, extra));
        self.outbox.write_all(writes, row).await?;
        if let Some(apart) = apart {
            self.executor
                .write_all(apart)
                .await
                .map_err(Error::after_write)?;
        }
        self.messages
            .advance_head(effects.conversation, &effects.last, activity);
        let mut state = state.lock();
        new_buckets
            .into_iter()
            .for_each(|bucket| state.note_indexed(bucket));
        state.last_activity = state.last_activity.max(activity);
        if let Some(hint) = hint {
            state.note_hinted(hint, participants);
        }
        Ok(())
    }

    /// Adds the mentions of messages. A single message whose mentions do not fit gets a batch of its own
    /// for them, which follows: a retry of the send writes both again.
    fn put_mentions(
        &self,
        writes: &mut Writes,
        participants: &CachedParticipants,
        part: &[PlacedMessage<'_>],
    ) -> Option<Writes> {
        let mut mentions = part
            .iter()
            .map(|one| (one.message(), Mentioned::of(one.message())))
            .filter(|(_, mentioned)| !mentioned.is_empty())
            .peekable();
        mentions.peek()?;
        let bytes: usize = part.iter().map(message_bytes).sum();
        let is_apart = frame_bytes(participants, part) + bytes > BATCH_BYTES_MAX;
        let mut own = is_apart.then(Writes::logged);
        for (message, mentioned) in mentions {
            let at = message.id.moment().micros();
            let writes = own.as_mut().unwrap_or(writes);
            writes.put_mentions(message, &mentioned, at);
        }
        own
    }

    /// Writes to users who have joined since the participants were read, until no more join. Returns the participants then.
    async fn write_to_new_participants(
        &self,
        state: &ConversationWriteState,
        mut participants: Arc<CachedParticipants>,
        placed: &[PlacedMessage<'_>],
    ) -> Result<Arc<CachedParticipants>> {
        let effects = SendEffects::of(placed);
        let activity = effects.last.id.moment();
        for _ in 0..TRIES_MAX {
            let Some(now) = self
                .changed_participants(effects.conversation, &participants)
                .await?
            else {
                return Ok(participants);
            };
            let hint = (state.lock().last_activity <= activity).then_some(HintUpdate {
                activity,
                obsolete_slot: None,
            });
            let missed: Vec<_> = now.missing_from(&participants).collect();
            for some in missed.chunks(Conversation::FAN_OUT_MAX) {
                let mut writes = Writes::logged();
                some.iter()
                    .for_each(|user| effects.put_entry(&mut writes, user, hint));
                self.executor.write_all(writes).await?;
            }
            state.set_participants(Arc::clone(&now));
            participants = now;
        }
        Err(unavailable(
            "the participants of a conversation change all the time",
        ))
    }
}

/// The events of a batch, in the order of their ids.
fn events(part: &[PlacedMessage<'_>], extra: Extra<'_>) -> Vec<OutboxEvent> {
    let changes = extra.changes.iter().map(OutboxEvent::of_change);
    let messages = part
        .iter()
        .map(|one| OutboxEvent::message_added(one.message().id));
    changes.chain(messages).collect()
}
