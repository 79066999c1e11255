//! Histories: their pages, single messages out of them, what of them is unread, and where they end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlTimeuuid;

use super::bucket::Bucket;
use super::bucket_index::{candidates, which_exist};
use super::bucket_merge::{Row, walk};
use super::id_range::Span;
use super::register::{LastMessage, newest_of};
use super::row::{MessageColumns, message_columns, read_message};
use crate::model::{
    ConversationId, Cut, Direction, Message, MessageId, MessageKind, OrderKey, Page, PageRequest, TimeUuid, Unread, UserId,
};
use crate::store::cql::Inner;
use crate::store::cql::driver::executor::at_once;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{cells, list, time_uuid};
use crate::store::{Result, StoredMessage, UnreadQuestion};

/// A head: its last message and its newest change.
type Newest = (Option<Vec<u8>>, Option<Vec<u8>>);

/// Ids in one `IN`.
const IDS_MAX: usize = 20;

/// A range of one bucket, in one of both directions of time.
macro_rules! range_of_bucket {
    ($columns:expr, $order:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM messages_by_conversation WHERE conversation_id = ? AND width = ? AND start = ? AND message_id >= ? AND message_id <= ? \
             ORDER BY message_id ",
            $order,
            " LIMIT ?"
        )
    };
}

statements! {
    /// The statements of this file.
    Statements {
        older: Read range_of_bucket!(message_columns!(), "DESC");
        newer: Read range_of_bucket!(message_columns!(), "ASC");
        older_leads: Read range_of_bucket!("message_id, sender_id, kind, deleted_at", "DESC");
        newer_leads: Read range_of_bucket!("message_id, sender_id, kind, deleted_at", "ASC");
        by_id: Read concat!(
            "SELECT ",
            message_columns!(),
            " FROM messages_by_conversation WHERE conversation_id = ? AND width = ? AND start = ? AND message_id IN ?"
        );
        last_message: Read "SELECT last_message FROM conversations WHERE conversation_id = ?";
        newest: Read "SELECT last_message, newest_change FROM conversations WHERE conversation_id = ?";
    }
}

impl Row for Arc<Message> {
    type Columns = MessageColumns;

    fn statement(inner: &Inner, direction: Direction) -> &PreparedStatement {
        match direction {
            Direction::Forward => &inner.statements.history.newer,
            Direction::Backward => &inner.statements.history.older,
        }
    }

    fn read(conversation: ConversationId, columns: MessageColumns) -> Result<(TimeUuid, Option<Self>)> {
        let id = time_uuid("messages_by_conversation", columns.0)?;
        Ok((id, read_message(conversation, columns)?.map(Arc::new)))
    }

    fn place(&self) -> OrderKey {
        self.id.order_key()
    }
}

impl Row for StoredMessage {
    type Columns = MessageColumns;

    fn statement(inner: &Inner, direction: Direction) -> &PreparedStatement {
        Arc::<Message>::statement(inner, direction)
    }

    fn read(conversation: ConversationId, columns: MessageColumns) -> Result<(TimeUuid, Option<Self>)> {
        let id = time_uuid("messages_by_conversation", columns.0)?;
        let read = read_message(conversation, columns).transpose();
        Ok((id, read.map(|read| Self::of(id, read)).transpose()?))
    }

    fn place(&self) -> OrderKey {
        self.id.order_key()
    }
}

/// What must be known of a message to say whether it is one, and whether it is unread.
pub(crate) struct Lead {
    id: MessageId,
    sender: String,
    is_text: bool,
    is_deleted: bool,
}

impl Row for Lead {
    type Columns = (CqlTimeuuid, Option<String>, Option<i8>, Option<i64>);

    fn statement(inner: &Inner, direction: Direction) -> &PreparedStatement {
        match direction {
            Direction::Forward => &inner.statements.history.newer_leads,
            Direction::Backward => &inner.statements.history.older_leads,
        }
    }

    fn read(_: ConversationId, (id, sender, kind, deleted_at): Self::Columns) -> Result<(TimeUuid, Option<Self>)> {
        let id = time_uuid("messages_by_conversation", id)?;
        let lead = |sender| Self { id, sender, is_text: kind == Some(MessageKind::Text as i8), is_deleted: deleted_at.is_some() };
        Ok((id, sender.map(lead)))
    }

    fn place(&self) -> OrderKey {
        self.id.order_key()
    }
}

/// A list has the newest first: its forward is time's backward.
const fn of_time(direction: Direction) -> Direction {
    match direction {
        Direction::Forward => Direction::Backward,
        Direction::Backward => Direction::Forward,
    }
}

pub(crate) async fn history(
    inner: &Inner,
    conversation: ConversationId,
    cut: &Cut<OrderKey>,
    request: &PageRequest<OrderKey>,
) -> Result<Page<Arc<Message>>> {
    let whole = Span::of_cut(cut);
    let mut window = whole;
    if let Some(after) = request.after {
        window = window.before(after);
    }
    if let Some(before) = request.before {
        window = window.behind(before);
    }
    let mut wanted = request.overread();
    // The cursor's own row is nearly always there: read with the page, it says that something lies behind it.
    let own = request.begins_at().copied();
    let behind = own.map(|own| match request.direction {
        Direction::Forward => whole.from(own),
        Direction::Backward => whole.up_to(own),
    });
    if let Some(own) = own.filter(|own| whole.has(*own)) {
        wanted += 1;
        window = match request.direction {
            Direction::Forward => whole.up_to(own),
            Direction::Backward => whole.from(own),
        };
    }
    let direction = of_time(request.direction);
    let mut messages: Vec<Arc<Message>> = walk(inner, conversation, window, direction, wanted).await?;
    if let Some(newest) = messages.iter().map(|message| message.id).max() {
        inner.saw_message(conversation, newest);
    }
    let has_own = own.is_some() && messages.first().map(Row::place) == own;
    let has_behind = match behind {
        _ if has_own => true,
        Some(behind) => !walk::<Lead>(inner, conversation, behind, request.direction, 1).await?.is_empty(),
        None => false,
    };
    if has_own {
        messages.remove(0);
    }
    messages.truncate(request.overread());
    Ok(Page::from_overread(request, messages, has_behind))
}

pub(crate) async fn messages_at(inner: &Inner, places: &[(ConversationId, OrderKey)]) -> Result<Vec<Option<Arc<Message>>>> {
    let each = |(conversation, place): &(ConversationId, OrderKey)| {
        let (conversation, span) = (*conversation, Span::WHOLE.up_to(*place));
        async move { Ok(walk(inner, conversation, span, Direction::Backward, 1).await?.pop()) }
    };
    at_once(places.iter().map(each).collect()).await
}

type Found = HashMap<(ConversationId, MessageId), Arc<Message>>;

/// First from the buckets that are known to be there; what is not found so, from those of which the index says that they are.
pub(crate) async fn messages(inner: &Inner, keys: &[(ConversationId, MessageId)]) -> Result<Vec<Option<Arc<Message>>>> {
    let mut found = Found::new();
    let mut likely: BTreeMap<(ConversationId, Bucket), BTreeSet<MessageId>> = BTreeMap::new();
    for (conversation, id) in keys {
        for bucket in inner.index.likely(*conversation, *id) {
            likely.entry((*conversation, bucket)).or_default().insert(*id);
        }
    }
    read_by_id(inner, &likely, &mut found).await?;
    let mut missing: BTreeMap<ConversationId, BTreeSet<MessageId>> = BTreeMap::new();
    for (conversation, id) in keys.iter().filter(|key| !found.contains_key(key)) {
        missing.entry(*conversation).or_default().insert(*id);
    }
    let looks = missing.into_iter().map(|(conversation, ids)| look(inner, conversation, ids)).collect();
    let mut there: BTreeMap<_, BTreeSet<_>> = at_once(looks).await?.into_iter().flatten().collect();
    there.retain(|at, ids| !likely.get(at).is_some_and(|tried| tried.is_superset(ids)));
    read_by_id(inner, &there, &mut found).await?;
    Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
}

type Places = Vec<((ConversationId, Bucket), BTreeSet<MessageId>)>;

/// Which buckets may hold these messages, and which ones of them each.
async fn look(inner: &Inner, conversation: ConversationId, ids: BTreeSet<MessageId>) -> Result<Places> {
    let buckets: BTreeSet<Bucket> = ids.iter().copied().flat_map(candidates).collect();
    let there = which_exist(inner, conversation, &buckets.into_iter().collect::<Vec<_>>()).await?;
    let of_bucket = |bucket: Bucket| {
        inner.index.note_present(conversation, bucket);
        let ids = ids.iter().copied().filter(|id| bucket.can_hold(*id)).collect();
        ((conversation, bucket), ids)
    };
    Ok(there.into_iter().map(of_bucket).collect())
}

async fn read_by_id(inner: &Inner, places: &BTreeMap<(ConversationId, Bucket), BTreeSet<MessageId>>, found: &mut Found) -> Result<()> {
    let mut reads = Vec::new();
    for ((conversation, bucket), ids) in places {
        let ids: Vec<MessageId> = ids.iter().copied().collect();
        for piece in ids.chunks(IDS_MAX) {
            let values = cells![*conversation, bucket.width.number(), bucket.start, list(piece.iter().copied())];
            reads.push(async move {
                let rows: Vec<MessageColumns> = inner.cluster.read(&inner.statements.history.by_id, values).await?;
                rows.into_iter().map(|columns| read_message(*conversation, columns)).collect::<Result<Vec<_>>>()
            });
        }
    }
    for message in at_once(reads).await?.into_iter().flatten().flatten() {
        inner.saw_message(message.conversation, message.id);
        found.insert((message.conversation, message.id), Arc::new(message));
    }
    Ok(())
}

pub(crate) async fn last_messages(inner: &Inner, conversations: &[ConversationId]) -> Result<Vec<Option<MessageId>>> {
    let each = |conversation: &ConversationId| {
        let conversation = *conversation;
        async move {
            let row: Option<(Option<Vec<u8>>,)> =
                inner.cluster.read_one(&inner.statements.history.last_message, cells![conversation]).await?;
            let last = row.and_then(|(last,)| last).map(|last| LastMessage::decode("conversations", &last)).transpose()?;
            if let Some(last) = &last {
                inner.index.note_present(conversation, last.bucket);
            }
            Ok(last.map(|last| last.id))
        }
    };
    at_once(conversations.iter().map(each).collect()).await
}

pub(crate) async fn newest_events(inner: &Inner, conversations: &[ConversationId]) -> Result<Vec<Option<TimeUuid>>> {
    let each = |conversation: &ConversationId| {
        let conversation = *conversation;
        async move {
            let row: Option<Newest> = inner.cluster.read_one(&inner.statements.history.newest, cells![conversation]).await?;
            let (last, change) = row.unwrap_or_default();
            newest_of("conversations", last, change)
        }
    };
    at_once(conversations.iter().map(each).collect()).await
}

/// Who asks knows from the inbox row that something lies behind the place: the head is not read again.
pub(crate) async fn unread(inner: &Inner, user: &UserId, questions: &[UnreadQuestion], cap: u32) -> Result<Vec<Unread>> {
    at_once(questions.iter().map(|question| unread_of_one(inner, user, *question, cap)).collect()).await
}

async fn unread_of_one(inner: &Inner, user: &UserId, question: UnreadQuestion, cap: u32) -> Result<Unread> {
    let mut unread = Unread::default();
    let mut newer = Span::WHOLE.behind(question.after);
    let mut looked_at = 0;
    // As a rule each row counts: one row more than the cap decides. Where that is not so, the rest of the rows that may be read.
    let mut wanted = usize::try_from(cap).unwrap_or(Unread::ROWS_MAX).saturating_add(1).min(Unread::ROWS_MAX);
    loop {
        // From the oldest on: the first one that counts is the first unread.
        let leads: Vec<Lead> = walk(inner, question.conversation, newer, Direction::Forward, wanted).await?;
        for lead in &leads {
            looked_at += 1;
            let counts = lead.is_text && !lead.is_deleted && lead.sender != user.as_str();
            if counts && !unread.add(lead.id, cap) {
                return Ok(unread);
            }
            if looked_at == Unread::ROWS_MAX {
                return Ok(Unread { is_capped: true, ..unread });
            }
        }
        match leads.last() {
            Some(last) if leads.len() == wanted => newer = newer.behind(last.place()),
            Some(_) | None => return Ok(unread),
        }
        wanted = Unread::ROWS_MAX - looked_at;
    }
}
