//! Participation: a viewer's membership in a conversation, beside the conversation itself.

use std::pin::pin;

use futures_util::future::{Either, select};

use super::Participants;
use super::roster::{Roster, TABLE};
use crate::model::{ConversationId, UserId};
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::values;
use crate::store::cql::message::register::decode_membership;
use crate::store::{Participation, Result};

statements! {
    SELECT_PARTICIPATION: Read "SELECT membership, roster FROM participants_by_conversation WHERE conversation_id = ? AND user_id = ?";
}

impl Participants {
    pub(crate) async fn participations(
        &self,
        viewer: &UserId,
        conversations: &[ConversationId],
    ) -> Result<Vec<Option<Participation>>> {
        concurrently(
            conversations
                .iter()
                .map(|id| self.participation(viewer, *id))
                .collect(),
        )
        .await
    }

    async fn participation(
        &self,
        viewer: &UserId,
        id: ConversationId,
    ) -> Result<Option<Participation>> {
        type Columns = (Option<Vec<u8>>, Option<Vec<u8>>);
        let row = self
            .executor
            .read_one::<Columns>(&SELECT_PARTICIPATION, values![id, viewer]);
        // The viewer's own row decides: the answer to a stranger does not wait for the conversation, whether there is one or not.
        let (row, found) = match select(pin!(row), pin!(self.messages.conversation(id))).await {
            Either::Left((row, found)) => match row? {
                None | Some((None, _)) => return Ok(None),
                row @ Some(_) => (row, found.await?),
            },
            Either::Right((found, row)) => match row.await? {
                None | Some((None, _)) => return Ok(None),
                row @ Some(_) => (row, found?),
            },
        };
        let (Some(found), Some((Some(membership), roster))) = (found, row) else {
            return Ok(None);
        };
        let stored = decode_membership(TABLE, &membership)?;
        let membership = Roster::decode_optional(roster.as_deref())?.effective(viewer, stored);
        Ok(Some(Participation {
            conversation: found.conversation,
            membership,
            newest: found.head.newest(),
        }))
    }
}
