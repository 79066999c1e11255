//! Payload of `typingChanged`.

use async_graphql::SimpleObject;

use super::payload_stream::SharedUpdate;
use crate::chat::TypingUpdate;
use crate::graphql::cursor::List;
use crate::graphql::error::Result;
use crate::graphql::scope::ViewerScope;
use crate::graphql::types::User;
use crate::model::ConversationId;

/// Payload of `typingChanged`: a user started or stopped typing.
#[derive(SimpleObject)]
pub(super) struct TypingPayload {
    /// The user.
    user: User,
    /// True while the user types.
    is_typing: bool,
}

impl SharedUpdate for TypingUpdate {
    type Payload = TypingPayload;

    fn list(_: ConversationId) -> Option<List<'static>> {
        None
    }

    async fn payload(self, scope: &ViewerScope, _: ConversationId) -> Result<TypingPayload> {
        Ok(TypingPayload {
            user: User::new(scope, self.user),
            is_typing: self.is_typing,
        })
    }
}
