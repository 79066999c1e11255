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
        let mut bytes = KeyBytes::new();
        bytes.push(VERSION);
        match self {
            Self::User(user) => {
                bytes.push(b'u');
                bytes.extend_from_slice(user.as_str().as_bytes());
            }
            Self::Conversation(conversation) => {
                bytes.push(b'c');
                bytes.extend_from_slice(conversation.0.as_bytes());
            }
            Self::Message(conversation, message) => {
                bytes.push(b'm');
                bytes.extend_from_slice(conversation.0.as_bytes());
                bytes.extend_from_slice(message.uuid().as_bytes());
            }
            Self::Participant(conversation, user) => {
                bytes.push(b'p');
                bytes.extend_from_slice(conversation.0.as_bytes());
                bytes.extend_from_slice(user.as_str().as_bytes());
            }
            Self::InboxEntry(conversation, user) => {
                bytes.push(b'e');
                bytes.extend_from_slice(conversation.0.as_bytes());
                bytes.extend_from_slice(user.as_str().as_bytes());
            }
            Self::Report(report) => {
                bytes.push(b'r');
                bytes.extend_from_slice(report.uuid().as_bytes());
            }
            Self::Job(job) => {
                bytes.push(b'j');
                bytes.extend_from_slice(job.0.as_bytes());
            }
            Self::LiveMessage(live) => {
                bytes.push(b'l');
                bytes.extend_from_slice(live.conversation.0.as_bytes());
                bytes.extend_from_slice(live.id.0.as_bytes());
            }
            Self::Ban(conversation, user) => {
                bytes.push(b'b');
                bytes.extend_from_slice(conversation.0.as_bytes());
                bytes.extend_from_slice(user.as_str().as_bytes());
            }
        }
        bytes
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
            b'p' => {
                let (conversation, name) = conversation(rest)?;
                Some(Self::Participant(conversation, user(name)?))
            }
            b'e' => {
                let (conversation, name) = conversation(rest)?;
                Some(Self::InboxEntry(conversation, user(name)?))
            }
            b'r' => Some(Self::Report(ReportId::from_uuid(
                Uuid::from_slice(rest).ok()?,
            )?)),
            b'j' => Some(Self::Job(JobId(Uuid::from_slice(rest).ok()?))),
            b'l' => {
                let (conversation, id) = conversation(rest)?;
                let id = LiveMessageId(Uuid::from_slice(id).ok()?);
                Some(Self::LiveMessage(LiveKey { conversation, id }))
            }
            b'b' => {
                let (conversation, name) = conversation(rest)?;
                Some(Self::Ban(conversation, user(name)?))
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

/// The message that an id names, and its conversation.
pub(super) fn message_id(id: &ID) -> Option<(ConversationId, MessageId)> {
    let GlobalId::Message(conversation, message) = GlobalId::decode(id)? else {
        return None;
    };
    Some((conversation, message))
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
