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
    let open = OpenVariables::of(ctx);
    let profile = ProfileInput {
        display_name: given(open.is_open("displayName"), input.display_name),
        avatar_url: given(open.is_open("avatarUrl"), input.avatar_url),
        metadata: None,
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

/// Value of an optional field. An open variable counts as omitted.
pub(super) fn given<T>(is_open: bool, input: MaybeUndefined<T>) -> Option<Option<T>> {
    match input {
        MaybeUndefined::Undefined => None,
        MaybeUndefined::Null if is_open => None,
        MaybeUndefined::Null => Some(None),
        MaybeUndefined::Value(value) => Some(Some(value)),
    }
}

/// Fields of the input that are variables without a value. The specification treats such a field as
/// omitted, but async-graphql reads null.
pub(super) struct OpenVariables(Option<Value>);

/// Stands for an open variable. No document can spell it.
const OPEN: &str = "an open variable";

impl OpenVariables {
    pub(super) fn of(ctx: &Context<'_>) -> Self {
        let definitions = &ctx.query_env.operation.node.variable_definitions;
        let is_open = |variable: &Name| {
            let has_default = definitions
                .iter()
                .any(|one| one.node.name.node == *variable && one.node.default_value.is_some());
            !has_default && !ctx.query_env.variables.contains_key(variable)
        };
        let value = |variable: Name| {
            let value = if is_open(&variable) {
                Value::Enum(Name::new(OPEN))
            } else {
                Value::Null
            };
            Ok::<_, Infallible>(value)
        };
        let input = ctx.item.node.get_argument("input");
        Self(input.and_then(|input| input.node.clone().into_const_with(value).ok()))
    }

    pub(super) fn is_open(&self, name: &str) -> bool {
        is_open_in(self.0.as_ref(), name)
    }

    /// Whether the field of an object in a list of the input is open.
    pub(super) fn is_open_in_list(&self, list: &str, index: usize, name: &str) -> bool {
        let Some(Value::Object(fields)) = &self.0 else {
            return false;
        };
        match fields.get(list) {
            Some(Value::List(items)) => is_open_in(items.get(index), name),
            // One object counts as a list of it.
            Some(one) => is_open_in(Some(one), name),
            None => false,
        }
    }
}

fn is_open_in(object: Option<&Value>, name: &str) -> bool {
    let Some(Value::Object(fields)) = object else {
        return false;
    };
    matches!(fields.get(name), Some(Value::Enum(value)) if *value == OPEN)
}
