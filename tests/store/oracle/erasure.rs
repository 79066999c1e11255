//! Erasure in the naive engine: everything is looked at, and what is the user's goes.

use super::*;

impl ErasureStore for Naive {
    fn conversations_of<'a>(
        &'a self,
        user: &'a UserId,
        after: Option<ConversationId>,
        limit: usize,
    ) -> StoreFuture<'a, ConversationsPiece> {
        Box::pin(async move {
            let kept = self.kept();
            let all = kept.conversations.iter();
            let rest = all.filter(|(id, stored)| {
                stored.people.contains_key(user) && after.is_none_or(|after| **id > after)
            });
            let found: Vec<_> = rest.map(|(id, _)| *id).take(limit).collect();
            let next = found.last().copied().filter(|_| found.len() == limit);
            Ok(ConversationsPiece { found, next })
        })
    }

    fn erase_messages<'a>(
        &'a self,
        conversation: ConversationId,
        user: &'a UserId,
        messages: &'a [MessageId],
        change: TimeUuid,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut kept = self.kept();
            let stored = kept.conversation(conversation)?;
            let mut keys = Vec::new();
            for id in messages {
                if let Some(reactions) = stored.reactions.get_mut(id) {
                    reactions.retain(|(_, by), _| by != user);
                }
                let Some(message) = stored.messages.get_mut(id) else {
                    continue;
                };
                let key = message.client_key.clone();
                keys.extend(key.filter(|_| message.sender == *user));
                if let Some(erased) = message.without_name(user) {
                    *message = Arc::new(erased);
                }
            }
            for key in keys {
                kept.sends.remove(&(conversation, user.clone(), key));
            }
            kept.saw(change);
            Ok(())
        })
    }

    fn erase_participant<'a>(
        &'a self,
        conversation: ConversationId,
        user: &'a UserId,
        change: TimeUuid,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut kept = self.kept();
            let stored = kept.conversation(conversation)?;
            stored.people.remove(user);
            stored.erased.insert(user.clone(), change);
            stored.bans.remove(user);
            for ban in stored.bans.values_mut().filter(|ban| ban.by == *user) {
                ban.by = UserId::erased();
            }
            if stored.record.created_by.as_ref() == Some(user) {
                stored.record.created_by = Some(UserId::erased());
            }
            kept.saw(change);
            Ok(())
        })
    }

    fn erase_user<'a>(&'a self, user: &'a UserId, _: Timestamp) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut kept = self.kept();
            kept.profiles.insert(user.clone(), Profile::default());
            kept.blocks.retain(|(blocker, _), _| blocker != user);
            Ok(())
        })
    }

    fn add_user_erased<'a>(
        &'a self,
        user: &'a UserId,
        event: TimeUuid,
        _: TimeUuid,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut kept = self.kept();
            let erased = OutboxEvent::user_erased(event, user.clone());
            kept.tell_outbox(Report::NO_CONVERSATION, vec![erased]);
            kept.saw(event);
            Ok(())
        })
    }

    fn jobs<'a>(&'a self, ids: &'a [JobId]) -> StoreFuture<'a, Vec<Option<Job>>> {
        Box::pin(async move {
            let kept = self.kept();
            Ok(ids.iter().map(|id| kept.jobs.get(id).cloned()).collect())
        })
    }

    fn running_jobs(&self, limit: usize) -> StoreFuture<'_, Vec<Job>> {
        Box::pin(async move {
            let kept = self.kept();
            let running = kept.jobs.values().filter(|job| job.finished_at.is_none());
            Ok(running.take(limit).cloned().collect())
        })
    }

    fn swap_job<'a>(&'a self, seen: Option<&'a Job>, to: &'a Job) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let mut kept = self.kept();
            let present = kept.jobs.get(&to.id);
            if present.filter(|job| job.finished_at.is_none()) != seen {
                return Ok(false);
            }
            kept.jobs.insert(to.id, to.clone());
            Ok(true)
        })
    }
}
