//! Reports of users and messages, a partition for each week.
//!
//! A row has two cells: the report, and the register of its resolution. A row without the first is no report.

use std::sync::Arc;

use scylla::value::CqlTimeuuid;

use crate::clock::Clock;
use crate::model::{
    Direction, OrderKey, OutboxEvent, OutboxRow, Report, ReportId, ReportResolution, TimeUuid,
    Timestamp,
};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::executor::{Executor, concurrently};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{
    REGISTER_TIMESTAMP, row_limit, time_uuid, time_uuid_bound, values,
};
use crate::store::cql::outbox::Outbox;
use crate::store::rules::finding;
use crate::store::{ReportQuery, Result, Verified, rules};

const TABLE: &str = "reports_by_week";
const WEEK_MICROS: i64 = 7 * 24 * 3_600 * 1_000_000;
/// Weeks that are read at once, where those before had too few reports.
const WEEKS_AT_ONCE_MAX: usize = 8;
/// Rows of one piece of a verification.
const VERIFIED_AT_ONCE: usize = 200;
/// Ids are at most a little ahead of the clock.
const AHEAD_MICROS: i64 = 60_000_000;

statements! {
    INSERT_REPORT: Write "INSERT INTO reports_by_week (week, report_id, report) VALUES (?, ?, ?) USING TIMESTAMP ? AND TTL ?";
    UPDATE_REPORT: Write "UPDATE reports_by_week USING TIMESTAMP ? AND TTL ? SET report = ? WHERE week = ? AND report_id = ?";
    UPDATE_RESOLUTION: Write "UPDATE reports_by_week USING TIMESTAMP ? AND TTL ? SET resolution = ? WHERE week = ? AND report_id = ?";
    DELETE_REPORT: Write "DELETE FROM reports_by_week USING TIMESTAMP ? WHERE week = ? AND report_id = ?";
    SELECT_REPORT: Read "SELECT report, resolution FROM reports_by_week WHERE week = ? AND report_id = ?";
    SELECT_NEWEST_REPORTS: Read "SELECT report_id, report, resolution FROM reports_by_week WHERE week = ? AND report_id < ? AND report_id > ? LIMIT ?";
    SELECT_OLDEST_REPORTS: Read "SELECT report_id, report, resolution FROM reports_by_week WHERE week = ? AND report_id < ? AND report_id > ? ORDER BY report_id ASC LIMIT ?";
    SELECT_REPORT_IDS: Read "SELECT report_id FROM reports_by_week WHERE week = ? AND report_id > ? LIMIT ?";
}

type ReportColumns = (CqlTimeuuid, Option<Vec<u8>>, Option<Vec<u8>>);

/// Reports, without a cache.
pub(crate) struct ReportTable {
    executor: Arc<Executor>,
    clock: Arc<dyn Clock>,
}

/// The week of a moment, counted from 1970.
fn week_of(moment: Timestamp) -> i32 {
    i32::try_from(moment.micros().div_euclid(WEEK_MICROS)).unwrap_or(i32::MAX)
}

fn decode(id: ReportId, report: &[u8], resolution: Option<Vec<u8>>) -> Result<Report> {
    let resolution = resolution.map(|bytes| rules::report::decode_resolution(&bytes));
    Ok(Report {
        resolution: resolution.transpose()?.flatten(),
        ..rules::report::decode(id, report)?
    })
}

impl ReportTable {
    pub(crate) fn new(executor: Arc<Executor>, clock: Arc<dyn Clock>) -> Self {
        Self { executor, clock }
    }

    /// Seconds until a report expires. `None` if it has expired.
    fn ttl(&self, report: ReportId) -> Option<i32> {
        let end = report.moment().plus_micros(Report::LIFETIME_MICROS);
        let left = end.micros() - self.clock.now().micros();
        let seconds = i32::try_from(left / 1_000_000).unwrap_or(i32::MAX);
        let most = (Report::LIFETIME_MICROS / 1_000_000) as i32;
        (seconds > 0).then_some(seconds.min(most))
    }

    /// A timestamp after all writes that added this report.
    fn later_than(&self, report: ReportId) -> Timestamp {
        self.clock.now().max(report.moment().plus_micros(1))
    }

    pub(crate) async fn add(
        &self,
        report: &Report,
        logged_as: TimeUuid,
        outbox: &Outbox,
    ) -> Result<()> {
        let Some(ttl) = self.ttl(report.id) else {
            return Ok(());
        };
        let mut writes = Writes::logged();
        let (week, bytes) = (week_of(report.id.moment()), rules::report::encode(report));
        let values = values![week, report.id, bytes, report.id.moment(), ttl];
        writes.push(&INSERT_REPORT, values);
        let conversation = report.outbox_conversation();
        let events = || vec![OutboxEvent::reported(report.id)];
        let row = outbox.row(conversation, events).map(|row| OutboxRow {
            id: logged_as,
            ..row
        });
        outbox.write_all(writes, row).await
    }

    /// Writes an imported report, with its resolution. One that has expired is not written.
    pub(crate) async fn import(&self, report: &Report) -> Result<()> {
        let Some(ttl) = self.ttl(report.id) else {
            return Ok(());
        };
        let mut writes = Writes::logged();
        let (week, bytes) = (week_of(report.id.moment()), rules::report::encode(report));
        let values = values![week, report.id, bytes, REGISTER_TIMESTAMP, ttl];
        writes.push(&INSERT_REPORT, values);
        if let Some(resolution) = &report.resolution {
            let bytes = rules::report::encode_resolution(Some(resolution), resolution.at);
            let values = values![REGISTER_TIMESTAMP, ttl, bytes, week, report.id];
            writes.push(&UPDATE_RESOLUTION, values);
        }
        self.executor.write_all(writes).await
    }

    pub(crate) async fn resolve(
        &self,
        report: ReportId,
        resolution: Option<&ReportResolution>,
        at: Timestamp,
    ) -> Result<()> {
        let Some(ttl) = self.ttl(report) else {
            return Ok(());
        };
        let bytes = rules::report::encode_resolution(resolution, at);
        let values = values![at, ttl, bytes, week_of(report.moment()), report];
        self.executor.write(&UPDATE_RESOLUTION, values).await
    }

    pub(crate) async fn replace(&self, report: &Report) -> Result<()> {
        let (Some(ttl), Some(_)) = (self.ttl(report.id), self.by_id(report.id).await?) else {
            return Ok(());
        };
        let (week, bytes) = (week_of(report.id.moment()), rules::report::encode(report));
        let values = values![self.later_than(report.id), ttl, bytes, week, report.id];
        self.executor.write(&UPDATE_REPORT, values).await
    }

    pub(crate) async fn delete(&self, reports: &[ReportId]) -> Result<()> {
        let each = reports.iter().map(async |report| {
            let values = values![self.later_than(*report), week_of(report.moment()), *report];
            self.executor.write(&DELETE_REPORT, values).await
        });
        concurrently(each).await.map(drop)
    }

    pub(crate) async fn by_ids(&self, ids: &[ReportId]) -> Result<Vec<Option<Report>>> {
        concurrently(ids.iter().map(|id| self.by_id(*id))).await
    }

    async fn by_id(&self, id: ReportId) -> Result<Option<Report>> {
        let row = self
            .executor
            .read_one::<(Option<Vec<u8>>, Option<Vec<u8>>)>(
                &SELECT_REPORT,
                values![week_of(id.moment()), id],
            )
            .await?;
        let Some((Some(report), resolution)) = row else {
            return Ok(None);
        };
        let report = decode(id, &report, resolution)?;
        Ok(Some(report).filter(|report| !report.has_expired(self.clock.now())))
    }

    pub(crate) async fn list(&self, query: &ReportQuery) -> Result<Vec<Report>> {
        let mut reports = Vec::new();
        for (id, report, resolution) in self.rows(query).await? {
            if let Some(report) = report {
                reports.push(decode(time_uuid(TABLE, id)?, &report, resolution)?);
            }
        }
        Ok(reports)
    }

    /// Reads week by week, more of them at once while they have too few rows.
    async fn rows(&self, query: &ReportQuery) -> Result<Vec<ReportColumns>> {
        let now = self.clock.now();
        let newer_than = query.newer_than.max(Report::expired_to(now));
        let newest = OrderKey::first_at(now.plus_micros(AHEAD_MICROS));
        let older_than = query.older_than.min(newest);
        let weeks = week_of(newer_than.moment())..=week_of(older_than.moment());
        let mut weeks: Vec<_> = weeks.collect();
        let statement = match query.direction {
            Direction::Forward => {
                weeks.reverse();
                &SELECT_NEWEST_REPORTS
            }
            Direction::Backward => &SELECT_OLDEST_REPORTS,
        };
        let (mut rows, mut left, mut at_once) = (Vec::new(), &weeks[..], 1);
        while rows.len() < query.limit && !left.is_empty() {
            let (some, rest) = left.split_at(at_once.min(left.len()));
            (left, at_once) = (rest, (2 * at_once).min(WEEKS_AT_ONCE_MAX));
            let reads = some.iter().map(|week| {
                let bounds = (time_uuid_bound(older_than), time_uuid_bound(newer_than));
                let limit = row_limit(query.limit);
                let values = values![*week, bounds.0, bounds.1, limit];
                self.executor.read::<ReportColumns>(statement, values)
            });
            let found = concurrently(reads).await?;
            rows.extend(found.into_iter().flatten());
        }
        rows.truncate(query.limit);
        Ok(rows)
    }

    /// Whether the store has a report.
    pub(crate) async fn has(&self, report: ReportId) -> Result<bool> {
        Ok(self.by_id(report).await?.is_some())
    }

    /// Verifies the reports before a position, some at once. The answer is the last one of more.
    pub(crate) async fn verify(
        &self,
        older_than: OrderKey,
        repair: bool,
        verified: &mut Verified,
    ) -> Result<Option<OrderKey>> {
        let query = ReportQuery {
            older_than,
            newer_than: OrderKey::MIN,
            direction: Direction::Forward,
            limit: VERIFIED_AT_ONCE,
        };
        let rows = self.rows(&query).await?;
        verified.looked_at += rows.len() as u64;
        let (is_last, mut last) = (rows.len() < VERIFIED_AT_ONCE, None);
        for (id, report, resolution) in rows {
            let id = time_uuid(TABLE, id)?;
            last = Some(id.order_key());
            let Some(report) = report else {
                if repair {
                    self.delete(&[id]).await?;
                }
                verified.found(
                    finding::RESOLUTION_STRAY,
                    format!("the report {id}"),
                    repair,
                );
                continue;
            };
            if let Err(error) = decode(id, &report, resolution) {
                let example = format!("of reports_by_week, of {id}: {error}");
                verified.found(finding::UNREADABLE, example, false);
            }
        }
        Ok(last.filter(|_| !is_last))
    }

    pub(crate) async fn count(&self, after: OrderKey, limit: usize) -> Result<usize> {
        let last = week_of(self.clock.now().plus_micros(AHEAD_MICROS));
        let mut count = 0;
        for week in (week_of(after.moment())..=last).rev() {
            let left = limit - count;
            if left == 0 {
                break;
            }
            let values = values![week, time_uuid_bound(after), row_limit(left)];
            let ids: Vec<(CqlTimeuuid,)> = self.executor.read(&SELECT_REPORT_IDS, values).await?;
            count += ids.len();
        }
        Ok(count)
    }
}
