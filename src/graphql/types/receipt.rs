//! Receipts: the delivery status of a message at each participant.

use async_graphql::{Enum, Object, SimpleObject};

use super::{Message, User};
use crate::graphql::connection::{PageArguments, PageInfo, RelayConnection};
use crate::graphql::cursor::{CursorKey, List};
use crate::graphql::error::Result;
use crate::graphql::scope::ViewerScope;
use crate::model::{self, ConversationId};

/// Delivery status of a message, from least to most advanced.
#[derive(Enum, Debug, Clone, Copy, PartialEq, Eq)]
#[graphql(remote = "model::DeliveryStatus")]
pub(crate) enum DeliveryStatus {
    /// Stored by the server, not yet delivered to a device.
    Sent,
    /// Delivered to a device, by `markDelivered`.
    Delivered,
    /// Read by the user, by `markRead`.
    Read,
}

/// Delivery status of a message at one participant.
#[derive(SimpleObject)]
pub(crate) struct Receipt {
    /// The participant.
    user: User,
    /// Delivery status at this participant.
    status: DeliveryStatus,
}

/// Edge of a receipt.
#[derive(SimpleObject)]
pub(crate) struct ReceiptEdge {
    /// Cursor for `after` and `before` of `Message.receipts`.
    cursor: String,
    /// The receipt.
    node: Receipt,
}

/// Least advanced status among the receivers of a message.
pub(super) async fn status(
    scope: &ViewerScope,
    message: &model::Message,
) -> Result<Option<DeliveryStatus>> {
    let participants = scope
        .loaders
        .participants
        .load(message.conversation)
        .await?;
    let least = participants.and_then(|participants| {
        model::DeliveryStatus::least(&participants, message.id, &message.sender)
    });
    Ok(least.map(Into::into))
}

/// Newest message up to which the messages of the viewer have at least this status.
pub(super) async fn newest_with(
    scope: &ViewerScope,
    conversation: ConversationId,
    status: model::DeliveryStatus,
) -> Result<Option<Message>> {
    let participants = scope.loaders.participants.load(conversation).await?;
    let watermark =
        participants.and_then(|participants| status.watermark(&participants, &scope.viewer));
    match watermark {
        Some(position) => Message::at(scope, conversation, position).await,
        None => Ok(None),
    }
}

pub(super) async fn receipts(
    scope: &ViewerScope,
    message: &model::Message,
    arguments: &PageArguments,
) -> Result<RelayConnection<ReceiptEdge>> {
    let list = List::Receipts(message.conversation, message.id);
    let page = scope
        .chat
        .participants
        .receivers(message, &arguments.request(list)?)
        .await?;
    let page = page.map(|participant| ReceiptEdge {
        cursor: participant.user.encode(list),
        node: Receipt {
            status: participant.status_of(message.id).into(),
            user: User::new(scope, participant.user),
        },
    });
    Ok(RelayConnection::new(page, |edge| &edge.cursor))
}

/// A page of receipts, ordered by username (bytewise).
#[Object(name = "ReceiptConnection")]
impl RelayConnection<ReceiptEdge> {
    /// Edges of this page, in the order of the list.
    async fn edges(&self) -> &[ReceiptEdge] {
        &self.edges
    }

    #[graphql(name = "pageInfo")]
    /// Position of this page in its list.
    async fn page(&self) -> &PageInfo {
        &self.page
    }
}
