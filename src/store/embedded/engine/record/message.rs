//! Records of messages: each version has one more field at its end.

use serde::{Deserialize, Serialize};

use super::{DecodeError, VERSION, end, take};
use crate::model::{
    Content, ConversationId, IdempotencyKey, Message, MessageId, MessageKind, Parts, Pin,
    Timestamp, UserId,
};
use crate::store::UnreadReader;

/// Version of messages that were never pinned. Version 1 ends before `has_reactions`.
pub(super) const MESSAGE_VERSION: u8 = 2;
/// Version of messages with a pin, which follows `has_reactions`.
const PINNED_MESSAGE_VERSION: u8 = 3;
/// Version of messages with mentions, which follow `has_reactions` and the pin, if there is one.
pub(super) const MENTIONING_MESSAGE_VERSION: u8 = 4;
/// Version of messages with parts, which follow `has_reactions`, the pin, if there is one, and the mentions. It is
/// the last one: a later version adds parts.
pub(super) const PARTS_MESSAGE_VERSION: u8 = 5;

/// Splits the version from the body of a message.
fn message_body(bytes: &[u8]) -> Result<(&[u8], u8), DecodeError> {
    match bytes.split_first() {
        None => Err(DecodeError::Empty),
        Some((version @ VERSION..=PARTS_MESSAGE_VERSION, body)) => Ok((body, *version)),
        Some((version, _)) => Err(DecodeError::Version(*version)),
    }
}

/// A message without its key. The fields that an unread count needs come first, see [`MessageLead`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MessageRecord {
    sender: UserId,
    kind: MessageKind,
    deleted_at: Option<Timestamp>,
    reply_to: Option<MessageId>,
    client_key: Option<IdempotencyKey>,
    content: Option<Content>,
    #[serde(skip)]
    has_reactions: bool,
    #[serde(skip)]
    pin: Option<Box<Pin>>,
}

/// Prefix of a [`MessageRecord`]: enough for an unread count, without the body.
#[derive(Debug, Deserialize)]
pub(crate) struct MessageLead<'a> {
    /// Bytes of the name: a count compares them, and need not check that they are UTF-8.
    sender: &'a [u8],
    kind: MessageKind,
    deleted_at: Option<Timestamp>,
}

impl<'a> MessageLead<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        Ok(postcard::take_from_bytes(message_body(bytes)?.0)?.0)
    }

    /// As [`Message::counts_as_unread_for`].
    pub(crate) fn counts_as_unread_for(&self, reader: UnreadReader<'_>) -> bool {
        self.kind == MessageKind::Text
            && self.deleted_at.is_none()
            && reader.counts_bytes(self.sender)
    }
}

impl MessageRecord {
    pub(crate) fn encode(message: &Message) -> Vec<u8> {
        let Message {
            conversation: _,
            id: _,
            sender,
            kind,
            content,
            reply_to,
            client_key,
            deleted_at,
            has_reactions,
            pin,
        } = message;
        // The fields in the order of the record, without a copy of the body.
        let fields = (
            sender,
            kind,
            deleted_at,
            reply_to,
            client_key,
            content,
            has_reactions,
        );
        let encoded = |version| postcard::to_extend(&fields, vec![version]);
        let mentions = content.as_ref().map(|content| &content.mentions);
        let parts = content.as_ref().map(Content::parts);
        let parts = parts.filter(|parts| !parts.is_empty());
        let bytes = match (mentions.filter(|mentions| !mentions.is_empty()), pin) {
            (_, pin) if parts.is_some() => encoded(PARTS_MESSAGE_VERSION)
                .and_then(|bytes| postcard::to_extend(&(pin, mentions, parts), bytes)),
            (Some(mentions), pin) => encoded(MENTIONING_MESSAGE_VERSION)
                .and_then(|bytes| postcard::to_extend(&(pin, mentions), bytes)),
            (None, None) => encoded(MESSAGE_VERSION),
            (None, Some(pin)) => {
                encoded(PINNED_MESSAGE_VERSION).and_then(|bytes| postcard::to_extend(pin, bytes))
            }
        };
        bytes.expect("plain data serialises")
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (mut rest, version) = message_body(bytes)?;
        let record: Self = take(&mut rest)?;
        let has_reactions = version > VERSION && take(&mut rest)?;
        let pin = match version {
            VERSION | MESSAGE_VERSION => None,
            PINNED_MESSAGE_VERSION => Some(take(&mut rest)?),
            _ => take(&mut rest)?,
        };
        let mentions = match version {
            MENTIONING_MESSAGE_VERSION => Some(take(&mut rest)?),
            PARTS_MESSAGE_VERSION => take(&mut rest)?,
            _ => None,
        };
        let parts: Option<Parts> = match version {
            PARTS_MESSAGE_VERSION => take(&mut rest)?,
            _ => None,
        };
        end(rest)?;
        let with_tail = |content| {
            let mentions = mentions.unwrap_or_default();
            Content {
                mentions,
                ..content
            }
            .with_parts(parts.unwrap_or_default())
        };
        Ok(Self {
            has_reactions,
            pin,
            content: record.content.map(with_tail).transpose()?,
            ..record
        })
    }

    pub(crate) fn into_message(self, conversation: ConversationId, id: MessageId) -> Message {
        let Self {
            sender,
            kind,
            deleted_at,
            reply_to,
            client_key,
            content,
            has_reactions,
            pin,
        } = self;
        Message {
            conversation,
            id,
            sender,
            kind,
            content,
            reply_to,
            client_key,
            deleted_at,
            has_reactions,
            pin,
        }
    }
}
