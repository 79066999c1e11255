//! Pooled executions: a started subscription that takes one update after another and answers each.

use std::sync::Arc;

use async_graphql::Response;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::group::SubscriptionGroup;
use super::handoff::{StreamHandoff, UpdateFeed};
use super::update::{StreamUpdate, UpdateStream};
use crate::chat;
use crate::graphql::error::Error;
use crate::graphql::execution::AnswerBudget;
use crate::graphql::scope::ViewerScope;
use crate::model::{UserId, Viewer};

/// Idle executions of one group.
const IDLE_EXECUTIONS_MAX: usize = 4;

/// A running subscription without a stream of its own.
pub(super) struct PooledExecution {
    feed: mpsc::Sender<(ViewerScope, chat::Result<StreamUpdate>)>,
    /// Budget of the current update.
    budget: Arc<AnswerBudget>,
    answers: BoxStream<'static, Response>,
}

/// Idle executions.
pub(super) type ExecutionPool = Mutex<Vec<PooledExecution>>;

impl SubscriptionGroup {
    /// Executes the document for one update, for the viewer of this stream. Dropping the future
    /// drops the execution.
    ///
    /// The subscriber's budget records whether the payload was too large.
    pub(super) async fn execute(
        &self,
        updates: &UpdateStream,
        update: chat::Result<StreamUpdate>,
        scope: ViewerScope,
        budget: &AnswerBudget,
    ) -> Response {
        let guard = updates.guard();
        let idle = self.pool.lock().pop();
        let mut execution =
            idle.unwrap_or_else(|| self.open_execution(guard.viewer(), budget.bytes_max()));
        let is_sent = execution.feed.try_send((scope, update)).is_ok();
        let answer = if is_sent {
            self.groups
                .chat
                .reading_for(guard.viewer(), execution.answers.next())
                .await
        } else {
            None
        };
        let Some(answer) = answer else {
            tracing::error!(
                "a shared execution ended before its subscription. Report this as a bug"
            );
            return Response::from_errors(vec![Error::internal().into()]);
        };
        if let Some(exceeded) = execution.budget.exceeded() {
            budget.exceed(exceeded);
        }
        execution.budget.rewind(0);
        let mut pool = self.pool.lock();
        if pool.len() < IDLE_EXECUTIONS_MAX {
            pool.push(execution);
        }
        answer
    }

    fn open_execution(&self, viewer: &UserId, bytes_max: usize) -> PooledExecution {
        let (feed, updates): (_, UpdateFeed) = mpsc::channel(1);
        let budget = Arc::new(AnswerBudget::new(bytes_max));
        let answers = self.groups.open(
            &self.prepared,
            self.variables.clone(),
            Some(Viewer::from(viewer.clone())),
            Arc::clone(&budget),
            StreamHandoff::Receiving(Mutex::new(Some(updates))),
        );
        PooledExecution {
            feed,
            budget,
            answers,
        }
    }
}
