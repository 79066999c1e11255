//! The operator's part of the naive engine.

use super::*;

impl ScanStore for Naive {
    fn all_users<'a>(
        &'a self,
        after: Option<&'a UserId>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(UserId, Profile)>> {
        Box::pin(async move {
            let kept = self.kept();
            let behind = kept
                .profiles
                .iter()
                .filter(|(user, _)| after.is_none_or(|after| *user > after));
            Ok(behind
                .take(limit)
                .map(|(user, profile)| (user.clone(), profile.clone()))
                .collect())
        })
    }

    fn all_conversations(
        &self,
        after: Option<ConversationId>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<(Conversation, Option<Timestamp>)>> {
        Box::pin(async move {
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
        })
    }
}

impl StoreAdmin for Naive {
    fn import<'a>(&'a self, rows: &'a [ImportRow]) -> StoreFuture<'a, Vec<Imported>> {
        Box::pin(async move {
            let (mut kept, now) = (self.kept(), self.clock.now());
            Ok(rows.iter().map(|row| kept.import(row, now)).collect())
        })
    }

    fn set_outbox(&self, since: Option<Timestamp>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let note = since.map(|since| since.to_string());
            self.set_note(NOTE_OUTBOX_SINCE, note.as_deref()).await?;
            self.kept().has_outbox = since.is_some();
            Ok(())
        })
    }

    fn count_imported(&self, _: ConversationId) -> StoreFuture<'_, ()> {
        Box::pin(async move { Ok(()) })
    }

    fn compact(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move { Ok(()) })
    }

    /// Nothing here follows from anything: every answer is found by looking at everything.
    fn verify<'a>(&'a self, _: Option<&'a VerifyPosition>, _: bool) -> StoreFuture<'a, Verified> {
        Box::pin(async move { Ok(Verified::default()) })
    }

    fn all_participants<'a>(
        &'a self,
        conversation: ConversationId,
        after: Option<&'a UserId>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(UserId, Membership, ImportPositions)>> {
        Box::pin(async move {
            let all = only(self.each(&[conversation], OracleConversation::as_imported));
            Ok(all
                .into_iter()
                .filter(|(user, ..)| after.is_none_or(|after| user > after))
                .take(limit)
                .collect())
        })
    }

    fn all_messages(
        &self,
        conversation: ConversationId,
        after: Option<MessageId>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<StoredMessage>> {
        Box::pin(async move {
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
        })
    }

    fn all_reactions<'a>(
        &'a self,
        conversation: ConversationId,
        message: MessageId,
        after: Option<&'a (Emoji, UserId)>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(Emoji, UserId)>> {
        Box::pin(async move {
            let all = only(self.each(&[conversation], |stored| stored.reactions_on(message)));
            Ok(all
                .into_iter()
                .filter(|one| after.is_none_or(|after| one > after))
                .take(limit)
                .collect())
        })
    }

    fn note<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<String>> {
        Box::pin(async move { Ok(self.kept().notes.get(name).cloned()) })
    }

    fn note_once<'a>(&'a self, name: &'a str, value: &'a str) -> StoreFuture<'a, String> {
        Box::pin(async move {
            Ok(self
                .kept()
                .notes
                .entry(name.to_owned())
                .or_insert_with(|| value.to_owned())
                .clone())
        })
    }

    fn set_note<'a>(&'a self, name: &'a str, value: Option<&'a str>) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut kept = self.kept();
            match value {
                Some(value) => kept.notes.insert(name.to_owned(), value.to_owned()),
                None => kept.notes.remove(name),
            };
            Ok(())
        })
    }
}
