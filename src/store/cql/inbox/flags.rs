//! Flags of an inbox entry: muted, pinned, archived and the notification level, each a last-write-wins register.
//!
//! The write timestamp of a flag is the moment of its change, or just after the value that it replaces if that is later: a server whose
//! clock is behind cannot lose the newest change. Two devices that set different flags at the same moment write different cells.

use scylla::DeserializeRow;

use super::Inboxes;
use crate::model::{ConversationId, Flags, NotificationLevel, Timestamp, UserId};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{Values, values};
use crate::store::{Archive, FlagsChange, Result};

/// The stored level of an entry with the default. Null would be a tombstone.
const DEFAULT_LEVEL: i8 = -1;
/// The stored moment of an entry that is not archived. Null would be a tombstone, and no archive begins in 1970.
const NO_ARCHIVE: Timestamp = Timestamp::ZERO;

statements! {
    SELECT_FLAGS: Read "SELECT membership, is_muted, is_pinned, archived_at, level, WRITETIME(is_muted), WRITETIME(is_pinned), WRITETIME(archived_at), WRITETIME(level) FROM inbox_by_user WHERE user_id = ? AND conversation_id = ?";
    UPDATE_FLAGS: Write "UPDATE inbox_by_user USING TIMESTAMP ? SET is_muted = ?, is_pinned = ? WHERE user_id = ? AND conversation_id = ?";
    UPDATE_LEVEL: Write "UPDATE inbox_by_user USING TIMESTAMP ? SET level = ? WHERE user_id = ? AND conversation_id = ?";
    UPDATE_ARCHIVE: Write "UPDATE inbox_by_user USING TIMESTAMP ? SET archived_at = ? WHERE user_id = ? AND conversation_id = ?";
}

#[derive(DeserializeRow)]
#[scylla(flavor = "enforce_order", skip_name_checks)]
struct FlagColumns {
    membership: Option<Vec<u8>>,
    is_muted: Option<bool>,
    is_pinned: Option<bool>,
    archived_at: Option<i64>,
    level: Option<i8>,
    muted_at: Option<i64>,
    pinned_at: Option<i64>,
    archive_at: Option<i64>,
    level_at: Option<i64>,
}

/// Flags, with the write timestamp of each.
pub(crate) struct WrittenFlags {
    pub(crate) flags: Flags,
    muted_at: i64,
    pinned_at: i64,
    archive_at: i64,
    level_at: i64,
}

/// Decodes the flags of a row. A flag that was never set is off, and an archive at zero is none.
pub(crate) fn decode_flags(
    is_muted: Option<bool>,
    is_pinned: Option<bool>,
    archived_at: Option<i64>,
    level: Option<i8>,
) -> Flags {
    let archived_at = archived_at
        .map(Timestamp::from_micros)
        .filter(|archived_at| *archived_at != NO_ARCHIVE);
    Flags {
        is_muted: is_muted.unwrap_or_default(),
        is_pinned: is_pinned.unwrap_or_default(),
        archived_at,
        level: level
            .and_then(|level| u8::try_from(level).ok())
            .and_then(NotificationLevel::from_repr),
    }
}

/// The stored number of a level.
pub(crate) fn encode_level(level: Option<NotificationLevel>) -> i8 {
    level.map_or(DEFAULT_LEVEL, |level| level.number().cast_signed())
}

impl Inboxes {
    /// The flags of an entry. `None` if the user was never in the conversation.
    pub(crate) async fn flags(
        &self,
        user: &UserId,
        conversation: ConversationId,
    ) -> Result<Option<WrittenFlags>> {
        let row: Option<FlagColumns> = self
            .executor
            .read_one(&SELECT_FLAGS, values![user, conversation])
            .await?;
        let present = row.filter(|row| row.membership.is_some());
        Ok(present.map(|row| WrittenFlags {
            flags: decode_flags(row.is_muted, row.is_pinned, row.archived_at, row.level),
            muted_at: row.muted_at.unwrap_or_default(),
            pinned_at: row.pinned_at.unwrap_or_default(),
            archive_at: row.archive_at.unwrap_or_default(),
            level_at: row.level_at.unwrap_or_default(),
        }))
    }
}

impl Writes {
    pub(crate) fn put_flags(&mut self, user: &UserId, to: &FlagsChange, before: &WrittenFlags) {
        let moment = to.change.moment().micros();
        if to.muted.is_some() || to.pinned.is_some() {
            let muted_at = to.muted.map(|_| before.muted_at);
            let pinned_at = to.pinned.map(|_| before.pinned_at);
            let at = moment.max(muted_at.max(pinned_at).unwrap_or_default() + 1);
            self.push(
                &UPDATE_FLAGS,
                values![at, to.muted, to.pinned, user, to.conversation],
            );
        }
        if let Some(level) = to.level {
            let at = moment.max(before.level_at + 1);
            let levels = (before.flags.level, level);
            self.put_notify_all(user, to.conversation, levels, at);
            let level = encode_level(level);
            self.push(&UPDATE_LEVEL, values![at, level, user, to.conversation]);
        }
        let archive = |at: i64, archived_at: Timestamp| -> Values {
            values![at, archived_at, user, to.conversation]
        };
        let later = moment.max(before.archive_at + 1);
        match to.archive {
            Some(Archive::Begin(begun)) => self.push(&UPDATE_ARCHIVE, archive(later, begun)),
            Some(Archive::End) => self.push(&UPDATE_ARCHIVE, archive(later, NO_ARCHIVE)),
            // The timestamp is just after the archive that ends. An archive that begins concurrently has a later timestamp, or the same one
            // and greater bytes, and therefore wins.
            Some(Archive::EndOf(begun)) if before.flags.archived_at == Some(begun) => {
                self.push(&UPDATE_ARCHIVE, archive(before.archive_at + 1, NO_ARCHIVE));
            }
            Some(Archive::EndOf(_)) | None => {}
        }
    }
}
