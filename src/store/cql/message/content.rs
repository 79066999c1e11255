//! Contents of messages, as the bytes of one cell.

use crate::model::{Content, Mentions, Parts};
use crate::store::Result;
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::driver::next_version;

/// The format of a content, in its first byte.
const CONTENT_VERSION: u8 = 1;
/// The format of a content with mentions, which follow the fields of the first version.
const MENTIONING_VERSION: u8 = 2;

/// The format of a content with parts, which follow the mentions. It is the last one: a later version
/// adds parts.
const PARTS_VERSION: u8 = 3;

/// Opening of a text that the next version, where it is pretended, has a new form for.
const NEW_BODY: &str = "next: ";

pub(crate) fn encode_content(content: &Content) -> Vec<u8> {
    let parts = content.parts();
    let bytes = if !parts.is_empty() {
        postcard::to_extend(&(content, &content.mentions, parts), vec![PARTS_VERSION])
    } else if content.mentions.is_empty() {
        postcard::to_extend(content, vec![CONTENT_VERSION])
    } else {
        postcard::to_extend(&(content, &content.mentions), vec![MENTIONING_VERSION])
    };
    let is_new = content.body.as_str().starts_with(NEW_BODY);
    next_version::encode(bytes.expect("plain data serialises"), is_new)
}

pub(crate) fn decode_content(bytes: &[u8]) -> Result<Content> {
    match next_version::decode(bytes).split_first() {
        Some((&CONTENT_VERSION, rest)) => {
            postcard::from_bytes(rest).map_err(|error| corrupt("messages_by_conversation", error))
        }
        Some((&MENTIONING_VERSION, rest)) => {
            let (content, mentions): (Content, Mentions) = postcard::from_bytes(rest)
                .map_err(|error| corrupt("messages_by_conversation", error))?;
            Ok(Content {
                mentions,
                ..content
            })
        }
        Some((&PARTS_VERSION, rest)) => {
            let (content, mentions, parts): (Content, Mentions, Parts) = postcard::from_bytes(rest)
                .map_err(|error| corrupt("messages_by_conversation", error))?;
            let content = Content {
                mentions,
                ..content
            };
            let content = content.with_parts(parts);
            content.map_err(|error| corrupt("messages_by_conversation", error))
        }
        // A later version wrote it: the message is shown without a body.
        Some((version, _)) if *version > PARTS_VERSION => Ok(Content::default()),
        Some(_) | None => Err(corrupt(
            "messages_by_conversation",
            "a content begins with its version",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        Attachment, Body, MessageStep, MessageStepState, MessageSteps, Metadata, Timestamp, UserId,
    };

    #[test]
    fn a_content_has_the_second_version_only_with_mentions() {
        let plain = Content::default();
        let users = vec![UserId::parse("ann").unwrap()];
        let mentioning = Content {
            mentions: Mentions::new(users, true),
            ..plain.clone()
        };
        for (content, version) in [(plain, CONTENT_VERSION), (mentioning, MENTIONING_VERSION)] {
            let bytes = encode_content(&content);
            assert_eq!(bytes[0], version);
            assert_eq!(decode_content(&bytes).unwrap(), content);
        }
    }

    /// The encoding of contents of version 0.2, as it was released.
    mod version_0_2 {
        use super::super::*;
        use crate::model::{Body, Metadata, Timestamp};

        #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        pub(super) struct Attachment {
            pub(super) url: String,
            pub(super) mime_type: String,
            pub(super) name: Option<String>,
            pub(super) size_bytes: Option<u64>,
            pub(super) width: Option<u32>,
            pub(super) height: Option<u32>,
        }

        #[derive(Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        pub(super) struct Content {
            pub(super) body: Body,
            pub(super) attachments: Vec<Attachment>,
            pub(super) metadata: Option<Metadata>,
            pub(super) edited_at: Option<Timestamp>,
        }

        pub(super) fn encode(content: &Content, mentions: &Mentions) -> Vec<u8> {
            if mentions.is_empty() {
                postcard::to_extend(content, vec![1]).unwrap()
            } else {
                postcard::to_extend(&(content, mentions), vec![2]).unwrap()
            }
        }

        pub(super) fn decode(bytes: &[u8]) -> (Content, Mentions) {
            match bytes.split_first().unwrap() {
                (1, rest) => (postcard::from_bytes(rest).unwrap(), Mentions::default()),
                (2, rest) => postcard::from_bytes(rest).unwrap(),
                (_, _) => (Content::default(), Mentions::default()),
            }
        }
    }

    fn attachment(url: &str, duration_ms: Option<u32>, thumbnail: Option<&str>) -> Attachment {
        Attachment {
            url: url.to_owned(),
            mime_type: "video/mp4".to_owned(),
            name: Some("clip".to_owned()),
            size_bytes: Some(1 << 40),
            width: None,
            height: Some(9),
            duration_ms,
            thumbnail_url: thumbnail.map(str::to_owned),
        }
    }

    #[test]
    fn version_0_2_and_this_one_read_each_other_where_there_is_no_part() {
        let users = vec![UserId::parse("ann").unwrap()];
        for mentions in [Mentions::default(), Mentions::new(users, true)] {
            for attachments in [vec![], vec![attachment("https://a", None, None)]] {
                let content = Content {
                    body: Body::parse("Hello".to_owned(), 16, false).unwrap(),
                    metadata: Some(Metadata::parse("{\"a\":1}", 64).unwrap()),
                    edited_at: Some(Timestamp::from_micros(7)),
                    mentions: mentions.clone(),
                    attachments,
                    ..Content::default()
                };
                let known = content
                    .attachments
                    .iter()
                    .map(|one| version_0_2::Attachment {
                        url: one.url.clone(),
                        mime_type: one.mime_type.clone(),
                        name: one.name.clone(),
                        size_bytes: one.size_bytes,
                        width: one.width,
                        height: one.height,
                    });
                let earlier = version_0_2::Content {
                    body: content.body.clone(),
                    attachments: known.collect(),
                    metadata: content.metadata.clone(),
                    edited_at: content.edited_at,
                };
                let bytes = encode_content(&content);
                assert_eq!(bytes, version_0_2::encode(&earlier, &mentions));
                assert_eq!(decode_content(&bytes).unwrap(), content);
                assert_eq!(version_0_2::decode(&bytes), (earlier, mentions.clone()));
            }
        }
    }

    #[test]
    fn steps_and_an_interruption_are_parts() {
        let steps = MessageSteps::parse(vec![MessageStep {
            key: "1".to_owned(),
            title: "Read".to_owned(),
            state: MessageStepState::Waiting,
            detail: Some("two\nlines".to_owned()),
        }]);
        let steps = steps.unwrap();
        for (steps, is_interrupted) in [
            (steps.clone(), false),
            (steps, true),
            (MessageSteps::default(), true),
        ] {
            let content = Content {
                steps,
                is_interrupted,
                ..Content::default()
            };
            assert!(content.has_parts());
            let bytes = encode_content(&content);
            assert_eq!(bytes[0], PARTS_VERSION);
            assert_eq!(decode_content(&bytes).unwrap(), content);
        }
        assert!(!Content::default().has_parts());
    }

    #[test]
    fn parts_come_back_and_unknown_ones_are_kept() {
        let mut unknown = Parts::default();
        unknown.put(7, vec![1, 2, 3]);
        let users = vec![UserId::parse("ann").unwrap()];
        let clip = attachment("https://a", Some(1_500), Some("https://a/small"));
        let plain = attachment("https://b", None, None);
        for (attachments, unknown_parts) in [
            (vec![plain.clone(), clip.clone()], Parts::default()),
            (vec![clip], unknown.clone()),
            (vec![plain], unknown),
        ] {
            let content = Content {
                attachments,
                unknown_parts,
                mentions: Mentions::new(users.clone(), false),
                ..Content::default()
            };
            let bytes = encode_content(&content);
            assert_eq!(bytes[0], PARTS_VERSION);
            assert_eq!(decode_content(&bytes).unwrap(), content);
            let shown = version_0_2::decode(&bytes);
            assert_eq!(shown, Default::default(), "0.2 shows no body");
        }
    }

    #[test]
    fn a_content_of_a_later_version_has_no_body() {
        assert_eq!(decode_content(&[4, 7, 7, 7]).unwrap(), Content::default());
        assert!(decode_content(&[]).is_err() && decode_content(&[0, 1]).is_err());
    }
}
