//! Readers of the outbox in the embedded store: their positions and their dead letters.

use super::read_context::ReadContext;
use crate::model::{Direction, OutboxShard};
use crate::store::embedded::engine::committer::{Op, Write};
use crate::store::embedded::engine::key;
use crate::store::{DEAD_LETTER_KEPT_MICROS, DeadLetter, ReaderPosition, Result, rules};

pub(super) fn positions(
    context: &ReadContext,
    reader: &str,
) -> Result<Vec<Option<ReaderPosition>>> {
    let view = context.view();
    OutboxShard::all()
        .map(|shard| {
            let stored = view.get(&key::reader_position(reader, shard))?;
            stored
                .map(|bytes| rules::outbox::decode_reader(&bytes))
                .transpose()
        })
        .collect()
}

/// Dead letters, those that have expired and are not swept yet left out.
pub(super) fn dead_letters(
    context: &ReadContext,
    reader: &str,
    limit: usize,
) -> Result<Vec<DeadLetter>> {
    let (view, mut letters) = (context.view(), Vec::new());
    let oldest = context.clock.now().plus_micros(-DEAD_LETTER_KEPT_MICROS);
    for row in view.scan(key::dead_letters(reader), Direction::Forward) {
        if letters.len() >= limit {
            break;
        }
        let (_, value) = row?;
        let letter = rules::outbox::decode_dead(&value)?;
        letters.extend(letter.filter(|letter| letter.died_at > oldest));
    }
    Ok(letters)
}

/// Replaces a position, on the condition that it is still the one that was seen.
pub(super) fn swap_position(
    reader: &str,
    shard: OutboxShard,
    seen: Option<&ReaderPosition>,
    to: &ReaderPosition,
) -> Write {
    let seen = seen.map(rules::outbox::encode_reader);
    let key = key::reader_position(reader, shard);
    Write::swap(key, seen, rules::outbox::encode_reader(to))
}

pub(super) fn put_dead_letter(reader: &str, letter: &DeadLetter) -> Vec<Op> {
    let key = key::dead_letter(reader, letter);
    let expires_at = letter.died_at.plus_micros(DEAD_LETTER_KEPT_MICROS);
    let expiry = key::expiry(&key, expires_at);
    vec![
        Op::Put(key, rules::outbox::encode_dead(letter)),
        Op::Put(expiry, Vec::new()),
    ]
}
