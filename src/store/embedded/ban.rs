//! Bans in the embedded store: one row for each banned user of a conversation.
//!
//! A change of the membership writes them in its commit. Reads leave out bans that have ended.

use super::read_context::ReadContext;
use crate::model::{Ban, ConversationId, Direction, Page, PageRequest, Timestamp, UserId};
use crate::store::Result;
use crate::store::embedded::engine::db::{MalformedKey, View, corrupt};
use crate::store::embedded::engine::key::{self, Span};
use crate::store::embedded::engine::page::read_page;
use crate::store::embedded::engine::record::{self, BanRecord};

const TABLE: &str = "bans_by_conversation";

pub(super) fn of_users(
    context: &ReadContext,
    conversation: ConversationId,
    users: &[UserId],
) -> Result<Vec<Option<Ban>>> {
    let (view, now) = (context.view(), context.clock.now());
    let each = |user: &UserId| one(&view, conversation, user, now);
    users.iter().map(each).collect()
}

pub(super) fn count(
    context: &ReadContext,
    conversation: ConversationId,
    limit: usize,
) -> Result<usize> {
    let (view, now) = (context.view(), context.clock.now());
    let all = key::bans(conversation);
    Ok(listed(&view, all, Direction::Forward, limit, now)?.len())
}

pub(super) fn page(
    context: &ReadContext,
    conversation: ConversationId,
    request: &PageRequest<UserId>,
) -> Result<Page<Ban>> {
    let (view, now) = (context.view(), context.clock.now());
    read_page(
        &key::bans(conversation),
        request,
        |user| key::ban_place(conversation, user),
        |user| Ok(one(&view, conversation, user, now)?.is_some()),
        |span, direction, limit| listed(&view, span, direction, limit, now),
    )
}

/// All bans of a conversation, those that have ended included.
pub(super) fn stored(view: &View<'_>, conversation: ConversationId) -> Result<Vec<Ban>> {
    view.scan(key::bans(conversation), Direction::Forward)
        .map(|row| decode(&row?))
        .collect()
}

fn one(
    view: &View<'_>,
    conversation: ConversationId,
    user: &UserId,
    now: Timestamp,
) -> Result<Option<Ban>> {
    let record: Option<BanRecord> = view.record(&key::ban(conversation, user))?;
    let ban = record.map(|record| record.into_ban(user.clone()));
    Ok(ban.filter(|ban| ban.holds_at(now)))
}

fn listed(
    view: &View<'_>,
    span: Span,
    direction: Direction,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<Ban>> {
    let mut found = Vec::new();
    for row in view.scan(span, direction) {
        if found.len() == limit {
            break;
        }
        found.extend(Some(decode(&row?)?).filter(|ban| ban.holds_at(now)));
    }
    Ok(found)
}

fn decode((key, value): &(impl AsRef<[u8]>, impl AsRef<[u8]>)) -> Result<Ban> {
    let user = key::banned_of(key.as_ref()).ok_or_else(|| corrupt(TABLE, MalformedKey))?;
    let record: BanRecord =
        record::decode(value.as_ref()).map_err(|error| corrupt(TABLE, error))?;
    Ok(record.into_ban(user))
}
