//! Lines: a `type`, the fields of that type, and no others. All fields but the keys are optional, and left out if they hold
//! the default. An export writes `type` first; an import takes any order.

mod field_order;

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::model::{
    ConversationKind, HistoryVisibility, MembershipState, MessageKind, MessageStepState,
    NotificationLevel, ReportOutcome, ReportReason, Role,
};

/// The longest line, without its end.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// The format of an export. Format 1 has no metadata, restrictions, blocks, bans, silences, slow
/// mode, pins, mentions, bounds of histories and reports; format 2 has no parts of messages, durations, thumbnails and steps.
/// Both are still read. Format 3 is the last one: a later version adds parts.
pub const FORMAT: u32 = 3;

const TYPES: &[&str] = &[
    "header",
    "user",
    "conversation",
    "participant",
    "message",
    "reaction",
    "block",
    "pin",
    "report",
    "end",
];

#[derive(Debug, serde::Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Line {
    Header(Header),
    User(UserLine),
    Conversation(ConversationLine),
    Participant(ParticipantLine),
    Message(MessageLine),
    Reaction(ReactionLine),
    Block(BlockLine),
    Pin(PinLine),
    Report(Box<ReportLine>),
    End(End),
}

impl Line {
    /// Names of the users whom the line brings in.
    pub(super) fn usernames(&self) -> Vec<&str> {
        match self {
            Self::Header(_) | Self::Report(_) | Self::End(_) => Vec::new(),
            Self::User(line) => vec![&line.username],
            Self::Block(line) => vec![&line.username, &line.blocked],
            Self::Conversation(line) => {
                let participants = line.participants.iter().flatten();
                participants.map(|one| one.username.as_str()).collect()
            }
            Self::Participant(line) => vec![&line.username],
            Self::Message(line) => vec![&line.sender],
            Self::Pin(line) => vec![&line.by],
            Self::Reaction(line) => vec![&line.username],
        }
    }
}

/// The first line of an export.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Header {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exported_at: Option<String>,
    /// Tokens of everyone issued before this moment are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_from: Option<String>,
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UserLine {
    pub username: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avatar_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspension: Option<SuspensionLine>,
    /// Tokens issued before this moment are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_from: Option<String>,
}

/// A user whom another user blocks.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BlockLine {
    pub username: String,
    pub blocked: String,
    pub since: String,
}

/// A report of a user or a message.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReportLine {
    pub id: String,
    pub reporter: String,
    pub user: String,
    pub reason: ReportReason,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Copy of the message's body when it was reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attachments: Option<Vec<AttachmentLine>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolution: Option<ResolutionLine>,
}

/// A resolution in the line of its report.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResolutionLine {
    pub outcome: ReportOutcome,
    pub by: String,
    pub at: String,
}

/// A suspension in the line of its user.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SuspensionLine {
    pub since: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConversationLine {
    pub id: Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<ConversationKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_activity_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avatar_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_mode_seconds: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_role: Option<Role>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add_role: Option<Role>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin_role: Option<Role>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history_visibility: Option<HistoryVisibility>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_ttl_seconds: Option<u32>,
    /// Order key in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor: Option<String>,
    /// Base64url of 32 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_hash: Option<String>,
    /// The short form: participants in the line of their conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub participants: Option<Vec<ShortParticipant>>,
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ParticipantLine {
    pub conversation_id: Uuid,
    pub username: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<MembershipState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joined_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_up_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unread_from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered_up_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub muted: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archived_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<NotificationLevel>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silenced_since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silenced_until: Option<String>,
    /// Order key in hexadecimal digits, as the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visible_from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleared_up_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_message_ttl_seconds: Option<u32>,
    /// Only for one whose `state` is BANNED.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ban: Option<BanLine>,
}

/// A ban in the line of the banned user.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BanLine {
    pub by: String,
    pub at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A participant in the line of its conversation.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShortParticipant {
    pub username: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<MembershipState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joined_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_up_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unread_from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered_up_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub muted: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archived_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<NotificationLevel>,
}

impl ShortParticipant {
    pub fn of(self, conversation_id: Uuid) -> ParticipantLine {
        let Self {
            username,
            state,
            role,
            joined_at,
            left_at,
            read_up_to,
            unread_from,
            delivered_up_to,
            muted,
            pinned,
            archived_at,
            level,
        } = self;
        ParticipantLine {
            conversation_id,
            username,
            state,
            role,
            joined_at,
            left_at,
            read_up_to,
            unread_from,
            delivered_up_to,
            muted,
            pinned,
            archived_at,
            level,
            silenced_since: None,
            silenced_until: None,
            visible_from: None,
            cleared_up_to: None,
            asked_message_ttl_seconds: None,
            ban: None,
        }
    }
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MessageLine {
    pub conversation_id: Uuid,
    pub id: String,
    pub sender: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<MessageKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attachments: Option<Vec<AttachmentLine>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mentions: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mentions_everyone: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<StepLine>>,
    /// Whether the writer fell silent, and the server sent what there was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_interrupted: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_key: Option<String>,
    /// Hash of the send, if the content was changed since. Base64url of 32 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edited_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<String>,
    /// Parts of the content that only a later version knows: base64url by number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<BTreeMap<u32, String>>,
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttachmentLine {
    pub url: String,
    pub mime_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thumbnail_url: Option<String>,
}

/// Step of the work behind a message.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StepLine {
    pub key: String,
    pub title: String,
    pub state: MessageStepState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl MessageLine {
    /// A line without a message yet.
    pub(super) fn empty(conversation_id: Uuid) -> Self {
        Self {
            conversation_id,
            id: String::new(),
            sender: String::new(),
            kind: None,
            body: None,
            attachments: None,
            metadata: None,
            reply_to: None,
            mentions: None,
            mentions_everyone: None,
            steps: None,
            is_interrupted: None,
            client_key: None,
            input_hash: None,
            edited_at: None,
            deleted_at: None,
            parts: None,
        }
    }
}

impl AttachmentLine {
    /// Weight of the attachment, as [`crate::model::Attachment::bytes`] has it.
    pub(super) fn bytes(&self) -> usize {
        self.url.len() + self.mime_type.len() + self.name.as_ref().map_or(0, String::len) + 32
    }
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReactionLine {
    pub conversation_id: Uuid,
    pub message_id: String,
    pub emoji: String,
    pub username: String,
}

/// A pinned message.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PinLine {
    pub conversation_id: Uuid,
    pub message_id: String,
    pub by: String,
    pub at: String,
}

/// The last line of an export: shows that the file is whole.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct End {
    /// The number of lines before this one.
    pub lines: u64,
}

impl Line {
    /// Parses a line. The error may quote the line, so it is bounded and has no control characters.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(text).map_err(|error| plain(&error))
    }
}

/// Keeps only the column of the library's position, as lines are numbered by the importer.
fn plain(error: &serde_json::Error) -> String {
    const CHARS_MAX: usize = 300;
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    let reason = text.strip_suffix(&position).unwrap_or(&text);
    let is_shape = error.classify() == serde_json::error::Category::Data;
    let column = if is_shape {
        String::new()
    } else {
        format!(" at column {}", error.column())
    };
    let shown: String = reason
        .chars()
        .map(|char| if char.is_control() { '\u{fffd}' } else { char })
        .take(CHARS_MAX)
        .collect();
    format!("{shown}{column}")
}

impl<'de> Deserialize<'de> for Line {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(LineVisitor)
    }
}

struct LineVisitor;

impl<'de> Visitor<'de> for LineVisitor {
    type Value = Line;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a `type`")
    }

    /// `type` mostly comes first, so that the rest is parsed directly into its own struct, which refuses unknown fields.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Line, A::Error> {
        let mut held = Vec::new();
        let name: String = loop {
            match map.next_key::<String>()? {
                Some(key) if key == "type" => break map.next_value()?,
                Some(key) => held.push((key, map.next_value()?)),
                None => return Err(A::Error::custom("`type` is missing")),
            }
        };
        let rest = field_order::fields(held, map);
        match name.as_str() {
            "header" => Deserialize::deserialize(rest).map(Line::Header),
            "user" => Deserialize::deserialize(rest).map(Line::User),
            "conversation" => Deserialize::deserialize(rest).map(Line::Conversation),
            "participant" => Deserialize::deserialize(rest).map(Line::Participant),
            "message" => Deserialize::deserialize(rest).map(Line::Message),
            "reaction" => Deserialize::deserialize(rest).map(Line::Reaction),
            "block" => Deserialize::deserialize(rest).map(Line::Block),
            "pin" => Deserialize::deserialize(rest).map(Line::Pin),
            "report" => Deserialize::deserialize(rest).map(Line::Report),
            "end" => Deserialize::deserialize(rest).map(Line::End),
            other => Err(A::Error::unknown_variant(other, TYPES)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Line::parse(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn fields_have_any_order() {
        let parse = |text: &str| format!("{:?}", Line::parse(text.as_bytes()));
        assert_eq!(
            parse(r#"{"metadata":{"b":[1]},"username":"alice","type":"user","avatarUrl":"x"}"#),
            parse(r#"{"type":"user","username":"alice","metadata":{"b":[1]},"avatarUrl":"x"}"#)
        );
        assert!(
            error(r#"{"age":7,"username":"alice","type":"user"}"#)
                .starts_with("unknown field `age`, expected one of `username`")
        );
        assert_eq!(
            error(r#"{"username":7,"type":"user"}"#),
            "invalid type: integer `7`, expected a string"
        );
        assert_eq!(error(r#"{"username":"alice"}"#), "`type` is missing");
        assert_eq!(error("{}"), "`type` is missing");
        assert!(error("[]").contains("expected an object with a `type`"));
        assert!(
            error(r#"{"type":"room"}"#)
                .starts_with("unknown variant `room`, expected one of `header`, `user`")
        );
    }

    #[test]
    fn a_field_that_does_not_belong_there_is_refused() {
        assert!(
            error(r#"{"type":"user","username":"alice","age":7}"#)
                .starts_with("unknown field `age`, expected one of `username`")
        );
        assert!(
            error(r#"{"type":"user","username":"a","username":"b"}"#)
                .starts_with("duplicate field `username`")
        );
        assert!(
            error(r#"{"type":"user","type":"user","username":"b"}"#)
                .starts_with("unknown field `type`")
        );
        assert_eq!(error(r#"{"type":"user"}"#), "missing field `username`");
    }

    #[test]
    fn what_is_no_json_is_named_by_its_column() {
        assert_eq!(
            error(r#"{"type":"user","#),
            "EOF while parsing a value at column 15"
        );
        assert!(error(r#"{"type":"user","username":"alice"} x"#).ends_with("at column 36"));
    }

    #[test]
    fn an_error_shows_no_control_characters_and_has_an_end() {
        let text = format!(r#"{{"type":"user","\u001b[2J{}":1}}"#, "x".repeat(5_000));
        assert!(!error(&text).chars().any(char::is_control));
        assert!(error(&text).len() < 1_000);
    }

    #[test]
    fn each_type_is_known() {
        for text in [
            r#"{"type":"header","format":1,"exportedAt":"2026-03-15T09:00:00Z"}"#,
            r#"{"type":"user","username":"alice"}"#,
            r#"{"type":"conversation","id":"550e8400-e29b-41d4-a716-446655440001"}"#,
            r#"{"type":"participant","conversationId":"550e8400-e29b-41d4-a716-446655440001","username":"alice","state":"LEFT"}"#,
            r#"{"type":"message","conversationId":"550e8400-e29b-41d4-a716-446655440001","id":"x","sender":"alice","metadata":null}"#,
            r#"{"type":"reaction","conversationId":"550e8400-e29b-41d4-a716-446655440001","messageId":"x","emoji":"x","username":"a"}"#,
            r#"{"type":"end","lines":7}"#,
        ] {
            assert!(Line::parse(text.as_bytes()).is_ok(), "{text}");
        }
    }
}
