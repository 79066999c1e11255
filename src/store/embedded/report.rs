//! Reports in the embedded store: a row for each, the newest first, and a maximum register for its resolution.

use super::Embedded;
use super::read_context::ReadContext;
use crate::model::{OrderKey, OutboxEvent, Report, ReportId, ReportResolution, Timestamp};
use crate::store::embedded::engine::committer::Op;
use crate::store::embedded::engine::db::{InTable, View};
use crate::store::embedded::engine::key;
use crate::store::{ReportQuery, Result, rules};

const TABLE: &str = "reports_by_week";

impl Embedded {
    pub(super) async fn has_report(&self, report: ReportId) -> Result<bool> {
        self.read(move |context| context.view().has(&key::report(report.order_key())))
            .await
    }
}

/// Rows of a new report, with its event of the outbox.
pub(super) fn added(context: &ReadContext, report: &Report) -> Vec<Op> {
    let mut ops = rows(report);
    let event = || vec![OutboxEvent::reported(report.id)];
    ops.extend(context.outbox.put(report.outbox_conversation(), event));
    ops
}

pub(super) fn deleted(reports: &[ReportId]) -> Vec<Op> {
    let keys = reports.iter().map(|id| id.order_key());
    let ops = keys.flat_map(|at| [key::report(at), key::report_resolution(at)]);
    ops.map(Op::Delete).collect()
}

/// Rows of a report without a resolution, with their expiry.
pub(super) fn rows(report: &Report) -> Vec<Op> {
    let key = key::report(report.id.order_key());
    let expiry = key::expiry(&key, expires_at(report.id));
    vec![row(report), Op::Put(expiry, Vec::new())]
}

pub(super) fn row(report: &Report) -> Op {
    let key = key::report(report.id.order_key());
    Op::Put(key, rules::report::encode(report))
}

/// Rows of a resolution, with their expiry.
pub(super) fn resolved(
    report: ReportId,
    resolution: Option<&ReportResolution>,
    at: Timestamp,
) -> Vec<Op> {
    let key = key::report_resolution(report.order_key());
    let expiry = key::expiry(&key, expires_at(report));
    vec![
        Op::Max(key, rules::report::encode_resolution(resolution, at)),
        Op::Put(expiry, Vec::new()),
    ]
}

fn expires_at(report: ReportId) -> Timestamp {
    report.moment().plus_micros(Report::LIFETIME_MICROS)
}

pub(super) fn listed(context: &ReadContext, query: &ReportQuery) -> Result<Vec<Report>> {
    let view = context.view();
    let newer_than = query
        .newer_than
        .max(Report::expired_to(context.clock.now()));
    let span = key::reports(query.older_than, newer_than);
    if span.is_empty() {
        return Ok(Vec::new());
    }
    let mut reports = Vec::new();
    for row in view.scan(span, query.direction).take(query.limit) {
        let (bytes, value) = row?;
        let id = key::report_of(&bytes).in_table(TABLE)?;
        reports.push(with_resolution(&view, id, &value)?);
    }
    Ok(reports)
}

pub(super) fn by_id(context: &ReadContext, ids: &[ReportId]) -> Result<Vec<Option<Report>>> {
    let (view, now) = (context.view(), context.clock.now());
    ids.iter()
        .map(|id| {
            let stored = view.get(&key::report(id.order_key()))?;
            let report = stored.map(|value| with_resolution(&view, *id, &value));
            Ok(report
                .transpose()?
                .filter(|report| !report.has_expired(now)))
        })
        .collect()
}

pub(super) fn count(context: &ReadContext, after: OrderKey, limit: usize) -> Result<usize> {
    let span = key::reports(OrderKey::MAX, after);
    context.view().count(span, limit)
}

fn with_resolution(view: &View<'_>, id: ReportId, value: &[u8]) -> Result<Report> {
    let report = rules::report::decode(id, value)?;
    let stored = view.get(&key::report_resolution(id.order_key()))?;
    let resolution = stored.map(|bytes| rules::report::decode_resolution(&bytes));
    Ok(Report {
        resolution: resolution.transpose()?.flatten(),
        ..report
    })
}
