//! The row of an inbox entry: how it is read, by its key and, of those who have few, all at once.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard};

use futures_util::future::try_join_all;
use lru::LruCache;
use uuid::Uuid;

use crate::model::{ConversationId, Flags, InboxRow, MessageId, Timestamp, UserId};
use crate::store::Result;
use crate::store::cql::Inner;
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{cells, list, marker, place};
use crate::store::cql::message::head_cache::Head;
use crate::store::cql::message::register::{LastMessage, decode_membership};

const TABLE: &str = "inbox_by_user";
/// Rows of one read by their keys.
pub(crate) const PIECE: usize = 20;
/// Such reads under way at once.
pub(crate) const PIECES_AT_ONCE: usize = 32;
/// Who has no more rows has a small inbox: it is read whole, which is one read of one partition.
const FEW: usize = 100;
const CROWDED_MAX: NonZeroUsize = NonZeroUsize::new(65_536).expect("it is not zero");

/// Rows of one read where conversations are counted.
const COUNTED_AT_ONCE: i32 = 5_000;

macro_rules! row_columns {
    () => {
        "conversation_id, last_message, last_activity, read_up_to, sent_up_to, is_muted, is_pinned, archived_at, membership"
    };
}

statements! {
    /// The statements of this file.
    Statements {
        some: Read concat!("SELECT ", row_columns!(), " FROM inbox_by_user WHERE user_id = ? AND conversation_id IN ?");
        memberships: Read "SELECT conversation_id, membership FROM inbox_by_user WHERE user_id = ? AND conversation_id > ? LIMIT ?";
        all: Read concat!("SELECT ", row_columns!(), " FROM inbox_by_user WHERE user_id = ? LIMIT ?");
    }
}

/// Those whose inboxes are known to hold more than a few rows.
pub(crate) struct Crowded(Mutex<LruCache<UserId, ()>>);

impl Crowded {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(LruCache::new(CROWDED_MAX)))
    }

    fn users(&self) -> MutexGuard<'_, LruCache<UserId, ()>> {
        self.0.lock().expect("no panic while holding users")
    }
}

/// Counts the conversations that a user is in, up to a limit. It reads the rows of conversations that the user left, too.
pub(crate) async fn conversation_count(inner: &Inner, user: &UserId, limit: usize) -> Result<usize> {
    let (mut count, mut looked_at, mut last) = (0, 0, Uuid::nil());
    while count < limit && looked_at < limit.saturating_mul(2) {
        let values = cells![user, ConversationId(last), COUNTED_AT_ONCE];
        let rows: Vec<(Uuid, Option<Vec<u8>>)> = inner.cluster.read(&inner.statements.inbox_row.memberships, values).await?;
        for (_, membership) in &rows {
            let membership = membership.as_ref().map(|bytes| decode_membership(TABLE, bytes)).transpose()?;
            count += usize::from(membership.is_some_and(|membership| membership.is_joined()));
        }
        looked_at += rows.len();
        match rows.last() {
            Some((id, _)) if rows.len() == COUNTED_AT_ONCE as usize => last = *id,
            Some(_) | None => break,
        }
    }
    Ok(count.min(limit))
}

/// All entries of a small inbox, in no order. `None` where it is not small.
pub(crate) async fn few_rows(inner: &Inner, user: &UserId) -> Result<Option<Vec<InboxRow>>> {
    if inner.crowded.users().get(user).is_some() {
        return Ok(None);
    }
    let limit = i32::try_from(FEW + 1).expect("they are few");
    let rows: Vec<Columns> = inner.cluster.read(&inner.statements.inbox_row.all, cells![user, limit]).await?;
    if rows.len() > FEW {
        inner.crowded.users().put(user.clone(), ());
        return Ok(None);
    }
    rows.into_iter().filter_map(|columns| entry(inner, columns).transpose()).collect::<Result<_>>().map(Some)
}

type Columns =
    (Uuid, Option<Vec<u8>>, Option<i64>, Option<Vec<u8>>, Option<Vec<u8>>, Option<bool>, Option<bool>, Option<i64>, Option<Vec<u8>>);

/// The flags of a row. What was never set is as from the beginning, and an archive at 0 is none.
pub(crate) fn flags(is_muted: Option<bool>, is_pinned: Option<bool>, archived_at: Option<i64>) -> Flags {
    let archived_at = archived_at.filter(|archived_at| *archived_at != 0).map(Timestamp::from_micros);
    Flags { is_muted: is_muted.unwrap_or_default(), is_pinned: is_pinned.unwrap_or_default(), archived_at }
}

/// The entry of a row, where the user is in the conversation now.
fn entry(inner: &Inner, columns: Columns) -> Result<Option<InboxRow>> {
    // A message that was sent to one who is not in it yet, or was taken out, makes no entry.
    match &columns.8 {
        Some(membership) if decode_membership(TABLE, membership)?.is_joined() => as_written(inner, columns).map(Some),
        Some(_) | None => Ok(None),
    }
}

/// What a row says, whoever is in the conversation.
fn as_written(inner: &Inner, columns: Columns) -> Result<InboxRow> {
    let (conversation, last_message, last_activity, read_up_to, sent_up_to, is_muted, is_pinned, archived_at, _) = columns;
    let sent = |bytes: Vec<u8>| {
        MessageId::from_order_key(place(TABLE, &bytes)?).ok_or_else(|| corrupt(TABLE, "what was sent is the order key of a message"))
    };
    let last_message = last_message.map(|bytes| LastMessage::decode(TABLE, &bytes)).transpose()?;
    let conversation = ConversationId(conversation);
    if let Some(last) = &last_message {
        // Written together with the message: whoever asks for it next knows where it lies.
        inner.index.note_present(conversation, last.bucket);
    }
    Ok(InboxRow {
        conversation,
        last_activity: Timestamp::from_micros(last_activity.unwrap_or_default()),
        last_message: last_message.map(|last| last.id),
        marker: read_up_to.map(|bytes| marker(TABLE, &bytes)).transpose()?.unwrap_or_default(),
        sent_up_to: sent_up_to.map(sent).transpose()?,
        flags: flags(is_muted, is_pinned, archived_at),
    })
}

/// A user's row for a conversation that they are in, or have left. Empty where there is none.
pub(crate) async fn row_as_written(inner: &Inner, user: &UserId, conversation: ConversationId) -> Result<InboxRow> {
    let row = inner.cluster.read_one::<Columns>(&inner.statements.inbox_row.some, cells![user, list([conversation])]).await?;
    as_written(inner, row.unwrap_or((conversation.0, None, None, None, None, None, None, None, None)))
}

/// A user's own rows for some conversations, of those that they are in. No conversation may be named twice.
pub(crate) async fn own_rows(inner: &Inner, user: &UserId, conversations: &[ConversationId]) -> Result<HashMap<ConversationId, InboxRow>> {
    let mut found = HashMap::with_capacity(conversations.len());
    let pieces: Vec<_> = conversations.chunks(PIECE).collect();
    for pieces in pieces.chunks(PIECES_AT_ONCE) {
        let reads = pieces
            .iter()
            .map(|piece| inner.cluster.read::<Columns>(&inner.statements.inbox_row.some, cells![user, list(piece.iter().copied())]));
        for columns in try_join_all(reads).await?.into_iter().flatten() {
            found.extend(entry(inner, columns)?.map(|row| (row.conversation, row)));
        }
    }
    Ok(found)
}

/// A row with what the head of its large conversation knows.
pub(crate) fn with_head(row: InboxRow, head: &Head) -> InboxRow {
    InboxRow { last_activity: row.last_activity.max(head.last_activity), last_message: row.last_message.max(head.last_message), ..row }
}
