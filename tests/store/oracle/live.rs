//! Live messages in the naive engine.

use std::collections::BTreeMap;

use wideroom::model::{
    LiveExtent, LiveKey, LiveMessage, LiveStart, LiveStatus, LiveStop, LiveText, LiveWriters,
    MessageSteps, WriterNumber,
};
use wideroom::store::LiveStore;
use wideroom::store::live::{
    DueLiveQuery, LIVE_TEXT_LIFETIME_MICROS, LiveListing, LiveTextQuery, LiveWrite, WriterClaim,
};

use super::*;

/// A register: its value, and when it was written.
type Register<T> = Option<(Timestamp, T)>;

#[derive(Default)]
pub(super) struct OracleLive {
    begun: Option<(LiveStart, LiveWriters)>,
    touched: Option<Timestamp>,
    status: Register<Option<LiveStatus>>,
    steps: Register<MessageSteps>,
    stop: Register<LiveStop>,
    discarded: Register<()>,
    texts: BTreeMap<(WriterNumber, LiveExtent), LiveText>,
}

fn put<T>(register: &mut Register<T>, at: Timestamp, value: T) {
    if register.as_ref().is_none_or(|(there, _)| *there < at) {
        *register = Some((at, value));
    }
}

fn value<T: Clone>(register: &Register<T>) -> Option<T> {
    register.as_ref().map(|(_, value)| value.clone())
}

impl OracleLive {
    fn is_alive(&self, now: Timestamp) -> bool {
        let claims = self.begun.iter().flat_map(|(_, all)| all.entries());
        let moments = [
            claims.map(|entry| entry.claimed_at).max(),
            self.touched,
            self.stop.as_ref().map(|(at, _)| *at),
            self.discarded.as_ref().map(|(at, ())| *at),
        ];
        let newest = moments.into_iter().flatten().max();
        newest.is_some_and(|at| at.plus_micros(LIVE_TEXT_LIFETIME_MICROS) > now)
    }

    fn message(&self, key: LiveKey) -> Option<LiveMessage> {
        let (start, writers) = self.begun.clone()?;
        Some(LiveMessage {
            key,
            touched_at: self.touched.max(writers.claimed_at()).unwrap(),
            start,
            writers,
            status: value(&self.status).flatten(),
            steps: value(&self.steps).unwrap_or_default(),
            stop: value(&self.stop),
            discarded_at: self.discarded.as_ref().map(|(at, ())| *at),
        })
    }
}

impl Naive {
    /// Runs on a live message, after it was forgotten if it has expired.
    fn on_live<T>(&self, live: LiveKey, run: impl FnOnce(&mut OracleLive) -> T) -> T {
        let (mut kept, now) = (self.kept(), self.clock.now());
        let stored = kept.lives.entry(live).or_default();
        if !stored.is_alive(now) {
            *stored = OracleLive::default();
        }
        run(stored)
    }
}

impl LiveStore for Naive {
    fn claim_live_writer<'a>(
        &'a self,
        live: LiveKey,
        claim: &'a WriterClaim,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            Ok(self.on_live(live, |stored| {
                let present = stored.begun.clone();
                let next = match (claim, present) {
                    (WriterClaim::First { start, writers }, None) => {
                        Some((start.clone(), writers.clone()))
                    }
                    (WriterClaim::Next { seen, to }, Some((start, there))) if there == *seen => {
                        Some((start, to.clone()))
                    }
                    _ => None,
                };
                let is_claimed = next.is_some();
                if is_claimed {
                    stored.begun = next;
                }
                is_claimed
            }))
        })
    }

    fn live_messages<'a>(
        &'a self,
        keys: &'a [LiveKey],
    ) -> StoreFuture<'a, Vec<Option<LiveMessage>>> {
        Box::pin(async move {
            let each = keys.iter();
            Ok(each
                .map(|live| self.on_live(*live, |stored| stored.message(*live)))
                .collect())
        })
    }

    fn live_texts<'a>(&'a self, query: &'a LiveTextQuery) -> StoreFuture<'a, Vec<LiveText>> {
        Box::pin(async move {
            Ok(self.on_live(query.live, |stored| {
                let rows = stored.texts.iter().filter(|((writer, extent), _)| {
                    *writer == query.writer && *extent > query.after
                });
                let texts = rows.map(|(_, text)| text.clone());
                texts.take(query.limit).collect()
            }))
        })
    }

    fn write_live<'a>(&'a self, live: LiveKey, write: &'a LiveWrite) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.on_live(live, |stored| {
                if let Some(text) = &write.text {
                    let key = (write.writer, text.extent());
                    stored.texts.insert(key, text.clone());
                }
                if let Some(status) = &write.status {
                    put(&mut stored.status, write.at, status.clone());
                }
                if let Some(steps) = &write.steps {
                    put(&mut stored.steps, write.at, steps.clone());
                }
                stored.touched = stored.touched.max(Some(write.at));
            });
            Ok(())
        })
    }

    fn stop_live<'a>(&'a self, live: LiveKey, stop: &'a LiveStop) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.on_live(live, |stored| put(&mut stored.stop, stop.at, stop.clone()));
            Ok(())
        })
    }

    fn discard_live(&self, live: LiveKey, at: Timestamp) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.on_live(live, |stored| put(&mut stored.discarded, at, ()));
            Ok(())
        })
    }

    fn list_live<'a>(&'a self, listing: &'a LiveListing, due_minute: u32) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut kept = self.kept();
            let due = LiveListing {
                minute: due_minute,
                ..listing.clone()
            };
            kept.live_listings
                .insert((listing.minute, listing.live), listing.clone());
            let position = (due.minute, due.live.id, due.live.conversation);
            kept.due_lives.insert(position, due);
            Ok(())
        })
    }

    fn listed_lives(
        &self,
        conversation: ConversationId,
        from_minute: u32,
        limit: usize,
    ) -> StoreFuture<'_, Vec<LiveListing>> {
        Box::pin(async move {
            let kept = self.kept();
            let mut listed: Vec<_> = kept
                .live_listings
                .values()
                .filter(|one| one.live.conversation == conversation && one.minute >= from_minute)
                .cloned()
                .collect();
            listed.sort_by_key(|one| std::cmp::Reverse(one.minute));
            listed.truncate(limit);
            Ok(listed)
        })
    }

    fn due_lives<'a>(&'a self, query: &'a DueLiveQuery) -> StoreFuture<'a, Vec<LiveListing>> {
        Box::pin(async move {
            let kept = self.kept();
            let after = query
                .after
                .map(|(minute, live)| (minute, live.id, live.conversation));
            let due = kept.due_lives.iter().filter(|(position, one)| {
                OutboxShard::of(one.live.conversation) == query.shard
                    && (query.from..=query.up_to).contains(&one.minute)
                    && after.is_none_or(|after| **position > after)
            });
            Ok(due.take(query.limit).map(|(_, one)| one.clone()).collect())
        })
    }
}
