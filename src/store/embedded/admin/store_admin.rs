//! The operator's part of the embedded store: import, export, verification and notes.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::task::spawn_blocking;

use super::{export, import};
use crate::model::{
    Conversation, ConversationId, Emoji, Membership, MessageId, Profile, Timestamp, UserId,
};
use crate::store::embedded::engine::committer::{CommitOutcome, Condition, Op, Write};
use crate::store::embedded::engine::db::{MissingRow, corrupt};
use crate::store::embedded::engine::{key, record};
use crate::store::embedded::{Busy, Embedded, TRIES_MAX, contended, message};
use crate::store::{
    Error, ImportPositions, ImportRow, Imported, Result, StoreAdmin, StoredMessage, Verified,
    VerifyPosition,
};

#[async_trait]
impl StoreAdmin for Embedded {
    async fn import(&self, rows: &[ImportRow]) -> Result<Vec<Imported>> {
        let _turn = self.inner.import.lock().await;
        let rows: Arc<[ImportRow]> = rows.into();
        let mut fates = Vec::with_capacity(rows.len());
        let mut tries = 0;
        while fates.len() < rows.len() {
            let (rest, start) = (rows.clone(), fates.len());
            let plan = self
                .read(move |context| import::plan(context, &rest[start..]))
                .await?;
            if plan.write.ops.is_empty() || self.write(plan.write).await? == CommitOutcome::Done {
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
    }

    async fn all_users(
        &self,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<(UserId, Profile)>> {
        let after = after.cloned();
        self.read(move |context| export::users(context, after.as_ref(), limit))
            .await
    }

    async fn all_conversations(
        &self,
        after: Option<ConversationId>,
        limit: usize,
    ) -> Result<Vec<(Conversation, Option<Timestamp>)>> {
        self.read(move |context| export::conversations(context, after, limit))
            .await
    }

    async fn all_participants(
        &self,
        conversation: ConversationId,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<(UserId, Membership, ImportPositions)>> {
        let after = after.cloned();
        self.read(move |context| export::participants(context, conversation, after.as_ref(), limit))
            .await
    }

    async fn all_messages(
        &self,
        conversation: ConversationId,
        after: Option<MessageId>,
        limit: usize,
    ) -> Result<Vec<StoredMessage>> {
        self.read(move |context| message::stored_messages(context, conversation, after, limit))
            .await
    }

    async fn all_reactions(
        &self,
        conversation: ConversationId,
        message: MessageId,
        after: Option<&(Emoji, UserId)>,
        limit: usize,
    ) -> Result<Vec<(Emoji, UserId)>> {
        let after = after.cloned();
        self.read(move |context| {
            export::reactions(context, conversation, message, after.as_ref(), limit)
        })
        .await
    }

    async fn verify(&self, after: Option<&VerifyPosition>, repair: bool) -> Result<Verified> {
        self.verified(after, repair).await
    }

    async fn note(&self, name: &str) -> Result<Option<String>> {
        let key = key::note(name);
        self.read(move |context| context.view().record(&key)).await
    }

    async fn set_note(&self, name: &str, value: Option<&str>) -> Result<()> {
        let key = key::note(name);
        let op = match value {
            Some(value) => Op::Put(key, record::encode(&value)),
            None => Op::Delete(key),
        };
        self.write(Write {
            ops: vec![op],
            ..Write::default()
        })
        .await
        .map(drop)
    }

    async fn set_outbox(&self, since: Option<Timestamp>) -> Result<()> {
        self.switch_outbox(since).await
    }

    async fn count_imported(&self, _: ConversationId) -> Result<()> {
        Ok(())
    }

    async fn compact(&self) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        spawn_blocking(move || inner.context.db.compact_all())
            .await
            .map_err(|_| Error::Unavailable(Box::new(Busy::Panic)))?
    }

    async fn note_once(&self, name: &str, value: &str) -> Result<String> {
        let key = key::note(name);
        let read = async |key: key::Key| {
            self.read(move |context| context.view().record::<String>(&key))
                .await
        };
        if let Some(there) = read(key.clone()).await? {
            return Ok(there);
        }
        let op = Op::Put(key.clone(), record::encode(&value));
        match self
            .write(Write {
                ops: vec![op],
                conditions: vec![Condition::Absent(key.clone())],
                ..Write::default()
            })
            .await?
        {
            CommitOutcome::Done => Ok(value.to_owned()),
            CommitOutcome::Refused => read(key).await?.ok_or_else(|| corrupt("notes", MissingRow)),
        }
    }
}
