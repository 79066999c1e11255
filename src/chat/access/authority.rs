//! Authority: the right by which a caller governs a conversation: its participants, settings, pins and messages.
//!
//! A service that moderates governs every conversation as an OWNER does, whether it takes part or not. What only
//! participants do (send, edit, react, type, mark, listen), it does where it takes part.

use crate::chat::access::Access;
use crate::chat::access::restrictions::require;
use crate::chat::error::{Error, Result};
use crate::model::{ConversationId, Membership, Role, ServiceRight, UserId, Viewer};
use crate::store::Participation;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Authority {
    /// The right of the caller's own membership.
    Membership,
    /// The right of a service that moderates.
    Service,
}

impl Authority {
    pub(crate) fn of(caller: &Viewer) -> Self {
        if caller.may(ServiceRight::Moderate) {
            Self::Service
        } else {
            Self::Membership
        }
    }
}

impl Access {
    /// Participation by whose role a caller governs a conversation. That of a service is an OWNER's.
    pub(crate) async fn governing(
        &self,
        user: &UserId,
        authority: Authority,
        id: ConversationId,
    ) -> Result<Participation> {
        match authority {
            Authority::Membership => self.participation(user, id).await,
            Authority::Service => {
                let found = self.store.conversations(&[id]).await?.pop().flatten();
                Ok(Participation {
                    conversation: found.ok_or(Error::NotFound("the conversation"))?,
                    membership: Membership::joined(Role::Owner),
                })
            }
        }
    }

    /// The same by the right of a caller.
    pub(crate) async fn governing_of(
        &self,
        caller: &Viewer,
        id: ConversationId,
    ) -> Result<Participation> {
        let found = self
            .governing(&caller.user, Authority::of(caller), id)
            .await;
        if let Err(error) = &found
            && self.reads_as_stranger(caller, id, error).await
        {
            require(caller, ServiceRight::Moderate)?;
        }
        found
    }

    /// The same for a caller who is about to write. Later ids are greater than all that other servers have
    /// written there.
    pub(crate) async fn governing_for_write(
        &self,
        caller: &Viewer,
        id: ConversationId,
    ) -> Result<Participation> {
        self.for_write(self.governing_of(caller, id), id).await
    }

    /// The refusal of a caller who does not take part.
    pub(crate) async fn refusal(&self, caller: &Viewer, id: ConversationId, error: Error) -> Error {
        if self.reads_as_stranger(caller, id, &error).await {
            return Error::Forbidden(
                "a service does this only in conversations that it takes part in",
            );
        }
        error
    }

    /// Whether the caller is a service that does not take part, and reads the conversation all the same. It is
    /// told that the conversation exists.
    async fn reads_as_stranger(&self, caller: &Viewer, id: ConversationId, error: &Error) -> bool {
        matches!(error, Error::NotFound(_))
            && caller.may(ServiceRight::Read)
            && self
                .governing(&caller.user, Authority::Service, id)
                .await
                .is_ok()
    }
}
