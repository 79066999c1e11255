//! Rows of a line, within the bounds of the model. The store may still refuse a row.
//!
//! Rules for characters and depth hold for clients. They are younger than some exports, so history is
//! imported without them.

mod message;
mod report;

use std::collections::HashSet;
use std::fmt::Display;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::value::RawValue;

use self::message::{attachments, message_rows};
use self::report::report_row;
use super::line::{self, FORMAT, Line};
use super::rules::{ImportRules, LineContext, LineRows, Losses};
use crate::model::{
    AppKey, Ban, Body, Conversation, ConversationId, ConversationKind, ConversationProfile, Emoji,
    Flags, GroupName, HistorySettings, InputHash, Membership, MembershipState, MessageId, Metadata,
    OrderKey, PostingRoles, Profile, Restriction, Role, Silence, Suspension, Timestamp, UserId,
    text::parse_line,
};
use crate::store::{ImportPositions, ImportRow};

/// Bound of a time, or of that of an id, ahead of the clock.
const AHEAD_MICROS_MAX: i64 = 2_000_000;
/// Hint of a refusal that the operator can lift.
const LOSSY: &str = "an import with --lossy keeps";

type Result<T, E = String> = std::result::Result<T, E>;

/// The rows of a line. The header and the end have none.
pub(super) fn rows(line: Line, context: &LineContext) -> Result<LineRows> {
    let LineContext { number, now, .. } = *context;
    let rows = match line {
        Line::Message(message) => return message_rows(message, context),
        Line::Reaction(reaction) => return reaction_rows(reaction, context),
        Line::Header(header) => frame(header, now)?,
        Line::User(user) => vec![user_row(user, now)?],
        Line::Conversation(conversation) => conversation_rows(conversation, now)?,
        Line::Participant(participant) => vec![participant_row(participant, now)?],
        Line::Block(block) => vec![block_row(block, now)?],
        Line::Pin(pin) => vec![pin_row(pin, now)?],
        Line::Report(report) => vec![report_row(*report, now)?],
        Line::End(end) if end.lines == number - 1 => Vec::new(),
        Line::End(end) => {
            return Err(format!(
                "the file is not whole: it has {1} lines before this one, and should have {0}",
                end.lines,
                number - 1
            ));
        }
    };
    Ok(rows.into())
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
        Ok::<_, String>(Suspension {
            since: past("since", Some(line.since), now)?.unwrap_or_default(),
            reason: text("reason", line.reason, Suspension::REASON_BYTES_MAX)?,
            until: moment("until", line.until)?,
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
        metadata: metadata(user.metadata, Metadata::BYTES_MAX)?,
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
        return Err("`blocked` must be another user than `username`".to_owned());
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
            "`participants` has {} entries, and {count_max} is the most",
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
    let profile = ConversationProfile {
        description: body(
            "description",
            line.description,
            ConversationProfile::DESCRIPTION_BYTES_MAX,
            false,
        )?,
        avatar_url: text("avatarUrl", line.avatar_url, Profile::AVATAR_URL_BYTES_MAX)?,
        metadata: metadata(line.metadata, Metadata::BYTES_MAX)?,
        app_key: app_key(kind, line.app_key)?,
    };
    let conversation = Conversation {
        id,
        kind,
        name: optional("name", line.name, |name| GroupName::from_history(&name))?,
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
            roles: posting_roles(kind, [line.send_role, line.add_role, line.pin_role])?,
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
    if let (ConversationKind::Direct, [alone]) = (kind, participants.as_slice()) {
        let user = living(&alone.username)?;
        if !id.is_with_oneself(&user) {
            return Err(format!(
                "a direct conversation with one participant is one with oneself, and its `id` says so: \
                 write {} in all its lines",
                id.with_oneself(&user)
            ));
        }
    }
    let mut rows = vec![ImportRow::Conversation {
        conversation,
        last_activity,
        profile,
    }];
    for participant in participants {
        let participant = line::ParticipantLine {
            conversation_id: line.id,
            ..participant.into()
        };
        rows.push(participant_row(participant, now)?);
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
            return Err("`leftAt` is only for a `state` of LEFT or BANNED".to_owned());
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

/// A key of the app's own, which groups alone have.
fn app_key(kind: ConversationKind, key: Option<String>) -> Result<Option<AppKey>> {
    if key.is_some() && kind != ConversationKind::Group {
        return Err("only a group has an `appKey`".to_owned());
    }
    optional("appKey", key, |key| AppKey::parse(&key))
}

/// The roles of sends, additions and pins, which groups alone have.
fn posting_roles(
    kind: ConversationKind,
    [send, add, pin]: [Option<Role>; 3],
) -> Result<PostingRoles> {
    let roles = PostingRoles {
        send: send.unwrap_or(PostingRoles::DEFAULT.send),
        add: add.unwrap_or(PostingRoles::DEFAULT.add),
        pin,
    };
    if kind != ConversationKind::Group && !roles.is_default() {
        return Err("only a group has `sendRole`, `addRole` and `pinRole`".to_owned());
    }
    Ok(roles)
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
            return Err("a participant whose `state` is BANNED must have a `ban`".to_owned());
        }
        (MembershipState::Joined | MembershipState::Left, Some(_)) => {
            return Err("`ban` is only for a `state` of BANNED".to_owned());
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

fn reaction_rows(line: line::ReactionLine, context: &LineContext) -> Result<LineRows> {
    let (emoji, is_named) = emoji(&line.emoji, context.rules)?;
    let row = ImportRow::Reaction {
        conversation: ConversationId(line.conversation_id),
        message: message_id("messageId", &line.message_id, context.now)?,
        emoji,
        user: living(&line.username)?,
    };
    Ok(LineRows {
        rows: vec![row],
        losses: Losses {
            named_emoji: u64::from(is_named),
            ..Losses::default()
        },
    })
}

/// An emoji, or one by its short name, as `:tada:`; and whether it is the name of a custom one.
fn emoji(text: &str, rules: ImportRules) -> Result<(Emoji, bool)> {
    let refusal = match Emoji::parse(text) {
        Ok(emoji) => return Ok((emoji, false)),
        Err(error) => error,
    };
    if let Some(emoji) = Emoji::of_short_name(text) {
        return Ok((emoji, false));
    }
    match Emoji::of_custom_name(text) {
        Some(named) if rules.is_export && named.as_str() == text => Ok((named, false)),
        Some(named) if rules.is_lossy => Ok((named, true)),
        Some(_) => Err(format!(
            "`emoji` {refusal}; {LOSSY} the name of a custom one"
        )),
        None => Err(format!("`emoji` {refusal}")),
    }
}

fn pin_row(line: line::PinLine, now: Timestamp) -> Result<ImportRow> {
    Ok(ImportRow::Pin {
        conversation: ConversationId(line.conversation_id),
        message: message_id("messageId", &line.message_id, now)?,
        by: name(&line.by)?,
        at: past("at", Some(line.at), now)?.unwrap_or_default(),
    })
}

fn name(username: &str) -> Result<UserId> {
    UserId::parse(username).map_err(|error| error.to_string())
}

/// Name of somebody who acts, joins or is described.
fn living(username: &str) -> Result<UserId> {
    UserId::parse_living(username).map_err(|error| error.to_string())
}

/// Parses a field that a line may leave out. An error names the field.
fn optional<T, U, E: Display>(
    field: &str,
    value: Option<T>,
    parse: impl FnOnce(T) -> Result<U, E>,
) -> Result<Option<U>> {
    let parsed = value.map(parse).transpose();
    parsed.map_err(|error| format!("`{field}` {error}"))
}

fn text(field: &str, text: Option<String>, bytes_max: usize) -> Result<Option<String>> {
    optional(field, text, |text| {
        parse_line(&text, bytes_max).map(|()| text)
    })
}

/// A text of several lines.
fn body(
    field: &str,
    text: Option<String>,
    bytes_max: usize,
    may_be_empty: bool,
) -> Result<Option<String>> {
    let body = optional(field, text, |text| {
        Body::from_history(text, bytes_max, may_be_empty)
    })?;
    Ok(body.map(|body| body.as_str().to_owned()))
}

fn metadata(json: Option<Box<RawValue>>, bytes_max: usize) -> Result<Option<Metadata>> {
    optional("metadata", json, |json| {
        Metadata::from_history(json.get(), bytes_max)
    })
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
