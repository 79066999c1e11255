//! Reads of an export from the embedded store, in the order of the keys.

use crate::model::{
    Conversation, ConversationId, Direction, Emoji, Membership, MessageId, Profile, Timestamp,
    UserId,
};
use crate::store::embedded::cache::row::Entry;
use crate::store::embedded::engine::db::InTable;
use crate::store::embedded::engine::key;
use crate::store::embedded::engine::record::{self, ConversationRecord};
use crate::store::embedded::inbox;
use crate::store::embedded::participant::listed;
use crate::store::embedded::read_context::ReadContext;
use crate::store::{ImportPositions, Result, activity_to_give};

pub(crate) fn users(
    context: &ReadContext,
    after: Option<&UserId>,
    limit: usize,
) -> Result<Vec<(UserId, Profile)>> {
    let view = context.view();
    let each = |row: Result<(fjall::Slice, fjall::Slice)>| {
        let (key, value) = row?;
        let user = key::user_of(&key).in_table("users")?;
        Ok((user, record::decode_profile(&value).in_table("users")?))
    };
    view.scan(key::users_after(after), Direction::Forward)
        .take(limit)
        .map(each)
        .collect()
}

pub(crate) fn conversations(
    context: &ReadContext,
    after: Option<ConversationId>,
    limit: usize,
) -> Result<Vec<(Conversation, Option<Timestamp>)>> {
    let view = context.view();
    let each = |row: Result<(fjall::Slice, fjall::Slice)>| {
        let (key, value) = row?;
        let id = key::conversation_of(&key).in_table("conversations")?;
        let record = ConversationRecord::decode(&value).in_table("conversations")?;
        let (conversation, head) = (record.into_conversation(id), inbox::head(&view, id)?);
        let activity = activity_to_give(&conversation, head.last_message, head.last_activity);
        Ok((conversation, activity))
    };
    view.scan(key::conversations_after(after), Direction::Forward)
        .take(limit)
        .map(each)
        .collect()
}

pub(crate) fn participants(
    context: &ReadContext,
    conversation: ConversationId,
    after: Option<&UserId>,
    limit: usize,
) -> Result<Vec<(UserId, Membership, ImportPositions)>> {
    let view = context.view();
    let all = key::participants(conversation);
    let rest = match after {
        Some(user) => all.behind(&key::participant_place(conversation, user)),
        None => all,
    };
    let people = listed(&view, conversation, rest, limit)?;
    if people.is_empty() {
        return Ok(Vec::new());
    }
    let head = inbox::head(&view, conversation)?;
    let mut found = Vec::with_capacity(people.len());
    for one in people {
        let entry = match one.user.is_agent() {
            true => Entry::default(),
            false => Entry::load(&view, &one.user, conversation)?,
        };
        let row = inbox::row(conversation, &head, entry);
        let positions = ImportPositions::of(&one, row.read_up_to(), row.flags);
        found.push((one.user, one.membership, positions));
    }
    Ok(found)
}

pub(crate) fn reactions(
    context: &ReadContext,
    conversation: ConversationId,
    message: MessageId,
    after: Option<&(Emoji, UserId)>,
    limit: usize,
) -> Result<Vec<(Emoji, UserId)>> {
    let view = context.view();
    let mut found = Vec::new();
    for row in view.scan(
        key::reactions_after(conversation, message, after),
        Direction::Forward,
    ) {
        if found.len() == limit {
            break;
        }
        let (key, value) = row?;
        if record::decode(&value).in_table("reactions_by_message")? {
            found.push(key::reaction_of(&key).in_table("reactions_by_message")?);
        }
    }
    Ok(found)
}
