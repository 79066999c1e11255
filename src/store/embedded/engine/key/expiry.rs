//! Keys of expiries: the rows that expire, by the hour in which they do.

use super::{Key, Span, Table, Tag, rows};
use crate::model::Timestamp;

// Expiry: hour ‖ table ‖ key of the expiring row. All rows of an hour have expired once it has begun.

pub(crate) const HOUR_MICROS: i64 = 3_600 * 1_000_000;

fn hour(moment: Timestamp) -> u32 {
    u32::try_from(moment.micros() / HOUR_MICROS)
        .expect("the year 9999 lies within 71 million hours of 1970")
}

pub(crate) fn expiry(of: &Key, expires_at: Timestamp) -> Key {
    rows(
        Tag::Expiry,
        &[
            &(hour(expires_at) + 1).to_be_bytes(),
            &[of.table as u8],
            &of.bytes,
        ],
    )
}

/// Range of everything that has expired.
pub(crate) fn expired(now: Timestamp) -> Span {
    let start = rows(Tag::Expiry, &[]).bytes;
    let end = rows(Tag::Expiry, &[&(hour(now) + 1).to_be_bytes()]).bytes;
    Span {
        table: Table::Rows,
        start,
        end,
    }
}

/// Parses the key that a row of [`expired`] refers to.
pub(crate) fn expired_key(bytes: &[u8]) -> Option<Key> {
    let (table, key) = bytes.get(5..)?.split_first()?;
    let table = *Table::ALL.get(usize::from(*table))?;
    Some(Key {
        table,
        bytes: key.to_vec(),
    })
}
