//! The operator's part of the naive engine.

use super::*;

#[async_trait]
impl StoreAdmin for Naive {
    async fn import(&self, rows: &[ImportRow]) -> Result<Vec<Imported>> {
        let (mut kept, now) = (self.kept(), self.clock.now());
        Ok(rows.iter().map(|row| kept.import(row, now)).collect())
    }

    async fn set_outbox(&self, since: Option<Timestamp>) -> Result<()> {
        let note = since.map(|since| since.to_string());
        self.set_note(NOTE_OUTBOX_SINCE, note.as_deref()).await?;
        self.kept().has_outbox = since.is_some();
        Ok(())
    }

    async fn count_imported(&self, _: ConversationId) -> Result<()> {
        Ok(())
    }

    async fn compact(&self) -> Result<()> {
        Ok(())
    }

    /// Nothing here follows from anything: every answer is found by looking at everything.
    async fn verify(&self, _: Option<&VerifyPosition>, _: bool) -> Result<Verified> {
        Ok(Verified::default())
    }

    async fn all_users(
        &self,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<(UserId, Profile)>> {
        let kept = self.kept();
        let behind = kept
            .profiles
            .iter()
            .filter(|(user, _)| after.is_none_or(|after| *user > after));
        Ok(behind
            .take(limit)
            .map(|(user, profile)| (user.clone(), profile.clone()))
            .collect())
    }

    async fn all_conversations(
        &self,
        after: Option<ConversationId>,
        limit: usize,
    ) -> Result<Vec<(Conversation, Option<Timestamp>)>> {
        let kept = self.kept();
        let behind = kept
            .conversations
            .values()
            .filter(|stored| after.is_none_or(|after| stored.record.id > after));
        let each = |stored: &OracleConversation| {
            let follows = stored
                .last_message()
                .map_or(stored.record.created_at, MessageId::moment);
            (
                stored.record.clone(),
                Some(stored.last_activity()).filter(|activity| *activity != follows),
            )
        };
        Ok(behind.take(limit).map(each).collect())
    }

    async fn all_participants(
        &self,
        conversation: ConversationId,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<(UserId, Membership, ImportPositions)>> {
        let all = only(self.each(&[conversation], OracleConversation::as_imported));
        Ok(all
            .into_iter()
            .filter(|(user, ..)| after.is_none_or(|after| user > after))
            .take(limit)
            .collect())
    }

    async fn all_messages(
        &self,
        conversation: ConversationId,
        after: Option<MessageId>,
        limit: usize,
    ) -> Result<Vec<StoredMessage>> {
        let all = only(self.each(&[conversation], |room| {
            room.messages.values().cloned().collect::<Vec<_>>()
        }));
        let mut rest: Vec<_> = all
            .into_iter()
            .filter(|message| after.is_none_or(|after| message.id > after))
            .collect();
        rest.sort_by_key(|message| message.id);
        rest.into_iter()
            .take(limit)
            .map(|message| StoredMessage::of(message.id, Ok(Message::clone(&message))))
            .collect()
    }

    async fn all_reactions(
        &self,
        conversation: ConversationId,
        message: MessageId,
        after: Option<&(Emoji, UserId)>,
        limit: usize,
    ) -> Result<Vec<(Emoji, UserId)>> {
        let all = only(self.each(&[conversation], |stored| stored.reactions_on(message)));
        Ok(all
            .into_iter()
            .filter(|one| after.is_none_or(|after| one > after))
            .take(limit)
            .collect())
    }

    async fn note(&self, name: &str) -> Result<Option<String>> {
        Ok(self.kept().notes.get(name).cloned())
    }

    async fn note_once(&self, name: &str, value: &str) -> Result<String> {
        Ok(self
            .kept()
            .notes
            .entry(name.to_owned())
            .or_insert_with(|| value.to_owned())
            .clone())
    }

    async fn set_note(&self, name: &str, value: Option<&str>) -> Result<()> {
        let mut kept = self.kept();
        match value {
            Some(value) => kept.notes.insert(name.to_owned(), value.to_owned()),
            None => kept.notes.remove(name),
        };
        Ok(())
    }
}
