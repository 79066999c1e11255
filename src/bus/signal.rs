//! Signals between servers: ids of written conversations and inboxes, typing and presence. A signal
//! carries ids only; its receiver reads the content from the store.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use uuid::Uuid;

use crate::model::{ConversationId, Topic, UserId};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Signal {
    /// A server has written messages or changes to this conversation.
    Written(ConversationId),
    /// The same, on the subject of one participant whose inbox shows the conversation.
    WrittenFor(UserId, ConversationId),
    /// A server has changed this user's inbox without a write to a conversation.
    Inbox(UserId),
    /// A server has advanced a marker of this user in this conversation.
    Marker(ConversationId, UserId),
    /// This user has started or stopped typing.
    Typing(ConversationId, UserId, bool),
    /// This user has come online or gone offline on the sending server.
    Presence(UserId, bool),
    /// Request for a [`Signal::Presence`] from each server on which this user is online.
    PresenceQuery(UserId),
}

/// Subject that all servers subscribe to.
pub(super) const BROADCAST: &str = "ask";

impl Signal {
    /// Subject, without the prefix of the deployment, and payload.
    pub(super) fn encode(&self) -> (String, Vec<u8>) {
        match self {
            Self::Written(conversation) => {
                (subject(&Topic::Conversation(*conversation)), Vec::new())
            }
            Self::Marker(conversation, user) => (
                subject(&Topic::Conversation(*conversation)),
                user.as_str().into(),
            ),
            Self::WrittenFor(user, conversation) => (
                subject(&Topic::Inbox(user.clone())),
                conversation.0.as_bytes().into(),
            ),
            Self::Inbox(user) => (subject(&Topic::Inbox(user.clone())), Vec::new()),
            Self::Typing(conversation, user, is_typing) => (
                subject(&Topic::Typing(*conversation)),
                [&[u8::from(*is_typing)], user.as_str().as_bytes()].concat(),
            ),
            Self::Presence(user, is_online) => (
                subject(&Topic::Presence(user.clone())),
                vec![u8::from(*is_online)],
            ),
            Self::PresenceQuery(user) => (BROADCAST.to_owned(), user.as_str().into()),
        }
    }

    /// `None` for a signal of another version.
    pub(super) fn decode(subject: &str, payload: &[u8]) -> Option<Self> {
        let user = |bytes: &[u8]| UserId::parse(std::str::from_utf8(bytes).ok()?).ok();
        if subject == BROADCAST {
            return user(payload).map(Self::PresenceQuery);
        }
        let (kind, name) = subject.split_once('.')?;
        let conversation = || Uuid::try_parse(name).ok().map(ConversationId);
        let named = || user(&BASE64_URL_SAFE_NO_PAD.decode(name).ok()?);
        match (kind, payload) {
            ("c", []) => conversation().map(Self::Written),
            ("c", name) => Some(Self::Marker(conversation()?, user(name)?)),
            ("i", []) => named().map(Self::Inbox),
            ("i", id) => Some(Self::WrittenFor(
                named()?,
                ConversationId(Uuid::from_slice(id).ok()?),
            )),
            ("t", [is_typing, name @ ..]) => {
                Some(Self::Typing(conversation()?, user(name)?, *is_typing != 0))
            }
            ("p", [is_online]) => Some(Self::Presence(named()?, *is_online != 0)),
            _ => None,
        }
    }
}

/// Subject of a topic, without the prefix of the deployment.
pub(super) fn subject(topic: &Topic) -> String {
    let name = |user: &UserId| BASE64_URL_SAFE_NO_PAD.encode(user.as_str());
    match topic {
        Topic::Conversation(id) => format!("c.{}", id.0.simple()),
        Topic::Inbox(user) => format!("i.{}", name(user)),
        Topic::Typing(id) => format!("t.{}", id.0.simple()),
        Topic::Presence(user) => format!("p.{}", name(user)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_survives_encoding() {
        let (user, conversation) = (
            UserId::parse("käthe.* >").unwrap(),
            ConversationId::random(),
        );
        for signal in [
            Signal::Written(conversation),
            Signal::WrittenFor(user.clone(), conversation),
            Signal::Inbox(user.clone()),
            Signal::Marker(conversation, user.clone()),
            Signal::Typing(conversation, user.clone(), true),
            Signal::Typing(conversation, user.clone(), false),
            Signal::Presence(user.clone(), true),
            Signal::PresenceQuery(user.clone()),
        ] {
            let (subject, payload) = signal.encode();
            assert!(!subject.contains([' ', '*', '>']), "{subject}");
            assert_eq!(Signal::decode(&subject, &payload), Some(signal));
        }
        for (subject, payload) in [
            ("x.1", b"".as_slice()),
            ("c.1", b""),
            ("i.!", b""),
            ("p.a2V5", b""),
            ("ask", b""),
        ] {
            assert_eq!(Signal::decode(subject, payload), None, "{subject}");
        }
    }
}
