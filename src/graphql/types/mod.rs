//! Types of the API: each wraps a value of the model, with the scope that it was read in.

mod ban;
mod conversation;
mod inbox;
mod inbox_entry;
mod job;
mod live_message;
mod message;
mod participant;
mod pin;
mod reaction;
mod receipt;
mod report;
mod search;
mod sync_fields;
mod user;

use async_graphql::{Enum, ID, Interface};

pub(super) use ban::{Ban, BanEdge};
pub(super) use conversation::{Conversation, ConversationEdge};
pub(super) use inbox::{InboxEntryConnection, InboxEntryEdge, InboxFilter, InboxSummary};
pub(super) use inbox_entry::InboxEntry;
pub(super) use job::Job;
pub(super) use live_message::LiveMessage;
pub(super) use message::{
    AttachmentInput, Message, MessageEdge, MessageStepInput, message_edge, message_edge_at,
};
pub(super) use participant::{Participant, ParticipantEdge};
pub(super) use pin::PinnedMessageEdge;
pub(super) use report::{Report, ReportConnection, ReportReason, ReportState};
pub(super) use search::{MessageFilter, MessageMatchConnection, SearchArguments};
pub(super) use user::{Presence, User, UserEdge};

use super::error::{Error, Result};
use super::id::GlobalId;
use super::scope::ViewerScope;
use crate::model;

/// An object with a global id, for `Query.node` and client caches.
#[derive(Interface)]
#[graphql(field(
    name = "id",
    ty = "ID",
    desc = "Opaque global id, unique among all objects. `Query.node` accepts it."
))]
pub(super) enum Node {
    User(User),
    Conversation(Conversation),
    Message(Message),
    Participant(Participant),
    InboxEntry(InboxEntry),
    Ban(Ban),
    Report(Report),
    Job(Job),
    LiveMessage(LiveMessage),
}

impl Node {
    /// Object of a global id, if the viewer may see it.
    pub(super) async fn load(scope: &ViewerScope, id: &str) -> Result<Option<Self>> {
        let Some(id) = GlobalId::decode(id) else {
            return Ok(None);
        };
        Ok(match id {
            GlobalId::User(user) => Some(Self::User(User::new(scope, user))),
            GlobalId::Conversation(id) => {
                Conversation::load(scope, id).await?.map(Self::Conversation)
            }
            GlobalId::Message(conversation, id) => Message::load(scope, conversation, id)
                .await?
                .map(Self::Message),
            GlobalId::Participant(conversation, user) => {
                let found = scope
                    .chat
                    .participants
                    .participant(&scope.caller, conversation, &user)
                    .await?;
                found.map(|participant| Self::Participant(Participant::new(scope, participant)))
            }
            GlobalId::InboxEntry(conversation, user) if user == scope.viewer => {
                InboxEntry::load(scope, conversation)
                    .await?
                    .map(Self::InboxEntry)
            }
            GlobalId::InboxEntry(..) => None,
            GlobalId::Report(id) => Report::load(scope, id).await?.map(Self::Report),
            GlobalId::Job(id) => Job::load(scope, id).await?.map(Self::Job),
            GlobalId::LiveMessage(live) => {
                LiveMessage::load(scope, live).await?.map(Self::LiveMessage)
            }
            GlobalId::Ban(conversation, user) => {
                let participants = &scope.chat.participants;
                let found = participants.ban(&scope.caller, conversation, &user).await?;
                found.map(|ban| Self::Ban(Ban::new(scope, conversation, ban)))
            }
        })
    }
}

/// Kind of a conversation.
#[derive(Enum, Debug, Clone, Copy, PartialEq, Eq)]
#[graphql(remote = "model::ConversationKind")]
pub(super) enum ConversationKind {
    /// Conversation of two users, or of one user alone. Each pair has exactly one.
    Direct,
    /// Conversation of up to 20,000 users, with a name.
    Group,
}

/// History that new participants of a group see.
#[derive(Enum, Debug, Clone, Copy, PartialEq, Eq)]
#[graphql(remote = "model::HistoryVisibility")]
pub(super) enum HistoryVisibility {
    /// All of it.
    All,
    /// Messages from the moment of joining.
    SinceJoined,
}

/// Role of a participant of a group. In a direct conversation it has no effect.
#[derive(Enum, Debug, Clone, Copy, PartialEq, Eq)]
#[graphql(remote = "model::Role")]
pub(super) enum ParticipantRole {
    /// May do everything, including changes of roles. A group always has an OWNER.
    Owner,
    /// May rename the group, set its slow mode, add users, remove, ban and silence MEMBERs, pin messages,
    /// and delete those of other users.
    Admin,
    /// May read, send, react, and leave.
    Member,
}

/// Messages of a conversation that notify the viewer. A muted entry notifies of nothing.
#[derive(Enum, Debug, Clone, Copy, PartialEq, Eq)]
#[graphql(remote = "model::NotificationLevel")]
pub(super) enum NotificationLevel {
    /// All messages. The default of conversations that are not large.
    All,
    /// Messages that mention the viewer or everyone. The default of large conversations.
    Mentions,
    /// No message.
    None,
}

/// Kind of a message.
#[derive(Enum, Debug, Clone, Copy, PartialEq, Eq)]
#[graphql(remote = "model::MessageKind")]
pub(super) enum MessageKind {
    /// Written by its sender.
    Text,
    /// Records a join, a leave, a removal, a rename, a role change, or a change of the history visibility
    /// or the expiry. Its sender is the user who caused it; `metadata` has the details.
    System,
}

/// Error for a missing object that another row refers to.
fn missing(what: &str) -> Error {
    Error::not_found(what)
}
