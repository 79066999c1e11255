//! Format of a row as a line, the reverse of `row`. Default values are left out.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::value::RawValue;

use super::line::{self, Line};
use crate::model::{
    Attachment, Ban, HistoryVisibility, InputHash, Membership, MembershipState, Message,
    MessageKind, Metadata, MetadataError, OrderKey, Parts, PostingRoles, Report, Suspension,
};
use crate::store::{ImportPositions, ImportRow};

impl Line {
    /// The line of a row. `Err` if the metadata of a message is damaged.
    pub(super) fn of(row: &ImportRow) -> Result<Self, MetadataError> {
        Ok(match row {
            ImportRow::EveryoneRevoked(moment) => Self::Header(line::Header {
                format: Some(line::FORMAT),
                exported_at: None,
                tokens_from: text(Some(*moment)),
            }),
            ImportRow::User {
                user,
                profile,
                restriction,
            } => Self::User(line::UserLine {
                username: user.to_string(),
                display_name: profile.display_name.clone(),
                avatar_url: profile.avatar_url.clone(),
                metadata: json(profile.metadata.as_ref())?,
                last_seen_at: text(profile.last_seen_at),
                suspension: restriction.suspension.as_ref().map(suspension),
                tokens_from: text(restriction.tokens_from),
            }),
            ImportRow::Block {
                user,
                blocked,
                since,
            } => Self::Block(line::BlockLine {
                username: user.to_string(),
                blocked: blocked.to_string(),
                since: since.to_string(),
            }),
            ImportRow::Conversation {
                conversation,
                last_activity,
                profile,
            } => {
                let roles = conversation.roles();
                Self::Conversation(line::ConversationLine {
                    id: conversation.id.0,
                    kind: Some(conversation.kind),
                    name: conversation
                        .name
                        .as_ref()
                        .map(|name| name.as_str().to_owned()),
                    created_at: text(Some(conversation.created_at)),
                    created_by: text(conversation.created_by.as_ref()),
                    last_activity_at: text(*last_activity),
                    description: profile.description.clone(),
                    avatar_url: profile.avatar_url.clone(),
                    app_key: profile.app_key.as_ref().map(|key| key.as_str().to_owned()),
                    metadata: json(profile.metadata.as_ref())?,
                    slow_mode_seconds: Some(conversation.slow_mode_seconds)
                        .filter(|seconds| *seconds > 0),
                    send_role: Some(roles.send).filter(|role| *role != PostingRoles::DEFAULT.send),
                    add_role: Some(roles.add).filter(|role| *role != PostingRoles::DEFAULT.add),
                    pin_role: roles.pin,
                    history_visibility: Some(conversation.history.visibility)
                        .filter(|visibility| *visibility != HistoryVisibility::All),
                    message_ttl_seconds: conversation.history.ttl_seconds,
                    floor: bound_text(conversation.history.floor),
                    input_hash: hash_text(conversation.input_hash),
                    participants: None,
                })
            }
            ImportRow::Participant {
                conversation,
                user,
                membership,
                positions,
                ban,
            } => Self::Participant(line::ParticipantLine {
                ban: ban.as_ref().map(ban_line),
                ..participant(conversation.0, user.to_string(), membership, positions)
            }),
            ImportRow::Message(message) => Self::Message(message_line(message, None)?),
            ImportRow::ChangedMessage(message, hash) => {
                Self::Message(message_line(message, Some(*hash))?)
            }
            ImportRow::Pin {
                conversation,
                message,
                by,
                at,
            } => Self::Pin(line::PinLine {
                conversation_id: conversation.0,
                message_id: message.to_string(),
                by: by.to_string(),
                at: at.to_string(),
            }),
            ImportRow::Report(report) => Self::Report(Box::new(report_line(report))),
            ImportRow::Reaction {
                conversation,
                message,
                emoji,
                user,
            } => Self::Reaction(line::ReactionLine {
                conversation_id: conversation.0,
                message_id: message.to_string(),
                emoji: emoji.to_string(),
                username: user.to_string(),
            }),
        })
    }
}

fn text(value: Option<impl ToString>) -> Option<String> {
    value.map(|value| value.to_string())
}

fn json(metadata: Option<&Metadata>) -> Result<Option<Box<RawValue>>, MetadataError> {
    let json = metadata.map(Metadata::json).transpose()?;
    Ok(json.map(ToOwned::to_owned))
}

fn hash_text(hash: Option<InputHash>) -> Option<String> {
    hash.map(|hash| URL_SAFE_NO_PAD.encode(hash.0))
}

/// Lines of a list. `None` if it is empty.
fn lines_of<T, L>(list: &[T], line: impl Fn(&T) -> L) -> Option<Vec<L>> {
    (!list.is_empty()).then(|| list.iter().map(line).collect())
}

fn attachment_lines(list: &[Attachment]) -> Option<Vec<line::AttachmentLine>> {
    lines_of(list, |attachment| attachment.clone().into())
}

/// An order key in hexadecimal digits. `None` for no bound.
fn bound_text(key: OrderKey) -> Option<String> {
    (key > OrderKey::MIN).then(|| format!("{key:?}"))
}

fn suspension(suspension: &Suspension) -> line::SuspensionLine {
    line::SuspensionLine {
        since: suspension.since.to_string(),
        until: text(suspension.until),
        reason: suspension.reason.clone(),
    }
}

fn participant(
    conversation_id: uuid::Uuid,
    username: String,
    membership: &Membership,
    positions: &ImportPositions,
) -> line::ParticipantLine {
    let Membership {
        state,
        role,
        since,
        banned_until: _,
        silence,
        visible_from,
        cleared_up_to,
        asked_ttl_seconds,
    } = *membership;
    let (joined_at, left_at) = match state {
        MembershipState::Joined => (since, None),
        MembershipState::Left | MembershipState::Banned => (None, since),
    };
    let ImportPositions {
        read_up_to,
        unread_from,
        delivered_up_to,
        flags,
    } = *positions;
    line::ParticipantLine {
        conversation_id,
        username,
        state: (state != MembershipState::Joined).then_some(state),
        role: Some(role),
        joined_at: text(joined_at),
        left_at: text(left_at),
        read_up_to: text(read_up_to),
        unread_from: text(unread_from),
        delivered_up_to: text(delivered_up_to),
        muted: flags.is_muted.then_some(true),
        pinned: flags.is_pinned.then_some(true),
        archived_at: text(flags.archived_at),
        level: flags.level,
        silenced_since: text(silence.map(|silence| silence.since)),
        silenced_until: text(silence.and_then(|silence| silence.until)),
        visible_from: bound_text(visible_from),
        cleared_up_to: bound_text(cleared_up_to),
        asked_message_ttl_seconds: asked_ttl_seconds,
        ban: None,
    }
}

fn report_line(report: &Report) -> line::ReportLine {
    let Report {
        id,
        reporter,
        user,
        reason,
        note,
        conversation,
        message,
        body,
        attachments,
        resolution,
    } = report;
    line::ReportLine {
        id: id.to_string(),
        reporter: reporter.to_string(),
        user: user.to_string(),
        reason: *reason,
        note: note.clone(),
        conversation_id: conversation.map(|conversation| conversation.0),
        message_id: text(*message),
        body: body.clone(),
        attachments: attachment_lines(attachments),
        resolution: resolution.as_ref().map(|resolution| line::ResolutionLine {
            outcome: resolution.outcome,
            by: resolution.by.to_string(),
            at: resolution.at.to_string(),
        }),
    }
}

fn ban_line(ban: &Ban) -> line::BanLine {
    line::BanLine {
        by: ban.by.to_string(),
        at: ban.at.to_string(),
        until: text(ban.until),
        reason: ban.reason.clone(),
    }
}

fn message_line(
    message: &Message,
    input_hash: Option<InputHash>,
) -> Result<line::MessageLine, MetadataError> {
    let Message {
        conversation,
        id,
        sender,
        kind,
        content,
        reply_to,
        client_key,
        deleted_at,
        has_reactions: _,
        pin: _,
    } = message;
    let content = content.as_ref();
    let metadata = content.and_then(|content| content.metadata.as_ref());
    let mentions = message.mentions();
    Ok(line::MessageLine {
        conversation_id: conversation.0,
        id: id.to_string(),
        sender: sender.to_string(),
        kind: (*kind == MessageKind::System).then_some(*kind),
        body: content
            .map(|content| content.body.as_str())
            .filter(|body| !body.is_empty())
            .map(str::to_owned),
        attachments: content.and_then(|content| attachment_lines(&content.attachments)),
        metadata: json(metadata)?,
        reply_to: text(*reply_to),
        mentions: mentions.and_then(|mentions| lines_of(mentions.users(), ToString::to_string)),
        mentions_everyone: mentions
            .is_some_and(|mentions| mentions.everyone)
            .then_some(true),
        steps: content
            .and_then(|content| lines_of(content.steps.as_slice(), |step| step.clone().into())),
        is_interrupted: content
            .is_some_and(|content| content.is_interrupted)
            .then_some(true),
        client_key: client_key.as_ref().map(|key| key.as_str().to_owned()),
        input_hash: hash_text(input_hash),
        edited_at: text(content.and_then(|content| content.edited_at)),
        deleted_at: text(*deleted_at),
        parts: content
            .map(|content| &content.unknown_parts)
            .and_then(parts),
    })
}

/// The parts that this version does not know.
fn parts(parts: &Parts) -> Option<BTreeMap<u32, String>> {
    let encoded = |(number, part)| (number, URL_SAFE_NO_PAD.encode(part));
    (!parts.is_empty()).then(|| parts.iter().map(encoded).collect())
}
