//! Who may see what: the only place that answers it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::roster::Seen;
use super::{Chat, Error, Result};
use crate::model::{
    Conversation, ConversationId, IdempotencyKey, MembershipState, Message, UserId,
};
use crate::store::Seat;

impl Chat {
    /// The conversations that the viewer takes part in now; `None` for all others.
    pub async fn conversations(
        &self,
        viewer: &UserId,
        ids: &[ConversationId],
    ) -> Result<Vec<Option<Arc<Conversation>>>> {
        let seats = self.0.store.seats(viewer, ids).await?;
        Ok(seats
            .into_iter()
            .map(|seat| seat.filter(may_see).map(|seat| seat.conversation))
            .collect())
    }

    pub async fn conversation(
        &self,
        viewer: &UserId,
        id: ConversationId,
    ) -> Result<Option<Arc<Conversation>>> {
        Ok(self.conversations(viewer, &[id]).await?.pop().flatten())
    }

    pub(super) async fn seat_of(&self, viewer: &UserId, id: ConversationId) -> Result<Seat> {
        let seat = self.0.store.seats(viewer, &[id]).await?.pop().flatten();
        seat.filter(may_see)
            .ok_or(Error::NotFound("the conversation"))
    }

    /// The viewer's place in a conversation that they are about to write to. What other servers wrote there before lies before it.
    pub(super) async fn seat_to_write(&self, viewer: &UserId, id: ConversationId) -> Result<Seat> {
        let seat = self.seat_of(viewer, id).await?;
        if let Some(newest) = seat.newest {
            self.0.ids.observe(newest);
        }
        Ok(seat)
    }

    pub(super) async fn conversation_of(
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

/// How long a stream may rest on a membership that it read. Here a departure is known at once; it may happen on another server.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Whether the viewer of a stream is still in its conversation: asked before anything is given.
pub struct Watch {
    chat: Chat,
    viewer: UserId,
    conversation: Arc<Conversation>,
    departures: u64,
    looked_at: Instant,
}

impl Watch {
    /// The stream listens already: so nobody leaves unheard.
    pub(super) async fn begin(chat: &Chat, viewer: &UserId, id: ConversationId) -> Result<Self> {
        if let Some(seen) = Seen::at_hand(chat, viewer, id) {
            return Ok(Self::of(
                chat,
                viewer,
                seen.conversation,
                seen.departures,
                seen.looked_at,
            ));
        }
        // Check the viewer's own membership first: a stranger never waits for the shared read of the list.
        let (departures, looked_at) = (chat.departures(), Instant::now());
        let conversation = chat.conversation_of(viewer, id).await?;
        // The first of many reads the list for all.
        match Seen::with(chat, viewer, id).await? {
            Some(seen) => Ok(Self::of(
                chat,
                viewer,
                seen.conversation,
                seen.departures,
                seen.looked_at,
            )),
            None => Ok(Self::of(chat, viewer, conversation, departures, looked_at)),
        }
    }

    fn of(
        chat: &Chat,
        viewer: &UserId,
        conversation: Arc<Conversation>,
        departures: u64,
        looked_at: Instant,
    ) -> Self {
        Self {
            chat: chat.clone(),
            viewer: viewer.clone(),
            conversation,
            departures,
            looked_at,
        }
    }

    /// `None` to a stranger.
    async fn look(chat: &Chat, viewer: &UserId, id: ConversationId) -> Result<Option<Self>> {
        if let Some(seen) = Seen::with(chat, viewer, id).await? {
            return Ok(Some(Self::of(
                chat,
                viewer,
                seen.conversation,
                seen.departures,
                seen.looked_at,
            )));
        }
        let (departures, looked_at) = (chat.departures(), Instant::now());
        Ok(chat
            .conversation(viewer, id)
            .await?
            .map(|conversation| Self::of(chat, viewer, conversation, departures, looked_at)))
    }

    pub fn viewer(&self) -> &UserId {
        &self.viewer
    }

    /// As it was when it was looked at last.
    pub(super) fn conversation(&self) -> &Conversation {
        &self.conversation
    }

    /// Where one server writes, it knows of every departure.
    pub(super) async fn may_still_see(&mut self) -> Result<bool> {
        let is_young = !self.chat.is_shared() || self.looked_at.elapsed() < LOOK_EVERY;
        if is_young && self.chat.departures() == self.departures {
            return Ok(true);
        }
        // It is rare, and every stream that waits would keep room for it.
        let Some(looked) =
            Box::pin(Self::look(&self.chat, &self.viewer, self.conversation.id)).await?
        else {
            return Ok(false);
        };
        *self = looked;
        Ok(true)
    }

    /// Whether the viewer is in it now, by their own place in it: then all that was read for them until now was theirs to see.
    pub async fn is_in(&self) -> bool {
        matches!(
            self.chat
                .conversation(&self.viewer, self.conversation.id)
                .await,
            Ok(Some(_))
        )
    }
}

fn may_see(seat: &Seat) -> bool {
    seat.membership.state == MembershipState::Joined
}
