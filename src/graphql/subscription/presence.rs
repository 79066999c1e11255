//! Payloads of `presenceChanged`.

use async_graphql::SimpleObject;
use futures_util::stream::{self, Stream};

use crate::chat::{PresenceUpdate, PresenceUpdates};
use crate::graphql::error::Result;
use crate::graphql::scope::ViewerScope;
use crate::graphql::types::{Presence, User};
use crate::rate::Pace;

/// Payload of `presenceChanged`: the current presence of a user.
#[derive(SimpleObject)]
pub(super) struct PresencePayload {
    /// The user.
    user: User,
    /// Presence of the user.
    presence: Presence,
}

pub(super) fn payloads(
    updates: PresenceUpdates,
    scope: ViewerScope,
    pace: Pace,
) -> impl Stream<Item = Result<PresencePayload>> + use<> {
    let state = (updates, scope, pace);
    stream::try_unfold(state, async |(mut updates, scope, mut pace)| {
        // Pays before it takes the state, which would be stale after a wait.
        let _ = pace.pay().await;
        let Some(PresenceUpdate { user, presence }) = updates.next().await? else {
            return Ok(None);
        };
        let payload = PresencePayload {
            user: User::new(&scope.renewed(), user),
            presence: presence.into(),
        };
        Ok(Some((payload, (updates, scope, pace))))
    })
}
