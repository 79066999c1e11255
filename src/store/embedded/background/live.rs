//! Live messages in the embedded store. All rows of one expire together, a day after its last write.

use crate::model::{
    ConversationId, Direction, LiveKey, LiveMessage, LiveStop, LiveText, Timestamp,
};
use crate::store::embedded::Embedded;
use crate::store::embedded::engine::committer::{CommitOutcome, Condition, Op, Write};
use crate::store::embedded::engine::db::{InTable, View};
use crate::store::embedded::engine::key::{self, Key, LiveCell};
use crate::store::embedded::read_context::ReadContext;
use crate::store::live::{
    DUE_LIVE_LIFETIME_MICROS, DueLiveQuery, LIVE_LISTED_MINUTES, LIVE_TEXT_LIFETIME_MICROS,
    LiveListing, LiveStore, LiveTextQuery, LiveWrite, WriterClaim, begin_of_minute,
};
use crate::store::rules::live::{
    ClaimBytes, LiveCells, decode_listed, encode_listed, encode_register, register_moment,
};
use crate::store::{Result, StoreFuture, live_operations};

const TABLE: &str = "live_texts";

impl LiveStore for Embedded {
    live_operations! { reads {
        live_messages: messages,
        live_texts: texts,
        listed_lives: listed,
        due_lives: due,
    } }

    fn claim_live_writer<'a>(
        &'a self,
        live: LiveKey,
        claim: &'a WriterClaim,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let claim = claim.clone();
            let write = self.read(move |context| claimed(context, live, &claim));
            match write.await? {
                Some(write) => Ok(self.write(write).await? == CommitOutcome::Done),
                None => Ok(false),
            }
        })
    }

    fn write_live<'a>(&'a self, live: LiveKey, write: &'a LiveWrite) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let at = write.at;
            let text = write.text.as_ref().map(|row| {
                let key = key::live_text(live, write.writer, row.extent());
                Op::Put(key, row.text().as_bytes().to_vec())
            });
            let status = write.status.as_ref();
            let status = status.map(|value| register(live, LiveCell::Status, at, value));
            let steps = write.steps.as_ref();
            let steps = steps.map(|value| register(live, LiveCell::Steps, at, value));
            let touched = register(live, LiveCell::Touched, at, &());
            let ops = [text, status, steps, Some(touched)];
            self.commit_live(live, at, ops.into_iter().flatten().collect())
                .await
        })
    }

    fn stop_live<'a>(&'a self, live: LiveKey, stop: &'a LiveStop) -> StoreFuture<'a, ()> {
        let op = register(live, LiveCell::Stop, stop.at, stop);
        Box::pin(self.commit_live(live, stop.at, vec![op]))
    }

    fn discard_live(&self, live: LiveKey, at: Timestamp) -> StoreFuture<'_, ()> {
        let op = register(live, LiveCell::Discarded, at, &());
        Box::pin(self.commit_live(live, at, vec![op]))
    }

    fn list_live<'a>(&'a self, listing: &'a LiveListing, due_minute: u32) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let LiveListing { minute, live, .. } = *listing;
            let value = encode_listed(&listing.sender, &listing.key);
            let listed = key::live_listing(minute, live);
            let due = key::due_live(due_minute, live);
            let unlisted_at = begin_of_minute(minute.saturating_add(LIVE_LISTED_MINUTES));
            let forgotten_at = begin_of_minute(due_minute).plus_micros(DUE_LIVE_LIFETIME_MICROS);
            let ops = vec![
                Op::Put(key::expiry(&listed, unlisted_at), Vec::new()),
                Op::Put(key::expiry(&due, forgotten_at), Vec::new()),
                Op::Put(listed, value.clone()),
                Op::Put(due, value),
            ];
            self.write_ops(ops, None).await
        })
    }
}

impl Embedded {
    /// Commits rows of a live message, with the expiry of all its rows.
    async fn commit_live(&self, live: LiveKey, at: Timestamp, mut ops: Vec<Op>) -> Result<()> {
        ops.push(expiry(live, at));
        self.write_ops(ops, None).await
    }
}

fn register(live: LiveKey, cell: LiveCell, at: Timestamp, value: &impl serde::Serialize) -> Op {
    Op::Max(key::live_cell(live, cell), encode_register(at, value))
}

/// The entry of a live message in the expiry index, after a write at a moment. Writes of an hour have the same one, and a maximum
/// that is there is not written again.
fn expiry(live: LiveKey, at: Timestamp) -> Op {
    let expires_at = at.plus_micros(LIVE_TEXT_LIFETIME_MICROS);
    Op::Max(key::expiry(&key::live(live), expires_at), Vec::new())
}

/// Cells of a live message that has not expired.
fn living(view: &View<'_>, live: LiveKey, now: Timestamp) -> Result<Option<LiveCells>> {
    let (cells, newest) = cells(view, live)?;
    let is_alive = newest.is_some_and(|at| at.plus_micros(LIVE_TEXT_LIFETIME_MICROS) > now);
    Ok(is_alive.then_some(cells))
}

/// Cells of a live message, with the moment of its last write. `None` without a cell.
fn cells(view: &View<'_>, live: LiveKey) -> Result<(LiveCells, Option<Timestamp>)> {
    let mut cells = LiveCells::default();
    let mut newest = None;
    for row in view.scan(key::live_cells(live), Direction::Forward) {
        let (bytes, value) = row?;
        let Some(cell) = key::live_cell_of(&bytes) else {
            continue;
        };
        let value = value.to_vec();
        if !matches!(cell, LiveCell::Writers | LiveCell::Start) {
            newest = newest.max(Some(register_moment(&value)?));
        }
        match cell {
            LiveCell::Writers => cells.writers = Some(value),
            LiveCell::Start => cells.start = Some(value),
            LiveCell::Touched => cells.touched = Some(register_moment(&value)?),
            LiveCell::Status => cells.status = Some(value),
            LiveCell::Steps => cells.steps = Some(value),
            LiveCell::Stop => cells.stop = Some(value),
            LiveCell::Discarded => cells.discarded = Some(value),
        }
    }
    let writers = cells.writers()?.unwrap_or_default();
    let claims = writers.entries().iter().map(|entry| entry.claimed_at);
    let newest = newest.max(claims.max());
    Ok((cells, newest))
}

/// Write of a claim. `None` if the live message has begun already, or has expired. One that has expired, and is begun anew,
/// loses the rows that it left.
fn claimed(context: &ReadContext, live: LiveKey, claim: &WriterClaim) -> Result<Option<Write>> {
    let view = context.view();
    let key = key::live_cell(live, LiveCell::Writers);
    let bytes = ClaimBytes::new(claim);
    let alive = living(&view, live, context.clock.now())?;
    let is_new = alive.is_none();
    let begun = alive.and_then(|cells| cells.writers);
    if begun != bytes.seen {
        return Ok(None);
    }
    let mut write = Write::default();
    let present = view.get(&key)?.map(|value| value.to_vec());
    let unchanged = Condition::unchanged(key.clone(), present);
    write.conditions.push(unchanged);
    let start = bytes
        .start
        .map(|start| (key::live_cell(live, LiveCell::Start), start));
    let puts: Vec<(Key, Vec<u8>)> = start.into_iter().chain([(key, bytes.writers)]).collect();
    if is_new {
        let left = rows(&view, live, usize::MAX)?.into_iter();
        let left = left.filter(|row| puts.iter().all(|(put, _)| put != row));
        write.ops.extend(left.map(Op::Delete));
    }
    let writers = match claim {
        WriterClaim::First { writers, .. } => writers,
        WriterClaim::Next { to, .. } => to,
    };
    let at = writers.entries().last().map(|entry| entry.claimed_at);
    write
        .ops
        .push(expiry(live, at.unwrap_or_else(|| context.clock.now())));
    write
        .ops
        .extend(puts.into_iter().map(|(key, value)| Op::Put(key, value)));
    Ok(Some(write))
}

fn messages(context: &ReadContext, keys: &[LiveKey]) -> Result<Vec<Option<LiveMessage>>> {
    let view = context.view();
    let each = |live: &LiveKey| {
        let cells = living(&view, *live, context.clock.now())?;
        cells.map_or(Ok(None), |cells| cells.decode(*live))
    };
    keys.iter().map(each).collect()
}

fn texts(context: &ReadContext, query: &LiveTextQuery) -> Result<Vec<LiveText>> {
    let view = context.view();
    if living(&view, query.live, context.clock.now())?.is_none() {
        return Ok(Vec::new());
    }
    let LiveTextQuery { live, writer, .. } = *query;
    let span = key::live_texts(live, writer, query.after);
    let mut texts = Vec::new();
    for row in view.scan(span, Direction::Forward).take(query.limit) {
        let (bytes, value) = row?;
        let position = key::live_position_of(&bytes).in_table(TABLE)?;
        let text = std::str::from_utf8(&value).in_table(TABLE)?;
        let text = LiveText::new(position, text.to_owned());
        texts.push(text.in_table(TABLE)?);
    }
    Ok(texts)
}

fn listed(
    context: &ReadContext,
    conversation: ConversationId,
    from_minute: u32,
    limit: usize,
) -> Result<Vec<LiveListing>> {
    let span = key::live_listings(conversation, from_minute);
    listings(context, span, key::live_listing_of, limit)
}

fn due(context: &ReadContext, query: &DueLiveQuery) -> Result<Vec<LiveListing>> {
    let span = key::due_lives(query.shard, (query.from, query.up_to), query.after);
    listings(context, span, key::due_live_of, query.limit)
}

/// Rows of a list of live messages, each with the minute of its key.
fn listings(
    context: &ReadContext,
    span: key::Span,
    parse: fn(&[u8]) -> Option<(u32, LiveKey)>,
    limit: usize,
) -> Result<Vec<LiveListing>> {
    let view = context.view();
    let mut found = Vec::new();
    for row in view.scan(span, Direction::Forward).take(limit) {
        let (bytes, value) = row?;
        let (minute, live) = parse(&bytes).in_table(TABLE)?;
        let (sender, key) = decode_listed(&value)?;
        found.push(LiveListing {
            minute,
            live,
            sender,
            key,
        });
    }
    Ok(found)
}

/// Keys of the rows of a live message, at most so many.
fn rows(view: &View<'_>, live: LiveKey, limit: usize) -> Result<Vec<Key>> {
    let rows = view.scan(key::live_rows(live), Direction::Forward);
    rows.take(limit)
        .map(|row| Ok(Key::of_row(&row?.0)))
        .collect()
}

/// Plans the deletion of a live message whose entry in the expiry index is due, unless it was written to since. False if rows
/// are left: the entry has to stay.
pub(crate) fn expire(
    view: &View<'_>,
    live: LiveKey,
    now: Timestamp,
    limit: usize,
    write: &mut Write,
) -> Result<bool> {
    if living(view, live, now)?.is_some() {
        return Ok(true);
    }
    let keys = rows(view, live, limit)?;
    let is_all = keys.len() < limit;
    // A claim would begin the live message anew.
    let writers = key::live_cell(live, LiveCell::Writers);
    let present = view.get(&writers)?.map(|value| value.to_vec());
    write
        .conditions
        .push(Condition::unchanged(writers, present));
    write.ops.extend(keys.into_iter().map(Op::Delete));
    Ok(is_all)
}

#[cfg(test)]
#[path = "live_test.rs"]
mod tests;
