//! What servers say to each other: where something was written, who types, and who is here. Ids only: what was written is read from the store.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use uuid::Uuid;

use crate::model::{ConversationId, Topic, UserId};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Signal {
    /// Messages or changes were written to this conversation.
    Written(ConversationId),
    /// The same, to one of those whose inbox shows it.
    WrittenFor(UserId, ConversationId),
    /// Something that changes this user's inbox, and stands in no conversation.
    Inbox(UserId),
    /// A marker of this user in this conversation.
    Marker(ConversationId, UserId),
    Typing(ConversationId, UserId, bool),
    /// This user is here, or is not any more.
    Presence(UserId, bool),
    /// Whoever has this user is to say so.
    WhoHas(UserId),
}

/// Where all servers listen, whoever else does.
pub(super) const ASK: &str = "ask";

impl Signal {
    /// The last parts of the subject, and what is said there.
    pub(super) fn encode(&self) -> (String, Vec<u8>) {
        match self {
            Self::Written(conversation) => (subject(&Topic::Conversation(*conversation)), Vec::new()),
            Self::Marker(conversation, user) => (subject(&Topic::Conversation(*conversation)), user.as_str().into()),
            Self::WrittenFor(user, conversation) => (subject(&Topic::Inbox(user.clone())), conversation.0.as_bytes().into()),
            Self::Inbox(user) => (subject(&Topic::Inbox(user.clone())), Vec::new()),
            Self::Typing(conversation, user, is_typing) => {
                (subject(&Topic::Typing(*conversation)), [&[u8::from(*is_typing)], user.as_str().as_bytes()].concat())
            }
            Self::Presence(user, is_here) => (subject(&Topic::Presence(user.clone())), vec![u8::from(*is_here)]),
            Self::WhoHas(user) => (ASK.to_owned(), user.as_str().into()),
        }
    }

    /// `None` for what another version says.
    pub(super) fn decode(subject: &str, payload: &[u8]) -> Option<Self> {
        let user = |bytes: &[u8]| UserId::parse(std::str::from_utf8(bytes).ok()?).ok();
        if subject == ASK {
            return user(payload).map(Self::WhoHas);
        }
        let (kind, name) = subject.split_once('.')?;
        let conversation = || Uuid::try_parse(name).ok().map(ConversationId);
        let named = || user(&BASE64_URL_SAFE_NO_PAD.decode(name).ok()?);
        match (kind, payload) {
            ("c", []) => conversation().map(Self::Written),
            ("c", name) => Some(Self::Marker(conversation()?, user(name)?)),
            ("i", []) => named().map(Self::Inbox),
            ("i", id) => Some(Self::WrittenFor(named()?, ConversationId(Uuid::from_slice(id).ok()?))),
            ("t", [is_typing, name @ ..]) => Some(Self::Typing(conversation()?, user(name)?, *is_typing != 0)),
            ("p", [is_here]) => Some(Self::Presence(named()?, *is_here != 0)),
            _ => None,
        }
    }
}

/// Where those are told who listen to a topic.
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
    fn each_signal_is_understood_as_it_was_meant() {
        let (user, conversation) = (UserId::parse("käthe.* >").unwrap(), ConversationId::random());
        for signal in [
            Signal::Written(conversation),
            Signal::WrittenFor(user.clone(), conversation),
            Signal::Inbox(user.clone()),
            Signal::Marker(conversation, user.clone()),
            Signal::Typing(conversation, user.clone(), true),
            Signal::Typing(conversation, user.clone(), false),
            Signal::Presence(user.clone(), true),
            Signal::WhoHas(user.clone()),
        ] {
            let (subject, payload) = signal.encode();
            assert!(!subject.contains([' ', '*', '>']), "{subject}");
            assert_eq!(Signal::decode(&subject, &payload), Some(signal));
        }
        for (subject, payload) in [("x.1", b"".as_slice()), ("c.1", b""), ("i.!", b""), ("p.a2V5", b""), ("ask", b"")] {
            assert_eq!(Signal::decode(subject, payload), None, "{subject}");
        }
    }
}
