//! Mutation of the viewer's profile.

use async_graphql::{Context, InputObject, MaybeUndefined, Object, SimpleObject};

use super::mutate;
use crate::chat::ProfileInput;
use crate::graphql::error::Nullable;
use crate::graphql::types::User;

/// Input of `updateProfile`. Omitted fields stay unchanged; null clears a field.
#[derive(InputObject)]
pub(super) struct UpdateProfileInput {
    /// Display name: 1 to 128 bytes of UTF-8, not blank, without control, invisible or
    /// bidirectional format characters. Null clears it.
    display_name: MaybeUndefined<String>,
    /// URL of the viewer's picture: http or https, at most 2,048 bytes. Null clears it.
    avatar_url: MaybeUndefined<String>,
}

/// Payload of `updateProfile`.
#[derive(SimpleObject)]
pub(super) struct UpdateProfilePayload {
    /// The viewer.
    user: User,
}

#[derive(Default)]
pub(super) struct ProfileMutation;

#[Object]
impl ProfileMutation {
    /// Changes the viewer's profile. Omitted fields stay unchanged; null clears a field.
    async fn update_profile(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The new profile fields.")] input: UpdateProfileInput,
    ) -> Nullable<UpdateProfilePayload> {
        mutate(ctx, async |scope| {
            let profile = ProfileInput {
                display_name: input.display_name.into(),
                avatar_url: input.avatar_url.into(),
                metadata: None,
            };
            scope
                .chat
                .writes
                .update_profile(&scope.viewer, profile)
                .await?;
            let user = User::new(&scope, scope.viewer.clone());
            Ok(UpdateProfilePayload { user })
        })
        .await
    }
}
