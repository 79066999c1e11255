//! Who may see what: the only place that answers it.

use std::sync::Arc;

use super::{Chat, Error, Result};
use crate::model::{Conversation, ConversationId, MembershipState, UserId};
use crate::store::Seat;

impl Chat {
    /// The conversations that the viewer takes part in now; `None` for all others.
    pub async fn conversations(&self, viewer: &UserId, ids: &[ConversationId]) -> Result<Vec<Option<Arc<Conversation>>>> {
        let seats = self.0.store.seats(viewer, ids).await?;
        Ok(seats.into_iter().map(|seat| seat.filter(may_see).map(|seat| seat.conversation)).collect())
    }

    pub async fn conversation(&self, viewer: &UserId, id: ConversationId) -> Result<Option<Arc<Conversation>>> {
        Ok(self.conversations(viewer, &[id]).await?.pop().flatten())
    }

    pub(super) async fn seat_of(&self, viewer: &UserId, id: ConversationId) -> Result<Seat> {
        let seat = self.0.store.seats(viewer, &[id]).await?.pop().flatten();
        seat.filter(may_see).ok_or(Error::NotFound("the conversation"))
    }

    pub(super) async fn conversation_of(&self, viewer: &UserId, id: ConversationId) -> Result<Arc<Conversation>> {
        self.conversation(viewer, id).await?.ok_or(Error::NotFound("the conversation"))
    }
}

fn may_see(seat: &Seat) -> bool {
    seat.membership.state == MembershipState::Joined
}
