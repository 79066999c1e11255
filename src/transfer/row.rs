//! Rows of a line, within the bounds of the model. The store may still refuse a row.
//!
//! Rules for characters and depth hold for clients. They are younger than some exports, so history is
//! imported without them.

mod report;

use std::collections::HashSet;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use self::report::report_row;
use super::line::{self, FORMAT, Line};
use crate::model::{
    Attachment, Ban, Body, Content, Conversation, ConversationId, ConversationKind, Emoji, Flags,
    GroupName, HistorySettings, IdempotencyKey, InputHash, Membership, MembershipState, Mentions,
    Message, MessageId, MessageKind, Metadata, OrderKey, Profile, Restriction, Role, Silence,
    Suspension, Timestamp, UserId, text::parse_line,
};
use crate::store::{ImportPositions, ImportRow};

/// Bound of a time, or of that of an id, ahead of the clock.
const AHEAD_MICROS_MAX: i64 = 2_000_000;

type Result<T, E = String> = std::result::Result<T, E>;

/// The rows of a line, by its number counted from 1. The header and the end have none.
pub(super) fn rows(line: Line, number: u64, now: Timestamp) -> Result<Vec<ImportRow>> {
    match line {
        Line::Header(header) => frame(header, now),
        Line::User(user) => Ok(vec![user_row(user, now)?]),
        Line::Conversation(conversation) => conversation_rows(conversation, now),
        Line::Participant(participant) => Ok(vec![participant_row(participant, now)?]),
        Line::Message(message) => Ok(vec![message_row(message, now)?]),
        Line::Reaction(reaction) => Ok(vec![reaction_row(reaction, now)?]),
        Line::Block(block) => Ok(vec![block_row(block, now)?]),
        Line::Pin(pin) => Ok(vec![pin_row(pin, now)?]),
        Line::Report(report) => Ok(vec![report_row(*report, now)?]),
        Line::End(end) if end.lines == number - 1 => Ok(Vec::new()),
        Line::End(end) => Err(format!(
            "the file is not whole: {} lines should stand before this one, and {} do",
            end.lines,
            number - 1
        )),
    }
}

fn frame(header: line::Header, now: Timestamp) -> Result<Vec<ImportRow>> {
    moment("exportedAt", header.exported_at)?;
    let everyone_revoked = past("tokensFrom", header.tokens_from, now)?;
    match header.format {
        None | Some(1..=FORMAT) => Ok(everyone_revoked
            .map(ImportRow::EveryoneRevoked)
            .into_iter()
            .collect()),
        Some(other) => Err(format!(
            "format {other} is not known to this version, which reads formats 1 to {FORMAT}"
        )),
    }
}

fn restriction(
    suspension: Option<line::SuspensionLine>,
    tokens_from: Option<String>,
    now: Timestamp,
) -> Result<Restriction> {
    let suspension = suspension.map(|line| {
        let since = past("since", Some(line.since), now)?;
        if let Some(reason) = &line.reason {
            parse_line(reason, Suspension::REASON_BYTES_MAX)
                .map_err(|error| format!("`reason` {error}"))?;
        }
        Ok::<_, String>(Suspension {
            since: since.unwrap_or_default(),
            until: moment("until", line.until)?,
            reason: line.reason,
        })
    });
    Ok(Restriction {
        suspension: suspension.transpose()?,
        tokens_from: past("tokensFrom", tokens_from, now)?,
    })
}

fn user_row(user: line::UserLine, now: Timestamp) -> Result<ImportRow> {
    let profile = Profile {
        display_name: text(
            "displayName",
            user.display_name,
            Profile::DISPLAY_NAME_BYTES_MAX,
        )?,
        avatar_url: text("avatarUrl", user.avatar_url, Profile::AVATAR_URL_BYTES_MAX)?,
        metadata: user
            .metadata
            .map(|json| Metadata::from_history(json.get(), Metadata::BYTES_MAX))
            .transpose()
            .map_err(|error| format!("`metadata` {error}"))?,
        last_seen_at: past("lastSeenAt", user.last_seen_at, now)?,
    };
    Ok(ImportRow::User {
        user: living(&user.username)?,
        profile,
        restriction: restriction(user.suspension, user.tokens_from, now)?,
    })
}

fn block_row(line: line::BlockLine, now: Timestamp) -> Result<ImportRow> {
    let (user, blocked) = (living(&line.username)?, living(&line.blocked)?);
    if user == blocked {
        return Err("nobody blocks themselves".to_owned());
    }
    Ok(ImportRow::Block {
        user,
        blocked,
        since: past("since", Some(line.since), now)?.unwrap_or_default(),
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
    let last_activity = past("lastActivityAt", line.last_activity_at, now)?;
    let slow_mode_seconds = line.slow_mode_seconds.unwrap_or_default();
    if slow_mode_seconds > Conversation::SLOW_MODE_SECONDS_MAX {
        return Err(format!(
            "`slowModeSeconds` is at most {}",
            Conversation::SLOW_MODE_SECONDS_MAX
        ));
    }
    let conversation = Conversation {
        id,
        kind,
        name: line
            .name
            .map(|name| GroupName::from_history(&name))
            .transpose()
            .map_err(|error| format!("`name` {error}"))?,
        created_at: past("createdAt", line.created_at, now)?
            .or(last_activity)
            .unwrap_or(now),
        created_by: line.created_by.map(|user| name(&user)).transpose()?,
        input_hash: line.input_hash.map(|text| input_hash(&text)).transpose()?,
        slow_mode_seconds,
        history: HistorySettings {
            visibility: line.history_visibility.unwrap_or_default(),
            ttl_seconds: ttl_seconds("messageTtlSeconds", line.message_ttl_seconds)?,
            floor: bound("floor", line.floor, now)?,
        },
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
        past("joinedAt", line.joined_at, now)?,
        past("leftAt", line.left_at, now)?,
    );
    let since = match state {
        MembershipState::Joined if left_at.is_some() => {
            return Err("`leftAt` is only for one whose `state` is LEFT or BANNED".to_owned());
        }
        MembershipState::Joined => joined_at,
        MembershipState::Left | MembershipState::Banned => left_at,
    };
    let user = living(&line.username)?;
    let ban = ban(state, &user, line.ban, now)?;
    let silence = silence(line.silenced_since, line.silenced_until, now)?;
    let position = |field, id: Option<String>| id.map(|id| message_id(field, &id, now)).transpose();
    Ok(ImportRow::Participant {
        conversation: ConversationId(line.conversation_id),
        user,
        membership: Membership {
            state,
            since,
            banned_until: ban.as_ref().and_then(|ban| ban.until),
            silence,
            visible_from: bound("visibleFrom", line.visible_from, now)?,
            cleared_up_to: bound("clearedUpTo", line.cleared_up_to, now)?,
            asked_ttl_seconds: ttl_seconds(
                "askedMessageTtlSeconds",
                line.asked_message_ttl_seconds,
            )?,
            ..Membership::joined(line.role.unwrap_or(Role::Member))
        },
        ban,
        positions: ImportPositions {
            read_up_to: position("readUpTo", line.read_up_to)?,
            unread_from: position("unreadFrom", line.unread_from)?,
            delivered_up_to: position("deliveredUpTo", line.delivered_up_to)?,
            flags: Flags {
                is_muted: line.muted.unwrap_or_default(),
                is_pinned: line.pinned.unwrap_or_default(),
                archived_at: past("archivedAt", line.archived_at, now)?,
                level: line.level,
            },
        },
    })
}

/// An order key in hexadecimal digits. Without one, there is no bound.
fn bound(field: &str, text: Option<String>, now: Timestamp) -> Result<OrderKey> {
    let Some(text) = text else {
        return Ok(OrderKey::MIN);
    };
    let is_key = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(&text, 16).ok().filter(|_| is_key);
    let number =
        number.ok_or_else(|| format!("`{field}` is an order key: 32 hexadecimal digits"))?;
    let key = OrderKey(number.to_be_bytes());
    not_ahead(field, key.moment(), now)?;
    Ok(key)
}

fn ttl_seconds(field: &str, seconds: Option<u32>) -> Result<Option<u32>> {
    let (min, max) = (
        HistorySettings::TTL_SECONDS_MIN,
        HistorySettings::TTL_SECONDS_MAX,
    );
    match seconds {
        Some(seconds) if !(min..=max).contains(&seconds) => {
            Err(format!("`{field}` is {min} to {max}"))
        }
        seconds => Ok(seconds),
    }
}

/// The ban of one whose state says so.
fn ban(
    state: MembershipState,
    user: &UserId,
    line: Option<line::BanLine>,
    now: Timestamp,
) -> Result<Option<Ban>> {
    let line = match (state, line) {
        (MembershipState::Banned, Some(line)) => line,
        (MembershipState::Banned, None) => {
            return Err("one whose `state` is BANNED has a `ban`".to_owned());
        }
        (MembershipState::Joined | MembershipState::Left, Some(_)) => {
            return Err("`ban` is only for one whose `state` is BANNED".to_owned());
        }
        (MembershipState::Joined | MembershipState::Left, None) => return Ok(None),
    };
    Ok(Some(Ban {
        user: user.clone(),
        by: name(&line.by)?,
        at: past("at", Some(line.at), now)?.unwrap_or_default(),
        until: moment("until", line.until)?,
        reason: text("reason", line.reason, Ban::REASON_BYTES_MAX)?,
    }))
}

fn silence(
    since: Option<String>,
    until: Option<String>,
    now: Timestamp,
) -> Result<Option<Silence>> {
    let (since, until) = (
        past("silencedSince", since, now)?,
        moment("silencedUntil", until)?,
    );
    match since {
        Some(since) => Ok(Some(Silence { since, until })),
        None if until.is_some() => Err("`silencedUntil` goes with `silencedSince`".to_owned()),
        None => Ok(None),
    }
}

fn message_row(line: line::MessageLine, now: Timestamp) -> Result<ImportRow> {
    let kind = line.kind.unwrap_or(MessageKind::Text);
    let deleted_at = past("deletedAt", line.deleted_at, now)?;
    let edited_at = past("editedAt", line.edited_at, now)?;
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
    let mentions = mentions(
        line.mentions.unwrap_or_default(),
        line.mentions_everyone.unwrap_or_default(),
    )?;
    // A deletion clears the content, even if the file still has it.
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
                mentions,
            })
        }
    };
    let client_key = line
        .client_key
        .map(|key| IdempotencyKey::parse(&key))
        .transpose();
    let hash = line.input_hash.map(|text| input_hash(&text)).transpose()?;
    let message = Arc::new(Message {
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
        pin: None,
    });
    Ok(match hash {
        Some(hash) => ImportRow::ChangedMessage(message, hash),
        None => ImportRow::Message(message),
    })
}

fn reaction_row(line: line::ReactionLine, now: Timestamp) -> Result<ImportRow> {
    Ok(ImportRow::Reaction {
        conversation: ConversationId(line.conversation_id),
        message: message_id("messageId", &line.message_id, now)?,
        emoji: Emoji::parse(&line.emoji).map_err(|error| format!("`emoji` {error}"))?,
        user: living(&line.username)?,
    })
}

fn pin_row(line: line::PinLine, now: Timestamp) -> Result<ImportRow> {
    Ok(ImportRow::Pin {
        conversation: ConversationId(line.conversation_id),
        message: message_id("messageId", &line.message_id, now)?,
        by: name(&line.by)?,
        at: past("at", Some(line.at), now)?.unwrap_or_default(),
    })
}

fn mentions(names: Vec<String>, everyone: bool) -> Result<Mentions> {
    let users = names.iter().map(|one| name(one));
    let mentions = Mentions::new(users.collect::<Result<_>>()?, everyone);
    if !mentions.is_within_bounds() {
        return Err(format!(
            "`mentions` has at most {} names of {} bytes together",
            Mentions::COUNT_MAX,
            Mentions::BYTES_MAX
        ));
    }
    Ok(mentions)
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

/// Name of somebody who acts, joins or is described.
fn living(username: &str) -> Result<UserId> {
    UserId::parse_living(username).map_err(|error| error.to_string())
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
    not_ahead(field, id.moment(), now)?;
    Ok(id)
}

/// Time of an event that has happened.
fn past(field: &str, text: Option<String>, now: Timestamp) -> Result<Option<Timestamp>> {
    let moment = moment(field, text)?;
    if let Some(moment) = moment {
        not_ahead(field, moment, now)?;
    }
    Ok(moment)
}

/// Refuses an event of the future: its effects, such as a floor, would hide or order what has not happened yet.
fn not_ahead(field: &str, moment: Timestamp, now: Timestamp) -> Result<()> {
    if moment > now.plus_micros(AHEAD_MICROS_MAX) {
        return Err(format!("`{field}` lies in the future, at {moment}"));
    }
    Ok(())
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
#[path = "row_test.rs"]
mod tests;
