//! Verification of mentions: messages without their rows, and, list by list, rows of messages that do not have them.

use std::sync::Arc;

use uuid::Uuid;

use super::Admin;
use super::verify::{CqlPieceCheck, PartitionKey, skip_damaged, uuid_of};
use crate::model::{ConversationId, Message, MessageId};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{user, values};
use crate::store::cql::inbox::mention::Mentioned;
use crate::store::rules::finding;
use crate::store::{Finding, Result};

/// Lists of one piece.
const LISTS_MAX: usize = 100;

statements! {
    SCAN_MENTIONS: Read "SELECT DISTINCT user_id, conversation_id FROM mentions_by_entry WHERE token(user_id, conversation_id) >= ? LIMIT ?";
    SCAN_MENTIONS_FROM: Read "SELECT DISTINCT user_id, conversation_id FROM mentions_by_entry WHERE token(user_id, conversation_id) >= token(?, ?) LIMIT ?";
    SCAN_EVERYONE: Read "SELECT DISTINCT conversation_id FROM everyone_by_conversation WHERE token(conversation_id) >= ? LIMIT ?";
    SCAN_EVERYONE_FROM: Read "SELECT DISTINCT conversation_id FROM everyone_by_conversation WHERE token(conversation_id) >= token(?) LIMIT ?";
}

impl CqlPieceCheck<'_> {
    pub(super) async fn mentions(&mut self, from: Option<&[u8]>) -> Result<PartitionKey> {
        type Columns = (String, Uuid);
        let from: Option<Columns> = from.map(|bytes| {
            let name = bytes.get(16..).unwrap_or_default();
            (String::from_utf8_lossy(name).into_owned(), uuid_of(bytes))
        });
        let after = from.as_ref().map(|(name, id)| values![name.as_str(), *id]);
        let is_after = |row: &Columns| from.as_ref() == Some(row);
        let statements = (&SCAN_MENTIONS, &SCAN_MENTIONS_FROM);
        let rows: Vec<Columns> = self
            .admin
            .rows_after(statements, after, LISTS_MAX, is_after)
            .await?;
        for (name, id) in &rows {
            let user = user("mentions_by_entry", name)?;
            self.list(Mentioned::User(user), ConversationId(*id))
                .await?;
        }
        let last = rows.last().filter(|_| rows.len() == LISTS_MAX);
        Ok(last.map(|(name, id)| [id.as_bytes().as_slice(), name.as_bytes()].concat()))
    }

    pub(super) async fn everyone(&mut self, from: Option<&[u8]>) -> Result<PartitionKey> {
        let from = from.map(uuid_of);
        let after = from.map(|id| values![id]);
        let is_after = |(id,): &(Uuid,)| from == Some(*id);
        let statements = (&SCAN_EVERYONE, &SCAN_EVERYONE_FROM);
        let rows: Vec<(Uuid,)> = self
            .admin
            .rows_after(statements, after, LISTS_MAX, is_after)
            .await?;
        for (id,) in &rows {
            self.list(Mentioned::Everyone, ConversationId(*id)).await?;
        }
        let last = rows.last().filter(|_| rows.len() == LISTS_MAX);
        Ok(last.map(|(id,)| id.as_bytes().to_vec()))
    }

    async fn list(&mut self, mentioned: Mentioned, id: ConversationId) -> Result<()> {
        let (admin, repair) = (self.admin, self.repair);
        let messages = admin.inboxes.all_mentions(&mentioned, id).await?;
        self.verified.looked_at += messages.len() as u64;
        for message in messages {
            if admin.is_mentioned(id, message, &mentioned).await? {
                continue;
            }
            if repair {
                let mut writes = Writes::of_one_partition();
                let now = admin.clock.now().micros();
                writes.delete_mention(id, message, &mentioned, now);
                admin.executor.write_all(writes).await?;
            }
            let example = format!("{message}, conversation {id}");
            self.verified.found(finding::MENTION_STRAY, example, repair);
        }
        Ok(())
    }
}

impl Admin {
    async fn is_mentioned(
        &self,
        id: ConversationId,
        message: MessageId,
        mentioned: &Mentioned,
    ) -> Result<bool> {
        let stored = self.messages.by_ids(&[(id, message)]).await;
        let stored = skip_damaged(stored.map(|found| found.into_iter().next().flatten()))?;
        Ok(stored.is_some_and(|stored| Mentioned::of(&stored).contains(mentioned)))
    }

    /// Checks that the mentions of these messages are counted.
    pub(super) async fn check_mentions(
        &self,
        messages: &[Arc<Message>],
        repair: bool,
    ) -> Result<Vec<Finding>> {
        let now = self.clock.now().micros();
        let mut findings = Vec::new();
        for message in messages {
            let id = message.conversation;
            let all = Mentioned::of(message);
            let each = all
                .iter()
                .map(|one| self.inboxes.has_mention(id, message.id, one));
            let found = concurrently(each).await?;
            if found.iter().all(|is_counted| *is_counted) {
                continue;
            }
            let what = format!("{}, conversation {id}", message.id);
            findings.push(Finding::of(finding::MENTION, what, false));
            if repair {
                let mut writes = Writes::logged();
                writes.put_mentions(message, &all, now);
                self.messages.invalidate_mentions(&mut writes, message);
                self.executor.write_all(writes).await?;
            }
        }
        Ok(findings)
    }
}
