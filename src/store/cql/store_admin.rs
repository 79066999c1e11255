//! The operator's part of the contract of a store, each method handed to the folder that implements it.

use tokio::time::Instant;

use super::Cql;
use crate::model::{
    Conversation, ConversationId, Emoji, Membership, MessageId, Profile, Timestamp, UserId,
};
use crate::store::{
    ImportPositions, ImportRow, Imported, NOTE_OUTBOX_SINCE, ScanStore, StoreAdmin, StoreFuture,
    StoredMessage, Verified, VerifyPosition, admin_operations, scan_operations,
};

impl ScanStore for Cql {
    scan_operations! {
        admin: all_users, all_conversations;
    }
}

impl StoreAdmin for Cql {
    admin_operations! {
        admin: import, all_participants, all_messages, all_reactions, verify, note, note_once;
        messages: count_imported;
    }

    fn set_note<'a>(&'a self, name: &'a str, value: Option<&'a str>) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            *self.imported_at.lock() = None;
            self.admin.set_note(name, value).await
        })
    }

    fn set_outbox(&self, since: Option<Timestamp>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let note = since.map(|since| since.to_string());
            self.admin
                .set_note(NOTE_OUTBOX_SINCE, note.as_deref())
                .await?;
            self.outbox.follow(Instant::now(), &Ok(since));
            Ok(())
        })
    }

    fn compact(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move { Ok(()) })
    }
}
