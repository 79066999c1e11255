//! Participants on the cluster: pages of their partition, and single ones by name.
//!
//! Those who have left stay as rows, so a page reads on, in pieces, until it is full.

use super::roster::{ROWS_MAX, Roster, TABLE};
use crate::model::{ConversationId, Direction, MessageId, OrderKey, Page, PageRequest, Participant, UserId};
use crate::store::Result;
use crate::store::cql::Inner;
use crate::store::cql::driver::executor::at_once;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{cells, place, user};
use crate::store::cql::message::register::decode_membership;

statements! {
    /// The statements of this file.
    Statements {
        one: Read "SELECT user_id, membership, read_up_to, delivered_up_to, roster FROM participants_by_conversation WHERE conversation_id = ? AND user_id = ?";
        forward: Read "SELECT user_id, membership, read_up_to, delivered_up_to, roster FROM participants_by_conversation WHERE conversation_id = ? AND user_id >= ? AND user_id < ? ORDER BY user_id ASC LIMIT ?";
        backward: Read "SELECT user_id, membership, read_up_to, delivered_up_to, roster FROM participants_by_conversation WHERE conversation_id = ? AND user_id >= ? AND user_id < ? ORDER BY user_id DESC LIMIT ?";
    }
}

type Columns = (String, Option<Vec<u8>>, Option<Vec<u8>>, Option<Vec<u8>>, Option<Vec<u8>>);

/// A participant as it was given, with the roster beside it. A row without a membership is nobody: a marker that came by itself.
fn read(conversation: ConversationId, columns: Columns) -> Result<Option<(Participant, Roster)>> {
    let (name, membership, read_up_to, delivered_up_to, roster) = columns;
    let Some(membership) = membership else { return Ok(None) };
    let up_to = |bytes: Option<Vec<u8>>| bytes.map_or(Ok(OrderKey::MIN), |bytes| place(TABLE, &bytes));
    let participant = Participant {
        conversation,
        user: user(TABLE, &name)?,
        membership: decode_membership(TABLE, &membership)?,
        read_up_to: up_to(read_up_to)?,
        delivered_up_to: up_to(delivered_up_to)?,
    };
    Ok(Some((participant, Roster::beside(roster.as_deref())?)))
}

fn as_it_counts((one, roster): (Participant, Roster)) -> Participant {
    Participant { membership: roster.as_it_counts(&one.user, one.membership), ..one }
}

pub(crate) async fn participants_by_name(inner: &Inner, keys: &[(ConversationId, UserId)]) -> Result<Vec<Option<Participant>>> {
    let each = async |(conversation, user): &(ConversationId, UserId)| {
        let row = inner.cluster.read_one(&inner.statements.participant.one, cells![*conversation, user]).await?;
        let found = row.map(|columns| read(*conversation, columns)).transpose()?.flatten();
        Ok(found.map(as_it_counts))
    };
    at_once(keys.iter().map(each).collect()).await
}

pub(crate) async fn participant_counts(inner: &Inner, conversations: &[ConversationId]) -> Result<Vec<u64>> {
    let rosters = at_once(conversations.iter().map(|id| inner.roster(*id)).collect()).await?;
    Ok(rosters.into_iter().map(|seen| u64::from(seen.roster.joined)).collect())
}

pub(crate) async fn participants(inner: &Inner, conversation: ConversationId, page: &PageRequest<UserId>) -> Result<Page<Participant>> {
    listed(inner, conversation, page, &|one| one.membership.is_joined()).await
}

pub(crate) async fn receivers(
    inner: &Inner,
    conversation: ConversationId,
    message: MessageId,
    sender: &UserId,
    page: &PageRequest<UserId>,
) -> Result<Page<Participant>> {
    listed(inner, conversation, page, &|one| one.receives(message, sender)).await
}

/// Names from a text on, up to before another.
struct Span {
    from: String,
    before: String,
}

impl Span {
    /// No name is empty, and none has more bytes.
    fn all() -> Self {
        Self { from: String::new(), before: "\u{10ffff}".repeat(UserId::BYTES_MAX / 4 + 1) }
    }
}

/// The smallest text after a name has one more byte, and is none.
fn just_after(user: &UserId) -> String {
    format!("{user}\0")
}

type IsListed<'a> = &'a (dyn Fn(&Participant) -> bool + Sync);

async fn listed(
    inner: &Inner,
    conversation: ConversationId,
    request: &PageRequest<UserId>,
    is_listed: IsListed<'_>,
) -> Result<Page<Participant>> {
    let mut span = Span::all();
    if let Some(after) = &request.after {
        span.from = just_after(after);
    }
    if let Some(before) = &request.before {
        before.as_str().clone_into(&mut span.before);
    }
    let behind = async {
        let Some(cursor) = request.begins_at() else { return Ok(false) };
        let (span, back) = match request.direction {
            Direction::Forward => (Span { before: just_after(cursor), ..Span::all() }, Direction::Backward),
            Direction::Backward => (Span { from: cursor.as_str().to_owned(), ..Span::all() }, Direction::Forward),
        };
        Ok(!read_listed(inner, conversation, span, back, 1, is_listed).await?.is_empty())
    };
    let rows = read_listed(inner, conversation, span, request.direction, request.overread(), is_listed);
    let (rows, has_behind) = futures_util::future::try_join(rows, behind).await?;
    Ok(Page::from_overread(request, rows.into_iter().map(as_it_counts).collect(), has_behind))
}

/// Those behind a name, also who has left, as they were given.
pub(crate) async fn as_given(
    inner: &Inner,
    conversation: ConversationId,
    after: Option<&UserId>,
    limit: usize,
) -> Result<Vec<Participant>> {
    let span = Span { from: after.map(just_after).unwrap_or_default(), ..Span::all() };
    let rows = read_listed(inner, conversation, span, Direction::Forward, limit, &|_| true).await?;
    Ok(rows.into_iter().map(|(one, _)| one).collect())
}

/// The first so many who are listed, in that direction. Where few are, the pieces grow.
async fn read_listed(
    inner: &Inner,
    conversation: ConversationId,
    mut span: Span,
    direction: Direction,
    count: usize,
    is_listed: IsListed<'_>,
) -> Result<Vec<(Participant, Roster)>> {
    let statements = &inner.statements.participant;
    let statement = match direction {
        Direction::Forward => &statements.forward,
        Direction::Backward => &statements.backward,
    };
    let mut found = Vec::with_capacity(count);
    let mut piece = i32::try_from(count).unwrap_or(ROWS_MAX).clamp(1, ROWS_MAX);
    while found.len() < count && span.from < span.before {
        let rows = inner.cluster.read::<Columns>(statement, cells![conversation, span.from.as_str(), span.before.as_str(), piece]).await?;
        let is_last = rows.len() < piece.unsigned_abs() as usize;
        if let Some((name, ..)) = rows.last() {
            match direction {
                Direction::Forward => span.from = format!("{name}\0"),
                Direction::Backward => span.before.clone_from(name),
            }
        }
        for columns in rows {
            found.extend(read(conversation, columns)?.filter(|(one, _)| is_listed(one)));
        }
        if is_last {
            break;
        }
        piece = (piece * 4).min(ROWS_MAX);
    }
    found.truncate(count);
    Ok(found)
}
