//! Changes of inbox entries, and requests about them.

use std::sync::Arc;

use crate::model::{
    ChangeId, ConversationId, Flags, IgnoredSenders, InboxRow, Message, MessageId,
    NotificationLevel, OrderKey, ReadMarker, TimeUuid, Timestamp, Unread, UserId,
};

/// A request for the unread count of an inbox entry.
#[derive(Debug, Clone, Copy)]
pub struct UnreadQuery {
    pub conversation: ConversationId,
    pub after: OrderKey,
    /// The last position that is counted. `None` counts to the end.
    pub up_to: Option<OrderKey>,
}

/// A user for whom unread messages are counted, and the senders whose messages never count.
#[derive(Clone, Copy)]
pub(in crate::store) struct UnreadReader<'a> {
    pub(in crate::store) user: &'a UserId,
    pub(in crate::store) ignored: &'a IgnoredSenders,
}

impl UnreadReader<'_> {
    /// Whether a TEXT message of this sender counts.
    pub(in crate::store) fn counts(self, sender: &str) -> bool {
        sender != self.user.as_str() && !self.ignored.contains(sender)
    }

    /// The same by the bytes of a stored name.
    pub(in crate::store) fn counts_bytes(self, sender: &[u8]) -> bool {
        sender != self.user.as_str().as_bytes() && !self.ignored.contains_bytes(sender)
    }
}

/// A request for the parts of an inbox entry that lie in its conversation.
#[derive(Debug, Clone, Copy)]
pub struct PreviewQuery {
    pub conversation: ConversationId,
    /// The position after which unread messages are counted. `None` asks for no count.
    pub unread_after: Option<OrderKey>,
    /// The newest message, as the row of the entry names it. `None` asks for no message.
    pub last_message: Option<MessageId>,
}

/// The parts of an inbox entry that a [`PreviewQuery`] asked for.
#[derive(Debug, Clone, Default)]
pub struct EntryPreview {
    pub unread: Option<Unread>,
    pub last_message: Option<Arc<Message>>,
}

/// How long changes are kept, of a conversation and of an inbox. Cursors live less long.
pub const CHANGE_LIFETIME_MICROS: i64 = 35 * 24 * 3_600 * 1_000_000;

/// A move of a user's read marker.
#[derive(Debug, Clone, Copy)]
pub struct MarkerMove {
    pub conversation: ConversationId,
    pub marker: ReadMarker,
    /// The maximum of the read receipts, which never goes back: `None` when marking unread.
    pub read_up_to: Option<OrderKey>,
    /// Whether a service moves it in the name of a user who has not acted in the conversation yet.
    pub is_by_service: bool,
    /// Id of the move in the user's `changes_by_user`.
    pub change: ChangeId,
}

/// A change of the flags of an inbox entry. Flags that are `None` stay.
#[derive(Debug, Clone, Copy)]
pub struct FlagsChange {
    pub conversation: ConversationId,
    pub muted: Option<bool>,
    pub pinned: Option<bool>,
    pub archive: Option<Archive>,
    /// `Some(None)` sets the default again.
    pub level: Option<Option<NotificationLevel>>,
    /// Id of the change in the user's `changes_by_user`.
    pub change: ChangeId,
}

/// A change of an entry's archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Archive {
    Begin(Timestamp),
    End,
    /// Ends the archive that began at that moment; another one stays.
    EndOf(Timestamp),
}

impl FlagsChange {
    /// The flags after the change.
    pub fn apply(&self, flags: Flags) -> Flags {
        let archived_at = match self.archive {
            Some(Archive::Begin(moment)) => Some(moment),
            Some(Archive::End) => None,
            Some(Archive::EndOf(moment)) => flags
                .archived_at
                .filter(|archived_at| *archived_at != moment),
            None => flags.archived_at,
        };
        Flags {
            is_muted: self.muted.unwrap_or(flags.is_muted),
            is_pinned: self.pinned.unwrap_or(flags.is_pinned),
            archived_at,
            level: self.level.unwrap_or(flags.level),
        }
    }
}

/// A conversation in a user's inbox, with its newest change there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangedRow {
    pub newest_change: TimeUuid,
    pub conversation: ConversationId,
    /// `None` if the user has left the conversation.
    pub row: Option<InboxRow>,
}
