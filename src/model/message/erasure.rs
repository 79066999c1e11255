//! Erasure of a user from a message: another name takes the place of theirs.

use serde_json::Value;

use super::{Message, MessageKind};
use crate::model::{Metadata, UserId};

impl Message {
    /// The message with [`UserId::erased`] in place of a user: as its sender, in the metadata of a SYSTEM
    /// message, and as the user who pinned it. The key of the user's send is gone. Mentions by other
    /// users stay. `None` if the message does not have the name.
    pub fn without_name(&self, user: &UserId) -> Option<Self> {
        let mut message = self.clone();
        if message.sender == *user {
            message.sender = UserId::erased();
            message.client_key = None;
        }
        if let Some(pin) = message.pin.as_mut().filter(|pin| pin.by == *user) {
            pin.by = UserId::erased();
        }
        if message.kind == MessageKind::System
            && let Some(content) = &mut message.content
            && let Some(metadata) = content.metadata.as_ref().and_then(|one| renamed(one, user))
        {
            content.metadata = Some(metadata);
        }
        (message != *self).then_some(message)
    }
}

/// Metadata of a SYSTEM message with another name in its list of usernames. `None` if it does not list the user.
fn renamed(metadata: &Metadata, user: &UserId) -> Option<Metadata> {
    let mut value: Value = serde_json::from_str(metadata.json().ok()?.get()).ok()?;
    let names = value.get_mut("usernames")?.as_array_mut()?;
    let mut is_changed = false;
    for name in names {
        if name.as_str() == Some(user.as_str()) {
            *name = UserId::erased().as_str().into();
            is_changed = true;
        }
    }
    let renamed = Metadata::new(&value, usize::MAX).ok();
    renamed.filter(|_| is_changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        ChangeId, Content, ConversationId, IdempotencyKey, MessageId, Pin, Timestamp,
    };

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    fn message(sender: &str, kind: MessageKind, metadata: Option<&str>) -> Message {
        Message::new(
            ConversationId::random(),
            MessageId::new(Timestamp::from_micros(7), [0; 8]),
            user(sender),
            kind,
            Content {
                metadata: metadata.map(|text| Metadata::parse(text, 2_048).unwrap()),
                ..Content::default()
            },
        )
    }

    #[test]
    fn the_name_is_replaced_wherever_the_server_put_it() {
        let ann = user("ann");
        let metadata = r#"{"event":"joined","usernames":["ann","ben"]}"#;
        let system = message("ann", MessageKind::System, Some(metadata));
        let erased = system.without_name(&ann).unwrap();
        assert_eq!(erased.sender, UserId::erased());
        let metadata = erased.content.unwrap().metadata.unwrap();
        let expected = r#"{"event":"joined","usernames":["wideroom:erased","ben"]}"#;
        assert_eq!(metadata.as_str(), expected);

        let keyed = Message {
            client_key: Some(IdempotencyKey::parse("k").unwrap()),
            ..message("ann", MessageKind::Text, None)
        };
        assert_eq!(keyed.without_name(&ann).unwrap().client_key, None);

        let pinned = Message {
            pin: Some(Box::new(Pin {
                change: ChangeId::new(Timestamp::from_micros(8), [0; 8]),
                by: ann.clone(),
                is_on: true,
            })),
            ..message("ben", MessageKind::Text, None)
        };
        let erased = pinned.without_name(&ann).unwrap();
        assert_eq!(erased.pin.unwrap().by, UserId::erased());
        assert_eq!(erased.sender, user("ben"));
    }

    #[test]
    fn data_of_clients_stays_as_it_is() {
        let ann = user("ann");
        let metadata = r#"{"usernames":["ann"]}"#;
        let of_client = message("ben", MessageKind::Text, Some(metadata));
        assert_eq!(of_client.without_name(&ann), None);
        let elsewhere = r#"{"event":"renamed","name":"ann","usernames":[]}"#;
        let of_server = message("ben", MessageKind::System, Some(elsewhere));
        assert_eq!(of_server.without_name(&ann), None);
    }
}
