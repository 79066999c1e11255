//! Global ids: opaque to clients, typed and versioned inside. A malformed id names no object.

use async_graphql::ID;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use smallvec::SmallVec;
use uuid::Uuid;

use super::error::{Error, Result};
use crate::model::{ConversationId, JobId, LiveKey, LiveMessageId, MessageId, ReportId, UserId};

const VERSION: u8 = 1;
/// Longer texts are refused without decoding.
pub(super) const TEXT_BYTES_MAX: usize = 512;

/// Bytes of an id or a cursor. Most need no allocation.
pub(super) type KeyBytes = SmallVec<[u8; 64]>;

/// Object that a global id names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GlobalId {
    User(UserId),
    Conversation(ConversationId),
    Message(ConversationId, MessageId),
    Participant(ConversationId, UserId),
    /// Inbox entry of one user. Each user has another entry of the same conversation.
    InboxEntry(ConversationId, UserId),
    /// Ban of one user from a conversation.
    Ban(ConversationId, UserId),
    Report(ReportId),
    Job(JobId),
    LiveMessage(LiveKey),
}

impl GlobalId {
    pub(super) fn encode(&self) -> ID {
        ID(URL_SAFE_NO_PAD.encode(self.bytes()))
    }

    /// Appends the text of the id.
    pub(super) fn append_to(&self, text: &mut Vec<u8>) {
        let bytes = self.bytes();
        let begin = text.len();
        let len = base64::encoded_len(bytes.len(), false).expect("an id is short");
        text.resize(begin + len, 0);
        URL_SAFE_NO_PAD
            .encode_slice(bytes, &mut text[begin..])
            .expect("the text has room for the id");
    }

    fn bytes(&self) -> KeyBytes {
        let key = |kind: u8, first: &[u8], second: &[u8]| {
            let mut bytes = KeyBytes::from_slice(&[VERSION, kind]);
            bytes.extend_from_slice(first);
            bytes.extend_from_slice(second);
            bytes
        };
        let in_conversation =
            |kind, id: &ConversationId, second: &[u8]| key(kind, id.0.as_bytes(), second);
        match self {
            Self::User(user) => key(b'u', user.as_str().as_bytes(), &[]),
            Self::Conversation(id) => in_conversation(b'c', id, &[]),
            Self::Message(id, message) => in_conversation(b'm', id, message.uuid().as_bytes()),
            Self::Participant(id, user) => in_conversation(b'p', id, user.as_str().as_bytes()),
            Self::InboxEntry(id, user) => in_conversation(b'e', id, user.as_str().as_bytes()),
            Self::Report(report) => key(b'r', report.uuid().as_bytes(), &[]),
            Self::Job(job) => key(b'j', job.0.as_bytes(), &[]),
            Self::LiveMessage(live) => {
                in_conversation(b'l', &live.conversation, live.id.0.as_bytes())
            }
            Self::Ban(id, user) => in_conversation(b'b', id, user.as_str().as_bytes()),
        }
    }

    /// `None` for a text that [`GlobalId::encode`] does not produce.
    pub(super) fn decode(text: &str) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (&[VERSION, kind], rest) = bytes.split_first_chunk::<2>()? else {
            return None;
        };
        let of_user = |object: fn(ConversationId, UserId) -> Self| {
            let (conversation, name) = conversation(rest)?;
            Some(object(conversation, user(name)?))
        };
        match kind {
            b'u' => Some(Self::User(user(rest)?)),
            b'c' => Some(Self::Conversation(ConversationId(
                Uuid::from_slice(rest).ok()?,
            ))),
            b'm' => {
                let (conversation, message) = conversation(rest)?;
                Some(Self::Message(
                    conversation,
                    MessageId::from_uuid(Uuid::from_slice(message).ok()?)?,
                ))
            }
            b'p' => of_user(Self::Participant),
            b'e' => of_user(Self::InboxEntry),
            b'b' => of_user(Self::Ban),
            b'r' => Some(Self::Report(ReportId::from_uuid(
                Uuid::from_slice(rest).ok()?,
            )?)),
            b'j' => Some(Self::Job(JobId(Uuid::from_slice(rest).ok()?))),
            b'l' => {
                let (conversation, id) = conversation(rest)?;
                let id = LiveMessageId(Uuid::from_slice(id).ok()?);
                Some(Self::LiveMessage(LiveKey { conversation, id }))
            }
            _ => None,
        }
    }
}

fn conversation(bytes: &[u8]) -> Option<(ConversationId, &[u8])> {
    let (id, rest) = bytes.split_first_chunk::<16>()?;
    Some((ConversationId(Uuid::from_bytes(*id)), rest))
}

fn user(bytes: &[u8]) -> Option<UserId> {
    UserId::parse(std::str::from_utf8(bytes).ok()?).ok()
}

/// The conversation that an id names. `None` if it names another object or none.
pub(super) fn conversation_id(id: &ID) -> Option<ConversationId> {
    let GlobalId::Conversation(conversation) = GlobalId::decode(id)? else {
        return None;
    };
    Some(conversation)
}

/// The conversation that an id names. A malformed id is treated like an unknown one.
pub(super) fn conversation_of(id: &ID) -> Result<ConversationId> {
    conversation_id(id).ok_or_else(|| Error::not_found("the conversation"))
}

/// The message that an id names, and its conversation. A malformed id is treated like an unknown one.
pub(super) fn message_of(id: &ID) -> Result<(ConversationId, MessageId)> {
    match GlobalId::decode(id) {
        Some(GlobalId::Message(conversation, message)) => Ok((conversation, message)),
        _ => Err(Error::not_found("the message")),
    }
}

/// The report that an id names.
pub(super) fn report_id(id: &ID) -> Option<ReportId> {
    let GlobalId::Report(report) = GlobalId::decode(id)? else {
        return None;
    };
    Some(report)
}

/// The live message that an id names.
pub(super) fn live_key(id: &ID) -> Option<LiveKey> {
    let GlobalId::LiveMessage(live) = GlobalId::decode(id)? else {
        return None;
    };
    Some(live)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_the_round_trip() {
        let user = UserId::parse("żółw").unwrap();
        let conversation = ConversationId::random();
        let message = MessageId::parse("a3e39830-e29b-11ef-8001-000000000005").unwrap();
        for id in [
            GlobalId::User(user.clone()),
            GlobalId::Conversation(conversation),
            GlobalId::Message(conversation, message),
            GlobalId::Participant(conversation, user.clone()),
            GlobalId::InboxEntry(conversation, user.clone()),
            GlobalId::Ban(conversation, user),
            GlobalId::Report(message),
            GlobalId::Job(JobId(conversation.0)),
            GlobalId::LiveMessage(LiveKey {
                conversation,
                id: LiveMessageId(conversation.0),
            }),
        ] {
            let mut text = b"id:".to_vec();
            id.append_to(&mut text);
            assert_eq!(text, format!("id:{}", *id.encode()).into_bytes());
            assert_eq!(GlobalId::decode(&id.encode()), Some(id));
        }
    }

    #[test]
    fn a_malformed_id_names_nothing() {
        let id = GlobalId::Conversation(ConversationId::random()).encode();
        for text in [
            "",
            "x",
            "AWM",
            "hello world",
            &id[1..],
            &format!("{}A", *id),
            &"A".repeat(600),
        ] {
            assert_eq!(GlobalId::decode(text), None, "{text}");
        }
    }
}
