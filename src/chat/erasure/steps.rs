//! Steps of an erasure. Each reads a bounded piece, and a repetition finds less to do.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::sleep;

use crate::chat::access::restrictions::{KNOWN_WITHIN, Restrictions};
use crate::chat::components::Components;
use crate::chat::error::{Error, Result};
use crate::chat::in_flight_ids::InFlightIds;
use crate::chat::index::SearchIndex;
use crate::chat::late_rule::log_in_time;
use crate::chat::write::WriteService;
use crate::chat::write::command::erasure::ErasureTarget;
use crate::chat::write::erasure::done;
use crate::model::{
    ConversationId, Cut, Direction, ErasureStep, Job, Message, MessageId, MessageKind, OrderKey,
    PageRequest, Report, UserId, Viewer,
};
use crate::store::{ReportQuery, Store};

/// Messages and reports that a job reads in a second: erasures leave the store to everyone else.
const READ_PER_SECOND: f64 = 500.0;
/// Rows of one step.
const MESSAGES: usize = 64;
const CONVERSATIONS: usize = 64;
const REPORTS: usize = 100;
/// Time after which all servers know of a suspension, and have settled the sends from before.
const SUSPENSION_WAIT: Duration = Duration::from_secs(6);
const _: () = assert!(SUSPENSION_WAIT.as_secs() > KNOWN_WITHIN.as_secs());

pub(super) struct Steps {
    store: Arc<dyn Store>,
    writes: Arc<WriteService>,
    restrictions: Arc<Restrictions>,
    in_flight: InFlightIds,
    index: Arc<SearchIndex>,
}

impl Steps {
    pub(super) fn new(components: &Components, writes: &Arc<WriteService>) -> Self {
        Self {
            store: Arc::clone(&components.store),
            writes: Arc::clone(writes),
            restrictions: Arc::clone(&components.restrictions),
            in_flight: components.in_flight.clone(),
            index: Arc::clone(&components.index),
        }
    }

    /// Takes the next step of a job. `None` after the last one.
    pub(super) async fn take(&self, job: &Job) -> Result<Option<Job>> {
        let user = &job.user;
        let (step, read) = match job.step {
            ErasureStep::Restrict => (self.restrict(user).await?, 0),
            ErasureStep::Leave(after) => (self.leave(user, after).await?, 0),
            ErasureStep::Conversations(after) => (self.next_conversation(user, after).await?, 0),
            ErasureStep::Messages(conversation, before) => {
                self.messages(user, conversation, before).await?
            }
            ErasureStep::Reports(before) => self.reports(user, before).await?,
            ErasureStep::Finish => {
                self.finish(user).await?;
                return Ok(None);
            }
        };
        sleep(Duration::from_secs_f64(read as f64 / READ_PER_SECOND)).await;
        Ok(Some(Job {
            step,
            done_count: job.done_count + read as u64,
            ..job.clone()
        }))
    }

    async fn restrict(&self, user: &UserId) -> Result<ErasureStep> {
        let caller = Viewer::service(UserId::erased());
        let restrictions = &self.restrictions;
        restrictions.suspend(&caller, user, None, None).await?;
        restrictions
            .revoke_tokens(&caller, Some(user), None)
            .await?;
        if self.in_flight.is_shared() {
            sleep(SUSPENSION_WAIT).await;
        }
        Ok(ErasureStep::Leave(None))
    }

    async fn leave(&self, user: &UserId, after: Option<ConversationId>) -> Result<ErasureStep> {
        let store = &self.store;
        let piece = store.conversations_of(user, after, CONVERSATIONS).await?;
        let mut leaving = Vec::new();
        for id in piece.found {
            leaving.push(self.writes.withdraw(user, id).boxed());
        }
        done(leaving).await?;
        Ok(match piece.next {
            Some(next) => ErasureStep::Leave(Some(next)),
            None => ErasureStep::Conversations(None),
        })
    }

    async fn next_conversation(
        &self,
        user: &UserId,
        after: Option<ConversationId>,
    ) -> Result<ErasureStep> {
        let piece = self.store.conversations_of(user, after, 1).await?;
        Ok(match (piece.found.first(), piece.next) {
            (Some(id), _) => ErasureStep::Messages(*id, None),
            (None, Some(next)) => ErasureStep::Conversations(Some(next)),
            (None, None) => ErasureStep::Reports(OrderKey::MAX),
        })
    }

    /// Erases the user from a page of messages, the newest first, and from the conversation after the last one.
    async fn messages(
        &self,
        user: &UserId,
        conversation: ConversationId,
        before: Option<MessageId>,
    ) -> Result<(ErasureStep, usize)> {
        let request = PageRequest {
            after: before.map(MessageId::order_key),
            ..PageRequest::first(MESSAGES)
        };
        let all = Cut::default();
        let page = self.store.history(conversation, &all, &request).await?;
        self.delete_own(user, &page.items).await?;
        self.writes.take_reactions_back(user, &page.items).await?;
        let named = page.items.iter().filter(|message| names(message, user));
        let named: Vec<_> = named.map(|message| message.id).collect();
        if !named.is_empty() {
            let target = ErasureTarget::Messages(named);
            self.writes.erase(user, conversation, target).await?;
        }
        let read = page.items.len();
        if let (true, Some(last)) = (page.has_next, page.items.last()) {
            return Ok((ErasureStep::Messages(conversation, Some(last.id)), read));
        }
        let target = ErasureTarget::Participant;
        self.writes.erase(user, conversation, target).await?;
        // It has the user's name and words.
        self.index.drop_all(conversation).await?;
        Ok((ErasureStep::Conversations(Some(conversation)), read))
    }

    /// Deletes the user's messages, each with its event.
    async fn delete_own(&self, user: &UserId, messages: &[Arc<Message>]) -> Result<()> {
        let mut deleting = Vec::new();
        for message in messages {
            let is_text = message.kind == MessageKind::Text && message.deleted_at.is_none();
            if is_text && message.sender == *user {
                let deleted = self
                    .writes
                    .delete_for_erasure(message.conversation, message.id);
                deleting.push(deleted.boxed());
            }
        }
        done(deleting).await
    }

    /// Deletes reports by the user, and empties those about the user.
    async fn reports(&self, user: &UserId, before: OrderKey) -> Result<(ErasureStep, usize)> {
        let query = ReportQuery {
            older_than: before,
            newer_than: OrderKey::MIN,
            direction: Direction::Forward,
            limit: REPORTS,
        };
        let reports = self.store.reports(&query).await?;
        let (read, last) = (reports.len(), reports.last().map(|report| report.id));
        let mut by_user = Vec::new();
        for report in reports {
            if report.reporter == *user {
                by_user.push(report.id);
            } else if report.user == *user {
                let emptied = Report {
                    user: UserId::erased(),
                    body: None,
                    attachments: Vec::new(),
                    ..report
                };
                self.store.replace_report(&emptied).await?;
            }
        }
        if !by_user.is_empty() {
            self.store.delete_reports(&by_user).await?;
        }
        let step = match last.filter(|_| read == REPORTS) {
            Some(last) => ErasureStep::Reports(last.order_key()),
            None => ErasureStep::Finish,
        };
        Ok((step, read))
    }

    async fn finish(&self, user: &UserId) -> Result<()> {
        self.store.erase_user(user, self.in_flight.now()).await?;
        let conversation = Report::NO_CONVERSATION;
        let lease = self.in_flight.allocate(conversation, 1).await?;
        let event = lease.newest();
        let written = self.store.add_user_erased(user, event, event).await;
        let (lease, ()) = lease.if_persisted(written)?;
        let log = |id| self.store.add_user_erased(user, event, id);
        let logged = log_in_time(&self.in_flight, conversation, lease, log).await;
        logged.map_err(|_| Error::OutcomeUnknown)
    }
}

/// Whether a message may have something of the user that the server put there.
fn names(message: &Message, user: &UserId) -> bool {
    let is_mentioned = || {
        let mentions = message.mentions();
        mentions.is_some_and(|mentions| mentions.users().contains(user))
    };
    message.has_reactions || is_mentioned() || message.without_name(user).is_some()
}
