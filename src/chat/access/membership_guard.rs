//! Membership guard of a stream: it checks that the viewer still takes part before the stream delivers anything.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::chat::access::participant_cache::ParticipantSnapshot;
use crate::chat::{Chat, Result};
use crate::model::{Conversation, ConversationId, UserId};

/// How long a stream may rest on a membership that it read. PresenceGuard a departure is known at once; it may happen on another server.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Whether the viewer of a stream is still in its conversation: asked before anything is given.
pub struct MembershipGuard {
    chat: Chat,
    viewer: UserId,
    conversation: Arc<Conversation>,
    leave_epoch: u64,
    looked_at: Instant,
}

impl MembershipGuard {
    /// The stream listens already: so nobody leaves unheard.
    pub(crate) async fn begin(chat: &Chat, viewer: &UserId, id: ConversationId) -> Result<Self> {
        if let Some(seen) = ParticipantSnapshot::at_hand(chat, viewer, id) {
            return Ok(Self::of(
                chat,
                viewer,
                seen.conversation,
                seen.leave_epoch,
                seen.looked_at,
            ));
        }
        // Check the viewer's own membership first: a stranger never waits for the shared read of the list.
        let (leave_epoch, looked_at) = (chat.leave_epoch(), Instant::now());
        let conversation = chat.conversation_of(viewer, id).await?;
        // The first of many reads the list for all.
        match ParticipantSnapshot::with(chat, viewer, id).await? {
            Some(seen) => Ok(Self::of(
                chat,
                viewer,
                seen.conversation,
                seen.leave_epoch,
                seen.looked_at,
            )),
            None => Ok(Self::of(chat, viewer, conversation, leave_epoch, looked_at)),
        }
    }

    fn of(
        chat: &Chat,
        viewer: &UserId,
        conversation: Arc<Conversation>,
        leave_epoch: u64,
        looked_at: Instant,
    ) -> Self {
        Self {
            chat: chat.clone(),
            viewer: viewer.clone(),
            conversation,
            leave_epoch,
            looked_at,
        }
    }

    /// `None` to a stranger.
    async fn look(chat: &Chat, viewer: &UserId, id: ConversationId) -> Result<Option<Self>> {
        if let Some(seen) = ParticipantSnapshot::with(chat, viewer, id).await? {
            return Ok(Some(Self::of(
                chat,
                viewer,
                seen.conversation,
                seen.leave_epoch,
                seen.looked_at,
            )));
        }
        let (leave_epoch, looked_at) = (chat.leave_epoch(), Instant::now());
        Ok(chat
            .conversation(viewer, id)
            .await?
            .map(|conversation| Self::of(chat, viewer, conversation, leave_epoch, looked_at)))
    }

    pub fn viewer(&self) -> &UserId {
        &self.viewer
    }

    /// As it was when it was looked at last.
    pub(crate) fn conversation(&self) -> &Conversation {
        &self.conversation
    }

    /// Where one server writes, it knows of every departure.
    pub(crate) async fn may_still_see(&mut self) -> Result<bool> {
        let is_young = !self.chat.is_shared() || self.looked_at.elapsed() < LOOK_EVERY;
        if is_young && self.chat.leave_epoch() == self.leave_epoch {
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
