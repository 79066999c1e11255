//! Reports of users and messages: users make them, and services list and resolve them.
//!
//! A report keeps a copy of the message's content, because the sender may edit or delete it.

use std::sync::Arc;

use crate::chat::access::Access;
use crate::chat::access::restrictions::require;
use crate::chat::bounds::Bounds;
use crate::chat::components::Components;
use crate::chat::error::{Error, Result};
use crate::chat::history::HistoryService;
use crate::chat::in_flight_ids::InFlightIds;
use crate::chat::late_rule::log_in_time;
use crate::chat::listing::{BoundedScan, FilteredPage};
use crate::chat::rate_limit::RateLimit;
use crate::chat::write_tasks::WriteTasks;
use crate::metrics::{self, IntCounter, IntGauge, Metrics};
use crate::model::{
    Body, ConversationId, Direction, MessageId, OrderKey, PageRequest, Report, ReportId,
    ReportReason, ReportResolution, ReportState, ServiceRight, UserId, Viewer,
};
use crate::rate::Rate;
use crate::store::{FormVersion, ReportQuery, Store};

/// Reports that a page with a filter reads.
const SCAN_MAX: usize = 1_000;
/// Reports of one read, where a filter needs more than one.
const SCAN_CHUNK: usize = 100;
const DAY_MICROS: i64 = 24 * 3_600 * 1_000_000;
const MESSAGE: Error = Error::NotFound("the message");

/// Reason of a report, and words of the reporter.
#[derive(Debug)]
pub struct ReportInput {
    pub reason: ReportReason,
    pub note: Option<String>,
}

/// A page of reports, the newest first.
pub type ReportPage = FilteredPage<OrderKey, Report>;

pub struct ReportService {
    store: Arc<dyn Store>,
    access: Arc<Access>,
    history: Arc<HistoryService>,
    in_flight: InFlightIds,
    tasks: Arc<WriteTasks>,
    rate: RateLimit,
    /// The share of each user in the quota of all.
    daily_rate: RateLimit,
    daily_max: usize,
    meter: QuotaMeter,
}

/// Use of the quota of all users.
struct QuotaMeter {
    used: IntGauge,
    refused: IntCounter,
}

impl QuotaMeter {
    fn new() -> Self {
        Self {
            used: metrics::gauge(
                "wideroom_reports_in_day",
                "Reports of all users in 24 hours, as of the last one. At reports-per-day-max further ones are refused.",
            ),
            refused: metrics::counter(
                "wideroom_reports_refused_total",
                "Reports refused because those of all users used up the quota of a day.",
            ),
        }
    }
}

impl ReportService {
    pub(crate) fn new(components: &Components, bounds: &Bounds) -> Self {
        let rate = Rate::per_hour(bounds.rates.reports_per_hour);
        let daily_rate = Rate::per_day(bounds.rates.reports_per_day);
        Self {
            store: Arc::clone(&components.store),
            access: Arc::clone(&components.access),
            history: Arc::clone(&components.history),
            in_flight: components.in_flight.clone(),
            tasks: Arc::clone(&components.tasks),
            rate: RateLimit::new("reports", rate, bounds.rates.is_on),
            daily_rate: RateLimit::new("reports_of_day", daily_rate, bounds.rates.is_on),
            meter: QuotaMeter::new(),
            daily_max: bounds.reports_per_day,
        }
    }

    pub(crate) fn register(&self, metrics: &Metrics) {
        self.rate.register(metrics);
        self.daily_rate.register(metrics);
        metrics.add(self.meter.used.clone());
        metrics.add(self.meter.refused.clone());
    }

    /// Reports a message that the caller can read, with a copy of its content.
    pub async fn report_message(
        self: &Arc<Self>,
        caller: &Viewer,
        conversation: ConversationId,
        id: MessageId,
        input: ReportInput,
    ) -> Result<ReportId> {
        let note = parse_note(input.note)?;
        let visible = self.access.visible_to(caller, &[conversation]).await?;
        let floor = visible.into_iter().flatten().next().ok_or(MESSAGE)?.floor;
        let history = &self.history;
        let message = history.require_message(conversation, id, floor).await?;
        if message.sender == caller.user {
            const PATH: &[&str] = &["input", "messageId"];
            return Err(Error::bad_input(PATH, "the message is your own"));
        }
        let mut report = Report {
            id,
            reporter: caller.user.clone(),
            user: message.sender.clone(),
            reason: input.reason,
            note,
            conversation: Some(conversation),
            message: Some(id),
            body: None,
            attachments: Vec::new(),
            resolution: None,
        };
        report.copy(&message);
        self.add(
            caller,
            move |id| Report { id, ..report },
            Some(conversation),
        )
        .await
    }

    /// Reports a user, in a conversation that the caller can read or in none.
    pub async fn report_user(
        self: &Arc<Self>,
        caller: &Viewer,
        username: &str,
        conversation: Option<ConversationId>,
        input: ReportInput,
    ) -> Result<ReportId> {
        const PATH: &[&str] = &["input", "username"];
        let user = UserId::parse(username).map_err(|error| Error::bad_input(PATH, error))?;
        if user == caller.user {
            return Err(Error::bad_input(PATH, "you cannot report yourself"));
        }
        let note = parse_note(input.note)?;
        if let Some(conversation) = conversation
            && !self.is_visible(caller, conversation).await?
        {
            return Err(Error::NotFound("the conversation"));
        }
        let reporter = caller.user.clone();
        let report = move |id| Report {
            id,
            reporter,
            user,
            reason: input.reason,
            note,
            conversation,
            message: None,
            body: None,
            attachments: Vec::new(),
            resolution: None,
        };
        self.add(caller, report, conversation).await
    }

    /// A report, for services that moderate. `None` for everyone else.
    pub async fn report(&self, caller: &Viewer, id: ReportId) -> Result<Option<Report>> {
        if !caller.may(ServiceRight::Moderate) {
            return Ok(None);
        }
        Ok(self.store.reports_by_id(&[id]).await?.pop().flatten())
    }

    /// Sets the state of a report, for services.
    pub async fn resolve(
        self: &Arc<Self>,
        caller: &Viewer,
        id: Option<ReportId>,
        state: ReportState,
    ) -> Result<Report> {
        const REPORT: Error = Error::NotFound("the report");
        require(caller, ServiceRight::Moderate)?;
        let id = id.ok_or(REPORT)?;
        let report = self.report(caller, id).await?.ok_or(REPORT)?;
        let now = self.in_flight.now();
        // The later one wins, so a change that follows another is later.
        let earlier = report.resolution.as_ref();
        let at = earlier.map_or(now, |earlier| now.max(earlier.at.plus_micros(1)));
        let resolution = ReportResolution::of(state, caller.user.clone(), at);
        let reports = Arc::clone(self);
        self.tasks
            .run_to_completion(async move {
                reports
                    .store
                    .resolve_report(id, resolution.as_ref(), at)
                    .await?;
                Ok(Report {
                    resolution,
                    ..report
                })
            })
            .await
    }

    /// A page of the reports, the newest first, for services.
    pub async fn page(
        &self,
        caller: &Viewer,
        state: Option<ReportState>,
        request: &PageRequest<OrderKey>,
    ) -> Result<ReportPage> {
        require(caller, ServiceRight::Moderate)?;
        let ahead = ReportQuery {
            older_than: request.after.unwrap_or(OrderKey::MAX),
            newer_than: request.before.unwrap_or(OrderKey::MIN),
            direction: request.direction,
            limit: request.overread(),
        };
        let found = self.scan(ahead, state).await?;
        let has_behind = self.has_behind(state, request).await?;
        Ok(found.into_page(request, has_behind, |report| report.id.order_key()))
    }

    async fn is_visible(&self, caller: &Viewer, conversation: ConversationId) -> Result<bool> {
        let found = self.access.visible_to(caller, &[conversation]).await?;
        Ok(found.into_iter().any(|conversation| conversation.is_some()))
    }

    /// Takes a report within the rates, and persists it with its event.
    async fn add(
        self: &Arc<Self>,
        caller: &Viewer,
        report: impl FnOnce(ReportId) -> Report + Send + 'static,
        conversation: Option<ConversationId>,
    ) -> Result<ReportId> {
        self.access.forms().require(FormVersion::REPORTS).await?;
        let has_user_rates = !caller.writes_at_service_rates();
        if has_user_rates {
            self.rate.take(&caller.user)?;
            if let Err(error) = self.daily_rate.take(&caller.user) {
                self.rate.refund(&caller.user, 1);
                return Err(error);
            }
        }
        let day_ago = OrderKey::first_at(self.in_flight.now().plus_micros(-DAY_MICROS));
        let count = self.store.report_count(day_ago, self.daily_max).await?;
        self.meter
            .used
            .set(i64::try_from(count).unwrap_or(i64::MAX));
        if count >= self.daily_max {
            self.meter.refused.inc();
            if has_user_rates {
                self.rate.refund(&caller.user, 1);
                self.daily_rate.refund(&caller.user, 1);
            }
            return Err(Error::Full("too many reports were made today: try later"));
        }
        let reports = Arc::clone(self);
        let conversation = conversation.unwrap_or(Report::NO_CONVERSATION);
        self.tasks
            .run_to_completion(async move {
                let lease = reports.in_flight.allocate(conversation, 1).await?;
                let report = report(lease.newest());
                let written = reports.store.add_report(&report, report.id).await;
                let (lease, ()) = lease.if_persisted(written)?;
                let log = |id| reports.store.add_report(&report, id);
                let logged = log_in_time(&reports.in_flight, conversation, lease, log).await;
                logged.map_err(|_| Error::OutcomeUnknown)?;
                Ok(report.id)
            })
            .await
    }

    /// Whether the list has a matching report on the other side of the request's begin. Also true if
    /// the search ends at its bound.
    async fn has_behind(
        &self,
        state: Option<ReportState>,
        request: &PageRequest<OrderKey>,
    ) -> Result<bool> {
        let Some(begin) = request.begins_at() else {
            return Ok(false);
        };
        let (older_than, newer_than, direction) = match request.direction {
            Direction::Forward => (OrderKey::MAX, begin.before(), Direction::Backward),
            Direction::Backward => (next_after(*begin), OrderKey::MIN, Direction::Forward),
        };
        let behind = ReportQuery {
            older_than,
            newer_than,
            direction,
            limit: 1,
        };
        let found = self.scan(behind, state).await?;
        Ok(!found.items.is_empty() || !found.is_end)
    }

    /// Reads in the direction of the query until its number of reports match, up to the bound of
    /// reports read.
    async fn scan(
        &self,
        query: ReportQuery,
        state: Option<ReportState>,
    ) -> Result<BoundedScan<OrderKey, Report>> {
        let mut found = BoundedScan::new();
        let (wanted, mut left) = (query.limit, SCAN_MAX);
        let mut next = query;
        loop {
            let chunk = if state.is_some() { SCAN_CHUNK } else { wanted };
            next.limit = chunk.min(left);
            let reports = self.store.reports(&next).await?;
            found.is_end = reports.len() < next.limit;
            left -= reports.len();
            for report in reports {
                found.scanned_to = Some(report.id.order_key());
                if state.is_none_or(|state| report.state() == state) {
                    found.items.push(report);
                    if found.items.len() == wanted {
                        return Ok(found);
                    }
                }
            }
            if found.is_end || left == 0 {
                return Ok(found);
            }
            match query.direction {
                Direction::Forward => next.older_than = found.scanned_to.unwrap_or(next.older_than),
                Direction::Backward => {
                    next.newer_than = found.scanned_to.unwrap_or(next.newer_than)
                }
            }
        }
    }
}

/// The smallest position after this one.
fn next_after(position: OrderKey) -> OrderKey {
    let next = u128::from_be_bytes(position.0).saturating_add(1);
    OrderKey(next.to_be_bytes())
}

fn parse_note(note: Option<String>) -> Result<Option<String>> {
    const PATH: &[&str] = &["input", "note"];
    note.map(|note| {
        let parsed = Body::parse(note, Report::NOTE_BYTES_MAX, false);
        parsed.map(|note| note.as_str().to_owned())
    })
    .transpose()
    .map_err(|error| Error::bad_input(PATH, format!("a note {error}")))
}
