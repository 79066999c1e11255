//! The contract of a cluster's directory and mailboxes, each method handed to the folder that
//! implements it.

use std::sync::{Arc, Weak};

use super::cluster::ClusterTables;
use super::send::Sends;
use crate::clock::{Clock, FollowingClock};
use crate::model::{ChangeId, ConversationId, OrderKey, UserId};
use crate::store::cluster::{
    Beat, ClusterStore, CompletionHandler, KeyedSend, MailboxLane, MailboxRow, NodeTime,
    Registration, ServerId, ServerState, Session, WriteTime,
};
use crate::store::{Audience, StoreFuture};

pub(super) struct ClusterDirectory {
    pub(super) tables: ClusterTables,
    pub(super) sends: Arc<Sends>,
    /// Clock of the whole store.
    pub(super) clock: Arc<FollowingClock>,
}

impl ClusterStore for ClusterDirectory {
    fn put_server(&self, server: ServerId, at: WriteTime) -> StoreFuture<'_, ()> {
        Box::pin(self.tables.write_server(server, at))
    }

    fn server(&self, server: ServerId) -> StoreFuture<'_, ServerState> {
        Box::pin(async move { Ok(self.tables.read_server(server).await?.0) })
    }

    fn server_and_time(
        &self,
        server: ServerId,
    ) -> StoreFuture<'_, (ServerState, Option<NodeTime>)> {
        Box::pin(self.tables.read_server(server))
    }

    fn end_server(&self, server: ServerId, at: WriteTime) -> StoreFuture<'_, ()> {
        Box::pin(self.tables.write_end(server, at))
    }

    fn put_beat(&self, beat: Beat, at: WriteTime) -> StoreFuture<'_, ()> {
        Box::pin(self.tables.write_beat(beat, at))
    }

    fn delete_beat(&self, server: ServerId, at: WriteTime) -> StoreFuture<'_, ()> {
        Box::pin(self.tables.remove_beat(server, at))
    }

    fn beats(&self) -> StoreFuture<'_, Vec<Beat>> {
        Box::pin(self.tables.read_beats())
    }

    fn register<'a>(
        &'a self,
        server: ServerId,
        registration: &'a Registration,
        at: WriteTime,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            match registration {
                Registration::Session(user, kind) => {
                    self.tables.write_session(server, user, *kind, at).await
                }
                Registration::Listener(conversation) => {
                    self.tables.write_listener(server, *conversation, at).await
                }
            }
        })
    }

    fn unregister<'a>(
        &'a self,
        server: ServerId,
        registration: &'a Registration,
        at: WriteTime,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            match registration {
                Registration::Session(user, kind) => {
                    self.tables.remove_session(server, user, *kind, at).await
                }
                Registration::Listener(conversation) => {
                    self.tables.remove_listener(server, *conversation, at).await
                }
            }
        })
    }

    fn follow_clock(&self, clock: Weak<dyn Clock>) {
        self.clock.follow(clock);
    }

    fn sessions<'a>(&'a self, users: &'a [UserId]) -> StoreFuture<'a, Vec<Session>> {
        Box::pin(self.tables.read_sessions(users))
    }

    fn listeners(&self, conversation: ConversationId) -> StoreFuture<'_, Vec<ServerId>> {
        Box::pin(self.tables.read_listeners(conversation))
    }

    fn put_notice<'a>(
        &'a self,
        server: ServerId,
        lane: MailboxLane,
        row: &'a MailboxRow,
    ) -> StoreFuture<'a, ()> {
        Box::pin(self.tables.write_notice(server, lane, row))
    }

    fn notices(
        &self,
        server: ServerId,
        lane: MailboxLane,
        after: OrderKey,
        up_to: OrderKey,
    ) -> StoreFuture<'_, Vec<MailboxRow>> {
        Box::pin(self.tables.read_notices(server, lane, after, up_to))
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
        self.tables.clock_faults()
    }
}
