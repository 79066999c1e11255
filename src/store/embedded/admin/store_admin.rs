//! The operator's part of the embedded store: import, export, verification and notes.

use std::sync::Arc;

use super::{export, import};
use crate::model::{
    Conversation, ConversationId, Emoji, Membership, MessageId, Profile, Timestamp, UserId,
};
use crate::store::embedded::engine::committer::{CommitOutcome, Op, Write};
use crate::store::embedded::engine::db::{MissingRow, corrupt};
use crate::store::embedded::engine::{key, record};
use crate::store::embedded::{Embedded, TRIES_MAX, contended, message};
use crate::store::{
    ImportPositions, ImportRow, Imported, ScanStore, StoreAdmin, StoreFuture, StoredMessage,
    Verified, VerifyPosition, admin_operations, scan_operations,
};

impl ScanStore for Embedded {
    scan_operations! { reads {
        all_users: export::users,
        all_conversations: export::conversations,
    } }
}

impl StoreAdmin for Embedded {
    admin_operations! { reads {
        all_participants: export::participants,
        all_messages: message::stored_messages,
        all_reactions: export::reactions,
    } }

    fn import<'a>(&'a self, rows: &'a [ImportRow]) -> StoreFuture<'a, Vec<Imported>> {
        Box::pin(async move {
            let _turn = self.inner.import.lock().await;
            let rows: Arc<[ImportRow]> = rows.into();
            let mut fates = Vec::with_capacity(rows.len());
            let mut tries = 0;
            while fates.len() < rows.len() {
                let (rest, start) = (rows.clone(), fates.len());
                let plan = self
                    .read(move |context| import::plan(context, &rest[start..]))
                    .await?;
                if plan.write.ops.is_empty() || self.write(plan.write).await? == CommitOutcome::Done
                {
                    self.inner.context.unread.on_import();
                    self.inner.context.mentions.on_import();
                    fates.extend(plan.fates);
                    tries = 0;
                } else {
                    tries += 1;
                    if tries == TRIES_MAX {
                        return Err(contended());
                    }
                }
            }
            Ok(fates)
        })
    }

    fn verify<'a>(
        &'a self,
        after: Option<&'a VerifyPosition>,
        repair: bool,
    ) -> StoreFuture<'a, Verified> {
        Box::pin(self.verified(after, repair))
    }

    fn note<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<String>> {
        let key = key::note(name);
        Box::pin(self.read(move |context| context.view().record(&key)))
    }

    fn set_note<'a>(&'a self, name: &'a str, value: Option<&'a str>) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let key = key::note(name);
            let op = match value {
                Some(value) => Op::Put(key, record::encode(&value)),
                None => Op::Delete(key),
            };
            self.write_ops(vec![op], None).await
        })
    }

    fn set_outbox(&self, since: Option<Timestamp>) -> StoreFuture<'_, ()> {
        Box::pin(self.switch_outbox(since))
    }

    fn count_imported(&self, _: ConversationId) -> StoreFuture<'_, ()> {
        Box::pin(async move { Ok(()) })
    }

    fn compact(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.inner.rewrite_all())
    }

    fn note_once<'a>(&'a self, name: &'a str, value: &'a str) -> StoreFuture<'a, String> {
        Box::pin(async move {
            let key = key::note(name);
            let read = async |key: key::Key| {
                self.read(move |context| context.view().record::<String>(&key))
                    .await
            };
            if let Some(there) = read(key.clone()).await? {
                return Ok(there);
            }
            let write = Write::swap(key.clone(), None, record::encode(&value));
            match self.write(write).await? {
                CommitOutcome::Done => Ok(value.to_owned()),
                CommitOutcome::Refused => {
                    read(key).await?.ok_or_else(|| corrupt("notes", MissingRow))
                }
            }
        })
    }
}
