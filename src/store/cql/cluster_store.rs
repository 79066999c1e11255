//! The contract of a cluster's directory and mailboxes, each method handed to the folder that
//! implements it.

use std::sync::{Arc, Weak};

use async_trait::async_trait;

use super::cluster::ClusterTables;
use super::send::Sends;
use crate::clock::{Clock, FollowingClock};
use crate::model::{ChangeId, ConversationId, OrderKey, UserId};
use crate::store::cluster::{
    Beat, ClusterStore, CompletionHandler, KeyedSend, MailboxLane, MailboxRow, NodeTime,
    Registration, ServerId, ServerState, Session, WriteTime,
};
use crate::store::{Audience, Result};

pub(super) struct ClusterDirectory {
    pub(super) tables: ClusterTables,
    pub(super) sends: Arc<Sends>,
    /// Clock of the whole store.
    pub(super) clock: Arc<FollowingClock>,
}

#[async_trait]
impl ClusterStore for ClusterDirectory {
    async fn put_server(&self, server: ServerId, at: WriteTime) -> Result<()> {
        self.tables.write_server(server, at).await
    }

    async fn server(&self, server: ServerId) -> Result<ServerState> {
        Ok(self.tables.read_server(server).await?.0)
    }

    async fn server_and_time(&self, server: ServerId) -> Result<(ServerState, Option<NodeTime>)> {
        self.tables.read_server(server).await
    }

    async fn end_server(&self, server: ServerId, at: WriteTime) -> Result<()> {
        self.tables.write_end(server, at).await
    }

    async fn put_beat(&self, beat: Beat, at: WriteTime) -> Result<()> {
        self.tables.write_beat(beat, at).await
    }

    async fn delete_beat(&self, server: ServerId, at: WriteTime) -> Result<()> {
        self.tables.remove_beat(server, at).await
    }

    async fn beats(&self) -> Result<Vec<Beat>> {
        self.tables.read_beats().await
    }

    async fn register(
        &self,
        server: ServerId,
        registration: &Registration,
        at: WriteTime,
    ) -> Result<()> {
        match registration {
            Registration::Session(user, kind) => {
                self.tables.write_session(server, user, *kind, at).await
            }
            Registration::Listener(conversation) => {
                self.tables.write_listener(server, *conversation, at).await
            }
        }
    }

    async fn unregister(
        &self,
        server: ServerId,
        registration: &Registration,
        at: WriteTime,
    ) -> Result<()> {
        match registration {
            Registration::Session(user, kind) => {
                self.tables.remove_session(server, user, *kind, at).await
            }
            Registration::Listener(conversation) => {
                self.tables.remove_listener(server, *conversation, at).await
            }
        }
    }

    fn follow_clock(&self, clock: Weak<dyn Clock>) {
        self.clock.follow(clock);
    }

    async fn sessions(&self, users: &[UserId]) -> Result<Vec<Session>> {
        self.tables.read_sessions(users).await
    }

    async fn listeners(&self, conversation: ConversationId) -> Result<Vec<ServerId>> {
        self.tables.read_listeners(conversation).await
    }

    async fn put_notice(
        &self,
        server: ServerId,
        lane: MailboxLane,
        row: &MailboxRow,
    ) -> Result<()> {
        self.tables.write_notice(server, lane, row).await
    }

    async fn notices(
        &self,
        server: ServerId,
        lane: MailboxLane,
        after: OrderKey,
        up_to: OrderKey,
    ) -> Result<Vec<MailboxRow>> {
        self.tables.read_notices(server, lane, after, up_to).await
    }

    async fn recipients(&self, conversation: ConversationId) -> Result<Audience> {
        self.sends.recipients(conversation).await
    }

    async fn settle_growth(&self, conversation: ConversationId, change: ChangeId) -> Result<()> {
        self.sends.settle_growth(conversation, change).await
    }

    async fn note_delivered(&self, send: &KeyedSend) -> Result<()> {
        self.sends.note_delivered(send).await
    }

    fn set_completion_handler(&self, handler: Weak<dyn CompletionHandler>) {
        self.sends.set_completion_handler(handler);
    }
}
