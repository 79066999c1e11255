//! Tests of the encoding of values.

use strum::VariantArray as _;

use super::message::MENTIONING_MESSAGE_VERSION;
use super::message::MESSAGE_VERSION;
use super::message::PARTS_MESSAGE_VERSION;
use super::*;
use crate::model::Content;
use crate::model::Flags;
use crate::model::IdempotencyKey;
use crate::model::Membership;
use crate::model::Mentions;
use crate::model::Message;
use crate::model::MessageKind;
use crate::model::NotificationLevel;
use crate::model::Parts;
use crate::model::Pin;
use crate::model::{Attachment, Body, IgnoredSenders};
use crate::model::{MessageStep, MessageStepState, MessageSteps};
use crate::store::UnreadReader;

fn message() -> Message {
    let attachment = Attachment {
        url: "u".to_owned(),
        mime_type: "m".to_owned(),
        name: None,
        size_bytes: Some(300),
        width: None,
        height: Some(2),
        duration_ms: None,
        thumbnail_url: None,
    };
    let body = Body::parse("hi".to_owned(), Body::BYTES_MAX, false).unwrap();
    Message {
        conversation: ConversationId(uuid::Uuid::nil()),
        id: MessageId::new(Timestamp::from_micros(7), [3; 8]),
        sender: UserId::parse("al").unwrap(),
        kind: MessageKind::Text,
        content: Some(Content {
            body,
            attachments: vec![attachment],
            metadata: None,
            edited_at: Some(Timestamp::from_micros(1)),
            unknown_parts: Parts::default(),
            ..Content::default()
        }),
        reply_to: Some(MessageId::new(Timestamp::ZERO, [0; 8])),
        client_key: Some(IdempotencyKey::parse("k").unwrap()),
        deleted_at: None,
        has_reactions: false,
        pin: None,
    }
}

#[test]
fn a_message_with_mentions_comes_back_as_it_was() {
    let pin = Pin {
        change: MessageId::new(Timestamp::from_micros(9), [1; 8]),
        by: UserId::parse("ann").unwrap(),
        is_on: true,
    };
    for pin in [None, Some(Box::new(pin))] {
        let plain = message();
        let mentions = Mentions::new(vec![UserId::parse("ben").unwrap()], true);
        let content = plain.content.clone().map(|content| Content {
            mentions,
            ..content
        });
        let message = Message {
            content,
            pin,
            has_reactions: true,
            ..plain
        };
        let bytes = MessageRecord::encode(&message);
        assert_eq!(bytes[0], MENTIONING_MESSAGE_VERSION);
        let record = MessageRecord::decode(&bytes).unwrap();
        assert_eq!(
            record.into_message(message.conversation, message.id),
            message
        );
        assert!(MessageRecord::decode(&bytes[..bytes.len() - 1]).is_err());
    }
}

#[test]
fn a_message_with_parts_comes_back_as_it_was() {
    let pin = Pin {
        change: MessageId::new(Timestamp::from_micros(9), [1; 8]),
        by: UserId::parse("ann").unwrap(),
        is_on: true,
    };
    let mut unknown = Parts::default();
    unknown.put(7, vec![1, 2, 3]);
    let users = vec![UserId::parse("ben").unwrap()];
    let steps = MessageSteps::parse(vec![MessageStep {
        key: "1".to_owned(),
        title: "Read".to_owned(),
        state: MessageStepState::Failed,
        detail: None,
    }]);
    let steps = steps.unwrap();
    for pin in [None, Some(Box::new(pin))] {
        for mentions in [Mentions::default(), Mentions::new(users.clone(), false)] {
            for (duration_ms, unknown_parts) in
                [(Some(9), Parts::default()), (None, unknown.clone())]
            {
                let mut message = message();
                let content = message.content.as_mut().unwrap();
                content.attachments[0].duration_ms = duration_ms;
                content.mentions = mentions.clone();
                content.unknown_parts = unknown_parts;
                content.is_interrupted = duration_ms.is_none();
                content.steps = steps.clone();
                message.pin = pin.clone();
                let bytes = MessageRecord::encode(&message);
                assert_eq!(bytes[0], PARTS_MESSAGE_VERSION);
                let record = MessageRecord::decode(&bytes).unwrap();
                let read = record.into_message(message.conversation, message.id);
                assert_eq!(read, message);
                assert!(MessageRecord::decode(&bytes[..bytes.len() - 1]).is_err());
                let lead = MessageLead::read(&bytes).unwrap();
                assert!(lead.counts_as_unread_for(UnreadReader {
                    user: &UserId::parse("zoe").unwrap(),
                    ignored: &IgnoredSenders::default(),
                }));
            }
        }
    }
}

#[test]
fn flags_have_a_level_only_where_it_is_set() {
    let flags = Flags {
        is_muted: true,
        ..Flags::default()
    };
    assert_eq!(encode_flags(&flags), encode(&flags));
    for &level in NotificationLevel::VARIANTS {
        let flags = Flags {
            level: Some(level),
            ..flags
        };
        assert_eq!(decode_flags(&encode_flags(&flags)).unwrap(), flags);
    }
}

#[test]
fn a_pinned_message_comes_back_as_it_was() {
    for is_on in [true, false] {
        let pin = Pin {
            change: MessageId::new(Timestamp::from_micros(9), [1; 8]),
            by: UserId::parse("ann").unwrap(),
            is_on,
        };
        let message = Message {
            pin: Some(Box::new(pin)),
            ..message()
        };
        let mut bytes = MessageRecord::encode(&message);
        let record = MessageRecord::decode(&bytes).unwrap();
        let read = record.into_message(message.conversation, message.id);
        assert_eq!(read, message);
        bytes.push(0);
        assert!(MessageRecord::decode(&bytes).is_err());
    }
    assert_eq!(MessageRecord::encode(&message())[0], MESSAGE_VERSION);
}

#[test]
fn a_message_comes_back_as_it_was() {
    let message = message();
    let message = Message {
        has_reactions: true,
        ..message
    };
    let record = MessageRecord::decode(&MessageRecord::encode(&message)).unwrap();
    assert_eq!(
        record.into_message(message.conversation, message.id),
        message
    );
}

#[test]
fn a_message_lies_on_disk_as_it_always_did() {
    let bytes = MessageRecord::encode(&message());
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let fields = "02616c00000101b21dd2138140000080808080808080".to_owned()
        + "01016b01026869010175016d0001ac020001020001"
        + "02";
    assert_eq!(hex, format!("02{fields}00"));
    // The encoding before reactions existed.
    let first = [&[1], &bytes[1..bytes.len() - 1]].concat();
    let record = MessageRecord::decode(&first).unwrap();
    assert_eq!(
        record.into_message(message().conversation, message().id),
        message()
    );
    assert!(MessageRecord::decode(&bytes[..bytes.len() - 1]).is_err());
    assert!(MessageRecord::decode(&[bytes.as_slice(), &[0]].concat()).is_err());
}

/// Whether a message counts as unread for a user who ignores nobody, and not for one who ignores its sender.
fn counts(lead: &MessageLead<'_>, user: &str) -> bool {
    let user = UserId::parse(user).unwrap();
    let (nobody, sender) = (
        IgnoredSenders::default(),
        IgnoredSenders::of([UserId::parse("al").unwrap()]),
    );
    let [counts, is_ignored] = [&nobody, &sender].map(|ignored| {
        lead.counts_as_unread_for(UnreadReader {
            user: &user,
            ignored,
        })
    });
    assert!(!is_ignored);
    counts
}

#[test]
fn the_lead_of_a_message_tells_whether_it_is_unread() {
    let bytes = MessageRecord::encode(&message());
    let lead = MessageLead::read(&bytes).unwrap();
    assert!(counts(&lead, "bo"));
    assert!(!counts(&lead, "al"));
}

#[test]
fn what_is_not_a_value_of_ours_is_refused() {
    assert!(matches!(
        decode::<CommitRecord>(&[]),
        Err(DecodeError::Empty)
    ));
    assert!(matches!(
        decode::<CommitRecord>(&[9, 0, 0]),
        Err(DecodeError::Version(9))
    ));
    assert!(matches!(
        decode::<CommitRecord>(&[1, 0, 0, 0]),
        Err(DecodeError::Trailing)
    ));
    assert!(matches!(decode_position(&[1, 0]), Err(DecodeError::Length)));
}

#[test]
fn registers_sort_like_what_they_hold() {
    let early = ReadMarker {
        epoch: 1,
        up_to: OrderKey::MAX,
    };
    let late = ReadMarker {
        epoch: 2,
        up_to: OrderKey::MIN,
    };
    assert!(encode_marker(early) < encode_marker(late));
    assert_eq!(decode_marker(&encode_marker(late)).unwrap(), late);
    assert!(encode_position(OrderKey::MIN) < encode_position(OrderKey::MAX));
}

#[test]
fn an_activity_that_was_given_counts_where_it_is_later() {
    let id = |micros| MessageId::new(Timestamp::from_micros(micros), [0; 8]);
    let mut head = HeadRecord::new(Timestamp::from_micros(50), Some(Timestamp::from_micros(20)));
    head.count(id(10));
    assert_eq!(head.last_activity, Timestamp::from_micros(20));
    head.count(id(30));
    head.count(id(25));
    assert_eq!(head.last_activity, Timestamp::from_micros(30));
    assert_eq!((head.last_message, head.message_count), (Some(id(30)), 3));
}

#[test]
fn a_membership_with_bounds_survives_its_bytes() {
    let key = |byte: u8| crate::model::OrderKey([byte; 16]);
    let plain = Membership::joined(crate::model::Role::Member);
    for bounded in [
        Membership {
            visible_from: key(1),
            ..plain
        },
        Membership {
            cleared_up_to: key(2),
            asked_ttl_seconds: Some(60),
            ..plain
        },
    ] {
        let bytes = encode_membership(&bounded);
        assert_eq!(decode_membership(&bytes).unwrap(), bounded);
        let longer = [bytes.as_slice(), &[0]].concat();
        assert!(decode_membership(&longer).is_err());
    }
}
