//! Writes whose outcome is not known, and ids that became visible late: what only a store that several servers share brings with it.
//!
//! A cursor may pass an id only when no smaller id of that conversation can still become visible. So the queue of a conversation does not
//! go on before a write of unknown outcome is settled by the same write again; and what is acknowledged long after its id is logged once
//! more under a fresh one, which a stream that has passed the first will find.

use std::time::Duration;

use tokio::time::Instant;

use crate::chat::in_flight_ids::IdLease;
use crate::chat::write::conversation_queue::Worker;
use crate::chat::{Chat, Error, Result};
use crate::model::{Change, ChangeKind, Message, MessageId, TimeUuid, UserId};
use crate::store;

/// How far the ids of a shared store may be ahead of the wall clock. Farther, and another server could not tell what is new.
const AHEAD_MAX: Duration = Duration::from_secs(2);
/// For how long the same write is tried again: most outages are over by then. What becomes visible later than that nobody tells of, though
/// it is in its history. Whoever waits for it is told much earlier that its outcome is not known, and others are told that theirs were not
/// begun: while it cannot be written, neither could they be.
const SETTLE_MAX: Duration = Duration::from_secs(10 * 60);
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(50);
const TRY_AGAIN_AFTER_MAX: Duration = Duration::from_secs(1);
/// What becomes visible so long after its id is late: streams look back 10 s, twice this and the difference of two clocks.
const LATE_AFTER_MICROS: i64 = 4_000_000;
/// Logging that something is late may come late itself. That often in a row, and the store is not well.
const LATE_TRIES: usize = 5;

impl Chat {
    /// Whether other servers write to the store too.
    pub(crate) fn is_shared(&self) -> bool {
        self.0.store.overlap_micros() > 0
    }

    /// Gives ids, unless they would lie too far ahead of the time.
    pub(crate) fn begin(&self, count: usize) -> Result<IdLease> {
        if self.is_shared() && self.ahead_of_clock() > AHEAD_MAX {
            return Err(Error::Busy);
        }
        Ok(self.0.in_flight.begin(count))
    }

    /// Writes, and where the outcome is not known the same again until it is: with these ids, which are told once it is done.
    pub(crate) async fn settled<T, F>(
        &self,
        ids: IdLease,
        write: impl Fn() -> F,
    ) -> store::Result<(IdLease, T)>
    where
        F: Future<Output = store::Result<T>>,
    {
        let first = write().await;
        if !self.is_shared() {
            return ids.if_kept(first);
        }
        let Err(mut error @ store::Error::OutcomeUnknown(_)) = first else {
            return first.map(|kept| (ids, kept));
        };
        let give_up = Instant::now() + SETTLE_MAX;
        let mut pause = TRY_AGAIN_AFTER;
        while Instant::now() < give_up {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(TRY_AGAIN_AFTER_MAX);
            match write().await {
                Ok(kept) => return Ok((ids, kept)),
                // Also a write that was surely not done now leaves open what became of the first.
                Err(again @ (store::Error::OutcomeUnknown(_) | store::Error::Unavailable(_))) => {
                    error = again
                }
                Err(corrupt @ store::Error::Corrupt { .. }) => return Err(corrupt),
            }
        }
        tracing::warn!(%error, "the store did not confirm a write within its retries; the outcome stays unknown");
        let (store::Error::OutcomeUnknown(cause)
        | store::Error::Unavailable(cause)
        | store::Error::Corrupt { cause, .. }) = error;
        Err(store::Error::OutcomeUnknown(cause))
    }

    fn is_late(&self, id: TimeUuid) -> bool {
        self.is_shared() && id.moment().plus_micros(LATE_AFTER_MICROS) < self.0.clock.now()
    }
}

impl Worker {
    pub(crate) async fn log_late_messages(
        &self,
        messages: &[(MessageId, &UserId)],
    ) -> store::Result<()> {
        let late = messages.iter().filter(|(id, _)| self.chat.is_late(*id));
        let late: Vec<_> = late
            .map(|(id, sender)| (*id, ChangeKind::MessageLate, *id, (*sender).clone()))
            .collect();
        self.log_late(late).await
    }

    pub(crate) async fn log_late_change(&self, change: &Change) -> store::Result<()> {
        let late = self
            .chat
            .is_late(change.id)
            .then(|| (change.id, change.kind, change.message, change.user.clone()));
        self.log_late(late.into_iter().collect()).await
    }

    pub(crate) async fn log_late_decision(
        &self,
        changes: &[Change],
        message: &Message,
    ) -> store::Result<()> {
        let late = |id: TimeUuid, kind, user: &UserId| {
            self.chat
                .is_late(id)
                .then(|| (id, kind, message.id, user.clone()))
        };
        let changed = changes
            .iter()
            .filter_map(|change| late(change.id, change.kind, &change.user));
        self.log_late(
            changed
                .chain(late(message.id, ChangeKind::MessageLate, &message.sender))
                .collect(),
        )
        .await
    }

    /// Logs these under fresh ids, until that itself is not late.
    async fn log_late(
        &self,
        late: Vec<(TimeUuid, ChangeKind, MessageId, UserId)>,
    ) -> store::Result<()> {
        if late.is_empty() {
            return Ok(());
        }
        for _ in 0..LATE_TRIES {
            let ids = self.chat.0.in_flight.begin(late.len());
            let change = |((_, kind, message, user), id): (
                &(_, ChangeKind, MessageId, UserId),
                &TimeUuid,
            )| Change {
                id: *id,
                kind: *kind,
                message: *message,
                user: user.clone(),
            };
            let changes: Vec<_> = late.iter().zip(ids.ids()).map(change).collect();
            // What it is about is told under its own id.
            changes
                .iter()
                .for_each(|change| self.chat.was_told(change.id));
            let (ids, ()) = self
                .chat
                .settled(ids, || {
                    self.chat.0.store.log_late(self.conversation, &changes)
                })
                .await?;
            if !self.chat.is_late(ids.newest()) {
                return Ok(());
            }
        }
        Err(store::Error::OutcomeUnknown(
            "what was kept late could not be logged in time".into(),
        ))
    }
}
