//! Inbox rows of agents, which have no inbox: each is made from the head of its conversation, for the payloads of mutations.

use std::collections::HashMap;

use super::Cql;
use crate::model::{ConversationId, InboxRow, UserId};
use crate::store::Result;
use crate::store::cql::message::head_cache::HeadSummary;

impl Cql {
    /// Rows for those of these conversations that an agent is in now.
    pub(super) async fn rows_of_agent(
        &self,
        agent: &UserId,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<InboxRow>>> {
        let found = self
            .participants
            .participations(agent, conversations)
            .await?;
        let present = found.into_iter().flatten();
        let present = present.filter(|own| own.membership.is_joined());
        let mut present: Vec<_> = present.map(|own| own.conversation.id).collect();
        present.sort_unstable();
        present.dedup();
        let heads = self.messages.current_heads(&present).await?;
        let row = |(id, head): (ConversationId, HeadSummary)| {
            let row = InboxRow::of_agent(id, head.last_activity, head.last_message);
            (id, row)
        };
        let rows: HashMap<_, _> = present.into_iter().zip(heads).map(row).collect();
        Ok(conversations
            .iter()
            .map(|id| rows.get(id).copied())
            .collect())
    }
}
