//! Export of conversations: their participants, and their messages with pins and reactions.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use tokio::io::AsyncWrite;

use super::{Damaged, ExportRun, PAGE, REACTIONS_PAGE, Result, next_after};
use crate::model::{
    Conversation, ConversationId, ConversationProfile, Emoji, IdempotencyKey, InputHash,
    Membership, MembershipState, Message, MessageId, Timestamp, UserId,
};
use crate::store::{self, ImportPositions, ImportRow, StoreAdmin, StoredMessage};
use crate::transfer::progress::Within;

/// Conversations whose first pages are read concurrently, and messages whose reactions are.
const CONVERSATIONS_AHEAD: usize = 8;
const REACTIONS_AHEAD: usize = 16;

/// The first pages of a conversation. Most conversations have no more.
struct Beginning {
    conversation: Conversation,
    activity: Option<Timestamp>,
    profile: ConversationProfile,
    people: Vec<(UserId, Membership, ImportPositions)>,
    messages: Vec<StoredMessage>,
}

impl<W: AsyncWrite + Unpin + Send, J: AsyncWrite + Unpin + Send> ExportRun<'_, W, J> {
    pub(super) async fn conversations(
        &mut self,
        mut after: Option<ConversationId>,
    ) -> Result<bool> {
        let store = Arc::clone(&self.export.store);
        loop {
            let page = store.all_conversations(after, PAGE).await?;
            let is_last = page.len() < PAGE;
            after = page.last().map(|(conversation, _)| conversation.id);
            let beginnings = page
                .into_iter()
                .map(|(conversation, activity)| beginning(&*store, conversation, activity));
            let mut beginnings = stream::iter(beginnings).buffered(CONVERSATIONS_AHEAD);
            while let Some(beginning) = beginnings.next().await {
                if !self.goes_on() || !self.conversation(beginning?).await? {
                    return Ok(false);
                }
            }
            if is_last {
                return Ok(true);
            }
        }
    }

    async fn conversation(&mut self, beginning: Beginning) -> Result<bool> {
        let Beginning {
            conversation,
            activity,
            profile,
            people,
            messages,
        } = beginning;
        let id = conversation.id;
        self.row(&ImportRow::Conversation {
            conversation,
            last_activity: activity,
            profile,
        })
        .await?;
        let more_people = next_after(&people, |(user, ..)| user.clone());
        self.participants(id, people).await?;
        if let Some(after) = more_people
            && !self.participants_after(id, Some(after)).await?
        {
            return Ok(false);
        }
        let more_messages = next_after(&messages, |message| message.id);
        self.messages(id, messages).await?;
        match more_messages {
            Some(after) => self.messages_after(id, Some(after)).await,
            None => Ok(true),
        }
    }

    /// Writes the rest of a conversation that an earlier run has begun.
    pub(super) async fn rest_of(&mut self, id: ConversationId, within: Within) -> Result<bool> {
        let (message, reaction) = match within {
            Within::Conversation => return self.all_after(id, None).await,
            Within::Participant(user) => return self.all_after(id, Some(user)).await,
            Within::Message(message) => {
                let stored = self.export.store.messages(&[(id, message)]).await?;
                if let Some(stored) = stored.into_iter().flatten().next() {
                    self.pin(&stored).await?;
                }
                (message, None)
            }
            Within::Pin(message) => (message, None),
            Within::Reaction(message, reaction) => (message, Some(reaction)),
        };
        self.reactions_after(id, message, reaction, None).await?;
        self.messages_after(id, Some(message)).await
    }

    /// Writes the participants after one of them, and all messages.
    async fn all_after(&mut self, id: ConversationId, after: Option<UserId>) -> Result<bool> {
        Ok(self.participants_after(id, after).await? && self.messages_after(id, None).await?)
    }

    async fn participants_after(
        &mut self,
        id: ConversationId,
        mut after: Option<UserId>,
    ) -> Result<bool> {
        while self.goes_on() {
            let page = self
                .export
                .store
                .all_participants(id, after.as_ref(), PAGE)
                .await?;
            after = next_after(&page, |(user, ..)| user.clone());
            self.participants(id, page).await?;
            if after.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) async fn participants(
        &mut self,
        conversation: ConversationId,
        people: Vec<(UserId, Membership, ImportPositions)>,
    ) -> Result<()> {
        let is_banned = |one: &Membership| one.state == MembershipState::Banned;
        let banned: Vec<_> = people
            .iter()
            .filter(|(_, membership, _)| is_banned(membership))
            .map(|(user, ..)| user.clone())
            .collect();
        let mut bans = HashMap::new();
        if !banned.is_empty() {
            let found = self.export.store.bans_of(conversation, &banned).await?;
            bans.extend(banned.into_iter().zip(found));
        }
        for (user, membership, positions) in people {
            let ban = bans.remove(&user).flatten();
            let membership = match &ban {
                // A ban that has ended is no ban.
                None if is_banned(&membership) => Membership {
                    state: MembershipState::Left,
                    banned_until: None,
                    ..membership
                },
                Some(_) | None => membership,
            };
            self.row(&ImportRow::Participant {
                conversation,
                user,
                membership,
                positions,
                ban,
            })
            .await?;
        }
        Ok(())
    }

    async fn messages_after(
        &mut self,
        id: ConversationId,
        mut after: Option<MessageId>,
    ) -> Result<bool> {
        while self.goes_on() {
            let page = self.export.store.all_messages(id, after, PAGE).await?;
            after = next_after(&page, |message| message.id);
            self.messages(id, page).await?;
            if after.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes messages with their reactions. A damaged message is reported and left out, with its
    /// reactions.
    async fn messages(&mut self, id: ConversationId, messages: Vec<StoredMessage>) -> Result<()> {
        let store = Arc::clone(&self.export.store);
        let with_reactions = messages.into_iter().map(async |stored| {
            let reactions = match &stored.message {
                Ok(message) if message.has_reactions => {
                    store
                        .all_reactions(id, message.id, None, REACTIONS_PAGE)
                        .await?
                }
                Ok(_) | Err(_) => Vec::new(),
            };
            Ok::<_, store::Error>((stored, reactions))
        });
        let mut with_reactions = stream::iter(with_reactions).buffered(REACTIONS_AHEAD);
        while let Some(read) = with_reactions.next().await {
            let (StoredMessage { id: at, message }, reactions) = read?;
            let message = match message {
                Ok(message) => message,
                Err(why) => {
                    self.leave_out(Damaged {
                        conversation: id,
                        message: at,
                        why,
                    })
                    .await?;
                    continue;
                }
            };
            let row = match self.changed_hash(&message).await? {
                Some(hash) => ImportRow::ChangedMessage(Arc::clone(&message), hash),
                None => ImportRow::Message(Arc::clone(&message)),
            };
            self.row(&row).await?;
            self.pin(&message).await?;
            let more = reactions
                .last()
                .filter(|_| reactions.len() == REACTIONS_PAGE)
                .cloned();
            self.reactions(id, at, reactions).await?;
            if more.is_some() {
                self.reactions_after(id, at, more, None).await?;
            }
        }
        Ok(())
    }

    /// The hash of a message's send, if its content does not tell it any more and its key is still
    /// recognised.
    async fn changed_hash(&self, message: &Message) -> Result<Option<InputHash>> {
        let content = message.content.as_ref();
        let is_changed = content.is_none_or(|content| content.edited_at.is_some());
        let Some(key) = message.client_key.as_ref().filter(|_| is_changed) else {
            return Ok(None);
        };
        let until = message.id.moment();
        if until.plus_micros(IdempotencyKey::LIFETIME_MICROS) <= self.export.clock.now() {
            return Ok(None);
        }
        let keys = [(message.sender.clone(), key.clone())];
        let store = &self.export.store;
        let sends = store.earlier_sends(message.conversation, &keys).await?;
        let send = sends.into_iter().flatten().next();
        let send = send.filter(|send| send.message == message.id);
        Ok(send.map(|send| send.input_hash))
    }

    /// Writes the pin of a message that is pinned.
    pub(super) async fn pin(&mut self, message: &Message) -> Result<()> {
        let Some(pin) = message.current_pin() else {
            return Ok(());
        };
        self.row(&ImportRow::Pin {
            conversation: message.conversation,
            message: message.id,
            by: pin.by.clone(),
            at: pin.change.moment(),
        })
        .await
    }

    /// Writes the reactions after one. With a user, only those by that user.
    pub(super) async fn reactions_after(
        &mut self,
        id: ConversationId,
        message: MessageId,
        mut after: Option<(Emoji, UserId)>,
        by: Option<&UserId>,
    ) -> Result<()> {
        loop {
            let page = self
                .export
                .store
                .all_reactions(id, message, after.as_ref(), REACTIONS_PAGE)
                .await?;
            after = page
                .last()
                .filter(|_| page.len() == REACTIONS_PAGE)
                .cloned();
            let page = page.into_iter();
            let page = page.filter(|(_, user)| by.is_none_or(|by| user == by));
            self.reactions(id, message, page).await?;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn reactions(
        &mut self,
        conversation: ConversationId,
        message: MessageId,
        reactions: impl IntoIterator<Item = (Emoji, UserId)>,
    ) -> Result<()> {
        for (emoji, user) in reactions {
            self.row(&ImportRow::Reaction {
                conversation,
                message,
                emoji,
                user,
            })
            .await?;
        }
        Ok(())
    }
}

async fn beginning(
    store: &dyn StoreAdmin,
    conversation: Conversation,
    activity: Option<Timestamp>,
) -> store::Result<Beginning> {
    let id = conversation.id;
    let ids = [id];
    let (profiles, people, messages) = tokio::try_join!(
        store.conversation_profiles(&ids),
        store.all_participants(id, None, PAGE),
        store.all_messages(id, None, PAGE)
    )?;
    Ok(Beginning {
        conversation,
        activity,
        profile: profiles.into_iter().next().unwrap_or_default(),
        people,
        messages,
    })
}
