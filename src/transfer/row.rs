//! What a line means to the store: its rows, within the bounds of the model. Rules for characters and depth are younger than some
//! exports: they hold for clients, and what a file of history has is taken as it is.
//!
//! Pure; the store's own say comes later.

use std::collections::HashSet;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::line::{self, FORMAT, Line};
use crate::model::{
    Attachment, Body, Content, Conversation, ConversationId, ConversationKind, Emoji, Flags,
    GroupName, IdempotencyKey, InputHash, Membership, MembershipState, Message, MessageId,
    MessageKind, Metadata, Profile, Role, Timestamp, UserId, text::parse_line,
};
use crate::store::{ImportPositions, ImportRow};

/// How far ahead of the clock an id may lie.
const AHEAD_MICROS_MAX: i64 = 2_000_000;

type Result<T, E = String> = std::result::Result<T, E>;

/// The rows of a line that stands at this number, counted from 1: none for those that only frame the file.
pub(super) fn rows(line: Line, number: u64, now: Timestamp) -> Result<Vec<ImportRow>> {
    match line {
        Line::Header(header) => frame(header),
        Line::User(user) => Ok(vec![user_row(user)?]),
        Line::Conversation(conversation) => conversation_rows(conversation, now),
        Line::Participant(participant) => Ok(vec![participant_row(participant, now)?]),
        Line::Message(message) => Ok(vec![message_row(message, now)?]),
        Line::Reaction(reaction) => Ok(vec![reaction_row(reaction, now)?]),
        Line::End(end) if end.lines == number - 1 => Ok(Vec::new()),
        Line::End(end) => Err(format!(
            "the file is not whole: {} lines should stand before this one, and {} do",
            end.lines,
            number - 1
        )),
    }
}

fn frame(header: line::Header) -> Result<Vec<ImportRow>> {
    moment("exportedAt", header.exported_at)?;
    match header.format {
        None | Some(FORMAT) => Ok(Vec::new()),
        Some(other) => Err(format!(
            "format {other} is not known to this version, which reads format {FORMAT}"
        )),
    }
}

fn user_row(user: line::UserLine) -> Result<ImportRow> {
    let profile = Profile {
        display_name: text(
            "displayName",
            user.display_name,
            Profile::DISPLAY_NAME_BYTES_MAX,
        )?,
        avatar_url: text("avatarUrl", user.avatar_url, Profile::AVATAR_URL_BYTES_MAX)?,
        last_seen_at: moment("lastSeenAt", user.last_seen_at)?,
    };
    Ok(ImportRow::User {
        user: name(&user.username)?,
        profile,
    })
}

fn conversation_rows(line: line::ConversationLine, now: Timestamp) -> Result<Vec<ImportRow>> {
    let id = ConversationId(line.id);
    let kind = line.kind.unwrap_or(ConversationKind::Group);
    let participants = line.participants.unwrap_or_default();
    let count_max = if kind == ConversationKind::Direct {
        2
    } else {
        Conversation::PARTICIPANTS_MAX
    };
    if participants.len() > count_max {
        return Err(format!(
            "`participants` has {} of them, and {count_max} is the most",
            participants.len()
        ));
    }
    let last_activity = moment("lastActivityAt", line.last_activity_at)?;
    let conversation = Conversation {
        id,
        kind,
        name: line
            .name
            .map(|name| GroupName::from_history(&name))
            .transpose()
            .map_err(|error| format!("`name` {error}"))?,
        created_at: moment("createdAt", line.created_at)?
            .or(last_activity)
            .unwrap_or(now),
        created_by: line.created_by.map(|user| name(&user)).transpose()?,
        input_hash: line.input_hash.map(|text| input_hash(&text)).transpose()?,
        is_large: participants.len() > Conversation::FAN_OUT_MAX,
    };
    let mut named = HashSet::with_capacity(participants.len());
    if let Some(twice) = participants
        .iter()
        .find(|participant| !named.insert(participant.username.as_str()))
    {
        return Err(format!("`participants` has {:?} twice", twice.username));
    }
    let mut rows = vec![ImportRow::Conversation {
        conversation,
        last_activity,
    }];
    for participant in participants {
        rows.push(participant_row(participant.of(line.id), now)?);
    }
    Ok(rows)
}

fn participant_row(line: line::ParticipantLine, now: Timestamp) -> Result<ImportRow> {
    let state = line.state.unwrap_or(if line.left_at.is_some() {
        MembershipState::Left
    } else {
        MembershipState::Joined
    });
    let (joined_at, left_at) = (
        moment("joinedAt", line.joined_at)?,
        moment("leftAt", line.left_at)?,
    );
    let since = match state {
        MembershipState::Joined if left_at.is_some() => {
            return Err("`leftAt` is only for one whose `state` is LEFT".to_owned());
        }
        MembershipState::Joined => joined_at,
        MembershipState::Left => left_at,
    };
    let position = |field, id: Option<String>| id.map(|id| message_id(field, &id, now)).transpose();
    Ok(ImportRow::Participant {
        conversation: ConversationId(line.conversation_id),
        user: name(&line.username)?,
        membership: Membership {
            state,
            role: line.role.unwrap_or(Role::Member),
            since,
        },
        positions: ImportPositions {
            read_up_to: position("readUpTo", line.read_up_to)?,
            unread_from: position("unreadFrom", line.unread_from)?,
            delivered_up_to: position("deliveredUpTo", line.delivered_up_to)?,
            flags: Flags {
                is_muted: line.muted.unwrap_or_default(),
                is_pinned: line.pinned.unwrap_or_default(),
                archived_at: moment("archivedAt", line.archived_at)?,
            },
        },
    })
}

fn message_row(line: line::MessageLine, now: Timestamp) -> Result<ImportRow> {
    let kind = line.kind.unwrap_or(MessageKind::Text);
    let deleted_at = moment("deletedAt", line.deleted_at)?;
    let edited_at = moment("editedAt", line.edited_at)?;
    let attachments = attachments(line.attachments.unwrap_or_default())?;
    let metadata_bytes_max = match kind {
        MessageKind::Text => Metadata::BYTES_MAX,
        MessageKind::System => Metadata::SYSTEM_BYTES_MAX,
    };
    let metadata = line
        .metadata
        .map(|json| Metadata::from_history(json.get(), metadata_bytes_max))
        .transpose();
    let metadata = metadata.map_err(|error| format!("`metadata` {error}"))?;
    // A deletion clears the content, whatever the file still has of it.
    let content = match deleted_at {
        Some(_) => None,
        None => {
            let may_be_empty = kind == MessageKind::System || !attachments.is_empty();
            let body =
                Body::from_history(line.body.unwrap_or_default(), Body::BYTES_MAX, may_be_empty)
                    .map_err(|error| format!("`body` {error}"))?;
            Some(Content {
                body,
                attachments,
                metadata,
                edited_at,
            })
        }
    };
    let client_key = line
        .client_key
        .map(|key| IdempotencyKey::parse(&key))
        .transpose();
    Ok(ImportRow::Message(Arc::new(Message {
        conversation: ConversationId(line.conversation_id),
        id: message_id("id", &line.id, now)?,
        sender: name(&line.sender)?,
        kind,
        content,
        reply_to: line
            .reply_to
            .map(|id| message_id("replyTo", &id, now))
            .transpose()?,
        client_key: client_key.map_err(|error| format!("`clientKey` {error}"))?,
        deleted_at,
        has_reactions: false,
    })))
}

fn reaction_row(line: line::ReactionLine, now: Timestamp) -> Result<ImportRow> {
    Ok(ImportRow::Reaction {
        conversation: ConversationId(line.conversation_id),
        message: message_id("messageId", &line.message_id, now)?,
        emoji: Emoji::parse(&line.emoji).map_err(|error| format!("`emoji` {error}"))?,
        user: name(&line.username)?,
    })
}

fn attachments(lines: Vec<line::AttachmentLine>) -> Result<Vec<Attachment>> {
    if lines.len() > Attachment::COUNT_MAX {
        return Err(format!(
            "`attachments` has {} of them, and {} is the most",
            lines.len(),
            Attachment::COUNT_MAX
        ));
    }
    let attachments = lines
        .into_iter()
        .map(attachment)
        .collect::<Result<Vec<_>>>()?;
    let bytes: usize = attachments.iter().map(Attachment::bytes).sum();
    if bytes > Attachment::BYTES_MAX {
        return Err(format!(
            "`attachments` has {bytes} bytes, and {} is the most",
            Attachment::BYTES_MAX
        ));
    }
    Ok(attachments)
}

fn attachment(line: line::AttachmentLine) -> Result<Attachment> {
    let line::AttachmentLine {
        url,
        mime_type,
        name,
        size_bytes,
        width,
        height,
    } = line;
    parse_line(&url, Attachment::URL_BYTES_MAX)
        .map_err(|error| format!("`url` of an attachment {error}"))?;
    if !["http://", "https://"]
        .iter()
        .any(|scheme| url.len() > scheme.len() && url.starts_with(scheme))
    {
        return Err("`url` of an attachment must begin with http:// or https://".to_owned());
    }
    parse_line(&mime_type, Attachment::MIME_TYPE_BYTES_MAX)
        .map_err(|error| format!("`mimeType` of an attachment {error}"))?;
    let name = text("name", name, Attachment::NAME_BYTES_MAX)?;
    if size_bytes.is_some_and(|bytes| bytes > Attachment::SIZE_BYTES_MAX) {
        return Err(format!(
            "`sizeBytes` of an attachment is at most {}",
            Attachment::SIZE_BYTES_MAX
        ));
    }
    Ok(Attachment {
        url,
        mime_type,
        name,
        size_bytes,
        width,
        height,
    })
}

fn name(username: &str) -> Result<UserId> {
    UserId::parse(username).map_err(|error| error.to_string())
}

fn text(field: &str, text: Option<String>, bytes_max: usize) -> Result<Option<String>> {
    if let Some(text) = &text {
        parse_line(text, bytes_max).map_err(|error| format!("`{field}` {error}"))?;
    }
    Ok(text)
}

fn moment(field: &str, text: Option<String>) -> Result<Option<Timestamp>> {
    let Some(text) = text else { return Ok(None) };
    Timestamp::parse(&text)
        .map(Some)
        .ok_or_else(|| format!("`{field}` must be a time from 1970 on, as 2026-03-15T09:00:00Z"))
}

fn message_id(field: &str, text: &str, now: Timestamp) -> Result<MessageId> {
    let id = MessageId::parse(text).ok_or_else(|| {
        format!("`{field}` must be a timeuuid (a UUID of version 1) from 1970 on")
    })?;
    if id.moment() > now.plus_micros(AHEAD_MICROS_MAX) {
        return Err(format!("`{field}` lies in the future, at {}", id.moment()));
    }
    Ok(id)
}

fn input_hash(text: &str) -> Result<InputHash> {
    let bytes = URL_SAFE_NO_PAD
        .decode(text)
        .ok()
        .and_then(|bytes| bytes.try_into().ok());
    bytes
        .map(InputHash)
        .ok_or_else(|| "`inputHash` must be 32 bytes as base64url".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-03-15T13:00:00Z";
    const CONVERSATION: &str = r#""conversationId":"550e8400-e29b-41d4-a716-446655440001""#;
    const MESSAGE: &str = r#""id":"a3e39830-e29b-11ef-8001-000000000001","sender":"alice""#;

    fn read(text: &str) -> Result<Vec<ImportRow>> {
        rows(
            Line::parse(text.as_bytes())?,
            17,
            Timestamp::parse(NOW).unwrap(),
        )
    }

    fn message(rest: &str) -> Result<Message> {
        let rows = read(&format!(
            r#"{{"type":"message",{CONVERSATION},{MESSAGE}{rest}}}"#
        ))?;
        let [ImportRow::Message(message)] = &rows[..] else {
            panic!("one message: {rows:?}")
        };
        Ok(Message::clone(message))
    }

    fn participant(rest: &str) -> Result<(Membership, ImportPositions)> {
        let rows = read(&format!(
            r#"{{"type":"participant",{CONVERSATION},"username":"alice"{rest}}}"#
        ))?;
        let [
            ImportRow::Participant {
                membership,
                positions,
                ..
            },
        ] = rows[..]
        else {
            panic!("one participant: {rows:?}")
        };
        Ok((membership, positions))
    }

    #[test]
    fn the_sample_is_in_order() {
        let sample = include_str!("../cli/demo.jsonl");
        for (number, line) in (1..).zip(sample.lines()) {
            rows(
                Line::parse(line.as_bytes()).unwrap(),
                number,
                Timestamp::parse(NOW).unwrap(),
            )
            .unwrap();
        }
    }

    #[test]
    fn a_conversation_with_its_participants_is_one_unit() {
        let rows = read(
            r#"{"type":"conversation","id":"550e8400-e29b-41d4-a716-446655440001","participants":[{"username":"alice","role":"OWNER"},{"username":"bob"}]}"#,
        );
        let rows = rows.unwrap();
        assert!(
            matches!(&rows[0], ImportRow::Conversation { conversation, last_activity: None } if conversation.created_at.to_string().starts_with("2026-03-15T13"))
        );
        assert!(
            matches!(&rows[1], ImportRow::Participant { membership, .. } if membership.role == Role::Owner)
        );
        assert_eq!(rows.len(), 3);
    }

    #[test]
    fn nobody_takes_part_twice() {
        let line = r#"{"type":"conversation","id":"550e8400-e29b-41d4-a716-446655440001","participants":[{"username":"a"},{"username":"a"}]}"#;
        assert_eq!(read(line).unwrap_err(), "`participants` has \"a\" twice");
    }

    #[test]
    fn a_direct_conversation_has_two_at_most() {
        let line = r#"{"type":"conversation","id":"550e8400-e29b-41d4-a716-446655440001","kind":"DIRECT","participants":[{"username":"a"},{"username":"b"},{"username":"c"}]}"#;
        assert_eq!(
            read(line).unwrap_err(),
            "`participants` has 3 of them, and 2 is the most"
        );
    }

    #[test]
    fn one_who_left_has_left() {
        let left =
            participant(r#","joinedAt":"2026-01-01T00:00:00Z","leftAt":"2026-02-01T00:00:00Z""#)
                .unwrap()
                .0;
        assert_eq!(
            (left.state, left.since),
            (
                MembershipState::Left,
                Timestamp::parse("2026-02-01T00:00:00Z")
            )
        );
        assert!(
            participant(r#","state":"JOINED","leftAt":"2026-02-01T00:00:00Z""#)
                .unwrap_err()
                .contains("LEFT")
        );
    }

    #[test]
    fn ids_are_timeuuids_between_1970_and_now() {
        assert!(message(r#","body":"hello""#).is_ok());
        let id = |id: &str| participant(&format!(r#","readUpTo":"{id}""#)).unwrap_err();
        assert_eq!(
            id("550e8400-e29b-41d4-a716-446655440001"),
            "`readUpTo` must be a timeuuid (a UUID of version 1) from 1970 on"
        );
        assert_eq!(
            id("00000000-0000-1000-8000-000000000000"),
            "`readUpTo` must be a timeuuid (a UUID of version 1) from 1970 on"
        );
        let at =
            |micros| MessageId::new(Timestamp::parse(NOW).unwrap().plus_micros(micros), [0; 8]);
        assert!(participant(&format!(r#","readUpTo":"{}""#, at(2_000_000))).is_ok());
        assert!(id(&at(2_000_001).to_string()).starts_with("`readUpTo` lies in the future"));
    }

    #[test]
    fn a_deletion_clears_the_content() {
        let deleted = message(r#","body":"regretted","deletedAt":"2026-02-01T00:00:00Z""#).unwrap();
        assert_eq!(deleted.content, None);
        assert_eq!(deleted.deleted_at, Timestamp::parse("2026-02-01T00:00:00Z"));
    }

    #[test]
    fn a_message_is_within_its_bounds() {
        assert_eq!(message("").unwrap_err(), "`body` must not be blank");
        assert!(
            message(&format!(r#","body":"{}""#, "x".repeat(16 * 1024 + 1)))
                .unwrap_err()
                .starts_with("`body` has 16385 bytes")
        );
        assert!(message(r#","kind":"SYSTEM","metadata":{"event":"left"}"#).is_ok());
        // As many usernames as one call may name are told of in one message.
        assert!(
            message(&format!(
                r#","kind":"SYSTEM","metadata":"{}""#,
                "x".repeat(2_047)
            ))
            .is_ok()
        );
        assert!(message(r#","body":"x","clientKey":"ü""#).is_err());
        assert!(
            message(&format!(
                r#","body":"x","metadata":"{}""#,
                "x".repeat(2_047)
            ))
            .unwrap_err()
            .starts_with("`metadata` has 2049 bytes")
        );
    }

    #[test]
    fn attachments_are_within_their_bounds() {
        let with = |attachment: &str, count| {
            let list = vec![attachment; count].join(",");
            message(&format!(r#","attachments":[{list}]"#))
        };
        let fine = r#"{"url":"https://a.example/b.png","mimeType":"image/png","sizeBytes":9007199254740992}"#;
        assert_eq!(
            with(fine, 10).unwrap().content.unwrap().attachments.len(),
            10
        );
        assert_eq!(
            with(fine, 11).unwrap_err(),
            "`attachments` has 11 of them, and 10 is the most"
        );
        for wrong in [
            r#"{"url":"javascript:alert(1)","mimeType":"x/y"}"#,
            r#"{"url":"https://","mimeType":"x/y"}"#,
            r#"{"url":"https://a.example","mimeType":""}"#,
            r#"{"url":"https://a.example","mimeType":"x/y","sizeBytes":9007199254740993}"#,
            r#"{"url":"https://a.example","mimeType":"x/y","name":"a\nb"}"#,
        ] {
            assert!(with(wrong, 1).is_err(), "{wrong}");
        }
        let long = format!(
            r#"{{"url":"https://a.example/{}","mimeType":"x/y"}}"#,
            "x".repeat(2_000)
        );
        assert!(with(&long, 3).is_ok());
        assert!(
            with(&long, 4)
                .unwrap_err()
                .contains("bytes, and 8192 is the most")
        );
    }

    #[test]
    fn a_file_that_lost_lines_is_told_from_a_whole_one() {
        assert!(read(r#"{"type":"end","lines":16}"#).unwrap().is_empty());
        assert_eq!(
            read(r#"{"type":"end","lines":20}"#).unwrap_err(),
            "the file is not whole: 20 lines should stand before this one, and 16 do"
        );
        assert!(read(r#"{"type":"header","format":2}"#).is_err());
        assert!(read(r#"{"type":"header","format":1}"#).unwrap().is_empty());
    }

    #[test]
    fn a_reaction_is_one_emoji_to_a_message() {
        let line = |message: &str, emoji: &str| {
            read(&format!(
                r#"{{"type":"reaction",{CONVERSATION},"messageId":"{message}","emoji":"{emoji}","username":"alice"}}"#
            ))
        };
        let id = "a3e39830-e29b-11ef-8001-000000000001";
        assert!(
            matches!(&line(id, "❤").unwrap()[..], [ImportRow::Reaction { emoji, .. }] if emoji.as_str() == "❤\u{fe0f}")
        );
        assert_eq!(
            line(id, "ok").unwrap_err(),
            "`emoji` must be one emoji of Unicode, as 👍"
        );
        assert!(
            line("x", "👍")
                .unwrap_err()
                .starts_with("`messageId` must be a timeuuid")
        );
    }

    #[test]
    fn what_is_written_means_what_it_was_written_of() {
        let lines = [
            r#"{"type":"user","username":"alice","displayName":"Alice","avatarUrl":"https://a.example/a.png","lastSeenAt":"2026-01-01T00:00:00.000001Z"}"#,
            r#"{"type":"user","username":"bob"}"#,
            &format!(
                r#"{{"type":"participant",{CONVERSATION},"username":"alice","role":"OWNER","joinedAt":"2026-01-01T00:00:00.000000Z","readUpTo":"a3e39830-e29b-11ef-8001-000000000001","unreadFrom":"a3e39830-e29b-11ef-8001-000000000001","deliveredUpTo":"a3e39830-e29b-11ef-8001-000000000002","muted":true,"pinned":true,"archivedAt":"2026-01-01T00:00:00.000000Z"}}"#
            ),
            &format!(
                r#"{{"type":"participant",{CONVERSATION},"username":"bob","state":"LEFT","role":"MEMBER","leftAt":"2026-01-01T00:00:00.000000Z"}}"#
            ),
            &format!(
                r#"{{"type":"message",{CONVERSATION},{MESSAGE},"body":"a\n\u0001","attachments":[{{"url":"https://a.example/b.png","mimeType":"image/png","name":"b","sizeBytes":9007199254740992,"width":1,"height":2}}],"metadata":{{"a":[0.1,1e+300,-7,123456789.12345679,null]}},"replyTo":"a3e39830-e29b-11ef-8001-000000000000","clientKey":"k","editedAt":"2026-01-01T00:00:00.000000Z"}}"#
            ),
            &format!(
                r#"{{"type":"message",{CONVERSATION},{MESSAGE},"kind":"SYSTEM","metadata":{{"event":"left"}}}}"#
            ),
            &format!(
                r#"{{"type":"message",{CONVERSATION},{MESSAGE},"clientKey":"k","deletedAt":"2026-01-01T00:00:00.000000Z"}}"#
            ),
            &format!(
                r#"{{"type":"reaction",{CONVERSATION},"messageId":"a3e39830-e29b-11ef-8001-000000000001","emoji":"👍","username":"alice"}}"#
            ),
            r#"{"type":"conversation","id":"550e8400-e29b-41d4-a716-446655440001","kind":"DIRECT","createdAt":"2026-01-01T00:00:00.000000Z"}"#,
            r#"{"type":"conversation","id":"550e8400-e29b-41d4-a716-446655440001","kind":"GROUP","name":"n","createdAt":"2026-01-01T00:00:00.000000Z","createdBy":"alice","lastActivityAt":"2026-01-01T00:00:00.000000Z","inputHash":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}"#,
        ];
        for text in lines {
            let rows = read(text).unwrap();
            let [row] = &rows[..] else {
                panic!("one row of {text}")
            };
            assert_eq!(
                serde_json::to_string(&Line::of(row).unwrap()).unwrap(),
                text
            );
        }
    }
}
