//! The operator's part of the contract of a store, each method handed to the folder that implements it.

use super::Cql;
use crate::model::{
    Conversation, ConversationId, Emoji, Membership, MessageId, Profile, Timestamp, UserId,
};
use crate::store::{
    ImportPositions, ImportRow, Imported, NOTE_OUTBOX_SINCE, ScanStore, StoreAdmin, StoreFuture,
    StoredMessage, Verified, VerifyPosition,
};

impl ScanStore for Cql {
    fn all_users<'a>(
        &'a self,
        after: Option<&'a UserId>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(UserId, Profile)>> {
        Box::pin(self.admin.all_users(after, limit))
    }

    fn all_conversations(
        &self,
        after: Option<ConversationId>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<(Conversation, Option<Timestamp>)>> {
        Box::pin(self.admin.all_conversations(after, limit))
    }
}

impl StoreAdmin for Cql {
    fn import<'a>(&'a self, rows: &'a [ImportRow]) -> StoreFuture<'a, Vec<Imported>> {
        Box::pin(self.admin.import(rows))
    }

    fn all_participants<'a>(
        &'a self,
        conversation: ConversationId,
        after: Option<&'a UserId>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(UserId, Membership, ImportPositions)>> {
        Box::pin(self.admin.all_participants(conversation, after, limit))
    }

    fn all_messages(
        &self,
        conversation: ConversationId,
        after: Option<MessageId>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<StoredMessage>> {
        Box::pin(self.admin.all_messages(conversation, after, limit))
    }

    fn all_reactions<'a>(
        &'a self,
        conversation: ConversationId,
        message: MessageId,
        after: Option<&'a (Emoji, UserId)>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(Emoji, UserId)>> {
        Box::pin(
            self.admin
                .all_reactions(conversation, message, after, limit),
        )
    }

    fn verify<'a>(
        &'a self,
        after: Option<&'a VerifyPosition>,
        repair: bool,
    ) -> StoreFuture<'a, Verified> {
        Box::pin(self.admin.verify(after, repair))
    }

    fn note<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<String>> {
        Box::pin(self.admin.note(name))
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
            self.outbox.follow(&Ok(since));
            Ok(())
        })
    }

    fn note_once<'a>(&'a self, name: &'a str, value: &'a str) -> StoreFuture<'a, String> {
        Box::pin(self.admin.note_once(name, value))
    }

    fn count_imported(&self, conversation: ConversationId) -> StoreFuture<'_, ()> {
        Box::pin(self.messages.count_imported(conversation))
    }

    fn compact(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move { Ok(()) })
    }
}
