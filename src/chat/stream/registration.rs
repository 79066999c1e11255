//! Registration of a stream with the other servers: they notify this server of the events that the
//! stream delivers.
//!
//! Invariant: a stream registers before it reads the store. A writer persists its event before it
//! reads the registrations. So one of the two always sees the other.

use futures_util::future::try_join_all;
use tokio::time::Instant;

use crate::chat::access::membership_guard::MembershipGuard;
use crate::chat::error::Result;
use crate::chat::in_flight_ids::InFlightIds;
use crate::cluster::{Lease, agents_in};
use crate::model::{ConversationId, UserId};
use crate::store::cluster::{Registration, SessionKind};

/// Registrations of one stream. Empty on a store of one server.
#[derive(Default)]
pub(super) struct StreamRegistration {
    session: Option<Lease>,
    /// Listeners of large conversations.
    listeners: Vec<Lease>,
}

impl StreamRegistration {
    /// Registers at the viewer.
    pub(super) async fn begin(in_flight: &InFlightIds, viewer: &UserId) -> Result<Self> {
        Self::at(in_flight, || viewer.clone()).await
    }

    /// Registers the stream of an agent at its conversation: an agent has no sessions of its own.
    pub(super) async fn of_agent(in_flight: &InFlightIds, id: ConversationId) -> Result<Self> {
        Self::at(in_flight, || agents_in(id)).await
    }

    async fn at(in_flight: &InFlightIds, name: impl Fn() -> UserId) -> Result<Self> {
        let registration = || Registration::Session(name(), SessionKind::Acting);
        let session = match in_flight.cluster() {
            Some(cluster) => Some(cluster.lease(&registration()).await?),
            None => None,
        };
        Ok(Self {
            session,
            listeners: Vec::new(),
        })
    }

    /// Registers at large conversations.
    pub(super) async fn listen(
        &mut self,
        in_flight: &InFlightIds,
        conversations: &[ConversationId],
    ) -> Result<()> {
        let Some(cluster) = in_flight.cluster() else {
            return Ok(());
        };
        let registrations = conversations.iter().copied().map(Registration::Listener);
        let is_known = |registration: &Registration| {
            let mut known = self.listeners.iter();
            known.any(|lease| lease.registration() == registration)
        };
        let new: Vec<_> = registrations
            .filter(|registration| !is_known(registration))
            .collect();
        let leases = try_join_all(new.iter().map(|registration| cluster.lease(registration)));
        self.listeners.extend(leases.await?);
        Ok(())
    }

    /// Registers at the conversation of a guard if it is large.
    pub(super) async fn listen_if_large(
        &mut self,
        in_flight: &InFlightIds,
        guard: &MembershipGuard,
    ) -> Result<()> {
        let conversation = guard.conversation();
        if conversation.is_large {
            self.listen(in_flight, &[conversation.id]).await?;
        }
        Ok(())
    }

    /// Ends the registration at a conversation.
    pub(super) fn leave(&mut self, conversation: ConversationId) {
        let registration = Registration::Listener(conversation);
        self.listeners
            .retain(|lease| *lease.registration() != registration);
    }

    /// A read of the store may stand for the stream's own only if it began after this.
    pub(super) fn acknowledged(&self) -> Option<Instant> {
        let leases = self.session.iter().chain(&self.listeners);
        leases.map(Lease::acknowledged).max()
    }
}
