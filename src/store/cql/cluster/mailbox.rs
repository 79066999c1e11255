//! Mailboxes: the notices for a server, in partitions of one lane and one minute that expire as a
//! whole.

use scylla::value::CqlTimeuuid;

use crate::model::{OrderKey, TimeUuid};
use crate::store::Result;
use crate::store::cluster::{MailboxLane, MailboxRow, ServerId};
use crate::store::cql::driver::executor::{Executor, concurrently};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{time_uuid, time_uuid_bound, values};

const TABLE: &str = "mailboxes";
const MINUTE_MICROS: i64 = 60_000_000;
/// Partitions of one read: more than the span of a read, which is seconds, ever meets.
const MINUTES_MAX: i64 = 8;
/// Rows of one statement.
const ROWS_MAX: i32 = 1_000;

statements! {
    INSERT_NOTICE: Write "INSERT INTO mailboxes (server_id, lane, minute, notice_id, payload) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?";
    SELECT_NOTICES: Poll "SELECT notice_id, payload FROM mailboxes WHERE server_id = ? AND lane = ? AND minute = ? AND notice_id > ? AND notice_id <= ? LIMIT ?";
}

pub(crate) fn minute_of(micros: i64) -> i32 {
    i32::try_from(micros.div_euclid(MINUTE_MICROS)).unwrap_or(i32::MAX)
}

pub(crate) async fn read_notices(
    executor: &Executor,
    server: ServerId,
    lane: MailboxLane,
    (after, up_to): (OrderKey, OrderKey),
) -> Result<Vec<MailboxRow>> {
    let last = minute_of(up_to.moment().micros());
    let first = minute_of(after.moment().micros())
        .max(last.saturating_sub(i32::try_from(MINUTES_MAX).unwrap_or(i32::MAX)));
    let reads =
        (first..=last).map(|minute| read_minute(executor, server, lane, minute, (after, up_to)));
    Ok(concurrently(reads).await?.into_iter().flatten().collect())
}

async fn read_minute(
    executor: &Executor,
    server: ServerId,
    lane: MailboxLane,
    minute: i32,
    (mut after, up_to): (OrderKey, OrderKey),
) -> Result<Vec<MailboxRow>> {
    let mut found = Vec::new();
    loop {
        let values = values![
            server.0,
            lane.number(),
            minute,
            time_uuid_bound(after),
            time_uuid_bound(up_to),
            ROWS_MAX
        ];
        let rows: Vec<(CqlTimeuuid, Vec<u8>)> = executor.read(&SELECT_NOTICES, values).await?;
        let is_last = rows.len() < ROWS_MAX.unsigned_abs() as usize;
        for (id, payload) in rows {
            let id: TimeUuid = time_uuid(TABLE, id)?;
            after = id.order_key();
            found.push(MailboxRow { id, payload });
        }
        if is_last {
            return Ok(found);
        }
    }
}
