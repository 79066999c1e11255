//! The mutations, by subject: each translates its arguments for the chat, and the result into its
//! payload.
//!
//! Each field is nullable, so that an error does not null its siblings.

mod conversation;
mod history;
mod inbox;
mod live_message;
mod message;
mod moderation;
mod participant;
mod pin;
mod profile;
mod reaction;
mod safety;
mod service;
mod typing;

use async_graphql::{Context, ID, MergedObject};
use futures_util::FutureExt as _;
use futures_util::future::{Either, ready};

use self::conversation::ConversationMutation;
use self::history::HistoryMutation;
use self::inbox::InboxMutation;
use self::live_message::LiveMessageMutation;
use self::message::MessageMutation;
use self::moderation::ModerationMutation;
use self::participant::ParticipantMutation;
use self::pin::PinMutation;
use self::profile::ProfileMutation;
use self::reaction::ReactionMutation;
use self::safety::SafetyMutation;
use self::service::ServiceMutation;
use self::typing::TypingMutation;
use super::error::{Error, Nullable, Result};
use super::id::message_of;
use super::scope::ViewerScope;
use super::types::{Conversation, InboxEntryEdge};
use crate::model::{ConversationId, MessageId, UserId};

/// Mutations of the viewer. The server answers after it has stored the change. The fields of one
/// operation are executed one after the other. A field that fails is null and does not stop the
/// others.
///
/// A service with the scope `wideroom:moderate` does in every conversation what an OWNER may, under its
/// own name.
///
/// Errors have a code in `extensions.code`, as in `Query`. Errors with a retry also have
/// `extensions.outcome`: NOT_DONE means that this request stored nothing; it says nothing of an earlier
/// try. UNKNOWN means that the change may have been stored: repeat the same mutation, `sendMessage` and
/// `createGroupConversation` with the same idempotency key, until an answer has another outcome than
/// UNKNOWN and NOT_DONE.
#[derive(MergedObject, Default)]
pub struct Mutation(
    ConversationMutation,
    ParticipantMutation,
    ModerationMutation,
    MessageMutation,
    LiveMessageMutation,
    ReactionMutation,
    PinMutation,
    HistoryMutation,
    InboxMutation,
    TypingMutation,
    ProfileMutation,
    SafetyMutation,
    ServiceMutation,
);

/// Runs a mutation in a scope of its own.
fn mutate<P, F: Future<Output = Result<P>>>(
    ctx: &Context<'_>,
    run: impl FnOnce(ViewerScope) -> F,
) -> impl Future<Output = Nullable<P>> {
    let payload = match ViewerScope::fresh(ctx) {
        Ok(scope) => Either::Left(run(scope)),
        Err(error) => Either::Right(ready(Err(error))),
    };
    payload.map(Some)
}

fn username(text: &str) -> Result<UserId> {
    UserId::parse_living(text)
        .map_err(|error| Error::bad_input(&["input", "username"], error.to_string()))
}

fn message_in(conversation: ConversationId, id: &ID) -> Result<MessageId> {
    match message_of(id)? {
        (named, message) if named == conversation => Ok(message),
        _ => Err(Error::not_found("the message")),
    }
}

/// The viewer's entry, for a payload, also where a block hides it. The mutation is done by now, so that a failed
/// read leaves its outcome unknown.
async fn entry_edge(scope: &ViewerScope, conversation: ConversationId) -> Result<InboxEntryEdge> {
    let edge = async {
        if let Some(edge) = InboxEntryEdge::load(scope, conversation).await? {
            return Ok(edge);
        }
        let row = scope.chat.inbox.entry(&scope.viewer, conversation).await?;
        row.map(|row| InboxEntryEdge::new(scope, row))
            .ok_or_else(|| Error::not_found("the conversation"))
    };
    edge.await.map_err(Error::once_done)
}

/// The conversation, for a payload; see [`entry_edge`].
async fn conversation(scope: &ViewerScope, id: ConversationId) -> Result<Conversation> {
    Conversation::of(scope, id).await.map_err(Error::once_done)
}
