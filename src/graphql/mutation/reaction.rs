//! The mutations of reactions.

use std::sync::Arc;

use async_graphql::{Context, ID, InputObject, SimpleObject};

use super::echo;
use crate::graphql::error::{Error, Result};
use crate::graphql::id::message_id;
use crate::graphql::scope::Scope;
use crate::graphql::types::Message;
use crate::model;

/// A reaction to a message.
#[derive(InputObject)]
pub(super) struct AddReactionInput {
    /// The message.
    message_id: ID,
    /// One emoji of Unicode. How it is spelled, with U+FE0F or without, makes no difference. A message has at most 20 kinds.
    emoji: String,
    /// Echoed: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// The message with its reactions.
#[derive(SimpleObject)]
pub(super) struct AddReactionPayload {
    /// The message.
    message: Message,
    /// As it was given.
    client_mutation_id: Option<String>,
}

/// A reaction that is to go.
#[derive(InputObject)]
pub(super) struct RemoveReactionInput {
    /// The message.
    message_id: ID,
    /// The emoji.
    emoji: String,
    /// Echoed: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// The message with the reactions that are left.
#[derive(SimpleObject)]
pub(super) struct RemoveReactionPayload {
    /// The message.
    message: Message,
    /// As it was given.
    client_mutation_id: Option<String>,
}

pub(super) async fn add(ctx: &Context<'_>, input: AddReactionInput) -> Result<Option<AddReactionPayload>> {
    let scope = Scope::fresh(ctx)?;
    let client_mutation_id = echo(input.client_mutation_id)?;
    let message = react(&scope, &input.message_id, &input.emoji, true).await?;
    Ok(Some(AddReactionPayload { message: Message::new(&scope, message), client_mutation_id }))
}

pub(super) async fn remove(ctx: &Context<'_>, input: RemoveReactionInput) -> Result<Option<RemoveReactionPayload>> {
    let scope = Scope::fresh(ctx)?;
    let client_mutation_id = echo(input.client_mutation_id)?;
    let message = react(&scope, &input.message_id, &input.emoji, false).await?;
    Ok(Some(RemoveReactionPayload { message: Message::new(&scope, message), client_mutation_id }))
}

async fn react(scope: &Scope, message: &ID, emoji: &str, is_on: bool) -> Result<Arc<model::Message>> {
    let (conversation, id) = message_id(message).ok_or_else(|| Error::not_found("the message"))?;
    Ok(scope.chat.react(&scope.viewer, conversation, id, emoji, is_on).await?)
}
