//! Who may see what: the only place that answers it.

use std::sync::Arc;

use crate::chat::{Chat, Error, Result};
use crate::model::{
    Conversation, ConversationId, IdempotencyKey, MembershipState, Message, UserId,
};
use crate::store::Participation;

impl Chat {
    /// The conversations that the viewer takes part in now; `None` for all others.
    pub async fn conversations(
        &self,
        viewer: &UserId,
        ids: &[ConversationId],
    ) -> Result<Vec<Option<Arc<Conversation>>>> {
        let participations = self.0.store.participations(viewer, ids).await?;
        Ok(participations
            .into_iter()
            .map(|participation| {
                participation
                    .filter(may_see)
                    .map(|participation| participation.conversation)
            })
            .collect())
    }

    pub async fn conversation(
        &self,
        viewer: &UserId,
        id: ConversationId,
    ) -> Result<Option<Arc<Conversation>>> {
        Ok(self.conversations(viewer, &[id]).await?.pop().flatten())
    }

    pub(crate) async fn participation_of(
        &self,
        viewer: &UserId,
        id: ConversationId,
    ) -> Result<Participation> {
        let participation = self
            .0
            .store
            .participations(viewer, &[id])
            .await?
            .pop()
            .flatten();
        participation
            .filter(may_see)
            .ok_or(Error::NotFound("the conversation"))
    }

    /// The viewer's place in a conversation that they are about to write to. What other servers wrote there before lies before it.
    pub(crate) async fn participation_to_write(
        &self,
        viewer: &UserId,
        id: ConversationId,
    ) -> Result<Participation> {
        let participation = self.participation_of(viewer, id).await?;
        if let Some(newest) = participation.newest {
            self.0.ids.observe(newest);
        }
        Ok(participation)
    }

    pub(crate) async fn conversation_of(
        &self,
        viewer: &UserId,
        id: ConversationId,
    ) -> Result<Arc<Conversation>> {
        self.conversation(viewer, id)
            .await?
            .ok_or(Error::NotFound("the conversation"))
    }
}

/// The key of a message's send, which only its sender has a use for.
pub fn client_key<'a>(viewer: &UserId, message: &'a Message) -> Option<&'a str> {
    message
        .client_key
        .as_ref()
        .filter(|_| message.sender == *viewer)
        .map(IdempotencyKey::as_str)
}

pub(crate) mod membership_guard;
pub(crate) mod participant_cache;
pub(crate) mod relationship;

fn may_see(participation: &Participation) -> bool {
    participation.membership.state == MembershipState::Joined
}
