//! Histories: pages and single messages.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use scylla::value::CqlTimeuuid;

use super::Messages;
use super::bucket::Bucket;
use super::bucket::id_range::IdRange;
use super::bucket::index::candidates;
use super::bucket::merge::BucketRow;
use super::row::{MessageColumns, decode_message, message_columns};
use crate::model::{
    ConversationId, Cut, Direction, Message, MessageId, MessageKind, OrderKey, Page, PageRequest,
    TimeUuid, Timestamp,
};
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::driver::statement::{Statement, statements};
use crate::store::cql::driver::value::{list, time_uuid, values};
use crate::store::{Result, StoredMessage};

/// Ids in one `IN`.
const IDS_MAX: usize = 20;

/// Reads a range of one bucket, in one direction of time.
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
    SELECT_OLDER_MESSAGES: Read range_of_bucket!(message_columns!(), "DESC");
    SELECT_NEWER_MESSAGES: Read range_of_bucket!(message_columns!(), "ASC");
    SELECT_OLDER_SUMMARIES: Read range_of_bucket!("message_id, sender_id, kind, deleted_at", "DESC");
    SELECT_NEWER_SUMMARIES: Read range_of_bucket!("message_id, sender_id, kind, deleted_at", "ASC");
    SELECT_MESSAGES: Read concat!(
        "SELECT ",
        message_columns!(),
        " FROM messages_by_conversation WHERE conversation_id = ? AND width = ? AND start = ? AND message_id IN ?"
    );
}

impl BucketRow for Arc<Message> {
    type Columns = MessageColumns;

    fn statement(direction: Direction) -> &'static Statement {
        match direction {
            Direction::Forward => &SELECT_NEWER_MESSAGES,
            Direction::Backward => &SELECT_OLDER_MESSAGES,
        }
    }

    fn decode(
        conversation: ConversationId,
        columns: MessageColumns,
    ) -> Result<(TimeUuid, Option<Self>)> {
        let id = time_uuid("messages_by_conversation", columns.0)?;
        Ok((id, decode_message(conversation, columns)?.map(Arc::new)))
    }

    fn order_key(&self) -> OrderKey {
        self.id.order_key()
    }
}

impl BucketRow for StoredMessage {
    type Columns = MessageColumns;

    fn statement(direction: Direction) -> &'static Statement {
        Arc::<Message>::statement(direction)
    }

    fn decode(
        conversation: ConversationId,
        columns: MessageColumns,
    ) -> Result<(TimeUuid, Option<Self>)> {
        let id = time_uuid("messages_by_conversation", columns.0)?;
        let read = decode_message(conversation, columns).transpose();
        Ok((id, read.map(|read| Self::of(id, read)).transpose()?))
    }

    fn order_key(&self) -> OrderKey {
        self.id.order_key()
    }
}

/// The columns that say whether a row is a message, and whether it is unread.
pub(crate) struct MessageSummary {
    pub(super) id: MessageId,
    pub(super) sender: String,
    pub(super) is_text: bool,
    pub(super) is_deleted: bool,
}

impl MessageSummary {
    pub(crate) fn moment(&self) -> Timestamp {
        self.id.moment()
    }
}

impl BucketRow for MessageSummary {
    type Columns = (CqlTimeuuid, Option<String>, Option<i8>, Option<i64>);

    fn statement(direction: Direction) -> &'static Statement {
        match direction {
            Direction::Forward => &SELECT_NEWER_SUMMARIES,
            Direction::Backward => &SELECT_OLDER_SUMMARIES,
        }
    }

    fn decode(
        _: ConversationId,
        (id, sender, kind, deleted_at): Self::Columns,
    ) -> Result<(TimeUuid, Option<Self>)> {
        let id = time_uuid("messages_by_conversation", id)?;
        let summary = |sender| Self {
            id,
            sender,
            is_text: kind == Some(MessageKind::Text as i8),
            is_deleted: deleted_at.is_some(),
        };
        Ok((id, sender.map(summary)))
    }

    fn order_key(&self) -> OrderKey {
        self.id.order_key()
    }
}

/// The direction of time of a list that begins with the newest: its forward is backward in time.
const fn in_time(direction: Direction) -> Direction {
    match direction {
        Direction::Forward => Direction::Backward,
        Direction::Backward => Direction::Forward,
    }
}

impl Messages {
    pub(crate) async fn history(
        &self,
        conversation: ConversationId,
        cut: &Cut<OrderKey>,
        request: &PageRequest<OrderKey>,
    ) -> Result<Page<Arc<Message>>> {
        let whole = IdRange::of_cut(cut);
        let mut window = whole;
        if let Some(after) = request.after {
            window = window.before(after);
        }
        if let Some(before) = request.before {
            window = window.after(before);
        }
        let mut wanted = request.overread();
        // The row at the cursor nearly always exists. Read with the page, it says that the list continues on its other side.
        let own = request.begins_at().copied();
        let behind = own.map(|own| match request.direction {
            Direction::Forward => whole.from(own),
            Direction::Backward => whole.up_to(own),
        });
        if let Some(own) = own.filter(|own| whole.contains(*own)) {
            wanted += 1;
            window = match request.direction {
                Direction::Forward => whole.up_to(own),
                Direction::Backward => whole.from(own),
            };
        }
        let direction = in_time(request.direction);
        let mut messages: Vec<Arc<Message>> =
            self.merge(conversation, window, direction, wanted).await?;
        if let Some(newest) = messages.iter().map(|message| message.id).max() {
            self.observe_message(conversation, newest);
        }
        let has_own = own.is_some() && messages.first().map(BucketRow::order_key) == own;
        let has_behind = match behind {
            _ if has_own => true,
            Some(behind) => !self
                .merge::<MessageSummary>(conversation, behind, request.direction, 1)
                .await?
                .is_empty(),
            None => false,
        };
        if has_own {
            messages.remove(0);
        }
        messages.truncate(request.overread());
        Ok(Page::from_overread(request, messages, has_behind))
    }

    pub(crate) async fn messages_at(
        &self,
        positions: &[(ConversationId, OrderKey)],
    ) -> Result<Vec<Option<Arc<Message>>>> {
        let each = |(conversation, position): &(ConversationId, OrderKey)| {
            let (conversation, range) = (*conversation, IdRange::WHOLE.up_to(*position));
            async move {
                Ok(self
                    .merge(conversation, range, Direction::Backward, 1)
                    .await?
                    .pop())
            }
        };
        concurrently(positions.iter().map(each)).await
    }
}

type FoundMessages = HashMap<(ConversationId, MessageId), Arc<Message>>;

impl Messages {
    /// Messages by id: first from the cached buckets, then from those that the stored index lists.
    pub(crate) async fn by_ids(
        &self,
        keys: &[(ConversationId, MessageId)],
    ) -> Result<Vec<Option<Arc<Message>>>> {
        let mut found = FoundMessages::new();
        let mut likely: BTreeMap<(ConversationId, Bucket), BTreeSet<MessageId>> = BTreeMap::new();
        for (conversation, id) in keys {
            for bucket in self.index.likely(*conversation, *id) {
                likely
                    .entry((*conversation, bucket))
                    .or_default()
                    .insert(*id);
            }
        }
        self.read_by_id(&likely, &mut found).await?;
        let mut missing: BTreeMap<ConversationId, BTreeSet<MessageId>> = BTreeMap::new();
        for (conversation, id) in keys.iter().filter(|key| !found.contains_key(key)) {
            missing.entry(*conversation).or_default().insert(*id);
        }
        let located = missing
            .into_iter()
            .map(|(conversation, ids)| self.locate(conversation, ids));
        let mut stored: BTreeMap<_, BTreeSet<_>> =
            concurrently(located).await?.into_iter().flatten().collect();
        stored.retain(|at, ids| !likely.get(at).is_some_and(|tried| tried.is_superset(ids)));
        self.read_by_id(&stored, &mut found).await?;
        Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
    }
}

type Located = Vec<((ConversationId, Bucket), BTreeSet<MessageId>)>;

impl Messages {
    /// The stored buckets that can hold these messages, each with those of them.
    async fn locate(
        &self,
        conversation: ConversationId,
        ids: BTreeSet<MessageId>,
    ) -> Result<Located> {
        let buckets: BTreeSet<Bucket> = ids.iter().copied().flat_map(candidates).collect();
        let present = self
            .present_buckets(conversation, &buckets.into_iter().collect::<Vec<_>>())
            .await?;
        let of_bucket = |bucket: Bucket| {
            self.index.note_present(conversation, bucket);
            let ids = ids
                .iter()
                .copied()
                .filter(|id| bucket.can_hold(*id))
                .collect();
            ((conversation, bucket), ids)
        };
        Ok(present.into_iter().map(of_bucket).collect())
    }

    async fn read_by_id(
        &self,
        located: &BTreeMap<(ConversationId, Bucket), BTreeSet<MessageId>>,
        found: &mut FoundMessages,
    ) -> Result<()> {
        let mut reads = Vec::new();
        for ((conversation, bucket), ids) in located {
            let ids: Vec<MessageId> = ids.iter().copied().collect();
            for piece in ids.chunks(IDS_MAX) {
                let values = values![
                    *conversation,
                    bucket.width.number(),
                    bucket.start,
                    list(piece.iter().copied())
                ];
                reads.push(async move {
                    let rows: Vec<MessageColumns> =
                        self.executor.read(&SELECT_MESSAGES, values).await?;
                    rows.into_iter()
                        .map(|columns| decode_message(*conversation, columns))
                        .collect::<Result<Vec<_>>>()
                });
            }
        }
        for message in concurrently(reads).await?.into_iter().flatten().flatten() {
            self.observe_message(message.conversation, message.id);
            found.insert((message.conversation, message.id), Arc::new(message));
        }
        Ok(())
    }
}
