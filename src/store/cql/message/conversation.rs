//! Rows of `conversations`: what a conversation is, and its head.
//!
//! A head says where a conversation stands: its last message, its newest change and its last activity. All three are maximum registers.

use std::sync::Arc;

use scylla::DeserializeRow;
use scylla::value::{CqlTimeuuid, Row};
use uuid::Uuid;

use super::Messages;
use super::bucket::last_message::LastMessage;
use crate::model::{
    ChangeId, Conversation, ConversationId, ConversationKind, GroupName, HistorySettings,
    InputHash, MessageId, PostingRoles, TimeUuid, Timestamp, UserId,
};
use crate::store::Result;
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::executor::{PARTITIONS_MAX, concurrently};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{
    REGISTER_TIMESTAMP, list, order_key, time_uuid, user, values,
};

const TABLE: &str = "conversations";

/// The columns of [`ConversationColumns`], in their order.
macro_rules! conversation_columns {
    () => {
        "conversation_id, kind, name, created_at, created_by, input_hash, is_large, slow_mode_seconds, history, made, last_message, newest_change, last_activity, WRITETIME(last_activity)"
    };
}
pub(crate) use conversation_columns;

statements! {
    SELECT_CONVERSATION: Read concat!("SELECT ", conversation_columns!(), " FROM conversations WHERE conversation_id = ?");
    SELECT_CONVERSATIONS: Read concat!("SELECT ", conversation_columns!(), " FROM conversations WHERE conversation_id IN ?");
    SWAP_CREATOR: Conditional "UPDATE conversations SET created_by = ? WHERE conversation_id = ? IF created_by = ?";
    CLAIM_CONVERSATION: Conditional "INSERT INTO conversations (conversation_id, kind, created_at, created_by, input_hash, made) VALUES (?, ?, ?, ?, ?, ?) IF NOT EXISTS";
    UPDATE_HEAD: Write "UPDATE conversations USING TIMESTAMP ? SET last_message = ?, newest_change = ?, last_activity = ? WHERE conversation_id = ?";
    UPDATE_IS_LARGE: Write "UPDATE conversations USING TIMESTAMP ? SET is_large = ? WHERE conversation_id = ?";
    UPDATE_SLOW_MODE: Write "UPDATE conversations USING TIMESTAMP ? SET slow_mode_seconds = ? WHERE conversation_id = ?";
    UPDATE_HISTORY: Write "UPDATE conversations USING TIMESTAMP ? SET history = ? WHERE conversation_id = ?";
    UPDATE_NAME: Write "UPDATE conversations USING TIMESTAMP ? SET name = ? WHERE conversation_id = ?";
}

#[derive(DeserializeRow)]
#[scylla(flavor = "enforce_order", skip_name_checks)]
pub(crate) struct ConversationColumns {
    pub(crate) id: Uuid,
    kind: Option<i8>,
    name: Option<String>,
    created_at: Option<i64>,
    created_by: Option<String>,
    input_hash: Option<Vec<u8>>,
    is_large: Option<bool>,
    slow_mode_seconds: Option<i32>,
    history: Option<Vec<u8>>,
    made: Option<CqlTimeuuid>,
    last_message: Option<Vec<u8>>,
    newest_change: Option<Vec<u8>>,
    pub(crate) last_activity: Option<i64>,
    activity_written_at: Option<i64>,
}

/// The version of stored settings of a history, in their first byte.
const HISTORY_VERSION: u8 = 1;
/// The version with posting roles, which follow the settings.
const HISTORY_VERSION_2: u8 = 2;

pub(crate) fn encode_history(settings: &HistorySettings) -> Vec<u8> {
    let bytes = if settings.roles.is_default() {
        postcard::to_extend(settings, vec![HISTORY_VERSION])
    } else {
        postcard::to_extend(&(settings, settings.roles), vec![HISTORY_VERSION_2])
    };
    bytes.expect("plain data serialises")
}

/// The stored settings of a history. Without a cell, nothing bounds it.
pub(crate) fn decode_history(bytes: Option<&[u8]>) -> Result<HistorySettings> {
    match bytes.map(<[u8]>::split_first) {
        None => Ok(HistorySettings::default()),
        Some(Some((&HISTORY_VERSION, rest))) => {
            postcard::from_bytes(rest).map_err(|error| corrupt(TABLE, error))
        }
        Some(Some((&HISTORY_VERSION_2, rest))) => {
            let decoded = postcard::from_bytes::<(HistorySettings, PostingRoles)>(rest);
            let (settings, roles) = decoded.map_err(|error| corrupt(TABLE, error))?;
            Ok(HistorySettings { roles, ..settings })
        }
        Some(_) => Err(corrupt(TABLE, "a history begins with its version")),
    }
}

/// The stored seconds of a slow mode. What is no such number counts as none.
pub(crate) fn slow_mode(seconds: Option<i32>) -> u32 {
    let seconds = seconds.and_then(|seconds| u32::try_from(seconds).ok());
    seconds.unwrap_or_default()
}

/// A conversation as its row describes it.
pub(crate) struct ConversationRow {
    pub(crate) conversation: Arc<Conversation>,
    /// The change under which it was created. `None` for an imported one.
    pub(crate) created_under: Option<ChangeId>,
    pub(crate) head: Head,
}

/// The head of a conversation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Head {
    /// Whether the row is that of a conversation. A late write leaves a row without a kind.
    pub(crate) exists: bool,
    pub(crate) is_large: bool,
    pub(crate) history: HistorySettings,
    pub(crate) last: Option<LastMessage>,
    pub(crate) newest_change: Option<TimeUuid>,
    pub(crate) last_activity: Option<Timestamp>,
    /// Whether the activity is only the time of creation, written by an import. Any message replaces it, also an older one.
    pub(crate) is_fallback: bool,
    pub(crate) created_at: Option<Timestamp>,
}

impl Head {
    /// The newest message or change.
    pub(crate) fn newest(&self) -> Option<TimeUuid> {
        self.last
            .as_ref()
            .map(|last| last.id)
            .max(self.newest_change)
    }
}

/// The stored number of a kind. The numbers never change.
pub(crate) fn kind_number(kind: ConversationKind) -> i8 {
    match kind {
        ConversationKind::Direct => 0,
        ConversationKind::Group => 1,
    }
}

impl ConversationColumns {
    /// Decodes a conversation. `None` for a row without a kind, which a late write left where no conversation is.
    pub(crate) fn conversation(&self) -> Result<Option<Conversation>> {
        let kind = match self.kind {
            None => return Ok(None),
            Some(0) => ConversationKind::Direct,
            // A later version knows further kinds: all have several participants.
            Some(_) => ConversationKind::Group,
        };
        let name = self.name.as_deref().map(GroupName::from_history);
        let created_at = self.created_at;
        let created_at = created_at.ok_or_else(|| corrupt(TABLE, "a conversation has a time"))?;
        let created_by = self.created_by.as_deref().map(|name| user(TABLE, name));
        let hash = |bytes: &[u8]| {
            let hash = bytes.try_into().map(InputHash);
            hash.map_err(|_| corrupt(TABLE, "a hash has 32 bytes"))
        };
        Ok(Some(Conversation {
            id: ConversationId(self.id),
            kind,
            name: name.transpose().map_err(|error| corrupt(TABLE, error))?,
            created_at: Timestamp::from_micros(created_at),
            created_by: created_by.transpose()?,
            input_hash: self.input_hash.as_deref().map(hash).transpose()?,
            slow_mode_seconds: slow_mode(self.slow_mode_seconds),
            history: decode_history(self.history.as_deref())?,
            is_large: self.is_large.unwrap_or_default(),
        }))
    }

    pub(crate) fn last_message(&self) -> Result<Option<LastMessage>> {
        let bytes = self.last_message.as_deref();
        bytes
            .map(|bytes| LastMessage::decode(TABLE, bytes))
            .transpose()
    }

    fn head(&self) -> Result<Head> {
        let change = |bytes: &[u8]| {
            TimeUuid::from_order_key(order_key(TABLE, bytes)?)
                .ok_or_else(|| corrupt(TABLE, "a newest change is the order key of an id"))
        };
        Ok(Head {
            exists: self.kind.is_some(),
            is_large: self.is_large.unwrap_or_default(),
            history: decode_history(self.history.as_deref())?,
            last: self.last_message()?,
            newest_change: self.newest_change.as_deref().map(change).transpose()?,
            last_activity: self.last_activity.map(Timestamp::from_micros),
            is_fallback: self
                .activity_written_at
                .is_some_and(|at| at < REGISTER_TIMESTAMP),
            created_at: self.created_at.map(Timestamp::from_micros),
        })
    }
}

impl Messages {
    async fn columns(&self, id: ConversationId) -> Result<Option<ConversationColumns>> {
        self.executor
            .read_one(&SELECT_CONVERSATION, values![id])
            .await
    }

    pub(crate) async fn conversation(&self, id: ConversationId) -> Result<Option<ConversationRow>> {
        let Some(columns) = self.columns(id).await? else {
            return Ok(None);
        };
        let head = self.noted_head(&columns)?;
        let Some(conversation) = columns.conversation()? else {
            return Ok(None);
        };
        let created_under = columns.made.map(|id| time_uuid(TABLE, id)).transpose()?;
        Ok(Some(ConversationRow {
            conversation: Arc::new(conversation),
            created_under,
            head,
        }))
    }

    /// Conversations without their heads, those that exist, in no order. No id may be named twice.
    pub(crate) async fn conversations(
        &self,
        ids: &[ConversationId],
    ) -> Result<Vec<Arc<Conversation>>> {
        let reads = ids.chunks(PARTITIONS_MAX).map(|piece| {
            let (statement, values) = match piece {
                [id] => (&SELECT_CONVERSATION, values![*id]),
                piece => (&SELECT_CONVERSATIONS, values![list(piece.iter().copied())]),
            };
            self.executor.read::<ConversationColumns>(statement, values)
        });
        let mut found = Vec::with_capacity(ids.len());
        for columns in concurrently(reads).await?.into_iter().flatten() {
            found.extend(columns.conversation()?.map(Arc::new));
        }
        Ok(found)
    }

    /// The head of a conversation as it is now; the default one if there is no row.
    pub(crate) async fn head(&self, id: ConversationId) -> Result<Head> {
        let columns = self.columns(id).await?;
        columns.map_or_else(|| Ok(Head::default()), |columns| self.noted_head(&columns))
    }

    fn noted_head(&self, columns: &ConversationColumns) -> Result<Head> {
        let head = columns.head()?;
        if let Some(last) = &head.last {
            // Clients often ask for the last message next: its bucket is known now.
            self.index
                .note_present(ConversationId(columns.id), last.bucket);
        }
        Ok(head)
    }

    pub(crate) async fn last_messages(
        &self,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<MessageId>>> {
        let heads = self.heads_now(conversations).await?;
        let last = |head: Head| head.last.map(|last| last.id);
        Ok(heads.into_iter().map(last).collect())
    }

    /// Heads as they are now.
    pub(crate) async fn heads_now(&self, conversations: &[ConversationId]) -> Result<Vec<Head>> {
        concurrently(conversations.iter().map(|id| self.head(*id))).await
    }

    /// Creates the row of a conversation by a lightweight transaction. False if there is one already.
    pub(crate) async fn claim_conversation(
        &self,
        conversation: &Conversation,
        change: ChangeId,
    ) -> Result<bool> {
        let Conversation {
            id,
            kind,
            created_at,
            ref created_by,
            input_hash,
            ..
        } = *conversation;
        let hash = input_hash.map(|InputHash(bytes)| bytes.to_vec());
        let created_by: Option<&UserId> = created_by.as_ref();
        let values = values![id, kind_number(kind), created_at, created_by, hash, change];
        Ok(self
            .executor
            .write_if::<Row>(&CLAIM_CONVERSATION, values)
            .await?
            .is_none())
    }

    /// Replaces the creator, whom a lightweight transaction has written.
    pub(crate) async fn replace_creator(
        &self,
        id: ConversationId,
        from: &UserId,
        to: &UserId,
    ) -> Result<()> {
        let values = values![to, id, from];
        let answer = self.executor.write_if::<Row>(&SWAP_CREATOR, values).await;
        answer.map(drop)
    }
}

impl Writes {
    /// Advances a head. Parts that are `None`, or not later than the present ones, stay.
    pub(crate) fn put_head(
        &mut self,
        id: ConversationId,
        last: Option<&LastMessage>,
        newest_change: Option<ChangeId>,
        activity: Option<Timestamp>,
    ) {
        let newest_change = newest_change.map(ChangeId::order_key);
        let values = values![
            REGISTER_TIMESTAMP,
            last.map(LastMessage::encode),
            newest_change,
            activity,
            id
        ];
        self.push(&UPDATE_HEAD, values);
    }

    /// Marks a conversation as large, for good: no write ever clears the flag.
    pub(crate) fn put_is_large_row(&mut self, id: ConversationId) {
        self.push(&UPDATE_IS_LARGE, values![REGISTER_TIMESTAMP, true, id]);
    }

    /// Sets the slow mode of a conversation. Of two values the later one stays.
    pub(crate) fn put_slow_mode_row(&mut self, id: ConversationId, seconds: i32, at: i64) {
        self.push(&UPDATE_SLOW_MODE, values![at, seconds, id]);
    }

    /// Sets the settings of a history. Of two values the later one stays.
    pub(crate) fn put_history_row(
        &mut self,
        id: ConversationId,
        settings: &HistorySettings,
        at: i64,
    ) {
        self.push(&UPDATE_HISTORY, values![at, encode_history(settings), id]);
    }

    /// Names a conversation. Of two names the later one stays, whatever the order of arrival.
    pub(crate) fn put_name_row(&mut self, id: ConversationId, name: &GroupName, at: Timestamp) {
        self.push(&UPDATE_NAME, values![at, name.as_str(), id]);
    }
}
