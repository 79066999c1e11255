//! Lines: a `type`, the fields of that type, and no others. All fields but the keys are optional, and left out if they hold
//! the default. An export writes `type` first; an import takes any order.

mod field_order;

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use strum::VariantNames;
use uuid::Uuid;

use crate::model::{
    Attachment, ConversationKind, HistoryVisibility, MembershipState, MessageKind, MessageStep,
    MessageStepState, NotificationLevel, ReportOutcome, ReportReason, Role,
};

/// The longest line, without its end.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// The format of an export. Format 1 has no metadata, restrictions, blocks, bans, silences, slow
/// mode, pins, mentions, bounds of histories and reports; format 2 has no parts of messages, durations, thumbnails and steps.
/// Both are still read. Format 3 is the last one: a later version adds parts.
pub const FORMAT: u32 = 3;

#[derive(Debug, serde::Serialize, VariantNames)]
#[serde(tag = "type", rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
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

/// Structs of the lines: the keys in parentheses, and the optional fields, each left out if it holds the default.
macro_rules! lines {
    ($(
        $(#[$attribute:meta])*
        pub struct $name:ident($($key:ident: $key_type:ty),*) {
            $($(#[$doc:meta])* $field:ident: $type:ty,)*
        }
    )*) => {$(
        $(#[$attribute])*
        #[derive(Debug, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct $name {
            $(pub $key: $key_type,)*
            $($(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")] pub $field: Option<$type>,)*
        }
    )*};
}

lines! {
    /// The first line of an export.
    pub struct Header() {
        format: u32,
        exported_at: String,
        /// Tokens of everyone issued before this moment are refused.
        tokens_from: String,
    }

    pub struct UserLine(username: String) {
        display_name: String,
        avatar_url: String,
        metadata: Box<RawValue>,
        last_seen_at: String,
        suspension: SuspensionLine,
        /// Tokens issued before this moment are refused.
        tokens_from: String,
    }

    /// A user whom another user blocks.
    pub struct BlockLine(username: String, blocked: String, since: String) {}

    /// A report of a user or a message.
    pub struct ReportLine(id: String, reporter: String, user: String, reason: ReportReason) {
        note: String,
        conversation_id: Uuid,
        message_id: String,
        /// Copy of the message's body when it was reported.
        body: String,
        attachments: Vec<AttachmentLine>,
        resolution: ResolutionLine,
    }

    /// A resolution in the line of its report.
    pub struct ResolutionLine(outcome: ReportOutcome, by: String, at: String) {}

    /// A suspension in the line of its user.
    pub struct SuspensionLine(since: String) {
        until: String,
        reason: String,
    }

    pub struct ConversationLine(id: Uuid) {
        kind: ConversationKind,
        name: String,
        created_at: String,
        created_by: String,
        last_activity_at: String,
        description: String,
        avatar_url: String,
        metadata: Box<RawValue>,
        slow_mode_seconds: u32,
        app_key: String,
        send_role: Role,
        add_role: Role,
        pin_role: Role,
        history_visibility: HistoryVisibility,
        message_ttl_seconds: u32,
        /// Order key in hexadecimal digits.
        floor: String,
        /// Base64url of 32 bytes.
        input_hash: String,
        /// The short form: participants in the line of their conversation.
        participants: Vec<ShortParticipant>,
    }

    #[derive(Default)]
    pub struct ParticipantLine(conversation_id: Uuid, username: String) {
        state: MembershipState,
        role: Role,
        joined_at: String,
        left_at: String,
        read_up_to: String,
        unread_from: String,
        delivered_up_to: String,
        muted: bool,
        pinned: bool,
        archived_at: String,
        level: NotificationLevel,
        silenced_since: String,
        silenced_until: String,
        /// Order key in hexadecimal digits, as the next one.
        visible_from: String,
        cleared_up_to: String,
        asked_message_ttl_seconds: u32,
        /// Only for one whose `state` is BANNED.
        ban: BanLine,
    }

    /// A ban in the line of the banned user.
    pub struct BanLine(by: String, at: String) {
        until: String,
        reason: String,
    }

    /// A participant in the line of its conversation.
    pub struct ShortParticipant(username: String) {
        state: MembershipState,
        role: Role,
        joined_at: String,
        left_at: String,
        read_up_to: String,
        unread_from: String,
        delivered_up_to: String,
        muted: bool,
        pinned: bool,
        archived_at: String,
        level: NotificationLevel,
    }

    #[derive(Default)]
    pub struct MessageLine(conversation_id: Uuid, id: String, sender: String) {
        kind: MessageKind,
        body: String,
        attachments: Vec<AttachmentLine>,
        metadata: Box<RawValue>,
        reply_to: String,
        mentions: Vec<String>,
        mentions_everyone: bool,
        steps: Vec<StepLine>,
        /// Whether the writer fell silent, and the server sent what there was.
        is_interrupted: bool,
        client_key: String,
        /// Hash of the send, if the content was changed since. Base64url of 32 bytes.
        input_hash: String,
        edited_at: String,
        deleted_at: String,
        /// Parts of the content that only a later version knows: base64url by number.
        parts: BTreeMap<u32, String>,
    }

    pub struct AttachmentLine(url: String, mime_type: String) {
        name: String,
        size_bytes: u64,
        width: u32,
        height: u32,
        duration_ms: u32,
        thumbnail_url: String,
    }

    /// Step of the work behind a message.
    pub struct StepLine(key: String, title: String, state: MessageStepState) {
        detail: String,
    }

    pub struct ReactionLine(conversation_id: Uuid, message_id: String, emoji: String, username: String) {}

    /// A pinned message.
    pub struct PinLine(conversation_id: Uuid, message_id: String, by: String, at: String) {}

    /// The last line of an export: shows that the file is whole. It holds the number of lines before it.
    pub struct End(lines: u64) {}
}

/// Conversion to a struct that has the same fields, and perhaps more.
macro_rules! same_fields {
    ($from:ident => $to:ident: $($field:ident)* $(, ..$rest:expr)?) => {
        impl From<$from> for $to {
            fn from($from { $($field),* }: $from) -> Self {
                Self { $($field,)* $(..$rest)? }
            }
        }
    };
}

same_fields!(Attachment => AttachmentLine: url mime_type name size_bytes width height duration_ms thumbnail_url);
same_fields!(AttachmentLine => Attachment: url mime_type name size_bytes width height duration_ms thumbnail_url);
same_fields!(MessageStep => StepLine: key title state detail);
same_fields!(StepLine => MessageStep: key title state detail);
same_fields!(ShortParticipant => ParticipantLine: username state role joined_at left_at read_up_to unread_from
    delivered_up_to muted pinned archived_at level, ..Self::default());

impl AttachmentLine {
    /// Weight of the attachment, as [`Attachment::bytes`] has it.
    pub(super) fn bytes(&self) -> usize {
        self.url.len() + self.mime_type.len() + self.name.as_ref().map_or(0, String::len) + 32
    }
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
            other => Err(A::Error::unknown_variant(other, Line::VARIANTS)),
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
