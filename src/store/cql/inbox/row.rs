//! Rows of inbox entries: read by key or, for a short inbox, all at once.

use std::collections::HashMap;

use futures_util::future::try_join_all;
use scylla::DeserializeRow;
use uuid::Uuid;

use super::Inboxes;
use super::flags::decode_flags;
use crate::model::{
    ActPosition, ConversationId, Floor, InboxRow, Membership, MessageId, Timestamp, UserId,
};
use crate::store::Result;
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{act_position, list, marker, row_limit, values};
use crate::store::cql::message::bucket::last_message::LastMessage;
use crate::store::cql::message::head_cache::HeadSummary;
use crate::store::cql::message::membership::decode_membership;

const TABLE: &str = "inbox_by_user";
/// Rows of one read by keys.
pub(crate) const PIECE: usize = 20;
/// Concurrent reads by keys.
pub(crate) const PIECES_AT_ONCE: usize = 32;
/// Rows of one read that counts conversations.
const COUNT_ROWS_MAX: usize = 5_000;
/// Rows of an inbox that is short enough to be read whole, by one read of one partition.
const SHORT_MAX: usize = 100;

macro_rules! row_columns {
    () => {
        "conversation_id, last_message, last_activity, read_up_to, sent_up_to, is_muted, is_pinned, archived_at, membership, level"
    };
}

statements! {
    SELECT_ENTRIES: Read concat!("SELECT ", row_columns!(), " FROM inbox_by_user WHERE user_id = ? AND conversation_id IN ?");
    SELECT_MEMBERSHIPS: Read "SELECT conversation_id, membership FROM inbox_by_user WHERE user_id = ? AND conversation_id > ? LIMIT ?";
    SELECT_FIRST_ENTRIES: Read concat!("SELECT ", row_columns!(), " FROM inbox_by_user WHERE user_id = ? LIMIT ?");
}

impl Inboxes {
    /// Memberships in the order of conversations, those of conversations that the user has left included. The role in one is not used.
    pub(crate) async fn stored_memberships(
        &self,
        user: &UserId,
        after: ConversationId,
        limit: usize,
    ) -> Result<Vec<(ConversationId, Option<Membership>)>> {
        let rows: Vec<(Uuid, Option<Vec<u8>>)> = self
            .executor
            .read(&SELECT_MEMBERSHIPS, values![user, after, row_limit(limit)])
            .await?;
        let decode = |(id, bytes): (Uuid, Option<Vec<u8>>)| {
            Ok((
                ConversationId(id),
                bytes
                    .map(|bytes| decode_membership(TABLE, &bytes))
                    .transpose()?,
            ))
        };
        rows.into_iter().map(decode).collect()
    }

    /// Counts the conversations that a user is in, up to a limit. It also reads the rows of conversations that the user has left.
    pub(crate) async fn conversation_count(&self, user: &UserId, limit: usize) -> Result<usize> {
        if user.is_agent() {
            return Ok(0);
        }
        let (mut count, mut rows_read, mut last) = (0, 0, ConversationId(Uuid::nil()));
        while count < limit && rows_read < limit.saturating_mul(2) {
            let rows = self.stored_memberships(user, last, COUNT_ROWS_MAX).await?;
            for (_, membership) in &rows {
                count += usize::from(membership.is_some_and(|membership| membership.is_joined()));
            }
            rows_read += rows.len();
            match rows.last() {
                Some((id, _)) if rows.len() == COUNT_ROWS_MAX => last = *id,
                Some(_) | None => break,
            }
        }
        Ok(count.min(limit))
    }

    /// All entries of a short inbox, in no order. `None` if the inbox is long.
    pub(super) async fn short_inbox(&self, user: &UserId) -> Result<Option<Vec<InboxRow>>> {
        if self.long_inboxes.lock().get(user).is_some() {
            return Ok(None);
        }
        let limit = row_limit(SHORT_MAX + 1);
        let rows: Vec<InboxColumns> = self
            .executor
            .read(&SELECT_FIRST_ENTRIES, values![user, limit])
            .await?;
        if rows.len() > SHORT_MAX {
            self.long_inboxes.lock().put(user.clone(), ());
            return Ok(None);
        }
        rows.into_iter()
            .filter_map(|columns| self.entry(columns).transpose())
            .collect::<Result<_>>()
            .map(Some)
    }
}

#[derive(Default, DeserializeRow)]
#[scylla(flavor = "enforce_order", skip_name_checks)]
struct InboxColumns {
    conversation: Uuid,
    last_message: Option<Vec<u8>>,
    last_activity: Option<i64>,
    read_up_to: Option<Vec<u8>>,
    sent_up_to: Option<Vec<u8>>,
    is_muted: Option<bool>,
    is_pinned: Option<bool>,
    archived_at: Option<i64>,
    membership: Option<Vec<u8>>,
    level: Option<i8>,
}

impl Inboxes {
    /// The entry of a row, if the user is in the conversation now.
    fn entry(&self, columns: InboxColumns) -> Result<Option<InboxRow>> {
        // A concurrent send may write the row of a user who has not joined yet, or has left: that is no entry.
        match &columns.membership {
            Some(membership) if decode_membership(TABLE, membership)?.is_joined() => {
                self.decode_row(columns).map(Some)
            }
            Some(_) | None => Ok(None),
        }
    }

    /// Decodes a row, whether the user is in the conversation or not.
    fn decode_row(&self, columns: InboxColumns) -> Result<InboxRow> {
        let InboxColumns {
            is_muted,
            is_pinned,
            archived_at,
            level,
            ..
        } = columns;
        let sent = columns
            .sent_up_to
            .map(|bytes| act_position(TABLE, &bytes))
            .transpose()?;
        let sent_message = |act: ActPosition| {
            MessageId::from_order_key(act.up_to)
                .ok_or_else(|| corrupt(TABLE, "the position of a sent message is not an order key"))
        };
        let last_message = columns
            .last_message
            .map(|bytes| LastMessage::decode(TABLE, &bytes))
            .transpose()?;
        let conversation = ConversationId(columns.conversation);
        if let Some(last) = &last_message {
            // Clients often ask for the last message next: its bucket is known now.
            self.messages.note_bucket(conversation, last.bucket);
        }
        Ok(InboxRow {
            conversation,
            last_activity: Timestamp::from_micros(columns.last_activity.unwrap_or_default()),
            last_message: last_message.map(|last| last.id),
            marker: columns
                .read_up_to
                .map(|bytes| marker(TABLE, &bytes))
                .transpose()?
                .unwrap_or_default(),
            sent_up_to: sent.map(sent_message).transpose()?,
            is_sent_by_service: sent.is_some_and(|act| act.is_by_service),
            flags: decode_flags(is_muted, is_pinned, archived_at, level),
            floor: Floor::NONE,
        })
    }

    /// The stored row of a user in a conversation, also after leaving it. An empty one if there is none.
    pub(crate) async fn stored_row(
        &self,
        user: &UserId,
        conversation: ConversationId,
    ) -> Result<InboxRow> {
        let row = self
            .executor
            .read_one::<InboxColumns>(&SELECT_ENTRIES, values![user, list([conversation])])
            .await?;
        self.decode_row(row.unwrap_or_else(|| InboxColumns {
            conversation: conversation.0,
            ..InboxColumns::default()
        }))
    }

    /// The user's own rows of those conversations that the user is in. No conversation may be named twice.
    pub(crate) async fn own_rows(
        &self,
        user: &UserId,
        conversations: &[ConversationId],
    ) -> Result<HashMap<ConversationId, InboxRow>> {
        let mut found = HashMap::with_capacity(conversations.len());
        let pieces: Vec<_> = conversations.chunks(PIECE).collect();
        for pieces in pieces.chunks(PIECES_AT_ONCE) {
            let reads = pieces.iter().map(|piece| {
                self.executor.read::<InboxColumns>(
                    &SELECT_ENTRIES,
                    values![user, list(piece.iter().copied())],
                )
            });
            for columns in try_join_all(reads).await?.into_iter().flatten() {
                found.extend(self.entry(columns)?.map(|row| (row.conversation, row)));
            }
        }
        Ok(found)
    }
}

/// A row merged with the head of its large conversation.
pub(crate) fn with_head(row: InboxRow, head: &HeadSummary) -> InboxRow {
    InboxRow {
        last_activity: row.last_activity.max(head.last_activity),
        last_message: row.last_message.max(head.last_message),
        ..row
    }
}
