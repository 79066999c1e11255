//! The contract of a cluster's directory and mailboxes, each method with its statement or handed to the file of its subject.

use std::sync::{Arc, Weak};

use uuid::Uuid;

use super::cluster::mailbox::{INSERT_NOTICE, minute_of, read_notices};
use super::cluster::server::{
    BEATS, DELETE_BEAT, END_SERVER, INSERT_BEAT, INSERT_SERVER, read_beats, read_server,
};
use super::cluster::session::{
    DELETE_LISTENER, DELETE_SESSION, INSERT_LISTENER, INSERT_SESSION, ROWS_MAX, SELECT_LISTENERS,
    read_sessions,
};
use super::driver::executor::Executor;
use super::driver::migrate;
use super::driver::value::values;
use super::send::Sends;
use crate::clock::{Clock, FollowingClock};
use crate::model::{ChangeId, ConversationId, OrderKey, UserId};
use crate::store::cluster::{
    Beat, ClusterStore, CompletionHandler, KeyedSend, MailboxLane, MailboxRow, NodeTime,
    Registration, ServerId, ServerState, Session, WriteTime,
};
use crate::store::{Audience, StoreFuture};

pub(super) struct ClusterDirectory {
    pub(super) executor: Arc<Executor>,
    pub(super) sends: Arc<Sends>,
    /// Clock of the whole store.
    pub(super) clock: Arc<FollowingClock>,
}

impl ClusterStore for ClusterDirectory {
    fn put_server(&self, server: ServerId, at: WriteTime) -> StoreFuture<'_, ()> {
        let values = values![server.0, migrate::newest(), at.0];
        Box::pin(self.executor.write(&INSERT_SERVER, values))
    }

    fn server(&self, server: ServerId) -> StoreFuture<'_, ServerState> {
        Box::pin(async move { Ok(read_server(&self.executor, server).await?.0) })
    }

    fn server_and_time(
        &self,
        server: ServerId,
    ) -> StoreFuture<'_, (ServerState, Option<NodeTime>)> {
        Box::pin(read_server(&self.executor, server))
    }

    fn end_server(&self, server: ServerId, at: WriteTime) -> StoreFuture<'_, ()> {
        let values = values![server.0, true, at.0];
        Box::pin(self.executor.write(&END_SERVER, values))
    }

    fn put_beat(&self, beat: Beat, at: WriteTime) -> StoreFuture<'_, ()> {
        let values = values![BEATS, beat.server.0, beat.number, at.0];
        Box::pin(self.executor.write(&INSERT_BEAT, values))
    }

    fn delete_beat(&self, server: ServerId, at: WriteTime) -> StoreFuture<'_, ()> {
        let values = values![at.0, BEATS, server.0];
        Box::pin(self.executor.write(&DELETE_BEAT, values))
    }

    fn beats(&self) -> StoreFuture<'_, Vec<Beat>> {
        Box::pin(read_beats(&self.executor))
    }

    fn register<'a>(
        &'a self,
        server: ServerId,
        registration: &'a Registration,
        at: WriteTime,
    ) -> StoreFuture<'a, ()> {
        let (statement, values) = match registration {
            Registration::Session(user, kind) => (
                &INSERT_SESSION,
                values![user, kind.number(), server.0, at.0],
            ),
            Registration::Listener(conversation) => {
                (&INSERT_LISTENER, values![*conversation, server.0, at.0])
            }
        };
        Box::pin(self.executor.write(statement, values))
    }

    fn unregister<'a>(
        &'a self,
        server: ServerId,
        registration: &'a Registration,
        at: WriteTime,
    ) -> StoreFuture<'a, ()> {
        let (statement, values) = match registration {
            Registration::Session(user, kind) => (
                &DELETE_SESSION,
                values![at.0, user, kind.number(), server.0],
            ),
            Registration::Listener(conversation) => {
                (&DELETE_LISTENER, values![at.0, *conversation, server.0])
            }
        };
        Box::pin(self.executor.write(statement, values))
    }

    fn follow_clock(&self, clock: Weak<dyn Clock>) {
        self.clock.follow(clock);
    }

    fn sessions<'a>(&'a self, users: &'a [UserId]) -> StoreFuture<'a, Vec<Session>> {
        Box::pin(read_sessions(&self.executor, users))
    }

    fn listeners(&self, conversation: ConversationId) -> StoreFuture<'_, Vec<ServerId>> {
        Box::pin(async move {
            let values = values![conversation, ROWS_MAX];
            let rows: Vec<(Uuid,)> = self.executor.read(&SELECT_LISTENERS, values).await?;
            Ok(rows.into_iter().map(|(server,)| ServerId(server)).collect())
        })
    }

    fn put_notice<'a>(
        &'a self,
        server: ServerId,
        lane: MailboxLane,
        row: &'a MailboxRow,
    ) -> StoreFuture<'a, ()> {
        let written_at = row.id.moment();
        let minute = minute_of(written_at.micros());
        let payload = row.payload.clone();
        let values = values![server.0, lane.number(), minute, row.id, payload, written_at];
        Box::pin(self.executor.write(&INSERT_NOTICE, values))
    }

    fn notices(
        &self,
        server: ServerId,
        lane: MailboxLane,
        after: OrderKey,
        up_to: OrderKey,
    ) -> StoreFuture<'_, Vec<MailboxRow>> {
        Box::pin(read_notices(&self.executor, server, lane, (after, up_to)))
    }

    fn recipients(&self, conversation: ConversationId) -> StoreFuture<'_, Audience> {
        Box::pin(self.sends.recipients(conversation))
    }

    fn settle_growth(&self, conversation: ConversationId, change: ChangeId) -> StoreFuture<'_, ()> {
        Box::pin(self.sends.settle_growth(conversation, change))
    }

    fn note_delivered<'a>(&'a self, send: &'a KeyedSend) -> StoreFuture<'a, ()> {
        Box::pin(self.sends.note_delivered(send))
    }

    fn set_completion_handler(&self, handler: Weak<dyn CompletionHandler>) {
        self.sends.set_completion_handler(handler);
    }

    fn clock_faults(&self) -> usize {
        self.executor.clock_faults()
    }
}
