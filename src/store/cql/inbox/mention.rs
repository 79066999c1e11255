//! Mentions: a row for each user whom a message names, and one for a message that mentions everyone.
//!
//! Counts are read from these rows, however many other messages are unread. A maximum in the entry of a
//! mentioned user, and one in the head of the conversation for everyone, show without a read that no
//! mention is unread. In a small conversation a mention of everyone advances the maximum of each entry.
//!
//! Rows have the microsecond of the state of the message that they follow from: the message itself, or
//! its last edit or deletion. So of two servers that settle the rows of one message, the one that saw the
//! later state wins in any order of arrival.

use std::collections::{HashMap, HashSet, VecDeque};

use futures_util::future::{try_join, try_join_all};
use scylla::value::CqlTimeuuid;
use uuid::Uuid;

use super::Inboxes;
use super::row::PIECE;
use crate::model::{
    ConversationId, IgnoredSenders, Message, MessageId, OrderKey, Timestamp, Unread, UserId,
};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::driver::statement::{Statement, statements};
use crate::store::cql::driver::value::{
    REGISTER_TIMESTAMP, Value, Values, list, order_key, row_limit, time_uuid, time_uuid_bound,
    user, values,
};
use crate::store::cql::message::count::SETTLED_MICROS;
use crate::store::unread_list::{LongUnreadList, UnreadList};
use crate::store::{Result, UnreadQuery, UnreadReader};

const TABLE: &str = "mentions_by_entry";
/// Least rows of one read.
const ROWS_MIN: usize = 32;
/// Rows of one read of a whole list.
const ALL_ROWS_MAX: usize = 1_000;

statements! {
    UPDATE_MENTIONED_UP_TO: Write "UPDATE inbox_by_user USING TIMESTAMP ? SET mentioned_up_to = ? WHERE user_id = ? AND conversation_id = ?";
    UPDATE_EVERYONE_UP_TO: Write "UPDATE conversations USING TIMESTAMP ? SET everyone_up_to = ? WHERE conversation_id = ?";
    INSERT_MENTION: Write "INSERT INTO mentions_by_entry (user_id, conversation_id, message_id, sender_id) VALUES (?, ?, ?, ?) USING TIMESTAMP ?";
    DELETE_MENTION: Write "DELETE FROM mentions_by_entry USING TIMESTAMP ? WHERE user_id = ? AND conversation_id = ? AND message_id = ?";
    INSERT_EVERYONE: Write "INSERT INTO everyone_by_conversation (conversation_id, message_id, sender_id) VALUES (?, ?, ?) USING TIMESTAMP ?";
    DELETE_MENTIONS_UP_TO: Write "DELETE FROM mentions_by_entry USING TIMESTAMP ? WHERE user_id = ? AND conversation_id = ? AND message_id <= ?";
    DELETE_EVERYONE_UP_TO: Write "DELETE FROM everyone_by_conversation USING TIMESTAMP ? WHERE conversation_id = ? AND message_id <= ?";
    DELETE_EVERYONE: Write "DELETE FROM everyone_by_conversation USING TIMESTAMP ? WHERE conversation_id = ? AND message_id = ?";
    SELECT_MENTIONED_UP_TO: Read "SELECT conversation_id, mentioned_up_to FROM inbox_by_user WHERE user_id = ? AND conversation_id IN ?";
    SELECT_EVERYONE_UP_TO: Read "SELECT everyone_up_to FROM conversations WHERE conversation_id = ?";
    DELETE_MENTIONS: Write "DELETE FROM mentions_by_entry USING TIMESTAMP ? WHERE user_id = ? AND conversation_id = ?";
    SELECT_MENTIONS: Read "SELECT message_id, sender_id FROM mentions_by_entry WHERE user_id = ? AND conversation_id = ? AND message_id > ? AND message_id <= ? ORDER BY message_id ASC LIMIT ?";
    SELECT_EVERYONE: Read "SELECT message_id, sender_id FROM everyone_by_conversation WHERE conversation_id = ? AND message_id > ? AND message_id <= ? ORDER BY message_id ASC LIMIT ?";
    SELECT_SOME_MENTIONS: Read "SELECT message_id, sender_id FROM mentions_by_entry WHERE user_id = ? AND conversation_id = ? AND message_id IN ?";
    SELECT_SOME_EVERYONE: Read "SELECT message_id, sender_id FROM everyone_by_conversation WHERE conversation_id = ? AND message_id IN ?";
    SELECT_MENTION: Read "SELECT sender_id FROM mentions_by_entry WHERE user_id = ? AND conversation_id = ? AND message_id = ?";
    SELECT_ONE_EVERYONE: Read "SELECT sender_id FROM everyone_by_conversation WHERE conversation_id = ? AND message_id = ?";
}

/// A mention of one message: of a user, or of everyone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mentioned {
    Everyone,
    User(UserId),
}

impl Mentioned {
    /// The mentions that a message has while it is not deleted.
    pub(crate) fn of(message: &Message) -> Vec<Self> {
        let (named, everyone) = message.counted_mentions();
        let named = named.cloned().map(Self::User);
        let everyone = everyone.then_some(Self::Everyone);
        everyone.into_iter().chain(named).collect()
    }

    /// The element of a message's set of names. No user has an empty name.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Everyone => "",
            Self::User(user) => user.as_str(),
        }
    }

    /// The one of two statements, for a user and for everyone, and the partition of the rows.
    fn rows(
        &self,
        conversation: ConversationId,
        [of_user, of_everyone]: [&'static Statement; 2],
    ) -> (&'static Statement, Values) {
        match self {
            Self::User(user) => (of_user, values![user, conversation]),
            Self::Everyone => (of_everyone, values![conversation]),
        }
    }

    pub(crate) fn from_name(name: &str) -> Result<Self> {
        if name.is_empty() {
            return Ok(Self::Everyone);
        }
        Ok(Self::User(user(TABLE, name)?))
    }
}

impl Inboxes {
    /// Deletes the mentions of a user, or those of everyone, by all messages up to one.
    pub(crate) async fn delete_mentions_up_to(
        &self,
        mentioned: &Mentioned,
        conversation: ConversationId,
        up_to: MessageId,
        at: Timestamp,
    ) -> Result<()> {
        let statements = [&DELETE_MENTIONS_UP_TO, &DELETE_EVERYONE_UP_TO];
        let (statement, partition) = mentioned.rows(conversation, statements);
        let values = [values![at], partition, values![up_to]].concat();
        self.executor.write(statement, values).await
    }

    /// Whether the store counts a mention of a message.
    pub(crate) async fn has_mention(
        &self,
        conversation: ConversationId,
        message: MessageId,
        mentioned: &Mentioned,
    ) -> Result<bool> {
        let statements = [&SELECT_MENTION, &SELECT_ONE_EVERYONE];
        let (statement, mut values) = mentioned.rows(conversation, statements);
        values.extend(values![message]);
        let row = self
            .executor
            .read_one::<(Option<String>,)>(statement, values);
        Ok(row.await?.is_some())
    }

    /// All rows of a list.
    pub(crate) async fn all_mentions(
        &self,
        mentioned: &Mentioned,
        conversation: ConversationId,
    ) -> Result<Vec<MessageId>> {
        let query = UnreadQuery {
            conversation,
            after: OrderKey::MIN,
            up_to: None,
        };
        let (statement, partition) =
            mentioned.rows(conversation, [&SELECT_MENTIONS, &SELECT_EVERYONE]);
        let mut rows = MentionRows::new(statement, partition, &query);
        let mut all = Vec::new();
        loop {
            rows.fill(self, ALL_ROWS_MAX).await?;
            if rows.rows.is_empty() {
                return Ok(all);
            }
            all.extend(rows.rows.drain(..).map(|(message, _)| message));
        }
    }

    pub(crate) async fn mentions(
        &self,
        user: &UserId,
        queries: &[UnreadQuery],
        cap: u32,
        ignored: &IgnoredSenders,
    ) -> Result<Vec<Unread>> {
        let reader = UnreadReader { user, ignored };
        let mut conversations: Vec<_> = queries.iter().map(|query| query.conversation).collect();
        conversations.sort_unstable();
        conversations.dedup();
        let maxima = self.mention_maxima(user, &conversations).await?;
        let each = queries.iter().map(async |query| {
            let newest = maxima.get(&query.conversation);
            if newest.is_none_or(|newest| *newest <= query.after) {
                return Ok(Unread::default());
            }
            self.count_mentions(reader, query, cap).await
        });
        concurrently(each).await
    }

    /// The newest mention of a user, or of everyone, in each of these conversations. Some are later than
    /// the newest mention, none is earlier.
    async fn mention_maxima(
        &self,
        user: &UserId,
        conversations: &[ConversationId],
    ) -> Result<HashMap<ConversationId, OrderKey>> {
        type Columns = (Uuid, Option<Vec<u8>>);
        let own = conversations.chunks(PIECE).map(|piece| {
            let values = values![user, list(piece.iter().copied())];
            self.executor
                .read::<Columns>(&SELECT_MENTIONED_UP_TO, values)
        });
        let everyone = async {
            let large = self.large_among(user, conversations).await?;
            let each = large.into_iter().map(async |conversation| {
                Ok((conversation, self.everyone_up_to(conversation).await?))
            });
            concurrently(each).await
        };
        let (own, everyone) = try_join(try_join_all(own), everyone).await?;
        let mut maxima: HashMap<ConversationId, OrderKey> = HashMap::new();
        let mut add = |conversation, newest: OrderKey| {
            let known = maxima.entry(conversation).or_insert(newest);
            *known = newest.max(*known);
        };
        for (conversation, newest) in own.into_iter().flatten() {
            if let Some(newest) = newest {
                add(
                    ConversationId(conversation),
                    order_key("inbox_by_user", &newest)?,
                );
            }
        }
        for (conversation, newest) in everyone {
            if let Some(newest) = newest {
                add(conversation, newest);
            }
        }
        Ok(maxima)
    }

    /// The newest mention of everyone in a large conversation, or a later message.
    pub(crate) async fn everyone_up_to(
        &self,
        conversation: ConversationId,
    ) -> Result<Option<OrderKey>> {
        let newest: Option<Vec<u8>> = self
            .executor
            .read_cell(&SELECT_EVERYONE_UP_TO, values![conversation])
            .await?;
        newest
            .map(|newest| order_key("conversations", &newest))
            .transpose()
    }

    /// Counts a user's unread mentions. As a rule a few rows decide. Behind many rows of blocked senders a count takes
    /// several reads: this server remembers how far it came for a user, and continues there.
    async fn count_mentions(
        &self,
        reader: UnreadReader<'_>,
        query: &UnreadQuery,
        cap: u32,
    ) -> Result<Unread> {
        let (conversation, now) = (query.conversation, self.clock.now());
        let mut known = match self.mention_lists.rest(reader, query) {
            Some(known) => self.still_mentioned(reader, conversation, known).await?,
            None => None,
        }
        .unwrap_or_else(|| LongUnreadList::new(reader, query.after, now));
        if known.list.count(query, cap).is_none() {
            self.extend_mentions(reader, query, cap, &mut known.list)
                .await?;
        }
        let unread = known.list.count_or_capped(query, cap);
        if known.list.is_long() {
            let settled = OrderKey::first_at(now.plus_micros(-SETTLED_MICROS));
            known.list = known.list.before(settled);
            self.mention_lists.put(reader, conversation, known);
        }
        Ok(unread)
    }

    /// The same list without the mentions whose rows were deleted. `None` if a row may have come among those that it was read from.
    async fn still_mentioned(
        &self,
        reader: UnreadReader<'_>,
        conversation: ConversationId,
        mut known: LongUnreadList<Timestamp>,
    ) -> Result<Option<LongUnreadList<Timestamp>>> {
        let late_at = self.messages.late_write_at(conversation).await?;
        if late_at > Some(known.version) {
            return Ok(None);
        }
        let pieces = known.list.ids.chunks(PIECE).map(async |piece| {
            let ids = || list(piece.iter().copied());
            let own = values![reader.user, conversation, ids()];
            let everyone = values![conversation, ids()];
            try_join(
                self.executor.read::<MentionRow>(&SELECT_SOME_MENTIONS, own),
                self.executor
                    .read::<MentionRow>(&SELECT_SOME_EVERYONE, everyone),
            )
            .await
        });
        let mut present = HashSet::new();
        for (own, everyone) in concurrently(pieces).await? {
            for (message, sender) in own.into_iter().chain(everyone) {
                if sender.is_some() {
                    present.insert(time_uuid(TABLE, message)?);
                }
            }
        }
        known.list.ids.retain(|id| present.contains(id));
        known.list.is_whole = false;
        Ok(Some(known))
    }

    /// Reads the next rows of a list, until it holds enough for the query.
    async fn extend_mentions(
        &self,
        reader: UnreadReader<'_>,
        query: &UnreadQuery,
        cap: u32,
        list: &mut UnreadList,
    ) -> Result<()> {
        let rest = UnreadQuery {
            after: list.read_up_to,
            ..*query
        };
        let conversation = query.conversation;
        let mut named =
            MentionRows::new(&SELECT_MENTIONS, values![reader.user, conversation], &rest);
        let mut everyone = MentionRows::new(&SELECT_EVERYONE, values![conversation], &rest);
        let mut limit = ROWS_MIN.max(cap as usize + 2);
        for row in 0..Unread::ROWS_MAX {
            if row == limit {
                limit = Unread::ROWS_MAX;
            }
            try_join(named.fill(self, limit), everyone.fill(self, limit)).await?;
            let (one, other) = (named.next_position(), everyone.next_position());
            // A message in both lists is one.
            let (is_named, is_everyone) = match (one, other) {
                (None, None) => break,
                (Some(_), None) => (true, false),
                (None, Some(_)) => (false, true),
                (Some(one), Some(other)) => (one <= other, other <= one),
            };
            let of_everyone = is_everyone.then(|| everyone.rows.pop_front()).flatten();
            let of_user = is_named.then(|| named.rows.pop_front()).flatten();
            let Some((message, sender)) = of_user.or(of_everyone) else {
                break;
            };
            if !list.add(message, reader.counts(&sender), cap) {
                return Ok(());
            }
        }
        if named.is_empty() && everyone.is_empty() {
            list.is_whole = query.up_to.is_none();
            list.read_up_to = list.read_up_to.max(query.up_to.unwrap_or_default());
        }
        Ok(())
    }
}

type MentionRow = (CqlTimeuuid, Option<String>);

/// Rows of one list of mentions, the oldest first, read page by page.
struct MentionRows {
    statement: &'static Statement,
    partition: Vec<Value>,
    after: OrderKey,
    up_to: OrderKey,
    is_done: bool,
    rows: VecDeque<(MessageId, String)>,
}

impl MentionRows {
    fn new(statement: &'static Statement, partition: Values, query: &UnreadQuery) -> Self {
        Self {
            statement,
            partition,
            after: query.after,
            up_to: query.up_to.unwrap_or(OrderKey::MAX),
            is_done: false,
            rows: VecDeque::new(),
        }
    }

    /// Reads the next page, if the last one was taken.
    async fn fill(&mut self, inboxes: &Inboxes, limit: usize) -> Result<()> {
        while !self.is_done && self.rows.is_empty() {
            self.read_page(inboxes, limit).await?;
        }
        Ok(())
    }

    async fn read_page(&mut self, inboxes: &Inboxes, limit: usize) -> Result<()> {
        let mut values = self.partition.clone();
        values.extend(values![
            time_uuid_bound(self.after),
            time_uuid_bound(self.up_to),
            row_limit(limit)
        ]);
        let rows: Vec<MentionRow> = inboxes.executor.read(self.statement, values).await?;
        self.is_done = rows.len() < limit;
        for (message, sender) in rows {
            let message = time_uuid(TABLE, message)?;
            self.after = message.order_key();
            // A row without a sender was deleted: only its key is left.
            self.rows.extend(sender.map(|sender| (message, sender)));
        }
        Ok(())
    }

    /// Whether no row is left.
    fn is_empty(&self) -> bool {
        self.is_done && self.rows.is_empty()
    }

    fn next_position(&self) -> Option<OrderKey> {
        self.rows.front().map(|(message, _)| message.order_key())
    }
}

impl Writes {
    /// Deletes all rows of a user in a conversation, with one tombstone.
    pub(crate) fn delete_mentions(
        &mut self,
        user: &UserId,
        conversation: ConversationId,
        at: Timestamp,
    ) {
        self.push(&DELETE_MENTIONS, values![at, user, conversation]);
    }

    /// Writes a row of a message, with the microsecond of the message's state.
    pub(crate) fn put_mention(&mut self, message: &Message, mentioned: &Mentioned, at: i64) {
        let statements = [&INSERT_MENTION, &INSERT_EVERYONE];
        let (statement, mut values) = mentioned.rows(message.conversation, statements);
        values.extend(values![message.id, &message.sender, at]);
        self.push(statement, values);
    }

    /// Deletes a row of a message, with the microsecond of the message's state.
    pub(crate) fn delete_mention(
        &mut self,
        conversation: ConversationId,
        message: MessageId,
        mentioned: &Mentioned,
        at: i64,
    ) {
        let statements = [&DELETE_MENTION, &DELETE_EVERYONE];
        let (statement, partition) = mentioned.rows(conversation, statements);
        let values = [values![at], partition, values![message]].concat();
        self.push(statement, values);
    }

    /// Advances the maximum of a user's entry.
    pub(crate) fn put_mentioned_up_to(
        &mut self,
        user: &UserId,
        conversation: ConversationId,
        message: MessageId,
    ) {
        if user.is_agent() {
            return;
        }
        let key = message.order_key();
        self.push(
            &UPDATE_MENTIONED_UP_TO,
            values![REGISTER_TIMESTAMP, key, user, conversation],
        );
    }

    /// Advances the maximum of a conversation.
    pub(crate) fn put_everyone_up_to(&mut self, conversation: ConversationId, message: MessageId) {
        let key = message.order_key();
        self.push(
            &UPDATE_EVERYONE_UP_TO,
            values![REGISTER_TIMESTAMP, key, conversation],
        );
    }

    /// Writes the rows of a message, and advances the maxima of the conversation and of those who are
    /// named. In a small conversation a mention of everyone also advances those of the participants.
    pub(crate) fn put_mentions(&mut self, message: &Message, mentioned: &[Mentioned], at: i64) {
        let (conversation, id) = (message.conversation, message.id);
        for one in mentioned {
            self.put_mention(message, one, at);
            match one {
                Mentioned::Everyone => self.put_everyone_up_to(conversation, id),
                Mentioned::User(user) => {
                    self.put_mentioned_up_to(user, conversation, id);
                }
            }
        }
    }
}
