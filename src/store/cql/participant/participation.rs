//! Participation: a viewer's membership in a conversation, beside the conversation itself.
//!
//! The membership is read each time, with the cells of the conversation that change. The rest of the conversation is cached.

use std::collections::HashMap;
use std::sync::Arc;

use uuid::Uuid;

use super::Participants;
use super::roster::{Roster, TABLE};
use crate::model::{Conversation, ConversationId, GroupName, Membership, UserId};
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::driver::executor::{PARTITIONS_MAX, concurrently};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{list, values};
use crate::store::cql::message::conversation::{decode_history, slow_mode};
use crate::store::cql::message::membership::decode_membership;
use crate::store::{Participation, Result};

statements! {
    SELECT_PARTICIPATION: Read "SELECT conversation_id, membership, roster, name, is_large, slow_mode_seconds, history FROM participants_by_conversation WHERE conversation_id = ? AND user_id = ?";
    SELECT_PARTICIPATIONS: Read "SELECT conversation_id, membership, roster, name, is_large, slow_mode_seconds, history FROM participants_by_conversation WHERE conversation_id IN ? AND user_id = ?";
}

type ParticipationColumns = (
    Uuid,
    Option<Vec<u8>>,
    Option<Vec<u8>>,
    Option<String>,
    Option<bool>,
    Option<i32>,
    Option<Vec<u8>>,
);

impl Participants {
    pub(crate) async fn participations(
        &self,
        viewer: &UserId,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<Participation>>> {
        let mut ids = conversations.to_vec();
        ids.sort_unstable();
        ids.dedup();
        let mut found: HashMap<ConversationId, (Membership, DescriptionCells)> = HashMap::new();
        for columns in self.read_participations(viewer, &ids).await? {
            let (id, membership, roster, name, is_large, slow_mode_seconds, history) = columns;
            // A marker without a membership is no participation.
            let Some(membership) = membership else {
                continue;
            };
            let stored = decode_membership(TABLE, &membership)?;
            let membership = Roster::decode_optional(roster.as_deref())?.effective(viewer, stored);
            let cells = DescriptionCells {
                name,
                is_large,
                slow_mode_seconds,
                history,
            };
            found.insert(ConversationId(id), (membership, cells));
        }
        // The conversations come last: a stranger's answer does not depend on whether one exists.
        ids.retain(|id| found.contains_key(id));
        let described = self.described(&ids).await?;
        let mut participations = HashMap::with_capacity(ids.len());
        for (id, conversation) in ids.into_iter().zip(described) {
            let (Some(conversation), Some((membership, cells))) = (conversation, found.remove(&id))
            else {
                continue;
            };
            let conversation = cells.apply(conversation)?;
            participations.insert(
                id,
                Participation {
                    conversation,
                    membership,
                },
            );
        }
        Ok(conversations
            .iter()
            .map(|id| participations.get(id).cloned())
            .collect())
    }

    async fn read_participations(
        &self,
        viewer: &UserId,
        ids: &[ConversationId],
    ) -> Result<Vec<ParticipationColumns>> {
        // A read of one partition goes straight to a replica, a list of them to any coordinator.
        let reads = ids.chunks(PARTITIONS_MAX).map(|piece| match piece {
            [id] => self
                .executor
                .read(&SELECT_PARTICIPATION, values![*id, viewer]),
            piece => self.executor.read(
                &SELECT_PARTICIPATIONS,
                values![list(piece.iter().copied()), viewer],
            ),
        });
        let rows = concurrently(reads).await?;
        Ok(rows.into_iter().flatten().collect())
    }

    /// Conversations as their rows were when this process first read them: their name and size may have changed since.
    pub(super) async fn described(
        &self,
        ids: &[ConversationId],
    ) -> Result<Vec<Option<Arc<Conversation>>>> {
        let mut described: HashMap<ConversationId, Arc<Conversation>> = ids
            .iter()
            .filter_map(|id| Some((*id, self.descriptions.get(*id)?)))
            .collect();
        let missing: Vec<_> = ids
            .iter()
            .copied()
            .filter(|id| !described.contains_key(id))
            .collect();
        for conversation in self.messages.conversations(&missing).await? {
            self.descriptions.put(&conversation);
            described.insert(conversation.id, conversation);
        }
        Ok(ids.iter().map(|id| described.get(id).cloned()).collect())
    }
}

/// The static cells that describe a conversation. They are absent while nothing has changed.
#[derive(Debug, Default)]
pub(super) struct DescriptionCells {
    pub(super) name: Option<String>,
    pub(super) is_large: Option<bool>,
    pub(super) slow_mode_seconds: Option<i32>,
    pub(super) history: Option<Vec<u8>>,
}

impl DescriptionCells {
    /// The conversation as it is now: the row that was read once, with the cells that were read now.
    pub(super) fn apply(self, read: Arc<Conversation>) -> Result<Arc<Conversation>> {
        let name = match self.name {
            Some(name) => {
                Some(GroupName::from_history(&name).map_err(|error| corrupt(TABLE, error))?)
            }
            None => read.name.clone(),
        };
        let is_large = read.is_large || self.is_large.unwrap_or_default();
        let slow_mode_seconds = match self.slow_mode_seconds {
            Some(seconds) => slow_mode(Some(seconds)),
            None => read.slow_mode_seconds,
        };
        let history = match self.history {
            Some(history) => decode_history(Some(&history))?,
            None => read.history,
        };
        if name == read.name
            && is_large == read.is_large
            && slow_mode_seconds == read.slow_mode_seconds
            && history == read.history
        {
            return Ok(read);
        }
        Ok(Arc::new(Conversation {
            name,
            is_large,
            slow_mode_seconds,
            history,
            ..Conversation::clone(&read)
        }))
    }
}
