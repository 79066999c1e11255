//! Export of one person's data: the profile, memberships, messages, reactions, pins, blocks and reports of a
//! user. An interrupted one begins again.

use std::sync::Arc;

use tokio::io::AsyncWrite;

use super::{ExportRun, PAGE, Result, next_after};
use crate::model::{ConversationId, ConversationProfile, Flags, Message, OrderKey, UserId};
use crate::store::{ImportPositions, ImportRow};

impl<W: AsyncWrite + Unpin + Send, J: AsyncWrite + Unpin + Send> ExportRun<'_, W, J> {
    pub(super) async fn person(&mut self, user: &UserId) -> Result<bool> {
        let export = self.export;
        self.header(None).await?;
        let users = std::slice::from_ref(user);
        let profile = export.store.profiles(users).await?.pop().flatten();
        let restriction = export.store.restrictions_of(users).await?.pop();
        self.row(&ImportRow::User {
            user: user.clone(),
            profile: profile.unwrap_or_default(),
            restriction: restriction.unwrap_or_default(),
        })
        .await?;
        self.blocks(user, None).await?;
        let mut after = None;
        loop {
            let piece = export.store.conversations_of(user, after, PAGE).await?;
            for id in piece.found {
                if !self.goes_on() || !self.part_of(user, id).await? {
                    return Ok(false);
                }
            }
            after = piece.next;
            if after.is_none() {
                break;
            }
        }
        self.reports_to_the_end(Some(user), OrderKey::MIN).await
    }

    /// Writes a user's part of a conversation.
    async fn part_of(&mut self, user: &UserId, id: ConversationId) -> Result<bool> {
        let store = Arc::clone(&self.export.store);
        let found = store.conversations(&[id]).await?.pop().flatten();
        let Some(conversation) = found else {
            return Ok(true);
        };
        self.row(&ImportRow::Conversation {
            conversation: (*conversation).clone(),
            last_activity: None,
            // It is of the group, and not of the person.
            profile: ConversationProfile::default(),
        })
        .await?;
        let key = (id, user.clone());
        let participant = store.participants_by_name(&[key]).await?.pop().flatten();
        if let Some(participant) = participant {
            let row = store.inbox_rows(user, &[id]).await?.pop().flatten();
            let (read, flags) = row.map_or((participant.read_up_to, Flags::default()), |row| {
                (row.read_up_to(), row.flags)
            });
            let positions = ImportPositions::of(&participant, read, flags);
            let people = vec![(user.clone(), participant.membership, positions)];
            self.participants(id, people).await?;
        }
        let mut after = None;
        loop {
            let page = store.all_messages(id, after, PAGE).await?;
            after = next_after(&page, |message| message.id);
            for stored in page {
                if let Ok(message) = stored.message {
                    self.acts_on(user, &message).await?;
                }
            }
            if after.is_none() {
                return Ok(true);
            }
            if !self.goes_on() {
                return Ok(false);
            }
        }
    }

    /// Writes a message of the user, and what the user did to any message.
    async fn acts_on(&mut self, user: &UserId, message: &Arc<Message>) -> Result<()> {
        if message.sender == *user {
            self.row(&ImportRow::Message(Arc::clone(message))).await?;
        }
        if message.current_pin().is_some_and(|pin| pin.by == *user) {
            self.pin(message).await?;
        }
        if message.has_reactions {
            let (id, message) = (message.conversation, message.id);
            self.reactions_after(id, message, None, Some(user)).await?;
        }
        Ok(())
    }
}
