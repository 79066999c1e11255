//! Mutation of the viewer's profile.

use std::convert::Infallible;

use async_graphql::{Context, InputObject, MaybeUndefined, Name, Object, SimpleObject, Value};

use super::echo;
use crate::chat::ProfileInput;
use crate::graphql::error::{Nullable, Result, nullable};
use crate::graphql::scope::ViewerScope;
use crate::graphql::types::User;

/// Input of `updateProfile`. Omitted fields stay unchanged; null clears a field.
#[derive(InputObject)]
pub(super) struct UpdateProfileInput {
    /// Display name: 1 to 128 bytes of UTF-8, not blank, without control, invisible or
    /// bidirectional format characters. Null clears it.
    display_name: MaybeUndefined<String>,
    /// URL of the viewer's picture: http or https, at most 2,048 bytes. Null clears it.
    avatar_url: MaybeUndefined<String>,
    /// Text of the client that the payload returns unchanged: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// Payload of `updateProfile`.
#[derive(SimpleObject)]
pub(super) struct UpdateProfilePayload {
    /// The viewer.
    user: User,
    /// The `clientMutationId` of the input.
    client_mutation_id: Option<String>,
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
        nullable(update_profile(ctx, input)).await
    }
}

async fn update_profile(
    ctx: &Context<'_>,
    input: UpdateProfileInput,
) -> Result<Option<UpdateProfilePayload>> {
    let scope = ViewerScope::fresh(ctx)?;
    let client_mutation_id = echo(input.client_mutation_id)?;
    let profile = ProfileInput {
        display_name: given(ctx, "displayName", input.display_name),
        avatar_url: given(ctx, "avatarUrl", input.avatar_url),
    };
    scope
        .chat
        .writes
        .update_profile(&scope.viewer, profile)
        .await?;
    let user = User::new(&scope, scope.viewer.clone());
    Ok(Some(UpdateProfilePayload {
        user,
        client_mutation_id,
    }))
}

fn given<T>(ctx: &Context<'_>, name: &str, input: MaybeUndefined<T>) -> Option<Option<T>> {
    match input {
        MaybeUndefined::Undefined => None,
        MaybeUndefined::Null if is_open_variable(ctx, name) => None,
        MaybeUndefined::Null => Some(None),
        MaybeUndefined::Value(value) => Some(Some(value)),
    }
}

/// Whether the field of the input is a variable without a value. The specification treats such a
/// field as omitted, but async-graphql reads null.
fn is_open_variable(ctx: &Context<'_>, name: &str) -> bool {
    let definitions = &ctx.query_env.operation.node.variable_definitions;
    let is_open = |variable: &Name| {
        let has_default = definitions
            .iter()
            .any(|one| one.node.name.node == *variable && one.node.default_value.is_some());
        !has_default && !ctx.query_env.variables.contains_key(variable)
    };
    let Some(input) = ctx.item.node.get_argument("input") else {
        return false;
    };
    let whether_open = |variable: Name| Ok::<_, Infallible>(Value::Boolean(is_open(&variable)));
    match input.node.clone().into_const_with(whether_open) {
        Ok(Value::Object(fields)) => fields.get(name) == Some(&Value::Boolean(true)),
        _ => false,
    }
}
