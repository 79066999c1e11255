//! What an export reads of the cluster: whole tables in the order of their tokens, and of each conversation its own partitions.

use uuid::Uuid;

use super::token_scan::{behind, row_limit};
use crate::model::{Conversation, ConversationId, Direction, Emoji, Membership, MessageId, Profile, Timestamp, UserId};
use crate::store::cql::Inner;
use crate::store::cql::driver::executor::at_once;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{cells, user};
use crate::store::cql::inbox::row::row_as_written;
use crate::store::cql::message::bucket_merge::walk;
use crate::store::cql::message::id_range::Span;
use crate::store::cql::message::register::LastMessage;
use crate::store::cql::participant::page::as_given;
use crate::store::cql::participant::profile::told;
use crate::store::cql::send::creation::read_conversation;
use crate::store::{ImportPlaces, Result, StoredMessage, activity_to_give};

/// Rows of one read.
const ROWS_MAX: usize = 1_000;

macro_rules! users {
    () => {
        "SELECT user_id, display_name, avatar_url, last_seen_at FROM users WHERE token(user_id) >= "
    };
}

macro_rules! conversations {
    () => {
        "SELECT conversation_id, kind, name, created_at, created_by, input_hash, is_large, last_message, last_activity FROM conversations \
         WHERE token(conversation_id) >= "
    };
}

statements! {
    /// The statements of this file.
    Statements {
        users: Read concat!(users!(), "? LIMIT ?");
        users_from: Read concat!(users!(), "token(?) LIMIT ?");
        conversations: Read concat!(conversations!(), "? LIMIT ?");
        conversations_from: Read concat!(conversations!(), "token(?) LIMIT ?");
    }
}

type UserColumns = (String, Option<String>, Option<String>, Option<i64>);

pub(crate) async fn users(inner: &Inner, after: Option<&UserId>, limit: usize) -> Result<Vec<(UserId, Profile)>> {
    let statements = &inner.statements.export;
    let is_after = |row: &UserColumns| after.is_some_and(|after| after.as_str() == row.0);
    let rows = behind(inner, (&statements.users, &statements.users_from), after.map(|user| cells![user]), limit, is_after).await?;
    let each = |(name, display_name, avatar_url, last_seen_at): UserColumns| {
        let last_seen_at = last_seen_at.map(Timestamp::from_micros);
        Ok((user("users", &name)?, Profile { display_name: told(display_name), avatar_url: told(avatar_url), last_seen_at }))
    };
    rows.into_iter().map(each).collect()
}

type ConversationColumns =
    (Uuid, Option<i8>, Option<String>, Option<i64>, Option<String>, Option<Vec<u8>>, Option<bool>, Option<Vec<u8>>, Option<i64>);

/// Rows that are no conversation, but only where one would stand, do not count.
pub(crate) async fn conversations(
    inner: &Inner,
    mut after: Option<ConversationId>,
    limit: usize,
) -> Result<Vec<(Conversation, Option<Timestamp>)>> {
    let statements = &inner.statements.export;
    let statements = (&statements.conversations, &statements.conversations_from);
    let mut found = Vec::with_capacity(limit);
    loop {
        let wanted = (limit - found.len()).min(ROWS_MAX);
        let is_after = |row: &ConversationColumns| after.is_some_and(|after| after.0 == row.0);
        let rows = behind(inner, statements, after.map(|id| cells![id]), wanted, is_after).await?;
        let is_last = rows.len() < wanted;
        after = rows.last().map_or(after, |row| Some(ConversationId(row.0)));
        for row in rows {
            found.extend(conversation_of(row)?);
        }
        if is_last || found.len() == limit {
            return Ok(found);
        }
    }
}

fn conversation_of(columns: ConversationColumns) -> Result<Option<(Conversation, Option<Timestamp>)>> {
    let (id, kind, name, created_at, created_by, input_hash, is_large, last_message, last_activity) = columns;
    let columns = (kind, name, created_at, created_by, input_hash, is_large);
    let Some(conversation) = read_conversation(ConversationId(id), columns)? else { return Ok(None) };
    let last = last_message.map(|bytes| LastMessage::decode("conversations", &bytes)).transpose()?;
    let last_activity = last_activity.map_or(conversation.created_at, Timestamp::from_micros);
    let activity = activity_to_give(&conversation, last.map(|last| last.id), last_activity);
    Ok(Some((conversation, activity)))
}

pub(crate) async fn participants(
    inner: &Inner,
    conversation: ConversationId,
    after: Option<&UserId>,
    limit: usize,
) -> Result<Vec<(UserId, Membership, ImportPlaces)>> {
    let people = as_given(inner, conversation, after, limit).await?;
    let each = people.into_iter().map(async |one| {
        let row = row_as_written(inner, &one.user, conversation).await?;
        let places = ImportPlaces::of(&one, row.read_up_to(), row.flags);
        Ok((one.user, one.membership, places))
    });
    at_once(each.collect()).await
}

/// From the oldest on, behind one of them.
pub(crate) async fn messages(
    inner: &Inner,
    conversation: ConversationId,
    after: Option<MessageId>,
    limit: usize,
) -> Result<Vec<StoredMessage>> {
    let rest = after.map_or(Span::WHOLE, |id| Span::WHOLE.behind(id.order_key()));
    walk(inner, conversation, rest, Direction::Forward, limit).await
}

pub(crate) async fn reactions(
    inner: &Inner,
    conversation: ConversationId,
    message: MessageId,
    after: Option<&(Emoji, UserId)>,
    limit: usize,
) -> Result<Vec<(Emoji, UserId)>> {
    let mut found = Vec::new();
    let mut place = after.map(|(emoji, user)| (emoji.as_str().to_owned(), user.as_str().to_owned()));
    while found.len() < limit {
        let rows = inner.reaction_rows(conversation, message, place.as_ref(), row_limit(ROWS_MAX)).await?;
        let is_last = rows.len() < ROWS_MAX;
        place = rows.last().map(|(emoji, name, _)| (emoji.clone(), name.clone()));
        for (emoji, name, is_on) in rows {
            if is_on == Some(true) {
                found.push((Emoji::kept(&emoji), user("reactions_by_message", &name)?));
            }
        }
        if is_last {
            break;
        }
    }
    found.truncate(limit);
    Ok(found)
}
