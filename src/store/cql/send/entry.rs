//! What a user sets on their own entry: markers, which are maxima, and flags, of which the later one stays.
//!
//! A flag is written as of its change, or as of just after the value that it replaces, where that is later: a server whose clock is behind
//! cannot lose what it was told last. Two who set different flags at once write different cells.

use futures_util::future::{join, try_join_all};

use crate::model::{ConversationId, Flags, OrderKey, Timestamp, UserId};
use crate::store::cql::Inner;
use crate::store::cql::driver::error::unknown;
use crate::store::cql::driver::executor::Writes;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{Cells, cells};
use crate::store::cql::inbox::row::flags;
use crate::store::cql::inbox::writes::InboxChangeKind;
use crate::store::cql::message::register::REGISTER_TIMESTAMP;
use crate::store::{Archive, FlagsChange, MarkerMove, Result, WakePlace};

/// An archive that has ended, or never began: no moment of ours is 1970, and a null would be a tombstone.
const NO_ARCHIVE: Timestamp = Timestamp::ZERO;

statements! {
    /// The statements of this file.
    Statements {
        marker: Write "UPDATE inbox_by_user USING TIMESTAMP ? SET read_up_to = ? WHERE user_id = ? AND conversation_id = ?";
        read_up_to: Write "UPDATE participants_by_conversation USING TIMESTAMP ? SET read_up_to = ? WHERE conversation_id = ? AND user_id = ?";
        delivered: Write "UPDATE participants_by_conversation USING TIMESTAMP ? SET delivered_up_to = ? WHERE conversation_id = ? AND user_id = ?";
        flags: Read "SELECT membership, is_muted, is_pinned, archived_at, WRITETIME(is_muted), WRITETIME(is_pinned), WRITETIME(archived_at) FROM inbox_by_user WHERE user_id = ? AND conversation_id = ?";
        set: Write "UPDATE inbox_by_user USING TIMESTAMP ? SET is_muted = ?, is_pinned = ? WHERE user_id = ? AND conversation_id = ?";
        archive: Write "UPDATE inbox_by_user USING TIMESTAMP ? SET archived_at = ? WHERE user_id = ? AND conversation_id = ?";
    }
}

type FlagColumns = (Option<Vec<u8>>, Option<bool>, Option<bool>, Option<i64>, Option<i64>, Option<i64>, Option<i64>);

/// Flags, and as of when each was written.
struct Written {
    flags: Flags,
    muted_at: i64,
    pinned_at: i64,
    archive_at: i64,
}

pub(crate) async fn move_read_marker(inner: &Inner, user: &UserId, to: &MarkerMove) -> Result<()> {
    let statements = &inner.statements.entry;
    let mut writes = Writes::logged();
    writes.push(&statements.marker, cells![REGISTER_TIMESTAMP, to.marker, user, to.conversation]);
    if let Some(read_up_to) = to.read_up_to {
        writes.push(&statements.read_up_to, cells![REGISTER_TIMESTAMP, read_up_to, to.conversation, user]);
    }
    inner.log_inbox_change(&mut writes, user, to.conversation, to.change, InboxChangeKind::MarkerMoved);
    let places = [WakePlace::Marker(to.conversation, user.clone()), WakePlace::Inbox(user.clone())];
    kept_and_told(inner.cluster.write_all(writes), tell(inner, &places)).await
}

pub(crate) async fn mark_delivered(inner: &Inner, user: &UserId, conversation: ConversationId, up_to: OrderKey) -> Result<()> {
    let values = cells![REGISTER_TIMESTAMP, up_to, conversation, user];
    let written = inner.cluster.write(&inner.statements.entry.delivered, values);
    kept_and_told(written, tell(inner, &[WakePlace::Marker(conversation, user.clone())])).await
}

/// Acknowledged are only both: what was kept and not told is of an outcome that is not known.
async fn kept_and_told(kept: impl Future<Output = Result<()>>, told: impl Future<Output = Result<()>>) -> Result<()> {
    let (kept, told) = join(kept, told).await;
    kept?;
    told.map_err(unknown)
}

/// Beside what is written.
async fn tell(inner: &Inner, places: &[WakePlace]) -> Result<()> {
    try_join_all(places.iter().map(|place| inner.wake(place))).await?;
    Ok(())
}

pub(crate) async fn set_flags(inner: &Inner, user: &UserId, to: &FlagsChange) -> Result<Option<Flags>> {
    let Some(before) = read_flags(inner, user, to.conversation).await? else { return Ok(None) };
    if to.apply(before.flags) == before.flags {
        return Ok(None);
    }
    let mut writes = Writes::logged();
    put_flags(inner, &mut writes, user, to, &before);
    inner.log_inbox_change(&mut writes, user, to.conversation, to.change, InboxChangeKind::FlagsSet);
    kept_and_told(inner.cluster.write_all(writes), tell(inner, &[WakePlace::Inbox(user.clone())])).await?;
    // What another device set at the same moment is in it too.
    let after = read_flags(inner, user, to.conversation).await.map_err(unknown)?;
    Ok(Some(after.map_or_else(|| to.apply(before.flags), |after| after.flags)))
}

fn put_flags(inner: &Inner, writes: &mut Writes, user: &UserId, to: &FlagsChange, before: &Written) {
    let statements = &inner.statements.entry;
    let moment = to.change.moment().micros();
    if to.muted.is_some() || to.pinned.is_some() {
        let muted_at = to.muted.map(|_| before.muted_at);
        let pinned_at = to.pinned.map(|_| before.pinned_at);
        let at = moment.max(muted_at.max(pinned_at).unwrap_or_default() + 1);
        writes.push(&statements.set, cells![at, to.muted, to.pinned, user, to.conversation]);
    }
    let archive = |at: i64, archived_at: Timestamp| -> Cells { cells![at, archived_at, user, to.conversation] };
    let later = moment.max(before.archive_at + 1);
    match to.archive {
        Some(Archive::Begin(begun)) => writes.push(&statements.archive, archive(later, begun)),
        Some(Archive::End) => writes.push(&statements.archive, archive(later, NO_ARCHIVE)),
        // Written as of just after the archive that it ends. Another one that begins meanwhile is written as of its own change, or as of
        // that same microsecond, and then has the greater bytes: it stays.
        Some(Archive::EndOf(begun)) if before.flags.archived_at == Some(begun) => {
            writes.push(&statements.archive, archive(before.archive_at + 1, NO_ARCHIVE));
        }
        Some(Archive::EndOf(_)) | None => {}
    }
}

/// `None` where the user was never in the conversation.
async fn read_flags(inner: &Inner, user: &UserId, conversation: ConversationId) -> Result<Option<Written>> {
    let columns = inner.cluster.read_one::<FlagColumns>(&inner.statements.entry.flags, cells![user, conversation]).await?;
    let Some((Some(_membership), is_muted, is_pinned, archived_at, muted_at, pinned_at, archive_at)) = columns else { return Ok(None) };
    let at = Option::unwrap_or_default;
    Ok(Some(Written {
        flags: flags(is_muted, is_pinned, archived_at),
        muted_at: at(muted_at),
        pinned_at: at(pinned_at),
        archive_at: at(archive_at),
    }))
}
