//! Keys of safety: restrictions, blocks, bans, and reports with their resolutions.

use super::row::{all_after, user_of};
use super::{Key, Span, Table, Tag, name, rows, rows_with, split_name, turned};
use crate::model::{ConversationId, OrderKey, ReportId, UserId};
use crate::store::Restricted;

/// Restriction of a user. That of everyone has an empty name, which no user has.
pub(crate) fn restriction(restricted: &Restricted) -> Key {
    let name = restricted.as_ref().map_or("", UserId::as_str);
    rows(Tag::Restriction, &[name.as_bytes()])
}

pub(crate) fn restrictions() -> Span {
    all_after(Tag::Restriction, None)
}

/// Parses a key of [`restrictions`].
pub(crate) fn restricted_of(bytes: &[u8]) -> Option<Restricted> {
    match bytes.get(1..)? {
        [] => Some(None),
        _ => user_of(bytes).map(Some),
    }
}

// Blocks: name ‖ 0 ‖ blocked name.

pub(crate) fn block(user: &UserId, blocked: &UserId) -> Key {
    rows(Tag::Block, &[&name(user), blocked.as_str().as_bytes()])
}

pub(crate) fn blocks(user: &UserId) -> Span {
    rows_with(Tag::Block, &[&name(user)])
}

/// Parses the user of a key of [`all_blocks`].
pub(crate) fn blocker_of(bytes: &[u8]) -> Option<UserId> {
    Some(split_name(bytes.get(1..)?)?.0)
}

/// Parses the blocked user of a key of [`blocks`].
pub(crate) fn blocked_of(bytes: &[u8]) -> Option<UserId> {
    let (_, blocked) = split_name(bytes.get(1..)?)?;
    UserId::parse(std::str::from_utf8(blocked).ok()?).ok()
}

// Bans: conversation ‖ name.

pub(crate) fn ban(conversation: ConversationId, user: &UserId) -> Key {
    rows(
        Tag::Ban,
        &[conversation.0.as_bytes(), user.as_str().as_bytes()],
    )
}

pub(crate) fn bans(conversation: ConversationId) -> Span {
    rows_with(Tag::Ban, &[conversation.0.as_bytes()])
}

/// Range of the bans of all conversations.
pub(crate) fn all_bans() -> Span {
    all_after(Tag::Ban, None)
}

pub(crate) fn ban_place(conversation: ConversationId, user: &UserId) -> Span {
    Span::of_key(ban(conversation, user))
}

/// Parses the user of a key of [`bans`].
pub(crate) fn banned_of(bytes: &[u8]) -> Option<UserId> {
    UserId::parse(std::str::from_utf8(bytes.get(17..)?).ok()?).ok()
}

// Reports, and their resolutions: inverted order key, so that the newest comes first.

pub(crate) fn report(position: OrderKey) -> Key {
    rows(Tag::Report, &[&turned(position.0)])
}

pub(crate) fn report_resolution(position: OrderKey) -> Key {
    rows(Tag::ReportResolution, &[&turned(position.0)])
}

/// Reports before one position and after another one.
pub(crate) fn reports(older_than: OrderKey, newer_than: OrderKey) -> Span {
    Span {
        table: Table::Rows,
        start: Span::of_key(report(older_than)).end,
        end: report(newer_than).bytes,
    }
}

/// Range of all reports and all resolutions.
pub(crate) fn all_reports() -> Span {
    Span {
        table: Table::Rows,
        start: vec![Tag::Report as u8],
        end: vec![Tag::ReportResolution as u8 + 1],
    }
}

/// Parses the report of a key of [`all_reports`].
pub(crate) fn report_of(bytes: &[u8]) -> Option<ReportId> {
    ReportId::from_order_key(OrderKey(turned(*bytes.last_chunk::<16>()?)))
}

pub(crate) fn all_blocks() -> Span {
    all_after(Tag::Block, None)
}
